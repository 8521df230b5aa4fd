"""Starting children: the one door through which every process of a namespace comes into being.

Two ways, chosen in `open_launcher` and nowhere else. `Zygote` forks from a warm parent (Linux). `Spawner` starts
an interpreter each time and works everywhere; there, strays a tool left behind are not found after kill -9.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import orjson
import structlog

from tooldock.errors import InternalError, Unavailable

log = structlog.get_logger("tooldock.launcher")

Mode = Literal["auto", "fork", "spawn"]

_WARM_SECONDS = 30.0
_START_SECONDS = 10.0
_END_SECONDS = 8.0
_PACKET = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to start. An argument `@name` stands for the number descriptor `name` has in the child."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    output: int
    """Our descriptor that becomes the child's standard output and error."""
    descriptors: Mapping[str, int] = field(default_factory=dict)
    fork: bool = False
    """The warm parent may serve this itself: the arguments name its own interpreter and `-m tooldock_worker`."""


class Child:
    """A running process. `exited` gets its exit code (negative: the signal that ended it)."""

    def __init__(self, pid: int, launcher: Launcher) -> None:
        self.pid = pid
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._launcher = launcher

    def signal(self, number: int) -> None:
        """To its whole process group; nothing happens when it is gone."""
        if not self.exited.done():
            self._launcher.signal(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)


class Launcher(Protocol):
    async def start(self, launch: Launch) -> Child: ...

    def signal(self, pid: int, number: int) -> None: ...

    async def close(self) -> None: ...


def open_launcher(mode: Mode, *, python: Path, runtime: Path) -> Launcher:
    """`python` is the base environment's interpreter, `runtime` holds the package workers run."""
    if mode == "auto":
        mode = "fork" if sys.platform == "linux" else "spawn"
    return Zygote(python, runtime) if mode == "fork" else Spawner()


def plain_environment() -> dict[str, str]:
    """What any child may know of the gateway's environment: enough to run programs, nothing to steal."""
    return {name: os.environ[name] for name in _ALLOWED if name in os.environ}


_ALLOWED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


