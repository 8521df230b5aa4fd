"""The one path every call takes.

    audit( resolve → arguments → limits → run → redact → cut )

Audit is outermost, so refusals and faults are recorded as well. A call resolves in the catalogue of its moment and
keeps what it found; only when that version was closed before it could take the call does it resolve again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import structlog

from tooldock.engine import announce, audit, output
from tooldock.engine.announce import Announcer
from tooldock.engine.audit import AuditLog
from tooldock.engine.limits import Gate
from tooldock.engine.meter import Meter
from tooldock.engine.registry import Entry, Registry
from tooldock.errors import (
    Cancelled,
    ExecutionTimeout,
    InternalError,
    InvalidArguments,
    NoBackChannel,
    PolicyDenied,
    ToolDockError,
    Unavailable,
)
from tooldock.model import AskKind, Call, Channel, Item, LogLevel, Outcome, Resource, Tool, ToolSource

log = structlog.get_logger("tooldock.engine")

_MAX_DEPTH = 8
"""Tools that call tools that call tools: more than this is a loop."""
_MAX_RESOLVES = 5
_MAX_ASKING = 3600.0
"""Seconds the clock of one call stands still in all. A tool that asks again and again would otherwise never end."""

_CANONICAL = orjson.OPT_SORT_KEYS
"""One form for equal arguments, for the digest in the audit."""

_UNKNOWN = "?"
"""Stands for names that do not exist, so that strangers cannot fill the metrics with made-up ones."""


class Engine:
    def __init__(self, registry: Registry, audit_log: AuditLog) -> None:
        self.registry = registry
        self.audit = audit_log
        self.meter = Meter()
        self.announcer = Announcer(registry)
        self._gates: dict[str, Gate] = {}
        self._loop = asyncio.get_running_loop()

    async def call(self, call: Call) -> Outcome:
        """What became of the call. Raises nothing but `CancelledError`, when the caller left."""
        started = time.perf_counter()
        found: list[Item] = []
        arguments = _json(call.arguments, _CANONICAL)
        try:
            outcome = await self._attempt(call, found)
        except ToolDockError as error:
            outcome = Outcome("error", error=error)
        except asyncio.CancelledError:
            gone = Cancelled("The caller went away before the call was finished.")
            self._finish(call, found, Outcome("error", error=gone), arguments, started)
            raise
        except Exception:
            log.exception("call_failed", request_id=call.request_id, namespace=call.namespace, tool=call.tool)
            fault = InternalError(
                f"ToolDock failed while handling this call. The details are in its log under request {call.request_id}."
            )
            outcome = Outcome("error", error=fault)
        return self._finish(call, found, outcome, arguments, started)

    def gate(self, entry: Entry) -> Gate:
        gate = self._gates.get(entry.name)
        limits = entry.limits
        if gate is None:
            gate = self._gates[entry.name] = Gate(entry.name, limits.max_concurrency, limits.max_queue)
        elif gate.max_active != limits.max_concurrency or gate.max_waiting != limits.max_queue:
            gate.resize(limits.max_concurrency, limits.max_queue)
        return gate

    def gates(self) -> Mapping[str, Gate]:
        return self._gates

    async def _attempt(self, call: Call, found: list[Item]) -> Outcome:
        deadline = 0.0
        for _ in range(_MAX_RESOLVES):
            entry = self.registry.catalogue.entry(call.namespace)
            item: Item
            source: ToolSource
            if call.kind == "tool":
                offer = entry.offer(call.tool)
                item, source = offer.tool, offer.source
                found[:] = [item]
                offer.validator.check(call.arguments)
            else:
                item, source = _readable(call, entry)
                found[:] = [item]
            self._admit(call, item)
            deadline = deadline or self._deadline(call, item, entry)
            gate = self.gate(entry)
            if call.depth:
                gate.enter_anyway()
            elif not gate.try_enter():
                await gate.enter(deadline)
            relay = _Relay(self, call, entry, deadline, gate)
            try:
                outcome = await source.call(call, item, deadline, relay)
            except Unavailable as error:
                if error.details.get("reason") == "closed" and self._loop.time() < deadline:
                    continue  # replaced while we waited for a place; the new version is in the catalogue
                raise _redacted(error, entry) from None
            except ToolDockError as error:
                raise _redacted(error, entry) from None
            finally:
                relay.end()
            if call.kind == "tool":
                return output.fit(_clean(outcome, entry), entry.limits.max_output)
            return output.whole(_clean(outcome, entry), entry.limits.max_output, call.kind)
        raise Unavailable(f"Namespace {call.namespace!r} is being replaced.", retry_after=1)

    def _admit(self, call: Call, item: Item) -> None:
        if call.depth > _MAX_DEPTH:
            raise PolicyDenied(
                f"Tools called each other {_MAX_DEPTH} times on the way to {item.name!r}; that looks like a loop.",
                rule="call_depth",
            )
        if not self.audit.recover() and not item.read_only:
            raise Unavailable(
                f"Calls cannot be recorded ({self.audit.problem}), so only tools that declare themselves read-only "
                "are run. Make room on the disk that holds the logs.",
                retry_after=5,
                reason="audit",
            )

    def _deadline(self, call: Call, item: Item, entry: Entry) -> float:
        # A tool may ask for less time than its namespace has, not for more.
        seconds = entry.limits.timeout
        if isinstance(item, Tool) and item.timeout:
            seconds = min(item.timeout, seconds)
        own = self._loop.time() + seconds
        return own if call.deadline is None else min(call.deadline, own)

    def _finish(self, call: Call, found: list[Item], outcome: Outcome, arguments: bytes, started: float) -> Outcome:
        seconds = time.perf_counter() - started
        item = found[0] if found else None
        finished = outcome.after(seconds * 1000)
        self.audit.write(audit.describe(call, item, finished, arguments))
        status = "ok" if outcome.error is None else outcome.error.code
        known = call.namespace in self.registry.catalogue.entries
        self.meter.add(call.namespace if known else _UNKNOWN, _label(item), status, seconds)
        return finished


def _readable(call: Call, entry: Entry) -> tuple[Item, ToolSource]:
    """The resource or prompt a call is for, and where it is read."""
    item: Item = entry.resource(call.tool) if call.kind == "resource" else entry.prompt(call.tool)
    if entry.reading is None:
        raise InternalError(f"Namespace {entry.name!r} lists {call.tool!r}, but nothing there can read it.")
    return item, entry.reading


def _label(item: Item | None) -> str:
    """What a call was for, in the metrics. No tool's name has a colon in it."""
    if item is None:
        return _UNKNOWN
    if isinstance(item, Tool):
        return item.name
    return f"resource:{item.uri}" if isinstance(item, Resource) else f"prompt:{item.name}"


