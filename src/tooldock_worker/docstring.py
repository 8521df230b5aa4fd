"""A docstring's description and what it says about each parameter.

Google, NumPy and reST field lists are understood, tried in this order; the first that finds a section wins.
The description is the text before the first section. A docstring without sections is all description.
"""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_GOOGLE_PARAMETERS = frozenset({"args", "arguments", "params", "parameters"})
_GOOGLE_HEADER = re.compile(r"(?P<title>\w[\s\w-]*):(\s+\S.*)?\s*$")
_NUMPY_NAMES = re.compile(r"(?P<names>\*{0,2}[A-Za-z_]\w*(?:,\s\*{0,2}[A-Za-z_]\w*)*)")
_FIELD = re.compile(r":(?P<field>[^:]+):(?P<text>.*)", re.DOTALL)
_FIELD_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_FIELD_OTHERS = frozenset(
    {"type", "var", "ivar", "cvar", "vartype", "returns", "return", "rtype"}
    | {"raises", "raise", "except", "exception"}
)
_FIELDS_THAT_COUNT = _FIELD_OTHERS - {"type", "vartype", "rtype"}


class Docstring(NamedTuple):
    description: str | None
    parameters: dict[str, str]


def parse(text: str | None) -> Docstring:
    """Split a cleaned docstring (`inspect.getdoc`)."""
    if not text:
        return Docstring(None, {})
    lines = text.split("\n")
    for reader in (_google, _numpy, _fields):
        if (found := reader(lines)) is not None:
            return found
    return Docstring(text, {})


def _google(lines: list[str]) -> Docstring | None:
    texts: list[list[str]] = [[]]
    parameters: dict[str, str] = {}
    sections, index, fenced = 0, 0, False
    while index < len(lines):
        line = lines[index]
        if line.lstrip(" ").startswith("```"):
            fenced = not fenced
        title = None if fenced else _google_title(lines, index)
        if title is None:
            texts[-1].append(line)
            index += 1
            continue
        body, index = _indented(lines, index + 1)
        if title in _GOOGLE_PARAMETERS:
            parameters.update(_google_items(body))
        sections += 1
        texts.append([])
    return Docstring(_first(texts), parameters) if sections else None


def _google_title(lines: list[str], index: int) -> str | None:
    """The section's title in lower case, if one starts here: a blank line above, an indented line below."""
    match = _GOOGLE_HEADER.match(lines[index])
    if match is None or (index and lines[index - 1].strip()):
        return None
    below = lines[index + 1] if index + 1 < len(lines) else ""
    return match["title"].lower() if below.startswith(" ") and below.strip() else None


def _indented(lines: list[str], index: int) -> tuple[list[str], int]:
    """The block that is indented at least as far as its first line, and where it ends."""
    indent = " " * (len(lines[index]) - len(lines[index].lstrip()))
    start = index
    while index < len(lines) and (lines[index].startswith(indent) or not lines[index].strip()):
        index += 1
    return [line[len(indent) :] for line in lines[start:index]], index


def _google_items(body: list[str]) -> dict[str, str]:
    items: dict[str, list[str]] = {}
    current: list[str] = []
    step = 0
    for line in body:
        if line.startswith(" "):
            step = step or len(line) - len(line.lstrip())
            current.append(line[step:] if line[:step].isspace() else line.lstrip())
        elif not line.strip():
            current.append("")
        elif ":" in line:
            head, _, rest = line.partition(":")
            current = items[head.partition("(")[0].strip()] = [rest.lstrip()]
        else:
            current = []
    return {name: "\n".join(text).rstrip("\n") for name, text in items.items()}


def _numpy(lines: list[str]) -> Docstring | None:
    starts = [
        index
        for index in range(len(lines) - 1)
        if lines[index].strip() and _dashes(lines[index + 1]) and not _dashes(lines[index])
    ]
    if not starts:
        return None
    parameters: dict[str, str] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if lines[start].lower() == "parameters":
            parameters.update(_numpy_items(lines[start + 2 : end]))
    return Docstring(_first([lines[: starts[0]]]), parameters)


def _dashes(line: str) -> bool:
    return "-" in line and not line.replace("-", "").strip()


def _numpy_items(body: list[str]) -> dict[str, str]:
    items: dict[str, list[str]] = {}
    current: list[str] = []
    for line in body:
        if line.startswith("    "):
            current.append(line[4:])
        elif line.startswith(" ") or not line.strip():
            current.append(line.lstrip())
        elif match := _NUMPY_NAMES.match(line):
            current = []
            items.update(dict.fromkeys(match["names"].split(", "), current))
        else:
            current = []
    return {name: "\n".join(text).rstrip() for name, text in items.items()}


def _fields(lines: list[str]) -> Docstring | None:
    text: list[str] = []
    parameters: dict[str, str] = {}
    index, found = 0, False
    while index < len(lines):
        words = _field_words(lines[index])
        if not words:
            text.append(lines[index])
            index += 1
            continue
        start = index
        index += 1
        while index < len(lines) and not lines[index].startswith(":"):
            index += 1
        match = _FIELD.match(inspect.cleandoc("\n".join(lines[start:index])).rstrip("\n"))
        if match and words[0] in _FIELD_PARAMETERS and len(words) > 1:
            parameters.setdefault(words[-1], match["text"].strip())
        found = found or words[0] in _FIELDS_THAT_COUNT
    return Docstring(_first([text]), parameters) if parameters or found else None


def _field_words(line: str) -> list[str]:
    """`:param int limit: ...` as ["param", "int", "limit"]; empty if the line starts no field."""
    match = _FIELD.match(line)
    words = match["field"].split(" ") if match else []
    return words if words and words[0] in (_FIELD_PARAMETERS | _FIELD_OTHERS) else []


def _first(texts: list[list[str]]) -> str | None:
    """The first text that says something, without the blank lines around it."""
    for lines in texts:
        text = "\n".join(lines)
        if text.strip():
            return text.rstrip("\n").lstrip("\n")
    return None
