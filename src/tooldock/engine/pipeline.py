"""The one path every call takes.

    audit( resolve → arguments → limits → run → redact → cut )

Audit is outermost, so refusals and faults are recorded as well. A call resolves in the catalogue of its moment and
keeps what it found; only when that version was closed before it could take the call does it resolve again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import structlog

from tooldock.engine import audit, output
from tooldock.engine.audit import AuditLog
from tooldock.engine.limits import Gate
from tooldock.engine.meter import Meter
from tooldock.engine.registry import Entry, Registry
from tooldock.errors import (
    Cancelled,
    InternalError,
    InvalidArguments,
    PolicyDenied,
    ToolDockError,
    Unavailable,
)
from tooldock.model import AskKind, Call, Channel, LogLevel, Outcome, Tool

log = structlog.get_logger("tooldock.engine")

_MAX_DEPTH = 8
"""Tools that call tools that call tools: more than this is a loop."""
_MAX_RESOLVES = 5

_UNKNOWN = "?"
"""Stands for names that do not exist, so that strangers cannot fill the metrics with made-up ones."""


class Engine:
    def __init__(self, registry: Registry, audit_log: AuditLog) -> None:
        self.registry = registry
        self.audit = audit_log
        self.meter = Meter()
        self._gates: dict[str, Gate] = {}
        self._loop = asyncio.get_running_loop()

    async def call(self, call: Call) -> Outcome:
        """What became of the call. Raises nothing but `CancelledError`, when the caller left."""
        started = time.perf_counter()
        found: list[Tool] = []
        arguments = _digestible(call.arguments)
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

    async def _attempt(self, call: Call, found: list[Tool]) -> Outcome:
        deadline = 0.0
        for _ in range(_MAX_RESOLVES):
            entry = self.registry.catalogue.entry(call.namespace)
            offer = entry.offer(call.tool)
            tool = offer.tool
            found[:] = [tool]
            offer.validator.check(call.arguments)
            self._admit(call, tool)
            deadline = deadline or self._deadline(call, tool, entry)
            gate = self.gate(entry)
            if call.depth:
                gate.enter_anyway()
            elif not gate.try_enter():
                await gate.enter(deadline)
            try:
                outcome = await offer.source.call(call, tool, deadline, _Relay(self, call, entry, deadline))
            except Unavailable as error:
                if error.details.get("reason") == "closed" and self._loop.time() < deadline:
                    continue  # replaced while we waited for a place; the new version is in the catalogue
                raise _redacted(error, entry) from None
            except ToolDockError as error:
                raise _redacted(error, entry) from None
            finally:
                gate.leave()
            return output.fit(_clean(outcome, entry), entry.limits.max_output)
        raise Unavailable(f"Namespace {call.namespace!r} is being replaced.", retry_after=1)

    def _admit(self, call: Call, tool: Tool) -> None:
        if call.depth > _MAX_DEPTH:
            raise PolicyDenied(
                f"Tools called each other {_MAX_DEPTH} times on the way to {tool.name!r}; that looks like a loop.",
                rule="call_depth",
            )
        if not self.audit.recover() and not tool.read_only:
            raise Unavailable(
                f"Calls cannot be recorded ({self.audit.problem}), so only tools that declare themselves read-only "
                "are run. Make room on the disk that holds the logs.",
                retry_after=5,
                reason="audit",
            )

    def _deadline(self, call: Call, tool: Tool, entry: Entry) -> float:
        # A tool may ask for less time than its namespace has, not for more.
        own = self._loop.time() + min(tool.timeout or entry.limits.timeout, entry.limits.timeout)
        return own if call.deadline is None else min(call.deadline, own)

    def _finish(self, call: Call, found: list[Tool], outcome: Outcome, arguments: bytes, started: float) -> Outcome:
        seconds = time.perf_counter() - started
        tool = found[0] if found else None
        finished = outcome.after(seconds * 1000)
        self.audit.write(audit.describe(call, tool, finished, arguments))
        status = "ok" if outcome.error is None else outcome.error.code
        known = call.namespace in self.registry.catalogue.entries
        self.meter.add(call.namespace if known else _UNKNOWN, tool.name if tool else _UNKNOWN, status, seconds)
        return finished


class _Relay:
    """The caller's channel, seen from a running tool: secrets removed, and tools of other namespaces in reach."""

    __slots__ = ("_call", "_deadline", "_engine", "_entry")

    def __init__(self, engine: Engine, call: Call, entry: Entry, deadline: float) -> None:
        self._engine = engine
        self._call = call
        self._entry = entry
        self._deadline = deadline

    @property
    def _channel(self) -> Channel:
        return self._call.channel

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        clean = message if message is None else self._entry.redactor.redact_text(message)
        await self._channel.progress(progress, total, clean)

    async def log(self, level: LogLevel, message: str, logger: str | None, data: Any) -> None:
        redactor = self._entry.redactor
        clean = data if data is None else orjson.loads(redactor.redact(orjson.dumps(data))[0])
        await self._channel.log(level, redactor.redact_text(message), logger, clean)

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        if kind != "call_tool":
            clean = orjson.loads(self._entry.redactor.redact(orjson.dumps(params))[0])
            return await self._channel.ask(kind, clean)
        outcome = await self._engine.call(self._nested(params))
        if outcome.error is not None:
            raise outcome.error
        return orjson.Fragment(outcome.body)

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
        )


def _digestible(arguments: dict[str, Any]) -> bytes:
    """Arguments in one canonical form, for the digest in the audit."""
    try:
        return orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        import json  # integers beyond 64 bits

        return json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode()


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
