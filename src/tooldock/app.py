"""The wiring: everything is built here, in order, and closed in the reverse order. The only file that knows all rooms.

data directory → log → audit → environments → launcher → engine → namespaces → HTTP face
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

import orjson
import structlog
import uvicorn

from tooldock import __version__
from tooldock.config.load import load_yaml
from tooldock.dialects.mcp.answers import refuse as refuse_mcp
from tooldock.dialects.mcp.handshake import Handshake
from tooldock.dialects.mcp.http import LEGACY_PATHS, PATHS, Mcp, is_mcp
from tooldock.dialects.mcp.legacy_sse import LegacySse
from tooldock.dialects.mcp.methods import Methods
from tooldock.dialects.mcp.revisions import Revisions
from tooldock.dialects.mcp.seal import Seal
from tooldock.dialects.mcp.sessions import Sessions
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.dialects.mcp.stateless import Stateless
from tooldock.dialects.mcp.store import FileStore
from tooldock.dialects.rest import Rest
from tooldock.dialects.rest import refuse as refuse_rest
from tooldock.edge.credentials import Credentials, ManagerGuard
from tooldock.edge.docs import Docs
from tooldock.edge.front import OPEN_PATHS, Front
from tooldock.edge.hosts import Hosts
from tooldock.edge.http import Request, Response
from tooldock.edge.metrics import Metrics
from tooldock.edge.origins import Origins
from tooldock.edge.proxies import Networks, Proxies
from tooldock.edge.server import Tls, bind, server_config
from tooldock.engine.audit import AuditLog
from tooldock.engine.meter import BUCKETS
from tooldock.engine.pipeline import Engine
from tooldock.engine.registry import Registry
from tooldock.engine.secrets import store
from tooldock.errors import NamespaceNotFound, SettingsError, ToolDockError
from tooldock.manager.housekeeping import clear_scratch, expire_logs
from tooldock.manager.prepare import Preparer
from tooldock.manager.reload import Reloader
from tooldock.model import Caller, Namespace
from tooldock.paths import Paths
from tooldock.settings import Settings, finish, warnings_for
from tooldock.sources import folder
from tooldock.workers.launcher import open_launcher
from tooldock.workers.venvs import Environments, copy_runtime

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Metric

log = structlog.get_logger("tooldock")

_FIRST_LOAD_SECONDS = 2.0
"""How long the start-up summary waits for namespaces that are nearly there."""
_HOUSEKEEPING_SECONDS = 3600.0
_HEALTH_SECONDS = 1.0
_PIPE_ROLE = "stdio-"
_IDLE_SECONDS = 1.0
_PIPE_SECONDS = 5.0
"""How long calls may go on when the client at the other end of a pipe has closed it."""


_MCP_NUMBERS = {
    "sessions": "MCP sessions that exist.",
    "replay_bytes": "Bytes kept for clients that come back to a stream.",
    "replay_evictions": "Events that were dropped from what is kept for them.",
    "suspended_calls": "Calls that wait for a client to come back with answers.",
    "subscriptions": "Open subscriptions of the stateless revision.",
    "legacy_connections": "Open connections of the HTTP+SSE transport.",
}


class Reporter(Protocol):
    """Tells a person how things are going."""

    def progress(self, namespace: str, text: str) -> None:
        """An environment is being built; an empty name is the base environment all share."""
        ...

    def ready(self, url: str, namespaces: Sequence[Namespace]) -> None: ...

    def changed(self, namespaces: Sequence[Namespace]) -> None:
        """Something finished loading after the start, or a reload changed something."""
        ...

    def stopping(self, calls: int) -> None: ...


@dataclass(slots=True)
class Gateway:
    """The running parts that faces are made of."""

    settings: Settings
    paths: Paths
    engine: Engine
    reloader: Reloader
    environments: Environments
    first_load: asyncio.Task[None]
    drain_seconds: float
    """How long calls in flight may take to finish when the gateway closes."""

    async def health(self, detailed: bool) -> dict[str, Any]:
        namespaces = self.reloader.status()
        broken = [namespace.name for namespace in namespaces if namespace.error is not None]
        audit = self.engine.audit
        problems = bool(broken or audit.problem or self.reloader.secrets_problem)
        report: dict[str, Any] = {"status": "degraded" if problems else "ok"}
        if detailed:
            report |= {
                "namespaces": {namespace.name: namespace.status for namespace in namespaces},
                "errors": {item.name: item.error for item in namespaces if item.error is not None},
                "tools": sum(namespace.tools for namespace in namespaces),
                "dependencies": await self.reloader.health(_HEALTH_SECONDS),
                "audit": {
                    "enabled": audit.enabled,
                    "writable": audit.problem is None,
                    "problem": audit.problem,
                },
                "secrets": {"readable": self.reloader.secrets_problem is None},
            }
        return report

    async def reload(self) -> dict[str, Any]:
        done = await self.reloader.reload()
        return done.as_json()

    def calls_in_flight(self) -> int:
        return sum(gate.active for gate in self.engine.gates().values())


@contextlib.asynccontextmanager
async def gateway(
    settings: Settings, paths: Paths, *, role: str, reporter: Reporter, only: str | None = None
) -> AsyncIterator[Gateway]:
    """Everything but a face. `paths` is prepared and `settings` finished; `only` names the one namespace to serve."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_sole(paths, role))
        await asyncio.to_thread(clear_scratch, paths, role)
        audit = AuditLog(lambda day: paths.audit_log(day, role), enabled=settings.audit_enabled)
        stack.callback(audit.close)
        runtime = await asyncio.to_thread(copy_runtime, paths)
        environments = Environments(
            paths,
            uv_cache=settings.uv_cache_dir,
            build_timeout=settings.environment_build_timeout_seconds,
        )
        stack.callback(environments.close)
        base = await environments.base(lambda text: reporter.progress("", text))
        launcher = open_launcher(settings.worker_start, python=base.python, runtime=runtime)
        stack.push_async_callback(launcher.close)
        engine = Engine(Registry(), audit)
        preparer = Preparer(settings, paths, launcher, environments, runtime, role)
        reloader = Reloader(
            paths,
            engine.registry,
            preparer,
            _SecretsReader(settings, paths),
            eager_limit=settings.worker_eager_limit,
            progress=reporter.progress,
            changed=reporter.changed,
            only=only,
        )
        first_load = await reloader.start()
        running = Gateway(settings, paths, engine, reloader, environments, first_load, settings.drain_seconds)
        stack.push_async_callback(lambda: reloader.close(running.drain_seconds))
        stack.push_async_callback(_end, first_load)
        housekeeping = asyncio.create_task(_keep_house(settings, paths), name="housekeeping")
        stack.push_async_callback(_end, housekeeping)
        yield running


