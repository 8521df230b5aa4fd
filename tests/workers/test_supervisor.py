"""Supervision of things that die in every way, with the pauses made short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tooldock.errors import DependencyError, InternalError, Unavailable
from tooldock.workers import supervisor as room
from tooldock.workers.states import State
from tooldock.workers.supervisor import Supervisor


class Thing:
    """Something that runs until the test says otherwise."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.served = 0
        self.busy = False
        self.stopped = 0

    def describe_end(self) -> str:
        return "It fell over."

    def die(self) -> None:
        self.ended.set_result(None)

    async def stop(self) -> None:
        self.stopped += 1
        if not self.ended.done():
            self.ended.set_result(None)


class World:
    """A supervisor, everything it started, and every state it went through."""

    def __init__(self, **options: Any) -> None:
        self.things: list[Thing] = []
        self.failures: list[Exception] = []
        self.hold: asyncio.Event | None = None
        self.supervisor: Supervisor[Thing] = Supervisor("math", self._start, **options)
        self.states = [State.IDLE]
        move = self.supervisor._move

        def noted(to: State) -> None:
            move(to)
            if self.supervisor.state is not self.states[-1]:
                self.states.append(self.supervisor.state)

        self.supervisor._move = noted  # type: ignore[method-assign]

    async def _start(self) -> Thing:
        if self.hold is not None:
            await self.hold.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.things.append(Thing())
        return self.things[-1]

    async def get(self) -> Thing:
        return await self.supervisor.get(soon())

    async def until(self, state: State) -> None:
        async with asyncio.timeout(5):
            while self.supervisor.state is not state:
                await asyncio.sleep(0)


def soon(seconds: float = 5) -> float:
    return asyncio.get_running_loop().time() + seconds


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_FIRST_PAUSE", 0.001)


Check = Callable[[], Awaitable[None]]


async def test_nothing_runs_until_it_is_needed_and_then_one_serves_all() -> None:
    world = World()
    assert world.supervisor.state is State.IDLE
    first, second = await asyncio.gather(world.get(), world.get())
    assert first is second
    assert world.states == [State.IDLE, State.STARTING, State.READY]
    await world.supervisor.close()
    assert world.states[-1] is State.CLOSED
    assert first.stopped == 1


async def test_one_that_was_of_use_is_started_again_at_once() -> None:
    world = World()
    first = await world.get()
    first.served = 1
    first.die()
    await world.supervisor.after(first, soon())
    second = await world.get()
    assert second is not first
    assert world.states == [State.IDLE, State.STARTING, State.READY, State.STARTING, State.READY]
    assert world.supervisor.restarts == 1
    await world.supervisor.close()


async def test_one_that_lived_long_enough_is_started_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_PROVEN_SECONDS", -1.0)
    world = World()
    first = await world.get()
    first.die()
    await world.supervisor.after(first, soon())
    await world.get()
    assert State.BACKOFF not in world.states
    await world.supervisor.close()


async def test_early_deaths_pause_and_then_make_a_crash_loop_that_refuses_calls() -> None:
    world = World()
    for _ in range(4):
        thing = await world.get()
        thing.die()
        await world.supervisor.after(thing, soon())
    assert world.states.count(State.BACKOFF) == 4
    assert State.CRASH_LOOP not in world.states
    room._FIRST_PAUSE = 60
    thing = await world.get()
    thing.die()
    await world.until(State.CRASH_LOOP)
    with pytest.raises(Unavailable, match=r"It fell over.*tooldock logs math") as caught:
        await world.get()
    assert caught.value.details["reason"] == "crash_loop"
    assert caught.value.retry_after is not None
    assert 25 < caught.value.retry_after <= 31
    await world.supervisor.close()


async def test_pauses_double_and_a_success_forgets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    world = World()
    world.failures = [DependencyError("no")] * 3
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        thing = await world.get()
    assert slept == [0.001, 0.002, 0.004]
    thing.served = 1
    thing.die()
    await world.supervisor.after(thing, soon())
    (await world.get()).die()
    await world.until(State.BACKOFF)
    assert world.supervisor._early_deaths == 1
    await world.supervisor.close()


async def test_after_a_crash_loop_it_is_tried_again_and_serves() -> None:
    world = World()
    world.failures = [DependencyError("broken file")] * 5
    world.supervisor.wake()
    await world.until(State.CRASH_LOOP)
    assert isinstance(world.supervisor.error, DependencyError)
    await world.until(State.READY)
    assert world.supervisor.error is None
    assert world.supervisor.current is world.things[0]
    await world.supervisor.close()


async def test_calls_wait_through_a_pause() -> None:
    world = World()
    world.failures = [DependencyError("not yet")]
    assert await world.get() is not None
    assert State.BACKOFF in world.states
    await world.supervisor.close()


