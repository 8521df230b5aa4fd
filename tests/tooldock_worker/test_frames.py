"""Lines out of bytes, whole and bounded, however the bytes arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tooldock_worker.frames import FrameTooLong, Lines, dumps


def feed(pieces: list[bytes], limit: int = 100) -> list[bytes]:
    reader = Lines(limit)
    return [line for piece in pieces for line in reader.feed(piece)]


def pieces(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


@given(
    lines=st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=8), size=st.integers(1, 90)
)
def test_the_same_lines_come_out_however_the_bytes_come_in(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    assert feed(pieces(stream, size)) == lines


def test_an_unfinished_line_waits_for_its_rest() -> None:
    reader = Lines()
    assert reader.feed(b"one\ntw") == [b"one"]
    assert reader.feed(b"") == []
    assert reader.feed(b"o\nthree\n") == [b"two", b"three"]


@pytest.mark.parametrize("size", [1, 7, 50, 99, 100, 101, 500])
def test_a_line_at_the_bound_passes_and_one_beyond_never_does(size: int) -> None:
    before, after = b"a\n" * 3, b"b\n" * 3
    assert feed(pieces(before + b"x" * 100 + b"\n" + after, size))[3] == b"x" * 100
    with pytest.raises(FrameTooLong):
        feed(pieces(before + b"x" * 101 + b"\n" + after, size))


def test_a_line_that_never_ends_is_refused_before_it_does() -> None:
    reader = Lines(100)
    reader.feed(b"x" * 60)
    with pytest.raises(FrameTooLong):
        reader.feed(b"x" * 60)


@pytest.mark.parametrize("value", [{"a": "one\ntwo"}, ["é€😀"], "\u2028", 2**70, None])
def test_a_value_is_one_line_of_json(value: Any) -> None:
    line = dumps(value)
    assert b"\n" not in line
    assert json.loads(line) == value


def test_half_a_character_does_not_stop_a_message() -> None:
    assert json.loads(dumps("a\ud800b")) == "a?b"
