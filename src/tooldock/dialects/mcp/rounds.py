"""Questions to a client that can only be answered by asking again: several requests, one call.

    request 1 ──► the call starts ──► it asks ──► answered "input_required" with a sealed state; the call waits
    request 2 ──► state and answers ──► the same call goes on ──► asks again, or is done

The call is suspended, never run again: whatever a tool did before its question it did once. It belongs to this process
and waits a bounded time; a client that does not come back costs a waiting task until then. Which transport the requests
come by is not known here: each brings a wire for what the call says meanwhile.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from tooldock.dialects.mcp import shape
from tooldock.dialects.mcp.exchange import ASK_SECONDS, SILENT, ClientChannel, Exchange, Wire
from tooldock.dialects.mcp.jsonrpc import INVALID_PARAMS, MISSING_CAPABILITY, RpcError, dump
from tooldock.dialects.mcp.seal import TICKET_BYTES, InvalidState, Seal, binding
from tooldock.errors import NoBackChannel, Unavailable

METHODS = frozenset(("tools/call", "prompts/get", "resources/read"))
"""The only requests that may be answered with a question."""
MAX_PER_CALLER = 16
"""Calls of one caller that wait in one namespace; the oldest goes when there is another."""
MAX_TOTAL = 1000
MAX_OPEN = 64
"""Questions of one call at the same time."""
QUIET_SECONDS = 0.005
"""Questions that a call asks at once arrive within this time of each other."""

_ABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_ACTIONS = ("accept", "decline", "cancel")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MAX_KEY = 64


class Answering(Protocol):
    async def answer(self, exchange: Exchange) -> bytes: ...


class Rounds:
    """The calls that wait for their client, and the way into and out of waiting."""

    def __init__(
        self,
        methods: Answering,
        seal: Seal,
        *,
        seconds: float = ASK_SECONDS,
        per_caller: int = MAX_PER_CALLER,
        total: int = MAX_TOTAL,
    ) -> None:
        self._methods = methods
        self._seal = seal
        self._seconds = seconds
        self._per_caller = per_caller
        self._total = total
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._running: set[_Run] = set()
        # Oldest first, both of them.
        self._waiting: dict[bytes, _Run] = {}
        self._waiting_of: dict[tuple[str, str], dict[bytes, None]] = {}

    @property
    def waiting(self) -> int:
        """Calls whose client has to come back."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Calls that are not over, the waiting ones included."""
        return len(self._running)

    @staticmethod
    def concern(exchange: Exchange) -> bool:
        """Whether this request may take rounds. If not, `Methods.answer` is all it needs."""
        if exchange.method not in METHODS:
            return False
        able = exchange.capabilities
        # Answers without a question are checked as well, so that nonsense is refused alike whatever the client can do.
        return (
            "elicitation" in able
            or "sampling" in able
            or "roots" in able
            or "requestState" in exchange.params
            or "inputResponses" in exchange.params
        )

    async def answer(self, exchange: Exchange) -> bytes:
        """The `result` of this request: the call's own, or what is asked. Raises `RpcError`, and `Unavailable`."""
        params = exchange.params
        answers = params.get("inputResponses", {})
        if type(answers) is not dict:
            raise RpcError(INVALID_PARAMS, "inputResponses must be an object with an answer for each question.")
        # Without a state the answers belong to no question that was asked, and mean nothing.
        run = self._resume(exchange, answers) if "requestState" in params else self._start(exchange)
        run.attach(exchange)
        try:
            body = await run.turn()
        except asyncio.CancelledError:
            # Its client left, and with it everybody who could take the answer.
            run.cancel()
            raise
        finally:
            run.detach()
        return body if body is not None else self._suspend(run, exchange)

    def close(self) -> None:
        """Stop the calls that wait, and let no more wait. Those whose client is there may finish."""
        self._closed = True
        for ticket in tuple(self._waiting):
            self._expire(ticket)

    def _start(self, exchange: Exchange) -> _Run:
        run = _Run(exchange, self._seconds)
        run.start(self._methods)
        self._running.add(run)
        run.task.add_done_callback(lambda _: self._running.discard(run))
        return run

    def _suspend(self, run: _Run, exchange: Exchange) -> bytes:
        if self._closed:
            run.cancel()
            raise _closing()
        owner = (exchange.caller.name, exchange.namespace)
        mine = self._waiting_of.get(owner, {})
        if len(mine) >= self._per_caller:
            self._expire(next(iter(mine)))
        if len(self._waiting) >= self._total:
            self._expire(self._oldest_of_most(exchange.caller.name))
        ticket = secrets.token_bytes(TICKET_BYTES)
        self._waiting[ticket] = run
        self._waiting_of.setdefault(owner, {})[ticket] = None
        run.owner = owner
        run.expiry = self._loop.call_later(self._seconds, self._expire, ticket)
        state = self._seal.seal(ticket, _bound(exchange), self._seconds)
        return dump(
            {
                "resultType": "input_required",
                "inputRequests": run.questions(),
                "requestState": state,
                "_meta": {"io.modelcontextprotocol/serverInfo": shape.SERVER_INFO},
            }
        )

    def _oldest_of_most(self, caller: str) -> bytes:
        """Of the caller who has most waiting, so that nobody pushes out others by filling the place alone."""
        held = Counter(run.owner[0] for run in self._waiting.values())
        most = max(held, key=lambda name: (held[name], name == caller))
        return next(ticket for ticket, run in self._waiting.items() if run.owner[0] == most)

    def _resume(self, exchange: Exchange, answers: dict[str, Any]) -> _Run:
        ticket = self._seal.unseal(exchange.params["requestState"], _bound(exchange))
        run = self._waiting.get(ticket)
        if run is None:
            raise InvalidState
        # Nothing is used up by answers that cannot be taken: the client may send better ones with the same state.
        run.check(answers, exchange.capabilities)
        self._take(ticket)
        run.deliver(answers)
        return run

    def _take(self, ticket: bytes) -> _Run | None:
        run = self._waiting.pop(ticket, None)
        if run is None:
            return None
        if run.expiry is not None:
            run.expiry.cancel()
            run.expiry = None
        mine = self._waiting_of[run.owner]
        del mine[ticket]
        if not mine:
            del self._waiting_of[run.owner]
        return run

    def _expire(self, ticket: bytes) -> None:
        run = self._take(ticket)
        if run is not None:
            run.cancel()


