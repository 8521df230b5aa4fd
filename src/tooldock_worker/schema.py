"""From a function to the check of its arguments and the JSON Schemas that describe it.

Arguments are checked by pydantic against a function that has the tool's signature but only hands back what it
was given. So the check never runs the tool, and an error out of its body is never taken for bad arguments.
Signatures of plain types take a shorter way with the same outcome, see `plain`.

Knows nothing of files or of how a tool is run: `load` puts tools together from this.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from tooldock_worker import docstring, plain
from tooldock_worker.context import Context
from tooldock_worker.light.dependencies import is_current_context, is_dependency
from tooldock_worker.light.values import kind_of
from tooldock_worker.plain import Check
from tooldock_worker.problems import BadArguments, problems

WRAPPED = "x-fastmcp-wrap-result"
"""In an output schema: results are not objects and travel as `{"result": ...}`."""

_T = TypeVar("_T")
_NOTHING = inspect.Parameter.empty
_PLAIN = frozenset({str, int, float, bool, type(None), None, Any, object, dict, list, tuple, _NOTHING})
_PLAIN_ORIGINS = frozenset({dict, list, tuple, Union, types.UnionType})
_UNIONS = frozenset({Union, types.UnionType})
_UNBOUND = frozenset({list, tuple, Sequence})
_UNRESOLVED = (PydanticSchemaGenerationError, PydanticUserError, NameError)

# Which keys of a schema hold schemas, so that titles are taken out of those and not out of default values.
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_SINGLE = frozenset(
    {"items", "additionalProperties", "contains", "contentSchema", "propertyNames", "unevaluatedItems"}
    | {"unevaluatedProperties", "if", "then", "else", "not"}
)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_STRUCTURE = frozenset({"type", "properties", "$ref", "items", "required"}) | _LISTS - {"prefixItems"}
_METADATA = frozenset({"title", "description", "deprecated", "readOnly", "writeOnly"})


class SchemaError(Exception):
    """A function that cannot be served as it is written."""


@dataclass(slots=True, frozen=True)
class Parsed:
    """A function, understood."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    validate: Check
    """Arguments in, keyword arguments out; raises `BadArguments`."""
    result_adapter: TypeAdapter[Any] | None
    """How to serialise the result; None where the plain rules do."""
    context_parameter: str | None
    dependencies: dict[str, Any]
    """Parameters the tool is handed at call time, with the default that stands for each."""


def parse(fn: Callable[..., Any], *, with_output: bool = True) -> Parsed:
    """Understand a function, bound method, partial or object with `__call__`; raises `SchemaError`.

    `with_output` is False where results have a form of their own, so that what it returns need not be described.
    """
    target = _routine(fn)
    signature = inspect.signature(target)
    _refuse_unnamed(signature)
    hints = _hints(target, signature)
    contexts, dependencies = _injected(signature, hints)
    asked = [item for item in signature.parameters.values() if item.name not in {*contexts, *dependencies}]
    description, about = _documented(fn, target)
    input_schema, validate = _arguments(target, asked, hints, about)
    output_schema, result_adapter = _output(hints.get("return", _NOTHING) if with_output else _NOTHING)
    return Parsed(
        name=_name(fn),
        description=description,
        input_schema=input_schema,
        output_schema=output_schema,
        validate=validate,
        result_adapter=result_adapter,
        context_parameter=contexts[0] if contexts else None,
        dependencies=dependencies,
    )


def is_object(schema: dict[str, Any], root: dict[str, Any] | None = None, hops: int = 16) -> bool:
    """Whether a JSON Schema describes objects, following references within it."""
    root = schema if root is None else root
    if schema.get("type") == "object" or "properties" in schema:
        return True
    target = _definition(root, schema.get("$ref"))
    return target is not None and hops > 0 and is_object(target, root, hops - 1)


# The function itself.


def _routine(fn: Any) -> Callable[..., Any]:
    if isinstance(fn, staticmethod):
        return fn.__func__
    if inspect.isroutine(fn) or isinstance(fn, functools.partial):
        return fn
    return fn.__call__  # type: ignore[no-any-return]


