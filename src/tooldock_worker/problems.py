"""Which part of a value does not fit its type, said without repeating the value.

The words go to callers and into logs, so nothing that was passed in may appear in them: pydantic's own text
and the texts of a tool author's validators are checked for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypedDict

from pydantic import ValidationError

_REQUIRED = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})
_UNKNOWN = frozenset({"unexpected_keyword_argument", "extra_forbidden"})


class Problem(TypedDict):
    path: str
    message: str


class BadArguments(Exception):
    """The arguments do not fit the tool; `errors` says where and why, never what was passed."""

    def __init__(self, errors: list[Problem]) -> None:
        self.errors = errors
        super().__init__("; ".join(f"{error['path'] or 'arguments'}: {error['message']}" for error in errors))


def problems(error: ValidationError) -> list[Problem]:
    """One entry for each thing that does not fit."""
    return [
        {"path": ".".join(str(part) for part in item["loc"]), "message": _message(item)}
        for item in error.errors(include_url=False)
    ]


def _message(item: Any) -> str:
    kind = item["type"]
    if kind in _REQUIRED:
        return "is required"
    if kind in _UNKNOWN:
        return "is not expected here"
    if kind == "union_tag_invalid":
        return f"Input tag should be one of {item['ctx']['expected_tags']}"
    message = str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    for leaf in sorted(set(_leaves(item["input"])), key=len, reverse=True):
        message = _without(message, leaf)
    return message


def _leaves(value: Any) -> Iterator[str]:
    """The texts under which a passed value could show up in a message."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(key)
            yield from _leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        if text:
            yield text
        if isinstance(value, str) and (shown := repr(value)[1:-1]) != text:
            yield shown  # as `{value!r}` puts it


def _without(message: str, text: str) -> str:
    if text not in message:
        return message
    # A short value such as "a" is only taken out where it stands alone; otherwise the message becomes noise.
    pattern = re.escape(text) if len(text) > 3 else rf"(?<!\w){re.escape(text)}(?!\w)"
    return re.sub(pattern, "[value]", message)