@contextlib.asynccontextmanager
async def mcp_face(running: Gateway, role: str) -> AsyncIterator[Mcp]:
    """MCP over HTTP: all revisions, with the sessions the last process of this role left."""
    settings, paths = running.settings, running.paths
    revisions = Revisions(settings.mcp_supported_versions, legacy=settings.enable_legacy_mcp)
    methods = Methods(running.engine, revisions)
    keepalive = KeepAlive()
    sessions = Sessions(
        FileStore(paths.sessions(role)),
        ttl_seconds=settings.mcp_session_ttl_hours * 3600,
        max_sessions=settings.mcp_max_sessions,
        max_per_caller=settings.mcp_max_sessions_per_caller,
    )
    try:
        await sessions.restore(revisions.handshake)
        seal = await asyncio.to_thread(Seal.open, paths.token("mcp-state"))
        mcp = Mcp(
            methods,
            revisions,
            Handshake(methods, revisions, sessions, keepalive, strict=settings.mcp_strict),
            Stateless(methods, revisions, seal, keepalive, strict=settings.mcp_strict),
            LegacySse(methods, revisions, keepalive) if settings.enable_legacy_mcp else None,
        )
        running.engine.registry.subscribe(mcp.on_change)
        yield mcp
        mcp.close()
    finally:
        sessions.close()


