"""Clients that leave: the work behind them stops, and nothing is spent on those that stay."""

from __future__ import annotations

import asyncio

import pytest

from tests.edge.world import BEARER, Wire, ask, front, scope
from tooldock.edge import Metrics, Request, Response
from tooldock.edge.watch import Watch


class Slow:
    """A handler that takes until it is told, and remembers how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.ended = ""

    async def __call__(self, request: Request) -> Response:
        await request.read()
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "finished"
        return Response(200, b"done")


async def test_a_client_that_leaves_cancels_its_call_and_gets_no_answer() -> None:
    slow, metrics = Slow(), Metrics()
    wire = Wire({"type": "http.request", "body": b"{}", "more_body": False})
    app = front(slow, watch=Watch(tick=0.005), metrics=metrics)
    task = asyncio.create_task(app(scope("POST", "/", BEARER), wire.receive, wire.send))
    await slow.begun.wait()
    wire.hang_up()
    async with asyncio.timeout(5):
        await task
    assert slow.ended == "cancelled"
    assert wire.answer is None
    assert metrics.face("core").by_status == {499: 1}
    assert task.cancelling() == 0


async def test_a_call_that_is_watched_and_finishes_is_answered_and_leaves_no_task() -> None:
    slow = Slow()
    wire = Wire({"type": "http.request", "body": b"{}", "more_body": False})
    before = asyncio.all_tasks()
    task = asyncio.create_task(
        front(slow, watch=Watch(tick=0.005))(scope("POST", "/", BEARER), wire.receive, wire.send)
    )
    await slow.begun.wait()
    async with asyncio.timeout(5):
        await wire.listened.wait()
    slow.go.set()
    await task
    assert wire.answer is not None
    assert wire.answer.body == b"done"
    assert asyncio.all_tasks() == before


async def test_a_quick_call_costs_no_task_and_its_client_is_never_listened_to() -> None:
    listened = 0

    async def handler(request: Request) -> Response:
        return Response(200)

    wire = Wire()

    async def receive() -> dict[str, object]:
        nonlocal listened
        listened += 1
        return await wire.receive()

    watch = Watch()
    app = front(handler, watch=watch)
    for _ in range(50):
        wire.answer = None
        await app(scope("GET", "/", BEARER), receive, wire.send)
    assert listened == 0
    assert watch.young == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stream_ends_when_its_client_leaves() -> None:
    closed = asyncio.Event()
    begun = asyncio.Event()

    async def handler(request: Request) -> Response:
        try:
            outlet = request.open(200, ())
            outlet.write(b"first")
            begun.set()
            await outlet.over()
            return Response(200)
        finally:
            closed.set()

    wire = Wire({"type": "http.request", "body": b"", "more_body": False})
    task = asyncio.create_task(front(handler)(scope("GET", "/", BEARER), wire.receive, wire.send))
    await begun.wait()
    wire.hang_up()
    async with asyncio.timeout(5):
        await task
        await closed.wait()
    assert wire.answer is not None
    assert wire.answer.body == b"first"


async def test_a_disconnect_that_only_means_the_end_of_the_answer_is_not_a_departure() -> None:
    """Servers report a finished answer to whoever still listens; that must not cancel who just answered."""
    metrics = Metrics()
    wire = Wire({"type": "http.request", "body": b"", "more_body": False})

    async def handler(request: Request) -> Response:
        request.open(200, ()).write(b"x")
        return Response(200)

    async def send(message: dict[str, object]) -> None:
        await wire.send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            wire.hang_up()
            await asyncio.sleep(0)

    await front(handler, metrics=metrics)(scope("GET", "/", BEARER), wire.receive, send)  # type: ignore[arg-type]
    assert metrics.face("core").by_status == {200: 1}


async def test_an_unread_body_stays_the_handlers() -> None:
    """A handler that reads late must still get its bytes: the watch may not take them."""
    ticked = asyncio.Event()

    async def handler(request: Request) -> Response:
        asyncio.get_running_loop().call_later(0.05, ticked.set)
        await ticked.wait()
        return Response(200, await request.read())

    answer = await ask(front(handler, watch=Watch(tick=0.005)), "POST", "/", BEARER, b"late")
    assert answer.body == b"late"


@pytest.mark.parametrize("rounds", [30])
async def test_leaving_at_any_moment_never_leaves_a_task_or_a_second_answer(rounds: int) -> None:
    """The client hangs up while the call finishes, a little earlier or later each time."""
    for number in range(rounds):
        slow = Slow()
        wire = Wire({"type": "http.request", "body": b"{}", "more_body": False})
        app = front(slow, watch=Watch(tick=0.002))
        task = asyncio.create_task(app(scope("POST", "/", BEARER), wire.receive, wire.send))
        await slow.begun.wait()
        loop = asyncio.get_running_loop()
        loop.call_later(0.006, slow.go.set)
        loop.call_later(0.006 + (number - rounds / 2) * 0.0001, wire.hang_up)
        async with asyncio.timeout(5):
            await task
        assert (wire.answer is not None and wire.answer.finished) or slow.ended == "cancelled"
        assert asyncio.all_tasks() == {asyncio.current_task()}
