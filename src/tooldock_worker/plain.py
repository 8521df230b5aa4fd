"""Schemas and checks for signatures of plain types, made without running pydantic.

A worker is forked from a warm parent and shares its memory until it writes to it. Running pydantic writes to
megabytes of it, because every object that is touched has its reference count changed. Most tools take text,
numbers, lists and dicts; for those this module says what pydantic would say, and takes the values that are
already what they should be. Everything else is left to pydantic: a hint or a default that is not plain gives
None here, a value that needs more than this goes to the check the caller hands in.

Knows nothing of functions, docstrings or results as values: `schema` decides what is asked here.
"""

from __future__ import annotations

import copy
import inspect
import math
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

Schema = dict[str, Any]
Check = Callable[[dict[str, Any]], dict[str, Any]]
Take = Callable[[Any], Any]

_NOTHING = inspect.Parameter.empty
_NAMES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
_TEXT = frozenset({str})
_EXACT = 2.0**53
"""Up to here integers and floating-point numbers are the same numbers."""

_MAX_DEPTH = 16
"""How deep a default may be nested; it ends the search in one that contains itself."""


class Misfit(Exception):
    """A value that is not exactly what is expected; it may still be acceptable to pydantic."""


class Shape(NamedTuple):
    """A plain type, understood."""

    schema: Schema
    take: Take
    """The value as the tool gets it; raises `Misfit`."""
    kinds: frozenset[type]
    """The types of the values it takes as they are; empty if every value will do."""


class Field(NamedTuple):
    """One parameter."""

    name: str
    shape: Shape
    make_default: Callable[[], Any] | None


class Arguments:
    """The parameters of a function, all of them plain."""

    __slots__ = ("_fields", "schema")

    def __init__(self, fields: Sequence[Field], schema: Schema) -> None:
        self._fields = fields
        self.schema = schema

    def check(self, otherwise: Check) -> Check:
        """Arguments in, keyword arguments out; `otherwise` gets whatever needs a closer look."""
        general = _general_check(self._fields, otherwise)
        if all(field.make_default is None and _is_scalar(field.shape) for field in self._fields):
            return _scalar_check(self._fields, general)
        return general


def arguments(asked: Sequence[inspect.Parameter], hints: dict[str, Any]) -> Arguments | None:
    """What pydantic would make of the parameters; None if not all of them are plain."""
    fields: list[Field] = []
    properties: Schema = {}
    required: list[str] = []
    for item in asked:
        hint, description = _described(hints.get(item.name, item.annotation))
        shape = shape_of(Any if hint is _NOTHING else hint)
        if shape is None or not (item.default is _NOTHING or _is_json(item.default)):
            return None
        properties[item.name] = said = {**shape.schema, "title": title(item.name)}
        if description is not None:
            said["description"] = description
        if item.default is _NOTHING:
            required.append(item.name)
            fields.append(Field(item.name, shape, None))
        else:
            said["default"] = copy.deepcopy(item.default)
            fields.append(Field(item.name, shape, _maker(item.default)))
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return Arguments(fields, schema | {"required": required} if required else schema)


def shape_of(hint: Any) -> Shape | None:
    """A type hint as a shape; None if it is not plain."""
    if hint is Any:
        return _ANY
    hint = type(None) if hint is None else hint
    for kind, shape in _SCALARS.items():  # by identity: a hint may be any object, and not all have a hash
        if hint is kind:
            return shape
    origin = hint if hint is list or hint is dict else get_origin(hint)
    if origin is list:
        return _list(get_args(hint))
    if origin is dict:
        return _dict(get_args(hint))
    if origin is Literal:
        return _literal(get_args(hint))
    return _union(get_args(hint)) if origin is Union or origin is types.UnionType else None


def title(name: str) -> str:
    """The title pydantic derives from a name."""
    return name.title().replace("_", " ").strip()


# Hints.


def _described(hint: Any) -> tuple[Any, str | None]:
    """`Annotated[T, "text"]` and `Annotated[T, Field(description="text")]` in two parts; all else as it is."""
    if get_origin(hint) is not Annotated:
        return hint, None
    inner, *said = get_args(hint)
    if len(said) != 1:
        return hint, None
    text = said[0] if isinstance(said[0], str) else _only_description(said[0])
    return (inner, text) if type(text) is str and text and _is_text(text) else (hint, None)


def _only_description(said: Any) -> Any:
    """The description of a pydantic field that says nothing else."""
    if type(said).__name__ != "FieldInfo" or getattr(said, "metadata", None) != []:
        return None
    named = getattr(said, "_attributes_set", None)
    return said.description if isinstance(named, dict) and named.keys() == {"description"} else None


def _list(inner: Sequence[Any]) -> Shape | None:
    item = shape_of(inner[0]) if inner else _ANY
    if item is None:
        return None
    take_item = item.take
    right = None if item is _ANY else _only(item)

    def take(value: Any) -> Any:
        if type(value) is not list:
            raise Misfit
        if right is None or right.issuperset(map(type, value)):
            return value[:]
        return [take_item(one) for one in value]

    return Shape({"type": "array", "items": item.schema}, take, frozenset({list}))


