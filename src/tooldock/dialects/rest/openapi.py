"""One namespace as an OpenAPI 3.1 document.

Clients that import such documents take each operation for a tool, so there is one operation per tool and no
other. A tool's schema is a document of its own, where `#` means that schema; here it is a part of a larger
one. So its definitions move to `components`, and every reference is rewritten to where its target went.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from tooldock.dialects.rest.envelope import dump
from tooldock.model import Tool

if TYPE_CHECKING:
    from tooldock.engine.registry import Entry

_RENDERED = "rest.openapi"
_MARK = b'"__servers__"'

_ONE = frozenset(
    (
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_MANY = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
_DEFINITIONS = ("$defs", "definitions")
_DROPPED = frozenset(("$schema", "$id", *_DEFINITIONS))
_MAX_SUMMARY = 120
_NAME = re.compile(r"[^A-Za-z0-9._-]")

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details", "request_id"],
            "properties": {
                "code": {"type": "string", "description": "Stable name of what went wrong."},
                "message": {"type": "string", "description": "What happened and what to do next."},
                "details": {"type": "object", "description": "The same for programs."},
                "request_id": {"type": "string"},
            },
        }
    },
}


def document(entry: Entry, server: str) -> bytes:
    """The description of a namespace at `server`. Rendered once per entry; only the server varies."""
    halves = entry.rendered.get(_RENDERED)
    if halves is None:
        halves = entry.rendered[_RENDERED] = dump(_describe(entry)).split(_MARK, 1)
    head, tail = halves
    rendered: bytes = head + dump([{"url": server}]) + tail
    return rendered


def _describe(entry: Entry) -> dict[str, Any]:
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths = {f"/tools/{quote(tool.name)}": {"post": _operation(tool, schemas)} for tool in entry.tools}
    return {
        "openapi": "3.1.0",
        "servers": "__servers__",
        "info": {
            "title": entry.name,
            "version": entry.version or entry.revision[:12] or "0",
            "description": entry.description or f"The tools of namespace {entry.name}.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": schemas,
        },
    }


def _operation(tool: Tool, schemas: dict[str, Any]) -> dict[str, Any]:
    arguments = Moved(f"{tool.name}.input", tool.input_schema, schemas).schema
    result: Any = {}
    if tool.output_schema is not None:
        result = _bare(Moved(f"{tool.name}.output", tool.output_schema, schemas).schema)
    failure = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "operationId": tool.name,
        "summary": tool.title or _first_line(tool.description) or tool.name,
        "description": tool.description or tool.title or tool.name,
        "requestBody": {
            "required": bool(arguments.get("required")),
            "content": {"application/json": {"schema": arguments}},
        },
        "responses": {
            "200": {
                "description": "What the tool returned.",
                "content": {"application/json": {"schema": result}},
            },
            "422": {"description": "The arguments do not fit the tool.", "content": failure},
            "default": {"description": "The call failed.", "content": failure},
        },
    }


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _MAX_SUMMARY else line[: _MAX_SUMMARY - 1] + "…"


def _bare(schema: dict[str, Any]) -> Any:
    """A result that is no object is described inside a wrapper other wires need; this wire sends it bare."""
    if schema.get("x-fastmcp-wrap-result") is True:
        return schema.get("properties", {}).get("result", {})
    return schema


class Moved:
    """A tool's schema made part of the document; its definitions are put into `schemas`."""

    def __init__(self, name: str, root: Mapping[str, Any], schemas: dict[str, Any]) -> None:
        self._name = _NAME.sub("_", name)
        self._schemas = schemas
        self._components: dict[tuple[str, str], str] = {}
        taken = set(schemas)
        for keyword in _DEFINITIONS:
            for key in _mapping(root.get(keyword)):
                component = _free(f"{self._name}.{_NAME.sub('_', key)}", taken)
                self._components[keyword, key] = component
                taken.add(component)
        self._needs_root = False
        for (keyword, key), component in self._components.items():
            schemas[component] = self._walk(root[keyword][key])
        self.schema = self._root(root)
        if self._needs_root:
            schemas[self._name] = self.schema

    def _root(self, root: Mapping[str, Any]) -> dict[str, Any]:
        bare = {key: value for key, value in root.items() if key not in _DROPPED}
        walked: dict[str, Any] = self._walk(bare)
        return walked

    def _walk(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        return {key: self._value(key, value) for key, value in schema.items()}

    def _value(self, key: str, value: Any) -> Any:
        if key == "$ref" and isinstance(value, str):
            return self._target(value)
        if key in _ONE:
            return self._walk(value)
        if key in _MANY and isinstance(value, list | tuple):
            return [self._walk(one) for one in value]
        if key in _NAMED and isinstance(value, Mapping):
            return {name: self._walk(one) for name, one in value.items()}
        if key == "discriminator" and isinstance(value, Mapping) and isinstance(value.get("mapping"), Mapping):
            mapping = {name: self._target(target) for name, target in value["mapping"].items()}
            return {**value, "mapping": mapping}
        # Values (default, enum, const, examples) are data, even where they look like a schema.
        return value

    def _target(self, reference: str) -> str:
        if not reference.startswith("#"):
            return reference
        parts = reference[1:].split("/")
        if len(parts) >= 3:
            component = self._components.get((parts[1], _unescape(parts[2])))
            if component is not None:
                return "/".join(("#/components/schemas", component, *parts[3:]))
        self._needs_root = True
        return f"#/components/schemas/{self._name}{reference[1:]}"


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where another one came out the same: few characters are allowed in one here."""
    numbered = (f"{name}_{number}" for number in count(2))
    return next(one for one in chain((name,), numbered) if one not in taken)


def _unescape(part: str) -> str:
    """A JSON pointer's part, which is in a URI's fragment here."""
    return unquote(part).replace("~1", "/").replace("~0", "~")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
