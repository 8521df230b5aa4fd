"""An answer in pieces, written from anywhere on the loop while its handler is still at work.

Writing never waits: pieces are held until a task of the outlet's own has handed them to the server. A client that
does not read, and lets more than a bound pile up behind one piece of any size, loses the answer; leaving it unfinished
is how it learns that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog

MAX_PENDING = 4 * 1024 * 1024
STALL_SECONDS = 60.0
"""How long a client may take to accept one piece."""

_log = structlog.get_logger("tooldock.edge")

_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Outlet:
    """Made by `Request.open`. `broken` says that not everything written reached the server."""

    __slots__ = (
        "_ended",
        "_loop",
        "_pending",
        "_pieces",
        "_pump",
        "_send",
        "_wake",
        "broken",
        "finished",
        "max_pending",
        "wrote_at",
    )

    def __init__(self, send: _Send, start: MutableMapping[str, Any], max_pending: int = MAX_PENDING) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._pending = 0
        self._ended = False
        self._wake: asyncio.Future[None] | None = None
        self.broken = False
        self.finished = False
        self.max_pending = max_pending
        self.wrote_at = self._loop.time()
        """When something was written last, on the loop's clock; for keep-alives."""
        self._pump = self._loop.create_task(self._run(start))

    @property
    def open(self) -> bool:
        """Whether what is written now will be sent."""
        return not self._ended and not self.broken

    def write(self, piece: bytes) -> bool:
        """Send later, in order; false when there is nobody to send to any more."""
        if self._ended or self.broken:
            return False
        if self._pending and self._pending + len(piece) > self.max_pending:
            _log.warning("stream_dropped", reason="the client does not read", bytes=self._pending)
            self.abort()
            return False
        self._pending += len(piece)
        self._pieces.append(piece)
        self.wrote_at = self._loop.time()
        self._awake()
        return True

    def end(self) -> None:
        """Nothing more will be written."""
        self._ended = True
        self._awake()

    def abort(self) -> None:
        """Drop what was not sent yet."""
        self.broken = True
        self._pieces.clear()
        self._awake()

    async def flushed(self) -> bool:
        """Wait until everything is with the server, after `end` or `abort`; whether all of it is."""
        await asyncio.wait((self._pump,))
        return not self.broken

    async def finish(self) -> None:
        """Complete the answer: after this the client knows that there is no more. Once is enough."""
        self.end()
        if await self.flushed() and not self.finished:
            self.finished = True
            await self._send({"type": "http.response.body", "body": b""})

    async def over(self) -> None:
        """Wait until somebody ends or breaks it."""
        await asyncio.wait((self._pump,))

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _run(self, start: MutableMapping[str, Any]) -> None:
        try:
            await self._send(start)
            while not self.broken:
                if self._pieces:
                    body, self._pieces, self._pending = b"".join(self._pieces), [], 0
                    async with asyncio.timeout(STALL_SECONDS):
                        await self._send({"type": "http.response.body", "body": body, "more_body": True})
                elif self._ended:
                    return
                else:
                    self._wake = self._loop.create_future()
                    await self._wake
                    self._wake = None
        except TimeoutError:
            self.abort()
        except Exception:
            _log.exception("stream_failed")
            self.abort()
