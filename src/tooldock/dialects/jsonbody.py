"""What both dialects ask of JSON that a stranger sent, beyond its being JSON."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 64

_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19


def has_long_number(body: bytes) -> bool:
    """Whether a number may be in it that orjson would round, because it has no room in 64 bits."""
    return _LONG_NUMBER in body.translate(_DIGITS)


def is_too_deep(body: bytes, value: Any) -> bool:
    """Whether it is nested deeper than `MAX_DEPTH`.

    Level by level, so that neither the stack nor the time depends on how the nesting is made.
    """
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    level: list[Any] = [value] if type(value) is dict or type(value) is list else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True