def _dict(inner: Sequence[Any]) -> Shape | None:
    if not inner:
        return Shape({"type": "object", "additionalProperties": True}, _any_dict, frozenset({dict}))
    if inner[0] is not str or (item := shape_of(inner[1])) is None:
        return None
    take_item = item.take
    right = None if item is _ANY else _only(item)

    def take(value: Any) -> Any:
        if type(value) is not dict or not _TEXT.issuperset(map(type, value)):
            raise Misfit
        if right is None or right.issuperset(map(type, value.values())):
            return value.copy()
        return {key: take_item(one) for key, one in value.items()}

    additional = True if item is _ANY else item.schema
    return Shape({"type": "object", "additionalProperties": additional}, take, frozenset({dict}))


def _only(item: Shape) -> frozenset[type]:
    """The types of items that need no look at each; empty where each needs one."""
    return item.kinds if _is_scalar(item) else frozenset()


def _any_dict(value: Any) -> Any:
    if type(value) is not dict:
        raise Misfit
    return value.copy()


def _literal(values: Sequence[Any]) -> Shape | None:
    kinds = frozenset(map(type, values))
    if not kinds <= {str, int, bool, type(None)} or not all(map(_is_json, values)):
        return None
    known = frozenset((type(value), value) for value in values)  # True is not 1 here

    def take(value: Any) -> Any:
        kind = type(value)
        if kind not in kinds or (kind, value) not in known:
            raise Misfit
        return value

    schema: Schema = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    if len(kinds) == 1:
        schema["type"] = _NAMES[type(values[0])]
    return Shape(schema, take, kinds)


def _union(arms: Sequence[Any]) -> Shape | None:
    """Arms that no value can be exactly two of, so that pydantic's choice is the only one there is."""
    takes: dict[type, Take] = {}
    schemas: list[Schema] = []
    for arm in sorted(arms, key=lambda arm: arm is type(None)):  # pydantic puts null last
        shape = shape_of(arm)
        if shape is None or not shape.kinds or not shape.kinds.isdisjoint(takes):
            return None
        if get_origin(arm) is Literal and not shape.kinds <= {str, type(None)}:
            return None
        takes |= dict.fromkeys(shape.kinds, shape.take)
        schemas.append(shape.schema)
    _widen(takes)

    def take(value: Any) -> Any:
        chosen = takes.get(type(value))
        if chosen is None:
            raise Misfit
        return chosen(value)

    return Shape({"anyOf": schemas}, take, frozenset(takes))


def _widen(takes: dict[type, Take]) -> None:
    """Let the one kind of number there is take the other kind as well, as it does alone."""
    if takes.keys() & {int, float, bool} == {float}:
        takes[int] = _number
    elif takes.keys() & {int, float, bool} == {int}:
        takes[float] = _integer


# Values.


def _integer(value: Any) -> Any:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer() and -_EXACT <= value <= _EXACT:
        return int(value)
    raise Misfit


def _number(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int and -_EXACT <= value <= _EXACT:
        return float(value)
    raise Misfit


def _exactly(kind: type) -> Take:
    def take(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit
        return value

    return take


def _as_it_is(value: Any) -> Any:
    return value


_ANY = Shape({}, _as_it_is, frozenset())
_TAKES: dict[type, Take] = {int: _integer, float: _number}
_SCALARS = {
    kind: Shape({"type": name}, _TAKES.get(kind) or _exactly(kind), frozenset({kind})) for kind, name in _NAMES.items()
}


# Defaults.


def _is_json(value: Any, depth: int = _MAX_DEPTH) -> bool:
    """Whether a value is written in JSON as it stands."""
    kind = type(value)
    if kind is str:
        return _is_text(value)
    if kind is float:
        return math.isfinite(value)
    if kind is list:
        return depth > 0 and all(_is_json(item, depth - 1) for item in value)
    if kind is dict:
        return depth > 0 and all(
            type(key) is str and _is_text(key) and _is_json(item, depth - 1) for key, item in value.items()
        )
    return kind in _NAMES


def _is_text(text: str) -> bool:
    """Whether UTF-8 can carry it: lone surrogates are in no such text."""
    return text.isascii() or text.encode("utf-8", "ignore").decode() == text


def _maker(default: Any) -> Callable[[], Any]:
    # A tool may change what it is given; the next call must not see that.
    return (lambda: copy.deepcopy(default)) if isinstance(default, list | dict) else (lambda: default)


# Checks.


def _is_scalar(shape: Shape) -> bool:
    return any(shape is known for known in _SCALARS.values()) and type(None) not in shape.kinds


def _scalar_check(fields: Sequence[Field], otherwise: Check) -> Check:
    """The common case: nothing is optional and every value is of its type already."""
    kinds = [(field.name, next(iter(field.shape.kinds))) for field in fields]
    count = len(kinds)

    def check(given: dict[str, Any]) -> dict[str, Any]:
        if type(given) is not dict or len(given) != count:
            return otherwise(given)
        for name, kind in kinds:
            # What is missing looks like None, which is none of these types.
            if type(given.get(name)) is not kind:
                return otherwise(given)
        return given.copy()

    return check


def _general_check(fields: Sequence[Field], otherwise: Check) -> Check:
    steps = [(field.name, field.shape.take, field.make_default) for field in fields]

    def check(given: dict[str, Any]) -> dict[str, Any]:
        if type(given) is not dict:
            return otherwise(given)
        taken: dict[str, Any] = {}
        left = len(given)
        try:
            for name, take, make_default in steps:
                if name in given:
                    taken[name] = take(given[name])
                    left -= 1
                elif make_default is not None:
                    taken[name] = make_default()
                else:
                    return otherwise(given)
        except Misfit:
            return otherwise(given)
        return otherwise(given) if left else taken

    return check
