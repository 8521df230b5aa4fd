"""The event streams of a session, and the log from which a client that lost one continues it.

A stream is more than the connection it is read by: it has an id, its events are numbered (`<stream>-<number>`), and
what was written stays in a log for a while. A client that comes back says which event it saw last and gets the rest,
then what happens from now on. A log is only ever read through its own session, and one stream's events never come up
on another.

                       open()                    outlet.write fails, detach()
    (a call, a GET) ──────────► read by an outlet ───────────────────────────► nobody reads
                                     │      ▲             resume()                  │
                                     │      └───────────────────────────────────────┘
                              finish()│                                             │finish()
                                     ▼                                              ▼
                                   ended: only the log is left, until it is too old or makes room
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from tooldock.dialects.mcp import sse
from tooldock.edge.outlet import MAX_PENDING

if TYPE_CHECKING:
    from tooldock.edge.outlet import Outlet

RETRY_MS = 1000
"""How long a client should wait before it comes back."""

MAX_EVENTS = 256
MAX_STREAM_BYTES = 2 * 1024 * 1024
MAX_SESSION_BYTES = 4 * 1024 * 1024
MAX_TOTAL_BYTES = 64 * 1024 * 1024
MAX_AGE_SECONDS = 600.0
MAX_STREAMS = 64
"""Streams a session remembers; those in use are never forgotten."""
MAX_STANDING = 16
"""GET streams a session may hold open."""
MAX_QUEUED = 512
"""Different notifications that wait for a stream to be opened."""

_OVERHEAD = 160
"""What an event costs besides its bytes."""
_MAX_EVENT_ID = 64


class Replay:
    """The log of all sessions together, and its bounds. `evicted` counts what had to go."""

    __slots__ = (
        "_count",
        "_order",
        "_salt",
        "bytes",
        "evicted",
        "max_age",
        "max_events",
        "max_session_bytes",
        "max_stream_bytes",
        "max_total_bytes",
    )

    def __init__(
        self,
        *,
        max_events: int = MAX_EVENTS,
        max_stream_bytes: int = MAX_STREAM_BYTES,
        max_session_bytes: int = MAX_SESSION_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        max_age: float = MAX_AGE_SECONDS,
    ) -> None:
        self.max_events = max_events
        self.max_stream_bytes = max_stream_bytes
        self.max_session_bytes = max_session_bytes
        self.max_total_bytes = max_total_bytes
        self.max_age = max_age
        self.bytes = 0
        self.evicted = 0
        self._order: OrderedDict[Stream, None] = OrderedDict()
        # Sessions survive a restart and streams do not: an id from before must not name another stream after.
        self._salt = secrets.token_hex(4).encode()
        self._count = 0

    def new_id(self) -> bytes:
        self._count += 1
        return b"%b%x" % (self._salt, self._count)

    @property
    def streams(self) -> int:
        """Streams with something in the log."""
        return len(self._order)

    def keep(self, stream: Stream, event: bytes) -> None:
        size = len(event) + _OVERHEAD
        if size > self.max_stream_bytes:
            self.evicted += 1
            return
        stream.events.append((stream.last, time.monotonic(), event))
        self._add(stream, size)
        self._order[stream] = None
        self._order.move_to_end(stream)
        while len(stream.events) > self.max_events or stream.bytes > self.max_stream_bytes:
            self._evict_first(stream)
        while stream.of.bytes > self.max_session_bytes:
            self._evict_first(stream.of.oldest())
        while self.bytes > self.max_total_bytes:
            self._evict_first(next(iter(self._order)))

    def release(self, stream: Stream) -> None:
        """Forget all of its events."""
        self._add(stream, -stream.bytes)
        stream.events.clear()
        self._order.pop(stream, None)

    def sweep(self) -> None:
        """Let go of what is too old."""
        late = time.monotonic() - self.max_age
        for stream in [one for one in self._order if one.events[0][1] < late]:
            while stream.events and stream.events[0][1] < late:
                self._evict_first(stream)

    def _evict_first(self, stream: Stream) -> None:
        _, _, event = stream.events.popleft()
        self.evicted += 1
        self._add(stream, -len(event) - _OVERHEAD)
        if not stream.events:
            self._order.pop(stream, None)
            stream.of.tidy(stream)

    def _add(self, stream: Stream, size: int) -> None:
        stream.bytes += size
        stream.of.bytes += size
        self.bytes += size


class Stream:
    """One numbered sequence of events. `outlet` is the connection that reads it now, if one does."""

    __slots__ = ("bytes", "ended", "events", "id", "last", "of", "outlet", "standing")

    def __init__(self, of: Streams, id: bytes, outlet: Outlet | None, standing: bool) -> None:
        self.of = of
        self.id = id
        self.outlet = outlet
        self.standing = standing
        """Opened by a GET: it belongs to the session and not to a request."""
        self.last = 0
        self.ended = False
        self.events: deque[tuple[int, float, bytes]] = deque()
        self.bytes = 0

    def write(self, message: bytes) -> None:
        if self.ended:
            return
        self.last += 1
        event = sse.event(message, b"%b-%d" % (self.id, self.last))
        outlet = self.outlet
        if outlet is not None:
            # The bound is for what piles up, not for a single large answer, which has its own.
            outlet.max_pending = max(outlet.max_pending, MAX_PENDING + len(event))
            if not outlet.write(event):
                self.outlet = None
        if not self.of.closed:
            self.of.replay.keep(self, event)

    def finish(self, message: bytes) -> None:
        """The last one: the response to the request that the stream belongs to."""
        self.write(message)
        self.ended = True
        outlet, self.outlet = self.outlet, None
        if outlet is not None:
            outlet.end()
        self.of.tidy(self)

    def prime(self, outlet: Outlet, after: int = 0) -> None:
        """Something to come back with, before there is anything to say."""
        if self.of.primed:
            outlet.write(b"id: %b-%d\nretry: %d\ndata: \n\n" % (self.id, after, RETRY_MS))

    def resume(self, outlet: Outlet, after: int) -> None:
        """Have it read by a connection that knows the events up to `after`; an older connection gives way."""
        if self.outlet is not None:
            self.outlet.end()
        self.prime(outlet, after)
        outlet.max_pending = max(outlet.max_pending, MAX_PENDING + self.bytes)
        for number, _, event in self.events:
            if number > after:
                outlet.write(event)
        if self.ended:
            outlet.end()
            return
        self.outlet = outlet
        if self.standing:
            self.of.flush(self)

    def continues(self, after: int) -> bool:
        """Whether anything comes after that event. The last one may be missing: too large for the log."""
        return not self.ended or (bool(self.events) and self.events[-1][0] > after)

    def detach(self, outlet: Outlet) -> None:
        """This connection reads it no more."""
        if self.outlet is outlet:
            self.outlet = None
            self.of.tidy(self)

    def part(self) -> Outlet | None:
        """Let go of the connection; the client knows when to come back."""
        outlet, self.outlet = self.outlet, None
        if outlet is not None and self.of.primed:
            outlet.write(b"retry: %d\n\n" % RETRY_MS)
        return outlet


class Streams:
    """Those of one session."""

    __slots__ = ("_by_id", "_queue", "bytes", "closed", "primed", "replay")

    def __init__(self, replay: Replay, *, primed: bool) -> None:
        self.replay = replay
        self.primed = primed
        """Streams begin with an event that has an id and no data, which older clients choke on."""
        self.bytes = 0
        self.closed = False
        self._by_id: dict[bytes, Stream] = {}
        self._queue: dict[bytes, None] | None = None

    def open(self, outlet: Outlet, *, standing: bool) -> Stream:
        stream = Stream(self, self.replay.new_id(), outlet, standing)
        self._by_id[stream.id] = stream
        self._make_room()
        stream.prime(outlet)
        if standing:
            self.flush(stream)
        return stream

    def find(self, id: bytes) -> Stream | None:
        return self._by_id.get(id)

    @property
    def attached(self) -> bool:
        """Whether anybody reads one of them."""
        return any(stream.outlet is not None and stream.outlet.open for stream in self._by_id.values())

    def notify(self, message: bytes) -> None:
        """To exactly one of the standing streams, the newest; or to the first that is opened."""
        for stream in reversed(self._by_id.values()):
            if stream.standing and stream.outlet is not None and stream.outlet.open:
                stream.write(message)
                return
        if self._queue is None:
            self._queue = {}
        if len(self._queue) < MAX_QUEUED:
            self._queue[message] = None

    def flush(self, stream: Stream) -> None:
        """Hand over what waited for a stream."""
        queue, self._queue = self._queue, None
        for message in queue or ():
            stream.write(message)

    def oldest(self) -> Stream:
        """The first with something in the log."""
        return next(stream for stream in self._by_id.values() if stream.events)

    def tidy(self, stream: Stream) -> None:
        """Forget a stream that nobody reads, nobody writes, and of which nothing is left."""
        if stream.outlet is None and not stream.events and (stream.ended or stream.standing):
            self._by_id.pop(stream.id, None)

    def part(self) -> None:
        """End the connections of the standing streams, politely."""
        for stream in list(self._by_id.values()):
            if stream.standing and (outlet := stream.part()) is not None:
                outlet.end()

    def close(self) -> None:
        """The session is over: nothing of it can be continued. Its calls end their streams themselves."""
        self.closed = True
        for stream in self._by_id.values():
            self.replay.release(stream)
            if stream.standing:
                stream.ended = True
                if stream.outlet is not None:
                    stream.outlet.end()
        self._by_id.clear()
        self._queue = None

    def _make_room(self) -> None:
        standing = [one for one in self._by_id.values() if one.standing and one.outlet is not None]
        for stream in standing[:-MAX_STANDING]:
            # Most likely a connection that died without a word.
            if (outlet := stream.part()) is not None:
                outlet.end()
        if len(self._by_id) > MAX_STREAMS:
            idle = [one for one in self._by_id.values() if one.outlet is None and (one.ended or one.standing)]
            for stream in idle[: len(self._by_id) - MAX_STREAMS]:
                self.replay.evicted += len(stream.events)
                self.replay.release(stream)
                self._by_id.pop(stream.id, None)


def position(event_id: bytes) -> tuple[bytes, int] | None:
    """Stream and number in a `Last-Event-ID`; None when it is not one of ours."""
    stream, dash, number = event_id.strip().rpartition(b"-")
    if not dash or not stream.isalnum() or not number.isdigit() or len(event_id) > _MAX_EVENT_ID:
        return None
    return stream, int(number)
