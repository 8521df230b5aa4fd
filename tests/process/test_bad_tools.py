"""Tools that misbehave: each costs its own call at most, and its own worker at worst."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.gateway import ECHO, Gateway, is_alive, until
from tests.process.evidence import no_strays, recorded, refused, unavailable, undisturbed
from tooldock.engine.secrets import store

pytestmark = pytest.mark.process

KEY = "a-key-for-tests-0123456789"
SECRET = "hunter2-hunter2-hunter2"
LIMIT = 20_000
TIMEOUT = 1.0
LATE = 1.5
"""What an answer may take beyond its deadline, on a machine busy with tests."""

HEAD = """
import asyncio, ctypes, os, subprocess, sys, threading, time
from fastmcp.tools import tool

@tool
async def echo(text: str) -> str:
    return text

"""

RUDE = """
@tool
def fails() -> str:
    raise ValueError("the cupboard is bare")

@tool
async def fails_later() -> str:
    await asyncio.sleep(0)
    raise ValueError("the cupboard is bare")

@tool
def thing():
    return {"thing": object()}

@tool
def nan() -> float:
    return float("nan")

@tool
def leaves() -> str:
    sys.exit(3)

@tool
async def leaves_async() -> str:
    sys.exit(3)

@tool
async def cancels_itself() -> str:
    inner = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    inner.cancel()
    await inner
    return "never"

@tool
def reports() -> object:
    from fastmcp.tools import ToolResult
    return ToolResult(content="the cupboard is bare", is_error=True)

@tool
def complains_at_length() -> str:
    from fastmcp.exceptions import ToolError
    raise ToolError("x" * 20_000_000)
"""

DYING = """
@tool
def gone() -> str:
    os._exit(7)

@tool
async def gone_async() -> str:
    os._exit(7)

@tool
def segfault() -> str:
    ctypes.string_at(0)
    return "alive"

@tool
def scribbles() -> str:
    os.write(3, b"this is not a frame\\n")
    time.sleep(10)
    return "alive"

@tool
def forges() -> str:
    os.write(3, b'{"id":"x","ok":true}\\n')
    time.sleep(10)
    return "alive"

@tool
async def closes() -> str:
    os.closerange(0, 11)
    return "alive"

@tool
def closes_on_a_thread() -> str:
    os.closerange(0, 11)
    return "alive"
"""

LOUD = """
@tool
def shouts() -> str:
    for _ in range(120):
        print("x" * 100_000)
    return "done"

@tool
def logs_too_much() -> str:
    from fastmcp.server.dependencies import get_context
    get_context().sync.info("x" * 20_000_000)
    return "done"
"""

PARENT = """
@tool
def child() -> list[int]:
    return [subprocess.Popen(["sleep", "1000"]).pid]

@tool
def daemon() -> list[int]:
    script = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
    return [int(subprocess.check_output(["sh", "-c", script]))]

@tool
def family() -> list[int]:
    script = "sleep 1000 & echo $$ $!; wait"
    shell = subprocess.Popen(["setsid", "sh", "-c", script], stdout=subprocess.PIPE)
    return [int(pid) for pid in shell.stdout.readline().split()]
"""

STUCK = """
@tool(timeout=1)
def sleeps() -> str:
    time.sleep(1000)

@tool(timeout=1)
async def swallows() -> str:
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

@tool(timeout=1)
async def blocks() -> str:
    time.sleep(1000)

@tool(timeout=1)
async def yields() -> str:
    await asyncio.sleep(1000)

@tool(timeout=1)
async def blocks_for_a_while() -> str:
    with open(os.environ["TOOLDOCK_STATE_DIR"] + "/blocked", "w"):
        time.sleep(1.8)

@tool
async def notes(word: str) -> str:
    with open(os.environ["TOOLDOCK_STATE_DIR"] + "/notes", "a") as file:
        file.write(word + "\\n")
    return word
"""

LARGE = """
@tool
def text(n: int) -> str:
    return "ä" * n

