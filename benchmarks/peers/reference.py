"""The reference: the same echo as a plain Starlette JSON route, with no tools, checks or isolation."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    arguments = await request.json()
    return JSONResponse(arguments["text"])


app = Starlette(routes=[Route("/tools/echo", echo, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
