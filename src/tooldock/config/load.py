"""YAML text to located values: the one place that parses it.

The files are written by people and by models, so everything is bounded before it is built: size, depth, and
the number of nodes after aliases are followed. Duplicate keys, tags and merge keys are refused, because each
makes a file mean something other than what it shows. What a file should contain is known to the modules
beside this one.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import yaml

from tooldock.config.locate import Located, Place, Scalar
from tooldock.errors import ConfigError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # pragma: no cover - a PyYAML built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MAX_BYTES = 1024 * 1024
MAX_NODES = 50_000
MAX_DEPTH = 50

_TAG = "tag:yaml.org,2002:"


def load_yaml(path: Path, name: str | None = None) -> Located:
    """The file's one document, an empty value if it has none; `name` is how errors call the file."""
    shown = name or str(path)
    return parse_yaml(_read(path, shown), shown)


def parse_yaml(data: bytes, name: str) -> Located:
    text = _decode(data, name)
    try:
        _check_shape(text, name)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, name) from None
    except yaml.reader.ReaderError as error:
        place = _place_of(text, error.position, name)
        raise place.error("this character is not allowed in YAML; remove it.") from None
    if node is None:
        return Located(None, Place(name, 1, 1))
    return _Builder(name).build(node, 0)


def _read(path: Path, name: str) -> bytes:
    try:
        # Non-blocking, because opening a pipe somebody left there would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{name}: the file cannot be read ({error.strerror}).", file=name) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{name}: this must be a regular file.", file=name)
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{name}: the file is larger than {MAX_BYTES} bytes; split it.", file=name)
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        place = _place_of(before, len(before), name)
        raise place.error("this is not UTF-8 text; save the file as UTF-8.") from None


def _place_of(text: str, offset: int, name: str) -> Place:
    before = text[:offset]
    return Place(name, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _check_shape(text: str, name: str) -> None:
    """Look at the events first: the composer recurses, and would not survive what this refuses."""
    depth = documents = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        place = Place(name, event.start_mark.line + 1, event.start_mark.column + 1)
        if depth > MAX_DEPTH:
            raise place.error(f"this is nested more than {MAX_DEPTH} levels deep.")
        if count > 4 * MAX_NODES:
            raise place.error(f"the file has more than {MAX_NODES} values; split it.")
        if documents > 1:
            raise place.error("a second document starts here; a file holds one. Remove the '---'.")


def _syntax_error(error: yaml.MarkedYAMLError, text: str, name: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name, 1, 1)
    lines = text.splitlines()
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        return place.error("a tab is used for indentation, and YAML allows only spaces there.")
    problem = error.problem or "it cannot be parsed"
    context = f" ({error.context})" if error.context else ""
    return place.error(f"this is not valid YAML: {problem}{context}.")


class _Builder:
    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0
        self._scalars = _Loader("")

    def build(self, node: yaml.Node, depth: int) -> Located:
        place = self._place(node)
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            # Depth is reached here, and not in the event check, only by an alias that contains itself.
            raise place.error("aliases make this file too large; write the values out.")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place, depth)
        if isinstance(node, yaml.SequenceNode):
            self._expect_tag(node, place, "seq")
            return Located(tuple(self.build(item, depth + 1) for item in node.value), place)
        return Located(self._scalar(node, place), place, raw=str(node.value))

    def _mapping(self, node: yaml.MappingNode, place: Place, depth: int) -> Located:
        self._expect_tag(node, place, "map")
        values: dict[str, Located] = {}
        keys: dict[str, Place] = {}
        for key_node, value_node in node.value:
            key_place = self._place(key_node)
            key = self._key(key_node, key_place)
            if key in keys:
                first = keys[key]
                raise key_place.error(f"{key[:80]!r} is already set on line {first.line}; remove one of them.")
            keys[key] = key_place
            values[key] = self.build(value_node, depth + 1)
        return Located(values, place, keys=keys)

    def _key(self, node: yaml.Node, place: Place) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise place.error("a key must be text.")
        if node.tag == f"{_TAG}merge":
            raise place.error("'<<' is not supported; write the keys out.")
        # As written: `on:` and `1.10:` are names to their author, whatever YAML takes them for.
        return str(node.value)

    def _scalar(self, node: yaml.Node, place: Place) -> Scalar:
        kind = node.tag.removeprefix(_TAG)
        text = str(node.value)
        if kind in ("str", "timestamp", "value"):
            return text
        if kind == "null":
            return None
        convert: Any = {
            "bool": self._scalars.construct_yaml_bool,
            "int": self._scalars.construct_yaml_int,
            "float": self._scalars.construct_yaml_float,
        }.get(kind)
        if convert is None:
            raise place.error(f"the tag {node.tag[:80]!r} is not supported; write a plain value.")
        try:
            value: Scalar = convert(node)
        except (ValueError, KeyError, IndexError):
            raise place.error(f"{text[:80]!r} is not a valid {kind}; put text in quotes.") from None
        return value

    def _expect_tag(self, node: yaml.Node, place: Place, kind: str) -> None:
        if node.tag != _TAG + kind:
            raise place.error(f"the tag {node.tag[:80]!r} is not supported; write a plain value.")

    def _place(self, node: yaml.Node) -> Place:
        return Place(self._name, node.start_mark.line + 1, node.start_mark.column + 1)
