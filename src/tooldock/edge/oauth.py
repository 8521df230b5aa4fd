"""For clients that take a refusal for an invitation to log in.

An MCP client that is told 401 looks for an OAuth server in the usual places. There is none: the token is fixed. Saying
so where it looks, in the form it reads, is the difference between a sentence and a riddle for whoever set it up.
"""

from __future__ import annotations

import orjson

from tooldock.edge.http import Request, Response

WELL_KNOWN = "/.well-known/"
PATHS = frozenset(("/register", "/authorize", "/token"))

_TEXT = (
    "This gateway uses a fixed token, not OAuth. Check the Authorization header in the client's configuration: "
    "`tooldock client-config` prints one that works."
)
_BODY = orjson.dumps({"error": "invalid_request", "error_description": _TEXT})


def is_sought(path: str) -> bool:
    return path in PATHS or path.startswith(WELL_KNOWN)


def respond(request: Request) -> Response:
    return Response(404, _BODY, ((b"content-type", b"application/json"), (b"cache-control", b"no-store")))
