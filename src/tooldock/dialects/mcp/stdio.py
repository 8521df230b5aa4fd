"""MCP over a pair of pipes: a client writes messages to our input and reads ours from our output, one on each line.

Both eras share the pipe and neither locks it. A request that describes itself in `params._meta` is served as it stands;
`initialize` begins (or begins anew) the handshake that all other requests belong to. Lines that are no JSON-RPC but
those of the line protocol are answered in its form (`dialects.lines`). A line that is neither is answered as a JSON-RPC
error, except on a pipe that has spoken nothing but the line protocol so far.

Reading and writing are in `pipe`; here is the conversation: requests that run, questions that are open, subscriptions.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from tooldock.dialects import lines
from tooldock.dialects.mcp import exchange as talk
from tooldock.dialects.mcp import jsonrpc
from tooldock.dialects.mcp.answers import rpc_error
from tooldock.dialects.mcp.exchange import LEVELS, Exchange
from tooldock.dialects.mcp.jsonrpc import Id, Message, RpcError
from tooldock.dialects.mcp.listen import METHOD as LISTEN
from tooldock.dialects.mcp.listen import Subscription
from tooldock.dialects.mcp.pipe import Incoming, Outgoing
from tooldock.dialects.mcp.revisions import R2025_03_26, Revisions
from tooldock.dialects.mcp.rounds import Rounds
from tooldock.errors import (
    Cancelled,
    InternalError,
    MalformedRequest,
    NoBackChannel,
    TooLarge,
    ToolDockError,
    Unavailable,
)
from tooldock.model import Call, Caller, LogLevel

if TYPE_CHECKING:
    from tooldock.dialects.mcp.methods import Methods
    from tooldock.engine.registry import Change

log = structlog.get_logger("tooldock.stdio")

CALLER = Caller("stdio")
"""Whoever started this process; there is nobody else on the pipe."""

MAX_RUNNING = 1000
MAX_QUESTIONS = 256
MAX_LISTENS = 256
MAX_SUBSCRIPTIONS = 1000
MAX_URI = 2048
DEFAULT_LEVEL: LogLevel = "info"
"""Of log lines to a client that took part in the handshake and has not said what it wants."""

_VERSION = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
_GONE = "The client has closed the pipe, so nobody can answer the tool's question."

_CANCEL_SECONDS = 2.0
_LOOK_SECONDS = 0.1
"""How often to look whether the client is still there, while calls finish at the end."""

_Work = Callable[[], Awaitable[bytes]]
"""What leads to an answer. Not begun yet: a client may take its request back before it is."""


class _Handshake:
    """What `initialize` agreed on, and what the client asked for since."""

    __slots__ = ("capabilities", "initialized", "log_level", "revision", "session_id", "subscriptions")

    def __init__(self, revision: str, capabilities: Mapping[str, Any]) -> None:
        self.revision = revision
        self.capabilities = capabilities
        self.session_id = secrets.token_hex(16)
        self.initialized = False
        self.log_level: LogLevel = DEFAULT_LEVEL
        self.subscriptions: set[str] = set()


class _Running:
    """A request being answered; also the `Wire` by which its tool talks to the client meanwhile."""

    __slots__ = ("_pipe", "id", "open", "revision", "task")

    def __init__(self, pipe: Stdio, id: Id, revision: str) -> None:
        self._pipe = pipe
        self.id = id
        self.revision = revision
        self.open = True
        """Until the client says that it no longer wants to hear of it."""
        self.task: asyncio.Task[bytes | None] | None = None

    def send(self, message: bytes) -> None:
        if self.open:
            self._pipe.remark(message)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        return await self._pipe.ask(method, params)

    def close_stream(self) -> bool:
        return False


class Stdio:
    """One client on one pipe, and the one namespace it was started for."""

    def __init__(
        self, methods: Methods, rounds: Rounds, namespace: str, outgoing: Outgoing, *, strict: bool = True
    ) -> None:
        self._methods = methods
        self._rounds = rounds
        self._revisions: Revisions = methods.revisions
        self._namespace = namespace
        self._outgoing = outgoing
        self._strict = strict
        self._loop = asyncio.get_running_loop()
        self._handshake: _Handshake | None = None
        self._running: dict[Id, _Running] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._questions: dict[Id, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._listens: dict[Subscription, asyncio.Future[None]] = {}
        self._only_lines = False
        """The line protocol is all this pipe has heard."""
        self._only_rpc = False
        self._ending = False
        self._turns: deque[bytes | Coroutine[Any, Any, bytes]] = deque()
        """Answers to lines without an id, in the order of the lines: their client knows them by nothing else."""
        self._turning = False
        self._incoming: Incoming | None = None

    async def serve(self, incoming: Incoming, stop: asyncio.Event, grace: float) -> None:
        """Until the client closes its side, or `stop` is set; what runs then has `grace` seconds to finish."""
        self._incoming = incoming
        self._outgoing.on_crowded = lambda _crowded: self._throttle()
        incoming.start(self.take, self.take_too_long)
        ends = [self._loop.create_task(event.wait()) for event in (incoming.ended, stop, self._outgoing.broken)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            grace = 0.0
            raise
        finally:
            incoming.close()
            for end in ends:
                end.cancel()
            await self._end(grace)

    # Lines in.

    def take(self, line: bytes) -> None:
        """One line, not empty. Never raises."""
        try:
            self._take(line)
        except Exception:
            log.exception("message_failed")
            fault = RpcError(jsonrpc.INTERNAL_ERROR, "ToolDock failed while handling this message. See its log.")
            self._outgoing.write(jsonrpc.error(None, fault))

    def take_too_long(self) -> None:
        text = "The line is longer than MAX_REQUEST_SIZE allows and was skipped."
        self._refuse(RpcError(jsonrpc.INVALID_REQUEST, f"Invalid request: {text}"), TooLarge(text))

    def _take(self, line: bytes) -> None:
        try:
            value = jsonrpc.parse(line)
        except RpcError as error:
            self._refuse(error, MalformedRequest(error.message))
            return
        if lines.is_request(value):
            self._only_lines = not self._only_rpc
            self._take_line(value)
        elif type(value) is dict and "jsonrpc" in value:
            self._only_rpc, self._only_lines = True, False
            self._take_message(value)
        elif type(value) is list and not self._only_lines:
            self._take_batch(value)
        else:
            text = 'A line is a JSON object with a "method".'
            self._refuse(RpcError(jsonrpc.INVALID_REQUEST, f"Invalid request: {text}"), MalformedRequest(text), value)

    def _refuse(self, error: RpcError, in_lines: ToolDockError, value: Any = None) -> None:
        """Answer what belongs to neither protocol in the one that was spoken last."""
        if self._only_lines:
            self._answer_line(lines.failure(in_lines, lines.id_of(value)), lines.id_of(value))
        else:
            self._outgoing.write(jsonrpc.error(jsonrpc.id_of(value), error))

    def _take_message(self, value: Any) -> None:
        try:
            message = jsonrpc.message(value)
        except RpcError as error:
            self._outgoing.write(jsonrpc.error(jsonrpc.id_of(value), error))
            return
        if message.kind == "request":
            answer = self._begin(message, deliver=True)
            if isinstance(answer, bytes):
                self._outgoing.write(answer)
        elif message.kind == "notification":
            self._note(message)
        else:
            self._hear(message)

    def _take_batch(self, values: list[Any]) -> None:
        """An array is answered by one array, when all of its requests are done."""
        handshake = self._handshake
        if handshake is None or handshake.revision != R2025_03_26:
            wrong = "Invalid request: several messages in one array exist only in revision 2025-03-26."
        elif not values:
            wrong = "Invalid request: the array is empty."
        elif len(values) > jsonrpc.MAX_BATCH:
            wrong = f"Invalid request: an array may hold {jsonrpc.MAX_BATCH} messages."
        else:
            answers = [answer for value in values if (answer := self._take_one_of_many(value)) is not None]
            if answers:
                self._start(self._answer_all(answers))
            return
        self._outgoing.write(jsonrpc.error(None, RpcError(jsonrpc.INVALID_REQUEST, wrong)))

    def _take_one_of_many(self, value: Any) -> bytes | asyncio.Task[bytes | None] | None:
        try:
            message = jsonrpc.message(value)
            if message.method == "initialize" or _describes_itself(message):
                raise RpcError(jsonrpc.INVALID_REQUEST, "Invalid request: this message cannot be part of an array.")
        except RpcError as error:
            return jsonrpc.error(jsonrpc.id_of(value), error)
        if message.kind == "request":
            return self._begin(message, deliver=False)
        if message.kind == "notification":
            self._note(message)
        else:
            self._hear(message)
        return None

    async def _answer_all(self, answers: list[bytes | asyncio.Task[bytes | None]]) -> None:
        tasks = [answer for answer in answers if isinstance(answer, asyncio.Task)]
        if tasks:
            await asyncio.wait(tasks)
        done = [_outcome(answer) if isinstance(answer, asyncio.Task) else answer for answer in answers]
        wanted = [answer for answer in done if answer is not None]
        if wanted:
            await self._outgoing.room()
            self._outgoing.write(b"[" + b",".join(wanted) + b"]")

    # Requests.

    def _begin(self, message: Message, *, deliver: bool) -> bytes | asyncio.Task[bytes | None]:
        """The answer, where there is one at once, otherwise the task that will have it."""
        id = message.id
        assert id is not None
        try:
            if id in self._running:
                raise RpcError(jsonrpc.INVALID_REQUEST, "Invalid request: a request with this id is still running.")
            if len(self._running) >= MAX_RUNNING:
                raise RpcError(
                    jsonrpc.INTERNAL_ERROR, f"{MAX_RUNNING} requests are running already. Wait for one to finish."
                )
            if message.method == "initialize":
                return jsonrpc.result(id, self._initialize(message.params))
            running = _Running(self, id, self._revision())
            if _describes_itself(message) or message.method == "server/discover":
                work = self._stateless(self._described(message, running))
            else:
                found = self._of_handshake(message, running)
                if isinstance(found, bytes):
                    return jsonrpc.result(id, found)
                work = partial(self._answered, found)
        except RpcError as error:
            return jsonrpc.error(id, error)
        except ToolDockError as error:
            return jsonrpc.error(id, rpc_error(error, self._revision()))
        self._running[id] = running
        running.task = self._start(self._serve(running, work, deliver=deliver))
        running.task.add_done_callback(lambda _: self._forget(running))
        return running.task

    async def _serve(self, running: _Running, work: _Work, *, deliver: bool) -> bytes | None:
        try:
            answer = await work()
        except RpcError as error:
            answer = jsonrpc.error(running.id, error)
        except ToolDockError as error:
            answer = jsonrpc.error(running.id, rpc_error(error, running.revision))
        except asyncio.CancelledError:
            if not running.open:
                raise
            gone = RpcError(jsonrpc.INTERNAL_ERROR, "The call was stopped, because ToolDock is shutting down.")
            answer = jsonrpc.error(running.id, gone)
        except Exception:
            log.exception("request_failed")
            fault = RpcError(jsonrpc.INTERNAL_ERROR, "ToolDock failed while handling this request. See its log.")
            answer = jsonrpc.error(running.id, fault)
        if not deliver:
            return answer
        await self._outgoing.room()
        if running.open:
            self._outgoing.write(answer)
        return None

    def _forget(self, running: _Running) -> None:
        if self._running.get(running.id) is running:
            del self._running[running.id]

    def _initialize(self, params: dict[str, Any]) -> bytes:
        requested = params.get("protocolVersion")
        revision = self._revisions.negotiate(requested)
        if revision is None:
            raise self._unsupported(requested)
        result = self._methods.initialize(self._namespace, revision)
        capabilities = params.get("capabilities")
        self._handshake = _Handshake(revision, capabilities if type(capabilities) is dict else {})
        return result

    async def _answered(self, exchange: Exchange) -> bytes:
        return jsonrpc.result(exchange.id, await self._methods.answer(exchange))

    def _of_handshake(self, message: Message, running: _Running) -> bytes | Exchange:
        """The result of a request that does not describe itself, or what is to be answered."""
        handshake = self._handshake
        if message.method == "ping":
            return b"{}"
        if handshake is None:
            raise RpcError(
                jsonrpc.INVALID_REQUEST,
                "Invalid request: nothing has been agreed on yet. Send initialize first, or describe each request in "
                "its params._meta.",
            )
        if self._strict and not handshake.initialized:
            raise RpcError(
                jsonrpc.INVALID_REQUEST,
                "Invalid request: send notifications/initialized before other requests. MCP_STRICT=false lifts this "
                "rule.",
            )
        match message.method:
            case "logging/setLevel":
                handshake.log_level = _level(message.params.get("level"))
                return b"{}"
            case "resources/subscribe":
                uri = _uri(message.params)
                if len(handshake.subscriptions) >= MAX_SUBSCRIPTIONS and uri not in handshake.subscriptions:
                    raise RpcError(jsonrpc.INVALID_PARAMS, f"No more than {MAX_SUBSCRIPTIONS} subscriptions, please.")
                handshake.subscriptions.add(uri)
                return b"{}"
            case "resources/unsubscribe":
                handshake.subscriptions.discard(_uri(message.params))
                return b"{}"
        return Exchange(
            self._namespace,
            CALLER,
            _request_id(),
            handshake.revision,
            running.id,
            message.method,
            message.params,
            handshake.capabilities,
            running,
            handshake.log_level,
            handshake.session_id,
        )

    def _described(self, message: Message, running: _Running) -> Exchange:
        """A request by what it says of itself, and by nothing that came before it."""
        meta = message.params.get("_meta")
        if type(meta) is not dict or type(meta.get(_VERSION)) is not str:
            raise RpcError(
                jsonrpc.INVALID_PARAMS,
                f"Invalid params: params._meta must name the revision as a string, in {_VERSION}.",
            )
        revision = meta[_VERSION]
        if revision not in self._revisions.stateless:
            raise self._unsupported(revision)
        capabilities = meta.get(_CAPABILITIES)
        if type(capabilities) is not dict:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"Invalid params: params._meta needs {_CAPABILITIES}, an object.")
        level = _level(meta[_LOG_LEVEL]) if _LOG_LEVEL in meta else None
        running.revision = revision
        return Exchange(
            self._namespace,
            CALLER,
            _request_id(),
            revision,
            running.id,
            message.method,
            message.params,
            capabilities,
            running,
            level,
        )

    def _stateless(self, exchange: Exchange) -> _Work:
        if exchange.method == LISTEN:
            if len(self._listens) >= MAX_LISTENS:
                raise Unavailable(f"{MAX_LISTENS} subscriptions are open on this pipe; end one first.")
            return partial(self._listen, Subscription(exchange.id, self._namespace, exchange.params))
        return partial(self._in_rounds if self._rounds.concern(exchange) else self._answered, exchange)

    async def _in_rounds(self, exchange: Exchange) -> bytes:
        return jsonrpc.result(exchange.id, await self._rounds.answer(exchange))

    async def _listen(self, subscription: Subscription) -> bytes:
        over = self._listens[subscription] = self._loop.create_future()
        self._outgoing.write(subscription.acknowledged())
        try:
            await over
        finally:
            del self._listens[subscription]
        return subscription.ended()

    def _unsupported(self, requested: object) -> RpcError:
        served = self._revisions.listed()
        shown = requested[:40] if isinstance(requested, str) else ""
        # A list with the refused one in it would send the client round in circles.
        others = [revision for revision in served if revision != shown] or served
        return RpcError(
            jsonrpc.UNSUPPORTED_VERSION,
            f"Unsupported protocol version {shown!r} in this place. This server speaks {', '.join(served)}.",
            {"supported": others, "requested": shown},
        )

    def _revision(self) -> str:
        return self._handshake.revision if self._handshake is not None else self._revisions.listed()[0]

    # What needs no answer.

    def _note(self, message: Message) -> None:
        if message.method == "notifications/initialized":
            if self._handshake is not None:
                self._handshake.initialized = True
        elif message.method == "notifications/cancelled":
            id = message.params.get("requestId")
            running = self._running.pop(id, None) if type(id) is str or type(id) is int else None
            if running is not None and running.task is not None:
                running.open = False
                running.task.cancel()

    def _hear(self, message: Message) -> None:
        """The reply to a question; one that nobody waits for is ignored."""
        question = self._questions.pop(message.id, None) if message.id is not None else None
        if question is None or question.done():
            return
        if message.error is None:
            question.set_result(message.result)
            return
        said = message.error.get("message")
        question.set_exception(
            NoBackChannel(f"The client could not answer the tool's question: {str(said)[:500] or 'it did not say why'}")
        )

    # Messages out.

    def remark(self, message: bytes) -> None:
        """Progress and log lines: what a client that reads slowly can do without."""
        if not self._outgoing.crowded:
            self._outgoing.write(message)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """A question of a tool whose client took part in the handshake."""
        if self._ending:
            raise NoBackChannel(_GONE)
        if len(self._questions) >= MAX_QUESTIONS:
            raise NoBackChannel(f"{MAX_QUESTIONS} questions to the client are open already.")
        number = next(self._numbers)
        answer = self._questions[number] = self._loop.create_future()
        self._outgoing.write(jsonrpc.request(number, method, params))
        try:
            async with asyncio.timeout(talk.ASK_SECONDS):
                return await answer
        except TimeoutError:
            raise NoBackChannel(f"The client did not answer within {talk.ASK_SECONDS:g} seconds.") from None
        finally:
            if self._questions.pop(number, None) is not None and not self._ending:
                told = {"requestId": number, "reason": "The answer is no longer needed."}
                self._outgoing.write(jsonrpc.notification("notifications/cancelled", told))

    def on_change(self, change: Change) -> None:
        """The namespace serves something else, or a tool says so."""
        if change.namespace != self._namespace or self._ending:
            return
        for subscription, over in self._listens.items():
            if self._namespace not in self._methods.engine.registry.catalogue.entries:
                _finish(over)
            else:
                for message in subscription.messages(change):
                    self._outgoing.write(message)
        handshake = self._handshake
        if handshake is not None and (handshake.initialized or not self._strict):
            for part in sorted(change.parts):
                self._outgoing.write(jsonrpc.notification(f"notifications/{part}/list_changed"))
            changed = handshake.subscriptions if change.reloaded else handshake.subscriptions & change.uris
            for uri in sorted(changed):
                self._outgoing.write(jsonrpc.notification("notifications/resources/updated", {"uri": uri}))

    # The line protocol.

    def _take_line(self, value: dict[str, Any]) -> None:
        id = lines.id_of(value)
        started = time.perf_counter()
        try:
            request = lines.read(value)
            entry = self._methods.engine.registry.catalogue.entry(self._namespace)
        except ToolDockError as error:
            self._answer_line(lines.failure(error, id), id)
            return
        if request.method == "list_tools":
            elapsed = (time.perf_counter() - started) * 1000
            self._answer_line(lines.tools(entry.tools, id, elapsed_ms=elapsed), id)
        elif id is not lines.NO_ID and len(self._tasks) >= MAX_RUNNING:
            busy = Unavailable(f"{MAX_RUNNING} calls are running already. Wait for one to finish.", retry_after=1)
            self._outgoing.write(lines.failure(busy, id))
        else:
            self._answer_line(self._call_by_line(request, id), id)

    def _answer_line(self, answer: bytes | Coroutine[Any, Any, bytes], id: Any) -> None:
        """At once where the line has an id; otherwise when all lines before it are done and answered."""
        if id is not lines.NO_ID:
            self._start(self._deliver(answer))
            return
        self._turns.append(answer)
        if not self._turning:
            self._turning = True
            self._start(self._take_turns())
        self._throttle()

    async def _take_turns(self) -> None:
        while self._turns:
            await self._deliver(self._turns.popleft())
            self._throttle()
        self._turning = False

    async def _deliver(self, answer: bytes | Coroutine[Any, Any, bytes]) -> None:
        if not isinstance(answer, bytes):
            answer = await answer
        await self._outgoing.room()
        self._outgoing.write(answer)

    def _throttle(self) -> None:
        """Read no more than the client and its calls can take."""
        if self._incoming is None:
            return
        if self._outgoing.crowded or len(self._turns) >= MAX_RUNNING:
            self._incoming.pause()
        else:
            self._incoming.resume()

    async def _call_by_line(self, request: lines.LineRequest, id: Any) -> bytes:
        call = Call(self._namespace, request.name, request.args, CALLER, _request_id(), lines.PROTOCOL)
        started = time.perf_counter()
        try:
            return lines.result(request.name, await self._methods.engine.call(call), id)
        except asyncio.CancelledError:
            gone = Cancelled("The call was stopped, because ToolDock is shutting down.")
            return lines.failure(gone, id, elapsed_ms=(time.perf_counter() - started) * 1000)
        except Exception:
            log.exception("line_failed", request_id=call.request_id)
            return lines.failure(InternalError("ToolDock failed while handling this line. See its log."), id)

    # The end.

    async def _end(self, grace: float) -> None:
        """Nothing more comes in; what is under way may finish."""
        self._ending = True
        for question in self._questions.values():
            if not question.done():
                question.set_exception(NoBackChannel(_GONE))
        self._questions.clear()
        for over in self._listens.values():
            _finish(over)
        try:
            await self._wait(grace)
        finally:
            self._rounds.close()
            for answer in self._turns:
                if not isinstance(answer, bytes):
                    answer.close()  # its turn never came
            self._turns.clear()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_CANCEL_SECONDS)
            await self._outgoing.flush()
            self._outgoing.close()

    async def _wait(self, grace: float) -> None:
        """For what is running, as long as there is somebody to take the answers."""
        end = self._loop.time() + grace
        while self._tasks and (left := end - self._loop.time()) > 0 and self._outgoing.has_reader():
            await asyncio.wait(set(self._tasks), timeout=min(left, _LOOK_SECONDS))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _describes_itself(message: Message) -> bool:
    meta = message.params.get("_meta")
    return type(meta) is dict and _VERSION in meta


def _level(value: Any) -> LogLevel:
    if type(value) is not str or value not in LEVELS:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"Invalid params: a log level is one of {', '.join(LEVELS)}.")
    return value


def _uri(params: Mapping[str, Any]) -> str:
    uri = params.get("uri")
    if type(uri) is not str or not uri or len(uri) > MAX_URI:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"Invalid params: uri must be a string of at most {MAX_URI} characters.")
    return uri


def _request_id() -> str:
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(5)}"


def _finish(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _outcome(task: asyncio.Task[bytes | None]) -> bytes | None:
    """The answer to a request in an array; none if it was cancelled."""
    return None if task.cancelled() else task.result()
