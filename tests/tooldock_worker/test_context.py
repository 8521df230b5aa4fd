"""What tools say and ask while they run, against a backend that keeps everything."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tooldock_worker.context import AskFailed, Context, Root, current, get_context
from tooldock_worker.elicitation import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from tooldock_worker.jsontext import EncodeError


class Backend:
    """Answers every question with `answer` and keeps what it was told."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.said: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def emit(self, message: dict[str, Any]) -> None:
        json.dumps(message, allow_nan=False).encode()
        self.said.append(message)

    async def ask(self, call_id: str, kind: str, params: dict[str, Any]) -> Any:
        return self.ask_sync(call_id, kind, params)

    def ask_sync(self, call_id: str, kind: str, params: dict[str, Any]) -> Any:
        self.asked.append((call_id, kind, params))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def running(backend: Backend, **info: Any) -> Context:
    return Context(backend, "7", "github", "search", info)


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def test_progress_and_log_lines_name_their_call() -> None:
    backend = Backend()
    ctx = running(backend)
    await ctx.report_progress(1, 2, "half")
    await ctx.warning("careful", logger_name="l", extra={"day": date(2024, 1, 2), "odd": 1})
    await ctx.log("plain")
    ctx.sync.report_progress(2)
    ctx.sync.error("bad \ud800", extra={"x": object})
    assert backend.said[:4] == [
        {"op": "progress", "id": "7", "progress": 1, "total": 2, "message": "half"},
        {
            "op": "log",
            "id": "7",
            "level": "warning",
            "message": "careful",
            "logger": "l",
            "data": {"day": "2024-01-02", "odd": 1},
        },
        {"op": "log", "id": "7", "level": "info", "message": "plain", "logger": None, "data": None},
        {"op": "progress", "id": "7", "progress": 2, "total": None, "message": None},
    ]
    assert backend.said[4]["message"] == "bad ?"
    assert backend.said[4]["data"] == {"x": "<class 'object'>"}


async def test_every_level_has_its_method_on_both_sides() -> None:
    backend = Backend()
    ctx = running(backend)
    for level in ("debug", "info", "warning", "error"):
        await getattr(ctx, level)("x")
        getattr(ctx.sync, level)("x")
    await ctx.log("x", level="notice")
    ctx.sync.log("x", level="alert")
    levels = [message["level"] for message in backend.said]
    assert levels == ["debug"] * 2 + ["info"] * 2 + ["warning"] * 2 + ["error"] * 2 + ["notice", "alert"]
    with pytest.raises(ValueError, match="no log level"):
        await ctx.log("x", level="loud")


async def test_progress_must_be_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        await running(Backend()).report_progress(math.nan)


def test_the_call_is_known() -> None:
    ctx = running(Backend(), request_id="r", caller="ann", session_id="s")
    assert (ctx.request_id, ctx.caller, ctx.client_id, ctx.session_id) == ("r", "ann", "ann", "s")
    assert (ctx.namespace, ctx.tool, ctx.cancelled) == ("github", "search", False)
    bare = running(Backend())
    assert (bare.request_id, bare.caller, bare.session_id) == ("7", None, None)


def test_get_context_works_only_in_a_call() -> None:
    with pytest.raises(RuntimeError, match="No active context"):
        get_context()
    ctx = running(Backend())
    token = current.set(ctx)
    try:
        assert get_context() is ctx
    finally:
        current.reset(token)


async def test_get_context_reaches_threads() -> None:
    ctx = running(Backend())
    current.set(ctx)
    assert await asyncio.to_thread(get_context) is ctx


async def test_another_tool_is_called_with_json() -> None:
    class Model(BaseModel):
        n: int

    backend = Backend({"answer": 42})
    ctx = running(backend)
    assert await ctx.call_tool("math", "add", {"m": Model(n=1), "day": date(2024, 1, 2)}) == {"answer": 42}
    arguments = {"m": {"n": 1}, "day": "2024-01-02"}
    assert backend.asked == [("7", "call_tool", {"namespace": "math", "tool": "add", "arguments": arguments})]
    assert ctx.sync.call_tool("math", "none") == {"answer": 42}
    with pytest.raises(EncodeError):
        await ctx.call_tool("math", "add", {"n": math.nan})


async def test_a_question_that_fails_raises_on_both_sides() -> None:
    ctx = running(Backend(AskFailed("no_back_channel", "nobody there", {"kind": "roots"})))
    with pytest.raises(AskFailed, match="nobody there") as caught:
        await ctx.list_roots()
    assert (caught.value.code, caught.value.details) == ("no_back_channel", {"kind": "roots"})
    with pytest.raises(AskFailed):
        ctx.sync.list_roots()