class Zygote:
    """The warm parent, seen from the gateway. Started on first use, started again if it dies."""

    def __init__(self, python: Path, runtime: Path) -> None:
        self._python = python
        self._runtime = runtime
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._warm: asyncio.Future[None] | None = None
        self._requests: dict[int, asyncio.Future[Child]] = {}
        self._children: dict[int, Child] = {}
        self._last_id = 0

    async def start(self, launch: Launch) -> Child:
        async with self._starting:
            if self._control is None:
                await self._start_process()
        control = self._control
        if control is None:
            raise Unavailable("The worker launcher ended while starting a worker.", retry_after=1)
        self._last_id += 1
        request_id = self._last_id
        numbers = {name: 3 + index for index, name in enumerate(launch.descriptors)}
        packet = orjson.dumps(
            {
                "op": "start",
                "id": request_id,
                "name": launch.name,
                "argv": _numbered(launch.argv, numbers),
                "fork": launch.fork,
                "env": dict(launch.env),
                "cwd": str(launch.cwd),
                "fds": [1, 2, *numbers.values()],
            }
        )
        started = self._requests[request_id] = asyncio.get_running_loop().create_future()
        try:
            socket.send_fds(control, [packet], [launch.output, launch.output, *launch.descriptors.values()])
            return await asyncio.wait_for(asyncio.shield(started), _START_SECONDS)
        except TimeoutError:
            if self._control is control and self._process is not None:
                self._process.kill()  # it hangs, and nothing could ever be started again
            raise Unavailable(f"The worker launcher did not start {launch.name!r} in time.", retry_after=1) from None
        except OSError as error:
            raise Unavailable(f"The worker launcher did not start {launch.name!r}: {error}", retry_after=1) from error
        except asyncio.CancelledError:
            if started.done() and started.exception() is None:
                started.result().kill()  # it came just as we stopped waiting for it
            raise
        finally:
            self._requests.pop(request_id, None)

    def signal(self, pid: int, number: int) -> None:
        if self._control is not None:
            try:
                self._control.send(orjson.dumps({"op": "kill", "pid": pid, "signal": number}))
            except OSError as error:
                log.warning("launcher_unreachable", pid=pid, reason=str(error))

    async def close(self) -> None:
        process = self._process
        self._lose()
        if process is not None:
            await _wait(process)

    async def _start_process(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PACKET)
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            self._warm = loop.create_future()
            env = {**plain_environment(), "PYTHONPATH": str(self._runtime)}
            try:
                self._process = subprocess.Popen(  # noqa: ASYNC220 - a millisecond, once
                    [str(self._python), "-P", "-m", "tooldock_worker.zygote", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=env,
                    cwd=self._runtime,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise Unavailable(f"The worker launcher cannot be started: {error.strerror}.", retry_after=5) from error
        self._control = ours
        loop.add_reader(ours, self._on_readable)
        try:
            await asyncio.wait_for(asyncio.shield(self._warm), _WARM_SECONDS)
        except TimeoutError:
            process = self._process
            self._lose()
            process.kill()
            await _wait(process)
            raise InternalError(f"The worker launcher did not become ready within {_WARM_SECONDS:.0f} s.") from None

    def _on_readable(self) -> None:
        assert self._control is not None
        while True:
            try:
                packet = self._control.recv(_PACKET)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                log.error("launcher_died", workers=len(self._children))
                process = self._process
                # The kernel ends a worker with its parent, but not what the worker's tools started.
                for pid in self._children:
                    _signal_group(pid, signal.SIGKILL)
                self._lose()
                if process is not None:
                    threading.Thread(target=process.wait, daemon=True).start()
                return
            self._on_message(orjson.loads(packet))
            if self._control is None:
                return

    def _on_message(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "warm":
                if self._warm is not None and not self._warm.done():
                    self._warm.set_result(None)
            case "started":
                # Known from here on: its end may be the next message, before whoever waits for it runs.
                child = self._children[message["pid"]] = Child(message["pid"], self)
                request = self._requests.get(message["id"])
                if request is not None and not request.done():
                    request.set_result(child)
                else:  # nobody waits for it any more
                    child.kill()
            case "refused":
                request = self._requests.get(message["id"])
                if request is not None and not request.done():
                    request.set_exception(Unavailable(f"A worker {message['message']}.", retry_after=1))
            case "exited":
                ended = self._children.pop(message["pid"], None)
                if ended is not None and not ended.exited.done():
                    ended.exited.set_result(message["status"])

    def _lose(self) -> None:
        """The parent is gone or given up: the kernel ends its children, we settle what waits for them."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
            self._control = None
        self._process = None
        ended = Unavailable("The worker launcher ended.", retry_after=1)
        if self._warm is not None and not self._warm.done():
            self._warm.set_exception(ended)
            self._warm.exception()  # whoever waited for it may have left
        for request in self._requests.values():
            if not request.done():
                request.set_exception(ended)
                request.exception()
        for child in self._children.values():
            if not child.exited.done():
                child.exited.set_result(-signal.SIGKILL)
        self._children.clear()


class Spawner:
    """Starts an interpreter for every worker."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    async def start(self, launch: Launch) -> Child:
        numbers = dict(launch.descriptors)
        argv = _numbered(launch.argv, numbers)
        if "tooldock_worker" in argv:
            argv += ["--die-with-parent", str(os.getpid())]
        if shutil.which(argv[0]) is None:
            raise Unavailable(f"{argv[0]} cannot be executed, so {launch.name!r} cannot start.", retry_after=5)
        process = subprocess.Popen(  # noqa: ASYNC220 - a millisecond per worker
            argv,
            env=dict(launch.env),
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=launch.output,
            stderr=launch.output,
            pass_fds=list(numbers.values()),
            start_new_session=True,
            umask=0o077,
        )
        self._processes[process.pid] = process
        child = Child(process.pid, self)
        loop = asyncio.get_running_loop()

        def settle(status: int) -> None:
            self.signal(process.pid, signal.SIGKILL)  # what the tools left in its group
            self._processes.pop(process.pid, None)
            if not child.exited.done():
                child.exited.set_result(status)

        def watch() -> None:
            status = process.wait()
            try:
                loop.call_soon_threadsafe(settle, status)
            except RuntimeError:
                pass  # the loop is closed; nobody waits any more

        threading.Thread(target=watch, name=f"watch-{process.pid}", daemon=True).start()
        return child

    def signal(self, pid: int, number: int) -> None:
        if pid in self._processes:
            _signal_group(pid, number)

    async def close(self) -> None:
        for pid in list(self._processes):
            self.signal(pid, signal.SIGKILL)
        for process in list(self._processes.values()):
            await _wait(process)


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # nobody is left in it


def _numbered(argv: tuple[str, ...], numbers: Mapping[str, int]) -> list[str]:
    return [str(numbers[word[1:]]) if word.startswith("@") else word for word in argv]


async def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        await asyncio.to_thread(process.wait, _END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)
