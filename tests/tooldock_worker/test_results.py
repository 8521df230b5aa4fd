"""What tools return and raise, as bytes."""

from __future__ import annotations

import gc
import json
import math
import timeit
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, PlainSerializer

from tooldock_worker.context import AskFailed
from tooldock_worker.light.exceptions import NotFoundError, ToolError
from tooldock_worker.light.values import Audio, File, Image, ToolResult
from tooldock_worker.problems import BadArguments
from tooldock_worker.results import EncodeError, encode, encode_error
from tooldock_worker.schema import parse
from tooldock_worker.tools import LoadedTool


def returning(hint: Any = Any, output_schema: dict[str, Any] | None = None) -> LoadedTool:
    """A tool whose return annotation is `hint`."""

    def fn() -> Any: ...

    fn.__annotations__["return"] = hint
    parsed = parse(fn)
    described: dict[str, Any] = {"name": "t", "description": "", "inputSchema": {}, "file": "t.py"}
    schema = output_schema or parsed.output_schema
    described |= {} if schema is None else {"outputSchema": schema}
    return LoadedTool(fn=fn, bind=dict, described=described, line=None, result_adapter=parsed.result_adapter)


ANY = returning()


def decoded(value: Any, tool: LoadedTool = ANY) -> dict[str, Any]:
    members = encode(tool, value)
    assert b"\n" not in members
    assert b"\r" not in members
    frame: dict[str, Any] = json.loads(b"{" + members + b"}")
    assert list(frame)[-1] == "result"
    return frame


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_json_values_come_back_as_they_were(value: Any) -> None:
    for tool in (ANY, returning(dict[str, Any] | list[Any] | str | int | float | bool | None)):
        assert decoded(value, tool) == {"result": value}


@given(st.integers())
def test_integers_are_exact(value: int) -> None:
    assert encode(ANY, value) == b'"result":%d' % value
    assert encode(ANY, value * 10**40) == b'"result":%d' % (value * 10**40)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Model(BaseModel):
    name: str = Field(serialization_alias="n")
    when: date = date(2024, 1, 2)
    ratio: float = 1.0


class Untyped(BaseModel):
    value: Any


class Aliased(BaseModel, serialize_by_alias=True):
    name: str = Field(serialization_alias="n")


@dataclass
class Point:
    x: float


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (Model(name="a"), {"name": "a", "when": "2024-01-02", "ratio": 1.0}),
        (Aliased(name="a"), {"n": "a"}),
        ([Model(name="a")], [{"name": "a", "when": "2024-01-02", "ratio": 1.0}]),
        (Point(1.5), {"x": 1.5}),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        ({1}, [1]),
        ((1, "a"), [1, "a"]),
        (Pair(1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        ({1: "a", date(2024, 1, 2): "b"}, {"1": "a", "2024-01-02": "b"}),
        (Path("/x"), "/x"),
        (b"text", "text"),
        (b"\xff\xfe", "//4="),
        ({"a": b"text"}, {"a": "text"}),
        ("NaN and Infinity are words", "NaN and Infinity are words"),
        (["NaN"], ["NaN"]),
        ("line\nfeed\r\u2028", "line\nfeed\r\u2028"),
        ([], []),
        (None, None),
    ],
)
def test_values_are_written_as_pydantic_writes_them(value: Any, result: Any) -> None:
    assert decoded(value) == {"result": result}


