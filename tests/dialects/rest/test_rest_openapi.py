"""The OpenAPI document: valid, complete, and readable the way Open WebUI reads it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from openapi_spec_validator import validate
from referencing import Registry as References
from referencing.jsonschema import DRAFT202012

from tests.dialects.rest.world import BEARER, ECHO, SHARED, entry, tool, world
from tests.edge.world import ask
from tooldock.dialects.rest.openapi import Moved
from tooldock.model import Tool

PERSON = {
    "type": "object",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
        "Address": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "of": {"$ref": "#/$defs/Person"}},
        },
        "Person": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "home": {"$ref": "#/$defs/Address"},
                "friends": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
            },
            "required": ["name"],
        },
        "odd name/~": {"enum": ["a", "b"]},
    },
    "properties": {
        "who": {"$ref": "#/$defs/Person", "description": "Whom"},
        "either": {"anyOf": [{"$ref": "#/$defs/Address"}, {"type": "null"}], "default": None},
        "city": {"$ref": "#/$defs/Address/properties/city"},
        "again": {"$ref": "#/properties/who"},
        "tree": {"type": "array", "items": {"$ref": "#"}},
        "odd": {"$ref": "#/$defs/odd%20name~1~0"},
        "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Address"}},
        "old": {"$ref": "#/definitions/Old"},
    },
    "definitions": {"Old": {"type": "integer"}},
    "required": ["who"],
    "additionalProperties": False,
}
WRAPPED = {
    "type": "object",
    "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/Row"}}},
    "required": ["result"],
    "x-fastmcp-wrap-result": True,
    "$defs": {"Row": {"type": "object", "properties": {"id": {"type": "integer"}}}},
}
PLAIN = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


def _tools() -> list[Tool]:
    return [
        ECHO,
        tool("add_person", PERSON, description="Add one.", output_schema=WRAPPED),
        tool("a.b-c_d", {"type": "object", "properties": {}}, title="Dotted", output_schema=PLAIN),
        tool("second", PERSON),
    ]


async def _document(**headers: str) -> dict[str, Any]:
    here = world(entry("shared", *_tools(), description="All of it.", version="2.1"))
    answer = await ask(here.app, "GET", "/openapi.json", {**SHARED, **headers})
    assert answer.status == 200
    document: dict[str, Any] = answer.json()
    return document


def _taken(document: dict[str, Any], name: str) -> Any:
    return document["paths"][f"/tools/{name}"]["post"]["requestBody"]["content"]["application/json"]["schema"]


def _given(document: dict[str, Any], name: str) -> Any:
    answers = document["paths"][f"/tools/{name}"]["post"]["responses"]
    return answers["200"]["content"]["application/json"]["schema"]


async def test_the_document_is_valid_openapi() -> None:
    validate(await _document())


async def test_it_says_where_who_and_how() -> None:
    document = await _document(host="localhost:8123")
    assert document["openapi"] == "3.1.0"
    assert document["info"] == {"title": "shared", "version": "2.1", "description": "All of it."}
    assert document["servers"] == [{"url": "http://localhost:8123/ns/shared"}]
    assert document["security"] == [{"bearer": []}]
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}


async def test_the_server_follows_the_request_though_the_rest_is_rendered_once() -> None:
    here = world()
    urls = []
    for host in ("localhost:1", "localhost:2"):
        answer = await ask(here.app, "GET", "/ns/shared/openapi.json", {**BEARER, "host": host})
        urls.append(answer.json()["servers"][0]["url"])
    assert urls == ["http://localhost:1/ns/shared", "http://localhost:2/ns/shared"]


async def test_each_tool_is_one_operation_and_there_is_no_other() -> None:
    document = await _document()
    assert list(document["paths"]) == [f"/tools/{one.name}" for one in _tools()]
    for path, item in document["paths"].items():
        (method,) = item
        assert method == "post"
        assert item["post"]["operationId"] == path.removeprefix("/tools/")
        assert item["post"]["summary"]
        assert item["post"]["description"]
    summaries = [item["post"]["summary"] for item in document["paths"].values()]
    assert summaries == ["Echo", "Add one.", "Dotted", "second"]


def _references(node: Any) -> list[str]:
    """Every reference in schema position, found independently of how the document was made."""
    found: list[str] = []
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("default", "examples", "enum", "const"):
                continue
            if key == "$ref" and isinstance(value, str):
                found.append(value)
            else:
                found += _references(value)
    elif isinstance(node, list):
        for value in node:
            found += _references(value)
    return found


async def test_every_reference_resolves() -> None:
    document = await _document()
    resolver = References().with_resource("", DRAFT202012.create_resource(document)).resolver()
    references = _references(document)
    assert len(references) > 20
    for reference in references:
        assert reference.startswith("#/components/schemas/"), reference
        assert resolver.lookup(reference).contents is not None
    schemas = document["components"]["schemas"]
    who = document["paths"]["/tools/add_person"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert who["properties"]["who"]["$ref"] == "#/components/schemas/add_person.input.Person"
    assert schemas["add_person.input.Person"]["properties"]["name"] == {"type": "string"}
    city = resolver.lookup(who["properties"]["city"]["$ref"]).contents
    assert city == {"type": "string"}
    assert resolver.lookup(who["properties"]["odd"]["$ref"]).contents == {"enum": ["a", "b"]}
    assert resolver.lookup(who["properties"]["old"]["$ref"]).contents == {"type": "integer"}
    assert resolver.lookup(who["properties"]["tree"]["items"]["$ref"]).contents == who


async def test_data_that_looks_like_a_reference_is_left_alone() -> None:
    properties = {
        "data": {
            "default": {"$ref": "#/$defs/X"},
            "examples": [{"$ref": "#/$defs/X"}],
            "enum": [{"$ref": "#"}],
        },
        "$ref": {"type": "string", "description": "A property that happens to have this name"},
        "real": {"$ref": "#/$defs/X"},
    }
    here = world(entry("shared", tool("odd", {"properties": properties, "$defs": {"X": {"type": "null"}}})))
    schema = _taken((await ask(here.app, "GET", "/openapi.json", SHARED)).json(), "odd")
    assert schema["properties"]["data"] == properties["data"]
    assert schema["properties"]["$ref"] == properties["$ref"]
    assert schema["properties"]["real"] == {"$ref": "#/components/schemas/odd.input.X"}


async def test_what_a_schema_says_about_itself_does_not_reach_the_document() -> None:
    schema = _taken(await _document(), "second")
    assert not {"$defs", "definitions", "$schema", "$id"} & set(schema)


async def test_the_tools_own_schema_is_not_changed() -> None:
    before = copy.deepcopy(PERSON)
    await _document()
    assert before == PERSON


async def test_the_answer_is_described_as_it_is_sent() -> None:
    document = await _document()

    def answer(name: str) -> Any:
        return document["paths"][f"/tools/{name}"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]

    assert answer("add_person") == {
        "type": "array",
        "items": {"$ref": "#/components/schemas/add_person.output.Row"},
    }
    assert answer("a.b-c_d") == PLAIN
    assert answer("echo") == {}


def open_webui_tools(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """How Open WebUI turns a document into tools: operations by operationId, the JSON body's properties as
    parameters, references followed through `components`."""
    components = document.get("components", {})

    def resolve(schema: Any, seen: frozenset[str] = frozenset()) -> Any:
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema and isinstance(schema["$ref"], str):
            reference = schema["$ref"]
            if reference in seen:
                return {}
            target: Any = {"components": components}
            for part in reference.removeprefix("#/").split("/"):
                target = target[part]
            return resolve(target, seen | {reference})
        resolved = dict(schema)
        if "properties" in resolved:
            resolved["properties"] = {name: resolve(one, seen) for name, one in resolved["properties"].items()}
        if "items" in resolved:
            resolved["items"] = resolve(resolved["items"], seen)
        return resolved

    tools = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            schema = resolve(operation["requestBody"]["content"]["application/json"]["schema"])
            tools[operation["operationId"]] = {
                "url": document["servers"][0]["url"] + path,
                "method": method,
                "description": operation["description"],
                "properties": schema["properties"],
                "required": schema.get("required", []),
            }
    return tools


async def test_open_webui_finds_every_tool_with_its_parameters_and_can_call_it() -> None:
    here = world(entry("shared", *_tools()))
    document = (await ask(here.app, "GET", "/ns/shared/openapi.json", BEARER)).json()
    tools = open_webui_tools(document)
    assert set(tools) == {one.name for one in _tools()}
    person = tools["add_person"]
    assert person["required"] == ["who"]
    assert person["properties"]["who"]["properties"]["home"]["properties"]["city"] == {"type": "string"}
    echo = tools["echo"]
    assert echo["properties"] == {"text": {"type": "string"}}
    path = echo["url"].removeprefix("http://127.0.0.1:8000")
    assert (await ask(here.app, echo["method"].upper(), path, BEARER, b'{"text": "hi"}')).status == 200


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "properties": {"x": True}}])
async def test_sparse_schemas_are_valid_too(schema: dict[str, Any]) -> None:
    here = world(entry("shared", tool("sparse", schema)))
    validate((await ask(here.app, "GET", "/openapi.json", SHARED)).json())


async def test_a_namespace_without_tools_has_an_empty_document() -> None:
    here = world(entry("empty"))
    document = (await ask(here.app, "GET", "/ns/empty/openapi.json", BEARER)).json()
    validate(document)
    assert document["paths"] == {}


def test_definitions_whose_names_come_out_the_same_stay_apart() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/日本"},
            "b": {"$ref": "#/$defs/東京"},
            "c": {"$ref": "#/definitions/日本"},
        },
        "$defs": {"日本": {"type": "string"}, "東京": {"type": "integer"}},
        "definitions": {"日本": {"type": "boolean"}},
    }
    schemas: dict[str, Any] = {}
    moved = Moved("t.input", schema, schemas).schema["properties"]
    kinds = [schemas[moved[name]["$ref"].removeprefix("#/components/schemas/")]["type"] for name in "abc"]
    assert kinds == ["string", "integer", "boolean"]