@tool
def numbers(n: int) -> list[int]:
    return list(range(n))
"""

LEAKY = """
@tool
def returns() -> dict[str, str]:
    return {"found": "it is " + os.environ["TOKEN"] + "!"}

@tool
def fails() -> str:
    raise ValueError("cannot log in with " + os.environ["TOKEN"])

@tool
def prints() -> str:
    print("using", os.environ["TOKEN"])
    return "done"
"""

SLOW_TO_FAIL = """
import time
time.sleep(1)
raise RuntimeError("no such luck")
"""


@pytest.fixture(scope="module")
def core(stage: Callable[..., Gateway]) -> Gateway:
    gateway = stage(
        TOOL_CALL_TIMEOUT_SECONDS=f"{TIMEOUT:g}",
        WORKER_GRACE_SECONDS="0.3",
        WORKER_PING_SECONDS="1",
        DRAIN_SECONDS="3",
        MAX_OUTPUT_SIZE=str(LIMIT),
        SECRETS_KEY=KEY,
    )
    gateway.write("calm", "echo.py", ECHO)
    for name, body in {
        "rude": RUDE,
        "dying": DYING,
        "loud": LOUD,
        "parent": PARENT,
        "stuck": STUCK,
        "large": LARGE,
        "leaky": LEAKY,
    }.items():
        gateway.write(name, "tools.py", HEAD + body)
    # Room for the calls that wait for a replacement; the tools that hang ask for less.
    gateway.write("stuck", "tooldock.yaml", "limits: {timeout_seconds: 10}\n")
    store.seal(
        {"namespaces": {"leaky": {"TOKEN": SECRET}}},
        KEY,
        gateway.data / "secrets.enc",
        iterations=store.FEWEST_ITERATIONS,
    )
    gateway.start().settled()
    return gateway


@pytest.fixture(autouse=True)
def _others_go_on(core: Gateway) -> Iterator[None]:
    """Neighbours answer meanwhile, and what a test leaves behind is only what belongs there."""
    with undisturbed(core):
        yield
    no_strays(core)


def timed(core: Gateway, namespace: str, tool: str) -> tuple[httpx.Response, float]:
    began = time.monotonic()
    response = core.call(namespace, tool)
    return response, time.monotonic() - began


def steady(core: Gateway, namespace: str) -> int:
    """The pid of a worker that answers."""
    assert core.value(namespace, "echo", text="a") == "a"
    return core.worker_pid(namespace)


# Tools that fail: the call is lost, the worker is not.


@pytest.mark.parametrize("tool", ["fails", "fails_later"])
def test_raised_message_reaches_the_caller_and_its_traceback_the_log(core: Gateway, tool: str) -> None:
    pid = steady(core, "rude")
    response = core.call("rude", tool)
    error = refused(response, 500, "tool_error")
    assert error["message"] == "ValueError: the cupboard is bare"
    recorded(core, response, "tool_error")
    until("the traceback is in the log", lambda: f"in {tool}" in core.worker_log("rude"))
    assert steady(core, "rude") == pid


@pytest.mark.parametrize(
    ("tool", "word"),
    [
        ("thing", "object"),
        ("nan", "NaN"),
        ("reports", "the cupboard is bare"),
        ("leaves", "SystemExit"),
        ("leaves_async", "SystemExit"),
        ("cancels_itself", "CancelledError"),
    ],
)
def test_result_that_cannot_be_sent_fails_that_call_alone(core: Gateway, tool: str, word: str) -> None:
    pid = steady(core, "rude")
    response = core.call("rude", tool)
    assert word in refused(response, 500, "tool_error")["message"]
    recorded(core, response, "tool_error")
    assert steady(core, "rude") == pid


def test_message_too_long_for_the_pipe_fails_that_call_alone(core: Gateway) -> None:
    pid = steady(core, "rude")
    response = core.call("rude", "complains_at_length")
    refused(response, 500, "tool_error")
    assert len(response.content) < LIMIT * 2
    recorded(core, response, "tool_error")
    assert steady(core, "rude") == pid


# Tools that take their process with them.


@pytest.mark.parametrize(
    "tool", ["gone", "gone_async", "segfault", "scribbles", "forges", "closes", "closes_on_a_thread"]
)
def test_lost_worker_is_said_at_once_and_replaced(core: Gateway, tool: str) -> None:
    pid = steady(core, "dying")
    response, seconds = timed(core, "dying", tool)
    unavailable(response, "worker_lost")
    assert seconds < TIMEOUT
    recorded(core, response, "unavailable")
    assert steady(core, "dying") != pid
    until("the old worker is gone", lambda: not is_alive(pid))


# Tools that print.


def test_megabytes_of_output_keep_the_log_bounded(core: Gateway) -> None:
    pid = steady(core, "loud")
    response = core.call("loud", "shouts")
    assert response.json() == "done"
    recorded(core, response, None)
    logs = core.data / "logs" / "workers"
    sizes = [path.stat().st_size for path in logs.glob("loud.log*")]
    assert 0 < sum(sizes) < 9 << 20
    assert steady(core, "loud") == pid


def test_log_line_too_long_for_the_pipe_costs_nothing(core: Gateway) -> None:
    pid = steady(core, "loud")
    response = core.call("loud", "logs_too_much")
    assert response.json() == "done"
    recorded(core, response, None)
    assert steady(core, "loud") == pid


# Tools that start processes.


@pytest.mark.parametrize("tool", ["child", "daemon", "family"])
def test_processes_of_a_tool_end_with_its_killed_worker(core: Gateway, tool: str) -> None:
    pids = core.value("parent", tool)
    assert all(map(is_alive, pids))
    os.kill(core.worker_pid("parent"), signal.SIGKILL)
    until("they are gone", lambda: not any(map(is_alive, pids)), 3)
    steady(core, "parent")


@pytest.mark.parametrize("tool", ["child", "daemon", "family"])
def test_processes_of_a_tool_end_when_its_worker_is_replaced(core: Gateway, tool: str) -> None:
    pids = core.value("parent", tool)
    file = core.data / "tools" / "parent" / "tools.py"
    file.write_text(file.read_text() + "\n# changed\n")
    assert core.reload()["workers_restarted"] == ["parent"]
    until("they are gone", lambda: not any(map(is_alive, pids)), 5)
    steady(core, "parent")


def test_daemon_of_a_living_worker_survives_the_death_of_another(core: Gateway) -> None:
    (daemon,) = core.value("parent", "daemon")
    victim = steady(core, "dying")
    os.kill(victim, signal.SIGKILL)
    until("the other worker is replaced", lambda: core.worker_pid("dying") != victim)
    steady(core, "dying")
    assert is_alive(daemon)
    os.kill(core.worker_pid("parent"), signal.SIGKILL)
    until("it is gone with its own worker", lambda: not is_alive(daemon), 3)
    steady(core, "parent")


# Tools that do not stop.


@pytest.mark.parametrize("tool", ["sleeps", "swallows", "blocks"])
def test_tool_that_ignores_its_cancellation_loses_its_worker(core: Gateway, tool: str) -> None:
    pid = steady(core, "stuck")
    response, seconds = timed(core, "stuck", tool)
    refused(response, 504, "execution_timeout")
    assert TIMEOUT <= seconds < TIMEOUT + LATE
    recorded(core, response, "execution_timeout")
    until("the stuck worker is gone", lambda: not is_alive(pid), 8)
    assert steady(core, "stuck") != pid


def test_calls_beside_a_stuck_one_are_answered(core: Gateway) -> None:
    """The replacement takes over while the stuck call still sits in the old worker."""
    pid = steady(core, "stuck")
    refused(core.call("stuck", "sleeps"), 504, "execution_timeout")

    def replaced() -> bool:
        assert core.value("stuck", "echo", text="b") == "b"
        return core.worker_pid("stuck") != pid and not is_alive(pid)

    until("the stuck worker is replaced", replaced, 8)


def test_call_that_moved_to_the_replacement_runs_only_there(core: Gateway) -> None:
    """The stuck worker comes to itself before it is ended, with calls in its socket that were given to another."""
    pid = steady(core, "stuck")
    state = core.data / "state" / "ns" / "stuck"
    (state / "blocked").unlink(missing_ok=True)
    words = [f"word-{number}" for number in range(8)]
    with ThreadPoolExecutor(9) as callers:
        blocked = callers.submit(core.call, "stuck", "blocks_for_a_while")
        until("the loop is blocked", (state / "blocked").exists)
        answers = list(callers.map(lambda word: core.value("stuck", "notes", word=word), words))
    assert answers == words
    refused(blocked.result(), 504, "execution_timeout")
    until("the stuck worker is gone", lambda: not is_alive(pid), 8)
    assert sorted((state / "notes").read_text().split()) == words


def test_tool_that_yields_keeps_its_worker(core: Gateway) -> None:
    pid = steady(core, "stuck")
    response, seconds = timed(core, "stuck", "yields")
    refused(response, 504, "execution_timeout")
    assert TIMEOUT <= seconds < TIMEOUT + LATE
    assert steady(core, "stuck") == pid


# Tools that answer too much.


def test_long_text_is_cut_with_a_marker(core: Gateway) -> None:
    response = core.call("large", "text", n=50_000)
    text = response.json()
    assert text.startswith("ä" * 9_999)
    assert text.endswith(f"[cut: the first {LIMIT:,} of 100,000 bytes are shown]")
    assert recorded(core, response, None)["stdout_trunc"] == 100_000 - LIMIT


def test_large_json_is_shown_as_the_beginning_of_its_text(core: Gateway) -> None:
    response = core.call("large", "numbers", n=100_000)
    answer = response.json()
    total = sum(len(str(n)) for n in range(100_000)) + 99_999 + 2
    assert {key: answer[key] for key in ("truncated", "shown_bytes", "total_bytes")} == {
        "truncated": True,
        "shown_bytes": LIMIT,
        "total_bytes": total,
    }
    assert answer["text"].startswith("[0,1,2,3")
    assert recorded(core, response, None)["stdout_trunc"] == total - LIMIT


def test_result_of_exactly_the_limit_is_whole(core: Gateway) -> None:
    assert core.value("large", "text", n=LIMIT // 2) == "ä" * (LIMIT // 2)


# Tools that leak.


def test_secret_is_removed_from_a_result(core: Gateway) -> None:
    response = core.call("leaky", "returns")
    assert response.status_code == 200
    assert SECRET not in response.text
    assert response.json()["found"].startswith("it is ")
    recorded(core, response, None)


def test_secret_is_removed_from_an_error(core: Gateway) -> None:
    response = core.call("leaky", "fails")
    assert "cannot log in" in refused(response, 500, "tool_error")["message"]
    assert SECRET not in response.text
    recorded(core, response, "tool_error")
    until("the traceback is in the log", lambda: "cannot log in" in core.worker_log("leaky"))
    assert SECRET not in core.worker_log("leaky")


def test_secret_is_removed_from_the_log(core: Gateway) -> None:
    core.value("leaky", "prints")
    until("the line is in the log", lambda: "using" in core.worker_log("leaky"))
    assert SECRET not in core.worker_log("leaky")
    assert SECRET not in core.log.read_text()


# Files that fail late.


def test_file_that_raises_after_a_while_fails_alone(core: Gateway) -> None:
    core.write("late", "tools.py", SLOW_TO_FAIL)
    done = core.reload()
    assert "no such luck" in done["errors"]["late"]
    row = core.namespaces()["late"]
    assert (row["status"], row["error_file"], row["error_line"]) == ("failed", "tools.py", 4)
    response = core.call("late", "anything")
    assert "no such luck" in refused(response, 500, "dependency_error")["message"]
    recorded(core, response, "dependency_error")
