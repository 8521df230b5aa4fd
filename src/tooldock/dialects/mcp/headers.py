"""The headers that repeat parts of a request, so that proxies can route without reading bodies.

`MCP-Protocol-Version`, `Mcp-Method` and `Mcp-Name` repeat the envelope; `Mcp-Param-*` repeats arguments whose schema
carries an `x-mcp-header` annotation. Nothing in the gateway acts on a header: each is only held against the body, and
a request that contradicts itself is refused. Headers no annotation asks for are nobody's business here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from tooldock.dialects.mcp.jsonrpc import HEADER_MISMATCH, RpcError
from tooldock.edge.http import Request
from tooldock.engine.registry import Entry

VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"

NAMED: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose `Mcp-Name` repeats a parameter, and which one."""

_SPELLED = {VERSION: "MCP-Protocol-Version", METHOD: "Mcp-Method", NAME: "Mcp-Name"}
_ANNOTATION = "x-mcp-header"
_RENDERED = "mcp.mirrors"
_TYPES = frozenset(("string", "integer", "boolean"))
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_DECIMAL = re.compile(r"(-?[0-9]{1,400})(?:\.0+)?")
_OPENING, _CLOSING = "=?base64?", "?="
_PLAIN = re.compile(r"[\x20-\x7e\t]*")

_log = structlog.get_logger("tooldock.mcp")


class Mirror:
    """One argument that travels in a header as well."""

    __slots__ = ("header", "integer", "path", "spelled")

    def __init__(self, path: tuple[str, ...], token: str, type: str) -> None:
        self.path = path
        self.spelled = f"Mcp-Param-{token}"
        self.header = self.spelled.lower().encode()
        self.integer = type == "integer"


class BadAnnotation(ValueError):
    """An `x-mcp-header` that breaks the protocol's rules for it."""


def check(request: Request, version: str, method: str, params: Mapping[str, Any]) -> None:
    """The three headers about the envelope; raises `RpcError` HEADER_MISMATCH."""
    headers = request.headers
    if headers.get(VERSION) != version.encode():
        _compare(request, VERSION, version)
    if headers.get(METHOD) != method.encode():
        _compare(request, METHOD, method)
    member = NAMED.get(method)
    if member is not None:
        name = params.get(member)
        # A name of another type, or none, is refused by the method itself.
        if type(name) is str and (
            headers.get(NAME) != name.encode() or not name.isascii() or "," in name or name.startswith(_OPENING)
        ):
            _compare(request, NAME, name)


def check_single(request: Request) -> None:
    """None of the three may be there twice: readers of the first and of the last would disagree."""
    for header in (VERSION, METHOD, NAME):
        if b"," in request.headers.get(header, b""):
            _refuse_repeated(request, header, _SPELLED[header])


def check_arguments(request: Request, entry: Entry, tool: str, arguments: Any) -> None:
    """The headers about arguments; raises `RpcError` HEADER_MISMATCH."""
    mirrors = entry.rendered.get(_RENDERED)
    if mirrors is None:
        mirrors = entry.rendered[_RENDERED] = _compile(entry)
    for mirror in mirrors.get(tool, ()):
        _check_argument(request, mirror, arguments)


def mirrors_of(schema: Mapping[str, Any]) -> tuple[Mirror, ...]:
    """What a tool's input schema wants in headers; raises `BadAnnotation`."""
    found: dict[bytes, Mirror] = {}
    for path, token, node in _annotated(schema):
        where = ".".join(path or ())
        if not path:
            raise BadAnnotation("it may only stand on properties of objects, not inside lists, unions or definitions")
        if type(token) is not str or not _TOKEN.fullmatch(token):
            raise BadAnnotation(f"the one of {where!r} is not a name a header can have")
        kind = node.get("type")
        if type(kind) is not str or kind not in _TYPES:
            raise BadAnnotation(f"{where!r} is neither a string, an integer nor a boolean")
        mirror = Mirror(path, token, kind)
        if found.setdefault(mirror.header, mirror) is not mirror:
            raise BadAnnotation(f"{token!r} is used twice")
    return tuple(found.values())


