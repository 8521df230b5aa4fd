"""From bytes to arguments: exact, bounded, and clear about what is wrong where."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tooldock.dialects.jsonbody import MAX_DEPTH
from tooldock.dialects.rest.body import parse
from tooldock.errors import MalformedRequest

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
@settings(max_examples=200, deadline=None)
def test_every_json_object_arrives_exactly(value: dict[str, object]) -> None:
    parsed = parse(json.dumps(value).encode())
    assert parsed == value
    assert json.dumps(parsed) == json.dumps(value)  # 1 and 1.0, and -0.0, are told apart


@pytest.mark.parametrize(
    "number",
    [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30, 10**300, int("9" * 19), 2**53 + 1],
)
def test_integers_beyond_64_bits_keep_every_digit(number: int) -> None:
    value = parse(b'{"n": %d, "m": [%d]}' % (number, number))
    assert value == {"n": number, "m": [number]}
    assert type(value["n"]) is int


@pytest.mark.parametrize(
    "body",
    [
        b'{"n": NaN}',
        b'{"n": Infinity}',
        b'{"n": -Infinity}',
        b'{"n": 1e999}',
        b'{"n": -1e999, "m": 12345678901234567890}',
        b'{"n": NaN, "m": 12345678901234567890}',
        b'{"n": 1' + b"0" * 5000 + b"}",
        b'{"n": 01}',
        b'{"n": +1}',
        b'{"n": .5}',
    ],
)
def test_numbers_json_does_not_have_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest, match="line 1, column"):
        parse(body)


def test_the_last_of_duplicate_keys_wins_with_either_parser() -> None:
    assert parse(b'{"a": 1, "a": 2}') == {"a": 2}
    assert parse(b'{"a": 1, "a": 12345678901234567890123}') == {"a": 12345678901234567890123}


@pytest.mark.parametrize(
    ("body", "line", "column"),
    [(b"{", 1, 2), (b'{"a":\n  x}', 2, 3), (b"{}x", 1, 3), (b" ", 1, 1), (b"{'a': 1}", 1, 2)],
)
def test_what_is_not_json_is_refused_with_its_place(body: bytes, line: int, column: int) -> None:
    with pytest.raises(MalformedRequest) as caught:
        parse(body)
    assert (caught.value.details["line"], caught.value.details["column"]) == (line, column)
    assert f"line {line}, column {column}" in caught.value.message


def test_what_is_not_utf8_is_refused_with_its_byte() -> None:
    with pytest.raises(MalformedRequest, match="not UTF-8: byte 7") as caught:
        parse(b'{"a": "\xff"}')
    assert caught.value.details == {"position": 7}


@pytest.mark.parametrize("body", [b'{"a": "\\ud800"}', b'{"a": "\\ud800", "b": 12345678901234567890}'])
def test_half_a_character_is_refused_by_both_parsers(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        parse(body)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"[]", "an array"),
        (b'"x"', "a string"),
        (b"1", "a number"),
        (b"1.5", "a number"),
        (b"true", "true"),
        (b"null", "null"),
    ],
)
def test_what_is_not_an_object_is_refused_by_kind(body: bytes, kind: str) -> None:
    with pytest.raises(MalformedRequest, match=f"not {kind}"):
        parse(body)


def _nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return ('{"a":' + opening * (depth - 1) + closing * (depth - 1) + "}").encode()


def test_nesting_is_bounded_at_the_stated_depth() -> None:
    assert parse(_nested(MAX_DEPTH))
    with pytest.raises(MalformedRequest, match="deeper than 64"):
        parse(_nested(MAX_DEPTH + 1))
    with pytest.raises(MalformedRequest):
        parse(_nested(900))
    with pytest.raises(MalformedRequest):
        parse(_nested(100_000))
    deep = b'{"a":' * 65 + b"1" + b"}" * 65
    with pytest.raises(MalformedRequest):
        parse(deep)


def test_nesting_beside_a_long_number_is_refused_like_any_other() -> None:
    """The exact parser, which such a body needs, recurses; it must not see the body before the depth is known."""
    with pytest.raises(MalformedRequest, match="nested"):
        parse(b'{"n":12345678901234567890123,' + _nested(1010)[1:])


def test_many_brackets_are_not_deep() -> None:
    assert len(parse(orjson.dumps({"a": [[] for _ in range(1000)], "b": "[" * 1000}))["a"]) == 1000


def test_errors_never_repeat_the_body() -> None:
    for body in (b'{"password": "hunter2"', b'{"password": "hunter2\xff"}', b'"hunter2"'):
        with pytest.raises(MalformedRequest) as caught:
            parse(body)
        assert "hunter2" not in str((caught.value.message, caught.value.details))
