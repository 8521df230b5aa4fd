"""The world of these tests: a real catalogue, an engine that runs nothing, and the REST face before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.source import EmptySource
from tooldock.dialects.rest import Rest, refuse
from tooldock.edge import Credentials, Docs, Front, Hosts, ManagerGuard, Metrics, Networks, Origins
from tooldock.engine.registry import Catalogue, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.errors import ToolDockError
from tooldock.model import Call, Caller, Namespace, Outcome, Tool

TOKEN = "a-token-for-the-tests"
MANAGER = "the-managers-token"
BEARER = {"authorization": f"Bearer {TOKEN}"}
SHARED = {**BEARER, "x-namespace": "shared"}
LIMITS = Limits(timeout=60, max_concurrency=8, max_queue=8, max_output=1 << 20)

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}


def tool(name: str, schema: Mapping[str, Any] = OBJECT, *, namespace: str = "shared", **more: Any) -> Tool:
    return Tool(namespace=namespace, name=name, input_schema=schema, **more)


def entry(name: str, *tools: Tool, **more: Any) -> Entry:
    offers = {one.name: Offer(one, EmptySource(), Validator(one.name, one.input_schema)) for one in tools}
    return Entry(name, offers, LIMITS, **more)


@dataclass
class NullEngine:
    """Resolves as the real one does, then answers what the test says."""

    answer: Callable[[Call], Outcome]
    registry: Registry = field(default_factory=Registry)
    calls: list[Call] = field(default_factory=list)

    async def call(self, call: Call) -> Outcome:
        try:
            self.registry.catalogue.entry(call.namespace).offer(call.tool).validator.check(call.arguments)
        except ToolDockError as error:
            return Outcome("error", error=error)
        self.calls.append(call)
        return self.answer(call)


@dataclass
class World:
    engine: NullEngine
    app: Front
    metrics: Metrics
    reloads: int = 0


ECHO = tool(
    "echo",
    {"type": "object", "properties": {"text": {"type": "string"}}},
    title="Echo",
    description="Say it again.",
    annotations={"readOnlyHint": True},
)
SERVED = (
    Namespace(name="shared", status="ready", tools=2, pid=4711, revision="abc"),
    Namespace(name="broken", status="failed", error="SyntaxError", error_file="x.py", error_line=3),
)


def world(
    *entries: Entry,
    answer: Callable[[Call], Outcome] = lambda call: Outcome("ok", b'"hello"'),
    cidrs: Sequence[str] = ("127.0.0.1/32",),
    auth: bool = True,
) -> World:
    engine = NullEngine(answer)
    engine.registry.swap(Catalogue(entries or (entry("shared", ECHO, tool("other")),)))
    metrics = Metrics()

    async def reload() -> dict[str, Any]:
        built.reloads += 1
        return {"reloaded": True, "namespaces": ["shared"], "workers_restarted": [], "deps_synced": []}

    async def health(detailed: bool) -> dict[str, Any]:
        return {"status": "degraded", **({"namespaces": {"shared": "ready"}} if detailed else {})}

    rest = Rest(
        engine,
        status=lambda: SERVED,
        reload=reload,
        health=health,
        manager_guard=ManagerGuard(MANAGER, Networks(cidrs, "INTERNAL_ALLOWED_CIDRS")),
        docs=Docs(),
        metrics=metrics,
    )
    app = Front(
        rest,
        refuse=refuse,
        hosts=Hosts("127.0.0.1"),
        origins=Origins(),
        credentials=Credentials({TOKEN: Caller("tester")}) if auth else None,
        metrics=metrics,
        max_body=1 << 20,
    )
    built = World(engine, app, metrics)
    return built
