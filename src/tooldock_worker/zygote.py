"""The warm parent of workers: imports once, then forks.

A worker on the shared base environment is a fork of this process: ready in milliseconds, sharing its memory. A
worker with an environment of its own is a fork that executes another interpreter. So every child is started by
the one function `_launch`, and every child has the same parent, which

- is the reaper of whatever tools leave behind (Linux: child subreaper), and
- kills all of them, whole process groups and strays, as soon as the gateway is gone, even after kill -9.

It stays single-threaded, runs no event loop and holds no socket but its own; environment, directory and descriptors
are set in the child before any tool code is imported.

Control socket (SOCK_SEQPACKET, one JSON message a packet, descriptors attached to `start`):

    -> {"op":"start","id":1,"argv":[...],"fork":true,"env":{...},"cwd":"...","fds":[0,1,2,3],"name":"github"}
    <- {"op":"started","id":1,"pid":42}   or   {"op":"refused","id":1,"message":"..."}
    -> {"op":"kill","pid":42,"signal":9}
    <- {"op":"exited","pid":42,"status":-9}
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from tooldock_worker import __main__ as worker
from tooldock_worker import light, tools
from tooldock_worker.light.decorator import record_of, tool

_MAX_PACKET = 1 << 20
_MAX_FDS = 16
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_SECONDS = 5.0

Message = dict[str, Any]


class Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._workers: set[int] = set()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._pid = os.getpid()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: None)  # the gateway decides; its end is ours
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        self._say({"op": "warm"})
        alive = True
        while alive:
            for fd, _ in poll.poll():
                if fd == self._wake_read:
                    os.read(self._wake_read, 4096)
                else:
                    alive = self._on_packet()
            self._reap()
        self._kill_everything()

    def _on_packet(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _MAX_PACKET, _MAX_FDS)
        except OSError:
            return False
        if not data:
            return False
        message = json.loads(data)
        if message["op"] == "start":
            self._start(message, fds)
        elif message["op"] == "kill":
            self._kill(message["pid"], message["signal"])
        return True

    def _start(self, message: Message, fds: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            _close(fds)
            self._say({"op": "refused", "id": message["id"], "message": f"cannot fork: {error.strerror}"})
            return
        if pid == 0:
            self._launch(message, fds)
        _close(fds)
        self._workers.add(pid)
        self._say({"op": "started", "id": message["id"], "pid": pid})

    def _launch(self, message: Message, fds: list[int]) -> NoReturn:
        """In the child: become the worker. Every child process of the gateway begins here."""
        try:
            os.setsid()
            worker.die_with_parent(self._pid)
            self._libc.prctl(_PR_SET_NAME, f"td:{message['name']}".encode()[:15], 0, 0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            _place(fds, message["fds"])
            os.chdir(message["cwd"])
            os.umask(0o077)
            os.environ.clear()
            os.environ.update(message["env"], TOOLDOCK_WORKER=str(os.getpid()))
            argv = message["argv"]
            if not message["fork"]:
                os.execve(argv[0], argv, os.environ)  # noqa: S606
            worker.leave(worker.main(argv[argv.index("tooldock_worker") + 1 :]))
        except BaseException:
            import traceback

            traceback.print_exc()
        os._exit(126)

    def _kill(self, pid: int, number: int) -> None:
        if pid in self._workers:  # never a pid that is not, or no longer, ours
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                os.kill(pid, number)  # so young that it has no group of its own yet

    def _reap(self) -> None:
        ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._workers:
                self._workers.discard(pid)
                _signal_group(pid, signal.SIGKILL)
                self._say({"op": "exited", "pid": pid, "status": os.waitstatus_to_exitcode(status)})
            ended = True
        if ended:  # also after a stray: its own children have just moved here
            self._sweep()

    def _sweep(self) -> None:
        """Kill what dead workers left behind: processes that moved here because their parent is gone.

        A stray whose worker lives (a daemon it started) says so in its environment and is left alone. That is the
        environment it was executed with: a daemon that a forked worker forked without executing anything is not told
        from what a dead worker left, and goes.
        """
        alive = {f"TOOLDOCK_WORKER={pid}".encode() for pid in self._workers}
        for pid in _children():
            if pid in self._workers:
                continue
            if alive and not alive.isdisjoint(_environment(pid)):
                continue
            _kill_one(pid)

    def _kill_everything(self) -> None:
        deadline = time.monotonic() + _SWEEP_SECONDS
        for pid in list(self._workers):
            _signal_group(pid, signal.SIGKILL)
        while time.monotonic() < deadline:
            for pid in _children():
                _signal_group(pid, signal.SIGKILL)
                _kill_one(pid)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return  # none left
            select.select([self._wake_read], [], [], 0.02)

    def _say(self, message: Message) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                raise


def _place(fds: list[int], numbers: list[int]) -> None:
    """Give the received descriptors their numbers and close everything else."""
    # Out of the way first: a received descriptor may sit on a number that another one wants.
    high = [os.dup2(fd, 100 + index, inheritable=True) for index, fd in enumerate(fds)]
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number, inheritable=True)
    if 0 not in numbers:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0, inheritable=True)
    os.closerange(max(2, *numbers) + 1, 4096)


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii")
    except OSError:
        return []  # a kernel without this list; process groups were still killed
    return [int(pid) for pid in text.split()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # nobody is left in it


def _kill_one(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it went by itself, or runs as another user (sudo) and is not ours to end


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _warm() -> None:
    """Do once, before forking, what every worker would do first: import and build the machinery behind a tool."""

    async def sample(text: str, number: int = 1, items: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Stands for any tool."""
        return {"text": text, "number": number, "items": items}

    async def other(day: date | None = None) -> date:
        """Stands for any tool whose types need pydantic."""
        return day or date.min

    for fn in (sample, other):
        tools.tool("", fn, record_of(tool(fn)), None)
    importlib.import_module("tooldock_worker.readings")  # shared, so it costs those who have none nothing


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    light.install()
    _warm()
    gc.collect()
    gc.freeze()
    Zygote(control).run()


if __name__ == "__main__":
    main()
