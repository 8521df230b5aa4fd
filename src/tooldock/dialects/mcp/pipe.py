"""Lines over descriptors that are somebody else's: pipes, sockets, files or a terminal.

    Incoming   a descriptor → lines, none longer than allowed
    Outgoing   lines → a descriptor, without ever blocking the loop; whoever stops reading is let go

What the lines mean is not known here.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress

import structlog

log = structlog.get_logger("tooldock.stdio")

_CHUNK = 1 << 16
_PIECE = 1 << 18
_CROWDED = 1 << 20
"""Bytes waiting for the reader above which answers wait, and nothing more is read from the other side."""
_TOO_MUCH = 16 << 20
"""Bytes waiting for the reader above which it is let go."""
STALL_SECONDS = 60.0
"""How long a reader may take nothing at all of what waits for it."""
_FLUSH_SECONDS = 2.0


class Incoming:
    """Lines of a descriptor. `take` gets each, without its end; `too_long` is called once for each that is none."""

    def __init__(self, descriptor: int, max_line: int) -> None:
        self._descriptor = descriptor
        self._max_line = max_line
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._take: Callable[[bytes], None] = lambda line: None
        self._too_long: Callable[[], None] = lambda: None
        self._thread: asyncio.Task[None] | None = None
        self._reading = False

    def start(self, take: Callable[[bytes], None], too_long: Callable[[], None]) -> None:
        self._take, self._too_long = take, too_long
        self.resume()

    def resume(self) -> None:
        if self._reading or self.ended.is_set():
            return
        self._reading = True
        if self._thread is not None:
            return  # it has not noticed yet that it was to pause
        try:
            self._loop.add_reader(self._descriptor, self._read)
        except OSError:
            # A file, or /dev/null: always readable, so there is nothing to wait for.
            self._thread = self._loop.create_task(self._read_file(), name="stdin")

    def pause(self) -> None:
        if not self._reading:
            return
        self._reading = False
        if self._thread is None:
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        self.pause()
        self.ended.set()

    def _read(self) -> None:
        chunk = self._chunk()
        if chunk is not None:
            self.feed(chunk)

    async def _read_file(self) -> None:
        while self._reading:
            chunk = await asyncio.to_thread(self._chunk)
            self.feed(chunk or b"")
        self._thread = None

    def _chunk(self) -> bytes | None:
        """What is there to be read: None when nothing is after all, nothing at the end or when it cannot be read."""
        try:
            return os.read(self._descriptor, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            log.warning("pipe_unreadable", reason=error.strerror)
            return b""

    def feed(self, chunk: bytes) -> None:
        """What was read; nothing means the end."""
        if not chunk:
            if self._buffer and not self._skipping:
                self._hand_over(bytes(self._buffer))  # the last line may lack its end
            self._buffer.clear()
            self.close()
            return
        self._buffer += chunk
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line = bytes(memoryview(self._buffer)[:end]) if end <= self._max_line else None
            del self._buffer[: end + 1]
            self._searched = 0
            if self._skipping:
                self._skipping = False
            elif line is None:
                self._too_long()
            else:
                self._hand_over(line)
        self._searched = len(self._buffer)
        if self._searched > self._max_line:
            if not self._skipping:
                self._skipping = True
                self._too_long()
            self._buffer.clear()
            self._searched = 0

    def _hand_over(self, line: bytes) -> None:
        line = line.strip()
        if line:
            self._take(line)


class Outgoing:
    """Messages on their way to a descriptor. `write` never waits; `broken` says that the client takes no more."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._pending = bytearray()
        self._moved_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.broken = asyncio.Event()
        self.on_crowded: Callable[[bool], None] = lambda crowded: None
        mode = os.fstat(descriptor).st_mode
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        """Files and terminals take what they are given; only these can be full, and can say when they no longer are."""
        self._was_blocking = os.get_blocking(descriptor)
        if self._waits:
            os.set_blocking(descriptor, False)

    @property
    def crowded(self) -> bool:
        return not self._room.is_set()

    def write(self, message: bytes) -> None:
        if self.broken.is_set():
            return
        line = message + b"\n"
        if not self._pending:
            line = line[self._push(line) :]
            if not line or self.broken.is_set():
                return
            self._wait()
        elif len(self._pending) > _TOO_MUCH:
            self._break("the client does not read, and too much waits for it")
            return
        self._pending += line
        if len(self._pending) > _CROWDED and not self.crowded:
            self._room.clear()
            self.on_crowded(True)

    def has_reader(self) -> bool:
        """Whether somebody could still read what is written; found out without writing."""
        poll = select.poll()
        poll.register(self._descriptor, 0)  # nothing is waited for, so only what is wrong is told
        return not self.broken.is_set() and not poll.poll(0)

    async def room(self) -> None:
        """Until little enough waits that an answer may join it."""
        while self.crowded:  # others who waited may have filled it again
            await self._room.wait()

    async def flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self._empty.wait()

    def close(self) -> None:
        self._stop()
        if self._waits:
            # The other side of a shell's pipeline may share it with us.
            with suppress(OSError):
                os.set_blocking(self._descriptor, self._was_blocking)

    def _push(self, data: bytes | bytearray) -> int:
        """How many bytes could be written at once."""
        try:
            return os.write(self._descriptor, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._break(error.strerror or "unknown reason")
            return 0

    def _wait(self) -> None:
        self._empty.clear()
        self._moved_at = self._loop.time()
        self._timer = self._loop.call_later(STALL_SECONDS, self._look)
        if self._waits:
            self._loop.add_writer(self._descriptor, self._more)
        else:
            self._loop.call_soon(self._more)

    def _more(self) -> None:
        moved = self._push(self._pending[:_PIECE])
        if self.broken.is_set():
            return
        if moved:
            del self._pending[:moved]
            self._moved_at = self._loop.time()
        if self.crowded and len(self._pending) <= _CROWDED // 2:
            self._room.set()
            self.on_crowded(False)
        if not self._pending:
            self._stop()
        elif not self._waits:
            self._loop.call_soon(self._more)

    def _look(self) -> None:
        quiet = self._loop.time() - self._moved_at
        if quiet >= STALL_SECONDS:
            self._break(f"the client has read nothing for {STALL_SECONDS:g} seconds")
        else:
            self._timer = self._loop.call_later(STALL_SECONDS - quiet, self._look)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waits:
            self._loop.remove_writer(self._descriptor)
        self._empty.set()

    def _break(self, reason: str) -> None:
        if not self.broken.is_set():
            log.info("pipe_broken", reason=reason)
        self._pending.clear()
        self.broken.set()
        self._stop()
        self._room.set()
