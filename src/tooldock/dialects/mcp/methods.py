"""What a client may ask, answered from the catalogue and the engine, in the shape of its revision.

It knows no transport: sessions, streams and envelopes are those who call `Methods.answer`. Lists are rendered once for
each version of a namespace and each revision, and kept with the catalogue entry.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tooldock.dialects.mcp import shape
from tooldock.dialects.mcp.answers import rpc_error
from tooldock.dialects.mcp.exchange import ClientChannel, Exchange
from tooldock.dialects.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RpcError,
    dump,
)
from tooldock.dialects.mcp.revisions import (
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
    R2026_07_28,
    Revisions,
)
from tooldock.engine.schema import Validator
from tooldock.errors import (
    ConfigError,
    InternalError,
    InvalidArguments,
    NamespaceNotFound,
    ToolDockError,
    ToolFailed,
    ToolNotFound,
)
from tooldock.model import Argument, Call, Outcome, Tool

if TYPE_CHECKING:
    from tooldock.engine.registry import Entry, Registry

PAGE = 1000
"""Items on one page of a list. Large, because some clients never ask for the second."""
LIST_TTL_MS = 10_000
MAX_COMPLETIONS = 100

_MAX_NAMESPACE = 63
_MAX_NAME = 128
_MAX_URI = 8192
_PROMISES = "mcp.promises"
_TEXT: Any = object()
_UNREAD: Any = object()

_Method = Callable[[Exchange], Coroutine[Any, Any, bytes]]


class Engine(Protocol):
    registry: Registry

    async def call(self, call: Call) -> Outcome: ...


class Methods:
    def __init__(self, engine: Engine, revisions: Revisions, *, page: int = PAGE) -> None:
        self.engine = engine
        self.revisions = revisions
        self._page = page
        shared: dict[str, _Method] = {
            "tools/call": self._call_tool,
            "tools/list": self._list_tools,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }
        self._handshake = {**shared, "ping": self._ping}
        self._stateless = {**shared, "server/discover": self._discover}
        self._protocols = {revision: f"mcp/{revision}" for revision in revisions.served}

    def answer(self, exchange: Exchange) -> Coroutine[Any, Any, bytes]:
        """The `result` of a request as JSON text. Raises `RpcError`; and `CancelledError`, when the client gave up."""
        methods = self._stateless if exchange.revision >= R2026_07_28 else self._handshake
        method = methods.get(exchange.method)
        if method is None:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method[:200]}")
        return method(exchange)

    def knows(self, method: str, revision: str) -> bool:
        return method in (self._stateless if revision >= R2026_07_28 else self._handshake)

    def check_namespace(self, namespace: str) -> None:
        """Raises why there is no such namespace, or why it cannot be used."""
        self._entry(namespace)

    def initialize(self, namespace: str, revision: str) -> bytes:
        """The result of the handshake."""
        entry = self._entry(namespace)
        result: dict[str, Any] = {
            "protocolVersion": revision,
            "capabilities": capabilities(revision),
            "serverInfo": shape.implementation(entry.name, entry.description, revision),
        }
        if entry.description:
            result["instructions"] = entry.description
        return dump(result)

    # Tools.

    async def _call_tool(self, exchange: Exchange) -> bytes:
        params = exchange.params
        name = params.get("name")
        if type(name) is not str:
            raise RpcError(INVALID_PARAMS, "tools/call needs the tool's name as a string.")
        arguments = params.get("arguments")
        if arguments is None:
            arguments = {}
        elif type(arguments) is not dict:
            raise RpcError(INVALID_PARAMS, "The arguments of tools/call must be an object.")
        revision = exchange.revision
        entry = self._entry(exchange.namespace)
        offer = entry.offers.get(name)
        if offer is None and len(name) > _MAX_NAME:
            raise RpcError(INVALID_PARAMS, f"There is no tool {name[:_MAX_NAME]!r}…; no name is that long.")
        channel = exchange.channel()
        outcome = await self.engine.call(self._as_call(exchange, channel, name, arguments))
        error = outcome.error
        if error is not None:
            self._raise_if_not_the_tools(error, channel, revision)
        if offer is None:
            # It appeared between our look and the engine's.
            entry = self._entry(exchange.namespace)
            offer = entry.offer(name)
        tool = offer.tool
        if tool.output_schema is not None and error is None and revision >= R2025_06_18:
            outcome = _as_promised(outcome, tool, entry)
        return shape.call_result(outcome, tool, revision)

    def _as_call(
        self, exchange: Exchange, channel: ClientChannel, name: str, arguments: dict[str, Any], kind: Any = "tool"
    ) -> Call:
        return Call(
            exchange.namespace,
            name,
            arguments,
            exchange.caller,
            exchange.request_id,
            self._protocols[exchange.revision],
            channel,
            meta={"session_id": exchange.session_id, "client_capabilities": exchange.capabilities},
            kind=kind,
        )

    @staticmethod
    def _raise_if_not_the_tools(error: ToolDockError, channel: ClientChannel, revision: str) -> None:
        """Errors that are not for the model: a wrong request, a client that lacks an ability, a fault of our own."""
        if channel.missing is not None and revision >= R2026_07_28:
            raise RpcError(MISSING_CAPABILITY, error.message, {"requiredCapabilities": channel.missing})
        if isinstance(error, ToolNotFound | NamespaceNotFound):
            raise rpc_error(error, revision)
        if isinstance(error, InvalidArguments) and revision < R2025_11_25:
            raise rpc_error(error, revision)
        if isinstance(error, InternalError):
            raise RpcError(INTERNAL_ERROR, error.message)

    # Lists.

    async def _list_tools(self, exchange: Exchange) -> bytes:
        return self._listed(
            exchange, "tools", lambda entry: (shape.tool(tool, exchange.revision) for tool in entry.tools)
        )

    async def _list_resources(self, exchange: Exchange) -> bytes:
        revision = exchange.revision
        return self._listed(
            exchange, "resources", lambda entry: (shape.resource(item, revision) for item in entry.resources.values())
        )

    async def _list_templates(self, exchange: Exchange) -> bytes:
        revision = exchange.revision
        return self._listed(
            exchange,
            "resourceTemplates",
            lambda entry: (shape.resource(item, revision, template=True) for item in entry.templates.values()),
        )

    async def _list_prompts(self, exchange: Exchange) -> bytes:
        revision = exchange.revision
        return self._listed(
            exchange, "prompts", lambda entry: (shape.prompt(item, revision) for item in entry.prompts.values())
        )

    def _listed(self, exchange: Exchange, member: str, render: Callable[[Entry], Iterable[dict[str, Any]]]) -> bytes:
        entry = self._entry(exchange.namespace)
        key = f"mcp.{member}.{exchange.revision}"
        pages: list[bytes] | None = entry.rendered.get(key)
        if pages is None:
            pages = entry.rendered[key] = list(self._pages(member, list(render(entry)), exchange.revision))
        number = _page_number(exchange.params.get("cursor"))
        if number >= len(pages):
            raise RpcError(INVALID_PARAMS, "This cursor is not, or no longer, one of this list. List from the start.")
        return pages[number]

    def _pages(self, member: str, items: Sequence[dict[str, Any]], revision: str) -> Iterable[bytes]:
        for start in range(0, len(items) or 1, self._page):
            page: dict[str, Any] = {member: items[start : start + self._page]}
            if start + self._page < len(items):
                page["nextCursor"] = _cursor(start // self._page + 1)
            yield shape.complete(dump(page), revision, ttl_ms=LIST_TTL_MS)

    # Resources and prompts.

    async def _read_resource(self, exchange: Exchange) -> bytes:
        uri = exchange.params.get("uri")
        if type(uri) is not str or len(uri) > _MAX_URI:
            raise RpcError(INVALID_PARAMS, "resources/read needs the resource's URI as a string.")
        return shape.read_result(await self._fetch(exchange, "resource", uri, {}), exchange.revision)

    async def _get_prompt(self, exchange: Exchange) -> bytes:
        name = exchange.params.get("name")
        if type(name) is not str:
            raise RpcError(INVALID_PARAMS, "prompts/get needs the prompt's name as a string.")
        arguments = exchange.params.get("arguments")
        if arguments is None:
            arguments = {}
        elif type(arguments) is not dict:
            raise RpcError(INVALID_PARAMS, "The arguments of prompts/get must be an object of strings.")
        return shape.prompt_result(await self._fetch(exchange, "prompt", name[:_MAX_URI], arguments), exchange.revision)

    async def _fetch(self, exchange: Exchange, kind: str, name: str, arguments: dict[str, Any]) -> bytes:
        channel = exchange.channel()
        outcome = await self.engine.call(self._as_call(exchange, channel, name, arguments, kind))
        error = outcome.error
        if error is None:
            return outcome.body
        if channel.missing is not None and exchange.revision >= R2026_07_28:
            raise RpcError(MISSING_CAPABILITY, error.message, {"requiredCapabilities": channel.missing})
        raise rpc_error(error, exchange.revision)

    async def _complete(self, exchange: Exchange) -> bytes:
        ref, argument = exchange.params.get("ref"), exchange.params.get("argument")
        if type(ref) is not dict or type(argument) is not dict:
            raise RpcError(INVALID_PARAMS, "completion/complete needs a ref and an argument, both objects.")
        name, value = argument.get("name"), argument.get("value")
        if type(name) is not str or type(value) is not str:
            raise RpcError(INVALID_PARAMS, "The argument of completion/complete has a name and a value, both strings.")
        values: Sequence[str] = ()
        for known in self._arguments_of(exchange.namespace, ref):
            if known.name == name:
                values = _matching(known.values, value)
        page = values[:MAX_COMPLETIONS]
        result = {"completion": {"values": page, "total": len(values), "hasMore": len(values) > len(page)}}
        return shape.complete(dump(result), exchange.revision)

    def _arguments_of(self, namespace: str, ref: dict[str, Any]) -> Sequence[Argument]:
        entry = self._entry(namespace)
        kind = ref.get("type")
        if kind == "ref/prompt":
            prompt = entry.prompts.get(_string(ref.get("name")))
            if prompt is not None:
                return prompt.arguments
            raise RpcError(INVALID_PARAMS, f"Namespace {namespace!r} has no prompt {_string(ref.get('name'))[:200]!r}.")
        if kind == "ref/resource":
            uri = _string(ref.get("uri"))
            found = entry.templates.get(uri) or entry.resources.get(uri)
            if found is not None:
                return found.arguments
            raise RpcError(INVALID_PARAMS, f"Namespace {namespace!r} has no resource {uri[:200]!r}.")
        raise RpcError(INVALID_PARAMS, "A ref is of type ref/prompt or ref/resource.")

    # The rest.

    async def _ping(self, exchange: Exchange) -> bytes:
        return b"{}"

    async def _discover(self, exchange: Exchange) -> bytes:
        entry = self._entry(exchange.namespace)
        result: dict[str, Any] = {
            "supportedVersions": self.revisions.listed(),
            "capabilities": capabilities(exchange.revision),
        }
        if entry.description:
            result["instructions"] = entry.description
        return shape.complete(dump(result), exchange.revision, ttl_ms=LIST_TTL_MS)

    def _entry(self, namespace: str) -> Entry:
        if len(namespace) > _MAX_NAMESPACE:
            raise NamespaceNotFound(f"There is no namespace {namespace[:_MAX_NAMESPACE]!r}…; no name is that long.")
        return self.engine.registry.catalogue.entry(namespace)


def _as_promised(outcome: Outcome, tool: Tool, entry: Entry) -> Outcome:
    """The outcome, or a failure where it does not fit the tool's output schema: clients would refuse it whole."""
    promises = entry.rendered.get(_PROMISES)
    if promises is None:
        promises = entry.rendered[_PROMISES] = {}
    promise = promises.get(tool.name, _UNREAD)
    if promise is _UNREAD:
        promise = promises[tool.name] = _promise(tool)
    if promise is _TEXT and outcome.content is None and outcome.body.startswith(b'"'):
        return outcome  # any text will do, and this is one
    if promise is None or outcome.truncated:
        return outcome
    if promise is _TEXT:
        promise = Validator(tool.name, tool.output_schema or {})
    try:
        promise.check(shape.promised(outcome, tool))
    except InvalidArguments as error:
        first = error.details["errors"][0]
        where = f"{first['path']}: " if first["path"] else ""
        text = f"The result of tool {tool.name!r} does not fit its output schema: {where}{first['message']}."
        return Outcome("error", error=ToolFailed(text, **error.details))
    return outcome


