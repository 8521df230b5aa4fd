"""Events on the wire, and the comments that keep quiet streams alive."""

from __future__ import annotations

import asyncio
from typing import Any

from tooldock.dialects.mcp import sse
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.edge.outlet import Outlet


class Reader:
    """A client that takes everything."""

    def __init__(self) -> None:
        self.data = b""
        self.got = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        self.data += message.get("body", b"")
        if b":" in self.data:
            self.got.set()


class Silent:
    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def begin(self) -> None:
        self.begun.set()


def outlet(reader: Reader) -> Outlet:
    return Outlet(reader, {"type": "http.response.start", "status": 200, "headers": []})


def test_g34_an_event_is_one_message_on_one_line() -> None:
    assert sse.event(b'{"a":1}') == b'event: message\ndata: {"a":1}\n\n'
    assert sse.event(b"{}", b"s-1") == b"id: s-1\nevent: message\ndata: {}\n\n"
    assert dict(sse.HEADERS)[b"x-accel-buffering"] == b"no"
    assert dict(sse.HEADERS)[b"cache-control"] == b"no-cache, no-transform"


async def test_g34_a_quiet_stream_gets_a_comment_and_a_closed_one_is_forgotten() -> None:
    keepalive = KeepAlive(0.05)
    reader, gone = Reader(), Reader()
    stream, ended = outlet(reader), outlet(gone)
    ended.end()
    keepalive.stream(stream)
    keepalive.stream(ended)
    async with asyncio.timeout(5):
        await reader.got.wait()
    assert reader.data.startswith(b": ")
    assert reader.data.endswith(b"\n\n")
    assert gone.data == b""
    stream.end()
    await stream.flushed()


async def test_g29_an_answer_that_takes_long_begins_as_a_stream() -> None:
    keepalive = KeepAlive(0.05)
    slow, quick = Silent(), Silent()
    keepalive.wait(slow)
    keepalive.wait(quick)
    keepalive.done(quick)
    async with asyncio.timeout(5):
        await slow.begun.wait()
    assert not quick.begun.is_set()


def test_g34_nothing_is_quiet_for_more_than_fifteen_seconds() -> None:
    assert sse.KEEP_ALIVE_SECONDS + sse._TICK_SECONDS <= 15
