"""The listener: one bound socket, TLS that was checked beforehand, and uvicorn set up for this gateway.

uvicorn bounds neither the size nor the time of a request's head; `Protocol` adds both, and answers bytes
that are not HTTP in JSON like everything else here. It also does less for each request: one task serves all
requests of a connection, one after the other, as HTTP/1.1 has them.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tooldock.edge.direct import CYCLE
from tooldock.edge.holder import holder
from tooldock.errors import SettingsError

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
"""Longer than the usual 60 s of reverse proxies, so that it is them who give up an idle connection."""
HEAD_SECONDS = 15.0
MAX_HEAD = 64 * 1024
DISCARD_SECONDS = 30.0
"""How long the rest of a body is read and thrown away after its request was answered."""
_MAX_HELD = 64 * 1024
"""Bytes of answers held back until the end of the loop's turn."""
_SWEEP_SECONDS = 1.0
UNREAD_SECONDS = 120.0
"""How long a client may take nothing of what was sent to it. Closing such a connection waits for the client, too."""
MAX_PIPELINED = 256
"""Requests that may wait for the answer to an earlier one on their connection."""
_MANY_PIPELINED = 16
"""Requests that wait, above which nothing more is read. Who is not read from cannot be seen leaving."""
LINGER_SECONDS = 2.0
_MAX_TARGETS = 512
_MAX_KEPT_TARGET = 512
_LENGTHS = (b"content-length", b"transfer-encoding")
_NO_SCOPE: Any = {}
"""Stands for the head of a request that is still arriving."""

_log = structlog.get_logger("tooldock.edge")


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate chain and key, both PEM."""

    cert: Path
    key: Path | None = None
    password: str | None = None

    def check(self) -> None:
        """Load both, so that a mistake shows at start and in words."""
        _check_readable("TLS_CERT", self.cert)
        if self.key is not None:
            _check_readable("TLS_KEY", self.key)
        password = self.password
        asked = False

        def answer() -> str:
            # Without this OpenSSL would ask on the terminal, and a service would wait there for ever.
            nonlocal asked
            asked = True
            return password or ""

        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.cert, self.key, answer)
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError(self._problem(error, asked)) from None

    def _problem(self, error: Exception, asked: bool) -> str:
        reason = getattr(error, "reason", None) or str(error)
        if asked:
            what = "does not open it" if self.password else "is not set"
            return f"The key {self.key or self.cert} is encrypted and TLS_KEY_PASSWORD {what}."
        if reason == "KEY_VALUES_MISMATCH":
            return f"TLS_KEY {self.key} does not belong to the certificate in TLS_CERT {self.cert}."
        return (
            f"TLS_CERT {self.cert} and TLS_KEY {self.key or self.cert} cannot be used ({reason}). "
            "Both must be PEM: the certificate chain, and its private key."
        )


def bind(host: str, port: int, *, setting: str = "PORT") -> socket.socket:
    """A listening socket. From now on the port is ours: connections wait until somebody serves them.

    `setting` is what the operator would change to get another port.
    """
    family, address = _resolve(host, port)
    # Named as TCP, because asyncio switches Nagle's delay off (40 ms per answer) only where it says so.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        listener.bind(address)
        # Two processes may bind one port as long as neither listens; so this, too, happens at once.
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _cannot_bind(error, host, port, setting) from None
    return listener


def server_config(
    app: Any,
    *,
    host: str,
    port: int,
    tls: Tls | None = None,
    drain_seconds: float = 10.0,
    keep_alive_seconds: int = KEEP_ALIVE_SECONDS,
    before_answers: Callable[[], None] | None = None,
) -> uvicorn.Config:
    """uvicorn's settings for one face. Serve it on the socket that `bind` returned.

    `before_answers` is called each time before bytes are sent to clients.
    """
    if tls is not None:
        tls.check()
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=Protocol if before_answers is None else _after(before_answers),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=keep_alive_seconds,
        timeout_graceful_shutdown=max(1, round(drain_seconds)),
        ssl_certfile=tls.cert if tls else None,
        ssl_keyfile=tls.key if tls else None,
        ssl_keyfile_password=tls.password if tls else None,
    )


def _after(before: Callable[[], None]) -> type[Protocol]:
    """The protocol of one server; uvicorn makes its objects by class."""
    return type("Protocol", (Protocol,), {"before_answers": staticmethod(before)})


class _Outbox:
    """What the connections of one server share: the end of the loop's turn, when answers are sent, and one timer
    for those on which nothing happens any more."""

    __slots__ = ("_connections", "_loop", "_waiting", "before")

    def __init__(self, connections: set[Any], before: Callable[[], None]) -> None:
        self.before = before
        """What has to be done before bytes leave."""
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Joined] = []
        self._connections = connections
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in tuple(self._connections):
            connection.end_if_idle(now)
            connection.end_if_unread(now)
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def add(self, one: _Joined) -> None:
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(one)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.release()


class _Joined:
    """A transport that holds what is written until the loop's turn is over.

    uvicorn writes a response's head and its body one after the other, and each write is a system call and a packet:
    here they are one. And answers that are ready in the same turn go out together at its end, which wakes clients
    once, after the work is done, instead of in the middle of it.
    """

    __slots__ = ("_ended", "_held", "_outbox", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, outbox: _Outbox) -> None:
        self._transport = transport
        self._outbox = outbox
        self._held = b""
        self._ended = False
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._held:
            self._held += data
            if len(self._held) > _MAX_HELD:
                self.release()
        elif data:
            self._held = data
            self._outbox.add(self)

    def write_eof(self) -> None:
        self.release()
        self._ended = True
        self._transport.write_eof()

    def close(self) -> None:
        self.release()
        self._transport.close()

    def release(self) -> None:
        if self._held:
            self._outbox.before()
            data, self._held = self._held, b""
            # An answer may be finished after the connection was refused. The transport would raise, and those whose
            # answers are sent in the same turn would get none.
            if not self._ended and not self._transport.is_closing():
                self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Signal:
    """An `asyncio.Event` that costs nothing until somebody waits."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None
        self._set = False

    def set(self) -> None:
        self._set = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        self._set = False
        if self._event is not None:
            self._event.clear()

    async def wait(self) -> None:
        if self._set:
            return
        if self._event is None:
            self._event = asyncio.Event()
        await self._event.wait()


