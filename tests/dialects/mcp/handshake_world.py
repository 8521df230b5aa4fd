"""The world of the tests of the handshake revisions: the real front, router and engine over a socket, with tools that
are plain coroutines of the test, and a client that sees every event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from tests.dialects.mcp.elsewhere import Elsewhere
from tests.edge.world import serve
from tests.source import EmptySource
from tooldock.dialects.mcp import answers
from tooldock.dialects.mcp.handshake import Handshake
from tooldock.dialects.mcp.http import Mcp
from tooldock.dialects.mcp.legacy_sse import LegacySse
from tooldock.dialects.mcp.methods import Methods
from tooldock.dialects.mcp.revisions import HANDSHAKE, R2025_11_25, Revisions
from tooldock.dialects.mcp.sessions import Sessions
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.edge import Credentials, Front, Hosts, Origins
from tooldock.edge.watch import Watch
from tooldock.engine.audit import AuditLog
from tooldock.engine.pipeline import Engine
from tooldock.engine.registry import Catalogue, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.model import Call, Caller, Channel, Item, Outcome, Tool

TOKEN, OTHER_TOKEN = "a-token-for-the-tests", "another-token-for-the-tests"
BOTH = "application/json, text/event-stream"
ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}

Function = Callable[[dict[str, Any], Channel], Awaitable[Any]]


class Source(EmptySource):
    """Tools of the test's own, each a coroutine."""

    def __init__(self, namespace: str, functions: Mapping[str, Function]) -> None:
        self._namespace = namespace
        self._functions = functions
        self.calls: list[Call] = []

    def list(self) -> Sequence[Tool]:
        hints = {"readOnlyHint": True}
        return [Tool(namespace=self._namespace, name=name, annotations=hints) for name in self._functions]

    async def call(self, call: Call, item: Item, deadline: float, channel: Channel, /) -> Outcome:
        self.calls.append(call)
        return Outcome("ok", orjson.dumps(await self._functions[call.tool](call.arguments, channel)))


def entry(namespace: str, **functions: Function) -> Entry:
    source = Source(namespace, functions)
    schema: dict[str, Any] = {"type": "object"}
    return Entry(
        namespace,
        {tool.name: Offer(tool, source, Validator(tool.name, schema)) for tool in source.list()},
        Limits(timeout=60, max_concurrency=256, max_queue=256, max_output=16 << 20),
        reading=source,
    )


async def echo(arguments: dict[str, Any], channel: Channel) -> Any:
    return arguments.get("text")


async def steps(arguments: dict[str, Any], channel: Channel) -> Any:
    """Says something before its answer."""
    for number in range(1, int(arguments.get("count", 2)) + 1):
        await channel.progress(number, None, f"step {number}")
    return "done"


class Held:
    """A tool that stays where it is until the test lets it go on."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = ""

    async def __call__(self, arguments: dict[str, Any], channel: Channel) -> Any:
        if arguments.get("speak"):
            await channel.progress(1, None, "begun")
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        if arguments.get("speak"):
            await channel.progress(2, None, "nearly")
        self.ended = "done"
        return "released"


async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
    """Puts a question to the client and gives back the answer."""
    return await channel.ask("elicit", {"message": "Really?", "schema": {"type": "object", "properties": {}}})


@dataclass
class Event:
    id: str | None = None
    event: str | None = None
    data: str | None = None
    retry: int | None = None

    @property
    def message(self) -> Any:
        assert self.data
        return json.loads(self.data)


class Events:
    """A stream of events that is being received."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()
        self.comments = 0

    async def event(self) -> Event | None:
        """The next block that is no comment; None at the end."""
        found: Event | None = None
        async with asyncio.timeout(10):
            async for line in self._lines:
                if line.startswith(":"):
                    self.comments += 1
                elif line:
                    found = found or Event()
                    name, _, value = line.partition(":")
                    value = value.removeprefix(" ")
                    setattr(found, name, int(value) if name == "retry" else value)
                elif found is not None:
                    return found
        return found

    async def message(self) -> Any:
        """The next message, also its event's id; None at the end."""
        while (found := await self.event()) is not None:
            if found.data:
                return found.message
        return None

    async def rest(self) -> list[Event]:
        found = []
        while (one := await self.event()) is not None:
            found.append(one)
        return found


