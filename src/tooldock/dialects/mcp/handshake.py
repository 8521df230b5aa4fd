"""The revisions with a handshake on one endpoint: 2025-11-25, 2025-06-18, 2025-03-26 (and 2024-11-05 where a client
asks for it here).

`initialize` opens a session; every later request shows its id. A request is answered inline, as plain JSON when nothing
was said before its answer, else as a stream of events that a client may lose and continue by GET. A client that goes
away does not stop its call; `notifications/cancelled` does, and so does the end of the session.

With `strict`, three rules hold that some clients break: both media types in `Accept`, a version header that equals the
session's, and nothing but `ping` before `notifications/initialized`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from tooldock.dialects.mcp import answers, jsonrpc, sse
from tooldock.dialects.mcp.exchange import SILENT, Exchange
from tooldock.dialects.mcp.jsonrpc import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_BATCH,
    UNSUPPORTED_VERSION,
    Id,
    Message,
    RpcError,
)
from tooldock.dialects.mcp.media import Accepted, NotAcceptable, accepted
from tooldock.dialects.mcp.revisions import R2025_03_26, R2025_06_18, R2025_11_25, Revisions
from tooldock.dialects.mcp.sessions import SETTERS, Session, Sessions
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.dialects.mcp.streams import Stream, position
from tooldock.edge.http import HttpError, Request, Response
from tooldock.errors import NoBackChannel, ToolDockError, Unavailable

if TYPE_CHECKING:
    from tooldock.dialects.mcp.methods import Methods
    from tooldock.edge.outlet import Outlet
    from tooldock.engine.registry import Change

log = structlog.get_logger("tooldock.mcp")

LIST_CHANGED = {
    part: jsonrpc.notification(f"notifications/{part}/list_changed") for part in ("tools", "resources", "prompts")
}
_EMPTY = b"{}"


class SessionNotFound(HttpError):
    code = "session_not_found"
    status = 404


class Post:
    """One POST under way: how its answer begins as a stream, if it has to, and what happens when its client leaves."""

    __slots__ = ("_handshake", "_request", "_session", "_sse", "closing", "gone", "stream")

    def __init__(self, handshake: Handshake, request: Request, session: Session, sse: bool) -> None:
        self._handshake = handshake
        self._request = request
        self._session = session
        self._sse = sse
        self.stream: Stream | None = None
        self.gone = False
        self.closing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Answer with a stream from now on; nothing where the client takes none or is gone."""
        if self.stream is not None or self.gone or not self._sse:
            return
        outlet = self._request.open(200, sse.HEADERS)
        streams = self._session.stream_set(self._handshake.sessions.replay)
        self.stream = streams.open(outlet, standing=False)
        self._handshake.keepalive.stream(outlet)

    def leave(self) -> None:
        """The client is gone. Its call goes on; what it says from now on waits in the log."""
        self.gone = True
        if self.stream is not None and self._request.outlet is not None:
            self.stream.detach(self._request.outlet)

    def part(self) -> bool:
        """End this connection before the answer; the client fetches it by GET."""
        if self._session.revision < R2025_11_25:
            return False
        self.begin()
        outlet = self.stream.part() if self.stream is not None else None
        if outlet is None:
            return False
        if outlet is self._request.outlet:
            self.closing = asyncio.get_running_loop().create_task(self._request.part())
        else:
            outlet.end()
        return True


class Running:
    """One request under way, and its `Wire`."""

    __slots__ = ("_asked", "_session", "cancelled", "id", "post", "task")

    def __init__(self, session: Session, post: Post, id: Id, task: asyncio.Task[Any] | None) -> None:
        self._session = session
        self.post = post
        self.id = id
        self.task = task
        self.cancelled: str | None = None
        self._asked: set[Id] | None = None

    def send(self, message: bytes) -> None:
        post = self.post
        if post.stream is None:
            post.begin()
        if post.stream is not None:
            post.stream.write(message)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        self.post.begin()
        if self.post.stream is None:
            raise NoBackChannel(f"The tool has a question for its caller ({method}), but the client has gone away.")
        if self._asked is None:
            self._asked = set()
        return await self._session.question_set().ask(self.send, method, params, self._asked)

    def close_stream(self) -> bool:
        return self.post.part()

    def cancel(self, reason: str) -> None:
        if self.cancelled is None and self.task is not None:
            self.cancelled = reason
            self.task.cancel()

    def over(self) -> None:
        assert self._session.running is not None
        self._session.running.pop(self.id, None)
        if self._asked and self._session.questions is not None:
            self._session.questions.abandon(self._asked)


