"""What a folder declares, as clients of a running core see it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from mcp_types.methods import validate_server_result

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


SERVED = {
    "tools": ("tools/list",),
    "resources": ("resources/list", "resources/templates/list", "resources/subscribe", "resources/unsubscribe"),
    "prompts": ("prompts/list",),
    "logging": ("logging/setLevel",),
    "completions": ("completion/complete",),
}
"""What a client may ask of a server that declares a capability."""


def test_g09_whatever_a_session_is_told_there_is_can_be_asked_for(gateway: Callable[..., Gateway]) -> None:
    core = gateway(MCP_STRICT="false")
    core.write("plain", "a.py", NAMED.format(name="a"))
    core.start()
    core.settled()
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    answer = core.request("POST", "/ns/plain/mcp", json=message)
    declared = answer.json()["result"]["capabilities"]
    assert declared == ask(core, "plain", "server/discover")["capabilities"]
    session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
    ref = {"ref": {"type": "ref/prompt", "name": "none"}, "argument": {"name": "a", "value": ""}}
    for method in (method for capability in declared for method in SERVED[capability]):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"uri": "a://b", "level": "info", **ref}}
        reply = core.request("POST", "/ns/plain/mcp", headers=session, json=message).json()
        # There is no such prompt; to say so, its list had to be looked at.
        assert reply.get("error", {}).get("code") == (-32602 if method == "completion/complete" else None), reply


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


RICH = """
from typing import Literal

from fastmcp.prompts import prompt
from fastmcp.resources import ResourceContent, ResourceResult, resource
from fastmcp.tools import ToolResult, tool

ICONS = [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"]}]
NOTES = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-01T00:00:00Z"}
MORE = {"annotations": NOTES, "_meta": {"example.com/k": 1}}
BLOCKS = [
    {"type": "text", "text": "t", **MORE},
    {"type": "image", "data": "AAAA", "mimeType": "image/png", **MORE},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav", **MORE},
    {"type": "resource_link", "uri": "a://one", "name": "one", "title": "One", "size": 3, "icons": ICONS, **MORE},
    {"type": "resource", "resource": {"uri": "a://one", "text": "1", "_meta": {"example.com/k": 1}}, **MORE},
]

@tool(title="T", icons=ICONS, meta={"example.com/k": 1}, annotations={"readOnlyHint": True})
def blocks() -> ToolResult:
    return ToolResult(content=BLOCKS, structured_content={"a": 1}, meta={"example.com/k": 1})

@tool
def numbers() -> list[int]:
    return [1, 2]

@tool
def perhaps() -> int | None:
    return None

@tool
def fails() -> int:
    raise ValueError("no")

@resource("a://one", title="One", icons=ICONS, meta={"example.com/k": 1}, annotations=NOTES)
def one() -> ResourceResult:
    return ResourceResult([ResourceContent("1", meta={"example.com/k": 1})], meta={"example.com/k": 2})

@resource("a://some/{kind}", title="Some", icons=ICONS, meta={"example.com/k": 1}, annotations=NOTES)
def some(kind: Literal["x", "y"]) -> bytes:
    return b"1"

@prompt(title="P", icons=ICONS, meta={"example.com/k": 1})
def letter(tone: Literal["warm", "cold"]) -> list:
    return [{"role": "user", "content": block} for block in BLOCKS]
"""

ASKED: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    *(("tools/call", {"name": name}) for name in ("blocks", "numbers", "perhaps", "fails")),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "a://one"}),
    ("resources/read", {"uri": "a://some/x"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "letter", "arguments": {"tone": "warm"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "tone", "value": "w"}},
    ),
]
SINCE = {
    "audio": "2025-03-26",
    "readOnlyHint": "2025-03-26",
    "title": "2025-06-18",
    "outputSchema": "2025-06-18",
    "structuredContent": "2025-06-18",
    "resource_link": "2025-06-18",
    "lastModified": "2025-06-18",
    "icons": "2025-11-25",
    "resultType": MODERN,
    "cacheScope": MODERN,
}
"""Words of the protocol, and the revision that brought them."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    assert len(members) == len(pairs), f"a member twice: {[name for name, _ in pairs]}"
    return members


def words(value: Any) -> set[str]:
    """Names of members, and types of blocks."""
    if isinstance(value, list):
        return set().union(*map(words, value))
    if not isinstance(value, dict):
        return set()
    kind = {value["type"]} if isinstance(value.get("type"), str) else set()
    return set(value) | kind | words(list(value.values()))


def told(core: Gateway, revision: str) -> set[str]:
    """The words of every kind of answer, each of which the official types accept."""
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": revision}
    found: set[str] = set()

    def check(method: str, params: dict[str, Any]) -> httpx.Response:
        more: dict[str, str] = {}
        if revision == MODERN:
            name = params.get("name", params.get("uri"))
            more = {"Mcp-Method": method, **({} if name is None else {"Mcp-Name": name})}
            params = {**params, "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = core.request("POST", "/ns/rich/mcp", headers={**headers, **more}, json=message)
        result = json.loads(answer.content, object_pairs_hook=once)["result"]
        validate_server_result(method, revision, result)
        found.update(words(result))
        return answer

    if revision == MODERN:
        check("server/discover", {})
    else:
        hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        headers["Mcp-Session-Id"] = check("initialize", hello).headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert core.request("POST", "/ns/rich/mcp", headers=headers, json=ready).status_code == 202
    for method, params in ASKED:
        check(method, params)
    return found


def test_g48_a_rich_namespace_fits_the_official_types_and_has_only_words_of_the_revision(
    gateway: Callable[..., Gateway],
) -> None:
    core = gateway()
    core.write("rich", "a.py", RICH)
    core.start()
    assert core.settled()["rich"]["status"] == "ready"
    for revision in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN):
        expected = {word for word, since in SINCE.items() if since <= revision}
        if revision == "2025-03-26":
            expected.add("title")  # as a hint of the tool
        assert told(core, revision) & set(SINCE) == expected, revision
