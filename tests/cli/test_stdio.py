"""`tooldock stdio` as clients start it: a process of its own, messages on its standard output and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.terminal import Terminal
from tests.gateway import ECHO, Gateway, descendants, is_alive, until

pytestmark = pytest.mark.process

SECONDS = 60.0

TALKER = """
import asyncio, os, subprocess, sys
from pydantic import BaseModel
from fastmcp import Context
from fastmcp.tools import tool

print("printed while loading")

class Answer(BaseModel):
    sure: bool

@tool
async def noisy() -> str:
    print("printed by a tool")
    os.write(1, b"written by a tool\\n")
    subprocess.run(["echo", "said by a child"])
    return "quiet"

@tool
async def greedy() -> str:
    return f"read {sys.stdin.read()!r}"

@tool
async def sleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"

@tool
async def confirm(ctx: Context) -> str:
    answer = await ctx.elicit("Sure?", Answer)
    return answer.action
"""


class Pipe:
    """One `tooldock stdio`, and the side of a client."""

    def __init__(self, data: Path, venvs: Path, namespace: str = "shared", **environ: str) -> None:
        clean = {name: value for name, value in os.environ.items() if name not in ("DATA_DIR", "HOST")}
        self.environ = {**clean, "VENVS_DIR": str(venvs), "LOG_FORMAT": "json", **environ}
        self.arguments = ["stdio", "--namespace", namespace, "--data-dir", str(data)]
        self.errors = data / "stdio.err"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tooldock", *self.arguments],
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        self._buffer = b""

    def send(self, *messages: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def receive(self) -> Any:
        """The next line of its standard output, which must be a message."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + SECONDS
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], deadline - time.monotonic())
            chunk = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                raise AssertionError(f"no message; it said:\n{self.errors.read_text()[-3000:]}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.receive()

    def handshake(self) -> None:
        info = {"name": "test", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        answer = self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments}
        answer = self.ask({"jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": params})
        assert answer["id"] == tool
        return answer["result"]["content"][0]["text"]

    def end(self) -> int:
        """Close its input, as a client does that is done; what it still wrote must be messages."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        assert self.process.stdout is not None
        rest = self._buffer + self.process.stdout.read()
        for line in rest.splitlines():
            json.loads(line)
        return self.process.wait(SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


Start = Callable[..., Pipe]


def write(data: Path, namespace: str, text: str, file: str = "tools.py") -> Path:
    path = data / "tools" / namespace / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), "utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    write(path, "shared", ECHO)
    return path


@pytest.fixture
def start(data: Path, venvs: Path) -> Iterator[Start]:
    started: list[Pipe] = []

    def run(namespace: str = "shared", **environ: str) -> Pipe:
        started.append(Pipe(data, venvs, namespace, **environ))
        return started[-1]

    yield run
    for pipe in started:
        pipe.close()


def leftovers(data: Path) -> list[str]:
    return [path.name for path in (data / "state" / "run").iterdir() if path.name.startswith("stdio")]


def test_a_tool_is_called_and_the_process_ends_with_its_input_and_leaves_nothing(start: Start, data: Path) -> None:
    pipe = start()
    pipe.handshake()
    assert pipe.call("echo", text="hello") == "hello"
    assert len(leftovers(data)) == 1
    children = descendants(pipe.process.pid)
    assert children
    assert pipe.end() == 0
    assert leftovers(data) == []
    until("its processes are gone", lambda: not any(map(is_alive, children)))
    (audit,) = (data / "logs").glob(f"*.stdio-{pipe.process.pid}.jsonl")
    assert json.loads(audit.read_bytes())["protocol"] == "mcp/2025-11-25"


def test_g60_nothing_but_messages_reaches_standard_output(start: Start, data: Path, tmp_path: Path) -> None:
    write(data, "shared", TALKER)
    site = tmp_path / "site"
    site.mkdir()
    # A library within our own process that prints, also at the very end.
    (site / "sitecustomize.py").write_text("import atexit\natexit.register(print, 'a stray line', flush=True)\n")
    pipe = start(PYTHONPATH=str(site), LOG_LEVEL="debug")
    pipe.handshake()
    assert pipe.call("noisy") == "quiet"
    assert pipe.end() == 0
    assert "a stray line" in pipe.errors.read_text()


def test_g60_a_tool_cannot_take_messages_from_the_pipe(start: Start, data: Path) -> None:
    write(data, "shared", TALKER)
    pipe = start()
    pipe.handshake()
    assert pipe.call("greedy") == "read ''"
    assert pipe.call("noisy") == "quiet"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_g60_a_signal_ends_it_in_order(start: Start, data: Path, number: int) -> None:
    pipe = start()
    pipe.handshake()
    children = descendants(pipe.process.pid)
    pipe.process.send_signal(number)
    assert pipe.wait() == 0
    assert leftovers(data) == []
    until("its processes are gone", lambda: not any(map(is_alive, children)))


def test_a_call_that_runs_when_the_input_ends_may_finish(start: Start, data: Path) -> None:
    write(data, "shared", TALKER)
    pipe = start()
    pipe.handshake()
    params = {"name": "sleep", "arguments": {"seconds": 0.3}}
    pipe.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert pipe.process.stdin is not None
    pipe.process.stdin.close()
    assert pipe.receive()["result"]["content"][0]["text"] == "awake"
    assert pipe.wait() == 0


def test_a_second_signal_does_not_wait_for_calls(start: Start, data: Path) -> None:
    write(data, "shared", TALKER)
    pipe = start(DRAIN_SECONDS="3600")
    pipe.handshake()
    params = {"name": "sleep", "arguments": {"seconds": 3600}, "_meta": {"progressToken": 1}}
    pipe.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert pipe.call("noisy") == "quiet"
    began = time.monotonic()
    pipe.process.send_signal(signal.SIGTERM)
    until("it has heard the first", lambda: _no_longer_reads(pipe))
    pipe.process.send_signal(signal.SIGTERM)
    assert pipe.wait() == 0
    assert time.monotonic() - began < 4.5


def _no_longer_reads(pipe: Pipe) -> bool:
    """A pipe whose other side has stopped reading keeps what is written to it."""
    import termios

    assert pipe.process.stdin is not None
    with contextlib.suppress(OSError):
        pipe.process.stdin.write(b"\n")
    size = bytearray(4)
    fcntl.ioctl(pipe.process.stdin, termios.FIONREAD, size)
    return int.from_bytes(size, sys.byteorder) > 1


def test_killing_it_leaves_no_worker_behind_and_the_next_one_clears_up(start: Start, data: Path) -> None:
    pipe = start()
    pipe.handshake()
    assert pipe.call("echo", text="a") == "a"
    children = descendants(pipe.process.pid)
    pipe.process.kill()
    pipe.process.wait()
    until("its processes are gone", lambda: not any(map(is_alive, children)))
    assert leftovers(data) == [f"stdio-{pipe.process.pid}"]
    following = start()
    following.handshake()
    assert leftovers(data) == [f"stdio-{following.process.pid}"]
    following.process.send_signal(signal.SIGTERM)
    assert following.wait() == 0


@pytest.mark.parametrize("stream", ["file", "null"])
def test_input_may_be_a_file(data: Path, venvs: Path, tmp_path: Path, stream: str) -> None:
    source = tmp_path / "lines"
    source.write_text(
        '{"method": "list_tools"}\n{"method": "call_tool", "name": "echo", "args": {"text": "x"}, "id": 1}'
    )
    with open(source if stream == "file" else os.devnull, "rb") as lines:
        done = subprocess.run(
            [sys.executable, "-m", "tooldock", "stdio", "--namespace", "shared", "--data-dir", str(data)],
            env={**os.environ, "VENVS_DIR": str(venvs)},
            stdin=lines,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == ([True, True] if stream == "file" else [])


def problem(pipe: Pipe) -> str:
    """What a process that could not start said: one line, and no message."""
    assert pipe.process.stdout is not None
    assert pipe.process.stdout.read() == b""
    assert pipe.process.wait(SECONDS) != 0
    lines = [line for line in pipe.errors.read_text().splitlines() if not line.startswith("{")]
    (line,) = lines
    return line


def test_a_namespace_that_is_not_there_is_refused_with_those_that_are(start: Start, data: Path) -> None:
    write(data, "another", ECHO)
    line = problem(start("nope"))
    assert "'nope'" in line
    assert "another, shared" in line


def by_hand(data: Path, venvs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As a person or a client without settings of its own runs it, with nothing to say to it."""
    names = ("DATA_DIR", "HOST", "LOG_FORMAT", "LOG_LEVEL")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        [sys.executable, "-m", "tooldock", "stdio", *words, "--data-dir", str(data)],
        env={**clean, "VENVS_DIR": str(venvs)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_a_misspelt_namespace_is_told_the_nearest(data: Path, venvs: Path) -> None:
    done = by_hand(data, venvs, "shard")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"Error: There is no namespace 'shard' in {data / 'tools'}. Did you mean 'shared'? Choose one of: shared."
    ]


def test_a_missing_data_directory_is_named_as_such_and_not_made(venvs: Path, tmp_path: Path) -> None:
    done = by_hand(tmp_path / "nowhere", venvs, "--namespace", "shared")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: There is no data directory {tmp_path / 'nowhere'}.")
    assert "--data-dir" in line
    assert not (tmp_path / "nowhere").exists()


def test_the_namespace_may_be_given_bare_and_has_to_be_given(data: Path, venvs: Path) -> None:
    assert by_hand(data, venvs, "shared").returncode == 0
    missing = by_hand(data, venvs)
    assert missing.returncode == 2
    assert "Which namespace?" in missing.stderr
    assert by_hand(data, venvs, "shared", "--namespace", "other").returncode == 2


def test_a_start_that_fails_is_one_line_where_nobody_asked_for_a_log(data: Path, venvs: Path) -> None:
    write(data, "broken", "def nonsense(:\n")
    done = by_hand(data, venvs, "broken")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "tools.py" in line


def test_serving_an_older_version_is_said_in_words(data: Path, venvs: Path) -> None:
    assert by_hand(data, venvs, "shared").returncode == 0
    write(data, "shared", "def nonsense(:\n")
    done = by_hand(data, venvs, "shared")
    assert done.returncode == 0
    assert "shared: invalid syntax" in done.stderr
    assert "The last version that worked is served." in done.stderr
    assert '"namespace_not_loaded"' not in done.stderr


def test_in_a_terminal_it_says_what_it_is_and_ctrl_d_ends_it(data: Path, venvs: Path) -> None:
    terminal = Terminal(
        "-m", "tooldock", "stdio", "shared", "--data-dir", str(data),
        environ={**os.environ, "VENVS_DIR": str(venvs)}, columns=300,
    )  # fmt: skip
    try:
        said = terminal.read_until("what it is", lambda text: "Ctrl-D ends it." in text)
        assert "tooldock client-config shared --client claude --transport stdio" in said
        terminal.press(b'{"method": "list_tools"}\n')
        terminal.read_until("an answer", lambda text: '"ok":true' in text)
        terminal.press(b"\x04")
        terminal.read_all(20)
        assert terminal.process.returncode == 0
    finally:
        terminal.close()


def reloaded(data: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tooldock", "reload", "--data-dir", str(data)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_reload_tells_the_processes_clients_started(start: Start, data: Path) -> None:
    pipes = [start(), start()]
    for pipe in pipes:
        pipe.handshake()
    write(data, "shared", ECHO.replace("async def echo", "async def shout"))
    done = reloaded(data)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "No gateway runs here. Told 2 stdio servers that clients started to look as well.\n"
    for pipe in pipes:
        assert pipe.receive()["method"] == "notifications/tools/list_changed"
        assert pipe.call("shout", text="y") == "y"


def test_reload_signals_no_process_that_only_has_the_number(data: Path) -> None:
    """A run directory left by a process that was killed, whose number now belongs to another."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            run = data / "state" / "run" / f"stdio-{stranger.pid}"
            run.mkdir(parents=True)
            (run / "lock").write_text(str(stranger.pid))
            (run / f"{run.name}.json").write_text(json.dumps({"pid": stranger.pid, "url": ""}))
            done = reloaded(data)
            assert done.returncode == 3
            assert "not running" in done.stderr
            assert stranger.poll() is None
            # As seen from outside a container: the lock is held, by somebody who has another number here.
            with (run / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                assert reloaded(data).returncode == 3
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_namespace_that_does_not_load_is_refused_with_the_reason(start: Start, data: Path) -> None:
    write(data, "broken", "def nonsense(:\n")
    line = problem(start("broken"))
    assert "broken" in line
    assert "tools.py" in line


def test_a_namespace_that_is_switched_off_is_refused(start: Start, data: Path) -> None:
    write(data, "shared", "enabled: false\n", "tooldock.yaml")
    assert "enabled" in problem(start())


def test_a_namespace_that_broke_since_is_served_as_it_last_worked(start: Start, data: Path) -> None:
    pipe = start()
    pipe.handshake()
    assert pipe.end() == 0
    write(data, "shared", "def nonsense(:\n")
    pipe = start()
    pipe.handshake()
    assert pipe.call("echo", text="still here") == "still here"


def test_it_runs_beside_a_core_and_touches_no_other_namespace(
    start: Start, data: Path, gateway: Callable[..., Gateway], venvs: Path
) -> None:
    core = gateway()
    core.data = data
    core.log = data / "core.log"
    write(data, "other", ECHO)
    write(data, "bad", "def nonsense(:\n")
    core.start()
    core.settled()
    known = data / "state" / "catalogue" / "other.json"
    assert known.exists()
    pipe = start()
    pipe.handshake()
    assert pipe.call("echo", text="one") == "one"
    assert core.value("shared", "echo", text="two") == "two"
    (run,) = (data / "state" / "run").glob("stdio-*")
    assert [path.name for path in (run / "scratch").iterdir()] == ["shared"]
    assert pipe.end() == 0
    assert known.exists()
    assert core.value("other", "echo", text="three") == "three"


def test_a_hangup_signal_reads_the_folder_again_and_the_client_is_told(start: Start, data: Path) -> None:
    pipe = start()
    pipe.handshake()
    assert pipe.call("echo", text="x") == "x"
    write(data, "shared", ECHO.replace("async def echo", "async def shout"))
    pipe.process.send_signal(signal.SIGHUP)
    assert pipe.receive()["method"] == "notifications/tools/list_changed"
    assert pipe.call("shout", text="y") == "y"


def test_the_handshake_does_not_wait_for_a_worker_when_the_tools_are_known(start: Start, data: Path) -> None:
    gate = data / "gate"
    gate.touch()
    blocked = f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.01)\n"
    write(data, "shared", blocked + ECHO)
    pipe = start()
    pipe.handshake()
    assert pipe.end() == 0
    gate.unlink()
    pipe = start()
    pipe.handshake()
    listed = pipe.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["echo"]
    gate.touch()
    assert pipe.call("echo", text="at last") == "at last"


def test_closed_standard_streams_are_said_plainly(data: Path, venvs: Path) -> None:
    command = f"exec {sys.executable} -m tooldock stdio --namespace shared --data-dir {data} <&-"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "VENVS_DIR": str(venvs)},
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert b"Standard input or output is closed" in done.stderr


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_g61_the_official_client_lists_calls_and_answers_questions(
    data: Path, venvs: Path, mode: Any, version: str
) -> None:
    from mcp_types import ElicitRequestParams, ElicitResult

    async def agree(context: Any, params: ElicitRequestParams) -> ElicitResult:
        assert params.message == "Sure?"
        return ElicitResult(action="accept", content={"sure": True})

    write(data, "shared", TALKER)
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tooldock", "stdio", "--namespace", "shared", "--data-dir", str(data)],
        env={**os.environ, "VENVS_DIR": str(venvs)},  # the client would pass on too little to build one
    )
    async with asyncio.timeout(SECONDS):
        async with Client(stdio_client(parameters), mode=mode, elicitation_callback=agree) as client:
            assert client.protocol_version == version
            listed = await client.list_tools()
            assert {tool.name for tool in listed.tools} == {"noisy", "greedy", "sleep", "confirm"}
            result = await client.call_tool("noisy", {})
            assert result.content[0].text == "quiet"  # type: ignore[union-attr]
            result = await client.call_tool("confirm", {})
            assert result.content[0].text == "accept"  # type: ignore[union-attr]
    until("it cleaned up", lambda: not leftovers(data))
