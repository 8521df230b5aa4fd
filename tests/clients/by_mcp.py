"""The official Python SDK's client: both eras over streamable HTTP and stdio, and HTTP+SSE.

python by_mcp.py '{"transport": "http", "url": "...", "headers": {...}, "era": "auto"}' prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


@contextlib.asynccontextmanager
async def connected(plan: dict[str, Any]) -> AsyncIterator[Any]:
    async def answer(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Alice"})

    async with contextlib.AsyncExitStack() as stack:
        server: Any
        if plan["transport"] == "stdio":
            server = StdioServerParameters(command=plan["command"], args=plan["args"], env=plan["env"])
        elif plan["transport"] == "sse":
            server = sse_client(plan["url"], headers=plan["headers"])
        else:
            http = await stack.enter_async_context(create_mcp_http_client(headers=plan["headers"]))
            server = streamable_http_client(plan["url"], http_client=http)
        options: dict[str, Any] = {"elicitation_callback": answer} if plan["elicits"] else {}
        yield await stack.enter_async_context(Client(server, mode=plan["era"], read_timeout_seconds=30, **options))


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    seen: dict[str, Any] = {"progress": []}

    async def step(progress: float, _total: float | None, _message: str | None) -> None:
        seen["progress"].append(progress)

    async with connected(plan) as client:
        seen["revision"] = client.protocol_version
        seen["server"] = client.server_info.name if client.server_info else None
        seen["tools"] = [tool.name for tool in (await client.list_tools()).tools]
        seen["text"] = text(await client.call_tool("test_simple_text", {}))
        failed = await client.call_tool("test_error_handling", {})
        seen["failed"] = [failed.is_error, text(failed)]
        try:
            await client.call_tool("no_such_tool", {})
        except MCPError as error:
            seen["unknown"] = error.error.code
        await client.call_tool("test_tool_with_progress", {}, progress_callback=step)
        seen["header"] = text(await client.call_tool("test_custom_header", {"region": "eu", "query": "q"}))
        seen["resource"] = (await client.read_resource("test://static-text")).contents[0].text
        seen["template"] = json.loads((await client.read_resource("test://template/7/data")).contents[0].text)["id"]
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        seen["prompt"] = prompt.messages[0].content.text
        choice = types.PromptReference(type="ref/prompt", name="test_prompt_with_choice")
        seen["completion"] = (await client.complete(choice, {"name": "tone", "value": "fr"})).completion.values
        if plan["elicits"]:
            seen["elicited"] = text(await client.call_tool("test_input_required_result_elicitation", {}))
        if plan["listens"]:
            async with client.listen(tools_list_changed=True) as changes:
                await client.call_tool("test_trigger_tool_change", {})
                seen["announced"] = type(await asyncio.wait_for(anext(changes), 10)).__name__
    return seen


def text(result: Any) -> str:
    return str(result.content[0].text)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))))
