"""The load generator must not flatter: whatever a server does wrong has to show up in its result."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.load import PAYLOAD_LENGTH, Exchange, Load, Result, Template, drive, quantile, run_apart
from benchmarks.wire import AnswerReader, WireError, request

MARK = b"m" * PAYLOAD_LENGTH
Responder = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


def plain(body: bytes, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, headers, len(body), body)


def echoed(body: bytes) -> bytes:
    return json.dumps(json.loads(body)["text"]).encode()


def exchange(port: int) -> Exchange:
    sent = request(port, "POST", "/tools/echo", {}, b'{"text":"%b"}' % MARK)
    return Exchange(Template.cut(sent, MARK), Template.cut(b'"%b"' % MARK, MARK))


@asynccontextmanager
async def serving(respond: Responder) -> AsyncIterator[int]:
    """A real listener that hands each request's body to `respond`."""
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await respond(await reader.readexactly(length), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the caller has left, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


async def load(respond: Responder, *, connections: int = 4, limit: int = 200, drain: float = 5.0) -> Result:
    async with serving(respond) as port:
        return await drive(
            Load(port, connections, (exchange(port),), seconds=5.0, warmup=0.0, limit=limit, drain=drain)
        )


async def test_right_answers_are_counted_without_an_error() -> None:
    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(plain(echoed(body)))

    result = await load(respond)

    assert (result.sent, result.statuses, result.errors, result.problem) == (200, {"200": 200}, 0, None)
    assert result.answers == 200
    assert 0 < result.p50_ms <= result.p90_ms <= result.p99_ms


async def test_every_request_carries_a_text_of_its_own() -> None:
    seen: list[bytes] = []

    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(body)
        writer.write(plain(echoed(body)))

    await load(respond)

    assert len(set(seen)) == len(seen) == 200


async def test_answers_given_to_the_wrong_caller_are_caught() -> None:
    """Two callers whose answers are swapped: every one is well-formed and none is right."""
    waiting: list[tuple[bytes, asyncio.StreamWriter]] = []

    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        waiting.append((body, writer))
        if len(waiting) == 2:
            (first, one), (second, other) = waiting
            waiting.clear()
            one.write(plain(echoed(second)))
            other.write(plain(echoed(first)))

    result = await load(respond, connections=2, limit=20)

    assert (result.wrong, result.errors, result.answers) == (20, 20, 0)


async def test_a_repeated_answer_of_the_right_shape_is_wrong() -> None:
    first: list[bytes] = []

    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        first.append(echoed(body))
        writer.write(plain(first[0]))

    result = await load(respond, connections=1, limit=10)

    assert result.wrong == 9
    assert result.problem is not None
    assert "sent" in result.problem


async def test_refusals_are_kept_with_their_status_and_retry_after() -> None:
    count = 0

    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        if count % 2:
            writer.write(plain(echoed(body)))
        else:
            writer.write(plain(b"busy", b"503 Service Unavailable", b"Retry-After: 1\r\n"))

    result = await load(respond, connections=1, limit=10)

    assert result.statuses == {"200": 5, "503": 5}
    assert result.errors == 5
    assert [(one.status, one.retry_after) for one in result.refusals] == [(503, "1")] * 5


async def test_a_connection_closed_before_the_answer_is_a_lost_request() -> None:
    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    result = await load(respond, connections=2, limit=10)

    assert (result.sent, result.lost, result.answers) == (10, 10, 0)


async def test_a_server_may_close_the_connection_after_its_answer() -> None:
    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(plain(echoed(body), headers=b"Connection: close\r\n"))
        writer.close()

    result = await load(respond, connections=2, limit=10)

    assert (result.answers, result.errors) == (10, 0)


async def test_an_answer_that_never_comes_is_a_hung_request() -> None:
    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        pass

    async with serving(respond) as port:
        result = await drive(Load(port, 3, (exchange(port),), seconds=0.1, warmup=0.0, drain=0.1))

    assert (result.hung, result.errors, result.answers) == (3, 3, 0)
    assert result.problem is not None


async def test_a_server_that_is_not_there_ends_the_run() -> None:
    async with serving(lambda body, writer: asyncio.sleep(0)) as port:
        pass
    async with asyncio.timeout(20):
        result = await drive(Load(port, 2, (exchange(port),), seconds=15.0, warmup=0.0))

    assert result.answers == 0
    assert result.lost > 0


async def test_chunked_answers_arriving_byte_by_byte_are_read() -> None:
    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        text = echoed(body)
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (text[:5], text[5:]))
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        for byte in answer:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)

    result = await load(respond, connections=2, limit=6)

    assert (result.answers, result.errors) == (6, 0)


async def test_samples_hold_when_each_good_answer_was_sent_and_came(tmp_path: Path) -> None:
    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(plain(echoed(body)))

    file = tmp_path / "samples"
    async with serving(respond) as port:
        spec = Load(port, 2, (exchange(port),), 5.0, warmup=0.0, limit=30, samples=str(file))
        await drive(spec)

    samples = array("d", file.read_bytes())
    assert len(samples) == 60
    assert all(sent <= answered for sent, answered in zip(samples[::2], samples[1::2], strict=True))


@pytest.mark.process
async def test_the_load_runs_in_a_process_of_its_own_with_the_same_result() -> None:
    async def respond(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(plain(echoed(body)))

    async with serving(respond) as port:
        spec = Load(port, 2, (exchange(port),), seconds=5.0, warmup=0.0, limit=100)
        result = await asyncio.to_thread(run_apart, spec)

    assert (result.sent, result.answers, result.errors) == (100, 100, 0)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "neither"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokay", "nobody asked"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok", "not a number"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n", "longer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\nok\r\n", "hexadecimal"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", "not supported"),
        (b"SMTP ready\r\n\r\n", "status line"),
    ],
)
def test_what_is_not_an_answer_is_refused(answer: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        AnswerReader().feed(answer)


def test_answers_may_be_cut_anywhere() -> None:
    whole = b"HTTP/1.1 100 Continue\r\n\r\n" + plain(b'"text"', headers=b"X-Request-Id: 7\r\n")
    for cut in range(1, len(whole)):
        reader = AnswerReader()
        assert reader.feed(whole[:cut]) is None
        answer = reader.feed(whole[cut:])
        assert answer is not None
        assert (answer.status, answer.body, answer.header("x-request-id")) == (200, b'"text"', "7")


def test_chunk_extensions_and_trailers_are_skipped() -> None:
    answer = AnswerReader().feed(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-After: 1\r\n\r\n"
    )
    assert answer is not None
    assert answer.body == b"ok"


def test_an_answer_without_a_body_needs_no_length() -> None:
    answer = AnswerReader().feed(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert answer is not None
    assert (answer.status, answer.body) == (204, b"")


def test_quantiles_are_values_that_occurred() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [quantile(hundred, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50.0, 90.0, 99.0, 100.0]
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([], 0.5) == 0.0
