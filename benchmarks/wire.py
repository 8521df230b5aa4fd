"""Just enough HTTP/1.1 to ask a question on loopback and read its answer.

Knows requests as bytes and answers with Content-Length or chunked bodies, one at a time on a connection that
stays open. Deliberately not a client: no redirects, no compression, no pipelining, no bodies that end with
the connection. Whatever it does not understand is a `WireError`, never a guess.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

LOOPBACK = "127.0.0.1"


class WireError(Exception):
    """The peer sent something that is not an answer to our request."""


class Answer(NamedTuple):
    status: int
    head: bytes
    """Status line and headers, each ended by CRLF, as received."""
    body: bytes
    keep_alive: bool

    def header(self, name: str) -> str | None:
        """The value of the first header of that name."""
        wanted = name.lower().encode("ascii")
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == wanted:
                return value.strip().decode("latin-1")
        return None

    def json(self) -> Any:
        return json.loads(self.body)


class _Head(NamedTuple):
    status: int
    length: int | None
    chunked: bool
    keep_alive: bool


class AnswerReader:
    """Turns the bytes of one connection into answers; at most one answer is outstanding at any time."""

    __slots__ = ("_head", "_held", "_raw_head")

    def __init__(self) -> None:
        self._held = b""
        # Many servers repeat a head for a whole second (the Date header), so the last one is kept parsed.
        self._raw_head = b""
        self._head = _Head(0, None, False, True)

    def feed(self, data: bytes) -> Answer | None:
        """The answer that these bytes complete, or None while some are missing."""
        if self._held:
            data = self._held + data
            self._held = b""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            self._held = data
            return None
        raw = data[: end + 2]
        if raw != self._raw_head:
            self._head = _parse_head(raw)
            self._raw_head = raw
        head = self._head
        if head.status < 200:
            return self.feed(data[end + 4 :])
        if head.chunked:
            body, after = _join_chunks(data, end + 4)
        else:
            after = end + 4 + (head.length or 0)
            body = data[end + 4 : after] if len(data) >= after else None
        if body is None:
            self._held = data
            return None
        if after != len(data):
            raise WireError(f"{len(data) - after} bytes came after the answer that nobody asked for")
        return Answer(head.status, raw, body, head.keep_alive)


def _parse_head(raw: bytes) -> _Head:
    if not raw.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")) or not raw[9:12].isdigit():
        raise WireError(f"not an HTTP/1.1 status line: {raw[:40]!r}")
    lower = raw.lower()
    status = int(raw[9:12])
    connection = _field(lower, b"connection") or b""
    keep_alive = connection != b"close" and (raw.startswith(b"HTTP/1.1") or connection == b"keep-alive")
    encoding = _field(lower, b"transfer-encoding")
    if encoding is not None:
        if encoding != b"chunked":
            raise WireError(f"transfer encoding {encoding!r} is not supported")
        return _Head(status, None, True, keep_alive)
    length = _field(lower, b"content-length")
    if length is None:
        if status < 200 or status in (204, 304):
            return _Head(status, 0, False, keep_alive)
        raise WireError(f"a {status} answer with neither Content-Length nor chunks")
    if not length.isdigit():
        raise WireError(f"Content-Length {length!r} is not a number")
    return _Head(status, int(length), False, keep_alive)


def _field(lower_head: bytes, name: bytes) -> bytes | None:
    start = lower_head.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    start += len(name) + 3
    return lower_head[start : lower_head.index(b"\r\n", start)].strip()


def _join_chunks(data: bytes, position: int) -> tuple[bytes | None, int]:
    """The body and where it ends, or None when chunks are missing."""
    pieces: list[bytes] = []
    while True:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return None, position
        size_text = data[position:line_end].partition(b";")[0].strip()
        try:
            size = int(size_text, 16)
        except ValueError:
            raise WireError(f"chunk size {size_text!r} is not a hexadecimal number") from None
        position = line_end + 2
        if size == 0:
            return _skip_trailers(data, position, b"".join(pieces))
        if len(data) < position + size + 2:
            return None, position
        if data[position + size : position + size + 2] != b"\r\n":
            raise WireError("a chunk is longer than its stated size")
        pieces.append(data[position : position + size])
        position += size + 2


def _skip_trailers(data: bytes, position: int, body: bytes) -> tuple[bytes | None, int]:
    while True:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return None, position
        if line_end == position:
            return body, position + 2
        position = line_end + 2


def request(port: int, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """A complete request to a server on loopback; the body, if any, is JSON."""
    fields = {"Host": f"{LOOPBACK}:{port}", **(headers or {})}
    if body:
        fields.setdefault("Content-Type", "application/json")
    if body or method == "POST":
        fields["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def ask(port: int, data: bytes, timeout: float = 10.0) -> Answer:
    """One request on a connection of its own, for everything outside the measured loop."""
    reader = AnswerReader()
    with socket.create_connection((LOOPBACK, port), timeout=timeout) as connection:
        connection.sendall(data)
        while True:
            received = connection.recv(1 << 18)
            if not received:
                raise WireError(f"the server on port {port} closed the connection without a whole answer")
            answer = reader.feed(received)
            if answer is not None:
                return answer