_Target = tuple[str, bytes, bytes]
_targets: dict[bytes, _Target] = {}
"""Path, raw path and query of the request targets seen most: clients ask for the same few."""


def _target(url: bytes) -> _Target:
    found = _targets.get(url)
    if found is None:
        parsed = httptools.parse_url(url)
        path = parsed.path.decode("ascii")
        found = (unquote(path) if "%" in path else path, parsed.path, parsed.query or b"")
        if len(_targets) < _MAX_TARGETS and len(url) < _MAX_KEPT_TARGET:
            _targets[url] = found
    return found


class _CycleWithoutChunks(RequestResponseCycle):
    """For clients of HTTP/1.0: an answer without a length ends with its connection."""

    _ends_with_connection = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._ends_with_connection = all(name != b"content-length" for name, _ in message["headers"])
            if self._ends_with_connection:
                self.chunked_encoding = False
        elif self._ends_with_connection:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class Protocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with bounds on what the application never sees.

    The head of a request: it is complete when the parser has put the method into the scope. Until then a
    timer runs, and what arrives after the first packet is counted (that one is bounded by the read buffer).
    The rest of a body that was answered without being read: it is discarded, so that the client sees the
    answer instead of a reset connection, but not for ever.
    """

    before_answers: Callable[[], None] = staticmethod(_nothing)

    _idle_since = 0.0
    _head_bytes = -1
    _timer: asyncio.TimerHandle | None = None
    _lingers = False
    _unsent = 0
    _unsent_since = 0.0
    _serving = False
    _stays = False
    _turn: RequestResponseCycle | None = None
    """Whose answer is the next on this connection; `cycle` is the request that arrived last."""
    _next: RequestResponseCycle | None = None
    _idle: asyncio.Future[RequestResponseCycle] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        shared = vars(self.server_state)  # by all connections of this server
        outbox = shared.get("outbox") or shared.setdefault("outbox", _Outbox(self.connections, self.before_answers))
        super().connection_made(_Joined(transport, outbox))  # type: ignore[arg-type]
        self._timer = self.loop.call_later(HEAD_SECONDS, self._head_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        turn = self._turn
        if turn is not None and not turn.response_complete:
            turn.disconnected = True
            turn.message_event.set()
        if self._idle is not None and not self._idle.done():
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        if self._lingers:
            return
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(400, "These bytes are not an HTTP/1.1 request.")
        if self._lingers:
            return
        scope = self.scope
        if scope is not None and "method" in scope:
            if self._head_bytes >= 0 or self._timer is not None:
                self._head_complete()
        elif not self.transport.is_closing():
            self._head_goes_on(len(data))

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._stay()
            else:
                return

    def _stay(self) -> None:
        """Answer a request as if it had not asked to change the protocol.

        The parser believes that the protocol changes where the body begins, and would take that for a request. So it
        gets another head with a body just as long.
        """
        scope = self.scope
        lengths = [pair for pair in cast("Any", scope)["headers"] if pair[0] in _LENGTHS]
        self._stays = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % pair for pair in lengths))
        self._stays = False
        self.scope = scope

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade() and not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.scope = _NO_SCOPE

    def on_headers_complete(self) -> None:
        if self._stays:
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests at once")  # which the parser reports like bytes that are not HTTP
        parser = self.parser
        version = parser.get_http_version()
        path, raw_path, query = _target(self.url)
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self.scheme,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
            "server": self.server,
            "client": self.client,
        }
        self.scope = cast("Any", scope)
        earlier = self.cycle
        cycle = self.cycle = (_CycleWithoutChunks if version == "1.0" else RequestResponseCycle)(
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            False,
            self.server_state.default_headers,
            cast("Any", _Signal()),
            self.expect_100_continue,
            version != "1.0" and parser.should_keep_alive(),
            self.on_response_complete,
        )
        scope[CYCLE] = cycle
        if earlier is None or earlier.response_complete:
            self._start(cycle)
        else:
            self.pipeline.appendleft((cycle, self.app))
            if len(self.pipeline) > _MANY_PIPELINED:
                self.flow.pause_reading()

    def _start(self, cycle: RequestResponseCycle) -> None:
        """Have a request served: by the connection's task, when it waits or as soon as it can, or by a new one."""
        self._turn = cycle
        if self._idle is not None:
            self._idle.set_result(cycle)
            self._idle = None
        elif self._serving:
            self._next = cycle
        else:
            self._serving = True
            task = self.loop.create_task(self._serve(cycle))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _serve(self, cycle: RequestResponseCycle | None) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            while cycle is not None:
                await self._answer(cycle)
                cycle, self._next = self._next, None
                if cycle is None and not self.transport.is_closing():
                    # Whoever shuts down waits for tasks, but not for one that has nothing to do.
                    self.tasks.discard(task)
                    idle = self._idle = self.loop.create_future()
                    cycle = await idle
                    self.tasks.add(task)
        except asyncio.CancelledError:
            if not self.transport.is_closing():
                self.transport.close()
        finally:
            self._serving = False

    async def _answer(self, cycle: RequestResponseCycle) -> None:
        try:
            await self.app(cycle.scope, cycle.receive, cycle.send)
        except Exception:
            _log.exception("answer_failed", path=cycle.scope["path"])
        finally:
            cycle.on_response = _nothing
        if not cycle.response_complete and not cycle.disconnected:
            # Half an answer, or none: closing is all that is left to say.
            self.transport.close()

    def on_response_complete(self) -> None:
        """As uvicorn does, but without a timer per answer: `_Outbox` looks after idle connections."""
        cycle = self.cycle
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start(self.pipeline.pop()[0])
        else:
            self._idle_since = self.loop.time()
        if cycle.more_body and self._timer is None:
            self._timer = self.loop.call_later(DISCARD_SECONDS, self._rest_too_slow, self.scope)

    def end_if_idle(self, now: float) -> None:
        """Close a kept connection on which nothing has been asked for too long."""
        cycle = self.cycle
        answered = cycle is not None and cycle.response_complete and self.scope is cycle.scope
        if answered and now - self._idle_since > self.timeout_keep_alive:
            self.transport.close()

    def end_if_unread(self, now: float) -> None:
        """Drop a connection whose client has stopped reading, also one that is being closed."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since > UNREAD_SECONDS:
            self.transport.abort()

    def _head_complete(self) -> None:
        # A timer on the rest of a body carries on until that request's scope is replaced.
        if not self.cycle.response_complete:
            self._stop_timer()
        self._head_bytes = -1

    def _head_goes_on(self, size: int) -> None:
        if self._head_bytes < 0:
            self._head_bytes = 0
            self._stop_timer()
            self._timer = self.loop.call_later(HEAD_SECONDS, self._head_too_slow)
            return
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD:
            self._refuse(431, f"The request's head is larger than {MAX_HEAD} bytes.")

    def _head_too_slow(self) -> None:
        self._timer = None
        if self.scope is None:
            # Nothing was asked, so nothing is answered.
            self.transport.close()
        else:
            self._refuse(408, "The request's head did not arrive in time.")

    def _rest_too_slow(self, scope: object) -> None:
        self._timer = None
        if self.scope is scope and self.cycle.response_complete:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application, and let the client finish reading before the connection goes.

        Answers come in the order of the requests: while an earlier one is owed, it is the last on this connection.
        """
        self._lingers = True
        self._stop_timer()
        if self._owes_an_answer():
            self.cycle.keep_alive = False
            return
        code = {408: "request_timeout", 431: "too_large"}.get(status, "malformed_request")
        body = b'{"error":{"code":"%b","message":"%b","details":{},"request_id":""}}' % (
            code.encode(),
            message.encode(),
        )
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _owes_an_answer(self) -> bool:
        """Whether a request before the refused bytes is unanswered; one whose own body they are does not count."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return bool(self.pipeline) or not cycle.more_body


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise SettingsError(
            f"HOST {host!r} is not an address of this machine, nor a name for one. "
            "Use 127.0.0.1 for this machine alone, or 0.0.0.0 for every network."
        ) from None
    # `localhost` may mean both; most clients try IPv4 when the other refuses, few the other way round.
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return found[0][0], found[0][4]


def _cannot_bind(error: OSError, host: str, port: int, setting: str) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        by = holder(port)
        return SettingsError(
            f"Port {port} on {host} is taken{f' by {by}' if by else ''}. "
            f"Stop that, or choose another port with {setting}.",
            setting=setting,
            port=port,
        )
    if error.errno == errno.EACCES:
        return SettingsError(
            f"Port {port} may not be used by this user; ports below 1024 belong to root. "
            f"Choose a higher one with {setting}, and put a reverse proxy in front if it must be {port}.",
            setting=setting,
            port=port,
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return SettingsError(f"HOST {host} is not an address of this machine.", setting="HOST")
    return SettingsError(f"Cannot listen on {host} port {port}: {error.strerror}.", setting=setting, port=port)


def _check_readable(setting: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read: {error.strerror}.", setting=setting) from None
