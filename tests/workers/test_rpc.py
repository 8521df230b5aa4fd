"""The gateway's end of the pipe, with the other end in the test's hands."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tooldock.errors import InternalError, InvalidArguments, NoBackChannel, TooLarge, ToolFailed, Unavailable
from tooldock.workers.rpc import Answer, Connection, Counter, NotStarted, dump_arguments, lost_in_flight
from tooldock_worker.frames import Lines


class Far:
    """The worker's end."""

    def __init__(self, connection: Connection, sock: socket.socket, counter: Counter, events: list[Any]) -> None:
        self.connection = connection
        self.sock = sock
        self.events = events
        self.counter = counter
        self._lines = Lines()
        self._read: list[bytes] = []

    async def send(self, *frames: Any) -> None:
        for frame in frames:
            line = frame if isinstance(frame, bytes) else orjson.dumps(frame) + b"\n"
            await asyncio.get_running_loop().sock_sendall(self.sock, line)

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(5):
            while not self._read:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
                assert data, "the gateway closed the connection"
                self._read += self._lines.feed(data)
        frame: dict[str, Any] = orjson.loads(self._read.pop(0))
        return frame

    async def is_closed(self) -> None:
        async with asyncio.timeout(5):
            await self.connection.lost


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    events: list[Any] = []
    counter = Counter()
    connection = Connection(max_frame=1 << 20, on_event=events.append, begun=counter)
    await connection.open(ours)
    yield Far(connection, theirs, counter, events)
    connection.close()
    theirs.close()
    await asyncio.wait_for(connection.lost, 5)
    counter.close_descriptor()


def plain(number: int, body: bytes) -> bytes:
    return b'{"id":"%d","ok":true,"latency_ms":0.120,"result":%b}\n' % (number, body)


async def answered(future: asyncio.Future[Answer]) -> Answer:
    return await asyncio.wait_for(future, 5)


async def test_a_call_is_one_line_out_and_its_result_comes_back_byte_for_byte(far: Far) -> None:
    number, future = far.connection.call("add", {"a": 1}, {"request_id": "r"})
    assert await far.receive() == {
        "id": str(number),
        "op": "tools.call",
        "tool": "add",
        "arguments": {"a": 1},
        "info": {"request_id": "r"},
    }
    await far.send(plain(number, b'{"sum" : 1.50}'))
    answer = await answered(future)
    assert (answer.body, answer.frame) == (b'{"sum" : 1.50}', None)
    assert (far.connection.in_flight, far.connection.answered) == (0, 1)


async def test_answers_may_come_in_any_order(far: Far) -> None:
    calls = [far.connection.call("add", {}, {}) for _ in range(5)]
    for number, _ in reversed(calls):
        await far.send(plain(number, b"%d" % number))
    assert [(await answered(future)).body for _, future in calls] == [b"%d" % number for number, _ in calls]


async def test_a_late_or_unknown_answer_is_ignored(far: Far) -> None:
    number, future = far.connection.call("add", {}, {})
    future.cancel()
    failed, other = far.connection.call("add", {}, {})
    other.cancel()
    await far.send(plain(number, b"1"), plain(number, b"2"), plain(999, b"3"))
    await far.send({"id": str(failed), "ok": False, "error": {}}, {"id": "998", "ok": False, "error": {}})
    last, alive = far.connection.call("add", {}, {})
    await far.send(plain(last, b"4"))
    assert (await answered(alive)).body == b"4"


async def test_an_answer_that_is_more_than_a_value_keeps_its_frame(far: Far) -> None:
    number, future = far.connection.call("add", {}, {})
    frame = {"id": str(number), "ok": True, "latency_ms": 1.0, "content": [{"type": "text"}], "result": {"a": 1}}
    await far.send(frame)
    answer = await answered(future)
    assert (answer.frame, answer.body) == (frame, b'{"a":1}')


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"code": "tool_error", "message": "no", "details": {"x": 1}}, ToolFailed, "no"),
        ({"code": "invalid_arguments", "message": "no", "details": {"errors": []}}, InvalidArguments, "no"),
        ({"code": "internal_error", "message": "no", "details": {"x": 1}}, InternalError, "no"),
        ({"code": "made_up", "message": "no"}, ToolFailed, "no"),
        ({"code": "tool_error", "message": "", "details": "wrong"}, ToolFailed, "The tool failed without a message."),
        ({"code": "not_started"}, NotStarted, ""),
    ],
)
async def test_an_error_comes_back_as_its_kind(
    far: Far, error: dict[str, Any], kind: type[Exception], message: str
) -> None:
    number, future = far.connection.call("add", {}, {})
    await far.send({"id": str(number), "ok": False, "error": error})
    with pytest.raises(kind) as caught:
        await answered(future)
    assert str(caught.value) == message


async def test_events_go_to_the_handler(far: Far) -> None:
    await far.send({"op": "ready", "tools": []})
    async with asyncio.timeout(5):
        while not far.events:
            await asyncio.sleep(0)
    assert far.events == [{"op": "ready", "tools": []}]


