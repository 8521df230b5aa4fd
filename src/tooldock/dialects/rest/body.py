"""A request body to tool arguments, exactly.

Two parsers: orjson decides what is JSON and gives the value; a body with long runs of digits is read again
by the standard library, because orjson would round integers beyond 64 bits. Of duplicate keys the last one
wins.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from tooldock.dialects.jsonbody import MAX_DEPTH, has_long_number, is_too_deep
from tooldock.errors import MalformedRequest


def parse(body: bytes) -> dict[str, Any]:
    """The arguments in a body; an empty body means none."""
    if not body:
        return {}
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _not_json(body, error) from None
    if type(value) is not dict:
        raise MalformedRequest(
            f"The body must be a JSON object with the tool's arguments by name, not {_KINDS[type(value)]}. "
            "Without arguments send {} or nothing."
        )
    if is_too_deep(body, value):
        raise MalformedRequest(f"The body is nested deeper than {MAX_DEPTH} levels.", limit=MAX_DEPTH)
    # Last, because this parser recurses.
    arguments: dict[str, Any] = json.loads(body) if has_long_number(body) else value
    return arguments


_KINDS: dict[type, str] = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _not_json(body: bytes, error: orjson.JSONDecodeError) -> MalformedRequest:
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return MalformedRequest(f"The body is not UTF-8: byte {wrong.start} cannot be read.", position=wrong.start)
    return MalformedRequest(
        f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
        line=error.lineno,
        column=error.colno,
        position=error.pos,
    )
