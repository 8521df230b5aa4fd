"""What each revision gets to see, and nothing that it does not know."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from tooldock.dialects.mcp import shape
from tooldock.dialects.mcp.revisions import (
    HANDSHAKE,
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
)
from tooldock.errors import ExecutionTimeout, NoBackChannel, ToolFailed
from tooldock.model import Argument, Outcome, Prompt, Resource, Tool

ALL = (*HANDSHAKE, R2026_07_28)
ICON = {"src": "https://example.com/i.png", "mimeType": "image/png"}
LIST_SCHEMA = {"type": "array", "items": {"$ref": "#/$defs/Row"}, "$defs": {"Row": {"type": "string"}}}
WRAPPED = {"type": "object", "properties": {"result": {"type": "string"}}, "x-fastmcp-wrap-result": True}


def rich(**more: Any) -> Tool:
    return Tool(
        namespace="n",
        name="t",
        title="T",
        description="d",
        annotations={"readOnlyHint": True},
        icons=(ICON,),
        output_schema={"type": "object"},
        meta={"k": 1},
        **more,
    )


def plain(**more: Any) -> Tool:
    return Tool(namespace="n", name="t", **more)


def result(outcome: Outcome, tool: Tool, revision: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shape.call_result(outcome, tool, revision))
    return found


MEMBERS = {
    R2024_11_05: {"name", "description", "inputSchema"},
    R2025_03_26: {"name", "description", "inputSchema", "annotations"},
    R2025_06_18: {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"},
    R2025_11_25: {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta", "icons"},
    R2026_07_28: {"name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta", "icons"},
}


@pytest.mark.parametrize("revision", ALL)
def test_g48_a_tool_has_exactly_the_members_its_revision_knows(revision: str) -> None:
    assert shape.tool(rich(), revision).keys() == MEMBERS[revision]


def test_g48_the_title_is_a_hint_where_it_is_no_member_yet() -> None:
    assert shape.tool(rich(), R2025_03_26)["annotations"] == {"readOnlyHint": True, "title": "T"}


@pytest.mark.parametrize("revision", ALL)
def test_g48_icons_of_resources_and_prompts_appear_with_2025_11_25(revision: str) -> None:
    resource = Resource(namespace="n", uri="a://b", name="r", title="R", icons=(ICON,), size=3, mime_type="text/plain")
    prompt = Prompt(namespace="n", name="p", title="P", icons=(ICON,), arguments=(Argument(name="a", required=True),))
    for shaped in (shape.resource(resource, revision), shape.prompt(prompt, revision)):
        assert ("icons" in shaped) == (revision >= R2025_11_25)
        assert ("title" in shaped) == (revision >= R2025_06_18)


def test_a_template_is_named_as_one_and_has_no_size() -> None:
    shaped = shape.resource(Resource(namespace="n", uri="a://{b}", name="r", size=3), R2025_11_25, template=True)
    assert shaped == {"uriTemplate": "a://{b}", "name": "r"}


def test_the_arguments_of_a_prompt_say_what_they_need() -> None:
    prompt = Prompt(
        namespace="n",
        name="p",
        arguments=(Argument(name="a", description="A", required=True), Argument(name="b", values=("x",))),
    )
    assert shape.prompt(prompt, R2025_11_25)["arguments"] == [
        {"name": "a", "description": "A", "required": True},
        {"name": "b", "required": False},
    ]


def test_g48_a_schema_that_is_no_object_is_wrapped_until_2026_07_28() -> None:
    tool = plain(output_schema=LIST_SCHEMA)
    assert shape.tool(tool, R2026_07_28)["outputSchema"] == LIST_SCHEMA
    assert shape.tool(tool, R2025_11_25)["outputSchema"] == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Row"}}},
        "required": ["result"],
        "$defs": {"Row": {"type": "string"}},
    }
    assert "outputSchema" not in shape.tool(tool, R2025_03_26)


def test_g48_the_value_is_wrapped_exactly_where_the_schema_is() -> None:
    tool = plain(output_schema=LIST_SCHEMA)
    assert result(Outcome("ok", b'["a"]'), tool, R2026_07_28)["structuredContent"] == ["a"]
    assert result(Outcome("ok", b'["a"]'), tool, R2025_11_25)["structuredContent"] == {"result": ["a"]}
    assert "structuredContent" not in result(Outcome("ok", b'["a"]'), tool, R2025_03_26)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"items": {"$ref": "#"}}}},
        {"type": "array", "items": {"$ref": "#/definitions/A"}, "definitions": {"A": {}}},
    ],
)
def test_g48_a_schema_that_refers_to_what_wrapping_would_move_is_left_out_instead_of_broken(
    schema: dict[str, Any],
) -> None:
    tool = plain(output_schema=schema)
    assert "outputSchema" not in shape.tool(tool, R2025_11_25)
    assert shape.tool(tool, R2026_07_28)["outputSchema"] == schema


def test_an_input_schema_always_says_that_it_is_an_object() -> None:
    assert shape.tool(plain(input_schema={"properties": {}}), R2025_11_25)["inputSchema"]["type"] == "object"


@pytest.mark.parametrize("revision", ALL)
def test_g49_structured_content_is_also_there_as_text(revision: str) -> None:
    answer = result(Outcome("ok", b'{"a":1}'), plain(output_schema={"type": "object"}), revision)
    assert json.loads(answer["content"][0]["text"]) == {"a": 1}
    assert answer.get("structuredContent") == ({"a": 1} if revision >= R2025_06_18 else None)
    assert answer["isError"] is False


def test_g49_a_wrapped_result_is_structured_as_its_schema_says() -> None:
    answer = result(Outcome("ok", b'"hi"'), plain(output_schema=WRAPPED), R2025_11_25)
    assert answer == {
        "content": [{"type": "text", "text": "hi"}],
        "structuredContent": {"result": "hi"},
        "isError": False,
    }


def test_an_object_is_structured_even_without_a_promise_and_a_text_is_not() -> None:
    assert result(Outcome("ok", b'{"a":1}'), plain(), R2025_11_25)["structuredContent"] == {"a": 1}
    assert "structuredContent" not in result(Outcome("ok", b'"a"'), plain(), R2025_11_25)
    assert result(Outcome("ok", b"null"), plain(), R2025_11_25)["content"] == []


@pytest.mark.parametrize("revision", ALL)
def test_g52_results_of_the_stateless_revision_say_that_they_are_complete(revision: str) -> None:
    for outcome in (Outcome("ok", b'"a"'), Outcome("error", error=ToolFailed("x")), Outcome("ok", content=({},))):
        answer = result(outcome, plain(), revision)
        assert ("resultType" in answer) == (revision >= R2026_07_28)
        if revision >= R2026_07_28:
            assert answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tooldock"


def test_g52_lists_carry_cache_hints_in_the_stateless_revision_only() -> None:
    assert json.loads(shape.complete(b'{"tools":[]}', R2025_11_25, ttl_ms=5)) == {"tools": []}
    modern = json.loads(shape.complete(b'{"tools":[]}', R2026_07_28, ttl_ms=5))
    assert (modern["ttlMs"], modern["cacheScope"], modern["resultType"]) == (5, "private", "complete")
    assert json.loads(shape.complete(b"{}", R2026_07_28))["resultType"] == "complete"


AUDIO = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "a://b", "name": "b", "icons": [ICON]}


@pytest.mark.parametrize("revision", ALL)
def test_g48_blocks_an_old_revision_cannot_show_become_text(revision: str) -> None:
    kinds = [block["type"] for block in result(Outcome("ok", content=(AUDIO, LINK)), plain(), revision)["content"]]
    assert kinds == [
        "audio" if revision >= R2025_03_26 else "text",
        "resource_link" if revision >= R2025_06_18 else "text",
    ]


NOTES = {"audience": ["user"], "lastModified": "2025-01-01T00:00:00Z"}
INSIDE = {"uri": "a://b", "text": "t", "_meta": {"k": 1}}
EMBEDDED = {"type": "resource", "resource": INSIDE, "annotations": NOTES, "_meta": {"k": 1}}


@pytest.mark.parametrize("revision", ALL)
def test_g48_blocks_have_no_member_their_revision_does_not_know(revision: str) -> None:
    embedded, link = result(Outcome("ok", content=(EMBEDDED, LINK)), plain(), revision)["content"]
    for part in (embedded, embedded["resource"]):
        assert ("_meta" in part) == (revision >= R2025_06_18)
    assert ("lastModified" in embedded["annotations"]) == (revision >= R2025_06_18)
    assert embedded["annotations"]["audience"] == ["user"]
    assert ("icons" in link) == (revision >= R2025_11_25)


@pytest.mark.parametrize("revision", ALL)
def test_g48_a_resource_has_no_annotation_its_revision_does_not_know(revision: str) -> None:
    noted = shape.resource(Resource(namespace="n", uri="a://b", name="r", annotations=NOTES), revision)
    assert ("lastModified" in noted["annotations"]) == (revision >= R2025_06_18)
    dated = shape.resource(
        Resource(namespace="n", uri="a://b", name="r", annotations={"lastModified": "2025"}), revision
    )
    assert ("annotations" in dated) == (revision >= R2025_06_18)


@pytest.mark.parametrize("revision", ALL)
def test_g48_what_is_read_has_no_member_its_revision_does_not_know(revision: str) -> None:
    (part,) = json.loads(shape.read_result(orjson.dumps({"contents": [INSIDE]}), revision))["contents"]
    assert ("_meta" in part) == (revision >= R2025_06_18)
    assert part["text"] == "t"


@pytest.mark.parametrize("revision", ALL)
def test_g48_a_prompts_blocks_are_shaped_as_well(revision: str) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": item} for item in (AUDIO, LINK)]})
    sound, link = (entry["content"] for entry in json.loads(shape.prompt_result(body, revision))["messages"])
    assert sound["type"] == ("audio" if revision >= R2025_03_26 else "text")
    assert link["type"] == ("resource_link" if revision >= R2025_06_18 else "text")
    assert ("icons" in link) == (revision >= R2025_11_25)


@pytest.mark.parametrize("revision", ALL)
def test_g52_a_resource_and_a_prompt_keep_their_own_meta_beside_the_servers(revision: str) -> None:
    read = shape.read_result(orjson.dumps({"contents": [], "_meta": {"k": 1}}), revision)
    got = shape.prompt_result(orjson.dumps({"messages": [], "_meta": {"k": 1}}), revision)
    for body in (read, got):
        assert body.count(b'"_meta"') == 1
        answer = json.loads(body)
        assert answer["_meta"]["k"] == 1
        assert ("resultType" in answer) == (revision >= R2026_07_28)
        assert ("io.modelcontextprotocol/serverInfo" in answer["_meta"]) == (revision >= R2026_07_28)


def test_a_failure_is_a_result_the_model_can_read_with_facts_for_programs() -> None:
    outcome = Outcome("error", error=ExecutionTimeout("too slow", seconds=1))
    answer = result(outcome, plain(), R2025_11_25)
    assert answer["isError"] is True
    assert answer["content"] == [{"type": "text", "text": "too slow"}]
    assert answer["structuredContent"]["error"]["code"] == "execution_timeout"
    assert "structuredContent" not in result(outcome, plain(), R2025_03_26)


def test_g49_a_failure_never_pretends_to_be_what_the_tool_promised() -> None:
    answer = result(Outcome("error", error=ToolFailed("x")), plain(output_schema=WRAPPED), R2025_11_25)
    assert "structuredContent" not in answer
    assert answer["_meta"]["tooldock/error"]["code"] == "tool_error"


def test_g49_a_cut_result_does_not_pretend_to_fit_the_schema() -> None:
    answer = result(Outcome("ok", b'"abc"', truncated=5), plain(output_schema=WRAPPED), R2025_11_25)
    assert answer["isError"] is True
    assert "structuredContent" not in answer
    assert answer["content"][0]["text"] == "abc"


def test_content_of_a_tool_that_says_it_failed_is_shown_as_it_is() -> None:
    outcome = Outcome("error", content=({"type": "text", "text": "no"},), error=ToolFailed("no"), meta={"m": 1})
    answer = result(outcome, plain(), R2025_11_25)
    assert (answer["content"][0]["text"], answer["isError"], answer["_meta"]) == ("no", True, {"m": 1})


def test_meta_of_a_tool_and_of_the_server_stand_side_by_side() -> None:
    answer = result(Outcome("ok", b'"a"', meta={"m": 1}), plain(), R2026_07_28)
    assert answer["_meta"].keys() == {"m", "io.modelcontextprotocol/serverInfo"}


def test_an_implementation_is_described_as_far_as_the_revision_goes() -> None:
    assert shape.implementation("n", "about", R2024_11_05).keys() == {"name", "version"}
    assert shape.implementation("n", "about", R2025_06_18).keys() == {"name", "version", "title"}
    assert shape.implementation("n", "about", R2025_11_25).keys() == {"name", "version", "title", "description"}


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "Ann"},
        "sure": {"type": "boolean", "default": True},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}], "default": "s"},
    },
    "required": ["name"],
}


def test_g48_a_form_has_only_what_its_revision_knows() -> None:
    assert shape.form(FORM, R2025_11_25) is FORM
    assert shape.form(FORM, R2026_07_28) is FORM
    assert shape.form(FORM, R2025_06_18) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "sure": {"type": "boolean", "default": True},
            "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "l"]},
        },
        "required": ["name"],
    }


def test_g53_a_form_that_a_revision_cannot_show_is_not_asked() -> None:
    several = {"type": "object", "properties": {"tags": {"type": "array", "items": {"enum": ["a"]}}}}
    with pytest.raises(NoBackChannel, match="tags"):
        shape.form(several, R2025_06_18)
