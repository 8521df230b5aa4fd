"""Resources and prompts of a namespace, asked for in MCP: the REST wire has tools only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from tooldock.cli.gateway import Gateway

_REVISION = "2026-07-28"
"""The one that needs no session: a question is one request."""
_LISTS = {"resources": "resources/list", "resourceTemplates": "resources/templates/list", "prompts": "prompts/list"}
_MAX_PAGES = 1000


def readables(gateway: Gateway, namespace: str) -> dict[str, list[dict[str, Any]]]:
    """What MCP clients are shown beside the tools, by MCP's own keys; empty where the gateway does not say."""
    found = {key: _listed(gateway, namespace, key, method) for key, method in _LISTS.items()}
    return {key: items for key, items in found.items() if items}


def _listed(gateway: Gateway, namespace: str, key: str, method: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = _asked(gateway, namespace, method, {} if cursor is None else {"cursor": cursor})
        items = page.get(key)
        found += [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return found


def _asked(gateway: Gateway, namespace: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    about = {"protocolVersion": _REVISION, "clientInfo": {"name": "tooldock", "version": "1"}, "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in about.items()}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    answer = gateway.request(
        "POST",
        f"/ns/{quote(namespace, safe='')}/mcp",
        json.dumps(message).encode(),
        extra={
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": _REVISION,
            "Mcp-Method": method,
        },
    )
    try:
        said = json.loads(answer.body) if answer.ok else {}
    except ValueError:
        return {}  # a gateway that does not speak this revision, or something else altogether
    result = said.get("result") if isinstance(said, dict) else None
    return result if isinstance(result, dict) else {}
