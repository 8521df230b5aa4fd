"""The pipe between gateway and worker: newline-delimited JSON, both ways, on one socket.

Gateway to worker (every request has an `id`, every request gets one answer):

    {"id":"7","op":"tools.call","tool":"add","arguments":{...},"info":{"request_id":...,"caller":...}}
    {"id":"7","op":"resources.read","tool":"data://now","arguments":{},"info":{...}}       `tool` is the URI
    {"id":"7","op":"prompts.get","tool":"greet","arguments":{"name":"Ann"},"info":{...}}   `tool` is the prompt's name
    {"id":"8","op":"tools.list"}                 {"id":"9","op":"tools.get_schema","tool":"add"}
    {"id":"10","op":"cancel","call":"7"}         {"id":"11","op":"ping"}
    {"id":"12","op":"health"}                    {"id":"13","op":"drain"}
    {"id":"14","op":"shutdown"}
    {"op":"answer","ask":"7.1","ok":true,"result":...}          the answer to a worker's question

Worker to gateway:

    {"op":"ready","namespace":"math","tools":[...],"resources":[...],"templates":[...],"prompts":[...]}
      or  {"op":"failed","error":{...}}                                                    exactly once, first
    {"id":"7","ok":true,"latency_ms":0.02,"result":...}                                    plain value
    {"id":"7","ok":true,"latency_ms":0.02,"content":[...],"result":...}                    content blocks
    {"id":"7","ok":true,"latency_ms":0.02,"cut":true,"total":123,"result":"first part"}    larger than allowed
    {"id":"7","ok":false,"latency_ms":0.02,"error":{"code":...,"message":...,"details":{...}}}
    {"op":"progress","id":"7",...}   {"op":"log","id":"7",...}
    {"op":"ask","id":"7","ask":"7.1","kind":...,"params":{...}}

A resource and a prompt are answered with MCP's own result object, never cut. `info` says who calls, in which session,
and in `capabilities` what the client can do.

`result` is the last member of a success frame, so the gateway can pass its bytes on without decoding them.
Call ids are decimal and rise by one; besides the socket the two sides share two eight-byte numbers. In the first
the worker notes the id of the call it took up last. When a worker dies or hangs, calls beyond that number were never
begun and can be given to its replacement; the gateway then sets the second, and the worker takes up no more.
"""

from __future__ import annotations

import json
from typing import Any

MAX_FRAME = 16 * 1024 * 1024
"""Bytes in one line, unless the gateway says otherwise."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any) -> bytes:
    """One JSON value, without a newline in it."""
    return _encode(value).encode("utf-8", "replace")


class FrameTooLong(Exception):
    """The other side sent a line beyond the bound; the connection cannot be trusted any more."""


class Lines:
    """Bytes in, whole lines out."""

    __slots__ = ("_limit", "_partial", "_size")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._partial: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        lines = data.split(b"\n")
        rest = lines.pop()
        if self._partial:
            if lines:
                self._partial.append(lines[0])
                lines[0] = b"".join(self._partial)
                self._partial.clear()
                self._size = 0
            if rest:
                self._partial.append(rest)
                self._size += len(rest)
        elif rest:
            self._partial.append(rest)
            self._size = len(rest)
        # Only the first line can be longer than the data it came with.
        if (
            self._size > self._limit
            or (lines and len(lines[0]) > self._limit)
            or (len(data) > self._limit and max(map(len, lines), default=0) > self._limit)
        ):
            raise FrameTooLong(f"a line is longer than {self._limit} bytes")
        return lines
