"""The warm parent as a process, with the gateway's end of its control socket in the test's hands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import is_alive, until
from tooldock_worker import zygote as zygote_module

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="forking from a warm parent is done on Linux only"),
]

SHELL = "/bin/sh"


class Zygote:
    """The process, and what it said."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(20)
        with theirs:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "tooldock_worker.zygote", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self.receive() == {"op": "warm"}
        self._last = 0

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.control.recv(1 << 16))
        return message

    def start(self, argv: list[str], output: int, fds: dict[int, int] | None = None, **changes: Any) -> int:
        self._last += 1
        fds = fds or {}
        message = {
            "op": "start",
            "id": self._last,
            "name": "math",
            "argv": argv,
            "fork": False,
            "env": {"PATH": os.environ["PATH"]},
            "cwd": "/",
            "fds": [1, 2, *fds],
        } | changes
        socket.send_fds(self.control, [json.dumps(message).encode()], [output, output, *fds.values()])
        started = self.receive()
        assert (started["op"], started["id"]) == ("started", self._last)
        pid: int = started["pid"]
        return pid

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        self.control.send(json.dumps({"op": "kill", "pid": pid, "signal": number}).encode())

    def exited(self) -> tuple[int, int]:
        message = self.receive()
        assert message["op"] == "exited"
        return message["pid"], message["status"]

    def close(self) -> None:
        self.control.close()
        try:
            self.popen.wait(20)
        finally:
            if self.popen.poll() is None:
                self.popen.kill()
                self.popen.wait()


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def output() -> Iterator[Callable[[], tuple[int, Any]]]:
    """`write_end, reader`: the reader ends when the last writer is gone."""
    opened: list[Any] = []

    def make() -> tuple[int, Any]:
        read, write = os.pipe()
        opened.extend([os.fdopen(read, "rb"), os.fdopen(write, "wb")])
        return write, opened[-2]

    yield make
    for file in opened:
        file.close()


Pipe = Callable[[], tuple[int, Any]]


def test_a_command_runs_with_the_given_environment_directory_and_descriptors_and_no_others(
    zygote: Zygote, output: Pipe, tmp_path: Path
) -> None:
    write, read = output()
    extra = os.open(tmp_path, os.O_RDONLY)
    script = "env; pwd; umask; ls /proc/self/fd; readlink /proc/self/fd/0 /proc/self/fd/3; echo done >&2"
    pid = zygote.start([SHELL, "-c", script], write, {3: extra}, env={"ONLY": "this"}, cwd=str(tmp_path))
    os.close(extra)
    assert zygote.exited() == (pid, 0)
    os.set_blocking(read.fileno(), False)
    said = read.read().decode().split("\n")
    assert "ONLY=this" in said
    assert f"TOOLDOCK_WORKER={pid}" in said
    assert not [line for line in said if line.startswith(("HOME=", "COVERAGE"))]
    assert str(tmp_path) in said
    assert "0077" in said
    assert [line for line in said if line.isdigit() and len(line) == 1] == ["0", "1", "2", "3", "4"]  # 4: ls itself
    assert "/dev/null" in said
    assert "done" in said


def test_a_worker_is_forked_and_serves(zygote: Zygote, output: Pipe, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "import os\nfrom fastmcp.tools import tool\n"
        "@tool\ndef who() -> list[int]:\n    return [os.getpid(), os.getppid()]\n"
    )
    write, _ = output()
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    argv = [sys.executable, "-m", "tooldock_worker", "--namespace", "math", "--folder", str(tmp_path), "--fd", "3"]
    pid = zygote.start(argv, write, {3: theirs.fileno()}, fork=True)
    theirs.close()
    with ours, ours.makefile("rb") as frames:
        assert json.loads(frames.readline())["op"] == "ready"
        assert Path(f"/proc/{pid}/comm").read_text() == "td:math\n"
        ours.sendall(b'{"id":"1","op":"tools.call","tool":"who","arguments":{}}\n')
        assert json.loads(frames.readline())["result"] == [pid, zygote.popen.pid]
        ours.sendall(b'{"id":"2","op":"shutdown"}\n')
        assert zygote.exited() == (pid, 0)


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9)])
def test_how_a_child_ended_is_told(zygote: Zygote, output: Pipe, script: str, status: int) -> None:
    write, _ = output()
    pid = zygote.start([SHELL, "-c", script], write)
    assert zygote.exited() == (pid, status)