def http_face(running: Gateway, mcp: Mcp, *, host: str) -> Front:
    """The REST and MCP faces of a gateway, behind the edge."""
    settings = running.settings
    metrics = Metrics()
    metrics.add(lambda: _collect(running, mcp))
    rest = Rest(
        running.engine,
        status=running.reloader.status,
        reload=running.reload,
        health=running.health,
        manager_guard=ManagerGuard(
            settings.manager_internal_token or "",
            Networks(settings.internal_allowed_cidrs, "INTERNAL_ALLOWED_CIDRS"),
        ),
        docs=Docs(),
        metrics=metrics,
    )

    def route(request: Request) -> Awaitable[Response]:
        path = request.path
        return mcp(request) if path in PATHS or path in LEGACY_PATHS else rest(request)

    def refuse(request: Request, error: ToolDockError) -> Response:
        return refuse_mcp(request, error) if is_mcp(request.scope["path"]) else refuse_rest(request, error)

    return Front(
        route,
        refuse=refuse,
        hosts=Hosts(host, settings.allowed_hosts),
        origins=Origins(settings.cors_origins),
        credentials=None if settings.auth_disabled else _credentials(settings),
        proxies=Proxies(settings.trusted_proxies),
        metrics=metrics,
        max_body=settings.max_request_size,
        open_paths=OPEN_PATHS | {"/"} | ({"/metrics"} if settings.metrics_public else set()),
    )


async def serve(settings: Settings, paths: Paths, *, role: str, host: str, port: int, reporter: Reporter) -> int:
    """Run a gateway with its HTTP face until SIGTERM or SIGINT. Returns the exit code."""
    tls = Tls(settings.tls_cert, settings.tls_key, settings.tls_key_password) if settings.tls_cert else None
    listener = bind(host, port, setting="CORE_PORT" if role == "core" else "PORT")
    with listener:
        paths.prepare()
        settings = finish(settings, paths)
        for warning in warnings_for(settings):
            log.warning("insecure_setting", text=warning)
        async with (
            gateway(settings, paths, role=role, reporter=reporter) as running,
            mcp_face(running, role) as mcp,
        ):
            address = listener.getsockname()
            url = f"{'https' if tls else 'http'}://{_shown(host)}:{address[1]}"
            config = server_config(
                http_face(running, mcp, host=host),
                host=host,
                port=address[1],
                tls=tls,
                drain_seconds=settings.drain_seconds,
                before_answers=running.engine.audit.flush,
            )
            running.engine.audit.gather(asyncio.get_running_loop())
            server = _Server(config)
            with _announced(paths, role, url), _signals(server, running, mcp, reporter):
                serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
                await asyncio.wait(
                    [running.first_load, serving], timeout=_FIRST_LOAD_SECONDS, return_when="FIRST_COMPLETED"
                )
                if not server.should_exit:
                    log.info("ready", url=url, version=__version__, pid=os.getpid())
                    reporter.ready(url, running.reloader.status())
                # What was imported and built by now stays; the collector need not look at it on every pass.
                gc.collect()
                gc.freeze()
                gc.set_threshold(10_000, 20, 50)
                await serving
    return 0


async def serve_stdio(
    settings: Settings, paths: Paths, *, namespace: str, incoming: int, outgoing: int, reporter: Reporter
) -> int:
    """Serve one namespace to whoever holds the other ends of two descriptors. Returns the exit code."""
    from tooldock.dialects.mcp.pipe import Incoming, Outgoing
    from tooldock.dialects.mcp.rounds import Rounds
    from tooldock.dialects.mcp.stdio import Stdio

    role = f"{_PIPE_ROLE}{os.getpid()}"
    _require_namespace(paths, namespace)
    paths.prepare()
    settings = finish(settings, paths)
    await asyncio.to_thread(_clear_pipes, paths)
    stop = _Stop()
    try:
        with stop.by_signals():
            async with gateway(settings, paths, role=role, reporter=reporter, only=namespace) as running:
                await _loaded(running, namespace)
                # Calls have their time to finish while the pipe closes; after that only idle workers are left.
                running.drain_seconds = min(settings.drain_seconds, _IDLE_SECONDS)
                revisions = Revisions(settings.mcp_supported_versions, legacy=settings.enable_legacy_mcp)
                methods = Methods(running.engine, revisions)
                # Nobody but this process can be shown a state it sealed, so the key need not outlive it.
                rounds = Rounds(methods, Seal())
                pipe = Stdio(methods, rounds, namespace, Outgoing(outgoing), strict=settings.mcp_strict)
                running.engine.registry.subscribe(pipe.on_change)
                with _reloaded_by_signal(running), _announced(paths, role, ""):
                    lines = Incoming(incoming, settings.max_request_size)
                    await pipe.serve(lines, stop.asked(), min(settings.drain_seconds, _PIPE_SECONDS))
    except asyncio.CancelledError:
        if not stop.forced:
            raise
    finally:
        shutil.rmtree(paths.run_dir(role), ignore_errors=True)
    return 0


