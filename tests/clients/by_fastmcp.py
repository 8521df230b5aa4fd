"""FastMCP's client, in an environment of its own.

python by_fastmcp.py '{"transport": "http", "url": "...", "headers": {...}, "era": "auto"}' prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import MCPError


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    seen: dict[str, Any] = {"progress": []}

    async def step(progress: float, _total: float | None, _message: str | None) -> None:
        seen["progress"].append(progress)

    async def answer(_message: str, _kind: Any, _params: Any, _context: Any) -> dict[str, str]:
        return {"name": "Alice"}

    transport: Any
    if plan["transport"] == "stdio":
        transport = StdioTransport(plan["command"], plan["args"], env=plan["env"], keep_alive=False)
    else:
        transport = StreamableHttpTransport(plan["url"], headers=plan["headers"])
    async with Client(transport, elicitation_handler=answer, mode=plan["era"], timeout=30) as client:
        seen["revision"] = client.protocol_version
        seen["tools"] = [tool.name for tool in await client.list_tools()]
        seen["text"] = (await client.call_tool("test_simple_text")).content[0].text
        failed = await client.call_tool("test_error_handling", raise_on_error=False)
        seen["failed"] = [failed.is_error, failed.content[0].text]
        try:
            await client.call_tool("no_such_tool")
        except MCPError as error:
            seen["unknown"] = error.error.code
        await client.call_tool("test_tool_with_progress", progress_handler=step)
        header = await client.call_tool("test_custom_header", {"region": "eu", "query": "q"})
        seen["header"] = header.content[0].text
        seen["resource"] = (await client.read_resource("test://static-text"))[0].text
        seen["template"] = json.loads((await client.read_resource("test://template/7/data"))[0].text)["id"]
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        seen["prompt"] = prompt.messages[0].content.text
        choice = types.PromptReference(type="ref/prompt", name="test_prompt_with_choice")
        seen["completion"] = (await client.complete(choice, {"name": "tone", "value": "fr"})).values
        elicited = await client.call_tool("test_input_required_result_elicitation")
        seen["elicited"] = elicited.content[0].text
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))))
