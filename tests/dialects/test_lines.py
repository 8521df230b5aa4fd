"""The line protocol: what a line means, and the seven fields every answer has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tooldock import errors
from tooldock.dialects import lines
from tooldock.errors import InvalidArguments, MalformedRequest, ToolDockError
from tooldock.model import Outcome, Tool

FIELDS = ["ok", "need_confirm", "summary", "data", "stdout", "stderr", "metrics"]


def answer(line: bytes) -> dict[str, Any]:
    assert b"\n" not in line
    value: dict[str, Any] = json.loads(line)
    assert [key for key in value if key != "id"] == FIELDS
    assert isinstance(value["ok"], bool)
    assert isinstance(value["need_confirm"], bool)
    assert value["data"] is None or isinstance(value["data"], dict)
    assert {"elapsed_ms", "exit_code"} <= set(value["metrics"])
    return value


@pytest.mark.parametrize(
    ("value", "belongs"),
    [
        ({"method": "list_tools"}, True),
        ({"method": None}, True),
        ({"method": "tools/list", "id": 1}, True),
        ({"jsonrpc": "2.0", "method": "list_tools"}, False),
        ({"jsonrpc": None, "method": "list_tools"}, False),
        ({"name": "echo"}, False),
        ([], False),
        ("method", False),
    ],
)
def test_a_line_is_one_of_ours_if_it_has_a_method_and_does_not_claim_to_be_json_rpc(value: Any, belongs: bool) -> None:
    assert lines.is_request(value) is belongs


def test_what_is_not_needed_may_be_left_out() -> None:
    assert lines.read({"method": "list_tools", "more": 1}) == lines.LineRequest("list_tools", "", {})
    assert lines.read({"method": "call_tool", "name": "echo"}) == lines.LineRequest("call_tool", "echo", {})
    assert lines.read({"method": "call_tool", "name": "echo", "args": None}).args == {}


@pytest.mark.parametrize("method", ["dance", "", None, 7, [], {}, "x" * 10_000, "LIST_TOOLS"])
def test_an_unknown_method_is_told_which_there_are(method: Any) -> None:
    with pytest.raises(MalformedRequest) as caught:
        lines.read({"method": method})
    assert caught.value.details["supported_methods"] == ["list_tools", "call_tool"]
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({}, ["name"]),
        ({"name": ""}, ["name"]),
        ({"name": 7, "args": []}, ["name", "args"]),
        ({"name": "echo", "args": "text"}, ["args"]),
    ],
)
def test_every_field_that_is_wrong_is_named(fields: dict[str, Any], wrong: list[str]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        lines.read({"method": "call_tool", **fields})
    assert [error["path"] for error in caught.value.details["errors"]] == wrong
    assert all(name in caught.value.message for name in wrong)


@pytest.mark.parametrize("id", [1, "a", None, 1.5, [1, {"a": 2}], 2**80, ""])
def test_an_id_is_repeated_whatever_it_is(id: Any) -> None:
    found = lines.id_of({"method": "list_tools", "id": id})
    assert answer(lines.tools([], found))["id"] == id
    assert answer(lines.result("echo", Outcome("ok", b'{"a":1}'), found))["id"] == id
    assert answer(lines.failure(MalformedRequest("no"), found))["id"] == id


def test_without_an_id_there_is_none_in_the_answer() -> None:
    assert "id" not in answer(lines.tools([], lines.id_of({"method": "list_tools"})))
    assert "id" not in answer(lines.failure(MalformedRequest("no"), lines.id_of("nonsense")))


def test_the_tools_are_listed_with_their_schemas() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**70}}}
    listed = answer(lines.tools([Tool(namespace="a", name="echo", description="Again.", input_schema=schema)]))
    assert listed["data"] == {"tools": [{"name": "echo", "description": "Again.", "inputSchema": schema}]}
    assert listed["summary"] == "Available tools: 1 tool found"
    assert listed["ok"]


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b'{"a":[1,2]}', {"a": [1, 2]}),
        (b'"text"', {"result": "text"}),
        (b"[1]", {"result": [1]}),
        (b"0", {"result": 0}),
        (b"null", None),
    ],
)
def test_data_is_an_object_or_null(body: bytes, data: Any) -> None:
    found = answer(lines.result("echo", Outcome("ok", body, elapsed_ms=1.23456)))
    assert found["data"] == data
    assert found["metrics"] == {"elapsed_ms": 1.235, "exit_code": 0}


def test_content_blocks_and_what_was_printed_are_passed_on() -> None:
    block = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    outcome = Outcome("ok", b"null", content=(block,), stdout="out\n", stderr="err", truncated=12)
    found = answer(lines.result("draw", outcome))
    assert found["data"] == {"content": [block]}
    assert (found["stdout"], found["stderr"]) == ("out\n", "err")
    assert found["metrics"]["truncated_bytes"] == 12


@pytest.mark.parametrize("cls", list(errors.BY_CODE.values()))
def test_every_error_becomes_the_same_seven_fields(cls: type[ToolDockError]) -> None:
    error = cls("What happened.", tool="echo", odd={1, 2}, huge=2**80)
    found = answer(lines.result("echo", Outcome("error", error=error, elapsed_ms=7)))
    assert found["ok"] is False
    assert found["summary"] == "What happened."
    assert found["data"]["error"] == cls.code
    assert found["data"]["tool"] == "echo"
    assert found["need_confirm"] is (cls.code == "confirmation_required")
    expected = {"execution_timeout": 124, "cancelled": 130}.get(cls.code, 1)
    assert found["metrics"] == {"elapsed_ms": 7, "exit_code": expected}


def test_the_exit_code_of_a_command_is_its_own() -> None:
    outcome = Outcome("error", error=errors.ToolFailed("It ended with 3."), exit_code=3, stderr="bad")
    found = answer(lines.result("run", outcome))
    assert (found["metrics"]["exit_code"], found["stderr"]) == (3, "bad")
