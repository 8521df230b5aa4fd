"""A disk without room for the audit: what could change something waits, and no line is lost or torn."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway import Gateway, until
from tests.process.evidence import recorded, unavailable

pytestmark = pytest.mark.process

SIZE = "256k"

TOOLS = """
from fastmcp.tools import tool

@tool(annotations={"readOnlyHint": True})
async def look(text: str) -> str:
    return text

@tool
async def change(text: str) -> str:
    return text
"""


@pytest.fixture
def small(gateway: Callable[..., Gateway]) -> Iterator[Gateway]:
    """A gateway whose logs have a file system of their own, with little room on it."""
    made = gateway(DRAIN_SECONDS="2")
    logs = made.data / "logs"
    logs.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(logs)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        made.write("plain", "tools.py", TOOLS)
        made.start().settled()
        yield made
    finally:
        made.close()
        subprocess.run(["umount", "--lazy", str(logs)], check=True)


def fill(core: Gateway) -> Path:
    """Take all the room there is, and more than the last page of the audit still has."""
    ballast = core.data / "logs" / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return ballast


def call_until_full(core: Gateway) -> list[httpx.Response]:
    """Read-only calls, until the audit cannot take another line."""
    made: list[httpx.Response] = []

    def full() -> bool:
        made.append(core.call("plain", "look", text="a"))
        return bool(core.request("GET", "/health").json()["status"] == "degraded")

    until("the audit is full", full)
    return made


def writable(core: Gateway) -> bool:
    return core.call("plain", "change", text="a").status_code == 200


def test_only_reading_goes_on_while_calls_cannot_be_recorded(small: Gateway) -> None:
    fill(small)
    answered = call_until_full(small)
    assert {response.status_code for response in answered} == {200}
    assert small.call("plain", "look", text="b").json() == "b"
    response = small.call("plain", "change", text="c")
    error = unavailable(response, "audit")
    assert "No space left" in error["message"]
    health = small.request("GET", "/health").json()
    assert health["audit"]["writable"] is False
    assert "No space left" in health["audit"]["problem"]
    assert "tooldock_audit_writable 0.0" in small.request("GET", "/metrics").text


def test_kept_lines_are_written_when_there_is_room_again(small: Gateway) -> None:
    ballast = fill(small)
    answered = call_until_full(small)
    refused = [small.call("plain", "change", text="c") for _ in range(20)]
    answered += [small.call("plain", "look", text="d") for _ in range(20)]
    ballast.unlink()
    until("calls are recorded again", lambda: writable(small))
    assert small.request("GET", "/health").json()["status"] == "ok"
    for response in answered:
        recorded(small, response, None)  # the file is whole JSON lines, or this could not read it
    for response in refused:
        recorded(small, response, "unavailable")
    assert not [line for line in small.audit() if line.get("record") == "gap"]


def test_file_is_whole_while_the_disk_is_full(small: Gateway) -> None:
    """The last line that fits only in part is taken back whole."""
    answered = [small.call("plain", "look", text="a")]
    fill(small)
    answered += call_until_full(small)
    (file,) = (small.data / "logs").glob("*.jsonl")
    assert file.read_bytes().endswith(b"\n")
    ids = [record["request_id"] for record in small.audit()]
    assert ids == [response.headers["x-request-id"] for response in answered[: len(ids)]]
    assert 0 < len(ids) < len(answered)


def test_core_stops_cleanly_on_a_full_disk(small: Gateway) -> None:
    fill(small)
    call_until_full(small)
    assert small.stop() == 0
    assert "audit_lines_lost" in small.log.read_text()


def test_core_starts_on_a_full_disk_and_says_so(small: Gateway) -> None:
    small.stop()
    ballast = fill(small)
    for file in (small.data / "logs").glob("*.jsonl"):
        os.unlink(file)
    fill(small)
    small.start().settled()
    unavailable_at_first = call_until_full(small)
    assert {response.status_code for response in unavailable_at_first} == {200}
    ballast.unlink()
    until("calls are recorded again", lambda: writable(small))
