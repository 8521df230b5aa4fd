"""The bounded pool that sync tools run on, beside the event loop.

Not concurrent.futures: its futures wake the loop once per call, which costs more than most tools. Here a job
answers for itself, on its own thread.

Short tools are fastest on few threads, because threads fight over the interpreter; tools that block need one
each. So a few threads are started at once, and more only when a job has been waiting for a moment.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

Job = Callable[[], None]
T = TypeVar("T")

_AT_ONCE = 4
_MOMENT = 0.005


class Pool:
    """Runs jobs on at most `limit` threads. `submit` and `drain` belong to the event loop's thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queue: queue.SimpleQueue[tuple[str, Job]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._submitted = 0
        self._finished = 0
        self._threads = 0
        self._watching = False

    def submit(self, name: str, job: Job) -> None:
        """Run `job`; it must not raise. `name` is what `drain` gives back if it never began."""
        self._submitted += 1
        self._queue.put((name, job))
        if self._submitted - self._finished > self._threads:
            if self._threads < min(_AT_ONCE, self._limit):
                self._start()
            elif not self._watching and self._threads < self._limit:
                self._watching = True
                asyncio.get_running_loop().call_later(_MOMENT, self._watch, self._submitted)

    def drain(self) -> list[str]:
        """Take back every job that has not begun; returns their names."""
        names: list[str] = []
        while True:
            try:
                name, _ = self._queue.get_nowait()
            except queue.Empty:
                return names
            names.append(name)
            with self._lock:
                self._finished += 1

    def _watch(self, submitted: int) -> None:
        """Start a thread for each job that was there a moment ago and still waits."""
        waiting = self._queue.qsize()
        stale = submitted - (self._submitted - waiting)
        for _ in range(min(stale, self._limit - self._threads)):
            self._start()
        self._watching = bool(waiting) and self._threads < self._limit
        if self._watching:
            asyncio.get_running_loop().call_later(_MOMENT, self._watch, self._submitted)

    def _start(self) -> None:
        self._threads += 1
        # Daemon: a tool that never returns must not keep the worker from exiting.
        threading.Thread(target=self._work, name=f"tool-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while True:
            _, job = self._queue.get()
            try:
                job()
            finally:
                with self._lock:
                    self._finished += 1


async def on_thread(call: Callable[[], T]) -> T:
    """Run `call` on a thread of its own and wait until it returns, also after the waiting task is cancelled.

    Not asyncio.to_thread: that ends with its task while the thread runs on, so a tool that hangs would look as if
    it had yielded, would lose what it still uses, and would keep one of a few shared threads for ever.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    results: list[T] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            results.append(context.run(call))
        except BaseException as error:
            errors.append(error)
        try:
            loop.call_soon_threadsafe(done.set_result, None)
        except RuntimeError:
            pass  # the loop is closed: the worker is ending, and nobody waits

    # Daemon: a tool that never returns must not keep the worker from exiting.
    threading.Thread(target=work, name="tool-with-dependencies", daemon=True).start()
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.shield(done)  # cancelled once more, the worker itself is ending
        raise
    if errors:
        raise errors[0]
    return results[0]
