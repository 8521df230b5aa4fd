"""The stateless revision against a real core with a real worker: what crosses processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway import ECHO, Gateway, until
from tooldock.dialects.mcp.revisions import R2026_07_28
from tooldock.dialects.mcp.stateless import CAPABILITIES_KEY, VERSION_KEY

pytestmark = pytest.mark.process

ABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}

TOOLS = """
import asyncio
import os
from pathlib import Path

from fastmcp import Context
from fastmcp.tools import tool
from pydantic import BaseModel

STATE = Path(os.environ["TOOLDOCK_STATE_DIR"])


class UserName(BaseModel):
    name: str


def note(text: str) -> None:
    with (STATE / "notes").open("a") as file:
        file.write(text + "\\n")


@tool
async def wait(ctx: Context) -> str:
    note("begun")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "done"


@tool
async def greet(ctx: Context) -> str:
    note("greeting")
    answer = await ctx.elicit("What is your name?", UserName)
    return f"Hello, {answer.data.name}!"


@tool
async def everything(ctx: Context) -> str:
    name, roots = await asyncio.gather(ctx.elicit("Who?", UserName), ctx.list_roots())
    return f"{name.action} {len(roots)}"


@tool
def greet_blocking(ctx: Context) -> str:
    answer = ctx.sync.elicit("What is your name?", UserName)
    return f"Hello, {answer.data.name}!"
"""


def post(core: Gateway, method: str, params: dict[str, Any], able: Any = None, **how: Any) -> httpx.Response:
    meta = {VERSION_KEY: R2026_07_28, CAPABILITIES_KEY: able or {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": R2026_07_28,
        "mcp-method": method,
        "mcp-name": params.get("name", ""),
    }
    return core.request("POST", "/ns/one/mcp", json=body, headers=headers, **how)


def call(core: Gateway, tool: str, able: Any = None, more: dict[str, Any] | None = None, **how: Any) -> Any:
    response = post(core, "tools/call", {"name": tool, "arguments": {}, **(more or {})}, able, **how)
    assert response.status_code == 200, response.text
    return response.json()["result"]


@pytest.fixture
def core(gateway: Callable[..., Gateway]) -> Gateway:
    made = gateway()
    made.write("one", "tools.py", TOOLS)
    made.start().settled()
    return made


def notes(core: Gateway) -> list[str]:
    path: Path = core.data / "state" / "ns" / "one" / "notes"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("able", [{}, ABLE])
def test_g41_a_client_that_disconnects_cancels_its_call_and_the_audit_says_so(core: Gateway, able: Any) -> None:
    with pytest.raises(httpx.ReadTimeout):
        call(core, "wait", able, timeout=1)
    until("the tool was cancelled", lambda: notes(core) == ["begun", "cancelled"] or None)
    line = until("it is recorded", lambda: next((one for one in core.audit() if one["tool"] == "wait"), None))
    assert (line["status"], line["error"]) == ("fail", "cancelled")
    assert line["protocol"] == f"mcp/{R2026_07_28}"


@pytest.mark.parametrize("tool", ["greet", "greet_blocking"])
def test_a_tool_that_asks_runs_once_over_two_requests(core: Gateway, tool: str) -> None:
    first = call(core, tool, ABLE)
    assert first["resultType"] == "input_required"
    [(key, question)] = first["inputRequests"].items()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "What is your name?"
    assert question["params"]["requestedSchema"]["properties"]["name"]["type"] == "string"
    answers = {key: {"action": "accept", "content": {"name": "Ann"}}}
    last = call(core, tool, ABLE, {"requestState": first["requestState"], "inputResponses": answers})
    assert last["content"][0]["text"] == "Hello, Ann!"
    assert notes(core) == (["greeting"] if tool == "greet" else [])
    assert [line["status"] for line in core.audit() if line["tool"] == tool] == ["ok"]


def test_questions_a_tool_asks_at_once_arrive_at_once(core: Gateway) -> None:
    first = call(core, "everything", ABLE)
    keys = {told["method"]: key for key, told in first["inputRequests"].items()}
    assert sorted(keys) == ["elicitation/create", "roots/list"]
    answers: dict[str, Any] = {
        keys["elicitation/create"]: {"action": "decline"},
        keys["roots/list"]: {"roots": [{"uri": "file:///a"}]},
    }
    last = call(core, "everything", ABLE, {"requestState": first["requestState"], "inputResponses": answers})
    assert last["content"][0]["text"] == "decline 1"


def test_a_reload_does_not_disturb_a_call_that_waits_for_an_answer(core: Gateway) -> None:
    first = call(core, "greet", ABLE)
    core.write("one", "more.py", ECHO)
    core.reload()
    assert call(core, "echo", None, {"arguments": {"text": "new"}})["content"][0]["text"] == "new"
    answers = {key: {"action": "accept", "content": {"name": "Ann"}} for key in first["inputRequests"]}
    last = call(core, "greet", ABLE, {"requestState": first["requestState"], "inputResponses": answers})
    assert last["content"][0]["text"] == "Hello, Ann!"
    assert notes(core) == ["greeting"]


def test_g54_a_state_from_before_a_restart_is_refused_and_the_call_is_not_left_behind(core: Gateway) -> None:
    first = call(core, "greet", ABLE)
    core.restart()
    core.settled()
    assert [line["error"] for line in core.audit() if line["tool"] == "greet"] == ["cancelled"]
    params = {"name": "greet", "arguments": {}, "requestState": first["requestState"]}
    response = post(core, "tools/call", params, ABLE)
    assert response.status_code == 400
    assert response.json()["error"]["data"] == {"reason": "invalid_request_state"}


def test_g45_a_reload_reaches_whoever_listens(core: Gateway) -> None:
    meta = {VERSION_KEY: R2026_07_28, CAPABILITIES_KEY: {}}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": params}
    headers = {
        **core.headers,
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": R2026_07_28,
        "mcp-method": "subscriptions/listen",
    }
    with httpx.stream("POST", f"{core.url}/ns/one/mcp", json=body, headers=headers, timeout=30) as response:
        events = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: "))
        assert next(events)["method"] == "notifications/subscriptions/acknowledged"
        core.write("one", "more.py", ECHO)
        core.reload()
        assert next(events)["method"] == "notifications/tools/list_changed"
        assert core.stop() == 0
        assert next(events)["result"]["resultType"] == "complete"
        assert next(events, None) is None
