"""Places in a namespace: never lost, never doubled, given in the order of arrival."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tooldock.engine.limits import Gate
from tooldock.errors import ExecutionTimeout, Unavailable


def soon(seconds: float = 10) -> float:
    return asyncio.get_running_loop().time() + seconds


async def waiters(gate: Gate, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(gate.enter(soon())) for _ in range(count)]
    await asyncio.sleep(0)
    assert len(gate.waiting) >= count
    return tasks


async def test_places_are_given_in_the_order_of_arrival() -> None:
    gate = Gate("math", 1, 10)
    assert gate.try_enter()
    tasks = await waiters(gate, 3)
    for turn in range(3):
        gate.leave()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [task.done() for task in tasks] == [n <= turn for n in range(3)]
    gate.leave()
    assert gate.active == 0


async def test_a_newcomer_does_not_overtake_who_waits() -> None:
    gate = Gate("math", 1, 10)
    assert gate.try_enter()
    (task,) = await waiters(gate, 1)
    gate.leave()
    assert not gate.try_enter()
    await task
    gate.leave()
    assert gate.try_enter()


async def test_a_full_queue_refuses_and_says_when_to_come_back() -> None:
    gate = Gate("math", 1, 2)
    assert gate.try_enter()
    tasks = await waiters(gate, 2)
    with pytest.raises(Unavailable) as caught:
        await gate.enter(soon())
    assert caught.value.retry_after == 1
    assert caught.value.details["reason"] == "queue_full"
    assert "'math'" in caught.value.message
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_waiting_ends_at_the_deadline_and_frees_the_queue() -> None:
    gate = Gate("math", 1, 1)
    assert gate.try_enter()
    with pytest.raises(ExecutionTimeout) as caught:
        await gate.enter(soon(0.01))
    assert caught.value.details["reason"] == "queued"
    assert not gate.waiting
    gate.leave()
    assert gate.active == 0


async def test_a_place_that_comes_free_as_its_waiter_leaves_goes_to_the_next() -> None:
    """Both orders of the two events within one turn of the loop."""
    for leave_first in (True, False):
        gate = Gate("math", 1, 10)
        assert gate.try_enter()
        first, second = await waiters(gate, 2)
        if leave_first:
            gate.leave()
            first.cancel()
        else:
            first.cancel()
            gate.leave()
        with pytest.raises(asyncio.CancelledError):
            await first
        await second
        assert gate.active == 1
        gate.leave()
        assert (gate.active, len(gate.waiting)) == (0, 0)


async def test_a_nested_call_does_not_wait_for_the_place_its_own_caller_holds() -> None:
    gate = Gate("math", 1, 10)
    assert gate.try_enter()
    gate.enter_anyway()
    (task,) = await waiters(gate, 1)
    gate.leave()
    await asyncio.sleep(0)
    assert not task.done()
    gate.leave()
    await task


async def test_a_raised_limit_lets_several_in_at_the_next_leave() -> None:
    gate = Gate("math", 1, 10)
    assert gate.try_enter()
    tasks = await waiters(gate, 3)
    gate.max_active = 3
    gate.leave()
    await asyncio.wait(tasks)
    assert (gate.active, len(gate.waiting)) == (3, 0)


STEPS = st.lists(st.tuples(st.sampled_from(["arrive", "leave", "cancel", "turn"]), st.integers(0, 30)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(places=st.integers(1, 3), queue=st.integers(0, 4), steps=STEPS)
def test_no_place_is_lost_or_doubled_whatever_happens_in_whatever_order(
    places: int, queue: int, steps: list[tuple[str, int]]
) -> None:
    async def play() -> None:
        gate = Gate("math", places, queue)
        inside = 0
        tasks: list[asyncio.Task[bool]] = []

        async def come() -> bool:
            nonlocal inside
            try:
                if not gate.try_enter():
                    await gate.enter(soon(30))
            except Unavailable:
                return False
            inside += 1
            return True

        for step, number in steps:
            if step == "arrive":
                tasks.append(asyncio.create_task(come()))
            elif step == "leave" and inside:
                inside -= 1
                gate.leave()
            elif step == "cancel" and tasks:
                tasks[number % len(tasks)].cancel()
            elif step == "turn":
                await asyncio.sleep(0)
            assert gate.active <= places
            assert len(gate.waiting) <= queue
            assert inside <= gate.active
        while inside or not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            while inside:
                inside -= 1
                gate.leave()
        assert (gate.active, len(gate.waiting)) == (0, 0)
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                task.result()

    asyncio.run(asyncio.wait_for(play(), 20))
