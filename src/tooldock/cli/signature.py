"""A tool as one line: `add(a: number, b: number = 1)`. Made from its input schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tooldock.cli.terminal import printable

_MAX_DEFAULT = 30
_MAX_DEPTH = 4


def signature(name: str, schema: Mapping[str, Any]) -> str:
    """Required arguments first, because that is how one thinks of them; the schema's order within."""
    properties = schema.get("properties")
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    known = properties if isinstance(properties, dict) else {}
    ordered = [key for key in known if key in needed] + [key for key in known if key not in needed]
    parts = [_argument(key, known[key], schema, key in needed) for key in ordered]
    return printable(f"{name}({', '.join(parts)})")


def _argument(name: str, schema: Any, root: Mapping[str, Any], required: bool) -> str:
    kind = _kind(schema, root, 0)
    text = f"{name}: {kind}"
    if required:
        return text
    if not isinstance(schema, dict) or "default" not in schema:
        return f"{name}?: {kind}"
    default = json.dumps(schema["default"], ensure_ascii=False)
    return f"{text} = {default if len(default) <= _MAX_DEFAULT else '…'}"


def _kind(schema: Any, root: Mapping[str, Any], depth: int) -> str:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return "any"
    if isinstance(schema.get("enum"), list):
        return _either(json.dumps(value, ensure_ascii=False) for value in schema["enum"][:8])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if isinstance(schema.get("$ref"), str):
        return _named(schema["$ref"], root, depth)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(keyword), list):
            return _either(_kind(part, root, depth + 1) for part in schema[keyword])
    declared = schema.get("type")
    if isinstance(declared, list):
        return _either(str(one) for one in declared)
    if declared == "array":
        inner = _kind(schema.get("items"), root, depth + 1)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    return str(declared) if declared else "any"


def _either(kinds: Any) -> str:
    return " | ".join(dict.fromkeys(kinds)) or "any"


def _named(reference: str, root: Mapping[str, Any], depth: int) -> str:
    """An enumeration is spelled out; a model goes by its name."""
    name = reference.rpartition("/")[2]
    definitions = root.get("$defs")
    target = definitions.get(name) if isinstance(definitions, dict) else None
    if isinstance(target, dict) and ("enum" in target or "const" in target):
        return _kind(target, root, depth + 1)
    return name or "any"