class _Relay:
    """The caller's channel, seen from a running tool: secrets removed, and tools of other namespaces in reach."""

    __slots__ = ("_asked_at", "_asking", "_call", "_deadline", "_engine", "_entry", "_gate", "_last_deadline", "_over")

    def __init__(self, engine: Engine, call: Call, entry: Entry, deadline: float, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate
        self._over = False
        self._call = call
        self._entry = entry
        self._deadline = deadline
        self._last_deadline = deadline + _MAX_ASKING
        self._asking = 0
        self._asked_at = 0.0

    def end(self) -> None:
        """The call is over; its place is free, unless it was given up for a question that is still open."""
        self._over = True
        if not self._asking:
            self._gate.leave()

    @property
    def _channel(self) -> Channel:
        return self._call.channel

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        clean = message if message is None else self._entry.redactor.redact_text(message)
        await self._channel.progress(progress, total, clean)

    async def log(self, level: LogLevel, message: str, logger: str | None, data: Any) -> None:
        redactor = self._entry.redactor
        clean = data if data is None else self._clean(data)
        name = logger if logger is None else redactor.redact_text(logger)
        await self._channel.log(level, redactor.redact_text(message), name, clean)

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        if kind != "call_tool":
            clean = self._clean(params)
            if kind == "notify":
                self._engine.announcer.announce(announce.understood(self._entry.name, clean))
                return None
            return await (self._close_stream(clean) if kind == "close_stream" else self._ask_caller(kind, clean))
        outcome = await self._engine.call(self._nested(params))
        if outcome.error is not None:
            raise outcome.error
        return orjson.Fragment(outcome.body)

    def _clean(self, value: Any) -> Any:
        text, hits = self._entry.redactor.redact(_json(value))
        return json.loads(text) if hits else value

    async def _close_stream(self, params: Mapping[str, Any]) -> Any:
        try:
            return await self._channel.ask("close_stream", params)
        except NoBackChannel:
            return None  # there is no stream to let go of

    async def _ask_caller(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        """While people think, the clock stands still, also for the tools called afterwards, and others may have the
        call's place: its caller decides how long it takes."""
        clock = asyncio.get_running_loop().time
        if not self._asking:
            self._asked_at = clock()
        if self._deadline + clock() - self._asked_at >= self._last_deadline:
            raise ExecutionTimeout(
                f"The call has waited for its caller for {_MAX_ASKING:g} seconds in all, and may ask nothing more."
            )
        self._asking += 1
        if self._asking == 1 and not self._over:
            self._gate.leave()
        try:
            return await self._channel.ask(kind, params)
        finally:
            self._asking -= 1
            if not self._asking:
                self._deadline += clock() - self._asked_at
                if not self._over:
                    self._gate.enter_anyway()

    def _nested(self, params: Mapping[str, Any]) -> Call:
        namespace, tool, arguments = params.get("namespace"), params.get("tool"), params.get("arguments")
        if not isinstance(namespace, str) or not isinstance(tool, str) or not isinstance(arguments, dict):
            raise InvalidArguments("call_tool takes a namespace, a tool name and an object of arguments.")
        return replace(
            self._call,
            namespace=namespace,
            tool=tool,
            arguments=arguments,
            deadline=self._deadline,
            depth=self._call.depth + 1,
            protocol=f"tool/{self._call.namespace}",
            kind="tool",
        )


def _json(value: Any, option: int = 0) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(value, sort_keys=option == _CANONICAL, separators=(",", ":")).encode()


def _clean(outcome: Outcome, entry: Entry) -> Outcome:
    """Without secrets."""
    if outcome.error is not None:
        outcome = replace(outcome, error=_redacted(outcome.error, entry))
    if outcome.partial:
        # It may end within a value. And since labels are shorter than values, that end may be shown.
        text = entry.redactor.redact_beginning(orjson.loads(outcome.body).encode()).decode(errors="ignore")
        return replace(outcome, body=orjson.dumps(text))
    body, hits = entry.redactor.redact(outcome.body)
    if outcome.content is not None:
        blocks, more = entry.redactor.redact(orjson.dumps(outcome.content))
        if more:
            outcome = replace(outcome, content=tuple(orjson.loads(blocks)))
    if outcome.meta is not None:
        meta, more = entry.redactor.redact(orjson.dumps(outcome.meta))
        if more:
            outcome = replace(outcome, meta=orjson.loads(meta))
    return replace(outcome, body=body) if hits else outcome


def _redacted(error: ToolDockError, entry: Entry) -> ToolDockError:
    message = entry.redactor.redact_text(error.message)
    details, hits = entry.redactor.redact(orjson.dumps(error.details, default=str))
    if message == error.message and not hits:
        return error
    return type(error)(message, **orjson.loads(details))