def run(main: Coroutine[Any, Any, int]) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def configure_logging(settings: Settings) -> None:
    """Pretty on a terminal, JSON lines elsewhere, always on standard error."""
    pretty = settings.log_format == "pretty" or (settings.log_format == "auto" and sys.stderr.isatty())
    final: list[Any] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
                # The fancier formatters print local variables, and those may be secrets.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
        if pretty
        else [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=lambda event, **_: orjson.dumps(event, default=str).decode()),
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *final,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.log_level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lossy(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    if not any(isinstance(handler, _Forwarded) for handler in root.handlers):
        root.addHandler(_Forwarded(logging.WARNING))
    # Its warnings are about what strangers send, a line for each.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class _Forwarded(logging.Handler):
    """What libraries log the ordinary way, in the shape of everything else."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger(record.name).log(
                record.levelno,
                "library_message",
                logger=record.name,
                text=record.getMessage(),
                exc_info=record.exc_info,
            )
        except Exception:
            self.handleError(record)


class _Lossy:
    """A stream to which writing never fails: a full disk costs log lines, not the calls they were about."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class _SecretsReader:
    """Reads the store when one of its files changed; deriving its key is slow on purpose."""

    def __init__(self, settings: Settings, paths: Paths) -> None:
        self._key = settings.secrets_key or ""
        self._paths = paths
        self._stamp: tuple[Any, ...] | None = None
        self._secrets = store.Secrets()

    def __call__(self) -> store.Secrets:
        stamp = tuple(_stamp(path) for path in (self._paths.secrets_enc, self._paths.secrets_meta))
        if stamp != self._stamp:
            meta = load_yaml(self._paths.secrets_meta).plain() if stamp[1] is not None else {}
            self._secrets = store.read(self._paths.secrets_enc, self._key, meta)
            self._stamp = stamp
        return self._secrets


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: what it re-raises at its end would keep us from closing in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _signals(server: _Server, running: Gateway, mcp: Mcp, reporter: Reporter) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[Any]] = set()
    attended = os.isatty(0)

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True
            running.drain_seconds = 0
            return
        reporter.stopping(running.calls_in_flight())
        end()

    def end() -> None:
        server.should_exit = True
        mcp.close()
        log.info("stopping", calls=running.calls_in_flight())

    def hang_up() -> None:
        if attended and not os.isatty(0):
            # Not a wish to reload: the terminal is gone, and whoever sat at it could not stop this any more.
            end()
            return
        task = asyncio.create_task(running.reload(), name="reload")
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


class _Stop:
    """How signals end a process: at once, unless somebody is there who would rather be asked. The second is at once."""

    def __init__(self) -> None:
        self.forced = False
        self._event: asyncio.Event | None = None
        self._task = asyncio.current_task()

    def asked(self) -> asyncio.Event:
        """Set by the first signal from now on."""
        self._event = asyncio.Event()
        return self._event

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        if self._event is not None and not self._event.is_set():
            self._event.set()
        elif self._task is not None and not self.forced:
            self.forced = True
            self._task.cancel()


@contextlib.contextmanager
def _reloaded_by_signal(running: Gateway) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    reloads: set[asyncio.Task[Any]] = set()

    def reload() -> None:
        task = asyncio.create_task(running.reload(), name="reload")
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _clear_pipes(paths: Paths) -> None:
    """Run directories of pipes whose process was killed before it could remove its own."""
    for path in paths.run_dir("core").parent.glob(f"{_PIPE_ROLE}*"):
        pid = path.name.removeprefix(_PIPE_ROLE)
        try:
            os.kill(int(pid), 0)
        except (ProcessLookupError, ValueError, OverflowError):
            # In a container on the same directory it may live under a number that means nothing here.
            if not _is_held(path / "lock"):
                shutil.rmtree(path, ignore_errors=True)
        except PermissionError:
            pass  # alive, and somebody else's


