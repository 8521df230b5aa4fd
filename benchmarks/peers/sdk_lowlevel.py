"""The official SDK's low-level server with one `echo` tool; plain JSON answers, no access log, uvloop."""

import sys

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def list_tools(context, params):
    tool = types.Tool(name="echo", description="Return the text.", input_schema=SCHEMA)
    return types.ListToolsResult(tools=[tool])


async def call_tool(context, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["text"])])


server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)

if __name__ == "__main__":
    uvicorn.run(
        server.streamable_http_app(json_response=True),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
