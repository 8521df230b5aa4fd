"""Resources and prompts of a folder: like tools, but read at a URI or rendered by name.

A resource whose URI has `{parameters}` is a template; the function's parameters are those. Arguments of templates and
prompts are texts on the wire and become the types the function asks for.

Knows nothing of files or sockets: `load` finds the functions, `server` runs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from tooldock_worker import contents, schema
from tooldock_worker.described import Described, describe
from tooldock_worker.light.values import on_wire
from tooldock_worker.problems import BadArguments
from tooldock_worker.running import is_async, runnable
from tooldock_worker.uris import BadTemplate, Parameters, Template, is_template, split_list

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MAX_NAME = 128
_SHOWN = 20
"""Values named in a description."""
_PAGE = "text/html;profile=mcp-app"
"""What a `ui:` resource is unless it says otherwise."""
_ANNOTATIONS = {
    "audience": "audience",
    "priority": "priority",
    "last_modified": "lastModified",
    "lastModified": "lastModified",
}
_DRIVE = re.compile(r"[A-Za-z]:")


class Reading:
    """A resource, template or prompt, ready to be read: `fn(**bind(arguments))`, as a tool is called."""

    __slots__ = ("_described", "bind", "context_parameter", "file", "fn", "is_async", "kind", "line", "name")

    def __init__(
        self,
        kind: Literal["resource", "prompt"],
        *,
        fn: Callable[..., Any],
        bind: Callable[[dict[str, Any]], dict[str, Any]],
        described: Described,
        line: int | None,
        context_parameter: str | None = None,
    ) -> None:
        self.kind = kind
        self.name: str = described["name"]
        self.fn = fn
        self.is_async = is_async(fn)
        self.bind = bind
        """Arguments in, keyword arguments out; raises `BadArguments`."""
        self.context_parameter = context_parameter
        self.file: str = described["file"]
        self.line = line
        self._described = described

    @property
    def key(self) -> str:
        """What it is found by: URI, template or name."""
        described = self._described
        return str(described.get("uri") or described.get("uriTemplate") or described["name"])

    def describe(self) -> Described:
        """What callers are told, as JSON."""
        return self._described

    def encode(self, value: Any, uri: str) -> bytes:
        """What the function gave, as MCP's result; `uri` is the one that was asked for."""
        described, meta = self._described, self._described.get("meta")
        if self.kind == "prompt":
            return contents.prompt_result(value, described["description"], meta)
        return contents.resource_result(value, uri, described["mimeType"], meta)


class TemplateReading(Reading):
    """A template: besides, it takes its arguments out of a URI."""

    __slots__ = ("_lists", "_security", "_template")

    def __init__(self, template: Template, lists: frozenset[str], security: Any, **rest: Any) -> None:
        super().__init__("resource", **rest)
        self._template = template
        self._lists = lists
        self._security = security

    def arguments(self, uri: str) -> Parameters | None:
        """The arguments in a URI; None if it is not one of this template's, or carries what no function should see."""
        found = self._template.match(uri)
        if found is None:
            return None
        if self._lists:
            raw = self._template.raw_query(uri)
            found |= {name: split_list(raw[name]) for name in self._lists & found.keys()}
        return found if self._security is None or _is_harmless(found, self._security) else None


def resource(file: str, fn: Any, record: Any, line: int | None) -> Reading | None:
    """A resource or template from a function and what was said about it; None if it is switched off."""
    if getattr(record, "enabled", True) is False:
        return None
    parsed = schema.parse(fn, with_output=False)
    uri = str(record.uri)
    if not _SCHEME.match(uri):
        raise schema.SchemaError(f'has the URI {uri!r}, which lacks a scheme; write one like "data://{uri}"')
    if not uri.isprintable():
        raise schema.SchemaError(f"has the URI {uri!r}, which holds a control character")
    mime_type = record.mime_type or (_PAGE if uri.lower().startswith("ui:") else "text/plain")
    facts = {
        "name": record.name or parsed.name,
        "description": parsed.description if record.description is None else record.description,
        "mimeType": mime_type,
    }
    run: dict[str, Any] = {
        "fn": runnable(fn, parsed, _Running),
        "line": line,
        "context_parameter": parsed.context_parameter,
    }
    optional = {"annotations": _annotations(record.annotations)}
    if not is_template(uri):
        if names := list(parsed.input_schema.get("properties", ())):
            raise schema.SchemaError(f"has the parameter {names[0]!r}, which its URI does not name")
        described = _describe(file, record, {"uri": uri, **facts}, optional)
        return Reading("resource", bind=parsed.validate, described=described, **run)
    template = _template(uri, parsed.input_schema)
    arguments = _arguments(parsed.input_schema, template.path, template.spelt)
    described = _describe(file, record, {"uriTemplate": uri, **facts, "arguments": arguments}, optional)
    return TemplateReading(
        template,
        _lists(template, parsed.input_schema),
        _security(record),
        bind=parsed.validate,
        described=described,
        **run,
    )


