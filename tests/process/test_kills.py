"""Processes that are killed or told to go, under load: nothing hangs, nothing is left, nothing goes unrecorded."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from tests.gateway import ECHO, Gateway, descendants, is_alive, until
from tests.process.evidence import children, no_strays, undisturbed

pytestmark = pytest.mark.process

CLIENTS = 8
KILLS = 4
RECOVERY_SECONDS = 0.5

BUSY = """
import asyncio, subprocess
from fastmcp.tools import tool

@tool
async def work() -> str:
    await asyncio.sleep(0.005)
    return "done"

@tool
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

@tool
def daemon() -> int:
    script = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
    return int(subprocess.check_output(["sh", "-c", script]))

@tool
def child() -> int:
    return subprocess.Popen(["sleep", "1000"]).pid
"""


@dataclass
class Load:
    """Clients that call without pause, each on a connection of its own."""

    gateway: Gateway
    tool: str = "work"
    arguments: dict[str, float] = field(default_factory=dict)
    answers: Counter[int] = field(default_factory=Counter)
    unanswered: int = 0
    """Requests whose connection ended without an answer."""
    without_retry: int = 0
    """503 answers that do not say when to come back."""
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self) -> None:
        with httpx.Client(headers=self.gateway.headers, timeout=30) as http:
            while not self._over.is_set():
                try:
                    response = http.post(f"{self.gateway.url}/ns/busy/tools/{self.tool}", json=self.arguments)
                except httpx.TransportError:
                    with self._lock:
                        self.unanswered += 1
                    return
                with self._lock:
                    self.answers[response.status_code] += 1
                    self.without_retry += response.status_code == 503 and "retry-after" not in response.headers

    @contextlib.contextmanager
    def running(self, clients: int = CLIENTS) -> Iterator[Load]:
        threads = [threading.Thread(target=self.client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    @property
    def answered(self) -> int:
        return sum(self.answers.values())

    def more(self, count: int = 50) -> None:
        """Wait for that many more answers."""
        wanted = self.answers[200] + count
        until("calls are answered", lambda: self.answers[200] >= wanted)


@pytest.fixture
def core(gateway: Callable[..., Gateway]) -> Gateway:
    made = gateway(DRAIN_SECONDS="3", WORKER_GRACE_SECONDS="0.3", WORKER_PING_SECONDS="1")
    made.write("calm", "echo.py", ECHO)
    made.write("busy", "tools.py", BUSY)
    made.start().settled()
    return made


def recorded_calls(core: Gateway, namespace: str = "busy") -> int:
    return sum(record["namespace"] == namespace for record in core.audit())


def test_killed_worker_costs_only_what_it_was_running(core: Gateway) -> None:
    before = descendants(core.pid)
    with undisturbed(core), Load(core).running() as load:
        for _ in range(KILLS):
            load.more()
            pid = core.worker_pid("busy")
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            load.more(CLIENTS + 1)
            assert time.monotonic() - killed < RECOVERY_SECONDS
            assert not is_alive(pid)
        load.more()
    assert set(load.answers) <= {200, 503}
    assert load.unanswered == load.without_retry == 0
    assert load.answers[503] <= CLIENTS * KILLS
    assert recorded_calls(core) == load.answered
    assert core.namespaces()["busy"]["restarts"] == KILLS
    until("as many processes as before", lambda: len(descendants(core.pid)) == len(before))
    no_strays(core)


def test_killed_launcher_is_replaced_with_its_workers(core: Gateway) -> None:
    """Its workers die with it, so both namespaces are hit; both come back."""
    before = descendants(core.pid)
    (launcher,) = children(core.pid)
    assert descendants(launcher) == before - {launcher}
    stray = core.value("busy", "child")
    with Load(core).running() as load:
        load.more()
        os.kill(launcher, signal.SIGKILL)
        load.more()
    assert set(load.answers) <= {200, 503}
    assert load.unanswered == load.without_retry == 0
    assert load.answers[503] <= CLIENTS
    assert recorded_calls(core) == load.answered + 1
    assert core.value("calm", "echo", text="a") == "a"
    until("the old processes are gone", lambda: not any(map(is_alive, before | {stray})))
    until("as many processes as before", lambda: len(descendants(core.pid)) == len(before))


def test_core_keeps_nothing_of_the_workers_it_lost(core: Gateway) -> None:
    """Neither descriptors nor threads, however many workers came and went."""

    def held() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{core.pid}/fd")), len(os.listdir(f"/proc/{core.pid}/task"))

    def churn(times: int) -> None:
        for number in range(times):
            core.write("busy", "tools.py", f"{BUSY}\n# {core.pid} {number}\n")
            assert core.reload()["workers_restarted"] == ["busy"]
            pid = core.worker_pid("busy")
            assert core.value("busy", "work") == "done"
            os.kill(pid, signal.SIGKILL)
            assert core.call("busy", "work").status_code in (200, 503)
            core.worker_pid("busy")
        no_strays(core)

    churn(3)
    descriptors, threads = held()
    churn(20)
    # A few may still be on their way out; one for each that went would be forty.
    until("they are let go", lambda: held()[0] <= descriptors + 4 and held()[1] <= threads + 4)


def test_nothing_outlives_a_killed_core(core: Gateway) -> None:
    strays = {core.value("busy", "daemon"), core.value("busy", "child")}
    family = descendants(core.pid) | strays
    with Load(core).running() as load:
        load.more()
        core.stop(signal.SIGKILL)
        killed = time.monotonic()
        until("nothing is left", lambda: not any(map(is_alive, family)), 2)
        assert time.monotonic() - killed < 2
    answered = load.answered
    assert set(load.answers) == {200}
    # A line is written before its answer is sent, so the last answers may be missing, never their records.
    recorded = recorded_calls(core) - len(strays)
    assert answered <= recorded <= answered + load.unanswered
    core.start().settled()
    assert core.value("busy", "work") == "done"
    assert core.value("calm", "echo", text="a") == "a"
    assert recorded_calls(core) == recorded + len(strays) + 1
    no_strays(core)


def test_core_that_is_told_to_stop_answers_what_it_accepted(core: Gateway) -> None:
    family = descendants(core.pid)
    strays = {core.value("busy", "daemon")}
    with Load(core).running() as load:
        load.more()
        began = time.monotonic()
        assert core.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 3 + 5
    assert set(load.answers) <= {200, 503}
    assert load.without_retry == 0
    # A client whose connection was closed between two requests got no answer, and its call was never taken.
    assert recorded_calls(core) - len(strays) == load.answered
    assert not any(map(is_alive, family | strays))


def test_call_longer_than_the_drain_is_refused_at_its_end(core: Gateway) -> None:
    family = descendants(core.pid)
    with Load(core, "slow", {"seconds": 30.0}).running() as load:
        until(
            "the calls are running",
            lambda: f'tooldock_calls_running{{namespace="busy"}} {CLIENTS}.0' in core.request("GET", "/metrics").text,
        )
        began = time.monotonic()
        assert core.stop(signal.SIGTERM) == 0
        assert 2 < time.monotonic() - began < 3 + 5
    assert load.answers == {503: CLIENTS}
    assert load.without_retry == 0
    assert recorded_calls(core) == CLIENTS
    assert not any(map(is_alive, family))


def test_call_shorter_than_the_drain_is_answered(core: Gateway) -> None:
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(core.call("busy", "slow", seconds=1.0)))
    thread.start()
    until(
        "the call is running",
        lambda: 'tooldock_calls_running{namespace="busy"} 1.0' in core.request("GET", "/metrics").text,
    )
    assert core.stop(signal.SIGTERM) == 0
    thread.join()
    assert [answer.status_code for answer in answers] == [200]


def test_core_outlives_the_reader_of_its_log(gateway: Callable[..., Gateway]) -> None:
    """A terminal that is closed, a log collector that restarts: what happens next cannot be told, but goes on."""
    core = gateway(DRAIN_SECONDS="2")
    core.write("busy", "tools.py", BUSY)
    os.mkfifo(core.log)
    reader = os.open(core.log, os.O_RDONLY | os.O_NONBLOCK)
    core.start().settled()
    os.close(reader)
    for _ in range(3):
        os.kill(core.worker_pid("busy"), signal.SIGKILL)
        until("calls succeed again", lambda: core.call("busy", "work").status_code == 200)
    core.write("busy", "tools.py", "this is not Python")
    assert "busy" in core.reload()["errors"]
    assert core.value("busy", "work") == "done"
    assert core.stop() == 0


def test_hangup_reloads(core: Gateway) -> None:
    core.write("fresh", "echo.py", ECHO)
    os.kill(core.pid, signal.SIGHUP)
    until("the new namespace is served", lambda: "fresh" in core.namespaces())
    core.settled()
    assert core.value("fresh", "echo", text="a") == "a"


def test_second_core_on_a_directory_names_the_first(core: Gateway) -> None:
    command = [sys.executable, "-m", "tooldock", "core", "--data-dir", str(core.data), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode != 0
    said = second.stdout + second.stderr
    assert str(core.pid) in said
    assert "--data-dir" in said
    assert str(core.data) in said
    assert "Traceback" not in said
    assert core.value("calm", "echo", text="a") == "a"
