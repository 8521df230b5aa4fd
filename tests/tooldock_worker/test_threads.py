"""The pool of threads: bounded, reused, and drained of what has not begun."""

from __future__ import annotations

import asyncio
import threading

from tooldock_worker.threads import Pool

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