def prompt(file: str, fn: Any, record: Any, line: int | None) -> Reading | None:
    """A prompt from a function and what was said about it; None if it is switched off."""
    if getattr(record, "enabled", True) is False:
        return None
    parsed = schema.parse(fn, with_output=False)
    facts = {
        "name": record.name or parsed.name,
        "description": parsed.description if record.description is None else record.description,
        "arguments": _arguments(parsed.input_schema, parsed.input_schema.get("required", ())),
    }
    return Reading(
        "prompt",
        fn=runnable(fn, parsed, _Running),
        bind=_decoding(parsed),
        described=_describe(file, record, facts, {}),
        line=line,
        context_parameter=parsed.context_parameter,
    )


def of_object(file: str, found: Any, line: int | None) -> Reading | None:
    """From an object of the real package, which runs its function itself."""
    if getattr(found, "enabled", True) is False:
        return None
    facts: Described = {"name": found.name, "description": found.description or ""}
    if hasattr(found, "render"):

        async def render(**arguments: Any) -> Any:
            return await found.render(arguments)

        arguments = [on_wire(argument) for argument in found.arguments or ()]
        described = _describe(file, found, facts | {"arguments": arguments}, {})
        return Reading("prompt", fn=render, bind=dict, described=described, line=line)
    facts["mimeType"] = found.mime_type
    optional = {"annotations": _annotations(found.annotations)}
    if not hasattr(found, "uri_template"):

        async def read() -> Any:
            return await found.read()

        described = _describe(file, found, {"uri": str(found.uri), **facts}, optional)
        return Reading("resource", fn=read, bind=dict, described=described, line=line)

    async def read_template(**arguments: Any) -> Any:
        return await found.read(arguments=arguments)

    template = _template(found.uri_template, found.parameters)
    facts["arguments"] = _arguments(found.parameters, template.path, template.spelt)
    return TemplateReading(
        template,
        _lists(template, found.parameters),
        _security(found),
        fn=read_template,
        bind=dict,
        described=_describe(file, found, {"uriTemplate": found.uri_template, **facts}, optional),
        line=line,
    )


class _Running:
    """What `runnable` asks a tool's record for; resources and prompts cannot say it."""

    run_in_thread = True
    timeout = None


# Describing.


def _describe(file: str, record: Any, facts: Described, more: Described) -> Described:
    name = facts["name"]
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise schema.SchemaError(f"cannot be called {name!r}: a name has 1 to {_MAX_NAME} printable characters")
    return describe(file, record, facts, more)


def _annotations(said: Any) -> dict[str, Any]:
    wire: dict[str, Any] = on_wire(said) or {}
    return {_ANNOTATIONS[key]: value for key, value in wire.items() if key in _ANNOTATIONS}


def _arguments(
    input_schema: Described, required: Iterable[str], spelt: Mapping[str, str] | None = None
) -> list[Described]:
    """Each with the texts it takes, where they can be listed. `spelt`: only these, under these names."""
    needed = set(required)
    listed = []
    for name, item in input_schema.get("properties", {}).items():
        if spelt is not None and name not in spelt:
            continue
        argument: Described = {"name": name if spelt is None else spelt[name], "required": name in needed}
        values = _values(item, input_schema)
        hint = _hint(item, input_schema, values) if spelt is None else ""
        if description := "\n".join(filter(None, (item.get("description"), hint))):
            argument["description"] = description
        if values:
            argument["values"] = values
        listed.append(argument)
    return listed


def _hint(item: Described, root: Described, values: list[str]) -> str:
    """How to write a prompt's argument, whose type the protocol has no room for; nothing where any text will do."""
    if values:
        return f"One of: {', '.join(values[:_SHOWN])}{', …' if len(values) > _SHOWN else ''}."
    if any(arm.get("type", "string") == "string" for arm in item.get("anyOf", [item]) if "$ref" not in arm):
        return ""
    described = {key: value for key, value in item.items() if key not in ("description", "default", "title")}
    if isinstance(reference := described.get("$ref"), str):
        described = root.get("$defs", {}).get(reference.rpartition("/")[2], described)
    text = json.dumps(described)
    return "Written as JSON." if "$ref" in text else f"Written as JSON that fits {text}."


