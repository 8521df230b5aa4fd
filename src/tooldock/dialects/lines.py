"""The line protocol: one JSON object on a line asks, one on a line answers, always with the same seven fields.

    {"method": "list_tools"}
    {"method": "call_tool", "name": "echo", "args": {"text": "hello"}}

    {"ok": …, "need_confirm": …, "summary": …, "data": …, "stdout": …, "stderr": …, "metrics": …}

For scripts that want to write a line and read a line. Only the meaning of the lines is here; the pipe they travel on is
`dialects.mcp.stdio`'s, which speaks both, and the engine is asked there too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tooldock.errors import (
    Cancelled,
    ConfirmationRequired,
    ExecutionTimeout,
    InvalidArguments,
    MalformedRequest,
    ToolDockError,
)
from tooldock.model import Outcome, Tool

METHODS: Final = ("list_tools", "call_tool")
PROTOCOL: Final = "lines"
"""What the audit calls this wire."""

NO_ID: Final = object()
"""Nothing was sent that an answer could repeat."""

_MAX_SHOWN = 80
_EXIT_CODES: tuple[tuple[type[ToolDockError], int], ...] = ((ExecutionTimeout, 124), (Cancelled, 130))


@dataclass(frozen=True, slots=True)
class LineRequest:
    """`name` and `args` belong to `call_tool` and are empty otherwise."""

    method: str
    name: str
    args: dict[str, Any]


def is_request(value: Any) -> bool:
    """Whether a line belongs to this protocol: an object with a method that does not claim to be JSON-RPC."""
    return type(value) is dict and "jsonrpc" not in value and "method" in value


def id_of(value: Any) -> Any:
    """What the answer repeats; whatever was sent, and `NO_ID` when nothing was."""
    return value.get("id", NO_ID) if type(value) is dict else NO_ID


def read(value: dict[str, Any]) -> LineRequest:
    """A request, checked. Raises `MalformedRequest`, or `InvalidArguments` with the fields that are wrong."""
    method = value.get("method")
    if method not in METHODS:
        shown = repr(method[:_MAX_SHOWN]) if type(method) is str else "that is not a string"
        raise MalformedRequest(
            f"There is no method {shown}. Use one of: {', '.join(METHODS)}.", supported_methods=list(METHODS)
        )
    if method == "list_tools":
        return LineRequest("list_tools", "", {})
    name, args = value.get("name"), value.get("args")
    problems = []
    if type(name) is not str or not name:
        problems.append({"path": "name", "message": "must be the name of a tool, a string"})
    if args is not None and type(args) is not dict:
        problems.append({"path": "args", "message": "must be an object with the tool's arguments"})
    if problems:
        told = "; ".join(f"{problem['path']} {problem['message']}" for problem in problems)
        raise InvalidArguments(f"call_tool cannot be understood: {told}.", errors=problems)
    return LineRequest("call_tool", str(name), args or {})


def tools(offered: Sequence[Tool], id: Any = NO_ID, *, elapsed_ms: float = 0.0) -> bytes:
    """The answer to `list_tools`."""
    listed = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema} for tool in offered
    ]
    count = f"{len(listed)} tool{'' if len(listed) == 1 else 's'} found"
    return _line(id, True, f"Available tools: {count}", {"tools": listed}, metrics=_metrics(elapsed_ms, 0))


def result(name: str, outcome: Outcome, id: Any = NO_ID) -> bytes:
    """The answer to `call_tool`, whatever became of the call."""
    error = outcome.error
    if error is not None:
        return failure(error, id, outcome=outcome)
    metrics = _metrics(outcome.elapsed_ms, outcome.exit_code or 0)
    if outcome.truncated:
        metrics["truncated_bytes"] = outcome.truncated
    return _line(id, True, f"{name} succeeded", _data(outcome), outcome.stdout, outcome.stderr, metrics=metrics)


def failure(error: ToolDockError, id: Any = NO_ID, *, outcome: Outcome | None = None, elapsed_ms: float = 0.0) -> bytes:
    """The answer to anything that did not work: `data` names the error and has its facts."""
    code = next((code for cls, code in _EXIT_CODES if isinstance(error, cls)), 1)
    stdout = stderr = ""
    if outcome is not None:
        elapsed_ms, stdout, stderr = outcome.elapsed_ms, outcome.stdout, outcome.stderr
        code = outcome.exit_code or code
    return _line(
        id,
        False,
        error.message,
        {**error.details, "error": error.code},
        stdout,
        stderr,
        need_confirm=isinstance(error, ConfirmationRequired),
        metrics=_metrics(elapsed_ms, code),
    )


def _data(outcome: Outcome) -> Any:
    """Always an object, or null when the tool returned nothing."""
    value = None if outcome.body == b"null" else orjson.Fragment(outcome.body)
    if outcome.content is not None:
        content: dict[str, Any] = {"content": list(outcome.content)}
        return content if value is None else {**content, "result": value}
    if value is None or outcome.body.startswith(b"{"):
        return value
    return {"result": value}


def _metrics(elapsed_ms: float, exit_code: int) -> dict[str, Any]:
    return {"elapsed_ms": round(elapsed_ms, 3), "exit_code": exit_code}


def _line(
    id: Any,
    ok: bool,
    summary: str,
    data: Any,
    stdout: str = "",
    stderr: str = "",
    *,
    need_confirm: bool = False,
    metrics: dict[str, Any],
) -> bytes:
    line = _dump(
        {
            "ok": ok,
            "need_confirm": need_confirm,
            "summary": summary,
            "data": data,
            "stdout": stdout,
            "stderr": stderr,
            "metrics": metrics,
        }
    )
    return line if id is NO_ID else b'{"id":%b,%b' % (_dump(id), line[1:])


def _dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_plain)
    except (orjson.JSONEncodeError, RecursionError):
        # An integer beyond 64 bits, in an id, a schema or an error's facts; a tool's own result never comes here.
        return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