@pytest.mark.parametrize("changes", [{"argv": ["/nowhere/python"]}, {"cwd": "/nowhere"}])
def test_what_cannot_be_started_ends_with_its_reason_in_the_log(
    zygote: Zygote, output: Pipe, changes: dict[str, Any]
) -> None:
    write, read = output()
    pid = zygote.start(changes.pop("argv", [SHELL, "-c", "true"]), write, **changes)
    assert zygote.exited() == (pid, 126)
    os.set_blocking(read.fileno(), False)
    assert b"FileNotFoundError" in read.read()


def test_a_signal_goes_to_the_whole_group_and_only_to_children(zygote: Zygote, output: Pipe) -> None:
    write, read = output()
    pid = zygote.start([SHELL, "-c", "sleep 600 & echo $!; wait"], write)
    child = int(read.readline())
    zygote.kill(os.getpid())  # not one of its children: must do nothing
    zygote.kill(pid, signal.SIGTERM)
    assert zygote.exited() == (pid, -signal.SIGTERM)
    until("the group is gone", lambda: not is_alive(child))
    zygote.kill(pid)  # gone by now: must do nothing


def test_what_a_dead_child_left_behind_is_swept_even_from_another_session(zygote: Zygote, output: Pipe) -> None:
    write, read = output()
    pid = zygote.start([SHELL, "-c", "setsid sleep 600 & sleep 600 & echo $!; wait"], write)
    grouped = int(read.readline())
    stray = until("the stray runs", lambda: next(iter(sorted(_children(pid) - {grouped})), None))
    os.kill(pid, signal.SIGKILL)
    assert zygote.exited() == (pid, -signal.SIGKILL)
    until("both are gone", lambda: not is_alive(stray) and not is_alive(grouped))


def test_a_daemon_of_a_living_child_survives_the_death_of_another(zygote: Zygote, output: Pipe) -> None:
    write, read = output()
    living = zygote.start([SHELL, "-c", "(setsid sleep 600 & echo $!); exec sleep 600"], write)
    daemon = int(read.readline())
    until("it is adopted", lambda: daemon in _children(zygote.popen.pid))
    dying = zygote.start([SHELL, "-c", "exit 0"], write)
    assert zygote.exited() == (dying, 0)
    last = zygote.start([SHELL, "-c", "exit 0"], write)  # its end shows that the sweep after the first is over
    assert zygote.exited() == (last, 0)
    assert is_alive(daemon)
    zygote.kill(living)
    assert zygote.exited()[0] == living
    until("the daemon goes with its own", lambda: not is_alive(daemon))


def test_a_stray_of_another_user_is_left_and_does_not_end_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root can make such a process, so the kernel's refusal is played."""

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refused)
    monkeypatch.setattr(zygote_module, "_children", lambda: [4_000_000])
    parent = zygote_module.Zygote(socket.socket())
    with parent._control:
        parent._sweep()
    os.close(parent._wake_read)
    os.close(parent._wake_write)


def test_when_the_gateway_is_gone_so_is_everything(zygote: Zygote, output: Pipe) -> None:
    write, read = output()
    pid = zygote.start([SHELL, "-c", "trap '' TERM; (trap '' TERM; setsid sleep 600) & echo $$; wait"], write)
    read.readline()
    everything = {pid, *until("the stray runs", lambda: _children(pid) or None)}
    zygote.control.close()
    assert zygote.popen.wait(20) == 0
    until("nothing is left", lambda: not any(map(is_alive, everything)))


def test_when_it_is_killed_itself_its_children_go_too(zygote: Zygote, output: Pipe) -> None:
    write, _ = output()
    pid = zygote.start(["/bin/sleep", "600"], write)
    zygote.popen.kill()
    zygote.popen.wait()
    until("the child is gone", lambda: not is_alive(pid))


def test_it_does_not_end_by_the_signals_a_terminal_sends(zygote: Zygote, output: Pipe) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(zygote.popen.pid, number)
    write, _ = output()
    pid = zygote.start([SHELL, "-c", "kill -TERM $$"], write)
    assert zygote.exited() == (pid, -signal.SIGTERM)


def test_many_starts_leave_no_descriptors_open(zygote: Zygote, output: Pipe) -> None:
    write, _ = output()
    place = Path(f"/proc/{zygote.popen.pid}/fd")
    before = len(list(place.iterdir()))
    for _ in range(10):
        zygote.start([SHELL, "-c", "exit 0"], write)
        zygote.exited()
    # Having told of the last end, it may still be looking through its children.
    until("no descriptor is left open", lambda: len(list(place.iterdir())) == before)


def _children(pid: int) -> set[int]:
    with contextlib.suppress(OSError):
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    return set()
