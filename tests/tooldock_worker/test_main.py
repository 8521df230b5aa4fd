"""`python -m tooldock_worker` as a process: how it starts, what it hides from tools, how it ends."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import is_alive, until
from tooldock_worker.__main__ import EXIT_NOT_LOADED, main

pytestmark = pytest.mark.process

TOOLS = """
import os, sys, time
from fastmcp.tools import tool

print("imported", flush=True)

@tool
async def echo(text: str) -> str:
    return text

@tool
def environment(name: str) -> str | None:
    return os.environ.get(name)

@tool
def forever() -> None:
    while True:
        time.sleep(60)
"""


class Process:
    """A worker and its socket."""

    def __init__(self, popen: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self.popen = popen
        self.sock = sock
        self._file = sock.makefile("rb")

    def send(self, **frame: Any) -> None:
        self.sock.sendall(json.dumps(frame).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self._file.readline())
        return frame

    def close(self) -> None:
        self._file.close()
        self.sock.close()


Starter = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    made: list[Process] = []

    def run(text: str = TOOLS, *options: str, fds: tuple[int, ...] = (), env: dict[str, str] | None = None) -> Process:
        folder = tmp_path / "ns"
        folder.mkdir(exist_ok=True)
        (folder / "tools.py").write_text(text)
        ours, theirs = socket.socketpair()
        ours.settimeout(20)
        with theirs:
            popen = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tooldock_worker",
                    "--namespace",
                    "math",
                    "--folder",
                    str(folder),
                    "--fd",
                    str(theirs.fileno()),
                    *options,
                ],
                pass_fds=[theirs.fileno(), *fds],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        made.append(Process(popen, ours))
        return made[-1]

    yield run
    for one in made:
        with contextlib.suppress(ProcessLookupError):
            one.popen.kill()
        one.popen.communicate()
        one.close()


def test_it_announces_its_tools_serves_and_leaves_when_told(start: Starter) -> None:
    worker = start()
    ready = worker.receive()
    assert [tool["name"] for tool in ready["tools"]] == ["echo", "environment", "forever"]
    worker.send(id="1", op="tools.call", tool="echo", arguments={"text": "hi"})
    assert worker.receive()["result"] == "hi"
    worker.send(id="2", op="shutdown")
    assert worker.receive()["result"] is True
    out, err = worker.popen.communicate(timeout=20)
    assert worker.popen.returncode == 0
    assert out == b""
    assert b"imported" in err


def test_the_path_to_its_own_package_does_not_reach_what_tools_start(start: Starter) -> None:
    worker = start(env={"PYTHONPATH": os.pathsep.join(sys.path), "OWN": "kept"})
    worker.receive()
    for number, name in enumerate(("PYTHONPATH", "OWN"), start=1):
        worker.send(id=str(number), op="tools.call", tool="environment", arguments={"name": name})
    assert {worker.receive()["result"] for _ in range(2)} == {None, "kept"}


def test_the_call_taken_up_last_is_noted_in_the_shared_memory(start: Starter) -> None:
    shared = os.memfd_create("begun")
    os.ftruncate(shared, 16)
    worker = start(TOOLS, "--begun-fd", str(shared), fds=(shared,))
    worker.receive()
    worker.send(id="41", op="tools.call", tool="echo", arguments={"text": "hi"})
    worker.receive()
    with mmap.mmap(shared, 16) as memory:
        assert int.from_bytes(memory[:8], sys.byteorder) == 41
    os.close(shared)


def test_files_that_cannot_be_loaded_are_reported_with_file_and_line(start: Starter) -> None:
    worker = start("x = 1\ny = = 2\n")
    failed = worker.receive()
    assert failed["op"] == "failed"
    assert failed["error"]["code"] == "dependency_error"
    assert (failed["error"]["details"]["file"], failed["error"]["details"]["line"]) == ("tools.py", 2)
    worker.popen.communicate(timeout=20)
    assert worker.popen.returncode == EXIT_NOT_LOADED


def test_a_folder_with_more_to_say_of_itself_than_a_line_may_hold_is_reported(start: Starter) -> None:
    worker = start(
        f"from fastmcp.tools import tool\n@tool(description='{'x' * 5000}')\ndef f(): ...", "--max-frame", "4096"
    )
    failed = worker.receive()
    assert failed["op"] == "failed"
    assert "4,096" in failed["error"]["message"]
    worker.popen.communicate(timeout=20)
    assert worker.popen.returncode == EXIT_NOT_LOADED


def test_when_the_gateway_is_gone_it_ends_whatever_its_tools_do(start: Starter) -> None:
    worker = start()
    worker.receive()
    worker.send(id="1", op="tools.call", tool="forever", arguments={})
    worker.send(id="2", op="ping")
    assert worker.receive()["result"] == "pong"
    worker.close()
    worker.popen.communicate(timeout=20)
    assert worker.popen.returncode == 0


def test_told_to_shut_down_it_does_not_wait_for_a_tool_that_never_returns(start: Starter) -> None:
    worker = start("import atexit, sys\natexit.register(lambda: print('bye', file=sys.stderr))\n" + TOOLS)
    worker.receive()
    worker.send(id="1", op="tools.call", tool="forever", arguments={})
    worker.send(id="2", op="shutdown")
    _, err = worker.popen.communicate(timeout=20)
    assert worker.popen.returncode == 0
    assert b"bye" in err


def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Its socket stays open in the test, so only the death of its parent can end it."""
    (tmp_path / "tools.py").write_text(TOOLS)
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    parent = (
        "import os, subprocess, sys\n"
        "fd, folder = sys.argv[1:]\n"
        "child = subprocess.Popen([sys.executable, '-m', 'tooldock_worker', '--namespace', 'math', '--folder', folder,"
        " '--fd', fd, '--die-with-parent', str(os.getpid())], pass_fds=[int(fd)])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with ours, theirs:
        popen = subprocess.Popen(
            [sys.executable, "-c", parent, str(theirs.fileno()), str(tmp_path)],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert popen.stdout is not None
        pid = int(popen.stdout.readline())
        assert json.loads(ours.makefile("rb").readline())["op"] == "ready"
        assert is_alive(pid)
        popen.kill()
        popen.communicate()
        until("the worker is gone", lambda: not is_alive(pid))


def test_one_whose_parent_went_before_it_asked_ends_at_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tooldock_worker",
            "--namespace",
            "math",
            "--folder",
            str(tmp_path),
            "--fd",
            "0",
            "--die-with-parent",
            "1",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0


def test_by_hand_it_listens_on_a_private_path_and_serves_the_first_who_comes(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    path = tmp_path / "socket"
    popen = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tooldock_worker",
            "--namespace",
            "math",
            "--folder",
            str(tmp_path),
            "--socket",
            str(path),
        ],
        stderr=subprocess.DEVNULL,
    )
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)

        def connected() -> bool:
            with contextlib.suppress(OSError):
                sock.connect(str(path))
                return True
            return False

        until("it listens", connected, 20)
        worker = Process(popen, sock)
        assert worker.receive()["op"] == "ready"
        assert not path.exists()
        worker.send(id="1", op="shutdown")
        assert popen.wait(20) == 0
        worker.close()


