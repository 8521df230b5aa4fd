"""Server-sent events: how one is written, and the comments that keep quiet streams alive.

One timer looks after all streams. It also knows the requests that have been silent for long: their answer begins as
a stream then, so that no proxy on the way takes the silence for a dead connection.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tooldock.edge.http import Headers
from tooldock.edge.outlet import Outlet

HEADERS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
KEEP_ALIVE_SECONDS = 14.0
"""With the tick below, nothing is ever quiet for more than 15 seconds."""
_TICK_SECONDS = 1.0
_COMMENT = b": keep-alive\n\n"


def event(message: bytes, id: bytes | None = None) -> bytes:
    """One message as an event. JSON text holds no line breaks, so one line of data is enough."""
    if id is None:
        return b"event: message\ndata: %b\n\n" % message
    return b"id: %b\nevent: message\ndata: %b\n\n" % (id, message)


class Slow(Protocol):
    """A request whose answer has not begun."""

    def begin(self) -> None:
        """Begin it as a stream, if it can be one."""
        ...


class KeepAlive:
    """Cheap to add to and to leave: once a second it looks at who has been quiet for `seconds`."""

    __slots__ = ("_loop", "_seconds", "_streams", "_timer", "_waiting")

    def __init__(self, seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._streams: set[Outlet] = set()
        self._waiting: dict[Slow, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def stream(self, outlet: Outlet) -> None:
        """Keep this stream alive until it is over."""
        self._streams.add(outlet)
        self._start()

    def wait(self, slow: Slow) -> None:
        """Have this request begin its answer when it takes too long. `done` it must be told."""
        self._waiting[slow] = self._loop.time()
        if self._timer is None:
            self._start()

    def done(self, slow: Slow) -> None:
        self._waiting.pop(slow, None)

    def _start(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(min(_TICK_SECONDS, self._seconds / 2), self._tick)

    def _tick(self) -> None:
        self._timer = None
        late = self._loop.time() - self._seconds
        for slow in [one for one, since in self._waiting.items() if since <= late]:
            del self._waiting[slow]
            slow.begin()
        for outlet in [one for one in self._streams if one.wrote_at <= late or not one.open]:
            if not outlet.write(_COMMENT):
                self._streams.discard(outlet)
        if self._streams or self._waiting:
            self._start()
