"""Reading a body: its size and its time are bounded, whatever the client announces."""

from __future__ import annotations

import asyncio

import pytest

from tests.edge.world import BEARER, Wire, ask, front, scope
from tooldock.edge import Request, Response
from tooldock.edge.http import Request as PlainRequest
from tooldock.edge.watch import Watch
from tooldock.errors import Cancelled


@pytest.mark.parametrize("pieces", [[b"abc"], [b"a", b"bc"], [b"", b"a", b"", b"bc", b""], [b"abc", b""]])
async def test_a_body_is_the_same_however_it_is_cut(pieces: list[bytes]) -> None:
    answer = await ask(front(), "POST", "/", {**BEARER, "transfer-encoding": "chunked"}, pieces)
    assert answer.json()["body"] == "abc"


async def test_a_body_of_exactly_the_limit_is_taken_and_one_more_byte_is_not() -> None:
    app = front(max_body=10)
    assert (await ask(app, "POST", "/", BEARER, b"x" * 10)).status == 200
    assert (await ask(app, "POST", "/", BEARER, b"x" * 11)).status == 413


async def test_an_announced_length_is_refused_before_anything_is_read() -> None:
    wire = Wire()  # reading from it would wait for ever
    async with asyncio.timeout(5):
        await front(max_body=10)(scope("POST", "/", {**BEARER, "content-length": "11"}), wire.receive, wire.send)
    assert wire.answer is not None
    assert wire.answer.status == 413
    assert wire.answer.json()["error"]["details"] == {"limit": 10}


async def test_a_body_without_a_length_is_stopped_while_it_streams() -> None:
    pieces = [b"x" * 6] * 1000
    answer = await ask(front(max_body=10), "POST", "/", {**BEARER, "transfer-encoding": "chunked"}, pieces)
    assert answer.status == 413


@pytest.mark.parametrize("length", ["-1", "1.0", "abc", "0x10", "1 1", "9" * 30, "+5", "٣".encode().decode("latin-1")])
async def test_a_strange_length_is_refused(length: str) -> None:
    answer = await ask(front(), "POST", "/", {**BEARER, "content-length": length})
    assert answer.status in (400, 413)


async def test_a_compressed_body_is_refused_by_name() -> None:
    answer = await ask(front(), "POST", "/", {**BEARER, "content-encoding": "gzip"}, b"x")
    assert answer.status == 415
    assert "Content-Encoding" in answer.json()["error"]["message"]
    assert (await ask(front(), "POST", "/", {**BEARER, "content-encoding": "identity"}, b"x")).status == 200


async def test_a_body_that_never_ends_is_answered_408() -> None:
    wire = Wire({"type": "http.request", "body": b"a", "more_body": True})
    app = front(watch=Watch(tick=0.005, body_seconds=0.02))
    async with asyncio.timeout(5):
        await app(scope("POST", "/", {**BEARER, "transfer-encoding": "chunked"}), wire.receive, wire.send)
    assert wire.answer is not None
    assert wire.answer.status == 408
    assert wire.answer.code == "request_timeout"
    assert wire.answer.header("connection") == "close"


async def test_a_client_that_leaves_in_the_middle_of_its_body_stops_the_request() -> None:
    seen: list[type[BaseException]] = []

    async def handler(request: Request) -> Response:
        try:
            await request.read()
        except BaseException as error:
            seen.append(type(error))
            raise
        raise AssertionError

    wire = Wire({"type": "http.request", "body": b"a", "more_body": True})
    wire.hang_up()
    await front(handler)(scope("POST", "/", {**BEARER, "transfer-encoding": "chunked"}), wire.receive, wire.send)
    assert seen == [Cancelled]


async def test_reading_twice_gives_the_same_bytes() -> None:
    async def handler(request: Request) -> Response:
        return Response(200, await request.read() + await request.read())

    assert (await ask(front(handler), "POST", "/", BEARER, b"ab")).body == b"abab"


async def test_a_handler_may_set_a_smaller_limit() -> None:
    async def handler(request: Request) -> Response:
        return Response(200, await request.read(3))

    assert (await ask(front(handler), "POST", "/", BEARER, b"abcd")).status == 413


async def test_query_parameters_are_found_and_the_first_one_counts() -> None:
    wire = Wire()
    request = PlainRequest(scope("GET", "/", query="a=1&b=&a=2&c=%C3%BC"), wire.receive)
    assert [request.parameter(name) for name in "abcd"] == ["1", "", "ü", None]
