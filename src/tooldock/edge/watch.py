"""Notices clients that went away, and bodies that never finish, without a task or a timer per call.

One timer ticks while requests are under way. A request that outlives two ticks is either still sending its
body (then its time is bounded) or is being worked on: only then is a task spent on waiting for its client
to leave. When the client does, the request's own task is cancelled, so that the work behind it stops as
well; unless the handler asked to be told instead.
"""

from __future__ import annotations

import asyncio

from tooldock.edge.http import Request, Stopped

TICK = 0.1
BODY_SECONDS = 30.0


class Watch:
    __slots__ = ("_body_ticks", "_requests", "_tick_seconds", "_timer")

    def __init__(self, tick: float = TICK, body_seconds: float = BODY_SECONDS) -> None:
        self._tick_seconds = tick
        self._body_ticks = max(2, round(body_seconds / tick))
        self._requests: set[Request] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def young(self) -> int:
        """Requests under way that no task watches."""
        return len(self._requests)

    def add(self, request: Request) -> None:
        self._requests.add(request)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def drop(self, request: Request) -> None:
        self._requests.discard(request)

    async def release(self, request: Request) -> None:
        """End the task that watches a request. To be called when `request.watcher` is set."""
        watcher = request.watcher
        if watcher is None:
            return
        request.watcher = None
        watcher.cancel()
        # Not `await watcher`: a cancellation of our own task must stay distinguishable from the watcher's.
        await asyncio.wait((watcher,))
        if not watcher.cancelled():
            watcher.exception()

    def start(self, request: Request) -> None:
        """Watch from now on; for answers that stream."""
        self._requests.discard(request)
        if request.watcher is None:
            request.watcher = asyncio.get_running_loop().create_task(_until_gone(request))

    def _tick(self) -> None:
        if not self._requests:
            self._timer = None
            return
        self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)
        for request in tuple(self._requests):
            request.age += 1
            if request.age < 2:
                continue
            if request.reading:
                if request.age > self._body_ticks:
                    self._requests.discard(request)
                    _stop(request, "slow")
            elif request.body is not None or not request.has_body:
                # With a body announced and unread, `receive` still belongs to the handler.
                self.start(request)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    if request.on_gone is not None:
        request.on_gone()
    else:
        _stop(request, "gone")


def _stop(request: Request, why: Stopped) -> None:
    request.stopped = why
    if request.task is not None:
        request.task.cancel()
