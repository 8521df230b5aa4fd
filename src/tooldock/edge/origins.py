"""Which web pages may talk to us: the Origin allowlist and the CORS answers that go with it.

A browser says where a request comes from; a request without Origin is not from a page and passes. Unset
means pages on this machine only; `*` must be written to be meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from tooldock.edge.hosts import is_loopback
from tooldock.edge.http import Headers, Request, Response
from tooldock.errors import NotAllowed

_MAX_KNOWN = 1024
_TOKENS = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*\Z")
_EXPOSED = (
    b"access-control-expose-headers",
    b"X-Request-ID, Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate",
)
_VARY = (b"vary", b"Origin")
_METHODS = (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE, OPTIONS")
_MAX_AGE = (b"access-control-max-age", b"600")
_DEFAULT_HEADERS = (
    b"Authorization, Content-Type, X-Namespace, X-Request-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, "
    b"Mcp-Name, Last-Event-ID"
)


class Origins:
    """`allowed` is empty when the operator said nothing."""

    __slots__ = ("_any", "_known", "_loopback", "_names")

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        names = {name.strip().rstrip("/").lower() for name in allowed if name.strip()}
        self._loopback = not names
        self._any = "*" in names
        self._names = frozenset(name.encode() for name in names)
        self._known: dict[bytes, Headers] = {}

    def admit(self, request: Request, origin: bytes) -> None:
        """Refuse a page that is not on the list. A page of our own is always."""
        if origin in self._known or self._is_own(request, origin):
            return
        if not self._allows(origin):
            raise NotAllowed(
                "Pages from this origin may not use this gateway. If they should, add the origin to CORS_ORIGINS.",
                origin=origin.decode("latin-1")[:200],
            )
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        allow = b"*" if self._any else origin
        self._known[origin] = ((b"access-control-allow-origin", allow), _EXPOSED, _VARY)

    def headers(self, origin: bytes) -> Headers:
        """What an answer to this origin carries; nothing when it was not admitted by the list."""
        return self._known.get(origin, (_VARY,))

    def preflight(self, request: Request) -> Response | None:
        """The answer to a browser that asks beforehand; None when this request is not that question."""
        if request.method != "OPTIONS" or b"access-control-request-method" not in request.headers:
            return None
        wanted = request.headers.get(b"access-control-request-headers", b"").strip()
        if not _TOKENS.match(wanted):
            wanted = _DEFAULT_HEADERS
        headers: Headers = (_METHODS, (b"access-control-allow-headers", wanted), _MAX_AGE)
        if request.headers.get(b"access-control-request-private-network") == b"true":
            headers += ((b"access-control-allow-private-network", b"true"),)
        return Response(204, headers=headers)

    def _allows(self, origin: bytes) -> bool:
        if self._any or origin.lower() in self._names:
            return True
        return self._loopback and _is_local_page(origin.decode("latin-1"))

    @staticmethod
    def _is_own(request: Request, origin: bytes) -> bool:
        # The Host header was checked before, so it is a name of ours.
        host = request.headers.get(b"host")
        return host is not None and origin == request.scheme.encode() + b"://" + host


def _is_local_page(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        host = parts.hostname
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and host is not None and is_loopback(host)
