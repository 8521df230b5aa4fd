"""One request of a client on its way through the dialect, and the way back to that client while it runs.

The transports make an `Exchange` for each request and give it a `Wire`; the methods answer it and know no transport.
`ClientChannel` is what a running tool talks to: it applies the protocol's rules (a progress token, the wanted log
level, what the client declared it can do) and hands messages to the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tooldock.dialects.mcp import shape
from tooldock.dialects.mcp.jsonrpc import Id, notification
from tooldock.dialects.mcp.revisions import R2025_03_26, R2025_06_18, R2025_11_25
from tooldock.errors import NoBackChannel
from tooldock.model import AskKind, Caller, LogLevel

LEVELS: tuple[LogLevel, ...] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_RANK = {level: rank for rank, level in enumerate(LEVELS)}

_METHODS = {"elicit": "elicitation/create", "sample": "sampling/createMessage", "roots": "roots/list"}
_ABILITIES = {"elicit": "elicitation", "sample": "sampling", "roots": "roots"}

_ANYTHING = {"type": "object", "properties": {}}

ASK_SECONDS = 600.0
"""How long a client, and the person behind it, may take to answer one question."""


class Wire(Protocol):
    """How messages about one request reach its client."""

    def send(self, message: bytes) -> None:
        """A notification, on the request's own stream where the transport has streams. Never waits, never raises."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Put a question to the client and wait for its result, at most `ASK_SECONDS`.

        Raises `NoBackChannel` where there is no way, the client refused or failed, or no answer came in time.
        """
        ...

    def close_stream(self) -> bool:
        """Close the connection the answer would come on, if the client can fetch the answer later."""
        ...


class SilentWire:
    """For a client that can only take the answer."""

    def send(self, message: bytes) -> None:
        return None

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        raise NoBackChannel(
            f"The tool has a question for its caller ({method}), but this connection cannot carry one: the client "
            "accepts no event stream. Use a client that does."
        )

    def close_stream(self) -> bool:
        return False


SILENT = SilentWire()


class ClientChannel:
    """A `model.Channel` that ends at an MCP client."""

    __slots__ = ("_log_level", "_progress", "_token", "_wire", "capabilities", "missing", "revision")

    def __init__(
        self,
        wire: Wire,
        revision: str,
        capabilities: Mapping[str, Any],
        progress_token: Id | None,
        log_level: LogLevel | None,
    ) -> None:
        self._wire = wire
        self.revision = revision
        self.capabilities = capabilities
        self._token = progress_token
        self._progress = float("-inf")
        self._log_level = log_level
        self.missing: dict[str, Any] | None = None
        """Capabilities that a question needed and the client lacks, as the client would declare them."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._token is None or progress <= self._progress:
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self.revision >= R2025_03_26:
            params["message"] = message
        self._wire.send(notification("notifications/progress", params))

    async def log(self, level: LogLevel, message: str, logger: str | None, data: Any) -> None:
        wanted = self._log_level
        if wanted is None or _RANK[level] < _RANK[wanted]:
            return
        params: dict[str, Any] = {"level": level, "data": message if data is None else {"message": message, **data}}
        if logger is not None:
            params["logger"] = logger
        self._wire.send(notification("notifications/message", params))

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        if kind == "close_stream":
            return self._wire.close_stream()
        method = _METHODS[kind]
        self._require(kind)
        return await self._wire.ask(method, self._shaped(kind, params))

    def _require(self, kind: AskKind) -> None:
        ability = _ABILITIES[kind]
        declared = self.capabilities.get(ability)
        fits = isinstance(declared, dict)
        if fits and kind == "elicit":
            # Nothing named means forms; a client that names only other modes has none. Older revisions have no
            # questions of this kind, whatever a client declares.
            fits = (not declared or "form" in declared) and self.revision >= R2025_06_18
        if not fits:
            self.missing = {**(self.missing or {}), ability: {"form": {}} if kind == "elicit" else {}}
            raise NoBackChannel(
                f"The tool has a question for its caller that needs the client capability {ability!r}, which this "
                "client did not declare. Use a client that supports it.",
                capability=ability,
            )

    def _shaped(self, kind: AskKind, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if kind != "elicit":
            return params
        schema = params.get("schema", _ANYTHING)
        asked = {"message": params.get("message", ""), "requestedSchema": shape.form(schema, self.revision)}
        return {"mode": "form", **asked} if self.revision >= R2025_11_25 else asked


class Exchange:
    """One request: what is asked, by whom, in which revision, and how to talk back."""

    __slots__ = (
        "caller",
        "capabilities",
        "id",
        "log_level",
        "method",
        "namespace",
        "params",
        "request_id",
        "revision",
        "session_id",
        "wire",
    )

    def __init__(
        self,
        namespace: str,
        caller: Caller,
        request_id: str,
        revision: str,
        id: Id,
        method: str,
        params: dict[str, Any],
        capabilities: Mapping[str, Any],
        wire: Wire = SILENT,
        log_level: LogLevel | None = None,
        session_id: str | None = None,
    ) -> None:
        self.namespace = namespace
        self.caller = caller
        self.request_id = request_id
        self.revision = revision
        self.id = id
        self.method = method
        self.params = params
        self.capabilities = capabilities
        self.wire = wire
        self.log_level = log_level
        self.session_id = session_id

    def channel(self) -> ClientChannel:
        meta = self.params.get("_meta")
        token = meta.get("progressToken") if type(meta) is dict else None
        if type(token) is not str and type(token) is not int:
            token = None
        return ClientChannel(self.wire, self.revision, self.capabilities, token, self.log_level)
