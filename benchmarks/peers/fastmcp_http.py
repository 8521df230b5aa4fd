"""FastMCP over streamable HTTP with one `echo` tool; plain JSON answers, no access log, uvloop."""

import sys

import uvicorn
from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    uvicorn.run(
        server.http_app(path="/mcp", json_response=True),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
