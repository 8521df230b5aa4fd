"""A question to the person behind the call: the form it is asked with, and the answer read back.

Forms are flat: an object whose fields are strings, numbers, booleans, choices or lists of choices, because
that is all that clients have to support.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, get_origin

from pydantic import TypeAdapter, ValidationError

from tooldock_worker.problems import BadArguments, problems

T = TypeVar("T")

_PRIMITIVES = frozenset({"string", "number", "integer", "boolean"})


@dataclass(slots=True)
class AcceptedElicitation(Generic[T]):
    """The person answered; `data` is the answer in the type that was asked for."""

    data: T
    action: Literal["accept"] = "accept"


@dataclass(slots=True)
class DeclinedElicitation:
    """The person said no."""

    action: Literal["decline"] = "decline"


@dataclass(slots=True)
class CancelledElicitation:
    """The person closed the form without an answer."""

    action: Literal["cancel"] = "cancel"


class Question:
    """A form's JSON Schema and the way from its content back to a value."""

    __slots__ = ("_read", "schema")

    def __init__(self, schema: dict[str, Any], read: Callable[[Any], Any]) -> None:
        self.schema = schema
        self._read = read

    def answer(self, reply: Any) -> Any:
        """The reply (`{"action": ..., "content": ...}`) as one of the three outcomes."""
        action = reply.get("action") if isinstance(reply, dict) else None
        accepted, declined, cancelled = _outcomes()
        if action == "accept":
            return accepted(data=self._data(reply.get("content")))
        if action == "decline":
            return declined()
        if action == "cancel":
            return cancelled()
        raise ValueError("The client answered the question with neither accept, decline nor cancel.")

    def _data(self, content: Any) -> Any:
        try:
            return self._read(content)
        except ValidationError as error:
            raise ValueError(f"The answer does not fit the question: {BadArguments(problems(error))}") from None


def question(response_type: Any, title: str | None = None, description: str | None = None) -> Question:
    """The form for a response type.

    Scalars, choices and lists of choices are wrapped in an object with one field `value`; dataclasses, typed
    dicts and models are the form themselves. None asks only for consent.
    """
    if response_type is None:
        return Question({"type": "object", "properties": {}}, lambda _content: {})
    wrapped = _wrapped(response_type)
    if wrapped is None:
        if title is not None or description is not None:
            raise TypeError("A title and description belong on the fields of the response type itself.")
        adapter: TypeAdapter[Any] = TypeAdapter(response_type)
        return Question(_flat(adapter.json_schema()), adapter.validate_python)
    value, adapter = wrapped
    value = {"title": "Value", **value}
    value |= {key: text for key, text in (("title", title), ("description", description)) if text is not None}
    schema = {"type": "object", "properties": {"value": value}, "required": ["value"]}
    return Question(schema, lambda content: adapter.validate_python(_value_of(content)))


def _wrapped(response_type: Any) -> tuple[dict[str, Any], TypeAdapter[Any]] | None:
    """Schema and check of the one field `value`; None if the type is a form by itself."""
    if isinstance(response_type, dict):
        return {"type": "string", "oneOf": _titled(response_type)}, _choice(response_type)
    if isinstance(response_type, list):
        return _listed(response_type)
    scalar = (
        response_type in (bool, int, float, str)
        or get_origin(response_type) in (Literal, list)
        or (isinstance(response_type, type) and issubclass(response_type, Enum))
    )
    if not scalar:
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(response_type)
    inner = _flat({"type": "object", "properties": {"value": adapter.json_schema()}})
    return inner["properties"]["value"], adapter


def _listed(options: list[Any]) -> tuple[dict[str, Any], TypeAdapter[Any]]:
    """`["a", "b"]` chooses one, `[["a", "b"]]` several, `[{"a": {"title": ...}}]` several with titles."""
    first = options[0] if len(options) == 1 else None
    if isinstance(first, list) and first:
        items = {"type": "string", "enum": first}
        return {"type": "array", "items": items}, _choice(first, several=True)
    if isinstance(first, dict) and first:
        return {"type": "array", "items": {"anyOf": _titled(first)}}, _choice(first, several=True)
    if options and all(isinstance(option, str) for option in options):
        return {"type": "string", "enum": options}, _choice(options)
    raise ValueError("A list as response type holds strings, one list of strings, or one dict of titles.")


def _titled(options: dict[str, Any]) -> list[dict[str, Any]]:
    if not options:
        raise ValueError("A dict as response type needs at least one choice.")
    return [{"const": name, "title": about.get("title", name)} for name, about in options.items()]


def _choice(options: Iterable[str], several: bool = False) -> TypeAdapter[Any]:
    one: Any = Literal[tuple(options)]
    many: Any = list[one]
    return TypeAdapter(many if several else one)


def _value_of(content: Any) -> Any:
    if not isinstance(content, dict) or "value" not in content:
        raise ValueError("The answer to the question lacks its value.")
    return content["value"]


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without references; TypeError where a field is more than a form can show."""
    definitions = schema.pop("$defs", {})
    if schema.get("type") != "object" or "properties" not in schema:
        raise TypeError("A question needs a flat object type (a dataclass or model), a scalar or choices.")
    fields = schema.get("properties", {})
    for name, field in fields.items():
        definitions |= field.pop("$defs", {})
        fields[name] = _field(name, field, definitions)
    # Only what a form has, and its name, by which an answer can be told from another's.
    return {key: schema[key] for key in ("title", "type", "properties", "required") if key in schema}


def _field(name: str, field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if reference := field.pop("$ref", None):
        field = definitions.get(reference.rpartition("/")[2], {}) | field
    arms = [arm for arm in field.get("anyOf", ()) if arm.get("type") != "null"]
    if len(arms) == 1 and len(field["anyOf"]) > 1:
        # Forms have no null: an optional field is one that may be left out.
        rest = {key: item for key, item in field.items() if key != "anyOf" and item is not None}
        return _field(name, arms[0] | rest, definitions)
    if field.get("type") == "array" and _choices(field.get("items", {}), definitions):
        return field | {"items": _items(_field(name, field["items"], definitions))}
    if field.get("type") in _PRIMITIVES or _choices(field, definitions):
        return field
    raise TypeError(
        f"The field {name!r} cannot be asked for: forms hold strings, numbers, booleans and choices, no nested objects."
    )


def _items(items: dict[str, Any]) -> dict[str, Any]:
    """The choices of a list: `{"type","enum"}`, or with titles `{"anyOf"}` alone, as the protocol spells them."""
    for titled in ("anyOf", "oneOf"):
        if titled in items:
            return {"anyOf": items[titled]}
    return {key: value for key, value in items.items() if key != "title"}


def _choices(field: dict[str, Any], definitions: dict[str, Any]) -> bool:
    if reference := field.get("$ref"):
        field = definitions.get(reference.rpartition("/")[2], {})
    titled = field.get("oneOf") or field.get("anyOf") or ()
    return "enum" in field or "const" in field or (bool(titled) and all("const" in choice for choice in titled))


def _outcomes() -> tuple[Any, Any, Any]:
    """The three classes tool code compares with: the real package's where it is the one imported."""
    module = sys.modules.get("fastmcp.server.elicitation")
    if module is None:
        return AcceptedElicitation, DeclinedElicitation, CancelledElicitation
    return module.AcceptedElicitation, module.DeclinedElicitation, module.CancelledElicitation
