"""The REST routes.

    GET  /tools                 the namespace's tools                    (also below /ns/{namespace})
    POST /tools/{name}          call one; the body is its arguments      (also below /ns/{namespace})
    GET  /tools/{name}/schema   what it takes and gives                  (also below /ns/{namespace})
    GET  /openapi.json          the namespace as OpenAPI 3.1             (also below /ns/{namespace})
    GET  /namespaces            what is being served, and how it is
    GET  /health                is it up; details for callers with a token
    POST /reload                the manager's signal
    GET  /docs, /metrics, /     pages, when they are wired

Errors are raised, and become answers in `envelope`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from tooldock import __version__
from tooldock.dialects.rest.body import parse
from tooldock.dialects.rest.envelope import JSON, dump, refuse
from tooldock.dialects.rest.openapi import document
from tooldock.edge.credentials import ManagerGuard
from tooldock.edge.docs import Docs
from tooldock.edge.http import NoSuchPath, Request, Response, UnsupportedMedia, WrongMethod
from tooldock.edge.metrics import Metrics
from tooldock.errors import NamespaceNotFound, ToolFailed, ToolNotFound
from tooldock.model import Call, Namespace, Outcome, Tool

if TYPE_CHECKING:
    from tooldock.engine.registry import Entry, Registry

_Route = Callable[[Request], Awaitable[Response]]

_RENDERED = "rest.tools"
_MAX_TOOL_NAME = 128
_MAX_NAMESPACE = 63


class Engine(Protocol):
    registry: Registry

    async def call(self, call: Call) -> Outcome: ...


class Rest:
    """`health(detailed)` and `status()` show the gateway; `reload()` makes it look at its folders again."""

    def __init__(
        self,
        engine: Engine,
        *,
        status: Callable[[], Sequence[Namespace]],
        reload: Callable[[], Awaitable[dict[str, Any]]],
        health: Callable[[bool], Awaitable[dict[str, Any]]],
        manager_guard: ManagerGuard,
        docs: Docs | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._engine = engine
        self._status = status
        self._reload = reload
        self._health = health
        self._guard = manager_guard
        self._docs = docs
        self._metrics = metrics
        self._routes: dict[str, tuple[str, _Route]] = {
            "/": ("GET", self._index),
            "/tools": ("GET", self._list),
            "/openapi.json": ("GET", self._openapi),
            "/namespaces": ("GET", self._namespaces),
            "/health": ("GET", self._get_health),
            "/reload": ("POST", self._post_reload),
        }
        if metrics is not None:
            self._routes["/metrics"] = ("GET", self._get_metrics)

    async def __call__(self, request: Request) -> Response:
        path = request.path
        if request.method == "POST" and path.startswith("/tools/"):
            return await self._call(request, path[7:])
        return await self._other(request, path)

    async def _call(self, request: Request, name: str) -> Response:
        if "/" in name or not name:
            raise self._misrouted(request, name)
        namespace = _bounded_namespace(request)
        content_type = request.headers.get(b"content-type")
        if content_type != b"application/json":
            _check_media(content_type)
        body = await request.read()
        if len(name) > _MAX_TOOL_NAME:
            raise _no_such_tool(namespace, name)
        outcome = await self._engine.call(
            Call(namespace, name, parse(body), request.caller, request.request_id, "rest")
        )
        if outcome.error is not None:
            return refuse(request, outcome.error)
        if outcome.status != "ok":
            return refuse(request, ToolFailed(f"Tool {name!r} reported an error.", content=outcome.content))
        if outcome.content is None:
            return Response(200, outcome.body, JSON)
        return Response(200, b'{"content":%b,"structured":%b}' % (dump(outcome.content), outcome.body), JSON)

    async def _other(self, request: Request, path: str) -> Response:
        route = self._routes.get(path)
        if route is not None:
            allowed, answer = route
            return _options(allowed, request) or await answer(request)
        if path.startswith("/tools/"):
            return self._tool_resource(request, path[7:])
        if self._docs is not None and (path == "/docs" or path.startswith("/docs/")):
            return _options("GET", request) or await self._docs.respond(request)
        raise _no_such_path(path)

    def _tool_resource(self, request: Request, rest: str) -> Response:
        name, slash, leaf = rest.partition("/")
        if not name or (slash and leaf != "schema"):
            raise _no_such_path(request.path)
        options = _options("GET" if slash else "POST", request)
        if options is not None:
            return options
        tool = self._tool(request, name)
        described = _describe(tool)
        return _json({"namespace": tool.namespace, **described})

    def _misrouted(self, request: Request, rest: str) -> NoSuchPath | WrongMethod:
        name, _, leaf = rest.partition("/")
        if name and leaf == "schema":
            return WrongMethod(request.method, request.path, "GET, HEAD, OPTIONS")
        return _no_such_path(request.path)

    def _entry(self, request: Request) -> Entry:
        return self._engine.registry.catalogue.entry(_bounded_namespace(request))

    def _tool(self, request: Request, name: str) -> Tool:
        entry = self._entry(request)
        if len(name) > _MAX_TOOL_NAME:
            raise _no_such_tool(entry.name, name)
        return entry.offer(name).tool

    async def _list(self, request: Request) -> Response:
        entry = self._entry(request)
        rendered = entry.rendered.get(_RENDERED)
        if rendered is None:
            tools = [_describe(tool) for tool in entry.tools]
            rendered = entry.rendered[_RENDERED] = dump({"namespace": entry.name, "tools": tools})
        return Response(200, rendered, JSON)

    async def _openapi(self, request: Request) -> Response:
        entry = self._entry(request)
        return Response(200, document(entry, f"{request.base_url}/ns/{entry.name}"), JSON)

    async def _namespaces(self, request: Request) -> Response:
        rows = []
        for namespace in self._status():
            row = asdict(namespace)
            row["tool_count"] = row.pop("tools")
            rows.append(row)
        return _json(rows)

    async def _get_health(self, request: Request) -> Response:
        report = await self._health(request.authenticated)
        return _json({"status": "ok", "version": __version__, **report})

    async def _post_reload(self, request: Request) -> Response:
        self._guard.check(request)
        await request.read()
        return _json(await self._reload())

    async def _get_metrics(self, request: Request) -> Response:
        assert self._metrics is not None
        return await self._metrics.respond(request)

    async def _index(self, request: Request) -> Response:
        """A person who typed the address gets the page, a program the links."""
        if self._docs is not None and b"text/html" in request.headers.get(b"accept", b""):
            return Response(302, headers=((b"location", b"/docs"),))
        base = request.base_url
        links = {
            "namespaces": f"{base}/namespaces",
            "mcp": f"{base}/ns/{{namespace}}/mcp",
            "tools": f"{base}/ns/{{namespace}}/tools",
            "openapi": f"{base}/ns/{{namespace}}/openapi.json",
            "health": f"{base}/health",
        }
        if self._docs is not None:
            links["docs"] = f"{base}/docs"
        return _json({"name": "tooldock", "version": __version__, "links": links})


def _describe(tool: Tool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tool.name,
        "title": tool.title or tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
    }
    if tool.output_schema is not None:
        described["outputSchema"] = tool.output_schema
    if tool.annotations:
        described["annotations"] = tool.annotations
    return described


def _bounded_namespace(request: Request) -> str:
    """No namespace is longer, and looking for one that resembles it would cost time the caller decides on."""
    namespace = request.require_namespace()
    if len(namespace) > _MAX_NAMESPACE:
        raise NamespaceNotFound(f"There is no namespace {namespace[:_MAX_NAMESPACE]!r}…; no name is that long.")
    return namespace


def _no_such_tool(namespace: str, name: str) -> ToolNotFound:
    return ToolNotFound(f"There is no tool {name[:_MAX_TOOL_NAME]!r}…; no name is that long.", namespace=namespace)


def _no_such_path(path: str) -> NoSuchPath:
    return NoSuchPath(f"There is nothing at {path[:200]}. GET / lists what there is.")


def _options(allowed: str, request: Request) -> Response | None:
    """The answer for a method that a resource takes care of by itself; a refusal for one it does not take."""
    method = request.method
    if method == allowed or (method == "HEAD" and allowed == "GET"):
        return None
    allow = "GET, HEAD, OPTIONS" if allowed == "GET" else f"{allowed}, OPTIONS"
    if method == "OPTIONS":
        return Response(204, headers=((b"allow", allow.encode()),))
    sent = str(request.scope["path"])
    hint = f" MCP is at {sent.rstrip('/')[:200]}/mcp." if method == "POST" and request.path == "/" else ""
    raise WrongMethod(method, sent, allow, hint)


def _check_media(content_type: bytes | None) -> None:
    if content_type is None or not content_type.strip():
        return
    media = content_type.partition(b";")[0].strip().lower()
    if media != b"application/json":
        raise UnsupportedMedia(
            "The body must be JSON: send 'Content-Type: application/json' and the arguments as an object."
        )


def _json(value: Any) -> Response:
    return Response(200, dump(value), JSON)
