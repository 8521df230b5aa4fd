"""A conversation over real pipes with a real engine; only the tools are the test's own, and run in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from tests.source import EmptySource
from tooldock.dialects.mcp.methods import Methods
from tooldock.dialects.mcp.pipe import Incoming, Outgoing
from tooldock.dialects.mcp.revisions import HANDSHAKE, STATELESS, Revisions
from tooldock.dialects.mcp.rounds import Rounds
from tooldock.dialects.mcp.seal import Seal
from tooldock.dialects.mcp.stdio import Stdio
from tooldock.engine.audit import AuditLog
from tooldock.engine.pipeline import Engine
from tooldock.engine.registry import Catalogue, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.errors import ToolFailed
from tooldock.model import Call, Channel, Item, Outcome, Tool

SECONDS = 5.0
EVERY = (*STATELESS, *HANDSHAKE)
LIMITS = Limits(timeout=60, max_concurrency=64, max_queue=64, max_output=64 << 20)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}
META = "io.modelcontextprotocol/"

Body = Callable[[Call, Channel], Awaitable[Any]]


@dataclass
class Tools(EmptySource):
    """A `ToolSource` whose tools are functions of the test."""

    bodies: dict[str, Body]
    started: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    ended: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    runs: int = 0

    def list(self) -> Sequence[Tool]:
        return [Tool(namespace="shared", name=name, input_schema=TEXT) for name in self.bodies]

    async def call(self, call: Call, item: Item, deadline: float, channel: Channel, /) -> Outcome:
        self.runs += 1
        self.started.put_nowait(call.tool)
        how = "finished"
        try:
            value = await self.bodies[call.tool](call, channel)
        except asyncio.CancelledError:
            how = "cancelled"
            raise
        finally:
            self.ended.put_nowait(how)
        return Outcome("ok", orjson.dumps(value))


async def echo(call: Call, channel: Channel) -> Any:
    return call.arguments.get("text", "")


async def forever(call: Call, channel: Channel) -> Any:
    await channel.progress(1, 2, "begun")
    await asyncio.Event().wait()


async def confirm(call: Call, channel: Channel) -> Any:
    answer = await channel.ask("elicit", {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}})
    return answer["action"]


async def chatty(call: Call, channel: Channel) -> Any:
    await channel.log("debug", "little", None, None)
    await channel.log("warning", "much", None, None)
    await channel.progress(1, 2, "half")
    return "said"


async def broken(call: Call, channel: Channel) -> Any:
    raise ToolFailed("It broke.")


BODIES: dict[str, Body] = {
    "echo": echo,
    "forever": forever,
    "confirm": confirm,
    "chatty": chatty,
    "broken": broken,
}


def request(id: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def initialize(
    id: Any = "init", version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    return request(id, "initialize", protocolVersion=version, capabilities=capabilities or {}, clientInfo=info)


INITIALIZED = notification("notifications/initialized")


def enveloped(id: Any, method: str, capabilities: Mapping[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": capabilities or {}}
    return request(id, method, **{**params, "_meta": {**meta, **params.get("_meta", {})}})


class Client:
    """The other ends of the pipes."""

    def __init__(self, to_server: int, from_server: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self._to_server = to_server
        self._from_server = from_server
        self._transport = transport
        self.raw = b""

    async def send(self, *messages: Any) -> None:
        await self.send_bytes(b"".join(orjson.dumps(message) + b"\n" for message in messages))

    async def send_bytes(self, data: bytes) -> None:
        await asyncio.to_thread(_write_all, self._to_server, data)

    async def receive(self) -> Any:
        async with asyncio.timeout(SECONDS):
            line = await self._from_server.readline()
        if not line:
            raise EOFError
        assert line.endswith(b"\n")
        return json.loads(line)

    async def ask(self, message: Any) -> Any:
        await self.send(message)
        return await self.receive()

    async def handshake(self, version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None) -> None:
        answer = await self.ask(initialize(version=version, capabilities=capabilities))
        assert answer["result"]["protocolVersion"] == version
        await self.send(INITIALIZED)

    def close(self) -> None:
        if self._to_server >= 0:
            os.close(self._to_server)
            self._to_server = -1

    def vanish(self) -> None:
        """As when its process is killed."""
        self.close()
        self._transport.close()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@dataclass
class World:
    client: Client
    server: Stdio
    outgoing: Outgoing
    registry: Registry
    tools: Tools
    rounds: Rounds
    stop: asyncio.Event
    serving: asyncio.Task[None]

    async def over(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self.serving


@contextlib.asynccontextmanager
async def conversation(
    *,
    strict: bool = True,
    versions: Sequence[str] = EVERY,
    max_line: int = 1 << 16,
    grace: float = SECONDS,
    more: Mapping[str, Body] | None = None,
) -> AsyncIterator[World]:
    tools = Tools({**BODIES, **(more or {})})
    registry = Registry()
    engine = Engine(registry, AuditLog(_nowhere, enabled=False))
    registry.swap(Catalogue([entry(tools)]))
    methods = Methods(engine, Revisions(versions))
    rounds = Rounds(methods, Seal())
    theirs, to_server = os.pipe()
    from_server, ours = os.pipe()
    outgoing = Outgoing(ours)
    server = Stdio(methods, rounds, "shared", outgoing, strict=strict)
    registry.subscribe(server.on_change)
    reader = asyncio.StreamReader(limit=1 << 27)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_server, "rb", 0)
    )
    client = Client(to_server, reader, transport)
    stop = asyncio.Event()
    serving = asyncio.create_task(server.serve(Incoming(theirs, max_line), stop, grace))
    try:
        yield World(client, server, outgoing, registry, tools, rounds, stop, serving)
    finally:
        client.close()
        stop.set()
        serving.cancel()
        await asyncio.wait([serving])
        transport.close()
        os.close(theirs)
        os.close(ours)


def entry(tools: Tools, revision: str = "one") -> Entry:
    offers = {tool.name: Offer(tool, tools, Validator(tool.name, tool.input_schema)) for tool in tools.list()}
    return Entry("shared", offers, LIMITS, revision=revision)


def _nowhere(day: date) -> Path:
    raise AssertionError("these calls are not recorded")