def test_a_tool_that_closed_its_streams_does_not_keep_the_process_from_ending(start: Starter) -> None:
    worker = start("import sys\nsys.stderr.close()\n" + TOOLS.replace('print("imported", flush=True)', ""))
    assert worker.receive()["op"] == "ready"
    worker.send(id="1", op="shutdown")
    worker.popen.communicate(timeout=20)
    assert worker.popen.returncode == 0


def test_a_folder_that_does_not_load_is_no_reason_to_fail_when_nobody_listens(tmp_path: Path) -> None:
    """In a fork of this process, because loading changes what Python can import."""
    (tmp_path / "tools.py").write_text("1 / 0")
    ours, theirs = socket.socketpair()
    ours.close()
    pid = os.fork()
    if pid == 0:
        code = 99
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = main(["--namespace", "math", "--folder", str(tmp_path), "--fd", str(theirs.fileno())])
        os._exit(code)
    theirs.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == EXIT_NOT_LOADED


def test_a_signal_ends_it_like_any_process(start: Starter) -> None:
    worker = start()
    worker.receive()
    began = time.monotonic()
    worker.popen.send_signal(signal.SIGTERM)
    worker.popen.communicate(timeout=20)
    assert worker.popen.returncode == -signal.SIGTERM
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--namespace and --folder are needed"),
        (["--namespace", "math", "--folder", "/"], "exactly one of --fd and --socket"),
        (["--namespace=math", "--folder=/", "--fd=3", "--socket=x"], "exactly one of --fd and --socket"),
        (["--namespace"], "--namespace needs a value"),
        (["--fd", "three"], "--fd needs a number"),
        (["--dance"], "there is no option --dance"),
        (["math"], "there is no option math"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(options)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for option in ("--fd", "--socket", "--namespace", "--folder", "--threads", "--max-output", "--max-frame"):
        assert option in out
