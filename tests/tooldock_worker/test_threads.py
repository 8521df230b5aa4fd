"""The pool of threads: bounded, reused, and drained of what has not begun."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from tooldock_worker.threads import Pool, on_thread

WAIT = 5


def test_jobs_run_beside_each_other_up_to_the_limit() -> None:
    pool = Pool(3)
    together = threading.Barrier(4)
    release = threading.Event()
    running: list[str] = []

    def job() -> None:
        running.append(threading.current_thread().name)
        together.wait(WAIT)
        release.wait(WAIT)

    for number in range(3):
        pool.submit(str(number), job)
    pool.submit("late", lambda: running.append("late"))
    together.wait(WAIT)
    assert sorted(running) == ["tool-1", "tool-2", "tool-3"]
    release.set()
    done = threading.Event()
    pool.submit("after", done.set)
    assert done.wait(WAIT)
    assert "late" in running


def test_an_idle_thread_is_used_again() -> None:
    pool = Pool(50)
    names: set[int] = set()
    for number in range(20):
        done = threading.Event()

        def job(done: threading.Event = done) -> None:
            names.add(threading.get_ident())
            done.set()

        pool.submit(str(number), job)
        assert done.wait(WAIT)
    assert len(names) <= 3  # one; a few more if a thread was slow to be idle again


def test_draining_takes_back_exactly_what_has_not_begun() -> None:
    pool = Pool(1)
    begun, release, after = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        release.wait(WAIT)

    pool.submit("running", hold)
    assert begun.wait(WAIT)
    ran: list[str] = []
    for name in ("a", "b"):
        pool.submit(name, lambda name=name: ran.append(name))  # type: ignore[misc]
    assert pool.drain() == ["a", "b"]
    assert pool.drain() == []
    release.set()
    pool.submit("after", after.set)
    assert after.wait(WAIT)
    assert ran == []


def test_its_threads_do_not_keep_the_process_alive() -> None:
    pool = Pool(1)
    daemon: list[bool] = []
    done = threading.Event()

    def job() -> None:
        daemon.append(threading.current_thread().daemon)
        done.set()

    pool.submit("one", job)
    assert done.wait(WAIT)
    assert daemon == [True]


async def test_more_jobs_than_a_few_get_threads_of_their_own_up_to_the_limit() -> None:
    """The first few start at once, more only for jobs that still wait a moment later."""
    pool = Pool(12)
    together = threading.Barrier(13)

    def meet() -> None:
        together.wait(WAIT)

    for number in range(12):
        pool.submit(str(number), meet)
    await asyncio.to_thread(together.wait, WAIT)


async def test_a_call_on_its_own_thread_gives_its_value_or_error_and_knows_who_calls() -> None:
    caller: ContextVar[str] = ContextVar("caller")
    caller.set("ann")
    assert await on_thread(caller.get) == "ann"
    with pytest.raises(ZeroDivisionError):
        await on_thread(lambda: 1 / 0)


async def test_a_cancelled_call_is_over_only_when_its_thread_is() -> None:
    """Else its dependencies would be closed under it, and nobody would notice that it hangs."""
    begun, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        release.wait(WAIT)

    task = asyncio.create_task(on_thread(work))
    await asyncio.wait_for(begun.wait(), WAIT)
    task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()
    release.set()
    await asyncio.wait([task], timeout=WAIT)
    assert task.cancelled()


async def test_more_calls_hang_than_there_are_shared_threads_and_the_next_still_runs() -> None:
    release = threading.Event()
    hung = [asyncio.create_task(on_thread(lambda: release.wait(WAIT))) for _ in range(64)]
    try:
        assert await asyncio.wait_for(on_thread(lambda: "ran"), WAIT) == "ran"
    finally:
        release.set()
        await asyncio.gather(*hung)


async def test_a_worker_that_ends_does_not_wait_for_a_hung_call() -> None:
    release = threading.Event()
    task = asyncio.create_task(on_thread(lambda: release.wait(WAIT)))
    try:
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=WAIT)
        assert task.cancelled()
    finally:
        release.set()
