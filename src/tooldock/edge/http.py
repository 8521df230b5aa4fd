"""One HTTP request and its answer, as plain values over ASGI.

A request is cheap: headers become a dictionary once, the body is read only when a handler asks, the query
is parsed only when somebody looks. Nothing here knows a route, a credential or an envelope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import parse_qsl

from tooldock.edge.direct import Headers as Headers
from tooldock.edge.direct import leave, take_body
from tooldock.edge.outlet import Outlet
from tooldock.errors import Cancelled, MalformedRequest, TooLarge
from tooldock.model import Caller

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DEFAULT_MAX_BODY = 4 * 1024 * 1024

ANONYMOUS = Caller("anonymous", "read-only")
"""Nobody showed a credential; such a request only gets as far as the open paths."""

Stopped = Literal["", "gone", "slow"]
"""Why the edge stopped a request: the client went away, or its body took too long."""

_SINGULAR = frozenset(
    (
        b"authorization",
        b"content-length",
        b"content-type",
        b"host",
        b"mcp-session-id",
        b"origin",
        b"transfer-encoding",
        b"x-api-key",
        b"x-manager-token",
        b"x-namespace",
        b"x-request-id",
    )
)


class HttpError(MalformedRequest):
    """A refusal only HTTP has a word for; unlike the rest of the tree it knows its status."""

    status: ClassVar[int] = 400
    headers: Headers = ()


class NoSuchPath(HttpError):
    code = "not_found"
    status = 404


class WrongMethod(HttpError):
    code = "method_not_allowed"
    status = 405

    def __init__(self, method: str, path: str, allow: str, hint: str = "") -> None:
        super().__init__(f"{method[:20]} is not possible on {path[:200]}; it takes {allow}.{hint}", allow=allow)
        self.headers = ((b"allow", allow.encode()),)


class BodyTooSlow(HttpError):
    code = "request_timeout"
    status = 408
    headers = ((b"connection", b"close"),)


class UnsupportedMedia(HttpError):
    code = "unsupported_media_type"
    status = 415


class Response:
    """A whole answer. One in pieces is begun with `Request.open`."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes = b"", headers: Headers = ()) -> None:
        self.status = status
        self.body = body
        self.headers = headers


class Door(Protocol):
    """What let a request in, and knows how an answer to it begins."""

    def start(self, request: Request, status: int, headers: Headers) -> Message: ...


class Request:
    """One request on its way in.

    `path` is the path below `/ns/{namespace}` when that form is used (the path as sent is in `scope`),
    `namespace` what that form or `X-Namespace` says.
    """

    __slots__ = (
        "address",
        "age",
        "body",
        "caller",
        "door",
        "headers",
        "max_body",
        "method",
        "namespace",
        "on_gone",
        "outlet",
        "path",
        "query",
        "reading",
        "receive",
        "request_id",
        "scheme",
        "scope",
        "send",
        "stopped",
        "task",
        "watcher",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        max_body: int = DEFAULT_MAX_BODY,
        send: Send | None = None,
        door: Door | None = None,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.door = door
        self.max_body = max_body
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.scheme: str = scope["scheme"]
        self.headers: dict[bytes, bytes] = {}
        self.body: bytes | None = None
        self.request_id = ""
        self.caller = ANONYMOUS
        self.address = ""
        self.namespace: str | None = None
        self.outlet: Outlet | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called instead of stopping the handler, when the client goes away before its answer is complete."""
        # Owned by `Watch`: how long this has lasted, and why it was stopped.
        self.age = 0
        self.reading = False
        self.stopped: Stopped = ""
        self.task: asyncio.Task[Any] | None = None
        self.watcher: asyncio.Task[None] | None = None

    @property
    def authenticated(self) -> bool:
        return self.caller is not ANONYMOUS

    @property
    def has_body(self) -> bool:
        """Whether the client announced a body."""
        return self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers

    @property
    def base_url(self) -> str:
        """Where the client believes this server is, without a trailing slash."""
        return f"{self.scheme}://{self.headers.get(b'host', b'localhost').decode('latin-1')}"

    def parameter(self, name: str) -> str | None:
        """The first value of a query parameter."""
        for key, value in parse_qsl(self.query.decode("latin-1"), keep_blank_values=True):
            if key == name:
                return value
        return None

    def require_namespace(self) -> str:
        if self.namespace is None:
            raise MalformedRequest(
                "This request names no namespace. Send the header 'X-Namespace: NAME', or put it into the "
                f"path: /ns/NAME{self.path[:200]}. GET /namespaces lists the names."
            )
        return self.namespace

    def open(self, status: int, headers: Headers) -> Outlet:
        """Begin the answer now and write it piece by piece; what the handler returns in the end is not sent then."""
        assert self.door is not None
        assert self.send is not None
        self.outlet = Outlet(self.send, self.door.start(self, status, headers))
        return self.outlet

    async def part(self) -> None:
        """Complete an answer in pieces while its handler goes on.

        Its connection is closed: it serves one request after the other, and this one is not done.
        """
        assert self.outlet is not None
        leave(self.scope)
        await self.outlet.finish()

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body, at most `limit` bytes of it. Reading twice gives the same bytes."""
        if self.body is not None:
            return self.body
        bound = self.max_body if limit is None else limit
        _check_announced(self.headers, bound)
        here = take_body(self.scope)
        if here is not None:
            if len(here) > bound:
                raise _too_large(bound)
            self.body = here
            return here
        self.reading = True
        try:
            self.body = await _read(self.receive, bound)
        except asyncio.CancelledError:
            if self.stopped != "slow" or self.task is None:
                raise
            self.task.uncancel()
            raise BodyTooSlow("The request's body did not arrive in time; send it again.") from None
        finally:
            self.reading = False
        return self.body


Handler = Callable[[Request], Awaitable[Response]]


def fold(pairs: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers as a dictionary; a header that may be sent once and was sent twice is refused."""
    headers = dict(pairs)
    if len(headers) == len(pairs):
        return headers
    headers = {}
    for name, value in pairs:
        if name not in headers:
            headers[name] = value
        elif name in _SINGULAR:
            raise MalformedRequest(f"The header {name.decode('latin-1')} was sent more than once; send it once.")
        else:
            headers[name] += b", " + value
    return headers


def _check_announced(headers: dict[bytes, bytes], bound: int) -> None:
    announced = headers.get(b"content-length")
    if announced is not None:
        if not announced.isdigit():
            raise MalformedRequest("The Content-Length header is not a number.")
        if len(announced) > 18 or int(announced) > bound:
            raise _too_large(bound)
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise UnsupportedMedia("Compressed request bodies are not accepted; send the body without Content-Encoding.")


async def _read(receive: Receive, bound: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Cancelled("The client went away before its request was complete.")
        chunk: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        size += len(chunk)
        if size > bound:
            raise _too_large(bound)
        if not more and not chunks:
            return chunk
        if chunk:
            chunks.append(chunk)
        if not more:
            return b"".join(chunks)


def _too_large(bound: int) -> TooLarge:
    return TooLarge(
        f"The request's body is larger than the {bound} bytes accepted here (MAX_REQUEST_SIZE). "
        "Send less, or let the tool fetch the data itself.",
        limit=bound,
    )