def _values(item: Any, root: Described, hops: int = 16) -> list[str]:
    """The texts that stand for the values a parameter takes; none if they cannot be listed."""
    if not isinstance(item, Mapping) or hops == 0:
        return []
    if "enum" in item or "const" in item:
        return [_as_text(value) for value in item.get("enum", [item.get("const")]) if value is not None]
    if item.get("type") == "boolean":
        return ["true", "false"]
    if isinstance(reference := item.get("$ref"), str):
        return _values(root.get("$defs", {}).get(reference.rpartition("/")[2]), root, hops - 1)
    arms = [arm for arm in item.get("anyOf", ()) if arm.get("type") != "null"]
    listed = [_values(arm, root, hops - 1) for arm in arms]
    return [value for values in listed for value in values] if all(listed) else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# Arguments.


def _decoding(parsed: schema.Parsed) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The check of a prompt's arguments: texts, which are JSON where the type is more than a text can be taken for.

    What the prompt does not know is left out, since clients may send more than they were asked for.
    """
    names = frozenset(parsed.input_schema.get("properties", ()))

    def bind(arguments: dict[str, Any]) -> dict[str, Any]:
        known = {name: value for name, value in arguments.items() if name in names}
        try:
            return parsed.validate(known)
        except BadArguments as error:
            wrong = {problem["path"].partition(".")[0] for problem in error.errors}
            decoded = {name: _decoded(value) if name in wrong else value for name, value in known.items()}
            try:
                return parsed.validate(decoded)
            except BadArguments:
                raise error from None

    return bind


def _decoded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _template(uri: str, input_schema: Described) -> Template:
    try:
        template = Template(uri)
    except BadTemplate as error:
        raise schema.SchemaError(f"has the URI template {uri!r}, which {error}") from None
    parameters = input_schema.get("properties", {})
    required = set(input_schema.get("required", ()))
    for name in (*template.path, *template.query):
        if name not in parameters:
            raise schema.SchemaError(f"has a URI template with {name!r}, which is no parameter of the function")
    for name in template.query:
        if name in required:
            raise schema.SchemaError(f"needs a default for {name!r}, since a query may leave it out")
    for name in required.difference(template.path):
        raise schema.SchemaError(f"has the parameter {name!r}, which its URI template does not name")
    return template


def _lists(template: Template, input_schema: Described) -> frozenset[str]:
    """Parameters of the query that are lists written with commas: `{?tags}`, as opposed to `{?tags*}`."""
    properties = input_schema.get("properties", {})
    return frozenset(
        name for name in template.query if name not in template.repeated and _is_list(properties.get(name, {}))
    )


def _is_list(item: Mapping[str, Any]) -> bool:
    arms = [arm for arm in item.get("anyOf", ()) if arm.get("type") != "null"]
    return item.get("type") == "array" or (bool(arms) and all(arm.get("type") == "array" for arm in arms))


# What a caller may put into a URI.


class _Usual:
    reject_path_traversal = reject_absolute_paths = reject_null_bytes = True
    exempt_params: frozenset[str] = frozenset()


def _security(record: Any) -> Any:
    """The author's policy, the usual one, or None where the author switched it off."""
    said = getattr(record, "security", _Usual)
    chosen = said if said is None or hasattr(said, "reject_path_traversal") else _Usual
    try:
        if chosen is not None:
            _is_harmless({"": "tried"}, chosen)  # now, since a fault while a call is read would cost its answer
    except (AttributeError, TypeError):
        raise schema.SchemaError("has a security= that is no ResourceSecurity") from None
    return chosen


def _is_harmless(parameters: Parameters, security: Any) -> bool:
    """A function that opens a file under some folder must not be led out of it by the URI."""
    exempt = {name.replace("-", "_") for name in security.exempt_params}
    for name, value in parameters.items():
        for text in [] if name in exempt else value if isinstance(value, list) else [value]:
            if (
                (security.reject_null_bytes and "\0" in text)
                or (security.reject_path_traversal and _leads_out(text))
                or (security.reject_absolute_paths and (text.startswith(("/", "\\")) or _DRIVE.match(text)))
            ):
                return False
    return True


def _leads_out(text: str) -> bool:
    depth = 0
    for part in text.replace("\\", "/").split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False
