"""What a terminal changes: colour, width, and that text from elsewhere must not steer it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import IO, Any

import click

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def colour_allowed() -> bool:
    """Whether colour is wanted at all; whether a stream is a terminal is decided per stream."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal(stream: IO[Any]) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False  # closed


def width() -> int:
    """Columns to fill: the terminal's, within reason; output that is not for a terminal is not folded."""
    if not is_terminal(sys.stdout):
        return 10_000
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def folded(text: str) -> str:
    """A remark for standard error, as wide as that is; elsewhere than on a terminal it is not folded. Lines that
    begin with a space are commands or tables and stay whole."""
    if not is_terminal(sys.stderr):
        return text
    import textwrap

    columns = min(100, max(40, _error_columns()))
    return "\n".join(
        line if line.startswith(" ") else textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def _error_columns() -> int:
    """Standard output may lead elsewhere, so its width says nothing."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 80


def printable(text: str) -> str:
    """Text somebody else wrote, safe to show: control characters become visible instead of being obeyed."""
    return _CONTROL.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def one_line(text: str, limit: int | None = None) -> str:
    """The first line that says something, cut to `limit` columns."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    first = printable(first)
    if limit is not None and len(first) > limit:
        return first[: max(1, limit - 1)].rstrip() + "…"
    return first


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Columns as wide as they need; the last one takes what is left and is cut there. Cells may be styled."""
    cells = [[click.style(heading, bold=True) for heading in headings], *rows]
    last = len(headings) - 1
    widths = [max(_columns(row[index]) for row in cells) for index in range(last)]
    left = width() - sum(widths) - 2 * last - 2
    return ["  " + _line(row, widths, max(10, left), right) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int], left: int, right: frozenset[int]) -> str:
    parts = []
    for index, size in enumerate(widths):
        cell = row[index]
        padding = " " * (size - _columns(cell))
        parts.append(padding + cell if index in right else cell + padding)
    tail = row[-1]
    if _columns(tail) > left:
        tail = _ESCAPES.sub("", tail)[: left - 1].rstrip() + "…"
    return "  ".join((*parts, tail)).rstrip()


def _columns(text: str) -> int:
    return len(_ESCAPES.sub("", text))
