from __future__ import annotations

import json
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tooldock.cli.arguments import convert, parse_json, split


def one(text: str, schema: Any, **root: Any) -> Any:
    return convert({"x": (False, text)}, {"properties": {"x": schema}, **root})["x"]


@pytest.mark.parametrize("text", ["5", "true", "null", "[1]", '"quoted"', "", "a=b", "π"])
def test_a_string_stays_as_it_was_typed(text: str) -> None:
    assert one(text, {"type": "string"}) == text


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("123456789012345678901234567890", {"type": "integer"}, 123456789012345678901234567890),
        ("2.50", {"type": "number"}, 2.5),
        ("7", {"type": "number"}, 7),
        ("true", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ('["a", 1]', {"type": "array"}, ["a", 1]),
        ('{"k": null}', {"type": "object"}, {"k": None}),
        ("null", {"type": ["integer", "null"]}, None),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "null"),
        ("3", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, 3),
        ("three", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "three"),
        ("2", {"enum": [1, 2, "2b"]}, 2),
        ("2b", {"enum": [1, 2, "2b"]}, "2b"),
        ("1", {"const": 1}, 1),
        ("5", {}, "5"),
        ("5", None, "5"),
    ],
)
def test_the_schema_decides_what_a_value_is(text: str, schema: Any, value: Any) -> None:
    result = one(text, schema)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.timeout(20)
def test_references_that_meet_again_and_again_are_followed_once() -> None:
    """Who describes a tool may be no friend; followed one by one, these would never end."""
    many = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 10 + [{"type": "integer"}]}}}
    assert convert(split(["x=1"]), {"properties": {"x": {"$ref": "#/$defs/A"}}, **many}) == {"x": 1}


def test_references_are_followed_and_may_be_circular() -> None:
    definitions = {"Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}}
    assert one("4", {"$ref": "#/$defs/Count"}, **{"$defs": definitions}) == 4
    assert one("4", {"$ref": "#/$defs/Loop"}, **{"$defs": definitions}) == "4"
    assert one("4", {"$ref": "#/$defs/Missing"}, **{"$defs": definitions}) == "4"


@pytest.mark.parametrize(
    ("text", "schema", "said"),
    [
        ("five", {"type": "integer"}, "an integer"),
        ("2.5", {"type": "integer"}, "an integer"),
        ("yes", {"type": "boolean"}, "true or false"),
        ("a,b", {"type": "array"}, "an array"),
        ("NaN", {"type": "number"}, "a number"),
        ("Infinity", {"type": "number"}, "a number"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_an_example(text: str, schema: Any, said: str) -> None:
    with pytest.raises(click.UsageError, match=f"'x' must be {said}, like x="):
        one(text, schema)


def test_colon_equals_is_json_whatever_the_schema_says() -> None:
    given_words = split(["a:=5", 'b:={"k": [1]}', "c=5", "d=x:=y"])
    assert convert(given_words, {"properties": {"a": {"type": "string"}}}) == {
        "a": 5,
        "b": {"k": [1]},
        "c": "5",
        "d": "x:=y",
    }


@pytest.mark.parametrize("word", ["name", "=value", ":=1", ""])
def test_a_word_that_is_no_argument_is_refused(word: str) -> None:
    with pytest.raises(click.UsageError, match="is no argument"):
        split([word])


def test_an_argument_given_twice_is_refused() -> None:
    with pytest.raises(click.UsageError, match="'a' is given twice"):
        split(["a=1", "a:=2"])


@pytest.mark.parametrize("text", ["{", "NaN", "[" * 100_000, "1 2", ""])
def test_what_is_not_json_is_refused_by_name(text: str) -> None:
    with pytest.raises(click.UsageError, match="--json is"):
        parse_json(text, "--json")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner), max_leaves=9))
def test_json_arguments_arrive_as_they_are(value: Any) -> None:
    assert convert(split([f"x:={json.dumps(value)}"]), {}) == {"x": value}
