"""Words on the command line to a tool's arguments.

    name=Ada            as the tool's schema has it: text stays text, a number becomes a number
    tags:='["a", "b"]'  JSON, whatever the schema says

Whether the values fit is for the gateway to say; what cannot be turned into the right type is refused here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

_WORD = re.compile(r"(?s)([^=:]+)(:?=)(.*)")

_EXAMPLES = {
    "integer": "3",
    "number": "2.5",
    "boolean": "true",
    "array": """'["a", "b"]'""",
    "object": """'{"key": "value"}'""",
    "null": "null",
}


def split(words: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Each argument's name, whether it is written as JSON, and its text."""
    found: dict[str, tuple[bool, str]] = {}
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            raise click.UsageError(
                f"{word[:80]!r} is no argument. Write name=value, or name:=JSON for a value that is JSON."
            )
        name = match[1]
        if name in found:
            raise click.UsageError(f"The argument {name!r} is given twice.")
        found[name] = (match[2] == ":=", match[3])
    return found


def convert(given: Mapping[str, tuple[bool, str]], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as the schema has them; names it does not know stay text for the gateway to refuse."""
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return {
        name: _json_value(name, text) if is_json else _value(name, text, known.get(name), schema)
        for name, (is_json, text) in given.items()
    }


def parse_json(text: str, what: str) -> Any:
    """Strict JSON; integers stay exact, other numbers are as exact as Python's."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise click.UsageError(f"{what} is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise click.UsageError(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON: {error}.") from None


def encoded(value: Any) -> bytes:
    """Arguments as they are sent."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Bytes that were not UTF-8 are lone surrogates by now; no other text may silently take their place.
        raise click.UsageError("An argument is not UTF-8 text, so no tool can be given it.") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is larger than any number a tool can be given")
    return number


def _json_value(name: str, text: str) -> Any:
    return parse_json(text, f"The value of {name!r}")


def _value(name: str, text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    for choice in _choices(schema, root):
        if not isinstance(choice, str) and text == json.dumps(choice):
            return choice
    kinds = _kinds(schema, root)
    if not kinds - {"string"}:
        return text
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        value = {"true": True, "false": False}.get(text.lower(), text) if "boolean" in kinds else text
    if value is not None and _kind(value) & kinds:
        return value
    if "string" in kinds:
        return text
    if value is None and "null" in kinds:
        return None
    wanted = sorted(kinds - {"null"}) or ["null"]
    raise click.UsageError(
        f"The argument {name!r} must be {' or '.join(map(_with_article, wanted))}, like {name}={_EXAMPLES[wanted[0]]}."
    )


def _kind(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number", "integer"} if value.is_integer() else {"number"}
    # Text is never unquoted: a string arrives as it was typed.
    names: dict[type, str] = {list: "array", dict: "object", type(None): "null"}
    return {names[type(value)]} if type(value) in names else set()


def _kinds(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """The JSON types a schema allows; empty when it does not say."""
    found: set[str] = set()
    for node in _alternatives(schema, root):
        declared = node.get("type")
        found.update(kind for kind in (declared if isinstance(declared, list) else [declared]) if isinstance(kind, str))
    return found & (_EXAMPLES.keys() | {"string"})


def _choices(schema: Any, root: Mapping[str, Any]) -> list[Any]:
    """Values an enumeration allows; they may lack a type."""
    found: list[Any] = []
    for node in _alternatives(schema, root):
        found += node["enum"] if isinstance(node.get("enum"), list) else []
        found += [node["const"]] if "const" in node else []
    return found


def _alternatives(schema: Any, root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all it refers to or is made of, each once: references may go in circles."""
    waiting, seen = [schema], set[int]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += [*_parts(node), _target(node.get("$ref"), root)]


def _parts(schema: Mapping[str, Any]) -> Iterable[Any]:
    for keyword in ("anyOf", "oneOf", "allOf"):
        options = schema.get(keyword)
        if isinstance(options, list):
            yield from options


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    node: Any = root
    for part in reference[2:].split("/"):
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
    return node


def _with_article(kind: str) -> str:
    if kind == "null":
        return "null"
    if kind == "boolean":
        return "true or false"
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
