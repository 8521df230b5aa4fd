"""The gateway's end of the pipe to one worker. `tooldock_worker.frames` draws the protocol.

Small and hot: a call is one line out and one line back, matched by number. Results stay bytes.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any, cast

import orjson

from tooldock.errors import BY_CODE, InternalError, TooLarge, ToolDockError, ToolFailed, Unavailable
from tooldock_worker.frames import FrameTooLong, Lines

Message = dict[str, Any]
EventHandler = Callable[[Message], None]

_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_PLAIN = re.compile(rb'\{"id":"(\d+)","ok":true,"latency_ms":([0-9.]+),"result":')


_HEAD = 64
"""Room for what stands before a call's own bytes in its line."""


class NotStarted(Exception):
    """The worker ended, or was given up, before it took this call; another may run it."""


class Answer:
    """What a worker said to one call: the result's JSON, and the whole frame where it was not a plain value."""

    __slots__ = ("body", "frame")

    def __init__(self, body: bytes, frame: Message | None = None) -> None:
        self.body = body
        self.frame = frame


class Counter:
    """Two numbers shared with the worker: the call it took up last, and whether it must take up no more.

    The worker notes a call before it looks whether it may run it; we forbid before we look what it noted. So a
    call we take back is one it will not run, even if the worker wakes up just then and finds it in its socket.
    """

    def __init__(self) -> None:
        if sys.platform == "linux":
            self.fd = os.memfd_create("begun")
        else:
            self.fd, path = tempfile.mkstemp()
            os.unlink(path)
        os.ftruncate(self.fd, 16)
        self._memory = mmap.mmap(self.fd, 16)
        self._view = memoryview(self._memory).cast("Q")
        self._final: int | None = None

    @property
    def value(self) -> int:
        return self._view[0] if self._final is None else self._final

    def forbid(self) -> int:
        """The last call it took up, and from now on there will be no later one."""
        if self._final is None:
            self._view[1] = 1
        return self.value

    def close(self) -> None:
        """Forbid, and let go of the memory: a mapping holds a descriptor of its own."""
        self._final = self.forbid()
        self._view.release()
        self._memory.close()

    def close_descriptor(self) -> None:
        os.close(self.fd)


