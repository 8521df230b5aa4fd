"""Resources and prompts of a folder, in this process: how they are described, bound and refused."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tooldock_worker import readings
from tooldock_worker.context import Context
from tooldock_worker.light.decorator import record_of
from tooldock_worker.light.prompts import Message, PromptResult, prompt
from tooldock_worker.light.resources import ResourceContent, ResourceResult, ResourceSecurity, resource
from tooldock_worker.problems import BadArguments
from tooldock_worker.readings import Reading, TemplateReading
from tooldock_worker.schema import SchemaError


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def made(fn: Callable[..., Any]) -> Any:
    record = record_of(fn)
    make = readings.prompt if record.type == "prompt" else readings.resource
    return make("pages.py", fn, record, None)


def read(item: Reading, uri: str = "data://x", /, **arguments: Any) -> Any:
    return json.loads(item.encode(item.fn(**item.bind(arguments)), uri))


# Decorators.


def test_a_decorator_leaves_the_function_as_it_is() -> None:
    def plain() -> str:
        return "as it is"

    assert resource("data://x")(plain) is plain
    assert prompt(plain) is plain
    assert plain() == "as it is"
    assert record_of(plain).type == "prompt"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: resource(print), "takes a URI"),  # type: ignore[arg-type]
        (lambda: prompt(classmethod(print)), "class method"),  # type: ignore[call-overload]
        (lambda: prompt("a", name="b"), "given twice"),
        (lambda: prompt(7), "not int"),  # type: ignore[call-overload]
        (lambda: Message("x", role="system"), "'system'"),  # type: ignore[arg-type]
        (lambda: PromptResult(["x"]), "messages\\[0\\]"),
        (lambda: ResourceResult(["x"]), "contents\\[0\\]"),
    ],
)
def test_a_decorator_or_value_used_wrongly_says_how(wrong: Callable[[], Any], why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        wrong()


class Model(BaseModel):
    n: int = 1


MODEL = Model()


# Describing.


def test_a_resource_is_described_as_the_protocol_spells_it() -> None:
    @resource(
        "data://x",
        name="x",
        title="X",
        description="It is X.",
        mime_type="text/x",
        annotations={"last_modified": "2024-01-01", "priority": 1, "readOnlyHint": True},
        icons=[{"src": "x.png"}],
        tags={"b", "a"},
        meta={"m": 1},
        version=2,
    )
    def fn() -> str:
        return ""

    assert made(fn).describe() == {
        "uri": "data://x",
        "name": "x",
        "title": "X",
        "description": "It is X.",
        "mimeType": "text/x",
        "annotations": {"lastModified": "2024-01-01", "priority": 1},
        "icons": [{"src": "x.png"}],
        "tags": ["a", "b"],
        "meta": {"m": 1},
        "version": "2",
        "file": "pages.py",
    }


def test_parameters_are_described_with_the_texts_they_take() -> None:
    @prompt
    def fn(
        text: Annotated[str, Field(description="Any.")],
        one: Literal["a", 1, None],
        color: Color | None,
        flag: bool = False,
        number: int = 1,
        either: Literal["x"] | bool = True,
        open_ended: Literal["x"] | str = "x",
        model: Model | None = None,
        plain: Model = MODEL,
        anything: Any = None,
    ) -> str:
        """Say something.

        Args:
            number: How many.
        """
        return ""

    assert made(fn).describe() == {
        "name": "fn",
        "description": "Say something.",
        "arguments": [
            {"name": "text", "required": True, "description": "Any."},
            {"name": "one", "required": True, "values": ["a", "1"], "description": "One of: a, 1."},
            {"name": "color", "required": True, "values": ["red", "blue"], "description": "One of: red, blue."},
            {"name": "flag", "required": False, "values": ["true", "false"], "description": "One of: true, false."},
            {
                "name": "number",
                "required": False,
                "description": 'How many.\nWritten as JSON that fits {"type": "integer"}.',
            },
            {
                "name": "either",
                "required": False,
                "values": ["x", "true", "false"],
                "description": "One of: x, true, false.",
            },
            {"name": "open_ended", "required": False},
            {"name": "model", "required": False, "description": "Written as JSON."},
            {
                "name": "plain",
                "required": False,
                "description": 'Written as JSON that fits {"properties": {"n": {"default": 1, "type": "integer"}}, '
                '"type": "object"}.',
            },
            {"name": "anything", "required": False},
        ],
        "file": "pages.py",
    }


def test_a_template_s_parameters_are_named_as_the_template_spells_them() -> None:
    @resource("data://{user-id}{?full-text}")
    def fn(user_id: str, full_text: bool = False, ctx: Context | None = None) -> str:
        return ""

    item = made(fn)
    assert isinstance(item, TemplateReading)
    assert item.describe()["arguments"] == [
        {"name": "user-id", "required": True},
        {"name": "full-text", "required": False, "values": ["true", "false"]},
    ]
    assert item.context_parameter == "ctx"
    assert item.key == "data://{user-id}{?full-text}"


def _refused() -> list[tuple[Callable[..., Any], str]]:
    def none() -> str:
        return ""

    def one(a: str) -> str:
        return a

    def spread(*a: str) -> str:
        return ""

    return [
        (resource("no-scheme")(none), "lacks a scheme"),
        (resource("data://x")(lambda: ""), "lambda"),
        (resource("data://x", name="a\nb")(lambda: ""), "printable"),
        (
            resource("data://x", name="x", auth=print)(
                lambda: "",
            ),
            "auth",
        ),
        (resource("data://x", name="x", meta={"a": object()})(lambda: ""), "JSON"),
        (resource("data://x", name="x")(lambda a: a), "does not name"),
        (resource("data://{a}/{b}", name="x")(lambda a: a), "no parameter of the function"),
        (resource("data://{a}", name="x")(lambda a, b: a), "does not name"),
        (resource("data://{?a}", name="x")(lambda a: a), "needs a default"),
        (resource("data://{a", name="x")(lambda a: a), "brace"),
        (resource("data://x", name="x", mime_type=7)(lambda: ""), "mimeType"),  # type: ignore[arg-type]
        (resource("data://x", name="x", meta="m")(lambda: ""), "meta"),  # type: ignore[arg-type]
        (resource("data://{a}", name="x", security=ResourceSecurity(exempt_params=None))(lambda a: a), "security"),  # type: ignore[arg-type]
        (resource("data://a\nb", name="x")(lambda: ""), "control character"),
        (prompt(name="x", title=5)(lambda: ""), "title"),  # type: ignore[call-overload]
        (prompt(name="x", description=6)(lambda: ""), "description"),  # type: ignore[call-overload]
        (prompt(lambda: ""), "lambda"),
        (prompt(name="x" * 129)(one), "printable"),
        (prompt(spread), "passed by name"),
    ]


@pytest.mark.parametrize(("fn", "why"), _refused())
def test_what_cannot_be_served_is_refused_with_the_reason(fn: Callable[..., Any], why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        made(fn)


# Arguments.


def test_a_prompt_s_texts_become_what_it_asks_for() -> None:
    @prompt
    def fn(text: str, number: int, flag: bool, color: Color, items: list[int], day: Literal[1, 2] = 1) -> str:
        return repr((text, number, flag, color, items, day))

    given = {"text": "[1]", "number": "7", "flag": "true", "color": "red", "items": "[1, 2]", "day": "2", "more": "x"}
    item = made(fn)
    assert item.bind(given) == {
        "text": "[1]",
        "number": 7,
        "flag": True,
        "color": Color.RED,
        "items": [1, 2],
        "day": 2,
    }


@pytest.mark.parametrize(
    ("given", "path"), [({}, "number"), ({"number": "seven"}, "number"), ({"number": "{}"}, "number")]
)
def test_a_prompt_s_arguments_that_do_not_fit_are_refused_without_repeating_them(
    given: dict[str, str], path: str
) -> None:
    @prompt
    def fn(number: int) -> str:
        return ""

    with pytest.raises(BadArguments) as caught:
        made(fn).bind(given)
    assert [problem["path"] for problem in caught.value.errors] == [path]
    assert "seven" not in str(caught.value)


def test_a_template_takes_lists_in_both_spellings() -> None:
    @resource("data://x{?a,b*}")
    def fn(a: list[int] | None = None, b: list[str] = []) -> str:  # noqa: B006
        return ""

    item = made(fn)
    assert item.bind(item.arguments("data://x?a=1,2&b=x&b=y%2Cz")) == {"a": [1, 2], "b": ["x", "y,z"]}
    assert item.bind(item.arguments("data://x")) == {"a": None, "b": []}


@pytest.mark.parametrize(
    "value", ["..", "../x", "a/../../b", "..\\x", "/etc/passwd", "\\\\host", "C:x", "%2e%2e", "a%00b", "%2Fetc"]
)
def test_a_uri_cannot_lead_a_function_out_of_its_folder(value: str) -> None:
    def fn(path: str) -> str:
        return path

    uri = f"data://{value}"
    assert made(resource("data://{path*}")(fn)).arguments(uri) is None
    assert made(resource("data://{path*}", security=None)(fn)).arguments(uri) is not None
    exempt = ResourceSecurity(exempt_params={"path"})
    assert made(resource("data://{path*}", security=exempt)(fn)).arguments(uri) is not None


@pytest.mark.parametrize("value", ["a/../b", "v1..v2", "a/b", "...", "ab:c", "x.tar.gz"])
def test_values_that_only_look_dangerous_pass(value: str) -> None:
    def fn(path: str) -> str:
        return path

    assert made(resource("data://{path*}")(fn)).arguments(f"data://{value}") == {"path": value}


# Results.


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("text", {"text": "text", "mimeType": "text/x"}),
        (b"\x00\xff", {"blob": "AP8=", "mimeType": "text/x"}),
        ({"a": [1, None]}, {"text": '{"a":[1,null]}', "mimeType": "text/x"}),
        (None, {"text": "null", "mimeType": "text/x"}),
        ([], {"text": "[]", "mimeType": "text/x"}),
        (Model(), {"text": '{"n":1}', "mimeType": "text/x"}),
        (ResourceResult("text"), {"text": "text", "mimeType": "text/plain"}),
        (ResourceResult(b"x"), {"blob": "eA==", "mimeType": "application/octet-stream"}),
        (ResourceResult({"n": 1}), {"text": '{"n":1}', "mimeType": "application/json"}),
        (ResourceContent("text"), {"text": "text", "mimeType": "text/plain"}),
        (
            [ResourceContent(Model(), meta={"m": 1})],
            {"text": '{"n":1}', "mimeType": "application/json", "_meta": {"m": 1}},
        ),
    ],
)
def test_whatever_a_resource_returns_becomes_contents(value: Any, part: dict[str, Any]) -> None:
    item = made(resource("data://x", name="x", mime_type="text/x")(lambda: value))
    assert read(item, "data://x") == {"contents": [{"uri": "data://x", **part}]}


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("hi", [("user", "hi")]),
        (["a", Message("b", role="assistant")], [("user", "a"), ("assistant", "b")]),
        (("a",), [("user", "a")]),
        (Message({"n": 1}), [("user", '{"n":1}')]),
        (PromptResult("hi"), [("user", "hi")]),
        ([{"role": "assistant", "content": {"type": "text", "text": "c"}}], [("assistant", "c")]),
        ([], []),
    ],
)
def test_whatever_a_prompt_returns_becomes_messages(value: Any, messages: list[tuple[str, str]]) -> None:
    item = made(prompt(name="x", description="X.")(lambda: value))
    expected = [{"role": role, "content": {"type": "text", "text": text}} for role, text in messages]
    assert read(item) == {"description": "X.", "messages": expected}
