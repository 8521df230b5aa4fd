"""Arguments against schemas, including schemas and values that mean harm."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tooldock.engine.schema import Validator
from tooldock.errors import ConfigError, InvalidArguments


def validator(**properties: Any) -> Validator:
    schema = {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }
    return Validator("greet", schema)


def refusal(check: Validator, arguments: dict[str, Any]) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        check.check(arguments)
    return caught.value


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:1/schema.json", "https://schemas.example/a", "file:///etc/passwd", "other.json", "urn:x:y"],
)
def test_a_reference_out_of_the_schema_is_refused_when_compiled(reference: str) -> None:
    with pytest.raises(ConfigError, match="greet") as caught:
        Validator("greet", {"type": "object", "properties": {"name": {"$ref": reference}}})
    assert "$defs" in caught.value.message
    assert "root:" not in caught.value.message


def test_a_reference_within_the_schema_works() -> None:
    check = Validator(
        "greet",
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/tree"}},
            "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        },
    )
    check.check({"tree": [[], [[]]]})
    assert refusal(check, {"tree": [[], [[7]]]}).details["errors"][0]["path"] == "tree.1.0.0"


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"pattern": "("}, {"properties": {"a": {"$ref": "#/$defs/none"}}}]
)
def test_a_schema_that_is_none_is_refused_by_name(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'greet' cannot be used"):
        Validator("greet", schema)


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(?=a)(a|aa)+\1$", r"^(a|a)*b\1?$"])
def test_a_pattern_cannot_take_the_gateway_s_time(pattern: str) -> None:
    check = validator(text={"type": "string", "pattern": pattern})
    began = time.perf_counter()
    refusal(check, {"text": "a" * 5000 + "!"})
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "integer"},
        {"enum": ["a", "b"]},
        {"const": "a"},
        {"pattern": "^x$"},
        {"maxLength": 3},
        {"format": "email", "not": {"type": "string"}},
        {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    ],
)
def test_a_value_is_never_repeated_back(rule: dict[str, Any]) -> None:
    error = refusal(validator(password=rule), {"password": "hunter2-hunter2"})
    assert "hunter2" not in error.message + str(error.details)
    assert error.details["errors"][0]["path"] == "password"


def test_every_fault_is_reported_with_its_path_up_to_a_bound() -> None:
    check = Validator(
        "greet",
        {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "integer"}}}},
    )
    error = refusal(check, {"rows": [1, "a", 2, "b"]})
    assert [fault["path"] for fault in error.details["errors"]] == ["rows.1", "rows.3"]
    assert "rows.1: " in error.message
    assert "rows.3: " in error.message
    assert "(and 3 more)" in refusal(check, {"rows": ["x"] * 8}).message
    assert len(refusal(check, {"rows": ["x"] * 1000}).details["errors"]) == 20


def test_a_missing_and_an_unknown_argument_are_named() -> None:
    error = refusal(validator(name={"type": "string"}), {"nmae": "x"})
    said = " ".join(fault["message"] for fault in error.details["errors"])
    assert "name" in said
    assert "nmae" in said


def test_integers_beyond_64_bits_are_integers() -> None:
    validator(number={"type": "integer"}).check({"number": 2**70})
    refusal(validator(number={"type": "integer", "maximum": 10}), {"number": 2**70})


def test_a_number_that_is_none_is_refused() -> None:
    refusal(validator(number={"type": "integer"}), {"number": float("nan")})


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
def test_g50_arguments_are_checked_by_the_dialect_the_schema_names(draft: str) -> None:
    listed = {"type": "array", "items": [{"type": "integer"}]}
    if "2020" in draft:
        listed = {"type": "array", "prefixItems": [{"type": "integer"}]}
    check = Validator("t", {"$schema": draft, "type": "object", "properties": {"row": listed}})
    check.check({"row": [1, "anything"]})
    refusal(check, {"row": ["one"]})


@pytest.mark.parametrize("dialect", ["https://example.com/my-dialect", 5, ""])
def test_g50_a_dialect_nobody_knows_is_refused_by_name(dialect: Any) -> None:
    with pytest.raises(ConfigError, match=r"dialect|\$schema"):
        Validator("t", {"$schema": dialect, "type": "object"})


def test_g50_nothing_is_fetched_for_a_schema() -> None:
    with pytest.raises(ConfigError, match="refer only to itself"):
        Validator("t", {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}})
