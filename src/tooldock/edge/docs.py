"""The documentation page at `/docs`: a form for token and namespace, then Swagger UI, all served from here.

The files are read beside the event loop on the first visit and then kept, compressed as well. Nothing on
the page comes from another host, and the policy it is served with would not allow it.
"""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tooldock.edge.http import Headers, NoSuchPath, Request, Response

_STATIC = Path(__file__).parent / "static"
_PAGE = "docs.html"
_TYPES = {
    _PAGE: b"text/html; charset=utf-8",
    "docs.css": b"text/css; charset=utf-8",
    "docs.js": b"text/javascript; charset=utf-8",
    "swagger-ui.css": b"text/css; charset=utf-8",
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
}
_POLICY: Headers = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class Asset:
    plain: bytes
    packed: bytes
    headers: Headers
    etag: bytes


class Docs:
    def __init__(self) -> None:
        self._assets: dict[str, Asset] | None = None

    async def respond(self, request: Request) -> Response:
        """`/docs` and what is below it."""
        if self._assets is None:
            self._assets = await asyncio.to_thread(_load)
        name = _PAGE if request.path == "/docs" else request.path.removeprefix("/docs/")
        asset = self._assets.get(name)
        if asset is None:
            raise NoSuchPath(f"There is nothing at {request.path[:200]}; the documentation is at /docs.")
        if _matches(request.headers.get(b"if-none-match", b""), asset.etag):
            return Response(304, headers=asset.headers)
        if b"gzip" in request.headers.get(b"accept-encoding", b""):
            return Response(200, asset.packed, (*asset.headers, (b"content-encoding", b"gzip")))
        return Response(200, asset.plain, asset.headers)


def _load() -> dict[str, Asset]:
    return {name: _asset(name) for name in _TYPES}


def _asset(name: str) -> Asset:
    plain = (_STATIC / name).read_bytes()
    # Weak, because the compressed form of the same text carries it as well.
    etag = b'W/"%b"' % sha256(plain).hexdigest()[:24].encode()
    headers: Headers = (
        (b"content-type", _TYPES[name]),
        # Always asked again and nearly always answered with 304: an upgrade shows at once.
        (b"cache-control", b"no-cache"),
        (b"etag", etag),
        (b"vary", b"Accept-Encoding"),
    )
    return Asset(plain, gzip.compress(plain, 6, mtime=0), headers + _POLICY, etag)


def _matches(header: bytes, etag: bytes) -> bool:
    if not header:
        return False
    strong = etag.removeprefix(b"W/")
    return any(one.strip().removeprefix(b"W/") in (strong, b"*") for one in header.split(b","))