def test_a_declared_type_decides_how_its_values_are_written() -> None:
    shouted = returning(Annotated[str, PlainSerializer(str.upper)])
    assert decoded("a", shouted) == {"result": "A"}
    assert decoded({"name": "a"}, returning(Model)) == {"result": {"name": "a"}}
    assert decoded([Aliased(name="a")], returning(list[Aliased])) == {"result": [{"n": "a"}]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "non-finite"),
        ([{"a": math.inf}], "non-finite"),
        (Model(name="a", ratio=-math.inf), "non-finite"),
        (Point(math.nan), "non-finite"),
        (Untyped(value=math.nan), "non-finite"),
        ([{"deep": Untyped(value={"x": [math.inf]})}], "non-finite"),
        (object(), "object"),
        ({"a": [lambda: 1]}, "function"),
        ("\ud800", "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        ([b"\xff"], "UTF-8"),
    ],
)
def test_what_json_cannot_carry_is_refused_by_name(value: Any, words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        encode(ANY, value)


def test_cycles_and_bottomless_nesting_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(EncodeError, match="refers to itself or is nested"):
            encode(ANY, value)
    while deep:
        deep = deep.pop()  # taken apart by hand: the interpreter's own way down could overflow


PIXEL = Image(data=b"p")
BLOCK = {"type": "image", "data": "cA==", "mimeType": "image/png"}


def test_content_objects_become_blocks() -> None:
    assert decoded(PIXEL) == {"content": [BLOCK], "result": None}
    assert decoded(Audio(data=b"p"))["content"][0]["type"] == "audio"
    assert decoded(File(data=b"p", format="txt"))["content"][0]["resource"]["text"] == "p"
    assert decoded(PIXEL.to_image_content()) == {"content": [BLOCK], "result": None}


def test_a_list_with_content_in_it_is_content() -> None:
    text = [{"type": "text", "text": "a"}, BLOCK, {"type": "text", "text": '{"n":1}'}]
    assert decoded(["a", PIXEL, {"n": 1}]) == {"content": text, "result": None}
    assert decoded(({"type": "text", "text": "a dict is data"},))["result"] == [
        {"type": "text", "text": "a dict is data"}
    ]


def test_a_class_made_for_one_result_is_not_kept() -> None:
    def result() -> Any:
        @dataclass
        class Row:
            number: int = 1

        return Row()

    value = result()
    made = weakref.ref(type(value))
    assert encode(ANY, value) == b'"result":{"number":1}'
    del value
    gc.collect()
    assert made() is None


def test_a_tool_result_says_everything_itself() -> None:
    full = ToolResult(content=["a", PIXEL], structured_content={"day": date(2024, 1, 2)}, meta={"m": 1})
    assert decoded(full) == {
        "content": [{"type": "text", "text": "a"}, BLOCK],
        "meta": {"m": 1},
        "result": {"day": "2024-01-02"},
    }
    assert decoded(ToolResult(content="no", is_error=True)) == {
        "content": [{"type": "text", "text": "no"}],
        "is_error": True,
        "result": None,
    }
    assert decoded(ToolResult(structured_content={"a": 1}))["content"] == [{"type": "text", "text": '{"a":1}'}]
    assert decoded(ToolResult(content=[1, 2]))["content"] == [{"type": "text", "text": "[1,2]"}]
    assert decoded(ToolResult(content=[]))["content"] == []
    link = {"type": "resource_link", "uri": "file:///x", "name": "x"}
    assert decoded(ToolResult(content=[link]))["content"] == [link]
    with pytest.raises(EncodeError, match="must be an object"):
        encode(ANY, ToolResult(content="a", structured_content=[1]))


def test_errors_have_a_code_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert encode_error(ToolError("no such issue")) == {
        "code": "tool_error",
        "message": "no such issue",
        "details": {},
    }
    assert encode_error(ToolError())["message"] == "ToolError"
    assert encode_error(EncodeError("cannot"))["message"] == "cannot"
    bad = encode_error(BadArguments([{"path": "a.b", "message": "is required"}]))
    assert bad["code"] == "invalid_arguments"
    assert bad["details"] == {"errors": [{"path": "a.b", "message": "is required"}]}
    asked = encode_error(AskFailed("policy_denied", "not allowed", {"rule": "r"}))
    assert asked == {
        "code": "tool_error",
        "message": "not allowed",
        "details": {"cause": "policy_denied", "rule": "r"},
    }
    assert capsys.readouterr().err == ""


def test_an_unexpected_error_is_named_and_its_traceback_goes_to_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise KeyError("missing")

    try:
        fail()
    except KeyError as error:
        failure = encode_error(error)
    assert failure == {"code": "tool_error", "message": "KeyError: 'missing'", "details": {}}
    assert "in fail" in capsys.readouterr().err
    assert encode_error(SystemExit(3))["message"] == "SystemExit: 3"
    assert encode_error(NotFoundError("x"))["message"] == "NotFoundError: x"
    assert encode_error(ExceptionGroup("g", [ValueError("a")]))["message"] == "ExceptionGroup: ValueError: a"
    assert encode_error(ValueError("\ud800"))["message"] == "ValueError: ?"


def test_a_long_message_is_cut() -> None:
    assert len(encode_error(ValueError("x" * 10_000))["message"]) == 2_000


def test_an_exception_that_cannot_be_shown_still_has_a_name() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    class BrokenForCaller(ToolError):
        def __str__(self) -> str:
            raise RuntimeError

    assert encode_error(Broken())["message"] == "Broken"
    assert encode_error(BrokenForCaller())["message"] == "BrokenForCaller"


def fastest(call: Callable[[], Any], times: int = 20_000) -> float:
    return min(timeit.repeat(call, number=times, repeat=5)) / times


def test_a_short_text_is_encoded_in_two_microseconds() -> None:
    assert fastest(lambda: encode(ANY, "hello world")) < 2e-6
