"""Answers in pieces: written while the handler works, bounded, and never waited for."""

from __future__ import annotations

import asyncio
from typing import Any

from structlog.testing import capture_logs

from tests.edge.world import BEARER, Wire, ask, exchange, front, scope, serve
from tooldock.edge import Request, Response
from tooldock.edge.outlet import Outlet

START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}


class Stuck:
    """A client that takes the head and then nothing."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.bodies: list[bytes] = []

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            await self.go.wait()
            self.bodies.append(message["body"])


async def test_pieces_written_in_one_turn_are_sent_as_one() -> None:
    client = Stuck()
    client.go.set()
    outlet = Outlet(client, dict(START))
    assert outlet.write(b"a")
    assert outlet.write(b"b")
    outlet.end()
    assert await outlet.flushed()
    assert client.bodies == [b"ab"]


async def test_nothing_can_be_written_after_the_end() -> None:
    client = Stuck()
    client.go.set()
    outlet = Outlet(client, dict(START))
    outlet.end()
    assert not outlet.write(b"late")
    assert not outlet.open
    await outlet.flushed()
    assert client.bodies == []


async def test_a_client_that_does_not_read_loses_the_answer_at_the_bound() -> None:
    client = Stuck()
    outlet = Outlet(client, dict(START), max_pending=10)
    with capture_logs() as logs:
        assert outlet.write(b"12345")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert outlet.write(b"1234567890")
        assert not outlet.write(b"x")
    assert [line["event"] for line in logs] == ["stream_dropped"]
    assert outlet.broken
    client.go.set()
    assert not await outlet.flushed()


async def test_a_handler_that_asked_to_be_told_goes_on_when_its_client_leaves() -> None:
    told = asyncio.Event()
    finished = asyncio.Event()

    async def handler(request: Request) -> Response:
        request.on_gone = told.set
        request.open(200, ()).write(b"first")
        await told.wait()
        finished.set()
        return Response(200)

    wire = Wire({"type": "http.request", "body": b"", "more_body": False})
    task = asyncio.create_task(front(handler)(scope("GET", "/", BEARER), wire.receive, wire.send))
    await wire.listened.wait()
    wire.hang_up()
    async with asyncio.timeout(5):
        await task
    assert finished.is_set()


async def test_an_answer_in_pieces_carries_what_every_answer_carries() -> None:
    async def handler(request: Request) -> Response:
        request.open(200, ((b"content-type", b"text/event-stream"),)).write(b"x")
        return Response(200)

    answer = await ask(front(handler), "GET", "/", {**BEARER, "origin": "http://localhost:3000"})
    assert answer.header("x-request-id")
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("access-control-allow-origin") == "http://localhost:3000"


async def test_the_connection_serves_the_next_request_after_an_answer_in_pieces() -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/stream":
            outlet = request.open(200, ())
            for piece in (b"one ", b"two"):
                outlet.write(piece)
                await asyncio.sleep(0)
        return Response(200, b"plain")

    head = f"Host: localhost\r\nAuthorization: {BEARER['authorization']}\r\n"
    async with serve(front(handler)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /stream HTTP/1.1\r\n{head}\r\nGET /plain HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode()
        )
        data = await reader.read()
        writer.close()
    first, _, second = data.partition(b"0\r\n\r\n")
    assert b"transfer-encoding: chunked" in first.lower()
    assert b"one " in first
    assert second.endswith(b"plain")


async def test_a_client_of_http_1_0_gets_the_pieces_without_chunks() -> None:
    async def handler(request: Request) -> Response:
        outlet = request.open(200, ())
        outlet.write(b"one ")
        await asyncio.sleep(0)
        outlet.write(b"two")
        return Response(200)

    async with serve(front(handler)) as port:
        data = await exchange(port, f"GET / HTTP/1.0\r\nAuthorization: {BEARER['authorization']}\r\n\r\n".encode())
    head, _, body = data.partition(b"\r\n\r\n")
    assert body == b"one two"
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head


async def test_a_stream_ends_when_its_client_leaves_a_pipelined_request_behind() -> None:
    over = asyncio.Event()

    async def handler(request: Request) -> Response:
        outlet = request.open(200, ())
        request.on_gone = outlet.end
        outlet.write(b"first")
        await outlet.over()
        over.set()
        return Response(200)

    head = f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {BEARER['authorization']}\r\n\r\n".encode()
    async with serve(front(handler)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + head)
        await reader.readuntil(b"first")
        writer.close()
        await writer.wait_closed()
        await over.wait()
