"""What a running tool may ask of its caller and of the gateway.

A tool takes a parameter annotated `Context`, or calls `get_context()`:

    @tool
    async def copy(path: str, ctx: Context) -> str:
        await ctx.report_progress(1, 2, "read")
        answer = await ctx.elicit("Overwrite?", bool)
        listing = await ctx.call_tool("files", "list", {"path": path})

A tool that is a plain `def` runs on a thread and cannot await: it uses the same methods on `ctx.sync`, which
block that thread until the answer is there (`ctx.sync.elicit("Sure?", bool)`). In long loops it looks at
`ctx.cancelled`.

This module knows neither wires nor processes: everything leaves through a `Backend`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from tooldock_worker.elicitation import question
from tooldock_worker.jsontext import EncodeError, clean, dumps

_MAX_LOGGER = 256
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Backend(Protocol):
    """The way out of the process."""

    def emit(self, message: dict[str, Any]) -> None:
        """Send one message and forget it; may be called from any thread."""
        ...

    async def ask(self, call_id: str, kind: str, params: dict[str, Any]) -> Any:
        """Put a question and wait for the answer; raises `AskFailed`."""
        ...

    def ask_sync(self, call_id: str, kind: str, params: dict[str, Any]) -> Any:
        """The same from a thread that is not the event loop's."""
        ...


class AskFailed(Exception):
    """The gateway or the caller could not answer: no back channel, refused by policy, a tool that failed."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})


class Root(NamedTuple):
    """A folder the caller offers."""

    uri: str
    name: str | None = None


class SamplingResult(NamedTuple):
    """What the caller's model answered."""

    text: str
    model: str | None
    content: Any

    @property
    def result(self) -> str:
        return self.text


class ServerView(NamedTuple):
    """What tool code may know of the server it runs in, under the attributes the real package reads."""

    name: str
    strict_input_validation: bool = False


class _Ask(NamedTuple):
    """One question: what goes out, and how the answer is read. The async and the blocking way share it."""

    kind: str
    params: dict[str, Any]
    read: Callable[[Any], Any]