def _promise(tool: Tool) -> Any:
    """What an output schema promises, compiled; None where it cannot be, which the list of tools has to live with."""
    assert tool.output_schema is not None
    if shape.is_any_text(tool.output_schema):
        return _TEXT
    try:
        return Validator(tool.name, tool.output_schema)
    except ConfigError:
        return None


def capabilities(revision: str) -> dict[str, Any]:
    """The same for every namespace, also one without resources or prompts: the next reload may bring them."""
    able: dict[str, Any] = {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "logging": {},
    }
    if revision >= R2025_03_26:
        able["completions"] = {}
    return able


def _matching(values: Sequence[str], typed: str) -> list[str]:
    """Those that begin with what was typed, then those that hold it."""
    typed = typed.casefold()
    begin = [value for value in values if value.casefold().startswith(typed)]
    return begin + [value for value in values if value not in begin and typed in value.casefold()]


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _cursor(page: int) -> str:
    return base64.urlsafe_b64encode(b"page:%d" % page).decode()


def _page_number(cursor: Any) -> int:
    if cursor is None:
        return 0
    try:
        kind, _, number = base64.urlsafe_b64decode(cursor).decode().partition(":")
        if kind == "page" and number.isascii() and number.isdigit() and len(number) < 7:
            return int(number)
    except (binascii.Error, UnicodeDecodeError, TypeError, ValueError, AttributeError):
        pass
    raise RpcError(INVALID_PARAMS, "This is not a cursor of this list. List from the start.")
