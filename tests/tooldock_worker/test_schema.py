"""What callers are told about a function, and which arguments it accepts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field, field_validator

from tooldock_worker import context
from tooldock_worker.context import Context as Running
from tooldock_worker.docstring import parse as parse_docstring
from tooldock_worker.light.dependencies import CurrentContext, Depends
from tooldock_worker.light.values import Image, ToolResult
from tooldock_worker.problems import BadArguments
from tooldock_worker.schema import SchemaError, parse

if TYPE_CHECKING:
    from tooldock_worker.context import Context


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    n: int = Field(title="A number", ge=0)
    when: date | None = None


class Outer(BaseModel):
    """What it is."""

    inner: Inner
    title: str = "untitled"
    meta: dict[str, Any] = {"title": "kept"}


class Node(BaseModel):
    children: list[Node] = []


@dataclass
class Point:
    x: float
    y: float = 0.0


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def refused(fn: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BadArguments) as caught:
        parse(fn).validate(arguments)
    return {error["path"]: error["message"] for error in caught.value.errors}


def test_models_keep_their_definitions_and_lose_derived_titles() -> None:
    def fn(outer: Outer, colour: Colour = Colour.RED) -> None: ...

    assert parse(fn).input_schema == {
        "$defs": {
            "Colour": {"enum": ["red", "blue"], "type": "string"},
            "Inner": {
                "properties": {
                    "n": {"minimum": 0, "type": "integer"},
                    "when": {
                        "anyOf": [{"format": "date", "type": "string"}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["n"],
                "type": "object",
            },
            "Outer": {
                "description": "What it is.",
                "properties": {
                    "inner": {"$ref": "#/$defs/Inner"},
                    "title": {"default": "untitled", "type": "string"},
                    "meta": {"additionalProperties": True, "default": {"title": "kept"}, "type": "object"},
                },
                "required": ["inner"],
                "type": "object",
            },
        },
        "additionalProperties": False,
        "properties": {
            "outer": {"$ref": "#/$defs/Outer"},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
        },
        "required": ["outer"],
        "type": "object",
    }


def test_descriptions_come_from_annotations_before_the_docstring() -> None:
    def fn(
        a: Annotated[int, "text"],
        b: Annotated[int, Field(description="field", title="Own title")],
        c: int,
        d: Any,
    ) -> None:
        """Does.

        Args:
            a: not this
            b: nor this
            c: but this
        """

    parsed = parse(fn)
    assert parsed.description == "Does."
    assert parsed.input_schema["properties"] == {
        "a": {"type": "integer", "description": "text"},
        "b": {"type": "integer", "description": "field", "title": "Own title"},
        "c": {"type": "integer", "description": "but this"},
        "d": {},
    }


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        (None, None, {}),
        ("One.\n\nTwo.", "One.\n\nTwo.", {}),
        (
            "S.\n\nArgs:\n    a: x\n        y\n    b (int): z\n\nReturns:\n    r",
            "S.",
            {"a": "x\ny", "b": "z"},
        ),
        ("Args:\n    a: x\n\nAfter.", "After.", {"a": "x"}),
        ("S.\nArgs:\n    a: no blank line above", "S.\nArgs:\n    a: no blank line above", {}),
        ("S.\n\nNote:\n    aside\n\nMore.", "S.", {}),
        ("S.\n\n```\n\nArgs:\n    a: code\n```", "S.\n\n```\n\nArgs:\n    a: code\n```", {}),
        (
            "S.\n\nParameters\n----------\na, b : int\n    x\n\n    y\nc\n",
            "S.",
            {"a": "x\n\ny", "b": "x\n\ny", "c": ""},
        ),
        ("S.\n\nReturns\n-------\nint", "S.", {}),
        ("S.\n\n:param a: x\n    y\n:param int b: z\n:returns: r", "S.", {"a": "x\ny", "b": "z"}),
        ("S.\n\n:raises ValueError: when", "S.", {}),
        ("S.\n\n:note: stays", "S.\n\n:note: stays", {}),
    ],
)
def test_docstrings_of_three_styles_are_split(
    text: str | None, description: str | None, parameters: dict[str, str]
) -> None:
    assert parse_docstring(text) == (description, parameters)


def test_a_context_is_injected_and_not_asked_for() -> None:
    def annotated(a: int, ctx: Running) -> None: ...
    def optional(ctx: Optional[Running] = None, a: int = 1) -> None: ...  # noqa: UP045
    def union(a: int, running: Running | None = None) -> None: ...
    def for_checkers_only(a: int, c: Context) -> None: ...
    def qualified(a: int, c: context.Context | None = None) -> None: ...
    def by_default(a: int, c: Any = CurrentContext()) -> None: ...  # noqa: B008

    names = {"annotated": "ctx", "optional": "ctx", "union": "running", "by_default": "c"}
    for fn in (annotated, optional, union, for_checkers_only, qualified, by_default):
        parsed = parse(fn)
        assert parsed.context_parameter == names.get(fn.__name__, "c")
        assert list(parsed.input_schema["properties"]) == ["a"]
        assert parsed.validate({"a": "1"}) == {"a": 1}


def test_dependencies_and_a_second_context_are_not_asked_for() -> None:
    def fn(a: int, one: Running, two: Running, made: int = Depends(int)) -> None: ...

    parsed = parse(fn)
    assert parsed.context_parameter == "one"
    assert set(parsed.dependencies) == {"two", "made"}
    assert list(parsed.input_schema["properties"]) == ["a"]


def test_arguments_become_what_the_annotations_say() -> None:
    def fn(outer: Outer, day: date, colour: Colour, *, tags: set[str], point: Point, n: int = 3) -> None: ...

    bound = parse(fn).validate(
        {
            "outer": {"inner": {"n": "4"}},
            "day": "2024-02-29",
            "colour": "blue",
            "tags": ["a", "a"],
            "point": {"x": 1},
        }
    )
    assert bound == {
        "outer": Outer(inner=Inner(n=4)),
        "day": date(2024, 2, 29),
        "colour": Colour.BLUE,
        "tags": {"a"},
        "point": Point(1.0),
        "n": 3,
    }


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    def fn(items: list[int] = []) -> None: ...  # noqa: B006

    parsed = parse(fn)
    parsed.validate({})["items"].append(1)
    assert parsed.validate({}) == {"items": []}


def test_bad_arguments_are_named_by_path() -> None:
    def fn(outer: Outer, items: list[Inner], n: int) -> None: ...

    assert refused(fn, {"outer": {"inner": {"n": -1}}, "items": [{"n": 1}, {}], "extra": 1}) == {
        "outer.inner.n": "Input should be greater than or equal to 0",
        "items.1.n": "is required",
        "n": "is required",
        "extra": "is not expected here",
    }


def test_bad_arguments_never_repeat_the_value() -> None:
    class Strict(BaseModel):
        token: str

        @field_validator("token")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError(f"the token {value} is not good, nor is {value!r}")

    def fn(pet: Pet, strict: Strict, n: int, colour: Colour, key: Annotated[str, Field(max_length=3)]) -> None: ...

    fn.__annotations__["strict"] = Strict
    secret = "hunter2-secret"
    errors = refused(
        fn,
        {"pet": {"kind": secret}, "strict": {"token": secret}, "n": secret, "colour": secret, "key": secret},
    )
    assert len(errors) == 5
    assert secret not in str(errors)
    assert errors["pet"] == "Input tag should be one of 'cat', 'dog'"
    assert errors["strict.token"].startswith("the token [value]")
    quoted = refused(fn, {"strict": {"token": "it's a\nsecret"}})["strict.token"]
    assert "secret" not in quoted  # which {value!r} shows in other characters


def test_an_error_of_the_body_is_not_a_bad_argument() -> None:
    def fn(n: int) -> None:
        raise AssertionError("the check must not run the tool")

    assert parse(fn).validate({"n": 1}) == {"n": 1}


def output(hint: Any) -> dict[str, Any] | None:
    def fn() -> Any: ...

    fn.__annotations__["return"] = hint
    return parse(fn).output_schema


def test_objects_are_described_as_they_are() -> None:
    assert output(Point) == {
        "properties": {"x": {"type": "number"}, "y": {"default": 0.0, "type": "number"}},
        "required": ["x"],
        "type": "object",
    }
    assert output(dict[str, int]) == {"additionalProperties": {"type": "integer"}, "type": "object"}
    node = output(Node)
    assert node is not None
    assert node["type"] == "object"
    assert "Node" in node["$defs"]


@pytest.mark.parametrize("hint", [int, list[int], Point | None, Colour, tuple[int, str], date, Literal["a"]])
def test_what_is_no_object_is_wrapped(hint: Any) -> None:
    schema = output(hint)
    assert schema is not None
    assert schema["x-fastmcp-wrap-result"] is True
    assert schema["required"] == ["result"]


@pytest.mark.parametrize(
    "hint",
    [
        None,
        type(None),
        Any,
        list,
        list[Any],
        tuple[Any, ...],
        bytes,
        bytes | None,
        Image,
        list[Image],
        ToolResult,
        ToolResult | None,
        Annotated[Image, "x"],
        object(),
        Callable[[], int],
        dict[str, Image],
    ],
)
def test_what_says_nothing_about_data_has_no_output_schema(hint: Any) -> None:
    assert output(hint) is None


def test_a_function_without_annotations_is_described_too() -> None:
    def fn(a, b=float("inf")): ...  # type: ignore[no-untyped-def]

    parsed = parse(fn)
    assert parsed.input_schema["properties"] == {"a": {}, "b": {}}
    assert parsed.output_schema is None


def test_a_default_json_cannot_carry_is_left_out() -> None:
    def fn(a: Any = object()) -> None: ...  # noqa: B008

    assert parse(fn).input_schema["properties"] == {"a": {}}


def test_partials_and_callable_objects_are_described_by_what_they_call() -> None:
    def add(a: int, b: int) -> int:
        """Adds.

        Args:
            a: first
        """
        return a + b

    class Adder:
        """An adder."""

        def __call__(self, a: int) -> int:
            """Not this.

            Args:
                a: first
            """
            return a

    bound = parse(functools.partial(add, b=2))
    assert (bound.name, bound.description) == ("add", "Adds.")
    assert bound.validate({"a": 1}) == {"a": 1, "b": 2}
    adder = parse(Adder())
    assert (adder.name, adder.description) == ("Adder", "An adder.")
    assert adder.input_schema["properties"]["a"]["description"] == "first"


def test_an_unknown_annotation_is_named() -> None:
    def fn(a: int) -> None: ...

    fn.__annotations__["a"] = "Missing"
    with pytest.raises(SchemaError, match="Missing"):
        parse(fn)
