"""What a client sends and takes, by its Content-Type and Accept headers."""

from __future__ import annotations

from tooldock.edge.http import HttpError, UnsupportedMedia

BOTH = b"application/json, text/event-stream"


class NotAcceptable(HttpError):
    code = "not_acceptable"
    status = 406


class Accepted:
    """Which of the two forms of an answer a client takes."""

    __slots__ = ("json", "sse", "sse_first", "stated")

    def __init__(self, json: bool, sse: bool, stated: bool, sse_first: bool = False) -> None:
        self.json = json
        self.sse = sse
        self.stated = stated
        """Both were named (or covered by a wildcard) in a header that was there."""
        self.sse_first = sse_first
        """It would rather have a stream: it named that before JSON, or alone."""


_UNSTATED = Accepted(True, True, False)
_known: dict[bytes, Accepted] = {BOTH: Accepted(True, True, True)}
_MAX_KNOWN = 64


def accepted(header: bytes | None) -> Accepted:
    """A missing header takes anything."""
    if header is None:
        return _UNSTATED
    found = _known.get(header)
    if found is None:
        found = _read(header)
        if len(_known) < _MAX_KNOWN:
            _known[header] = found
    return found


def check_content_type(header: bytes | None) -> None:
    """415 for anything but JSON, also for nothing at all."""
    if header == b"application/json":
        return
    media = (header or b"").partition(b";")[0].strip().lower()
    if media != b"application/json":
        raise UnsupportedMedia("Messages are JSON: send 'Content-Type: application/json'.")


def _read(header: bytes) -> Accepted:
    ranges: list[bytes] = []
    for part in header.lower().split(b","):
        media, *parameters = (piece.strip() for piece in part.split(b";"))
        if not any(item.replace(b" ", b"") in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000") for item in parameters):
            ranges.append(media)
    json = any(item in (b"application/json", b"application/*", b"*/*") for item in ranges)
    sse = any(item in (b"text/event-stream", b"text/*", b"*/*") for item in ranges)
    first = next((item for item in ranges if item in (b"application/json", b"text/event-stream")), b"")
    return Accepted(json, sse, json and sse, first == b"text/event-stream")