class _Question:
    __slots__ = ("answer", "method", "params")

    def __init__(self, method: str, params: Mapping[str, Any], answer: asyncio.Future[Any]) -> None:
        self.method = method
        self.params = params
        self.answer = answer


class _Run:
    """One call in a task of its own, and the wire between it and whichever request is there for it."""

    __slots__ = (
        "_channel",
        "_exchange",
        "_loop",
        "_names",
        "_open",
        "_quiet",
        "_seconds",
        "_turn",
        "_wire",
        "expiry",
        "owner",
        "task",
    )

    task: asyncio.Task[bytes]

    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._exchange = _Round(exchange, self)
        self._channel: _RoundChannel | None = None
        self._wire: Wire = SILENT
        self._open: dict[str, _Question] = {}
        self._names: set[str] = set()
        self._quiet: asyncio.TimerHandle | None = None
        self._turn: asyncio.Future[None] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self.owner = ("", "")

    def start(self, methods: Answering) -> None:
        self.task = self._loop.create_task(methods.answer(self._exchange), name=f"call {self._exchange.request_id}")
        self.task.add_done_callback(self._finished)

    def cancel(self) -> None:
        self.task.cancel()

    # From the side of the request that is there.

    def attach(self, exchange: Exchange) -> None:
        """What the call says from now on goes to this request."""
        self._wire = exchange.wire
        if self._channel is not None:
            self._channel.rebind(exchange)

    def detach(self) -> None:
        self._wire = SILENT

    async def turn(self) -> bytes | None:
        """Wait for the call's result; or None, when it asks and has asked all it wants to for now."""
        if not self.task.done():
            self._turn = self._loop.create_future()
            if self._open:
                self._listen_on()
            try:
                await self._turn
            finally:
                self._turn = None
                if self._quiet is not None:
                    self._quiet.cancel()
                    self._quiet = None
        if not self.task.done():
            return None
        if self.task.cancelled():
            # Not by its request: that one would have been cancelled as well.
            raise _closing()
        return self.task.result()

    def questions(self) -> dict[str, Any]:
        return {key: {"method": asked.method, "params": asked.params} for key, asked in self._open.items()}

    def check(self, answers: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
        """Raises `RpcError` for answers that are none, and for what must be asked again of a client that cannot."""
        lacking: dict[str, Any] = {}
        for key, asked in self._open.items():
            if key not in answers:
                ability = _ABILITIES[asked.method]
                if type(capabilities.get(ability)) is not dict:
                    lacking[ability] = {"form": {}} if ability == "elicitation" else {}
                continue
            given = answers[key]
            if type(given) is not dict:
                raise RpcError(INVALID_PARAMS, f"The answer to {key!r} must be an object.", {"question": key})
            if asked.method == "elicitation/create" and given.get("action") not in _ACTIONS:
                raise RpcError(
                    INVALID_PARAMS,
                    f"The answer to {key!r} needs an action: accept, decline or cancel.",
                    {"question": key},
                )
        if lacking:
            raise RpcError(
                MISSING_CAPABILITY,
                "A question is still open, and this request does not declare that its client can answer it.",
                {"requiredCapabilities": lacking},
            )

    def deliver(self, answers: Mapping[str, Any]) -> None:
        """Answers to questions nobody asked are left aside."""
        for key in tuple(self._open):
            if key in answers:
                asked = self._open.pop(key)
                if not asked.answer.done():
                    asked.answer.set_result(answers[key])

    # From the side of the call: a `Wire`.

    def send(self, message: bytes) -> None:
        self._wire.send(message)

    def close_stream(self) -> bool:
        return False

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        if len(self._open) >= MAX_OPEN:
            raise NoBackChannel(f"The call has {MAX_OPEN} questions open at once; no more are asked.")
        key = self._name(method, params)
        asked = _Question(method, params, self._loop.create_future())
        self._open[key] = asked
        if self._turn is not None:
            self._listen_on()
        try:
            async with asyncio.timeout(self._seconds):
                return await asked.answer
        except TimeoutError:
            raise NoBackChannel(f"The client did not answer within {self._seconds:g} seconds.") from None
        finally:
            if self._open.get(key) is asked:
                del self._open[key]

    def bound(self, channel: _RoundChannel) -> None:
        self._channel = channel

    def _name(self, method: str, params: Mapping[str, Any]) -> str:
        """Readable, never used twice in one call, and the same each time a question is repeated."""
        prefix = _titled(params) if method == "elicitation/create" else ""
        base = prefix or _ABILITIES[method]
        number = 1
        key = prefix or f"{base}_1"
        while key in self._names:
            number += 1
            key = f"{base}_{number}"
        self._names.add(key)
        return key

    def _listen_on(self) -> None:
        """Another question may be right behind this one."""
        if self._quiet is not None:
            self._quiet.cancel()
        self._quiet = self._loop.call_later(QUIET_SECONDS, self._all_asked)

    def _all_asked(self) -> None:
        self._quiet = None
        if self._open:
            self._end_turn()

    def _finished(self, task: asyncio.Task[bytes]) -> None:
        if not task.cancelled():
            task.exception()  # there may be nobody left to see it
        self._end_turn()

    def _end_turn(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


class _Round(Exchange):
    """The request as the call sees it: its wire outlives the request it began with."""

    __slots__ = ("_run",)

    def __init__(self, first: Exchange, run: _Run) -> None:
        super().__init__(
            first.namespace,
            first.caller,
            first.request_id,
            first.revision,
            first.id,
            first.method,
            first.params,
            first.capabilities,
            run,
            first.log_level,
            first.session_id,
        )
        self._run = run

    def channel(self) -> ClientChannel:
        channel = _RoundChannel(self.wire, self.revision, self.capabilities, None, None)
        channel.rebind(self)
        self._run.bound(channel)
        return channel


class _RoundChannel(ClientChannel):
    """Follows the request that is there: each has its own progress token, log level and abilities."""

    __slots__ = ()

    def rebind(self, exchange: Exchange) -> None:
        meta = exchange.params.get("_meta")
        token = meta.get("progressToken") if type(meta) is dict else None
        self._token = token if type(token) is str or type(token) is int else None
        self._progress = float("-inf")
        self._log_level = exchange.log_level
        self.capabilities = exchange.capabilities


def _closing() -> Unavailable:
    return Unavailable("The call was stopped because the gateway is closing; try again in a moment.", retry_after=5)


def _bound(exchange: Exchange) -> bytes:
    return binding(exchange.caller.name, exchange.namespace, exchange.method, exchange.params)


def _titled(params: Mapping[str, Any]) -> str:
    """The form's own name, as in `user_name` for a form called UserName."""
    form = params.get("requestedSchema")
    title = form.get("title") if isinstance(form, Mapping) else None
    if not isinstance(title, str) or len(title) > _MAX_KEY:
        return ""
    return "_".join(_WORD.findall(title)).lower()
