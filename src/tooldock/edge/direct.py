"""The short way between the server and the front, for requests and answers of the ordinary kind.

ASGI costs a call two messages in, two out, and a look at every header on the way; on a path of eighty microseconds
that is a tenth. When the whole body has already arrived, `take_body` hands it over without asking for it, and
`respond` writes a complete answer at once. Both say no to anything unusual (no server of ours behind the scope, a
body still arriving, a connection about to close, a client that reads slowly), and ASGI takes its course.

It knows uvicorn's cycle of one request and one answer, which `server.Protocol` leaves in the scope.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

Headers = tuple[tuple[bytes, bytes], ...]

CYCLE = "tooldock.cycle"

_MAX_KEPT = 256
_OF_ONE_CLIENT = b"mcp-session-id"
"""A header whose value is never the same twice."""
_blocks: dict[Headers, bytes] = {}
_dated: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")


def take_body(scope: MutableMapping[str, Any]) -> bytes | None:
    """The request's body when all of it is here."""
    cycle: RequestResponseCycle | None = scope.get(CYCLE)
    if cycle is None or cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
        return None
    body = bytes(cycle.body)
    cycle.body = bytearray()
    return body


def respond(scope: MutableMapping[str, Any], status: int, headers: Headers, request_id: str, body: bytes) -> bool:
    """Send a whole answer; false when it has to be sent the long way."""
    cycle: RequestResponseCycle | None = scope.get(CYCLE)
    if (
        cycle is None
        or cycle.response_started
        or cycle.disconnected
        or not cycle.keep_alive
        or cycle.waiting_for_100_continue
        or cycle.flow.write_paused
    ):
        return False
    del scope[CYCLE]  # the cycle holds the scope, too; without this only the collector would free them
    cycle.response_started = True
    cycle.transport.write(
        b"%b%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b"
        % (
            STATUS_LINE[status],
            _date(cycle.default_headers),
            _blocks.get(headers) or _block(headers),
            request_id.encode(),
            len(body),
            body,
        )
    )
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True


def leave(scope: MutableMapping[str, Any]) -> None:
    """Have the connection closed after this answer."""
    cycle: RequestResponseCycle | None = scope.get(CYCLE)
    if cycle is not None:
        cycle.keep_alive = False


def _block(headers: Headers) -> bytes:
    block = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    if block.count(b"\n") != len(headers) or block.count(b"\r") != len(headers):
        raise ValueError("a header holds a line break")
    if len(_blocks) < _MAX_KEPT and not any(name == _OF_ONE_CLIENT for name, _ in headers):
        _blocks[headers] = block
    return block


def _date(defaults: list[tuple[bytes, bytes]]) -> bytes:
    """What the server says in every answer; it makes a new list every second."""
    global _dated
    if _dated[0] is not defaults:
        _dated = (defaults, _block(tuple(defaults)) if defaults else b"")
    return _dated[1]
