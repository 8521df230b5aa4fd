"""The world of these tests: a front with a handler of the test's own, asked in process or over a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from tooldock.dialects.rest import refuse
from tooldock.edge import (
    Credentials,
    Front,
    Handler,
    Hosts,
    Metrics,
    Origins,
    Proxies,
    Request,
    Response,
    Tls,
)
from tooldock.edge.http import DEFAULT_MAX_BODY
from tooldock.edge.server import bind, server_config
from tooldock.edge.watch import Watch
from tooldock.model import Caller

TOKEN = "a-token-for-the-tests"
BEARER = {"authorization": f"Bearer {TOKEN}"}
CALLER = Caller("tester")


@dataclass
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    finished: bool = False
    chunks: list[bytes] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        values = [value.decode() for key, value in self.headers if key == name.encode()]
        assert len(values) <= 1, f"{name} was sent {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        code: str = self.json()["error"]["code"]
        return code


async def hello(request: Request) -> Response:
    """Says what it was asked."""
    seen = {
        "method": request.method,
        "path": request.path,
        "namespace": request.namespace,
        "caller": request.caller.name,
        "address": request.address,
        "scheme": request.scheme,
        "body": (await request.read()).decode(),
    }
    return Response(200, json.dumps(seen).encode(), ((b"content-type", b"application/json"),))


def front(
    handler: Handler = hello,
    *,
    bind_host: str = "127.0.0.1",
    allowed_hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    auth: bool = True,
    proxies: Iterable[str] = (),
    max_body: int = DEFAULT_MAX_BODY,
    watch: Watch | None = None,
    metrics: Metrics | None = None,
) -> Front:
    return Front(
        handler,
        refuse=refuse,
        hosts=Hosts(bind_host, allowed_hosts),
        origins=Origins(origins),
        credentials=Credentials({TOKEN: CALLER}) if auth else None,
        proxies=Proxies(proxies),
        max_body=max_body,
        watch=watch,
        metrics=metrics,
    )


Pairs = Iterable[tuple[str, str]] | dict[str, str]


def scope(
    method: str,
    path: str,
    headers: Pairs = (),
    *,
    peer: tuple[str, int] | None = ("127.0.0.1", 50000),
    query: str = "",
    scheme: str = "http",
    http_version: str = "1.1",
) -> dict[str, Any]:
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if not any(name == "host" for name, _ in pairs):
        pairs.insert(0, ("host", "127.0.0.1:8000"))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": http_version,
        "method": method,
        "scheme": scheme,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in pairs if value != ""],
        "client": peer,
        "server": ("127.0.0.1", 8000),
        "state": {},
    }


class Wire:
    """The server's side of one ASGI exchange, with the rules a server enforces."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in messages:
            self.incoming.put_nowait(message)
        self.answer: Answer | None = None
        self.listened = asyncio.Event()
        """Set when somebody waits for a message that has not come yet."""

    async def receive(self) -> dict[str, Any]:
        if self.incoming.empty():
            self.listened.set()
        return await self.incoming.get()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            assert self.answer is None, "two answers to one request"
            self.answer = Answer(message["status"], list(message["headers"]))
            return
        assert self.answer is not None
        assert not self.answer.finished, "a body after the end"
        self.answer.body += message.get("body", b"")
        self.answer.chunks.append(message.get("body", b""))
        self.answer.finished = not message.get("more_body", False)

    def hang_up(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})


async def ask(
    app: Any, method: str, path: str, headers: Pairs = (), body: bytes | list[bytes] = b"", **how: Any
) -> Answer:
    """One request in process. A list of bodies arrives in as many pieces."""
    pieces = body if isinstance(body, list) else [body]
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if body and not any(name in ("content-length", "transfer-encoding") for name, _ in pairs):
        pairs.append(("content-length", str(len(b"".join(pieces)))))
    wire = Wire(
        *(
            {"type": "http.request", "body": piece, "more_body": index < len(pieces) - 1}
            for index, piece in enumerate(pieces)
        )
    )
    async with asyncio.timeout(10):
        await app(scope(method, path, pairs, **how), wire.receive, wire.send)
    assert wire.answer is not None
    assert wire.answer.finished
    return wire.answer


@asynccontextmanager
async def serve(app: Any, tls: Tls | None = None, **options: Any) -> AsyncIterator[int]:
    """A real server on a free port of the loopback."""
    listener = bind("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    server = uvicorn.Server(server_config(app, host="127.0.0.1", port=port, tls=tls, drain_seconds=1, **options))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield port
    finally:
        server.should_exit = True
        async with asyncio.timeout(20):
            await running
        listener.close()


async def exchange(port: int, data: bytes, *, until_close: bool = True) -> bytes:
    """Send raw bytes, read what comes back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(10):
            writer.write(data)
            await writer.drain()
            return await reader.read() if until_close else await read_response(reader)
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """One response with a Content-Length, from a connection that stays open."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    return head + await reader.readexactly(length)