def _innermost(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _name(fn: Any) -> str:
    target = _innermost(fn)
    return str(getattr(fn, "__name__", None) or getattr(target, "__name__", None) or type(target).__name__)


def _documented(fn: Any, target: Any) -> tuple[str, dict[str, str]]:
    """The description comes from the outermost docstring, the parameters from where they are declared."""
    outer = docstring.parse(_doc(_innermost(fn)))
    if isinstance(fn, functools.partial) and "__doc__" in vars(fn):
        own = docstring.parse(inspect.getdoc(fn))
        return own.description or "", own.parameters
    declared = _innermost(target)
    inner = docstring.parse(_doc(declared if inspect.isroutine(declared) else declared.__call__))
    return outer.description or inner.description or "", inner.parameters


def _doc(fn: Any) -> str | None:
    return inspect.getdoc(fn)


def _refuse_unnamed(signature: inspect.Signature) -> None:
    for item in signature.parameters.values():
        if item.kind is item.VAR_POSITIONAL:
            raise SchemaError(f"has *{item.name}; arguments are passed by name, so name each of them")
        if item.kind is item.VAR_KEYWORD:
            raise SchemaError(f"has **{item.name}; arguments are described, so name each of them")
        if item.kind is item.POSITIONAL_ONLY:
            raise SchemaError(f"has the positional-only parameter {item.name!r}; remove the / before the others")


def _hints(target: Any, signature: inspect.Signature) -> dict[str, Any]:
    """Annotations as types. A `Context` only type checkers see stays a string and is still found."""
    inner = _innermost(target)
    inner = inner if inspect.isroutine(inner) else inner.__call__
    try:
        hints = get_type_hints(inner, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        hints = {name: _resolved(inner, hint) for name, hint in _annotations(inner).items()}
    wanted = {*signature.parameters, "return"}
    return {name: hint for name, hint in hints.items() if name in wanted}


def _annotations(fn: Any) -> dict[str, Any]:
    return dict(getattr(inspect.unwrap(fn), "__annotations__", {}))


def _resolved(fn: Any, hint: Any) -> Any:
    if not isinstance(hint, str):
        return hint
    function = inspect.unwrap(getattr(fn, "__func__", fn))
    names = dict(getattr(function, "__globals__", {}))
    if (closure := getattr(function, "__closure__", None)) is not None:
        names |= _cells(function.__code__.co_freevars, closure)
    try:
        # The annotation is code of the tool file, which has just been run.
        return eval(hint, names)  # noqa: S307
    except Exception:
        return hint


def _cells(names: Sequence[str], closure: Sequence[Any]) -> dict[str, Any]:
    found = {}
    for name, cell in zip(names, closure, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # not assigned yet when the function was defined
    return found


def _described(hint: Any) -> Any:
    """`Annotated[T, "text"]` says what a field description says."""
    arguments = get_args(hint)
    if get_origin(hint) is Annotated and len(arguments) == 2 and isinstance(arguments[1], str):
        return Annotated[arguments[0], Field(description=arguments[1])]
    return hint


# Parameters the caller does not pass.


def _injected(signature: inspect.Signature, hints: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Names of context parameters, and dependencies with their defaults.

    A second context parameter counts as a dependency, because only one name can be told to who calls `fn`.
    """
    contexts: list[str] = []
    dependencies: dict[str, Any] = {}
    for item in signature.parameters.values():
        if is_current_context(item.default) or _is_context(hints.get(item.name)):
            contexts.append(item.name)
        elif is_dependency(item.default):
            dependencies[item.name] = item.default
    for name in contexts[1:]:
        default = signature.parameters[name].default
        dependencies[name] = default if is_dependency(default) else _current_context()
    return contexts, dependencies


def _current_context() -> Any:
    from tooldock_worker.light.dependencies import CurrentContext

    return CurrentContext()


def _is_context(hint: Any) -> bool:
    if isinstance(hint, str):
        parts = hint.replace("Optional[", "").rstrip("]").split("|")
        return any(part.strip().rpartition(".")[2] == "Context" for part in parts)
    if get_origin(hint) in _UNIONS:
        return any(_is_context(arm) for arm in get_args(hint))
    if get_origin(hint) is Annotated:
        return _is_context(get_args(hint)[0])
    return isinstance(hint, type) and (issubclass(hint, Context) or any(map(_is_real_context, hint.__mro__)))


def _is_real_context(cls: type) -> bool:
    return cls.__name__ == "Context" and cls.__module__.partition(".")[0] in ("fastmcp", "mcp")


# Arguments.


def _arguments(
    target: Any, asked: Sequence[inspect.Parameter], hints: dict[str, Any], about: dict[str, str]
) -> tuple[dict[str, Any], Check]:
    """The schema of the arguments, and their check."""
    simple = plain.arguments(asked, hints)
    if simple is None:
        adapter, schema = _by_pydantic(target, asked, hints)
        return _finished(schema, about), _checker(adapter)
    # Pydantic is only asked about arguments that are not obviously right.
    check = simple.check(_later(lambda: _checker(_by_pydantic(target, asked, hints)[0])))
    return _finished(simple.schema, about), check


def _later(make: Callable[[], Check]) -> Check:
    made: list[Check] = []

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        if not made:
            made.append(make())
        return made[0](arguments)

    return check


class _Quiet(GenerateJsonSchema):
    """A default that JSON cannot carry is left out without a warning."""

    ignored_warning_kinds = GenerateJsonSchema.ignored_warning_kinds | {"non-serializable-default"}


def _by_pydantic(
    target: Any, asked: Sequence[inspect.Parameter], hints: dict[str, Any]
) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    def given(**arguments: Any) -> dict[str, Any]:
        return arguments

    annotations = {item.name: _described(hints.get(item.name, item.annotation)) for item in asked}
    # Keyword-only, so that pydantic hands back every parameter under its name.
    given.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [item.replace(kind=item.KEYWORD_ONLY, annotation=annotations[item.name]) for item in asked]
    )
    given.__annotations__ = {name: hint for name, hint in annotations.items() if hint is not _NOTHING}
    given.__module__ = getattr(_innermost(target), "__module__", None) or __name__
    for name, hint in given.__annotations__.items():
        if isinstance(hint, str):
            raise SchemaError(f"has the annotation {hint!r} for {name!r}, which names something unknown")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, given))
        return adapter, adapter.json_schema(schema_generator=_Quiet)
    except _UNRESOLVED as error:
        raise SchemaError(_unsupported(given.__annotations__, error)) from error


def _unsupported(annotations: dict[str, Any], error: Exception) -> str:
    for name, hint in annotations.items():
        try:
            TypeAdapter(hint).json_schema(schema_generator=_Quiet)
        except Exception:
            shown = getattr(hint, "__name__", None) or str(hint)
            return (
                f"has the parameter {name!r} of type {shown}, which JSON cannot carry; use plain types, "
                "dataclasses or pydantic models, or hide it behind Depends"
            )
    return f"has a signature that cannot be described: {str(error).partition(chr(10))[0]}"


def _checker(adapter: TypeAdapter[Any]) -> Check:
    validate = adapter.validator.validate_python

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return validate(arguments)  # type: ignore[no-any-return]
        except ValidationError as error:
            # Without the cause, because its text repeats the arguments.
            raise BadArguments(problems(error)) from None

    return check


def _finished(schema: dict[str, Any], about: dict[str, str]) -> dict[str, Any]:
    """Without the titles nobody wrote, and with what the docstring says."""
    properties: dict[str, Any] = schema.setdefault("properties", {})
    titles = {name: item.get("title") for name, item in properties.items()}
    _tidy(schema)
    for name, item in properties.items():
        title = titles[name]
        if isinstance(title, str) and title != plain.title(name):
            item["title"] = title  # the author's own words, not pydantic's
        if name in about:
            item.setdefault("description", about[name])
    return schema


def _tidy(node: Any) -> None:
    """Take out, in place, the titles pydantic derives from names, and defaults JSON has no number for."""
    if not isinstance(node, dict):
        return
    default = node.get("default")
    if isinstance(default, float) and not math.isfinite(default):
        del node["default"]
    if isinstance(node.get("title"), str) and (not _STRUCTURE.isdisjoint(node) or _METADATA.issuperset(node)):
        del node["title"]
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            for item in value.values():
                _tidy(item)
        elif key in _LISTS and isinstance(value, list):
            for item in value:
                _tidy(item)
        elif key in _SINGLE:
            _tidy(value)


# Results.


@dataclass
class _Wrapped(Generic[_T]):
    result: _T


class _ResultSchema(_Quiet):
    """Each model's fields under the names it is serialised with, as its own settings say."""

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        return self._aliased(schema["cls"].model_config, super().model_schema, schema)

    def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
        return self._aliased(schema.get("config") or {}, super().dataclass_schema, schema)

    def _aliased(self, config: Any, generate: Callable[[Any], JsonSchemaValue], schema: Any) -> JsonSchemaValue:
        before, self.by_alias = self.by_alias, bool(config.get("serialize_by_alias"))
        try:
            return generate(schema)
        finally:
            self.by_alias = before


def _output(hint: Any) -> tuple[dict[str, Any] | None, TypeAdapter[Any] | None]:
    """Schema and serialiser of the result; neither where the annotation says nothing about data."""
    if hint in (_NOTHING, None, type(None), Any, ...) or isinstance(hint, str) or _is_content(hint):
        return None, None
    if (shape := plain.shape_of(hint)) is not None:
        return None if _is_unbound(hint) else _plain_output_schema(shape.schema), None
    hint = _described(hint)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint)
    except _UNRESOLVED:
        return None, None
    serialiser = None if _is_plain(hint) else adapter
    if _has_bytes(hint) or _is_unbound(hint):
        return None, serialiser
    try:
        return _output_schema(hint, adapter), serialiser
    except _UNRESOLVED:
        return None, serialiser


def _output_schema(hint: Any, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    schema = adapter.json_schema(mode="serialization", by_alias=False, schema_generator=_ResultSchema)
    if not is_object(schema):
        wrapped: TypeAdapter[Any] = TypeAdapter(_Wrapped[hint])
        schema = wrapped.json_schema(mode="serialization", by_alias=False, schema_generator=_ResultSchema)
        schema[WRAPPED] = True
    schema = _without_root_reference(schema)
    _tidy(schema)
    return schema


def _plain_output_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if not is_object(schema):
        result = {**schema, "title": plain.title("result")}
        schema = {"type": "object", "properties": {"result": result}, "required": ["result"], WRAPPED: True}
    schema = dict(schema)
    _tidy(schema)
    return schema


def _without_root_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """A recursive model's schema is a bare reference; clients expect an object at the root."""
    if "type" in schema:
        return schema
    target = _definition(schema, schema.get("$ref"))
    if target is None:
        return schema
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _definition(root: dict[str, Any], reference: Any) -> dict[str, Any] | None:
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return None
    target = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
    return target if isinstance(target, dict) else None


def _is_content(hint: Any) -> bool:
    """Whether content objects occur anywhere in a type; they are shown, not described."""
    hint = _unaliased(hint)
    if isinstance(hint, type) and not get_args(hint):
        return kind_of(hint) is not None
    return any(_is_content(part) for part in get_args(hint) if not isinstance(part, str))


def _has_bytes(hint: Any) -> bool:
    if hint is bytes:
        return True
    return get_origin(hint) in {*_UNIONS, Annotated} and any(map(_has_bytes, get_args(hint)))


def _is_unbound(hint: Any) -> bool:
    """A list that says nothing about its items: its schema would only repeat the content as structure."""
    hint = _unaliased(hint)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if hint in _UNBOUND:
        return True
    arguments = get_args(hint)
    if get_origin(hint) not in _UNBOUND:
        return False
    if get_origin(hint) is tuple:
        return arguments == (Any, ...)
    return all(argument is Any for argument in arguments)


def _is_plain(hint: Any) -> bool:
    """Whether values of a type need nothing but the plain rules of serialisation."""
    try:
        if hint in _PLAIN or hint is ...:
            return True
    except TypeError:
        return False  # an unhashable annotation is not one of those
    origin = get_origin(hint)
    return origin is Literal or (origin in _PLAIN_ORIGINS and all(map(_is_plain, get_args(hint))))


def _unaliased(hint: Any) -> Any:
    while type(hint).__name__ == "TypeAliasType":
        hint = hint.__value__
    return hint
