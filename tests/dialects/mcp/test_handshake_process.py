"""Sessions where they cross processes: a real core with real workers, restarted, reloaded and left in the middle."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway import Gateway, until
from tooldock.dialects.mcp.revisions import R2025_11_25

pytestmark = pytest.mark.process

TOOLS = '''
import asyncio
from pathlib import Path
from fastmcp import Context
from fastmcp.tools import tool

@tool
async def version() -> str:
    """Which version this is."""
    return "one"

@tool
async def wait(signal: str, ctx: Context) -> str:
    """Say that it began, wait for a file, answer."""
    await ctx.report_progress(1, 2, "begun")
    for _ in range(3000):
        if Path(signal).exists():
            break
        await asyncio.sleep(0.01)
    await ctx.report_progress(2, 2, "seen")
    return "from one"
'''


class Client:
    def __init__(self, gateway: Gateway, namespace: str = "one") -> None:
        self.gateway = gateway
        self.headers = {
            **gateway.headers,
            "x-namespace": namespace,
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }

    def open(self) -> Client:
        params = {"protocolVersion": R2025_11_25, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        response = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert response.status_code == 200, response.text
        self.headers |= {
            "mcp-session-id": response.headers["mcp-session-id"],
            "mcp-protocol-version": R2025_11_25,
        }
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
        return self

    def post(self, body: Any) -> httpx.Response:
        return self.gateway.http.post(f"{self.gateway.url}/mcp", json=body, headers=self.headers)

    def call(self, tool: str, **arguments: Any) -> Any:
        response = self.post(self.calling(tool, **arguments))
        assert response.status_code == 200, response.text
        return response.json()["result"]["content"][0]["text"]

    @staticmethod
    def calling(tool: str, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}

    def stream(self, method: str, body: Any = None, **headers: str) -> Any:
        url = f"{self.gateway.url}/mcp"
        return self.gateway.http.stream(method, url, json=body, headers={**self.headers, **headers})


def read(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Events with data: their ids and messages."""
    id = ""
    for line in response.iter_lines():
        if line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: {"):
            yield id, json.loads(line[6:])


def test_g20_a_session_survives_a_restart_and_a_kill(gateway: Callable[..., Gateway]) -> None:
    served = gateway()
    served.write("one", "tools.py", TOOLS)
    served.start()
    served.settled()
    client = Client(served).open()
    assert client.call("version") == "one"
    served.restart()
    served.settled()
    assert client.call("version") == "one"
    later = Client(served).open()
    served.stop(signal.SIGKILL)
    served.start()
    served.settled()
    assert client.call("version") == "one"
    assert later.call("version") == "one"
    sessions = served.data / "state" / "sessions" / "core.jsonl"
    assert sessions.stat().st_mode & 0o777 == 0o600
    assert client.headers["mcp-session-id"] not in sessions.read_text()
    stranger = Client(served, "one")
    stranger.headers["mcp-session-id"] = "x" * 43
    assert stranger.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 404


def test_a_stop_in_the_middle_of_a_stream_ends_it_politely_and_soon(gateway: Callable[..., Gateway]) -> None:
    served = gateway(DRAIN_SECONDS="15")
    served.write("one", "tools.py", TOOLS)
    served.start()
    served.settled()
    client = Client(served).open()
    with client.stream("GET") as listening:
        lines = listening.iter_lines()
        assert next(lines).startswith("id: ")
        assert served.process is not None
        served.process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert any(line.startswith("retry: ") for line in rest)
    assert served.process.wait(10) == 0


def test_a_reload_in_the_middle_of_a_call_leaves_it_alone_and_tells_the_session(
    gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    served = gateway()
    served.write("one", "tools.py", TOOLS)
    served.start()
    served.settled()
    client = Client(served).open()
    sign = tmp_path / "sign"
    with client.stream("POST", client.calling("wait", signal=str(sign))) as answer, client.stream("GET") as listening:
        events, told = read(answer), read(listening)
        assert next(events)[1]["params"]["message"] == "begun"
        served.write(
            "one", "tools.py", TOOLS.replace('"one"', '"two"').replace("async def wait", "async def wait_long")
        )
        served.reload()
        assert next(told)[1]["method"] == "notifications/tools/list_changed"
        sign.touch()
        assert [message for _, message in events][-1]["result"]["content"][0]["text"] == "from one"
    assert client.call("version") == "two"


def test_g41_a_client_that_left_in_the_middle_finds_the_answer_and_the_audit_has_one_call(
    gateway: Callable[..., Gateway], tmp_path: Path
) -> None:
    served = gateway()
    served.write("one", "tools.py", TOOLS)
    served.write("two", "tools.py", TOOLS)
    served.start()
    served.settled()
    client, stranger = Client(served).open(), Client(served, "two").open()
    sign = tmp_path / "sign"
    with client.stream("POST", client.calling("wait", signal=str(sign))) as answer:
        last, _ = next(read(answer))
    sign.touch()
    until("the call is in the audit", lambda: [line for line in served.audit() if line["tool"] == "wait"] or None)
    with (
        stranger.stream("GET", **{"last-event-id": last}) as other,
        client.stream("GET", **{"last-event-id": last}) as back,
    ):
        rest = [message for _, message in read(back)]
        assert rest[0]["params"]["message"] == "seen"
        assert rest[1]["result"]["content"][0]["text"] == "from one"
        primer = next(other.iter_lines())
        assert primer.startswith("id: ")
        assert last.partition("-")[0] not in primer
    [line] = [line for line in served.audit() if line["tool"] == "wait"]
    assert line["status"] == "ok"
