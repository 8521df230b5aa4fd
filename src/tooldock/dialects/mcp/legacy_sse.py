"""HTTP+SSE, the transport of revision 2024-11-05: a GET that stays open, and POSTs beside it.

    GET  /sse                       event: endpoint, data: /messages?session_id=…
    POST /messages?session_id=…     202; what there is to say comes as `message` events on the GET

The connection is the session: when it ends, so do the calls made through it, and nothing of it is kept. Requests are
served without `initialize` as well, because clients of this age exist that never send it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from tooldock.dialects.mcp import answers, jsonrpc, sse
from tooldock.dialects.mcp.exchange import Exchange
from tooldock.dialects.mcp.handshake import LIST_CHANGED, SessionNotFound, updated
from tooldock.dialects.mcp.jsonrpc import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Id,
    Message,
    RpcError,
)
from tooldock.dialects.mcp.media import NotAcceptable, accepted, check_content_type
from tooldock.dialects.mcp.revisions import R2024_11_05, Revisions
from tooldock.dialects.mcp.sessions import SETTERS, Session, abilities
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.edge.http import HttpError, Request, Response
from tooldock.edge.outlet import MAX_PENDING, Outlet
from tooldock.errors import ToolDockError, Unavailable

if TYPE_CHECKING:
    from tooldock.dialects.mcp.methods import Methods
    from tooldock.engine.registry import Change

MAX_CONNECTIONS = 2000
MAX_PER_CALLER = 1000

_EMPTY = b"{}"
log = structlog.get_logger("tooldock.mcp")


class Connection:
    """One open GET: its session, and the calls made through it."""

    __slots__ = ("outlet", "session", "tasks")

    def __init__(self, session: Session, outlet: Outlet) -> None:
        self.session = session
        self.outlet = outlet
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, message: bytes) -> None:
        event = sse.event(message)
        # The bound is for what piles up, not for a single large answer, which has its own.
        self.outlet.max_pending = max(self.outlet.max_pending, MAX_PENDING + len(event))
        self.outlet.write(event)

    def close(self) -> None:
        self.session.end("The connection was closed.")


class Running:
    """One request under way, and its `Wire`."""

    __slots__ = ("_asked", "_connection", "cancelled", "id", "task")

    def __init__(self, connection: Connection, id: Id) -> None:
        self._connection = connection
        self.id = id
        self.task: asyncio.Task[None] | None = None
        self.cancelled: str | None = None
        self._asked: set[Id] = set()

    def send(self, message: bytes) -> None:
        self._connection.send(message)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        return await self._connection.session.question_set().ask(self.send, method, params, self._asked)

    def close_stream(self) -> bool:
        return False

    def cancel(self, reason: str) -> None:
        if self.cancelled is None and self.task is not None:
            self.cancelled = reason
            self.task.cancel()

    def over(self) -> None:
        session = self._connection.session
        assert session.running is not None
        session.running.pop(self.id, None)
        if self._asked and session.questions is not None:
            session.questions.abandon(self._asked)


class LegacySse:
    def __init__(
        self,
        methods: Methods,
        revisions: Revisions,
        keepalive: KeepAlive,
        *,
        max_connections: int = MAX_CONNECTIONS,
        max_per_caller: int = MAX_PER_CALLER,
    ) -> None:
        self._methods = methods
        self._revisions = revisions
        self._keepalive = keepalive
        self._max_connections = max_connections
        self._max_per_caller = max_per_caller
        self._connections: dict[str, Connection] = {}
        self._closed = False
        served = revisions.handshake
        self._first = R2024_11_05 if R2024_11_05 in served or not served else served[-1]

    # The connection.

    async def get(self, request: Request) -> Response:
        if not accepted(request.headers.get(b"accept")).sse:
            raise NotAcceptable("A GET here opens a stream of events: send 'Accept: text/event-stream'.")
        self._check_room(request.caller.name)
        assert request.namespace is not None
        id = secrets.token_urlsafe(32)
        caller = request.caller.name
        share = next((one.session.share for one in self._connections.values() if one.session.caller == caller), None)
        session = Session(id.encode(), caller, request.namespace, self._first, {}, share=share)
        outlet = request.open(200, sse.HEADERS)
        request.on_gone = outlet.abort
        connection = self._connections[id] = Connection(session, outlet)
        # What precedes our own path names the namespace, where the client chose it that way.
        base = request.scope["path"].removesuffix(request.path)
        outlet.write(b"event: endpoint\ndata: %b/messages?session_id=%b\n\n" % (base.encode(), id.encode()))
        self._keepalive.stream(outlet)
        try:
            await outlet.over()
        finally:
            del self._connections[id]
            connection.close()
            if connection.tasks:
                await asyncio.wait(connection.tasks, timeout=5)
        return Response(200)

    def _check_room(self, caller: str) -> None:
        if self._closed:
            raise Unavailable("The gateway is shutting down; try again in a moment.", retry_after=5)
        own = sum(one.session.caller == caller for one in self._connections.values())
        if len(self._connections) >= self._max_connections or own >= self._max_per_caller:
            raise Unavailable(
                "There are too many connections of this kind open; close some, or use /mcp.", retry_after=30
            )

    # Messages.

    async def post(self, request: Request) -> Response:
        check_content_type(request.headers.get(b"content-type"))
        connection = self._find(request)
        value = None
        try:
            value = jsonrpc.parse(await request.read())
            message = jsonrpc.message(value)
            if message.kind == "request":
                self._start(request, connection, message)
            else:
                _take(connection.session, message)
        except RpcError as error:
            return answers.problem(400, jsonrpc.id_of(value), error)
        return answers.accepted()

    def _find(self, request: Request) -> Connection:
        id = request.parameter("session_id") or request.parameter("sessionId")
        if not id:
            raise HttpError(
                "This request names no session: post to the URI that the 'endpoint' event of /sse gave you."
            )
        found = self._connections.get(id)
        if (
            found is None
            or not found.outlet.open
            or found.session.caller != request.caller.name
            or found.session.namespace != request.namespace
        ):
            raise SessionNotFound("There is no such session: its connection to /sse is closed. Open another one.")
        return found

    def _start(self, request: Request, connection: Connection, message: Message) -> None:
        assert message.id is not None
        session = connection.session
        local = self._local(connection, message)
        if local is not None:
            connection.send(local)
            return
        running = Running(connection, message.id)
        session.admit(message.id, running)
        exchange = Exchange(
            session.namespace,
            request.caller,
            request.request_id,
            session.revision,
            message.id,
            message.method,
            message.params,
            session.capabilities,
            running,
            session.log_level,
            session.key,
        )
        running.task = asyncio.get_running_loop().create_task(self._run(connection, running, exchange))
        connection.tasks.add(running.task)
        running.task.add_done_callback(connection.tasks.discard)

    def _local(self, connection: Connection, message: Message) -> bytes | None:
        """The answer to what concerns the connection alone."""
        assert message.id is not None
        try:
            if message.method == "initialize":
                return jsonrpc.result(message.id, self._initialize(connection.session, message.params))
            setter = SETTERS.get(message.method)
            if setter is None:
                return None
            setter(connection.session, message.params)
        except RpcError as error:
            return jsonrpc.error(message.id, error)
        return jsonrpc.result(message.id, _EMPTY)

    def _initialize(self, session: Session, params: dict[str, Any]) -> bytes:
        if session.initialized:
            raise RpcError(INVALID_REQUEST, "This connection is initialized already.")
        requested, capabilities = params.get("protocolVersion"), params.get("capabilities", {})
        if type(requested) is not str or type(capabilities) is not dict:
            raise RpcError(
                INVALID_PARAMS, "initialize needs a protocolVersion (a string) and capabilities (an object)."
            )
        revision = self._revisions.negotiate(requested) or self._first
        try:
            answer = self._methods.initialize(session.namespace, revision)
        except ToolDockError as error:
            raise answers.rpc_error(error, revision) from None
        session.revision = revision
        session.capabilities = abilities(capabilities)
        session.initialized = True
        return answer

    async def _run(self, connection: Connection, running: Running, exchange: Exchange) -> None:
        try:
            answer = jsonrpc.result(running.id, await self._methods.answer(exchange))
        except RpcError as error:
            answer = jsonrpc.error(running.id, error)
        except ToolDockError as error:
            answer = jsonrpc.error(running.id, answers.rpc_error(error, exchange.revision))
        except asyncio.CancelledError:
            if running.cancelled is None:
                raise
            answer = jsonrpc.error(running.id, RpcError(CANCELLED, running.cancelled))
        except Exception:
            log.exception("mcp_request_failed", request_id=exchange.request_id, method=exchange.method[:200])
            text = f"ToolDock failed while handling this request; its log says why under {exchange.request_id}."
            answer = jsonrpc.error(running.id, RpcError(INTERNAL_ERROR, text))
        finally:
            running.over()
        connection.send(answer)

    # Changes and the end.

    def on_change(self, change: Change) -> None:
        lists = [LIST_CHANGED[part] for part in ("tools", "resources", "prompts") if part in change.parts]
        for connection in self._connections.values():
            session = connection.session
            if session.namespace == change.namespace and session.initialized:
                for message in (*lists, *updated(session, change)):
                    connection.send(message)

    def numbers(self) -> dict[str, float]:
        return {"legacy_connections": len(self._connections)}

    def close(self) -> None:
        """The process is about to end."""
        self._closed = True
        for connection in self._connections.values():
            connection.outlet.end()


def _take(session: Session, message: Message) -> None:
    if message.kind == "reply":
        session.take_reply(message)
    elif message.method == "notifications/cancelled":
        session.take_cancelled(message.params)