async def test_roots_and_sampling() -> None:
    assert await running(Backend({"roots": [{"uri": "file:///a", "name": "A"}]})).list_roots() == [
        Root("file:///a", "A")
    ]
    assert running(Backend([{"uri": "file:///a"}])).sync.list_roots() == [Root("file:///a")]
    backend = Backend({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}})
    ctx = running(backend)
    answer = await ctx.sample(
        ["a", {"role": "assistant", "content": {"type": "text", "text": "b"}}],
        system_prompt="s",
        temperature=0.5,
        max_tokens=9,
        model_preferences="big",
    )
    assert (answer.text, answer.result, answer.model) == ("hello", "hello", "m")
    assert backend.asked[0][2] == {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "a"}},
            {"role": "assistant", "content": {"type": "text", "text": "b"}},
        ],
        "maxTokens": 9,
        "systemPrompt": "s",
        "temperature": 0.5,
        "modelPreferences": {"hints": [{"name": "big"}]},
    }
    assert ctx.sync.sample("a").text == "hello"


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Form:
    name: str
    size: Size = Size.SMALL
    count: int | None = None


class Model(BaseModel):
    email: str = Field(description="Where to", title="E-mail")


@pytest.mark.parametrize(
    ("response_type", "value_schema", "content", "data"),
    [
        (str, {"type": "string"}, "a", "a"),
        (int, {"type": "integer"}, 3, 3),
        (float, {"type": "number"}, 3, 3.0),
        (bool, {"type": "boolean"}, True, True),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}, "b", "b"),
        (["a", "b"], {"enum": ["a", "b"], "type": "string"}, "b", "b"),
        (Size, {"enum": ["s", "l"], "title": "Size", "type": "string"}, "l", Size.LARGE),
        ([["a", "b"]], {"items": {"enum": ["a", "b"], "type": "string"}, "type": "array"}, ["a"], ["a"]),
        (list[Size], {"items": {"enum": ["s", "l"], "type": "string"}, "type": "array"}, ["l"], [Size.LARGE]),
        (
            {"low": {"title": "Low"}, "high": {}},
            {
                "type": "string",
                "oneOf": [{"const": "low", "title": "Low"}, {"const": "high", "title": "high"}],
            },
            "low",
            "low",
        ),
        (
            [{"low": {"title": "Low"}}],
            {"type": "array", "items": {"anyOf": [{"const": "low", "title": "Low"}]}},
            ["low"],
            ["low"],
        ),
    ],
)
async def test_a_single_value_is_asked_for_in_a_form_with_one_field(
    response_type: Any, value_schema: dict[str, Any], content: Any, data: Any
) -> None:
    backend = Backend(accept(value=content))
    answer = await running(backend).elicit("Which?", response_type)
    assert answer == AcceptedElicitation(data=data)
    assert answer.action == "accept"
    assert backend.asked == [
        (
            "7",
            "elicit",
            {
                "message": "Which?",
                "schema": {
                    "type": "object",
                    "properties": {"value": {"title": "Value", **value_schema}},
                    "required": ["value"],
                },
            },
        )
    ]


async def test_a_dataclass_or_model_is_the_form() -> None:
    backend = Backend(accept(name="n", size="l", count=2))
    answer = await running(backend).elicit("Fill in", Form)
    assert answer.data == Form("n", Size.LARGE, 2)
    schema = backend.asked[0][2]["schema"]
    assert schema["required"] == ["name"]
    assert schema["properties"] == {
        "name": {"title": "Name", "type": "string"},
        "size": {"default": "s", "enum": ["s", "l"], "title": "Size", "type": "string"},
        "count": {"title": "Count", "type": "integer"},
    }
    assert "$defs" not in schema
    backend = Backend(accept(email="a@b"))
    assert (await running(backend).elicit("Mail?", Model)).data == Model(email="a@b")
    assert backend.asked[0][2]["schema"]["properties"]["email"]["description"] == "Where to"


async def test_no_answer_has_its_own_outcomes() -> None:
    assert await running(Backend({"action": "decline"})).elicit("?", bool) == DeclinedElicitation()
    assert await running(Backend({"action": "cancel"})).elicit("?", bool) == CancelledElicitation()
    assert running(Backend({"action": "cancel"})).sync.elicit("?", bool).action == "cancel"
    consent = Backend(accept())
    assert (await running(consent).elicit("Sure?", None)).data == {}
    assert consent.asked[0][2]["schema"] == {"type": "object", "properties": {}}
    with pytest.raises(ValueError, match="neither accept"):
        await running(Backend({"action": "shrug"})).elicit("?", bool)


async def test_an_answer_that_does_not_fit_is_refused_without_repeating_it() -> None:
    for answer, kind in ((accept(value="secret-answer"), int), (accept(name=["secret-answer"]), Form)):
        with pytest.raises(ValueError, match="does not fit") as caught:
            await running(Backend(answer)).elicit("?", kind)
        assert "secret-answer" not in str(caught.value)
    with pytest.raises(ValueError, match="lacks its value"):
        await running(Backend(accept())).elicit("?", int)