async def test_a_fault_of_ours_in_starting_does_not_end_supervision() -> None:
    world = World()
    world.failures = [RuntimeError("inner detail")]
    world.supervisor.wake()
    await world.until(State.BACKOFF)
    assert isinstance(world.supervisor.error, InternalError)
    assert "inner detail" not in world.supervisor.error.message
    assert await world.get() is not None
    await world.supervisor.close()


async def test_waiting_for_one_that_does_not_come_ends_at_the_deadline() -> None:
    world = World()
    world.hold = asyncio.Event()
    with pytest.raises(Unavailable) as caught:
        await world.supervisor.get(soon(0.01))
    assert caught.value.details["reason"] == "starting"
    world.hold.set()
    assert await world.get() is not None
    await world.supervisor.close()


async def test_a_caller_who_stops_waiting_does_not_disturb_the_others() -> None:
    world = World()
    world.hold = asyncio.Event()
    first, second = asyncio.create_task(world.get()), asyncio.create_task(world.get())
    await world.until(State.STARTING)
    first.cancel()
    await asyncio.wait([first])
    world.hold.set()
    assert await second is world.things[0]
    await world.supervisor.close()


async def test_a_retired_one_is_replaced_and_may_finish() -> None:
    world = World()
    first = await world.get()
    world.supervisor.retire(first)
    world.supervisor.retire(first)
    await world.supervisor.after(first, soon())
    second = await world.get()
    assert second is not first
    async with asyncio.timeout(5):
        while not first.stopped:
            await asyncio.sleep(0)
    assert first.stopped == 1
    world.supervisor.retire(first)  # long gone
    await asyncio.sleep(0)
    assert world.supervisor.current is second
    assert world.supervisor.restarts == 1
    await world.supervisor.close()


async def test_an_adopted_one_is_current_at_once_and_supervised() -> None:
    world = World()
    thing = Thing()
    world.supervisor.adopt(thing)
    assert world.supervisor.current is thing
    assert await world.get() is thing
    thing.served = 1
    thing.die()
    await world.supervisor.after(thing, soon())
    assert await world.get() is world.things[0]
    await world.supervisor.close()


async def test_one_that_nobody_uses_is_ended_and_started_again_on_the_next_use() -> None:
    world = World(idle_seconds=0.01)
    first = await world.get()
    await world.until(State.IDLE)
    assert world.supervisor.current is None
    async with asyncio.timeout(5):
        while not first.stopped:
            await asyncio.sleep(0)
    assert world.supervisor.restarts == 0
    assert await world.get() is not first
    await world.supervisor.close()


async def test_one_that_works_is_not_idle() -> None:
    world = World(idle_seconds=0.01)
    first = await world.get()
    first.busy = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await first.ended
    assert world.supervisor.state is State.READY
    first.busy = False
    await world.until(State.IDLE)
    await world.supervisor.close()


async def test_closing_during_a_start_ends_the_start_and_its_waiters() -> None:
    world = World()
    world.hold = asyncio.Event()
    waiter = asyncio.create_task(world.get())
    await world.until(State.STARTING)
    await world.supervisor.close()
    with pytest.raises(Unavailable) as caught:
        await waiter
    assert caught.value.details["reason"] == "closed"
    assert world.things == []
    with pytest.raises(Unavailable):
        await world.get()
    world.supervisor.wake()
    assert world.supervisor.state is State.CLOSED


async def test_closing_during_a_pause_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_FIRST_PAUSE", 60)
    world = World()
    world.failures = [DependencyError("no")]
    world.supervisor.wake()
    await world.until(State.BACKOFF)
    async with asyncio.timeout(5):
        await world.supervisor.close()


async def test_closing_waits_for_those_that_are_being_retired() -> None:
    world = World()
    first = await world.get()
    done = asyncio.Event()

    async def slow() -> None:
        await asyncio.sleep(0.01)
        done.set()

    first.stop = slow  # type: ignore[method-assign]
    world.supervisor.retire(first)
    await world.supervisor.after(first, soon())
    await world.supervisor.close()
    assert done.is_set()


async def test_closing_twice_is_closing_once() -> None:
    world = World()
    thing = await world.get()
    await world.supervisor.close()
    await world.supervisor.close()
    assert thing.stopped == 1


async def test_one_that_is_not_needed_for_now_rests_until_the_next_use() -> None:
    world = World()
    world.supervisor.rest()  # nothing runs: nothing to do
    first = await world.get()
    world.supervisor.rest()
    await world.until(State.IDLE)
    assert world.supervisor.current is None
    assert await world.get() is not first
    assert world.supervisor.restarts == 0
    await world.supervisor.close()