def _require_namespace(paths: Paths, namespace: str) -> None:
    """Before anything is started for it."""
    known = folder.names(paths.tools) if paths.tools.is_dir() else []
    if namespace not in known:
        there = f"There are: {', '.join(sorted(known))}." if known else "There are none yet; `tooldock new` makes one."
        raise NamespaceNotFound(
            f"There is no namespace {namespace[:80]!r} in {paths.tools}. {there}", namespace=namespace, available=known
        )


async def _loaded(running: Gateway, namespace: str) -> None:
    """Wait until the namespace can be served. Raises why it cannot be."""
    registry = running.engine.registry
    if namespace not in registry.catalogue.entries:
        await asyncio.shield(running.first_load)
    if any(row.name == namespace and row.status == "disabled" for row in running.reloader.status()):
        raise NamespaceNotFound(
            f"Namespace {namespace!r} is switched off: its tooldock.yaml says `enabled: false`.", namespace=namespace
        )
    registry.catalogue.entry(namespace)


@contextlib.contextmanager
def _sole(paths: Paths, role: str) -> Iterator[None]:
    """Only one process of a role may use a data directory."""
    run = paths.run_dir(role)
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(run / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise SettingsError(
                f"Another ToolDock {role} (process {holder or 'unknown'}) already uses the data directory "
                f"{paths.data_dir}. Stop it, or choose another directory with DATA_DIR."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _is_held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def _announced(paths: Paths, role: str, url: str) -> Iterator[None]:
    """How commands on this machine find the running process."""
    path = paths.run_dir(role) / f"{role}.json"
    facts = {
        "pid": os.getpid(),
        "url": url,
        "tls": url.startswith("https"),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
    }
    partial = path.with_suffix(".tmp")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(facts))
    os.replace(partial, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _credentials(settings: Settings) -> Credentials:
    tokens: dict[str, Caller] = {}
    if settings.bearer_token:
        tokens[settings.bearer_token] = Caller("default")
    if settings.operator_token:
        tokens[settings.operator_token] = Caller("operator", "operator")
    return Credentials(tokens)


def _collect(running: Gateway, mcp: Mcp) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    calls = CounterMetricFamily("tooldock_calls", "Calls by outcome.", labels=("namespace", "tool", "status"))
    seconds = HistogramMetricFamily(
        "tooldock_call_seconds", "Time a call took.", labels=("namespace", "tool", "status")
    )
    for key, series in running.engine.meter.series():
        calls.add_metric(key, series.count)
        total = 0
        buckets = []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), series.buckets, strict=True):
            total += count
            buckets.append((bound, float(total)))
        seconds.add_metric(key, buckets, sum_value=series.total)
    active = GaugeMetricFamily("tooldock_calls_running", "Calls being run.", labels=("namespace",))
    waiting = GaugeMetricFamily("tooldock_calls_waiting", "Calls waiting for a free place.", labels=("namespace",))
    for name, gate in running.engine.gates().items():
        active.add_metric((name,), gate.active)
        waiting.add_metric((name,), len(gate.waiting))
    restarts = CounterMetricFamily("tooldock_worker_restarts", "Workers started again.", labels=("namespace",))
    for namespace in running.reloader.status():
        restarts.add_metric((namespace.name,), namespace.restarts)
    writable = GaugeMetricFamily("tooldock_audit_writable", "1 while calls can be recorded.")
    writable.add_metric((), float(running.engine.audit.problem is None))
    yield from (calls, seconds, active, waiting, restarts, writable)
    for name, value in mcp.numbers().items():
        yield GaugeMetricFamily(f"tooldock_mcp_{name}", _MCP_NUMBERS[name], value=value)


async def _keep_house(settings: Settings, paths: Paths) -> None:
    while True:
        try:
            removed = await asyncio.to_thread(expire_logs, paths, settings.log_retention_days)
        except OSError as error:
            log.warning("logs_not_expired", reason=error.strerror)
        else:
            if removed:
                log.info("logs_expired", files=len(removed))
        await asyncio.sleep(_HOUSEKEEPING_SECONDS)


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _stamp(path: os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _shown(host: str) -> str:
    """The address a person on this machine can use."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