async def test_a_form_takes_a_title_and_refuses_what_it_cannot_show() -> None:
    class Nested(BaseModel):
        inner: Model
        many: list[str] = []

    backend = Backend(accept(value=1))
    await running(backend).elicit("?", int, response_title="T", response_description="D")
    assert backend.asked[0][2]["schema"]["properties"]["value"] == {
        "title": "T",
        "description": "D",
        "type": "integer",
    }
    for wrong, error in (
        (Nested, TypeError),
        (dict[str, int], TypeError),
        ([], ValueError),
        ({}, ValueError),
    ):
        with pytest.raises(error):
            await running(backend).elicit("?", wrong)
    with pytest.raises(TypeError, match="fields"):
        await running(backend).elicit("?", Model, response_title="T")


# Telling clients, and knowing what they can do.


class Notification(BaseModel):
    """As the protocol's own types look."""

    method: str = "notifications/resources/updated"
    params: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("notifications/tools/list_changed", {"method": "notifications/tools/list_changed", "params": {}}),
        ({"method": "notifications/x"}, {"method": "notifications/x", "params": {}}),
        ({"method": "m", "params": {"uri": "a://b"}}, {"method": "m", "params": {"uri": "a://b"}}),
        (Notification(params={"uri": "a://b"}), {"method": Notification().method, "params": {"uri": "a://b"}}),
    ],
)
async def test_a_notification_leaves_in_one_form_however_it_is_written(said: Any, sent: dict[str, Any]) -> None:
    backend = Backend()
    await running(backend).send_notification(said)
    running(backend).sync.send_notification(said)
    assert backend.asked == [("7", "notify", sent)] * 2


@pytest.mark.parametrize("said", [7, None, {}, {"method": 7}, ["notifications/tools/list_changed"]])
async def test_what_is_no_notification_is_refused(said: Any) -> None:
    with pytest.raises(TypeError, match="A notification is"):
        await running(Backend()).send_notification(said)


async def test_the_connection_can_be_let_go_on_both_sides() -> None:
    backend = Backend()
    await running(backend).close_sse_stream()
    running(backend).sync.close_sse_stream()
    assert backend.asked == [("7", "close_stream", {})] * 2


@pytest.mark.parametrize(
    ("capabilities", "supported"),
    [
        (None, []),
        ("nonsense", []),
        ({}, []),
        ({"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}, ["elicitation", "sampling", "roots"]),
        ({"elicitation": {"form": {}}, "sampling": None, "roots": False}, ["elicitation"]),
        ({"elicitation": {"url": {}}}, []),
        ({"elicitation": {"url": {}, "form": {}}}, ["elicitation"]),
    ],
)
async def test_a_tool_can_know_what_its_caller_can_be_asked(capabilities: Any, supported: list[str]) -> None:
    ctx = running(Backend(), capabilities=capabilities)
    names = ("elicitation", "sampling", "roots")
    assert [name for name in names if await ctx.client_supports(name)] == supported
    assert [name for name in names if ctx.sync.client_supports(name)] == supported


# Forms as the protocol has them.


class Fit(Enum):
    SMALL = "s"
    LARGE = "l"


def titled(*names: str) -> list[dict[str, str]]:
    return [{"const": name[0], "title": name} for name in names]


class Order(BaseModel):
    """Not for the person who fills it in."""

    text: Annotated[str, Field(description="Some.")] = "x"
    whole: int = 3
    number: float = 2.5
    flag: bool = True
    plain: Literal["a", "b"] = "b"
    size: Annotated[Fit, Field(json_schema_extra={"enumNames": ["Small", "Large"]})] = Fit.LARGE
    named: Annotated[str, Field(json_schema_extra={"oneOf": titled("First", "Second")})] = "F"
    several: list[Literal["a", "b"]] = ["a"]
    sizes: list[Fit]
    several_named: list[Annotated[str, Field(json_schema_extra={"anyOf": titled("First", "Second")})]]
    written_out: Annotated[list[str], Field(json_schema_extra={"items": {"anyOf": titled("Only")}}, min_length=1)]
    maybe: int | None = None


async def test_a_form_has_exactly_the_fields_the_protocol_knows() -> None:
    backend = Backend({"action": "decline"})
    await running(backend).elicit("Fill in", Order)
    schema = backend.asked[0][2]["schema"]
    assert list(schema) == ["title", "type", "properties", "required"]
    assert schema["title"] == "Order"
    assert schema["required"] == ["sizes", "several_named", "written_out"]
    fields = {name: {k: v for k, v in field.items() if k != "title"} for name, field in schema["properties"].items()}
    assert fields == {
        "text": {"type": "string", "description": "Some.", "default": "x"},
        "whole": {"type": "integer", "default": 3},
        "number": {"type": "number", "default": 2.5},
        "flag": {"type": "boolean", "default": True},
        "plain": {"type": "string", "enum": ["a", "b"], "default": "b"},
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"], "default": "l"},
        "named": {"type": "string", "oneOf": titled("First", "Second"), "default": "F"},
        "several": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
        "sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}},
        "several_named": {"type": "array", "items": {"anyOf": titled("First", "Second")}},
        "written_out": {"type": "array", "items": {"anyOf": titled("Only")}, "minItems": 1},
        "maybe": {"type": "integer"},
    }