@pytest.mark.parametrize(
    "garbage",
    [
        b"not json\n",
        b"[]\n",
        b"7\n",
        b"{}\n",
        b'{"id":"x","ok":true}\n',
        b'{"id":"1"}\n',
        b'{"id":"1","ok":false}\n',
        b'{"id":"1","ok":false,"error":[]}\n',
        b'{"id":"1","ok":true,"latency_ms":0.1,"result":not json}\n',
        b'{"id":"' + b"9" * 5000 + b'","ok":true,"latency_ms":0.1,"result":1}\n',
        b"x" * (2 << 20),
        b"x" * (2 << 20) + b"\n",
    ],
    ids=lambda garbage: repr(garbage[:30]),
)
async def test_what_is_no_frame_ends_the_connection(far: Far, garbage: bytes) -> None:
    number, future = far.connection.call("add", {}, {})
    far.counter._view[0] = number
    try:
        await far.send(garbage)
    except OSError:
        pass  # closed while we were still writing
    await far.is_closed()
    with pytest.raises(Unavailable):
        await answered(future)


async def test_when_the_worker_is_lost_only_calls_it_never_began_may_run_elsewhere(far: Far) -> None:
    calls = [far.connection.call("add", {}, {}) for _ in range(4)]
    far.counter._view[0] = calls[1][0]
    far.sock.close()
    await far.is_closed()
    results = await asyncio.gather(*(future for _, future in calls), return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable, Unavailable, NotStarted, NotStarted]
    assert isinstance(results[0], Unavailable)
    assert results[0].details["reason"] == "worker_lost"
    assert lost_in_flight().message == results[0].message


async def test_a_worker_given_up_gives_back_what_it_never_began_and_may_answer_the_rest(far: Far) -> None:
    (first, begun), (_, waiting), (_, left) = (far.connection.call("add", {}, {}) for _ in range(3))
    far.counter._view[0] = first
    left.cancel()
    far.connection.give_up()
    with pytest.raises(NotStarted):
        await answered(waiting)
    assert far.connection.in_flight == 1
    await far.send(plain(first, b"1"))
    assert (await answered(begun)).body == b"1"


async def test_after_the_end_nothing_can_be_sent(far: Far) -> None:
    far.connection.close()
    await far.is_closed()
    for attempt in (
        lambda: far.connection.call("add", {}, {}),
        lambda: far.connection.request("ping"),
        lambda: far.connection.tell("shutdown"),
        lambda: far.connection.answer("1.1", 1),
    ):
        with pytest.raises(NotStarted):
            attempt()
    assert far.connection.in_flight == 0
    far.connection.close()


async def test_questions_are_answered_with_a_value_json_or_an_error(far: Far) -> None:
    far.connection.answer("7.1", {"a": 1})
    far.connection.answer("7.2", b'{"raw":true}')
    far.connection.answer("7.3", orjson.Fragment(b"[1]"))
    far.connection.answer("7.4", error=NoBackChannel("no", kind="elicit"))
    assert [await far.receive() for _ in range(4)] == [
        {"op": "answer", "ask": "7.1", "ok": True, "result": {"a": 1}},
        {"op": "answer", "ask": "7.2", "ok": True, "result": {"raw": True}},
        {"op": "answer", "ask": "7.3", "ok": True, "result": [1]},
        {
            "op": "answer",
            "ask": "7.4",
            "ok": False,
            "error": {"code": "no_back_channel", "message": "no", "details": {"kind": "elicit"}},
        },
    ]


async def test_quiet_is_told_when_the_last_answer_came(far: Far) -> None:
    quiet = asyncio.Event()
    far.connection.on_quiet = quiet.set
    (first, one), (second, _) = far.connection.call("add", {}, {}), far.connection.call("add", {}, {})
    await far.send(plain(first, b"1"))
    await answered(one)
    assert not quiet.is_set()
    await far.send(plain(second, b"1"))
    await asyncio.wait_for(quiet.wait(), 5)


async def test_arguments_too_large_for_the_worker_are_refused_and_leave_nothing_behind(far: Far) -> None:
    with pytest.raises(TooLarge, match="WORKER_MAX_FRAME"):
        far.connection.call("add", {"text": "x" * (1 << 20)}, {})
    with pytest.raises(ValueError):
        far.connection.call("add", {"number": 2**70, "other": float("nan")}, {})
    assert far.connection.in_flight == 0


async def test_integers_beyond_64_bits_are_carried_exactly(far: Far) -> None:
    assert dump_arguments({"n": 2**70}) == b'{"n":1180591620717411303424}'


def test_the_counter_is_memory_two_processes_share() -> None:
    counter = Counter()
    pid = os.fork()
    if pid == 0:
        counter._view[0] = 42
        os._exit(0)
    os.waitpid(pid, 0)
    assert counter.value == 42
    counter.close_descriptor()


LINES = st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=8)


@given(lines=LINES, cuts=st.lists(st.integers(0, 200), max_size=10))
def test_any_division_of_the_bytes_gives_the_same_lines(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = Lines(100)
    got = [line for start, end in itertools.pairwise(places) for line in reader.feed(stream[start:end])]
    assert got == lines
