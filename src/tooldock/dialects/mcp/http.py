"""MCP's one endpoint: which era a request belongs to, and what is checked before either sees it.

    POST   /mcp        a message, or in 2025-03-26 several
    GET    /mcp        a session's stream of events
    DELETE /mcp        the end of a session
    GET    /sse        } the transport of 2024-11-05, where it is switched on
    POST   /messages   }

All of them also below /ns/{namespace}. A request that describes itself in `params._meta` is stateless; everything else
belongs to the revisions with a handshake. The body decides, not the header: something on the way may have lost that.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from tooldock.dialects.mcp import answers
from tooldock.dialects.mcp.jsonrpc import INTERNAL_ERROR, UNSUPPORTED_VERSION, RpcError, id_of, parse
from tooldock.dialects.mcp.media import check_content_type
from tooldock.dialects.mcp.methods import Methods
from tooldock.dialects.mcp.revisions import STATELESS, Revisions
from tooldock.edge.http import NoSuchPath, Request, Response, WrongMethod
from tooldock.errors import ToolDockError

if TYPE_CHECKING:
    from tooldock.engine.registry import Change

PATHS = frozenset(("/mcp", "/mcp/"))
LEGACY_PATHS = frozenset(("/sse", "/sse/", "/messages", "/messages/"))
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

_log = structlog.get_logger("tooldock.mcp")
_ALLOW = "GET, POST, DELETE, OPTIONS"


class Era(Protocol):
    """What every way of speaking has."""

    def on_change(self, change: Change) -> None:
        """Tell who listens that a namespace offers something else now."""
        ...

    def numbers(self) -> dict[str, float]:
        """What an operator may want to watch, by name."""
        ...

    def close(self) -> None:
        """The process is about to end: end every stream in the way its clients understand."""
        ...


class Sessioned(Era, Protocol):
    """The revisions with a handshake."""

    async def post(self, request: Request, value: Any) -> Response: ...

    async def get(self, request: Request) -> Response: ...

    async def delete(self, request: Request) -> Response: ...


class Enveloped(Era, Protocol):
    """The revision in which every request stands alone."""

    async def post(self, request: Request, value: Any) -> Response: ...


class Paired(Era, Protocol):
    """The transport of two endpoints."""

    async def get(self, request: Request) -> Response: ...

    async def post(self, request: Request) -> Response: ...


class Mcp:
    """The handler for `PATHS` and `LEGACY_PATHS`."""

    def __init__(
        self,
        methods: Methods,
        revisions: Revisions,
        handshake: Sessioned,
        stateless: Enveloped,
        legacy: Paired | None,
    ) -> None:
        self._methods = methods
        self._revisions = revisions
        self._handshake = handshake
        self._stateless = stateless
        self._legacy = legacy
        self._eras: list[Era] = [handshake, stateless, *([] if legacy is None else [legacy])]
        self._stateless_headers = frozenset(revision.encode() for revision in STATELESS)
        self._handshake_headers = frozenset(revision.encode() for revision in revisions.handshake)

    def __call__(self, request: Request) -> Awaitable[Response]:
        self._methods.check_namespace(request.require_namespace())
        if request.path in LEGACY_PATHS:
            return self._two_endpoints(request)
        return self._post(request) if request.method == "POST" else self._other(request)

    async def _other(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(204, headers=((b"allow", _ALLOW.encode()),))
        version = _version(request)
        if version in self._stateless_headers or not self._revisions.handshake:
            raise WrongMethod(request.method, request.path, "POST, OPTIONS")
        if request.method == "GET":
            return await self._handshake.get(request)
        if request.method == "DELETE":
            return await self._handshake.delete(request)
        raise WrongMethod(request.method, request.path, _ALLOW)

    def on_change(self, change: Change) -> None:
        for era in self._eras:
            era.on_change(change)

    def numbers(self) -> dict[str, float]:
        return {name: value for era in self._eras for name, value in era.numbers().items()}

    def close(self) -> None:
        for era in self._eras:
            era.close()

    async def _post(self, request: Request) -> Response:
        check_content_type(request.headers.get(b"content-type"))
        body = await request.read()
        value: Any = None
        try:
            value = parse(body)
            era = self._stateless if self._is_stateless(request, value) else self._handshake
            return await era.post(request, value)
        except RpcError as error:
            return answers.problem(400, id_of(value), error)
        except ToolDockError:
            raise
        except Exception:
            if request.outlet is not None:
                raise  # too late for another answer; the front ends this one
            _log.exception("mcp_request_failed", request_id=request.request_id)
            text = f"ToolDock failed while handling this request; its log says why under {request.request_id}."
            return answers.problem(500, id_of(value), RpcError(INTERNAL_ERROR, text))

    def _is_stateless(self, request: Request, value: Any) -> bool:
        if type(value) is dict:
            params = value.get("params")
            if type(params) is dict:
                meta = params.get("_meta")
                if type(meta) is dict and VERSION_KEY in meta:
                    return True
        version = request.headers.get(b"mcp-protocol-version")
        if version is None or version in self._handshake_headers:
            return False
        version = _version(request)
        if version in self._handshake_headers:
            return False
        if version in self._stateless_headers:
            return True
        assert version is not None
        raise RpcError(
            UNSUPPORTED_VERSION,
            f"Unsupported protocol version {version.decode('latin-1')[:40]!r} in the MCP-Protocol-Version header. "
            f"This server speaks {', '.join(self._revisions.listed())}.",
            {"supported": self._revisions.listed(), "requested": version.decode("latin-1")[:40]},
        )

    async def _two_endpoints(self, request: Request) -> Response:
        if self._legacy is None:
            raise NoSuchPath(
                f"There is nothing at {request.path}: the HTTP+SSE transport is switched off (ENABLE_LEGACY_MCP). "
                "Use /mcp."
            )
        stream = request.path.startswith("/sse")
        allow = "GET, OPTIONS" if stream else "POST, OPTIONS"
        if request.method == "OPTIONS":
            return Response(204, headers=((b"allow", allow.encode()),))
        if request.method != allow.partition(",")[0]:
            raise WrongMethod(request.method, request.path, allow)
        if stream:
            return await self._legacy.get(request)
        try:
            return await self._legacy.post(request)
        except RpcError as error:
            return answers.problem(400, None, error)


def _version(request: Request) -> bytes | None:
    """The version header of a request without an envelope.

    A client that also has it in its configuration sends it twice; as long as both say the same, that is what it says.
    """
    version = request.headers.get(b"mcp-protocol-version")
    if version is not None and b"," in version:
        named = {part.strip() for part in version.split(b",")}
        if len(named) == 1:
            version = request.headers[b"mcp-protocol-version"] = named.pop()
    return version


def is_mcp(path: str) -> bool:
    """Whether a path as sent, namespace included, belongs to this dialect; for errors before it was looked at."""
    return path.rstrip("/").rpartition("/")[2] in ("mcp", "sse", "messages")