class Client:
    """One client with one session."""

    def __init__(self, world: World, namespace: str, token: str, path: str = "/mcp") -> None:
        self._world = world
        self._path = path
        self.revision: str | None = None
        self.id: str | None = None
        self.headers = {"authorization": f"Bearer {token}", "x-namespace": namespace, "accept": BOTH}
        self._next = 0

    def request(self, method: str, body: Any = None, headers: Mapping[str, str | None] | None = None) -> httpx.Request:
        sent: dict[str, str | None] = {**self.headers}
        if method == "POST":
            sent["content-type"] = "application/json"
        elif method == "GET":
            sent["accept"] = "text/event-stream"
        if self.id is not None:
            sent["mcp-session-id"] = self.id
            sent["mcp-protocol-version"] = self.revision
        sent |= headers or {}
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kept = {name: value for name, value in sent.items() if value is not None}
        request = self._world.http.build_request(method, self._path, content=content, headers=kept)
        if "accept" not in kept:
            del request.headers["accept"]
        return request

    async def post(self, body: Any, headers: Mapping[str, str | None] | None = None) -> httpx.Response:
        return await self._world.http.send(self.request("POST", body, headers))

    async def send(
        self, method: str, params: Any = None, id: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> httpx.Response:
        return await self.post(self.message(method, params, id), headers)

    def message(self, method: str, params: Any = None, id: Any = None) -> dict[str, Any]:
        self._next += 1
        body = {"jsonrpc": "2.0", "id": self._next if id is None else id, "method": method}
        return body if params is None else {**body, "params": params}

    async def notify(self, method: str, params: Any = None) -> httpx.Response:
        body = {"jsonrpc": "2.0", "method": method}
        return await self.post(body if params is None else {**body, "params": params})

    async def call(self, tool: str, arguments: Any = None, id: Any = None, **meta: Any) -> httpx.Response:
        return await self.send("tools/call", self.calling(tool, arguments, **meta), id)

    @staticmethod
    def calling(tool: str, arguments: Any = None, **meta: Any) -> dict[str, Any]:
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}}
        return {**params, "_meta": meta} if meta else params

    @asynccontextmanager
    async def stream(
        self, method: str = "GET", body: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> AsyncIterator[Events]:
        response = await self._world.http.send(self.request(method, body, headers), stream=True)
        try:
            yield Events(response)
        finally:
            await response.aclose()

    def streaming(self, tool: str, arguments: Any = None, id: Any = None) -> Any:
        """Call a tool and read its answer as it comes."""
        return self.stream("POST", self.message("tools/call", self.calling(tool, arguments, progressToken="p"), id))

    def resume(self, last: str) -> Any:
        return self.stream(headers={"last-event-id": last})

    async def initialize(
        self,
        revision: str = R2025_11_25,
        capabilities: Any = None,
        headers: Mapping[str, str | None] | None = None,
        **more: Any,
    ) -> httpx.Response:
        params = {
            "protocolVersion": revision,
            "capabilities": ABLE if capabilities is None else capabilities,
            "clientInfo": {"name": "a test", "version": "1"},
            **more,
        }
        return await self.send("initialize", params, headers=headers)

    async def open(self, revision: str = R2025_11_25, capabilities: Any = None, ready: bool = True) -> Client:
        response = await self.initialize(revision, capabilities)
        assert response.status_code == 200, response.text
        self.id = response.headers["mcp-session-id"]
        self.revision = response.json()["result"]["protocolVersion"]
        if ready:
            assert (await self.notify("notifications/initialized")).status_code == 202
        return self


class World:
    """A served gateway, and clients for it."""

    def __init__(self, engine: Engine, handshake: Handshake, legacy: LegacySse, port: int) -> None:
        self.engine = engine
        self.handshake = handshake
        self.legacy = legacy
        self.sessions = handshake.sessions
        self.port = port
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=20, limits=httpx.Limits(max_connections=None)
        )

    def client(self, namespace: str = "one", token: str = TOKEN, path: str = "/mcp") -> Client:
        return Client(self, namespace, token, path)

    def swap(self, *entries: Entry) -> None:
        self.engine.registry.swap(Catalogue(entries))


@asynccontextmanager
async def world(
    *entries: Entry,
    strict: bool = True,
    sessions: Sessions | None = None,
    served: Sequence[str] = HANDSHAKE,
    keepalive: float = 15,
    **legacy: Any,
) -> AsyncIterator[World]:
    """`legacy` are the bounds of the transport of two endpoints."""
    engine = Engine(Registry(), AuditLog(_no_file, enabled=False))
    engine.registry.swap(Catalogue(entries or (entry("one", echo=echo), entry("two", echo=echo))))
    revisions = Revisions(served)
    methods = Methods(engine, revisions)
    alive = KeepAlive(keepalive)
    handshake = Handshake(methods, revisions, Sessions() if sessions is None else sessions, alive, strict=strict)
    old = LegacySse(methods, revisions, alive, **legacy)
    engine.registry.subscribe(handshake.on_change)
    engine.registry.subscribe(old.on_change)
    front = Front(
        Mcp(methods, revisions, handshake, Elsewhere(), old),
        refuse=answers.refuse,
        hosts=Hosts("127.0.0.1", ()),
        origins=Origins(()),
        credentials=Credentials({TOKEN: Caller("tester"), OTHER_TOKEN: Caller("somebody else")}),
        watch=Watch(tick=0.01),
    )
    async with serve(front) as port:
        running = World(engine, handshake, old, port)
        try:
            yield running
        finally:
            handshake.close()
            old.close()
            handshake.sessions.close()
            await running.http.aclose()
            engine.audit.close()


def _no_file(day: Any) -> Any:
    raise AssertionError("the audit is off")


def events(response: httpx.Response) -> list[Event]:
    """Every event of an answer that is complete."""
    assert response.headers["content-type"] == "text/event-stream"
    found = []
    for block in response.text.split("\n\n"):
        one = Event()
        for line in block.splitlines():
            name, _, value = line.partition(":")
            if name:
                setattr(one, name, int(value) if name == "retry" else value.removeprefix(" "))
        if block.strip() and not block.startswith(":"):
            found.append(one)
    return found


def messages(response: httpx.Response) -> list[Any]:
    return [one.message for one in events(response) if one.data]


async def until(what: str, probe: Callable[[], object], seconds: float = 5) -> None:
    """Let the loop run until something is true."""
    try:
        async with asyncio.timeout(seconds):
            while not probe():
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None