class Context:
    """The running call, as its tool sees it."""

    __slots__ = ("__weakref__", "_backend", "_info", "_sync", "call_id", "cancelled", "namespace", "tool")

    is_background_task = False
    request_context = None
    task_id = None

    def __init__(
        self, backend: Backend, call_id: str, namespace: str, tool: str, info: Mapping[str, Any] | None = None
    ) -> None:
        self._backend = backend
        self._sync: SyncContext | None = None
        self.call_id = call_id
        self.namespace = namespace
        self.tool = tool
        self._info: Mapping[str, Any] = info or {}
        self.cancelled = False
        """True once the caller has given up; a tool on a thread should look at it and stop."""

    @property
    def sync(self) -> SyncContext:
        """The same methods for a tool that is a plain `def`; they block its thread."""
        if self._sync is None:
            self._sync = SyncContext(self)
        return self._sync

    @property
    def fastmcp(self) -> ServerView:
        return ServerView(self.namespace)

    @property
    def request_id(self) -> str:
        return str(self._info.get("request_id") or self.call_id)

    @property
    def caller(self) -> str | None:
        """The name of the credential the call came with."""
        caller = self._info.get("caller")
        return None if caller is None else str(caller)

    @property
    def client_id(self) -> str | None:
        return self.caller

    @property
    def session_id(self) -> str | None:
        """The MCP session; None on wires that have none."""
        session = self._info.get("session_id")
        return None if session is None else str(session)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call is."""
        self._progress(progress, total, message)

    async def log(
        self,
        message: str,
        level: str | None = None,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a log line to the caller; the level is "info" unless named."""
        self._log(level or "info", message, logger_name, extra)

    async def debug(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        self._log("debug", message, logger_name, extra)

    async def info(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        self._log("info", message, logger_name, extra)

    async def warning(
        self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        self._log("warning", message, logger_name, extra)

    async def error(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        self._log("error", message, logger_name, extra)

    async def elicit(
        self,
        message: str,
        response_type: Any = None,
        *,
        response_title: str | None = None,
        response_description: str | None = None,
    ) -> Any:
        """Ask the person behind the call; see `elicitation.question` for the response types."""
        return await self._ask(_elicit(message, response_type, response_title, response_description))

    async def sample(
        self,
        messages: str | Sequence[Any],
        *,
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        model_preferences: Any = None,
    ) -> SamplingResult:
        """Ask the caller's model; the answer's text is in `.text`."""
        ask = _sample(messages, system_prompt, temperature, max_tokens, model_preferences)
        return await self._ask(ask)  # type: ignore[no-any-return]

    async def list_roots(self) -> list[Root]:
        """The folders the caller offers."""
        return await self._ask(_roots())  # type: ignore[no-any-return]

    async def call_tool(self, namespace: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Call another tool through the gateway, with its policy, limits and audit; gives its value."""
        return await self._ask(_call_tool(namespace, tool, arguments))

    async def send_notification(self, notification: Any) -> None:
        """Tell clients that a list or a resource of this namespace changed.

        By name (`"notifications/tools/list_changed"`, the same for prompts and resources), or as
        `{"method": "notifications/resources/updated", "params": {"uri": ...}}`, or as an object of `mcp.types`.
        """
        await self._ask(_notification(notification))

    async def close_sse_stream(self) -> None:
        """Let the caller's connection go; it comes back for the answer. Nothing happens on wires without streams."""
        await self._ask(_CLOSE_STREAM)

    async def client_supports(self, capability: str) -> bool:
        """Whether the caller can be asked: `"elicitation"` (forms), `"sampling"` or `"roots"`."""
        return self._supports(capability)

    def _supports(self, capability: str) -> bool:
        declared = self._info.get("capabilities")
        said = declared.get(capability) if isinstance(declared, Mapping) else None
        if capability == "elicitation" and isinstance(said, Mapping) and said:
            return said.get("form") is not None  # it names the ways it can be asked, and forms may not be among them
        return said is not None and said is not False

    async def _ask(self, ask: _Ask) -> Any:
        return ask.read(await self._backend.ask(self.call_id, ask.kind, ask.params))

    def _ask_sync(self, ask: _Ask) -> Any:
        return ask.read(self._backend.ask_sync(self.call_id, ask.kind, ask.params))

    def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        if not math.isfinite(progress) or (total is not None and not math.isfinite(total)):
            raise ValueError("Progress must be a finite number.")
        self._backend.emit(
            {
                "op": "progress",
                "id": self.call_id,
                "progress": progress,
                "total": total,
                "message": None if message is None else clean(str(message)),
            }
        )

    def _log(self, level: str, message: str, logger_name: str | None, extra: Mapping[str, Any] | None) -> None:
        if level not in LEVELS:
            raise ValueError(f"There is no log level {level!r}; use one of {', '.join(LEVELS)}.")
        self._backend.emit(
            {
                "op": "log",
                "id": self.call_id,
                "level": level,
                "message": clean(str(message)),
                "logger": None if logger_name is None else clean(str(logger_name))[:_MAX_LOGGER],
                "data": None if extra is None else _loggable(extra),
            }
        )


class SyncContext:
    """`Context` for a tool that runs on a thread: the same names, blocking."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._context._progress(progress, total, message)

    def log(
        self,
        message: str,
        level: str | None = None,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._context._log(level or "info", message, logger_name, extra)

    def debug(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        self._context._log("debug", message, logger_name, extra)

    def info(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        self._context._log("info", message, logger_name, extra)

    def warning(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        self._context._log("warning", message, logger_name, extra)

    def error(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        self._context._log("error", message, logger_name, extra)

    def elicit(
        self,
        message: str,
        response_type: Any = None,
        *,
        response_title: str | None = None,
        response_description: str | None = None,
    ) -> Any:
        return self._context._ask_sync(_elicit(message, response_type, response_title, response_description))

    def sample(
        self,
        messages: str | Sequence[Any],
        *,
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        model_preferences: Any = None,
    ) -> SamplingResult:
        ask = _sample(messages, system_prompt, temperature, max_tokens, model_preferences)
        return self._context._ask_sync(ask)  # type: ignore[no-any-return]

    def list_roots(self) -> list[Root]:
        return self._context._ask_sync(_roots())  # type: ignore[no-any-return]

    def call_tool(self, namespace: str, tool: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return self._context._ask_sync(_call_tool(namespace, tool, arguments))

    def send_notification(self, notification: Any) -> None:
        self._context._ask_sync(_notification(notification))

    def close_sse_stream(self) -> None:
        self._context._ask_sync(_CLOSE_STREAM)

    def client_supports(self, capability: str) -> bool:
        return self._context._supports(capability)


current: ContextVar[Context | None] = ContextVar("tooldock_context", default=None)
"""The call this task or thread works for."""


def get_context() -> Context:
    """The running call's context, for code that is not handed one."""
    context = current.get()
    if context is None:
        raise RuntimeError("No active context found: get_context() works only while a tool is being called.")
    return context


def _elicit(message: str, response_type: Any, title: str | None, description: str | None) -> _Ask:
    form = question(response_type, title, description)
    return _Ask("elicit", {"message": clean(str(message)), "schema": form.schema}, form.answer)


def _sample(
    messages: str | Sequence[Any],
    system_prompt: str | None,
    temperature: float | None,
    max_tokens: int | None,
    model_preferences: Any,
) -> _Ask:
    params: dict[str, Any] = {
        "messages": [_message(item) for item in ([messages] if isinstance(messages, str) else messages)],
        "maxTokens": 512 if max_tokens is None else max_tokens,
    }
    if system_prompt is not None:
        params["systemPrompt"] = system_prompt
    if temperature is not None:
        params["temperature"] = temperature
    if model_preferences is not None:
        params["modelPreferences"] = _preferences(model_preferences)
    return _Ask("sample", json.loads(dumps(params)), _sampled)


def _message(item: Any) -> Any:
    if isinstance(item, str):
        return {"role": "user", "content": {"type": "text", "text": item}}
    dump = getattr(item, "model_dump", None)
    return item if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


def _preferences(wanted: Any) -> Any:
    names = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(names, list):
        return {"hints": [{"name": name} for name in names]}
    return _message(wanted)


def _sampled(answer: Any) -> SamplingResult:
    content = answer.get("content")
    blocks = content if isinstance(content, list) else [content]
    texts = [block.get("text", "") for block in blocks if isinstance(block, dict)]
    return SamplingResult("".join(texts), answer.get("model"), content)


def _roots() -> _Ask:
    return _Ask("roots", {}, _read_roots)


def _read_roots(answer: Any) -> list[Root]:
    roots = answer.get("roots", []) if isinstance(answer, dict) else answer
    return [Root(root["uri"], root.get("name")) for root in roots]


def _call_tool(namespace: str, tool: str, arguments: Mapping[str, Any] | None) -> _Ask:
    # Models, dates and the like become JSON here, so that the gateway sees what any other caller would send.
    plain = json.loads(dumps(dict(arguments or {})))
    return _Ask("call_tool", {"namespace": namespace, "tool": tool, "arguments": plain}, lambda value: value)


def _notification(said: Any) -> _Ask:
    wire = {"method": said} if isinstance(said, str) else _message(said)
    if not isinstance(wire, Mapping) or not isinstance(wire.get("method"), str):
        raise TypeError(
            'A notification is a name such as "notifications/tools/list_changed", or a dict with method and params.'
        )
    params = {"method": wire["method"], "params": wire.get("params") or {}}
    return _Ask("notify", json.loads(dumps(params)), _nothing)


def _nothing(_answer: Any) -> None:
    return None


_CLOSE_STREAM = _Ask("close_stream", {}, _nothing)


def _loggable(extra: Mapping[str, Any]) -> Any:
    """Log data must never fail a call: what JSON cannot carry is shown as text."""
    try:
        return json.loads(dumps(dict(extra)))
    except EncodeError:
        return {str(key): clean(repr(value)) for key, value in extra.items()}
