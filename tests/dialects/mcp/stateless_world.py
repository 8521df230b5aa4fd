"""The world of the tests of the stateless revision: the real front, router and engine over a socket, with tools that
are plain coroutines of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.dialects.mcp.elsewhere import Elsewhere
from tests.edge.world import serve
from tests.source import EmptySource
from tooldock.dialects.mcp import answers
from tooldock.dialects.mcp.http import Mcp
from tooldock.dialects.mcp.methods import Methods
from tooldock.dialects.mcp.revisions import HANDSHAKE, R2026_07_28, Revisions
from tooldock.dialects.mcp.rounds import Rounds
from tooldock.dialects.mcp.seal import Seal
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.dialects.mcp.stateless import CAPABILITIES_KEY, VERSION_KEY, Stateless
from tooldock.edge import Credentials, Front, Hosts, Origins
from tooldock.edge.watch import Watch
from tooldock.engine.audit import AuditLog
from tooldock.engine.pipeline import Engine
from tooldock.engine.registry import Catalogue, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.model import Call, Caller, Channel, Item, Outcome, Prompt, Resource, Tool

TOKEN, OTHER_TOKEN = "a-token-for-the-tests", "another-token-for-the-tests"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
FORM: dict[str, Any] = {"elicitation": {}}
ALL_ABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
ACCEPT = "application/json, text/event-stream"

Function = Callable[[dict[str, Any], Channel], Awaitable[Any]]


class Source(EmptySource):
    """Tools, resources and prompts of the test's own, each a coroutine."""

    def __init__(self, namespace: str, functions: Mapping[str, Function], schemas: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._functions = functions
        self._schemas = schemas

    def list(self) -> Sequence[Tool]:
        return [
            Tool(
                namespace=self._namespace,
                name=name,
                input_schema=self._schemas.get(name, {"type": "object"}),
                annotations={"readOnlyHint": True},
            )
            for name in self._functions
            if "://" not in name and not name.startswith("prompt_")
        ]

    def resources(self) -> Sequence[Resource]:
        return [Resource(namespace=self._namespace, uri=uri, name=uri) for uri in self._functions if "://" in uri]

    def prompts(self) -> Sequence[Prompt]:
        return [Prompt(namespace=self._namespace, name=name) for name in self._functions if name.startswith("prompt_")]

    async def call(self, call: Call, item: Item, deadline: float, channel: Channel, /) -> Outcome:
        value = await self._functions[call.tool](call.arguments, channel)
        return Outcome("ok", orjson.dumps(value))

    def entry(self) -> Entry:
        return Entry(
            self._namespace,
            {tool.name: Offer(tool, self, Validator(tool.name, tool.input_schema)) for tool in self.list()},
            Limits(timeout=60, max_concurrency=64, max_queue=64, max_output=16 << 20),
            resources={item.uri: item for item in self.resources()},
            prompts={item.name: item for item in self.prompts()},
            reading=self,
        )


def entry(namespace: str, functions: Mapping[str, Function], schemas: Mapping[str, Any] | None = None) -> Entry:
    return Source(namespace, functions, schemas or {}).entry()


class World:
    """A served gateway and a client for it."""

    def __init__(self, engine: Engine, stateless: Stateless, port: int, audit: Path) -> None:
        self.engine = engine
        self.stateless = stateless
        self.port = port
        self._audit = audit
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20)

    def swap(self, *entries: Entry) -> None:
        self.engine.registry.swap(Catalogue(entries))

    def audit(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._audit.read_bytes().splitlines()] if self._audit.exists() else []

    def post(self, method: str, params: dict[str, Any] | None = None, **how: Any) -> Awaitable[httpx.Response]:
        return self.http.send(self.request(method, params, **how))

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        id: Any = 1,
        able: Any = None,
        meta: dict[str, Any] | None = None,
        headers: dict[str, str | None] | None = None,
        token: str = TOKEN,
        namespace: str = "one",
    ) -> httpx.Request:
        """A good request, and the test's changes to it: a member of `meta` or `headers` that is None is left out."""
        envelope = {VERSION_KEY: R2026_07_28, CAPABILITIES_KEY: able or {}, **(meta or {})}
        params = {**(params or {}), "_meta": {name: value for name, value in envelope.items() if value is not None}}
        sent: dict[str, str | None] = {
            "authorization": f"Bearer {token}",
            "x-namespace": namespace,
            "accept": ACCEPT,
            "content-type": "application/json",
            "mcp-protocol-version": R2026_07_28,
            "mcp-method": method,
        }
        if method in NAMED and isinstance(params.get(NAMED[method]), str):
            sent["mcp-name"] = params[NAMED[method]]
        for name, value in (headers or {}).items():
            sent.pop(name.lower(), None)
            sent[name] = value
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return self.raw(json.dumps(body).encode(), {name: value for name, value in sent.items() if value is not None})

    def raw(self, body: bytes, headers: Any) -> httpx.Request:
        return self.http.build_request("POST", "/mcp", content=body, headers=headers)

    def call(
        self, tool: str, arguments: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **how: Any
    ) -> Awaitable[httpx.Response]:
        return self.post("tools/call", {"name": tool, "arguments": arguments or {}, **(more or {})}, **how)

    @asynccontextmanager
    async def stream(self, method: str, params: dict[str, Any] | None = None, **how: Any) -> AsyncIterator[Stream]:
        response = await self.http.send(self.request(method, params, **how), stream=True)
        try:
            yield Stream(response)
        finally:
            await response.aclose()


class Stream:
    """An answer that is being received."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> Any:
        """The next message; None at the end."""
        async with asyncio.timeout(10):
            async for line in self._lines:
                if line.startswith("data: "):
                    return json.loads(line[6:])
        return None


@asynccontextmanager
async def world(
    tmp_path: Path,
    *entries: Entry,
    strict: bool = True,
    revisions: Revisions | None = None,
    keepalive: float = 15,
    **rounds: Any,
) -> AsyncIterator[World]:
    """`rounds` are the bounds of suspended calls."""
    audit = tmp_path / "audit.jsonl"
    engine = Engine(Registry(), AuditLog(lambda _day: audit))
    engine.registry.swap(Catalogue(entries))
    served = revisions or Revisions((R2026_07_28, *HANDSHAKE))
    methods = Methods(engine, served)
    seal = Seal.open(tmp_path / "seal")
    stateless = Stateless(methods, served, seal, KeepAlive(keepalive), strict=strict)
    if rounds:
        stateless.rounds = Rounds(methods, seal, **rounds)
    engine.registry.subscribe(stateless.on_change)
    credentials = Credentials({TOKEN: Caller("tester"), OTHER_TOKEN: Caller("somebody else")})
    front = Front(
        Mcp(methods, served, Elsewhere(), stateless, None),
        refuse=answers.refuse,
        hosts=Hosts("127.0.0.1", ()),
        origins=Origins(()),
        credentials=credentials,
        watch=Watch(tick=0.01),
    )
    async with serve(front) as port:
        running = World(engine, stateless, port, audit)
        try:
            yield running
        finally:
            stateless.close()
            await running.http.aclose()
            engine.audit.close()


def messages(response: httpx.Response) -> list[Any]:
    """Every message of an answer that came as events."""
    assert response.headers["content-type"] == "text/event-stream"
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


async def until(what: str, probe: Callable[[], object], seconds: float = 5) -> None:
    """Yield to the loop until something is true."""
    try:
        async with asyncio.timeout(seconds):
            while not probe():
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


async def echo(arguments: dict[str, Any], channel: Channel) -> Any:
    return arguments.get("text")
