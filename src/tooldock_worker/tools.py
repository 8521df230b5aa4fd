"""Tools of a folder: how they are described, bound and called.

Knows nothing of files or sockets: `load` finds the functions, `server` runs them. `readings` does the same for
resources and prompts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tooldock_worker import schema
from tooldock_worker.described import Described, describe
from tooldock_worker.light.values import on_wire
from tooldock_worker.running import is_async, runnable

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HINTS = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


class LoadedTool:
    """A tool, ready to be called: `fn(**bind(arguments))`, plus the context under `context_parameter`."""

    kind = "tool"
    __slots__ = (
        "_described",
        "bind",
        "context_parameter",
        "file",
        "fn",
        "is_async",
        "line",
        "name",
        "output_schema",
        "result_adapter",
        "timeout",
        "wraps_result",
    )

    def __init__(
        self,
        *,
        fn: Callable[..., Any],
        bind: Callable[[dict[str, Any]], dict[str, Any]],
        described: Described,
        line: int | None,
        context_parameter: str | None = None,
        result_adapter: Any = None,
    ) -> None:
        self.name: str = described["name"]
        self.fn = fn
        self.is_async = is_async(fn)
        self.bind = bind
        """Arguments in, keyword arguments out; raises `BadArguments`."""
        self.context_parameter = context_parameter
        self.result_adapter = result_adapter
        self.output_schema: dict[str, Any] | None = described.get("outputSchema")
        self.wraps_result = bool(self.output_schema and self.output_schema.get(schema.WRAPPED))
        self.timeout: float | None = described.get("timeout")
        self.file: str = described["file"]
        self.line = line
        self._described = described

    @property
    def key(self) -> str:
        """What it is found by."""
        return self.name

    def describe(self) -> Described:
        """What callers are told, as JSON."""
        return self._described


def tool(file: str, fn: Any, record: Any, line: int | None) -> LoadedTool | None:
    """A tool from a function and what was said about it; None if it is switched off."""
    if getattr(record, "enabled", True) is False:
        return None
    parsed = schema.parse(fn)
    output_schema = parsed.output_schema
    if isinstance(record.output_schema, dict) or record.output_schema is None:
        output_schema = record.output_schema
    facts = {
        "name": record.name or parsed.name,
        "description": parsed.description if record.description is None else record.description,
        "inputSchema": parsed.input_schema,
    }
    return LoadedTool(
        fn=runnable(fn, parsed, record),
        bind=parsed.validate,
        described=_describe(file, record, facts, output_schema),
        line=line,
        context_parameter=parsed.context_parameter,
        result_adapter=parsed.result_adapter,
    )


def of_object(file: str, found: Any, line: int | None) -> LoadedTool | None:
    """From an object of the real package, which runs its function itself unless it is a plain one."""
    if getattr(found, "enabled", True) is False:
        return None
    fn = getattr(found, "fn", None)
    if type(found).__name__ == "FunctionTool" and fn is not None:
        return tool(file, fn, found, line)
    facts = {"name": found.name, "description": found.description or "", "inputSchema": found.parameters}

    async def run(**arguments: Any) -> Any:
        return await found.run(arguments)

    return LoadedTool(fn=run, bind=dict, described=_describe(file, found, facts, found.output_schema), line=line)


def _describe(file: str, record: Any, facts: Described, output_schema: Described | None) -> Described:
    name = facts["name"]
    if name != "<lambda>" and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise schema.SchemaError(
            f"cannot be called {name!r}: a name has 1 to 128 letters, digits, dots, hyphens and underscores"
        )
    if output_schema is not None and not schema.is_object(output_schema):
        raise schema.SchemaError("has an output_schema that does not describe an object")
    timeout = getattr(record, "timeout", None)  # the real package's tools have one since version 3
    more = {
        "outputSchema": output_schema,
        "annotations": _annotations(record.annotations),
        "timeout": None if timeout is None else float(timeout),
    }
    return describe(file, record, facts, more)


def _annotations(said: Any) -> Described:
    wire: Described = on_wire(said) or {}
    return {_HINTS.get(key, key): value for key, value in wire.items()}
