"""What a folder declares, as clients of a running core see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway import Gateway

pytestmark = pytest.mark.process

MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


NAMED = """
from fastmcp.tools import tool

@tool(name="{name}")
def a() -> str:
    return ""
"""


def ask(core: Gateway, namespace: str, method: str, **params: Any) -> Any:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
        **({"Mcp-Name": params["name"]} if "name" in params else {}),
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    answer = core.request("POST", f"/ns/{namespace}/mcp", headers=headers, json=message)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def test_g47_names_clients_cannot_use_are_refused_when_the_folder_is_loaded(
    gateway: Callable[..., Gateway],
) -> None:
    core = gateway()
    core.write(
        "bad", "a.py", "from fastmcp.tools import tool\n\n@tool(name='my tool!')\ndef a() -> str:\n    return ''\n"
    )
    core.write(
        "good", "a.py", "from fastmcp.tools import tool\n\n@tool(name='my-tool_2')\ndef a() -> str:\n    return ''\n"
    )
    core.start()
    rows = core.settled()
    assert rows["bad"]["status"] == "failed"
    assert "my tool!" in rows["bad"]["error"]
    names = [tool["name"] for tool in ask(core, "good", "tools/list")["tools"]]
    assert names == ["my-tool_2"]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name) for name in names)


HINTED = """
from fastmcp.tools import tool

@tool(annotations={"readOnlyHint": True, "destructiveHint": False, "title": "Harmless"})
def claims(count: int) -> int:
    return count
"""


def test_g56_a_tools_hints_are_shown_and_excuse_it_from_nothing(gateway: Callable[..., Gateway]) -> None:
    core = gateway()
    core.write("hints", "a.py", HINTED)
    core.start()
    core.settled()
    (tool,) = ask(core, "hints", "tools/list")["tools"]
    assert tool["annotations"]["readOnlyHint"] is True
    refused = ask(core, "hints", "tools/call", name="claims", arguments={"count": "many"})
    assert refused["isError"] is True
    assert ask(core, "hints", "tools/call", name="claims", arguments={"count": 2})["structuredContent"] == {"result": 2}
    assert [(line["tool"], line["status"], line["protocol"]) for line in core.audit()] == [
        ("claims", "fail", f"mcp/{MODERN}"),
        ("claims", "ok", f"mcp/{MODERN}"),
    ]


def test_g52_every_page_of_a_list_has_the_same_scope_and_order(gateway: Callable[..., Gateway]) -> None:
    core = gateway()
    core.write("two", "a.py", HINTED.replace("claims", "b") + HINTED.replace("claims", "a").partition("\n\n")[2])
    core.start()
    core.settled()
    first, second = (ask(core, "two", "tools/list") for _ in range(2))
    assert first == second
    assert first["cacheScope"] == "private"
