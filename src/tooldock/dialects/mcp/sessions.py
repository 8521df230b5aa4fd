"""Sessions of the handshake revisions: who talks to us, in which revision, and what is under way.

A session belongs to one caller and one namespace; to everybody else it does not exist. Most are idle most of the time,
so everything that an idle one does not need is made when it is first used. What must outlive this process is handed to
a `SessionStore`.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, cast

import orjson

from tooldock.dialects.mcp.exchange import ASK_SECONDS, LEVELS
from tooldock.dialects.mcp.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, Id, Message, RpcError, notification, request
from tooldock.dialects.mcp.revisions import HANDSHAKE, R2025_11_25
from tooldock.dialects.mcp.store import Record, SessionStore
from tooldock.dialects.mcp.streams import Replay, Streams
from tooldock.errors import NoBackChannel, Unavailable
from tooldock.model import LogLevel

RETIRED_SECONDS = 600.0
"""How long a session must have been left before it gives way to a new one of the same caller."""
MAX_SESSIONS = 20_000
MAX_SESSIONS_PER_CALLER = 12_000
MAX_RUNNING = 1024
"""Requests of one session that may be under way."""
MAX_QUESTIONS = 64
MAX_SUBSCRIPTIONS = 256
MAX_URI = 2048
MAX_SUBSCRIBED = 16 * 1024 * 1024
"""Bytes that the subscriptions of all sessions of one caller may take."""

_SWEEP_SECONDS = 60.0
_MAX_ID = 128
_MAX_CLIENT = 128
_MAX_MESSAGE = 500
_HEADERS = {revision: revision.encode() for revision in HANDSHAKE}

# One sequence for all sessions that begins anywhere: an answer that comes late, even after a restart, must not fit a
# question that is open now.
_question_ids = itertools.count(secrets.randbelow(2**47) + 1)

_ABILITIES = {"elicitation": ("form", "url"), "sampling": ("context", "tools"), "roots": ()}
"""What a question may depend on, and the ways of it."""
_shared: dict[bytes, dict[str, Any]] = {}
"""Abilities by their text; there are a few dozen kinds. Never changed."""


class InFlight(Protocol):
    """A request under way."""

    def cancel(self, reason: str) -> None: ...


class Questions:
    """What a client was asked and has not answered."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[Id, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def ask(
        self,
        send: Callable[[bytes], None],
        method: str,
        params: Mapping[str, Any],
        asked: set[Id],
        seconds: float | None = None,
    ) -> Any:
        """The client's answer. The question's id is in `asked` for as long as it is open."""
        if len(self._open) >= MAX_QUESTIONS:
            raise NoBackChannel(
                f"The client has {MAX_QUESTIONS} questions open and gets no further one. Answer some of them first."
            )
        id = next(_question_ids)
        future = self._open[id] = asyncio.get_running_loop().create_future()
        asked.add(id)
        limit = ASK_SECONDS if seconds is None else seconds
        try:
            send(request(id, method, params))
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            raise NoBackChannel(f"The client did not answer the question ({method}) within {limit:g} s.") from None
        finally:
            del self._open[id]
            asked.discard(id)
            if future.cancelled():
                # Nobody waits for the answer any more; the client may take its dialogue away.
                send(notification("notifications/cancelled", {"requestId": id, "reason": "No longer needed."}))

    def answer(self, reply: Message) -> None:
        """Take a client's reply; one to a question that is not open is ignored."""
        future = self._open.get(cast("Id", reply.id))
        if future is None or future.done():
            return
        if reply.error is not None:
            said = reply.error.get("message")
            text = said[:_MAX_MESSAGE] if isinstance(said, str) and said else "no reason given"
            future.set_exception(NoBackChannel(f"The client refused the question: {text}"))
        elif type(reply.result) is not dict:
            future.set_exception(NoBackChannel("The client answered the question with something that is no object."))
        else:
            future.set_result(reply.result)

    def abandon(self, ids: Iterable[Id]) -> None:
        """The call that asked is over."""
        for id in list(ids):
            future = self._open.get(id)
            if future is not None and not future.done():
                future.set_exception(NoBackChannel("The call that asked this question is over."))


class Share:
    """What the sessions of one caller take together."""

    __slots__ = ("sessions", "subscribed")

    def __init__(self) -> None:
        self.sessions = 0
        self.subscribed = 0
        """Bytes of their subscriptions."""