def decode(value: bytes) -> str | None:
    """The text a header value stands for; None when it stands for nothing."""
    text = value.decode("latin-1").strip(" \t")
    if not (text.startswith(_OPENING) and text.endswith(_CLOSING) and len(text) >= len(_OPENING) + len(_CLOSING)):
        return text if _PLAIN.fullmatch(text) else None
    payload = text[len(_OPENING) : -len(_CLOSING)]
    try:
        decoded = base64.b64decode(payload, validate=True)
        # Other spellings of the same bytes would let two readers see two values.
        return decoded.decode() if base64.b64encode(decoded).decode() == payload else None
    except (binascii.Error, ValueError):
        return None


def _compile(entry: Entry) -> dict[str, tuple[Mirror, ...]]:
    compiled: dict[str, tuple[Mirror, ...]] = {}
    for name, offer in entry.offers.items():
        try:
            mirrors = mirrors_of(offer.tool.input_schema)
        except BadAnnotation as wrong:
            # Clients have to drop such a tool, so whoever calls it knows no headers for it.
            _log.warning("bad_header_annotation", namespace=entry.name, tool=name, reason=str(wrong))
            continue
        if mirrors:
            compiled[name] = mirrors
    return compiled


def _annotated(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...] | None, Any, Mapping[str, Any]]]:
    """Every annotation with the properties that lead to it; None where something else does as well."""
    todo: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while todo:
        path, node = todo.pop()
        if isinstance(node, list | tuple):
            todo += [(None, item) for item in node]
        if not isinstance(node, Mapping):
            continue
        if _ANNOTATION in node:
            yield path, node[_ANNOTATION], node
        for key, inner in node.items():
            if key == "properties" and isinstance(inner, Mapping):
                todo += [(None if path is None else (*path, name), item) for name, item in inner.items()]
            elif key in ("patternProperties", "$defs", "definitions", "dependentSchemas") and isinstance(
                inner, Mapping
            ):
                todo += [(None, item) for item in inner.values()]
            elif key not in ("default", "examples", "enum", "const", _ANNOTATION):
                todo.append((None, inner))


def _compare(request: Request, header: bytes, expected: str) -> None:
    given = request.headers.get(header)
    spelled = _SPELLED[header]
    if given is None:
        raise _mismatch(f"The header {spelled} is missing; it must repeat what the body says.", spelled)
    if b"," in given:
        _refuse_repeated(request, header, spelled)
    decoded = decode(given)
    if decoded is None:
        raise _mismatch(f"The header {spelled} is malformed: send plain ASCII, or =?base64?…?= of UTF-8.", spelled)
    if decoded != expected:
        raise _mismatch(f"The header {spelled} does not say what the body says.", spelled)


def _refuse_repeated(request: Request, header: bytes, spelled: str) -> None:
    if sum(name == header for name, _ in request.scope["headers"]) > 1:
        raise _mismatch(f"The header {spelled} was sent more than once; send it once.", spelled)


def _check_argument(request: Request, mirror: Mirror, arguments: Any) -> None:
    spelled = mirror.spelled
    given = request.headers.get(mirror.header)
    value = arguments
    for name in mirror.path:
        value = value.get(name) if type(value) is dict else None
    expected = _text(value)
    if given is None:
        if expected is not None:
            raise _mismatch(f"The header {spelled} is missing; it must repeat the argument {_dotted(mirror)}.", spelled)
        return
    if b"," in given:
        _refuse_repeated(request, mirror.header, spelled)
    decoded = decode(given)
    if decoded is None:
        raise _mismatch(f"The header {spelled} is malformed: send plain ASCII, or =?base64?…?= of UTF-8.", spelled)
    if expected is None or not (decoded == expected or (mirror.integer and _same_number(value, decoded))):
        raise _mismatch(f"The header {spelled} does not say what the argument {_dotted(mirror)} says.", spelled)


def _text(value: Any) -> str | None:
    """A value as a header has it; None when no header can."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int or type(value) is float:
        try:
            return str(value)
        except ValueError:  # thousands of digits
            return None
    return None


def _same_number(value: Any, text: str) -> bool:
    if type(value) is float:
        if not value.is_integer():
            return False
    elif type(value) is not int:
        return False
    number = _DECIMAL.fullmatch(text)
    return number is not None and int(number[1]) == int(value)


def _dotted(mirror: Mirror) -> str:
    return repr(".".join(mirror.path))


def _mismatch(message: str, header: str) -> RpcError:
    return RpcError(HEADER_MISMATCH, message, {"header": header})
