"""Many at once, one too many, workers that never live long, workers nobody needs, and the portable way to start."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.gateway import ECHO, Gateway, descendants, is_alive, until
from tests.process.evidence import no_strays, recorded, unavailable, undisturbed

pytestmark = pytest.mark.process

CALLERS = 100
FACTOR = 4
"""How much longer than alone; two is what we hope for, a busy machine gets twice that."""

PAUSE = """
import asyncio, time
from fastmcp.tools import tool

@tool
async def pause() -> str:
    await asyncio.sleep(0.1)
    return "done"

@tool
def pause_on_a_thread() -> str:
    time.sleep(0.1)
    return "done"

@tool
async def long() -> str:
    await asyncio.sleep(1)
    return "done"
"""

SHORT_LIVED = """
import os, threading
from fastmcp.tools import tool

threading.Timer(0.05, os._exit, [9]).start()

@tool
async def echo(text: str) -> str:
    return text
"""


@pytest.fixture(scope="module")
def core(stage: Callable[..., Gateway]) -> Gateway:
    gateway = stage(DRAIN_SECONDS="3", TOOL_CALL_TIMEOUT_SECONDS="10")
    gateway.write("calm", "echo.py", ECHO)
    gateway.write("wide", "tools.py", PAUSE)
    gateway.write("narrow", "tools.py", PAUSE)
    gateway.write("narrow", "tooldock.yaml", "limits: {max_concurrency: 1, max_queue: 1}\n")
    gateway.start().settled()
    return gateway


async def together(core: Gateway, tool: str, callers: int) -> tuple[list[str], float]:
    """The status lines that many callers get at once, and how long the last one waited.

    On bare connections: a client library would spend more time on a hundred requests than the gateway does.
    """
    address = httpx.URL(core.url)
    request = (
        f"POST /ns/wide/tools/{tool} HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
        f"Authorization: {core.headers['Authorization']}\r\nContent-Length: 0\r\n\r\n"
    ).encode()
    connections = [await asyncio.open_connection(address.host, address.port) for _ in range(callers)]

    async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(request)
        return (await reader.readuntil(b"\r\n")).decode().strip()

    began = time.monotonic()
    answers = await asyncio.gather(*(call(*connection) for connection in connections))
    seconds = time.monotonic() - began
    for _, writer in connections:
        writer.close()
        await writer.wait_closed()
    return answers, seconds


@pytest.mark.parametrize("tool", ["pause", "pause_on_a_thread"])
async def test_a_hundred_callers_wait_hardly_longer_than_one(core: Gateway, tool: str) -> None:
    _, alone = await together(core, tool, 1)
    answers, seconds = await together(core, tool, CALLERS)
    assert set(answers) == {"HTTP/1.1 200 OK"}
    assert seconds < FACTOR * alone, f"{seconds:.3f} s together, {alone:.3f} s alone"
    calls = [record for record in core.audit() if (record["namespace"], record["tool"]) == ("wide", tool)]
    assert len(calls) == CALLERS + 1
    assert {record["status"] for record in calls} == {"ok"}


def test_third_call_on_a_place_for_one_and_a_queue_of_one_is_refused(core: Gateway) -> None:
    with undisturbed(core), ThreadPoolExecutor(3) as callers:
        answers = list(callers.map(lambda _: core.call("narrow", "long"), range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 503]
    (turned_away,) = (answer for answer in answers if answer.status_code == 503)
    unavailable(turned_away, "queue_full")
    recorded(core, turned_away, "unavailable")
    assert turned_away.elapsed.total_seconds() < 1


def test_caller_that_leaves_the_queue_frees_its_place(core: Gateway) -> None:
    first = threading.Thread(target=lambda: core.call("narrow", "long"))
    first.start()
    running = 'tooldock_calls_running{namespace="narrow"} 1.0'
    until("the first runs", lambda: running in core.request("GET", "/metrics").text)
    with pytest.raises(httpx.ReadTimeout), httpx.Client(headers=core.headers, timeout=0.3) as http:
        http.post(f"{core.url}/ns/narrow/tools/long", json={})
    nobody = 'tooldock_calls_waiting{namespace="narrow"} 0.0'
    until("nobody waits", lambda: nobody in core.request("GET", "/metrics").text)
    first.join()
    assert core.value("narrow", "pause") == "done"


def test_crash_loop_is_refused_quickly_and_ends_when_the_file_is_fixed(core: Gateway) -> None:
    core.write("doomed", "tools.py", SHORT_LIVED)
    with undisturbed(core):
        core.reload()
        until("it is a crash loop", lambda: core.namespaces()["doomed"]["status"] == "crash_loop")
        began = time.monotonic()
        response = core.call("doomed", "echo", text="a")
        assert time.monotonic() - began < 1
    error = unavailable(response, "crash_loop")
    assert "exit code 9" in error["message"]
    recorded(core, response, "unavailable")
    row = core.namespaces()["doomed"]
    assert "exit code 9" in row["error"]
    core.write("doomed", "tools.py", ECHO)
    core.reload()
    assert core.value("doomed", "echo", text="a") == "a"
    row = core.namespaces()["doomed"]
    assert (row["status"], row["error"]) == ("ready", None)
    no_strays(core)


def test_idle_worker_stops_and_the_next_call_starts_it(gateway: Callable[..., Gateway]) -> None:
    core = gateway(WORKER_IDLE_SECONDS="0.5", DRAIN_SECONDS="2")
    core.write("plain", "tools.py", PAUSE + ECHO.replace("from fastmcp.tools import tool", ""))
    core.start().settled()
    for _ in range(2):
        assert core.value("plain", "echo", text="a") == "a"
        pid = core.worker_pid("plain")
        until("it is idle", lambda: core.namespaces()["plain"]["status"] == "idle")
        ended(pid)
        assert core.request("GET", "/ns/plain/tools").json()["tools"]
    assert core.value("plain", "long") == "done"  # twice as long as it may be idle
    row = core.namespaces()["plain"]
    assert (row["error"], row["restarts"]) == (None, 0)


def ended(pid: int) -> None:
    until("the worker is gone", lambda: not is_alive(pid), 2)


# Without the warm parent: what every platform can do.


@pytest.fixture
def spawned(gateway: Callable[..., Gateway]) -> Gateway:
    core = gateway(WORKER_START="spawn", DRAIN_SECONDS="2")
    core.write("plain", "echo.py", ECHO)
    core.start().settled()
    return core


def test_spawned_worker_answers_and_a_killed_one_is_replaced(spawned: Gateway) -> None:
    response = spawned.call("plain", "echo", text="a")
    assert response.json() == "a"
    recorded(spawned, response, None)
    pid = spawned.worker_pid("plain")
    assert descendants(spawned.pid) == {pid}
    os.kill(pid, signal.SIGKILL)
    until("calls succeed again", lambda: spawned.call("plain", "echo", text="b").status_code == 200)
    assert spawned.worker_pid("plain") != pid
    assert descendants(spawned.pid) == {spawned.worker_pid("plain")}


def test_spawned_worker_does_not_outlive_a_killed_core(spawned: Gateway) -> None:
    pid = spawned.worker_pid("plain")
    spawned.stop(signal.SIGKILL)
    ended(pid)
    spawned.start().settled()
    assert spawned.value("plain", "echo", text="a") == "a"


def test_spawned_workers_end_with_a_stopped_core(spawned: Gateway) -> None:
    family = descendants(spawned.pid)
    assert spawned.stop() == 0
    assert not any(map(is_alive, family))
