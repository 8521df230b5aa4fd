"""One worker process of a namespace: started, shaken hands with, called, watched, ended.

A call past its deadline is answered at once; whether the tool yields is the worker's problem. If it does not
within the grace period, or the worker stops answering pings, the worker is *given up*: `on_given_up` is told so
that a replacement takes new calls, calls it never began go back to be run there, and the rest may still finish.

While a call's questions to its caller are open, its clock stands still: people may take longer than tools.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from tooldock.errors import (
    BY_CODE,
    DependencyError,
    ExecutionTimeout,
    InternalError,
    NoBackChannel,
    ToolDockError,
    Unavailable,
)
from tooldock.model import Channel
from tooldock.workers.launcher import Child, Launch, Launcher
from tooldock.workers.output import Filter, Output
from tooldock.workers.rpc import Answer, Connection, Counter, NotStarted

log = structlog.get_logger("tooldock.worker")

Message = dict[str, Any]

_EXIT_SECONDS = 1.0
_STATUS_SECONDS = 0.1
_LAST_WORDS_SECONDS = 2.0
_TICK_SECONDS = 0.05
"""How late, at most, a call past its deadline is answered."""
_MAX_EVENTS = 1000
"""Progress and log lines of one worker on their way to callers; more are dropped."""
_MAX_ASKS = 256
_FOR_PEOPLE = frozenset({"elicit", "sample", "roots"})
"""Questions whose answer takes as long as who is asked; how long that may be is the channel's business."""