class Connection(asyncio.Protocol):
    """One worker's socket."""

    def __init__(self, *, max_frame: int, on_event: EventHandler, begun: Counter) -> None:
        self._lines = Lines(max_frame)
        self._max_call = max_frame - _HEAD
        self._on_event = on_event
        self._begun = begun
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._last = 0
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.answered = 0
        self.on_quiet: Callable[[], None] | None = None
        """Called when the last call in flight has been answered."""

    async def open(self, sock: socket.socket) -> None:
        await self._loop.create_connection(lambda: self, sock=sock)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def is_waiting(self, number: int) -> bool:
        return number in self._waiting

    def call(
        self, tool: str, arguments: Message, info: Message, op: bytes = b"tools.call"
    ) -> tuple[int, asyncio.Future[Answer]]:
        """Send a call; the future gets an `Answer`, a `ToolDockError` or `NotStarted`.

        `op` may also be `resources.read`, with the URI as `tool`, or `prompts.get`, with the prompt's name.
        """
        body = b'"tool":%b,"arguments":%b,"info":%b' % (
            orjson.dumps(tool),
            dump_arguments(arguments),
            orjson.dumps(info),
        )
        if len(body) > self._max_call:
            raise TooLarge(
                f"The arguments of {tool[:200]!r} have {len(body):,} bytes as one message to its worker; "
                f"{self._max_call:,} are allowed. Send less, or raise WORKER_MAX_FRAME.",
                tool=tool,
            )
        number, future = self._expect()
        self._send(b'{"id":"%d","op":"%b",%b}\n' % (number, op, body))
        return number, future

    def request(self, op: str, **fields: Any) -> asyncio.Future[Answer]:
        number, future = self._expect()
        self._send(orjson.dumps({"id": str(number), "op": op, **fields}) + b"\n")
        return future

    def tell(self, op: str, **fields: Any) -> None:
        """Like `request`, for those who do not wait for the answer."""
        self._send(orjson.dumps({"id": "0", "op": op, **fields}) + b"\n")

    def answer(self, ask: str, result: Any = None, error: ToolDockError | None = None) -> None:
        """Answer a worker's question; `result` may be JSON bytes."""
        body = b"" if error is not None else result if isinstance(result, bytes) else orjson.dumps(result)
        if len(body) > self._max_call:
            error = TooLarge(
                f"The answer has {len(body):,} bytes; a message to a worker may have {self._max_call:,}. "
                "Ask for less, or raise WORKER_MAX_FRAME."
            )
        if error is None:
            self._send(b'{"op":"answer","ask":%b,"ok":true,"result":%b}\n' % (orjson.dumps(ask), body))
        else:
            facts = {"code": error.code, "message": error.message, "details": error.details}
            line = {"op": "answer", "ask": ask, "ok": False, "error": facts}
            self._send(orjson.dumps(line, default=str) + b"\n")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(high=64 << 20)

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._lines.feed(data):
                self._on_line(line)
        except (FrameTooLong, orjson.JSONDecodeError, KeyError, ValueError, TypeError, AttributeError):
            # Only a tool writing to our socket can cause this; nothing it says can be trusted any more.
            self.close()
        if not self._waiting and self.on_quiet is not None:
            self.on_quiet()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        begun = self._begun.forbid()
        self._begun.close()
        for number, future in self._waiting.items():
            if not future.done():
                future.set_exception(NotStarted() if number > begun else lost_in_flight())
        self._waiting.clear()
        if not self.lost.done():
            self.lost.set_result(None)

    def give_up(self) -> None:
        """The worker hangs: take back the calls it never took up. The others may still be answered."""
        begun = self._begun.forbid()
        for number in [number for number in self._waiting if number > begun]:
            future = self._waiting.pop(number)
            if not future.done():
                future.set_exception(NotStarted())

    # Inside.

    def _expect(self) -> tuple[int, asyncio.Future[Answer]]:
        if self._transport is None:
            raise NotStarted
        self._last += 1
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[self._last] = future
        return self._last, future

    def _send(self, line: bytes) -> None:
        """Collected per turn of the loop: callers that arrive together share one system call."""
        if self._transport is None:
            raise NotStarted
        if len(self._waiting) < 2 and not self._outgoing:
            self._transport.write(line)  # nobody to share with
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(line)

    def _flush(self) -> None:
        if self._transport is not None:
            self._transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def _on_line(self, line: bytes) -> None:
        match = _PLAIN.match(line)
        if match is None:
            self._on_frame(_decode(line))
            return
        body = line[match.end() : -1]
        orjson.loads(body)  # what goes on to callers is JSON, whatever the tool's process wrote
        self._settle(int(match[1]), Answer(body))

    def _on_frame(self, frame: Message) -> None:
        if "op" in frame:
            self._on_event(frame)
            return
        number = int(frame["id"])
        if frame["ok"]:
            self._settle(number, Answer(dump_arguments(frame.get("result")), frame))
            return
        error = _error(frame["error"])  # first: what cannot be read must not cost the call its answer
        future = self._waiting.pop(number, None)
        if future is not None:
            self.answered += 1
            if not future.done():
                future.set_exception(error)

    def _settle(self, number: int, answer: Answer) -> None:
        future = self._waiting.pop(number, None)
        if future is not None:
            self.answered += 1
            if not future.done():  # done: its deadline passed or its caller left
                future.set_result(answer)


def dump_arguments(arguments: Any) -> bytes:
    try:
        return orjson.dumps(arguments)
    except TypeError:
        # An integer beyond 64 bits; only the standard library carries those.
        return json.dumps(arguments, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def _decode(line: bytes) -> Message:
    """One frame; orjson would round an integer beyond 64 bits in what is a tool's own."""
    frame: Message = orjson.loads(line)
    if _LONG_NUMBER.search(line):
        exact = json.loads(line)
        frame |= {name: exact[name] for name in ("params", "result") if name in exact}
    return frame


def lost_in_flight() -> Unavailable:
    return Unavailable(
        "The namespace's worker process ended while it was running this call. The call may or may not have had "
        "an effect; the worker is being restarted and the call can be tried again.",
        retry_after=1,
        reason="worker_lost",
    )


def _error(facts: Message) -> Exception:
    code = str(facts.get("code"))
    if code == "not_started":
        return NotStarted()
    kind = BY_CODE.get(code, ToolFailed)
    details = facts.get("details")
    message = str(facts.get("message") or "The tool failed without a message.")
    if kind is InternalError:
        return InternalError(message)
    return kind(message, **({str(key): value for key, value in details.items()} if isinstance(details, dict) else {}))
