"""The revision without sessions: every request says by itself who asks, in what revision and with what abilities.

What is wrong with a request is found step by step, and the first fault is the answer:

    Accept → one message → envelope → headers → revision → headers about arguments → method → the method's own checks

An answer is one JSON object. It becomes a stream of events when the call says something before it is done, or takes
long; until then an error still has a status of its own. A client that leaves has given up: its call is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tooldock.dialects.mcp import answers, headers, jsonrpc, listen, media, sse
from tooldock.dialects.mcp.exchange import LEVELS, SILENT, Exchange
from tooldock.dialects.mcp.jsonrpc import Message, RpcError
from tooldock.dialects.mcp.listen import Listeners, Subscription
from tooldock.dialects.mcp.methods import Methods
from tooldock.dialects.mcp.revisions import Revisions
from tooldock.dialects.mcp.rounds import Rounds
from tooldock.dialects.mcp.seal import Seal
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.edge.http import Headers, Request, Response
from tooldock.edge.outlet import Outlet
from tooldock.errors import NoBackChannel, ToolDockError, Unavailable

if TYPE_CHECKING:
    from tooldock.engine.registry import Change

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"

STATUS: Mapping[int, int] = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    jsonrpc.MISSING_CAPABILITY: 400,
    jsonrpc.UNSUPPORTED_VERSION: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
}
"""The status of an error that is the whole answer. Others, our own faults for one, answer a good request: 200."""

_LEVELS = frozenset(LEVELS)
_STOPPED = "ToolDock is shutting down, and the call was stopped. Try again in a moment."
_MAX_SHOWN = 40


class Stateless:
    def __init__(
        self, methods: Methods, revisions: Revisions, seal: Seal, keepalive: KeepAlive, *, strict: bool = True
    ) -> None:
        self._methods = methods
        self._revisions = revisions
        self._served = frozenset(revisions.stateless)
        self._registry = methods.engine.registry
        self._keepalive = keepalive
        self._strict = strict
        self.rounds = Rounds(methods, seal)
        self.listeners = Listeners(self._registry, keepalive)

    async def post(self, request: Request, value: Any) -> Response:
        """Raises `RpcError` for what is no request; and `ToolDockError` where it is about more than this request."""
        takes = media.accepted(request.headers.get(b"accept"))
        if not takes.stated:
            refusal = self._unacceptable(takes)
            if refusal is not None:
                return answers.problem(406, jsonrpc.id_of(value), RpcError(jsonrpc.INVALID_REQUEST, refusal))
        message = jsonrpc.message(value)
        if message.kind != "request":
            return self._without_answer(request, message)
        id = message.id
        assert id is not None
        try:
            params = message.params
            meta = params.get("_meta")
            if type(meta) is not dict:
                meta = {}
            version = meta.get(VERSION_KEY)
            capabilities = meta.get(CAPABILITIES_KEY)
            if type(version) is not str or type(capabilities) is not dict:
                headers.check_single(request)
                raise _bad_envelope(params, meta)
            method = message.method
            headers.check(request, version, method, params)
            if version not in self._served:
                raise self._unsupported(version)
            namespace = request.require_namespace()
            if method == "tools/call":
                self._check_arguments(request, namespace, params)
            elif not self._methods.knows(method, version):
                if method == listen.METHOD:
                    return await self._listen(request, takes, Subscription(id, namespace, params))
                raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method[:200]}")
            level = meta.get(LOG_LEVEL_KEY)
            if level is not None and (type(level) is not str or level not in _LEVELS):
                raise RpcError(jsonrpc.INVALID_PARAMS, f"The log level must be one of {', '.join(LEVELS)}.")
        except RpcError as error:
            return answers.problem(STATUS.get(error.code, 200), id, error)
        reply = _Reply(request, self._keepalive) if takes.sse else None
        exchange = Exchange(
            namespace,
            request.caller,
            request.request_id,
            version,
            id,
            method,
            params,
            capabilities,
            SILENT if reply is None else reply,
            level,
        )
        if reply is None:
            return await self._answer_plainly(exchange)
        if not takes.json:
            reply.begin()
        return await self._answer(exchange, reply)

    def on_change(self, change: Change) -> None:
        self.listeners.on_change(change)

    def close(self) -> None:
        """End every stream the polite way, and the calls that wait for a client to come back."""
        self.listeners.close()
        self.rounds.close()

    def numbers(self) -> dict[str, float]:
        return {"suspended_calls": self.rounds.waiting, "subscriptions": len(self.listeners)}

    async def _answer(self, exchange: Exchange, reply: _Reply) -> Response:
        keepalive = self._keepalive
        id = exchange.id
        keepalive.wait(reply)
        try:
            if exchange.capabilities or "requestState" in exchange.params or "inputResponses" in exchange.params:
                body = await self._perhaps_in_rounds(exchange)
            else:
                body = await self._methods.answer(exchange)
        except RpcError as error:
            if reply.outlet is None:
                return answers.problem(STATUS.get(error.code, 200), id, error)
            return reply.end(jsonrpc.error(id, error))
        except ToolDockError as error:
            if reply.outlet is None:
                raise
            return reply.end(jsonrpc.error(id, answers.rpc_error(error, exchange.revision)))
        except asyncio.CancelledError:
            if reply.outlet is None or not reply.stays():
                raise
            # The process ends, and this answer has begun: it shall not break off without a word.
            return reply.end(jsonrpc.error(id, RpcError(jsonrpc.INTERNAL_ERROR, _STOPPED)))
        finally:
            keepalive.done(reply)
        if reply.outlet is None:
            return Response(200, jsonrpc.result(id, body), answers.JSON)
        return reply.end(jsonrpc.result(id, body))

    async def _answer_plainly(self, exchange: Exchange) -> Response:
        """For a client that takes no stream."""
        try:
            body = await self._perhaps_in_rounds(exchange)
        except RpcError as error:
            return answers.problem(STATUS.get(error.code, 200), exchange.id, error)
        return answers.answer(jsonrpc.result(exchange.id, body))

    async def _perhaps_in_rounds(self, exchange: Exchange) -> bytes:
        if self.rounds.concern(exchange):
            return await self.rounds.answer(exchange)
        return await self._methods.answer(exchange)

    async def _listen(self, request: Request, takes: media.Accepted, subscription: Subscription) -> Response:
        if not takes.sse:
            error = RpcError(
                jsonrpc.INVALID_REQUEST, f"{listen.METHOD} is answered with a stream: accept text/event-stream."
            )
            return answers.problem(406, subscription.id, error)
        try:
            self.listeners.admit(request.caller.name)
        except Unavailable as full:
            retry: Headers = ((b"retry-after", b"%d" % (full.retry_after or 1)),)
            return answers.problem(503, subscription.id, RpcError(jsonrpc.INTERNAL_ERROR, full.message), retry)
        return await self.listeners.listen(request, subscription)

    def _unacceptable(self, takes: media.Accepted) -> str | None:
        both = media.BOTH.decode()
        if self._strict:
            return (
                f"The Accept header must name both forms of an answer: 'Accept: {both}' (MCP_STRICT=true; with false, "
                "one is enough)."
            )
        if takes.json or takes.sse:
            return None
        return f"Answers are JSON or event streams, and this request accepts neither. Send 'Accept: {both}'."

    def _without_answer(self, request: Request, message: Message) -> Response:
        """A notification: this revision defines none over HTTP, so it is taken and means nothing."""
        if message.kind == "reply":
            raise RpcError(
                jsonrpc.INVALID_REQUEST,
                "Invalid request: nothing was asked that a posted response could answer. Questions are answered in the "
                "inputResponses of the repeated request.",
            )
        meta = message.params.get("_meta")
        version = meta.get(VERSION_KEY) if type(meta) is dict else None
        if version is None:
            version = request.headers.get(headers.VERSION, b"").decode("latin-1").strip()
        if type(version) is not str or version not in self._served:
            raise self._unsupported(version)
        return answers.accepted()

    def _check_arguments(self, request: Request, namespace: str, params: dict[str, Any]) -> None:
        entry = self._registry.catalogue.entries.get(namespace)
        name = params.get("name")
        if entry is not None and type(name) is str:
            headers.check_arguments(request, entry, name, params.get("arguments"))

    def _unsupported(self, version: Any) -> RpcError:
        """It names the other revisions as well: a client that speaks one of those may start over with `initialize`."""
        served = self._revisions.listed()
        shown = version[:_MAX_SHOWN] if type(version) is str else ""
        if shown in self._revisions.handshake:
            how = f"Revision {shown} begins with initialize, without an envelope in _meta."
        else:
            how = f"This server speaks {', '.join(served)}."
        # A list with the refused one in it would send the client round in circles.
        others = [revision for revision in served if revision != shown] or served
        return RpcError(
            jsonrpc.UNSUPPORTED_VERSION,
            f"Unsupported protocol version {shown!r}. {how}",
            {"supported": others, "requested": shown},
        )


class _Reply:
    """The answer to one request, which becomes a stream when something is said before it; its exchange's `Wire`."""

    __slots__ = ("_keepalive", "_request", "outlet")

    def __init__(self, request: Request, keepalive: KeepAlive) -> None:
        self._request = request
        self._keepalive = keepalive
        self.outlet: Outlet | None = None

    def begin(self) -> None:
        if self.outlet is None:
            self.outlet = self._request.open(200, sse.HEADERS)
            self._keepalive.stream(self.outlet)

    def send(self, message: bytes) -> None:
        self.begin()
        assert self.outlet is not None
        self.outlet.write(sse.event(message))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        raise NoBackChannel(f"The tool has a question for its caller ({method}) that this request cannot be asked.")

    def close_stream(self) -> bool:
        return False

    def stays(self) -> bool:
        """Whether the client is there and this process is what goes; takes back the cancellation that said so."""
        task = self._request.task
        return self._request.stopped == "" and task is not None and not task.uncancel()

    def end(self, message: bytes) -> Response:
        """The last event of a stream that has begun."""
        assert self.outlet is not None
        event = sse.event(message)
        # A large result is not a client that does not read.
        self.outlet.max_pending += len(event)
        self.outlet.write(event)
        return Response(200)


def _bad_envelope(params: dict[str, Any], meta: dict[str, Any]) -> RpcError:
    if type(params.get("_meta")) is not dict:
        wrong = f"params._meta must be an object with {VERSION_KEY} and {CAPABILITIES_KEY}."
    elif VERSION_KEY not in meta or CAPABILITIES_KEY not in meta:
        missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
        wrong = f"params._meta lacks {' and '.join(missing)}."
    elif type(meta[VERSION_KEY]) is not str:
        wrong = f"{VERSION_KEY} in params._meta must be a string."
    else:
        wrong = f"{CAPABILITIES_KEY} in params._meta must be an object."
    return RpcError(jsonrpc.INVALID_PARAMS, f"Invalid params: {wrong}")