_WHAT = {b"tools.call": "Tool", b"resources.read": "Resource", b"prompts.get": "Prompt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Everything a worker of one namespace needs to start."""

    namespace: str
    python: Path
    folder: Path
    env: Mapping[str, str]
    cwd: Path
    log_file: Path
    shared_environment: bool
    """It runs on the base environment, so the warm parent may fork it."""
    threads: int
    max_output: int
    max_frame: int
    ready_seconds: float
    grace_seconds: float
    ping_seconds: float


class Worker:
    """Made by `Worker.start`, which returns when its tools are loaded."""

    def __init__(self, spec: WorkerSpec, output: Output) -> None:
        self.spec = spec
        self.described: Message = {}
        """What it said it offers: lists of `tools`, `resources`, `templates` and `prompts`."""
        self.on_given_up: Callable[[Worker], None] | None = None
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._output = output
        self._ready: asyncio.Future[Message] = self._loop.create_future()
        self._begun = Counter()
        self._connection = Connection(max_frame=spec.max_frame, on_event=self._on_event, begun=self._begun)
        self._child: Child | None = None
        self._running: dict[int, tuple[float, asyncio.Future[Answer], str, Channel, bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asks: dict[int, list[asyncio.Task[None]]] = {}
        self._thinking: dict[int, tuple[int, float]] = {}
        """Of calls that wait for people: how many questions are open, and since when."""
        self._events = 0
        self._given_up = False
        self._ping: asyncio.Future[Answer] | None = None
        self._health: asyncio.Future[Answer] | None = None
        self._ping_at = 0.0
        self._tick_handle: asyncio.TimerHandle | None = None
        self._quiet: asyncio.Event | None = None

    @classmethod
    async def start(cls, launcher: Launcher, spec: WorkerSpec, secrets: Filter) -> Worker:
        output = Output(spec.log_file, spec.namespace, secrets)
        worker = cls(spec, output)
        try:
            await worker._launch(launcher)
            worker.described = await worker._handshake()
        except BaseException:
            worker._abort()
            raise
        return worker

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def served(self) -> int:
        return self._connection.answered

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def given_up(self) -> bool:
        return self._given_up

    async def call(
        self,
        tool: str,
        arguments: Message,
        info: Message,
        deadline: float,
        channel: Channel,
        op: bytes = b"tools.call",
    ) -> Answer:
        """Run one call. Raises `NotStarted` when another worker may safely run it instead."""
        if self._given_up:
            raise NotStarted  # its replacement is on the way; this one takes up nothing more
        number, future = self._connection.call(tool, arguments, info, op)
        self._running[number] = (deadline, future, tool, channel, op)
        if self._tick_handle is None:
            self._ping_at = self._loop.time() + self.spec.ping_seconds
            self._tick_handle = self._loop.call_later(_TICK_SECONDS, self._tick)
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(number)
            raise
        finally:
            del self._running[number]
            if self._quiet is not None and not self._running:
                self._quiet.set()
            for task in self._asks.pop(number, ()):
                task.cancel()

    async def health(self, seconds: float) -> Any:
        """What the namespace's own `health()` says; None when it has none."""
        if self._health is None or self._health.done():  # one that hangs is not asked again
            self._health = self._connection.request("health")
            self._health.add_done_callback(lambda health: health.cancelled() or health.exception())
        async with asyncio.timeout(seconds):
            answer = await asyncio.shield(self._health)
        return answer.frame["result"] if answer.frame else None

    async def stop(self) -> None:
        """Wait for calls in flight, at most until their deadlines; then end the process and all it started."""
        try:
            await self._until_quiet()
            if not self.ended.done():
                self._tell("shutdown")
                await asyncio.wait([self.ended], timeout=_EXIT_SECONDS)
        finally:
            self._abort()
        if self._child is not None and not self._child.exited.done():
            await asyncio.wait([self._child.exited], timeout=_EXIT_SECONDS)

    def describe_end(self) -> str:
        """Why the process is gone, for people."""
        status = self._child.exited.result() if self._child is not None and self._child.exited.done() else None
        how = _how(status)
        # What it printed long before says nothing about its end.
        recent = time.monotonic() - self._output.last_at < _LAST_WORDS_SECONDS
        last = self._output.tail[-1:]
        said = f" Its last words: {last[0][:500]}" if last and recent and status != 0 else ""
        return f"The worker process of namespace {self.spec.namespace!r} {how}.{said}"

    # Starting.

    async def _launch(self, launcher: Launcher) -> None:
        spec = self.spec
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.setblocking(False)
                argv = (
                    *(str(spec.python), "-P", "-m", "tooldock_worker", "--namespace", spec.namespace),
                    *("--folder", str(spec.folder), "--fd", "@calls", "--begun-fd", "@begun"),
                    *("--threads", str(spec.threads), "--max-output", str(spec.max_output)),
                    *("--max-frame", str(spec.max_frame)),
                )
                launch = Launch(
                    name=spec.namespace,
                    argv=argv,
                    env=spec.env,
                    cwd=spec.cwd,
                    output=self._output.write_end,
                    descriptors={"calls": theirs.fileno(), "begun": self._begun.fd},
                    fork=spec.shared_environment,
                )
                self._child = await launcher.start(launch)
                self._output.started()
                await self._connection.open(ours)
            except BaseException:
                ours.close()
                raise
            finally:
                self._begun.close_descriptor()
        self._child.exited.add_done_callback(self._on_exit)
        self._connection.lost.add_done_callback(lambda _: self._on_lost())

    async def _handshake(self) -> Message:
        assert self._child is not None
        either: list[asyncio.Future[Any]] = [self._ready, self.ended]
        await asyncio.wait(either, timeout=self.spec.ready_seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done():
            return self._ready.result()
        if self.ended.done():
            await asyncio.wait([self._child.exited], timeout=_EXIT_SECONDS)
            self._output.close()
            raise DependencyError(self.describe_end(), namespace=self.spec.namespace)
        raise DependencyError(
            f"The files of namespace {self.spec.namespace!r} were still being imported after "
            f"{self.spec.ready_seconds:g} s. Move slow work out of the top level, or raise "
            "WORKER_READY_TIMEOUT_SECONDS.",
            namespace=self.spec.namespace,
        )

    # Ending.

    def _on_exit(self, _: asyncio.Future[int]) -> None:
        # Bytes it sent before it died may still be in the socket; the end of the connection follows them.
        self._loop.call_later(_EXIT_SECONDS, self._connection.close)
        if self._connection.lost.done():
            self._end()

    def _on_lost(self) -> None:
        assert self._child is not None
        if self._quiet is not None:
            self._quiet.set()
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        if self._child.exited.done():
            self._end()
        else:
            self._child.kill()  # a worker without a connection is of no use to anyone
            # How it ended is known in a moment; a replacement does not wait longer than that for it.
            self._loop.call_later(_STATUS_SECONDS, self._end)
        self._loop.call_later(_EXIT_SECONDS, self._output.close)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _abort(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._connection.close()
        if self._child is None:
            self._output.close()
        self._end()

    async def _until_quiet(self) -> None:
        """Until nobody waits for an answer. Calls past their deadline are not waited for: `_tick` answers them."""
        if self._running and not self.ended.done():
            self._quiet = asyncio.Event()
            await self._quiet.wait()

    # Deadlines and hangs.

    def _tick(self) -> None:
        """While calls are in flight: whose deadline has passed, and is the worker still listening?

        One timer for all calls. A timer of its own would cost each of them more than looking at it does.
        """
        self._tick_handle = None
        if self.ended.done() or not (self._running or self._connection.in_flight):
            return
        self._tick_handle = self._loop.call_later(_TICK_SECONDS, self._tick)
        now = self._loop.time()
        for number, (deadline, future, tool, _, op) in list(self._running.items()):
            if deadline <= now and not future.done() and number not in self._thinking:
                future.set_exception(self._too_late(tool, op))
                self._abandon(number)
        if now >= self._ping_at:
            self._ping_at = now + self.spec.ping_seconds
            self._check_ping()

    def _check_ping(self) -> None:
        if self._ping is not None and not self._ping.done():
            self._give_up("it does not answer pings")
            return
        try:
            self._ping = self._connection.request("ping")
        except NotStarted:
            return  # it is gone
        self._ping.add_done_callback(lambda ping: ping.cancelled() or ping.exception())

    def _too_late(self, tool: str, op: bytes) -> ExecutionTimeout:
        return ExecutionTimeout(
            f"{_WHAT[op]} {tool!r} of namespace {self.spec.namespace!r} did not answer before its deadline and was "
            "cancelled. Ask for less, or raise limits.timeout_seconds in tooldock.yaml "
            "(or TOOL_CALL_TIMEOUT_SECONDS).",
            namespace=self.spec.namespace,
            tool=tool,
        )

    def _abandon(self, number: int) -> None:
        """Nobody waits for this call any more: ask the tool to stop, and see whether it does."""
        if not self._connection.is_waiting(number):
            return
        self._tell("cancel", call=str(number))
        self._loop.call_later(self.spec.grace_seconds, self._on_grace_over, number)

    def _on_grace_over(self, number: int) -> None:
        if self._connection.is_waiting(number) and not self.ended.done():
            self._give_up("a call past its deadline does not yield")

    def _give_up(self, reason: str) -> None:
        if self._given_up:
            return
        self._given_up = True
        log.warning("worker_given_up", namespace=self.spec.namespace, pid=self.pid, reason=reason)
        self._tell("drain")
        if self.on_given_up is not None:
            self.on_given_up(self)
        self._connection.give_up()

    def _tell(self, op: str, **fields: Any) -> None:
        """Say something whose answer does not matter."""
        try:
            self._connection.tell(op, **fields)
        except NotStarted:
            pass  # it is gone, which is what we would have told it

    # What tools say while they run.

    def _on_event(self, frame: Message) -> None:
        match frame["op"]:
            case "ready":
                if not self._ready.done():
                    self._ready.set_result(frame)
            case "failed":
                if not self._ready.done():
                    self._ready.set_exception(_load_failure(self.spec.namespace, frame["error"]))
            case "progress" | "log" as op:
                self._pass_on(op, frame)
            case "ask":
                self._on_ask(frame)

    def _pass_on(self, op: str, frame: Message) -> None:
        running = self._running.get(int(frame["id"]))
        if running is None or self._events >= _MAX_EVENTS:
            return
        self._events += 1
        channel = running[3]
        if op == "progress":
            saying = channel.progress(float(frame["progress"]), frame.get("total"), frame.get("message"))
        else:
            saying = channel.log(frame["level"], str(frame["message"]), frame.get("logger"), frame.get("data"))

        async def say() -> None:
            try:
                await saying
            except Exception:  # what a tool says on the way must never fail it
                log.exception("event_not_passed_on", namespace=self.spec.namespace, event_kind=op)
            finally:
                self._events -= 1

        self._own(say())

    def _on_ask(self, frame: Message) -> None:
        number, ask = int(frame["id"]), str(frame["ask"])
        running = self._running.get(number)
        if running is None:
            self._reply(ask, error=NoBackChannel("The call that asked is over."))
        elif sum(map(len, self._asks.values())) >= _MAX_ASKS:
            self._reply(ask, error=Unavailable("Too many questions of this worker are waiting.", retry_after=1))
        else:
            task = self._own(self._ask(running[3], ask, frame))
            waiting = self._asks.setdefault(number, [])
            waiting.append(task)
            task.add_done_callback(waiting.remove)  # answered ones do not count against the bound
            if frame["kind"] in _FOR_PEOPLE:
                self._stop_clock(number)
                task.add_done_callback(lambda _: self._start_clock(number))

    def _stop_clock(self, number: int) -> None:
        open_ones, since = self._thinking.get(number, (0, self._loop.time()))
        self._thinking[number] = (open_ones + 1, since)

    def _start_clock(self, number: int) -> None:
        """A question is answered; after the last one, the call has the time left that it had before the first."""
        open_ones, since = self._thinking[number]
        if open_ones > 1:
            self._thinking[number] = (open_ones - 1, since)
            return
        del self._thinking[number]
        if number in self._running:
            deadline, future, tool, channel, op = self._running[number]
            self._running[number] = (deadline + self._loop.time() - since, future, tool, channel, op)

    async def _ask(self, channel: Channel, ask: str, frame: Message) -> None:
        try:
            result = await channel.ask(frame["kind"], frame["params"])
        except ToolDockError as error:
            self._reply(ask, error=error)
        except Exception:
            log.exception("ask_failed", namespace=self.spec.namespace)
            self._reply(ask, error=InternalError("The question could not be passed on."))
        else:
            self._reply(ask, result)

    def _reply(self, ask: str, result: Any = None, error: ToolDockError | None = None) -> None:
        try:
            self._connection.answer(ask, result, error)
        except NotStarted:
            pass  # it is gone; nobody waits for the answer

    def _own(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _how(status: int | None) -> str:
    if status is None:
        return "lost its connection"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        return f"was ended by signal {name}"
    return f"ended with exit code {status}"


def _load_failure(namespace: str, error: Message) -> ToolDockError:
    details = error.get("details") or {}
    kind = BY_CODE.get(str(error.get("code")), DependencyError)
    return kind(str(error.get("message")), namespace=namespace, file=details.get("file"), line=details.get("line"))


def worker_environment(
    base: Mapping[str, str], extra: Mapping[str, str], python: Path, runtime: Path
) -> dict[str, str]:
    """A worker's whole environment: a short allowlist, then what belongs to the namespace."""
    env = dict(base)
    env["PATH"] = os.pathsep.join([str(python.parent), base.get("PATH", os.defpath)])
    env["VIRTUAL_ENV"] = str(python.parent.parent)
    env["PYTHONUNBUFFERED"] = "1"
    env.update(extra)
    env["PYTHONPATH"] = str(runtime)
    return env
