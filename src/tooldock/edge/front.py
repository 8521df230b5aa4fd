"""The door of every HTTP face: one ASGI callable in front of one handler.

In order: request id, headers, Host, Origin, who calls, then the handler; then exactly one answer. Whatever
is wrong on the way becomes an answer by `refuse`, which belongs to the dialect behind this door: the front
knows no envelope.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterable
from typing import cast

import structlog

from tooldock.edge import oauth
from tooldock.edge.credentials import Credentials, missing
from tooldock.edge.direct import CYCLE, respond
from tooldock.edge.hosts import Hosts
from tooldock.edge.http import (
    DEFAULT_MAX_BODY,
    Handler,
    Headers,
    Message,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    fold,
)
from tooldock.edge.metrics import Metrics
from tooldock.edge.origins import Origins
from tooldock.edge.outlet import Outlet
from tooldock.edge.proxies import Proxies
from tooldock.edge.watch import Watch
from tooldock.errors import InternalError, MalformedRequest, ToolDockError, Unavailable
from tooldock.model import Caller

Refuse = Callable[[Request, ToolDockError], Response]

OPEN_PATHS = frozenset(("/health", "/docs")) | oauth.PATHS
OPEN_PREFIXES = ("/docs/", oauth.WELL_KNOWN)
CLIENT_GONE = 499

_log = structlog.get_logger("tooldock.edge")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}\Z")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_CLOSE = (b"connection", b"close")
_NO_BODY = frozenset((204, 304))


class RequestIds:
    """Short ids that sort by time: milliseconds, a counter, and what tells this process from others."""

    __slots__ = ("_count", "_salt")

    def __init__(self) -> None:
        self._count = 0
        self._salt = secrets.token_hex(3)

    def new(self) -> str:
        self._count = (self._count + 1) & 0xFFFF
        return f"{time.time_ns() // 1_000_000:011x}{self._count:04x}{self._salt}"


class Front:
    """`credentials` None means that authentication is off, which settings permit on loopback only."""

    def __init__(
        self,
        handler: Handler,
        *,
        refuse: Refuse,
        hosts: Hosts,
        origins: Origins,
        credentials: Credentials | None,
        proxies: Proxies | None = None,
        metrics: Metrics | None = None,
        face: str = "core",
        max_body: int = DEFAULT_MAX_BODY,
        open_paths: Iterable[str] = OPEN_PATHS,
        watch: Watch | None = None,
    ) -> None:
        self._handler = handler
        self._refuse = refuse
        self._hosts = hosts
        self._origins = origins
        self._credentials = credentials
        self._proxies = proxies or Proxies()
        self._traffic = (metrics or Metrics()).face(face)
        self._max_body = max_body
        self._open_paths = frozenset(open_paths)
        self._watch = watch or Watch()
        self._ids = RequestIds()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse_other(scope, receive, send)
            return
        started = time.perf_counter()
        request = Request(scope, receive, self._max_body, send, self)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        request.task = asyncio.current_task(self._loop)  # looking the loop up is a system call before Python 3.12
        self._watch.add(request)
        status = CLIENT_GONE
        try:
            response = await self._answer(request)
            if request.watcher is not None and request.outlet is None:
                await self._watch.release(request)
            status = response.status
            if request.outlet is not None:
                await self._finish(request, request.outlet)
            elif not self._send_directly(request, response):
                await self._send(request, response, send)
        except asyncio.CancelledError:
            if request.outlet is not None:
                request.outlet.abort()
            if request.stopped != "gone":
                await self._say_goodbye(request, send, status)
                raise
            status = CLIENT_GONE
            cast("asyncio.Task[None]", request.task).uncancel()
        finally:
            self._watch.drop(request)
            scope.pop(CYCLE, None)
            if request.watcher is not None:
                await self._watch.release(request)
            self._traffic.count(status, time.perf_counter() - started)

    async def _answer(self, request: Request) -> Response:
        try:
            response = self._admit(request)
            if response is None:
                response = await self._handler(request)
        except ToolDockError as error:
            if request.outlet is not None:
                request.outlet.abort()
            return self._refuse(request, error)
        except Exception:
            if request.outlet is not None:
                request.outlet.abort()
            _log.exception(
                "request_failed",
                request_id=request.request_id,
                method=request.method,
                path=request.scope["path"],
            )
            return self._refuse(
                request,
                InternalError(
                    "The gateway made a mistake; this is not your request's fault. "
                    "The operator finds the reason in the log under this request id."
                ),
            )
        return response

    def _admit(self, request: Request) -> Response | None:
        """Everything that is checked before a handler sees a request; a response when none has to."""
        scope = request.scope
        # First of all an id, so that even a refusal of the headers can be found again.
        request.request_id = self._ids.new()
        headers = request.headers = fold(scope["headers"])
        given = headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.match(given):
            request.request_id = given.decode()
        peer = scope["client"]
        request.address = peer[0] if peer else ""
        if self._proxies:
            request.address, request.scheme = self._proxies.resolve(request.address, request.scheme, headers)
        self._hosts.check(headers.get(b"host"), scope["http_version"])
        origin = headers.get(b"origin")
        if origin is not None:
            self._origins.admit(request, origin)
            preflight = self._origins.preflight(request)
            if preflight is not None:
                return preflight
        self._identify(request)
        if not request.authenticated and oauth.is_sought(request.path):
            return oauth.respond(request)
        _enter_namespace(request)
        return None

    def _identify(self, request: Request) -> None:
        if self._credentials is None:
            request.caller = Caller("local", "caller", request.address)
            return
        authorization = request.headers.get(b"authorization")
        request.caller = self._credentials.caller(authorization, request.address)
        if not request.authenticated and not self._is_open(request.scope["path"]):
            raise missing(authorization)

    def _is_open(self, path: str) -> bool:
        return path in self._open_paths or path.startswith(OPEN_PREFIXES)

    def _send_directly(self, request: Request, response: Response) -> bool:
        """The ordinary answer to the ordinary request, past ASGI."""
        if response.status in _NO_BODY or request.method == "HEAD":
            return False
        headers = request.headers
        if b"origin" in headers or b"expect" in headers or _CLOSE in response.headers:
            return False
        return respond(request.scope, response.status, (*response.headers, _NOSNIFF), request.request_id, response.body)

    def start(self, request: Request, status: int, headers: Headers) -> Message:
        """The beginning of an answer, with what every answer carries. Whoever sends it watches the client from now."""
        self._watch.start(request)
        return {"type": "http.response.start", "status": status, "headers": self._headers(request, headers)}

    async def _finish(self, request: Request, outlet: Outlet) -> None:
        outlet.end()
        await outlet.flushed()
        # The server reports a finished answer as a disconnect, too; it must not be taken for one.
        await self._watch.release(request)
        await outlet.finish()

    def _headers(self, request: Request, own: Headers) -> list[tuple[bytes, bytes]]:
        headers = [*own, (b"x-request-id", request.request_id.encode()), _NOSNIFF]
        origin = request.headers.get(b"origin")
        if origin is not None:
            headers += self._origins.headers(origin)
        return headers

    async def _send(self, request: Request, response: Response, send: Send) -> None:
        headers = self._headers(request, response.headers)
        if request.body is None and b"expect" in request.headers and _CLOSE not in headers:
            # The client waits for our word before it sends its body. It never comes, so nobody could say
            # whether the next bytes on this connection are a body or a request.
            headers.append(_CLOSE)
        body = response.body
        if response.status not in _NO_BODY:
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})

    async def _say_goodbye(self, request: Request, send: Send, status: int) -> None:
        """The server ends this task itself: it is shutting down. Say so, unless an answer had begun."""
        if status != CLIENT_GONE or request.outlet is not None:
            return
        error = Unavailable("The gateway is shutting down; try again in a moment.", retry_after=5)
        response = self._refuse(request, error)
        await self._send(request, Response(response.status, response.body, (*response.headers, _CLOSE)), send)


def _enter_namespace(request: Request) -> None:
    """Take the namespace from the path or the header; they may both be there, but not disagree."""
    header = request.headers.get(b"x-namespace")
    named = header.decode("latin-1").strip() if header is not None else None
    path = request.path
    if path.startswith("/ns/"):
        inner, slash, rest = path[4:].partition("/")
        if named is not None and named != inner:
            raise MalformedRequest(
                f"The path says namespace {inner[:63]!r} and the X-Namespace header says {named[:63]!r}. "
                "Send one of them."
            )
        request.namespace = inner or None
        request.path = slash + rest or "/"
    else:
        request.namespace = named or None


async def _refuse_other(scope: Scope, receive: Receive, send: Send) -> None:
    """WebSockets and lifespan: the first is not spoken here, the second has nothing to do."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
    elif scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