class Session:
    __slots__ = (
        "caller",
        "capabilities",
        "client_name",
        "client_version",
        "header",
        "id",
        "initialized",
        "key",
        "log_level",
        "namespace",
        "questions",
        "revision",
        "running",
        "saved",
        "share",
        "streams",
        "subscriptions",
        "used",
    )

    def __init__(
        self,
        id: bytes,
        caller: str,
        namespace: str,
        revision: str,
        capabilities: Mapping[str, Any],
        client_name: str = "",
        client_version: str = "",
        key: str = "",
        share: Share | None = None,
    ) -> None:
        self.id = id
        """Empty for one that a former process left, until its client shows it."""
        self.key = key or key_of(id)
        """What others may know of the id: its digest."""
        self.caller = caller
        self.share = share or Share()
        self.namespace = namespace
        self.revision = revision
        self.header = _HEADERS[revision]
        self.capabilities = capabilities
        self.client_name = client_name
        self.client_version = client_version
        self.initialized = False
        self.log_level: LogLevel = "info"
        self.used = self.saved = time.monotonic()
        self.subscriptions: set[str] | None = None
        self.running: dict[Id, InFlight] | None = None
        self.questions: Questions | None = None
        self.streams: Streams | None = None

    @property
    def busy(self) -> bool:
        """A call or an open stream; then it is not idle, however long ago the last request was."""
        return bool(self.running) or (self.streams is not None and self.streams.attached)

    def admit(self, id: Id, request: InFlight) -> None:
        """Note a request as under way. To be removed from `running` by whoever put it in."""
        running = self.running
        if running is None:
            running = self.running = {}
        elif id in running:
            raise RpcError(
                INVALID_REQUEST, f"A request with the id {id!r} is still under way in this session; use a new id."
            )
        elif len(running) >= MAX_RUNNING:
            raise Unavailable(f"This session has {MAX_RUNNING} requests under way; wait for some.", retry_after=1)
        running[id] = request

    def stream_set(self, replay: Replay) -> Streams:
        if self.streams is None:
            self.streams = Streams(replay, primed=self.revision >= R2025_11_25)
        return self.streams

    def question_set(self) -> Questions:
        if self.questions is None:
            self.questions = Questions()
        return self.questions

    def take_reply(self, reply: Message) -> None:
        if self.questions is not None:
            self.questions.answer(reply)

    def take_cancelled(self, params: dict[str, Any]) -> None:
        """`notifications/cancelled`: stops a request of this session; one it does not know is ignored."""
        id = params.get("requestId")
        if self.running and (type(id) is str or type(id) is int) and id in self.running:
            self.running[id].cancel("The client cancelled the request.")

    # Requests that change the session alone; each says whether something has to be saved.

    def set_level(self, params: dict[str, Any]) -> bool:
        level = params.get("level")
        if level not in LEVELS:
            raise RpcError(INVALID_PARAMS, f"logging/setLevel takes one of the levels {', '.join(LEVELS)}.")
        if self.log_level == level:
            return False
        self.log_level = level
        return True

    def subscribe(self, params: dict[str, Any]) -> bool:
        uri = _uri(params)
        if self.subscriptions is None:
            self.subscriptions = set()
        if uri in self.subscriptions:
            return False
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise RpcError(
                INVALID_PARAMS, f"This session is subscribed to {MAX_SUBSCRIPTIONS} resources; unsubscribe from some."
            )
        cost = _cost(uri)
        if self.share.subscribed + cost > MAX_SUBSCRIBED:
            raise RpcError(
                INVALID_PARAMS,
                "The sessions of this caller have too many subscriptions together; unsubscribe from some.",
            )
        self.share.subscribed += cost
        self.subscriptions.add(uri)
        return True

    def unsubscribe(self, params: dict[str, Any]) -> bool:
        uri = _uri(params)
        if self.subscriptions is None or uri not in self.subscriptions:
            return False
        self.subscriptions.discard(uri)
        self.share.subscribed -= _cost(uri)
        if not self.subscriptions:
            self.subscriptions = None
        return True

    def end(self, reason: str) -> None:
        """Stop everything of it."""
        for running in list((self.running or {}).values()):
            running.cancel(reason)
        if self.streams is not None:
            self.streams.close()
        self.share.subscribed -= sum(map(_cost, self.subscriptions or ()))
        self.subscriptions = None

    def record(self) -> Record:
        return Record(
            self.key,
            self.caller,
            self.namespace,
            self.revision,
            time.time() - (time.monotonic() - self.used),
            self.capabilities,
            self.client_name,
            self.client_version,
            self.initialized,
            self.log_level,
            tuple(self.subscriptions or ()),
        )


