"""Strict JSON text: exact values on one line, or an `EncodeError` that says what JSON cannot carry.

Values take two steps through pydantic: first to plain JSON types, then to text. In one step, a model's own
settings would turn a non-finite number into null without a word; where a model may still have done so, the
value is looked at once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

_plain = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants")).serializer.to_python
_UNKNOWN_TYPE = re.compile(r"unknown type: <class '([^']+)'>")


class EncodeError(Exception):
    """A value that JSON cannot carry; the message names its type and never its content."""


def dumps(value: Any, adapter: TypeAdapter[Any] | None = None) -> bytes:
    """The value as one line of JSON, shaped by `adapter` where a type is declared for it."""
    to_plain = _plain if adapter is None else adapter.serializer.to_python
    try:
        text = to_json(to_plain(value, mode="json", warnings=False), inf_nan_mode="constants")
    except (ValueError, RecursionError) as error:  # pydantic's own error is a ValueError
        raise _explained(error, value) from None
    if b"NaN" in text or b"Infinity" in text:
        _refuse_constants(text)
    elif b"null" in text and value is not None:
        _refuse_lost(value, to_plain)
    return text


def dumps_text(value: str) -> bytes:
    """The same for a `str`, which needs no first step."""
    try:
        return to_json(value)
    except PydanticSerializationError as error:
        raise _explained(error, value) from None


def clean(text: str) -> str:
    """The text with lone surrogates replaced, for messages that must go out whatever they hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _refuse_constants(text: bytes) -> None:
    # The words may stand in a string; only a parser can tell.
    json.loads(text, parse_constant=_refuse_constant)


def _refuse_lost(value: Any, to_plain: Callable[..., Any]) -> None:
    """Find a number that an untyped field of a model has written as null; in Python it is still one."""
    try:
        raw = to_plain(value, mode="python", warnings=False)
        text = to_json(raw, inf_nan_mode="constants", fallback=lambda _other: None)
    except Exception:
        return  # what cannot be looked at this way has been written already
    if b"NaN" in text or b"Infinity" in text:
        _refuse_constants(text)


def _refuse_constant(_name: str) -> NoReturn:
    raise EncodeError(
        "The result holds a non-finite number (NaN or Infinity), which JSON cannot carry. "
        "Return null or a string in its place."
    )


def _explained(error: Exception, value: Any) -> EncodeError:
    text = str(error)
    if match := _UNKNOWN_TYPE.search(text):
        return EncodeError(
            f"The result holds a value of type {match[1]}, which cannot be written as JSON. "
            "Return plain values, a dataclass or a pydantic model."
        )
    if isinstance(error, RecursionError) or "Circular reference" in text or "depth exceeded" in text:
        return EncodeError("The result refers to itself or is nested too deeply to be written as JSON.")
    if "surrogate" in text:
        return EncodeError("The result holds text with a lone surrogate, which UTF-8 cannot carry.")
    if "utf-8" in text:
        return EncodeError(
            "The result holds bytes that are not UTF-8 text. Return File, Image or Audio for binary data."
        )
    return EncodeError(f"The result of type {type(value).__name__} cannot be written as JSON.")
