"""Keeps one process alive: starts it when it is needed, starts it again when it dies, gives up for a while when
it keeps dying. `states` draws the states. It knows nothing about what runs or how one talks to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import structlog

from tooldock.errors import InternalError, ToolDockError, Unavailable
from tooldock.workers.states import State

log = structlog.get_logger("tooldock.supervisor")

_PROVEN_SECONDS = 1.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
_EARLY_DEATHS = 5
"""Deaths in a row, each before it was of use, that make a crash loop."""


class Supervised(Protocol):
    ended: asyncio.Future[None]
    """Done when it is gone."""

    @property
    def served(self) -> int:
        """How much work it has done since it started."""
        ...

    @property
    def busy(self) -> bool: ...

    def describe_end(self) -> str:
        """Why it is gone, for people."""
        ...

    async def stop(self) -> None:
        """Let it finish what it is doing, which takes a bounded time, then end it."""
        ...


T = TypeVar("T", bound=Supervised)


class Supervisor(Generic[T]):
    def __init__(
        self,
        name: str,
        start: Callable[[], Awaitable[T]],
        *,
        idle_seconds: float = 0,
    ) -> None:
        self.name = name
        self.state = State.IDLE
        self.current: T | None = None
        """The one that takes calls, while READY."""
        self.restarts = 0
        self.error: ToolDockError | None = None
        """Why the last one did not start, or died early."""
        self._start = start
        self._idle_seconds = idle_seconds
        self._early_deaths = 0
        self._task: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Future[None] | None = None
        self._retry_at = 0.0
        self._replace: asyncio.Future[None] | None = None
        self._resting = False

    async def get(self, deadline: float) -> T:
        """The running one; waits for it until `deadline` (event loop's clock)."""
        loop = asyncio.get_running_loop()
        while True:
            if self.current is not None:
                return self.current
            if self.state is State.CLOSED:
                raise Unavailable(f"Namespace {self.name!r} is being replaced.", retry_after=1, reason="closed")
            if self.state is State.CRASH_LOOP:
                raise self._crash_loop(loop.time())
            if self.state is State.IDLE:
                self.wake()
            await self._change(deadline)

    async def _change(self, deadline: float) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(self._changed)
        except TimeoutError:
            raise Unavailable(
                f"The worker of namespace {self.name!r} did not become ready in time.",
                namespace=self.name,
                retry_after=1,
                reason="starting",
            ) from None

    async def after(self, thing: T, deadline: float) -> None:
        """Wait until `thing`, which no longer takes calls, is no longer the current one."""
        while self.current is thing:
            await self._change(deadline)

    def adopt(self, thing: T) -> None:
        """Supervise one that is already running."""
        self._move(State.STARTING)  # IDLE -> STARTING
        self._task = asyncio.create_task(self._run(thing), name=f"supervise-{self.name}")
        self._take(thing)

    def wake(self) -> None:
        """Start it if it is not running. Returns at once."""
        if self.state is State.IDLE:
            self._move(State.STARTING)  # IDLE -> STARTING
            self._task = asyncio.create_task(self._run(), name=f"supervise-{self.name}")

    def rest(self) -> None:
        """It is not needed for now; the next use starts it again."""
        if self.current is not None:
            self._resting = True
            self.retire(self.current)

    def retire(self, thing: T) -> None:
        """Stop giving calls to `thing` and start a replacement; it may finish what it is doing."""
        if thing is self.current and self._replace is not None and not self._replace.done():
            self._replace.set_result(None)

    async def close(self) -> None:
        """End it, after it has finished what it is doing."""
        thing, self.current = self.current, None
        self._move(State.CLOSED)  # any -> CLOSED
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if thing is not None:
            await thing.stop()
        if self._retiring:
            await asyncio.wait(self._retiring)

    async def _run(self, thing: T | None = None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            if thing is None:
                thing = await self._try_start()
            if thing is not None:
                why = await self._watch(thing)
                self.current = None
                if why == "idle":
                    self._move(State.IDLE)  # READY -> IDLE
                    self._retire_now(thing)
                    return
                self.restarts += 1
                if why == "replace":
                    self._retire_now(thing)
                else:
                    log.warning("worker_ended", namespace=self.name, reason=thing.describe_end())
                if why == "replace" or thing.served or loop.time() - began > _PROVEN_SECONDS:
                    self._early_deaths = 0
                    self._move(State.STARTING)  # READY -> STARTING
                    thing = None
                    continue
                self.error = Unavailable(thing.describe_end(), retry_after=1)
                thing = None
            await self._pause(loop)
            self._move(State.STARTING)  # BACKOFF | CRASH_LOOP -> STARTING

    async def _try_start(self) -> T | None:
        try:
            thing = await self._start()
        except ToolDockError as error:
            self.error = error
            return None
        except Exception as error:  # a fault of ours must not end supervision
            log.exception("worker_start_failed", namespace=self.name)
            self.error = InternalError(f"The worker could not be started: {type(error).__name__}.")
            return None
        self._take(thing)
        return thing

    def _take(self, thing: T) -> None:
        self.current = thing
        self.error = None
        self._resting = False
        self._replace = asyncio.get_running_loop().create_future()
        self._move(State.READY)  # STARTING -> READY

    async def _watch(self, thing: T) -> str:
        """Until it dies, is to be replaced, or nobody has used it for long."""
        assert self._replace is not None
        waits: list[asyncio.Future[None]] = [thing.ended, self._replace]
        served = -1
        while True:
            if self._idle_seconds and thing.served == served and not thing.busy:
                return "idle"
            served = thing.served
            await asyncio.wait(waits, timeout=self._idle_seconds or None, return_when=asyncio.FIRST_COMPLETED)
            if thing.ended.done():
                return "ended"
            if self._replace.done():
                return "idle" if self._resting else "replace"

    async def _pause(self, loop: asyncio.AbstractEventLoop) -> None:
        self._early_deaths += 1
        pause = min(_FIRST_PAUSE * 2 ** (self._early_deaths - 1), _LONGEST_PAUSE)
        self._retry_at = loop.time() + pause
        looping = self._early_deaths >= _EARLY_DEATHS
        self._move(State.CRASH_LOOP if looping else State.BACKOFF)  # STARTING | READY -> BACKOFF | CRASH_LOOP
        log.warning(
            "worker_backoff",
            namespace=self.name,
            deaths=self._early_deaths,
            pause_seconds=round(pause, 1),
            reason=self.error.message if self.error else "",
        )
        await asyncio.sleep(pause)

    def _retire_now(self, thing: T) -> None:
        task = asyncio.create_task(thing.stop(), name=f"retire-{self.name}")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _crash_loop(self, now: float) -> Unavailable:
        reason = f" {self.error.message}" if self.error else ""
        return Unavailable(
            f"The worker of namespace {self.name!r} keeps ending before it is of use, so calls are refused for now."
            f"{reason} See `tooldock logs {self.name}`.",
            namespace=self.name,
            retry_after=max(1, round(self._retry_at - now + 0.5)),
            reason="crash_loop",
        )

    def _move(self, to: State) -> None:
        if self.state is State.CLOSED:
            return
        log.debug("worker_state", namespace=self.name, was=self.state.value, now=to.value)
        self.state = to
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)