SETTERS: dict[str, Callable[[Session, dict[str, Any]], bool]] = {
    "logging/setLevel": Session.set_level,
    "resources/subscribe": Session.subscribe,
    "resources/unsubscribe": Session.unsubscribe,
}


class Sessions:
    """All sessions of this process, and those a former one left. Made within a running loop."""

    def __init__(
        self,
        store: SessionStore | None = None,
        *,
        ttl_seconds: float = 24 * 3600.0,
        max_sessions: int = MAX_SESSIONS,
        max_per_caller: int = MAX_SESSIONS_PER_CALLER,
        replay: Replay | None = None,
    ) -> None:
        self.replay = replay or Replay()
        self.max_sessions = max_sessions
        self.max_per_caller = max_per_caller
        self._store = store
        self._ttl = ttl_seconds
        self._by_id: dict[bytes, Session] = {}
        self._asleep: dict[str, Session] = {}
        """Left by a former process and not shown yet, by key: their ids are not known."""
        self._of: dict[str, set[Session]] = {}
        self._callers: dict[str, Share] = {}
        self._swept = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._interval = min(_SWEEP_SECONDS, ttl_seconds / 4)
        self._timer = self._loop.call_later(self._interval, self._tick)

    def __len__(self) -> int:
        return len(self._by_id) + len(self._asleep)

    async def restore(self, revisions: Iterable[str] = HANDSHAKE) -> int:
        """Take over what the store kept, save for revisions that are no longer served. Returns how many."""
        if self._store is None:
            return 0
        served = frozenset(revisions)
        wall, now = time.time(), time.monotonic()
        for record in await asyncio.to_thread(self._store.load):
            if record.revision not in served or record.log_level not in LEVELS or wall - record.seen > self._ttl:
                self._store.drop(record.key)
                continue
            session = Session(
                b"",
                record.caller,
                record.namespace,
                record.revision,
                abilities(record.capabilities),
                record.client_name,
                record.client_version,
                record.key,
                self._share_of(record.caller),
            )
            session.initialized = record.initialized
            session.log_level = record.log_level
            session.subscriptions = set(record.subscriptions) or None
            session.share.subscribed += sum(map(_cost, session.subscriptions or ()))
            session.used = session.saved = now - (wall - record.seen)
            self._asleep[session.key] = session
            self._count_in(session)
        return len(self._asleep)

    def open(
        self, caller: str, namespace: str, revision: str, capabilities: dict[str, Any], client: Mapping[str, Any]
    ) -> Session:
        """A new session. Raises `Unavailable` when there are too many."""
        self._check_room(caller)
        session = Session(
            secrets.token_urlsafe(32).encode(),
            caller,
            namespace,
            revision,
            abilities(capabilities),
            _short(client.get("name")),
            _short(client.get("version")),
            share=self._share_of(caller),
        )
        self._by_id[session.id] = session
        self._count_in(session)
        self.save(session)
        return session

    def find(self, id: bytes, caller: str, namespace: str) -> Session | None:
        """The caller's session in this namespace; None for another's just as for none. Finding it is using it."""
        session = self._by_id.get(id)
        if session is None:
            session = self._wake(id, caller, namespace)
        if session is None or session.caller != caller or session.namespace != namespace:
            return None
        now = time.monotonic()
        if now - session.used > self._ttl and not session.busy:
            self.end(session, "The session was idle for too long.")
            return None
        session.used = now
        return session

    def of(self, namespace: str) -> Iterable[Session]:
        return self._of.get(namespace, ())

    def all(self) -> Iterable[Session]:
        return itertools.chain(self._by_id.values(), self._asleep.values())

    def save(self, session: Session) -> None:
        if self._store is not None:
            session.saved = session.used
            self._store.put(session.record())

    def end(self, session: Session, reason: str = "The session was ended.") -> None:
        if self._by_id.pop(session.id, None) is None and self._asleep.pop(session.key, None) is None:
            return
        session.end(reason)
        members = self._of[session.namespace]
        members.discard(session)
        if not members:
            del self._of[session.namespace]
        session.share.sessions -= 1
        if not session.share.sessions:
            del self._callers[session.caller]
        if self._store is not None:
            self._store.drop(session.key)

    def sweep(self) -> None:
        """Forget what is expired."""
        now = self._swept = time.monotonic()
        late = now - self._ttl
        for session in [one for one in self.all() if one.used < late and not one.busy]:
            self.end(session, "The session was idle for too long.")
        self.replay.sweep()

    def close(self) -> None:
        """What is under way ends with the process; what is kept stays."""
        self._timer.cancel()
        if self._store is not None:
            self._save_times(0)
            self._store.close()

    def _wake(self, id: bytes, caller: str, namespace: str) -> Session | None:
        if not self._asleep or not 0 < len(id) <= _MAX_ID:
            return None
        session = self._asleep.get(key_of(id))
        if session is None or session.caller != caller or session.namespace != namespace:
            return None
        del self._asleep[session.key]
        session.id = id
        self._by_id[id] = session
        return session

    def _check_room(self, caller: str) -> None:
        full = len(self) >= self.max_sessions
        if not full and self._sessions_of(caller) < self.max_per_caller:
            return
        # Those that are over go first; but a flood of attempts must not make us look at every session each time.
        if time.monotonic() - self._swept > 1.0 or self._ttl < 1.0:
            self.sweep()
            if len(self) >= self.max_sessions or self._sessions_of(caller) >= self.max_per_caller:
                self._retire_idle(caller)
        if len(self) >= self.max_sessions:
            setting, limit, who = "MCP_MAX_SESSIONS", self.max_sessions, "There are"
        elif self._sessions_of(caller) >= self.max_per_caller:
            setting, limit, who = "MCP_MAX_SESSIONS_PER_CALLER", self.max_per_caller, "This caller has"
        else:
            return
        raise Unavailable(
            f"{who} already {limit} MCP sessions ({setting}). End some with DELETE, or try again later.",
            retry_after=60,
        )

    def _retire_idle(self, caller: str) -> None:
        """A client that opens sessions and never ends them must not lock out its caller for a day: those of the same
        caller that were left longest give way, first those that were never used at all."""
        late = time.monotonic() - RETIRED_SECONDS
        idle = [one for one in self.all() if one.caller == caller and one.used < late and not one.busy]
        idle.sort(key=lambda one: (one.initialized, one.used))
        for session in idle[: max(1, len(idle) // 100)]:
            self.end(session, "The session was idle, and its caller needed room for another.")

    def _count_in(self, session: Session) -> None:
        self._of.setdefault(session.namespace, set()).add(session)
        self._callers[session.caller] = session.share
        session.share.sessions += 1

    def _share_of(self, caller: str) -> Share:
        return self._callers.get(caller) or Share()

    def _sessions_of(self, caller: str) -> int:
        share = self._callers.get(caller)
        return share.sessions if share is not None else 0

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._tick)
        self.sweep()
        if self._store is not None:
            self._save_times(self._ttl / 16)

    def _save_times(self, older: float) -> None:
        """Note when sessions were used last; roughly is enough, so seldom will do."""
        assert self._store is not None
        now = time.monotonic()
        used = []
        for session in self._by_id.values():
            if session.busy:
                session.used = now
            if session.used - session.saved > older:
                session.saved = session.used
                used.append(session.key)
        self._store.touch(used, time.time())


def key_of(id: bytes) -> str:
    return hashlib.sha256(id).hexdigest()


def abilities(declared: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of the capabilities a client declares, however much it says."""
    kept: dict[str, Any] = {}
    for name, ways in _ABILITIES.items():
        told = declared.get(name)
        if type(told) is dict:
            kept[name] = {way: {} for way in ways if told.get(way) is not None}
            if told and not kept[name] and name == "elicitation":
                del kept[name]  # nothing named means forms; only unknown ways means none we could use
    return _shared.setdefault(orjson.dumps(kept), kept)


def _short(text: object) -> str:
    return text[:_MAX_CLIENT] if isinstance(text, str) else ""


def _uri(params: dict[str, Any]) -> str:
    uri = params.get("uri")
    if type(uri) is not str or not uri or len(uri) > MAX_URI:
        raise RpcError(INVALID_PARAMS, f"A subscription needs the resource's URI: a text of at most {MAX_URI} letters.")
    return uri


def _cost(uri: str) -> int:
    """Bytes a subscription takes, roughly: the text, its place in the set, and a notification that may wait."""
    return 2 * sys.getsizeof(uri) + 200