class Handshake:
    def __init__(
        self,
        methods: Methods,
        revisions: Revisions,
        sessions: Sessions,
        keepalive: KeepAlive,
        *,
        strict: bool = True,
    ) -> None:
        self.sessions = sessions
        self.keepalive = keepalive
        self._methods = methods
        self._revisions = revisions
        self._strict = strict
        self._listening: dict[str, int] = {}
        """Open GET streams by caller."""
        self._closed = False

    # POST.

    async def post(self, request: Request, value: Any) -> Response:
        headers = request.headers
        id = headers.get(b"mcp-session-id")
        if id is None:
            return self._without_session(request, value)
        namespace = request.namespace
        assert namespace is not None
        session = self.sessions.find(id, request.caller.name, namespace)
        if session is None:
            if type(value) is dict and value.get("method") == "initialize":
                return self._without_session(request, value)  # it kept the id of a session that is over
            return answers.problem(404, jsonrpc.id_of(value), RpcError(INVALID_REQUEST, _NOT_FOUND))
        version = headers.get(b"mcp-protocol-version")
        if version is not None and version != session.header:
            self._check_version(version, session)
        accept = accepted(headers.get(b"accept"))
        if not accept.stated:
            self._check_accept(accept, session.revision)
        if type(value) is list:
            return await self._batch(request, session, value, accept)
        message = jsonrpc.message(value)
        if message.kind != "request":
            self._take(session, message)
            return answers.accepted()
        self._check_order(session, message.method)
        setter = SETTERS.get(message.method)
        if setter is not None:
            return self._complete(self._set(session, message), accept)
        return await self._call(request, session, message, accept)

    async def _call(self, request: Request, session: Session, message: Message, accept: Accepted) -> Response:
        post = Post(self, request, session, accept.sse)
        assert message.id is not None
        running = Running(session, post, message.id, request.task)
        session.admit(message.id, running)
        request.on_gone = post.leave
        self.keepalive.wait(post)
        try:
            if accept.sse_first:
                post.begin()
            answer = await self._answer(running, message, self._exchange(request, session, message, running, accept))
        finally:
            self.keepalive.done(post)
            request.on_gone = _nothing  # the request and what it was answered by must not hold each other
        if post.stream is None:
            return answers.answer(answer)
        return await self._finish(post, answer)

    async def _answer(self, running: Running, message: Message, exchange: Exchange) -> bytes:
        """The response, whatever happens; only the end of the process gets through."""
        id = running.id
        try:
            return jsonrpc.result(id, await self._methods.answer(exchange))
        except RpcError as error:
            return jsonrpc.error(id, error)
        except ToolDockError as error:
            return jsonrpc.error(id, answers.rpc_error(error, exchange.revision))
        except asyncio.CancelledError:
            if running.task is None or (running.cancelled is None and running.post.stream is None):
                raise
            if running.task.uncancel():
                raise
            if running.cancelled is None:
                # The process ends, and this answer has begun: it shall not break off without a word.
                return jsonrpc.error(id, RpcError(INTERNAL_ERROR, _STOPPED))
            return jsonrpc.error(id, RpcError(CANCELLED, running.cancelled))
        except Exception:
            log.exception("mcp_request_failed", request_id=exchange.request_id, method=message.method[:200])
            text = f"ToolDock failed while handling this request; its log says why under {exchange.request_id}."
            return jsonrpc.error(id, RpcError(INTERNAL_ERROR, text))
        finally:
            running.over()

    async def _finish(self, post: Post, *messages: bytes) -> Response:
        """The end of an answer that became a stream."""
        assert post.stream is not None
        for message in messages[:-1]:
            post.stream.write(message)
        post.stream.finish(messages[-1])
        if post.closing is not None:
            await asyncio.wait((post.closing,))
        return Response(200)

    def _exchange(
        self,
        request: Request,
        session: Session,
        message: Message,
        running: Running,
        accept: Accepted,
        suffix: str = "",
    ) -> Exchange:
        return Exchange(
            session.namespace,
            request.caller,
            request.request_id + suffix,
            session.revision,
            running.id,
            message.method,
            message.params,
            session.capabilities,
            running if accept.sse else SILENT,
            session.log_level,
            session.key,
        )

    # Batches, which 2025-03-26 alone has.

    async def _batch(self, request: Request, session: Session, values: list[Any], accept: Accepted) -> Response:
        if session.revision != R2025_03_26:
            raise RpcError(
                INVALID_REQUEST,
                f"Invalid request: revision {session.revision} has no batches; send one message a POST.",
            )
        if not 0 < len(values) <= MAX_BATCH:
            raise RpcError(INVALID_REQUEST, f"Invalid request: a batch holds between 1 and {MAX_BATCH} messages.")
        parts = [_part(value) for value in values]
        requests = [part for part in parts if isinstance(part, Message) and part.kind == "request"]
        if any(part.method == "initialize" for part in requests):
            raise RpcError(INVALID_REQUEST, "Invalid request: initialize must not be part of a batch.")
        if len({(type(part.id), part.id) for part in requests}) < len(requests):
            raise RpcError(INVALID_REQUEST, "Invalid request: two requests of the batch have the same id.")
        for message in requests:
            self._check_order(session, message.method)
        for part in parts:
            if isinstance(part, Message) and part.kind != "request":
                self._take(session, part)
        wrong = [part for part in parts if isinstance(part, bytes)]
        if not requests and not wrong:
            return answers.accepted()
        return await self._run_batch(request, session, requests, wrong, accept)

    async def _run_batch(
        self, request: Request, session: Session, requests: list[Message], wrong: list[bytes], accept: Accepted
    ) -> Response:
        post = Post(self, request, session, accept.sse)
        request.on_gone = post.leave
        tasks: list[asyncio.Task[bytes]] = []
        loop = asyncio.get_running_loop()
        self.keepalive.wait(post)
        try:
            if not accept.json:
                post.begin()
            for number, message in enumerate(requests):
                tasks.append(loop.create_task(self._one(request, session, message, post, accept, number)))
            done = [*wrong, *await asyncio.gather(*tasks)]
        finally:
            self.keepalive.done(post)
            request.on_gone = _nothing
            for task in tasks:
                task.cancel()
        if post.stream is None:
            return answers.answer(b"[%b]" % b",".join(done))
        return await self._finish(post, *done)

    async def _one(
        self, request: Request, session: Session, message: Message, post: Post, accept: Accepted, number: int
    ) -> bytes:
        assert message.id is not None
        try:
            if message.method in SETTERS:
                return self._set(session, message)
            running = Running(session, post, message.id, asyncio.current_task())
            session.admit(message.id, running)
        except RpcError as error:
            return jsonrpc.error(message.id, error)
        except ToolDockError as error:
            return jsonrpc.error(message.id, answers.rpc_error(error, session.revision))
        exchange = self._exchange(request, session, message, running, accept, f".{number}")
        return await self._answer(running, message, exchange)

    # Without a session.

    def _without_session(self, request: Request, value: Any) -> Response:
        message = jsonrpc.message(value) if type(value) is dict else None
        accept = accepted(request.headers.get(b"accept"))
        if message is not None and message.kind == "request":
            if message.method == "initialize":
                return self._initialize(request, message, accept)
            if message.method == "ping":
                assert message.id is not None
                self._check_accept(accept, R2025_03_26)
                return self._complete(jsonrpc.result(message.id, _EMPTY), accept)
        raise RpcError(
            INVALID_REQUEST,
            "This request shows no session. Send 'initialize' first, and then the Mcp-Session-Id header of its answer "
            "with every request.",
        )

    def _initialize(self, request: Request, message: Message, accept: Accepted) -> Response:
        params = message.params
        requested = params.get("protocolVersion")
        if type(requested) is not str:
            raise RpcError(INVALID_PARAMS, "initialize needs the protocolVersion the client wants, as a string.")
        revision = self._revisions.negotiate(requested)
        if revision is None:
            raise RpcError(
                UNSUPPORTED_VERSION,
                f"This server speaks {', '.join(self._revisions.listed())}, which has no initialize.",
                {"supported": self._revisions.listed(), "requested": requested[:40]},
            )
        self._check_accept(accept, revision)
        capabilities = params.get("capabilities", {})
        client = params.get("clientInfo", {})
        if type(capabilities) is not dict or type(client) is not dict:
            raise RpcError(INVALID_PARAMS, "The capabilities and the clientInfo of initialize must be objects.")
        if self._closed:
            raise _closing()
        assert message.id is not None
        assert request.namespace is not None
        answer = jsonrpc.result(message.id, self._methods.initialize(request.namespace, revision))
        session = self.sessions.open(request.caller.name, request.namespace, revision, capabilities, client)
        response = self._complete(answer, accept)
        response.headers += ((b"mcp-session-id", session.id),)
        return response

    # GET and DELETE.

    async def get(self, request: Request) -> Response:
        session = self._session(request)
        header = request.headers.get(b"accept")
        accept = accepted(header)
        if not accept.sse or (header is None and self._strict and session.revision >= R2025_06_18):
            raise NotAcceptable("A GET here opens a stream of events: send 'Accept: text/event-stream'.")
        last = request.headers.get(b"last-event-id", b"").strip()
        seen = position(last) if last else None
        if last and seen is None:
            raise HttpError("The Last-Event-ID header is not an id this server gave to an event; leave it out.")
        self._check_listeners(request.caller.name)
        outlet = request.open(200, sse.HEADERS)
        request.on_gone = outlet.end
        streams = session.stream_set(self.sessions.replay)
        stream = streams.find(seen[0]) if seen is not None else None
        if seen is None or stream is None or not stream.continues(seen[1]):
            # Nothing is left to continue with. A client that got an empty stream would come back at once, for ever;
            # one that listens to the session is content, and after a restart it is what it wants.
            stream = streams.open(outlet, standing=True)
        else:
            stream.resume(outlet, seen[1])
        await self._listen(request.caller.name, stream, outlet)
        return Response(200)

    async def _listen(self, caller: str, stream: Stream, outlet: Outlet) -> None:
        self._listening[caller] = self._listening.get(caller, 0) + 1
        self.keepalive.stream(outlet)
        try:
            await outlet.over()
        finally:
            self._listening[caller] -= 1
            if not self._listening[caller]:
                del self._listening[caller]
            stream.detach(outlet)

    async def delete(self, request: Request) -> Response:
        self.sessions.end(self._session(request), "The client ended the session.")
        return Response(200)

    def _session(self, request: Request) -> Session:
        id = request.headers.get(b"mcp-session-id")
        if id is None:
            raise HttpError("This request shows no session: send the Mcp-Session-Id header that initialize gave you.")
        assert request.namespace is not None
        session = self.sessions.find(id, request.caller.name, request.namespace)
        if session is None:
            raise SessionNotFound(_NOT_FOUND)
        version = request.headers.get(b"mcp-protocol-version")
        if version is not None and version != session.header:
            try:
                self._check_version(version, session)
            except RpcError as error:
                raise HttpError(error.message) from None
        return session

    # Messages without an answer, and requests about the session itself.

    def _take(self, session: Session, message: Message) -> None:
        if message.kind == "reply":
            session.take_reply(message)
        elif message.method == "notifications/initialized":
            if not session.initialized:
                session.initialized = True
                self.sessions.save(session)
        elif message.method == "notifications/cancelled":
            session.take_cancelled(message.params)

    def _set(self, session: Session, message: Message) -> bytes:
        assert message.id is not None
        try:
            if SETTERS[message.method](session, message.params):
                self.sessions.save(session)
        except RpcError as error:
            return jsonrpc.error(message.id, error)
        return jsonrpc.result(message.id, _EMPTY)

    @staticmethod
    def _complete(answer: bytes, accept: Accepted) -> Response:
        """An answer that is already there, in the form the client takes."""
        if accept.json:
            return answers.answer(answer)
        return Response(200, sse.event(answer), sse.HEADERS)

    # Changes and the end.

    def on_change(self, change: Change) -> None:
        """Tell the sessions of a namespace what changed in it."""
        lists = [LIST_CHANGED[part] for part in ("tools", "resources", "prompts") if part in change.parts]
        for session in self.sessions.of(change.namespace):
            if not session.initialized and self._strict:
                continue
            resources = updated(session, change)
            if lists or resources:
                streams = session.stream_set(self.sessions.replay)
                for message in (*lists, *resources):
                    streams.notify(message)

    def close(self) -> None:
        """The process is about to end: no new sessions and streams, and whoever listens is told when to come back."""
        self._closed = True
        for session in self.sessions.all():
            if session.streams is not None:
                session.streams.part()

    def numbers(self) -> dict[str, float]:
        replay = self.sessions.replay
        return {"sessions": len(self.sessions), "replay_bytes": replay.bytes, "replay_evictions": replay.evicted}

    # What has to be right before anything happens.

    def _check_version(self, version: bytes, session: Session) -> None:
        """For a header that differs from the session's revision."""
        named = version.decode("latin-1").strip()
        if named == session.revision:
            return
        if named not in self._revisions.handshake:
            raise RpcError(
                INVALID_REQUEST,
                f"Unsupported protocol version {named[:40]!r} in the MCP-Protocol-Version header. This session uses "
                f"{session.revision}.",
                {"supported": list(self._revisions.handshake), "requested": named[:40]},
            )
        if self._strict and named != R2025_03_26:
            # That one is what a missing header stands for, so it claims nothing; the official suite sends it, too.
            raise RpcError(
                INVALID_REQUEST,
                f"The MCP-Protocol-Version header says {named}, but this session negotiated {session.revision}. Send "
                "that, or have the operator set MCP_STRICT=false.",
            )

    def _check_accept(self, accept: Accepted, revision: str) -> None:
        if accept.stated:
            return
        if self._strict and revision >= R2025_06_18:
            raise NotAcceptable(
                f"Revision {revision} asks clients to take both forms of an answer: send 'Accept: application/json, "
                "text/event-stream', or have the operator set MCP_STRICT=false."
            )
        if not accept.json and not accept.sse:
            raise NotAcceptable("Answers are application/json or text/event-stream; accept at least one of them.")

    def _check_order(self, session: Session, method: str) -> None:
        if method == "initialize":
            raise RpcError(INVALID_REQUEST, "This session is initialized already. Send initialize without a session.")
        if not session.initialized and self._strict and method != "ping":
            raise RpcError(
                INVALID_REQUEST,
                "The session is not ready: send 'notifications/initialized' after the answer to initialize, or have "
                "the operator set MCP_STRICT=false.",
            )

    def _check_listeners(self, caller: str) -> None:
        if self._closed:
            raise _closing()
        if self._listening.get(caller, 0) >= self.sessions.max_per_caller:
            raise Unavailable("This caller has too many event streams open; close some.", retry_after=30)
        if sum(self._listening.values()) >= self.sessions.max_sessions:
            raise Unavailable("There are too many event streams open; try again later.", retry_after=30)


_STOPPED = "ToolDock is shutting down, and the call was stopped. Try again in a moment."
_NOT_FOUND = "Session not found: it is over, or was never there. Send 'initialize' again, without Mcp-Session-Id."


def _nothing() -> None:
    return None


def _closing() -> Unavailable:
    return Unavailable("The gateway is shutting down; try again in a moment.", retry_after=5)


def _part(value: Any) -> Message | bytes:
    """A message of a batch, or the error that answers what is none."""
    try:
        return jsonrpc.message(value)
    except RpcError as error:
        return jsonrpc.error(jsonrpc.id_of(value), error)


def updated(session: Session, change: Change) -> list[bytes]:
    """The resources this session subscribed to that changed, or may have."""
    if session.subscriptions is None:
        return []
    uris = session.subscriptions if change.reloaded else session.subscriptions & change.uris
    return [jsonrpc.notification("notifications/resources/updated", {"uri": uri}) for uri in sorted(uris)]
