"""The servers that are compared: one row each, and the requests their wires want.

A row is a name, a start command, an environment, a request builder and an answer checker; a new server is one
more entry in `ours()` or `peers()`. All of them serve the same function, `echo(text)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.contender import Builder, Contender, NotReady, Site
from benchmarks.environments import BIN, ROOT, Environment
from benchmarks.wire import Answer, ask, request

TOOLS = '''\
import asyncio

from fastmcp.tools import tool


@tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@tool
def echo_sync(text: str) -> str:
    """Return the text, from a thread."""
    return text


@tool
async def slow(text: str) -> str:
    """Return the text after a tenth of a second."""
    await asyncio.sleep(0.1)
    return text
'''


FILLER = '''

@tool
async def filler_{number}(text: str, times: int = 1) -> str:
    """Return the text several times."""
    return text * times
'''


def _script(environment: Environment, name: str) -> Callable[[Site], list[str]]:
    path = ROOT / "benchmarks" / "peers" / name
    return lambda site: [str(environment.python), str(path), str(site.port)]


# REST: the reference and the gateway


def _plain(site: Site, callers: int, payload: bytes) -> list[bytes]:
    return [request(site.port, "POST", "/tools/echo", {}, b'{"text":"%b"}' % payload)] * callers


def gateway_headers(site: Site, namespace: str = "bench") -> dict[str, str]:
    return {"Authorization": f"Bearer {site.token}", "X-Namespace": namespace}


def rest(tool: str, namespace: str = "bench") -> Builder:
    """Calls of one tool of the gateway over REST."""

    def build(site: Site, callers: int, payload: bytes) -> list[bytes]:
        headers = gateway_headers(site, namespace)
        return [request(site.port, "POST", f"/tools/{tool}", headers, b'{"text":"%b"}' % payload)] * callers

    return build


def gateway_command(site: Site) -> list[str]:
    program = str(BIN / "tooldock")
    data = str(site.directory / "data")
    return [program, "core", "--data-dir", data, "--host", "127.0.0.1", "--port", str(site.port)]


def gateway_variables(site: Site) -> dict[str, str]:
    return {
        "BEARER_TOKEN": site.token,
        "MANAGER_INTERNAL_TOKEN": site.manager_token,
        "LOG_LEVEL": "warning",
    }


def write_namespace(site: Site, name: str, files: Mapping[str, str]) -> None:
    folder = site.directory / "data" / "tools" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")


def many_tools(count: int) -> Callable[[Site], None]:
    """One namespace with `count` tools, `echo` among them."""
    files = {"echo.py": TOOLS}
    present = TOOLS.count("@tool")
    if count > present:
        filler = (FILLER.format(number=number) for number in range(count - present))
        files["filler.py"] = "from fastmcp.tools import tool\n" + "".join(filler)
    return lambda site: write_namespace(site, "bench", files)


def gateway(
    name: str,
    title: str,
    build: Builder,
    read: Callable[[Any], object] = lambda answer: answer,
    *,
    floor: float | None = None,
    cpu_us: float | None = None,
    prepare: Callable[[Site], None] | None = None,
) -> Contender:
    """A row of our own; `prepare` replaces the one namespace `bench` with another set of folders."""
    return Contender(
        name,
        title,
        gateway_command,
        build,
        read,
        variables=gateway_variables,
        prepare=prepare or (lambda site: write_namespace(site, "bench", {"echo.py": TOOLS})),
        ours=True,
        floor=floor,
        cpu_us=cpu_us,
    )


# MCP over streamable HTTP

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
_ACCEPT = {"Accept": "application/json, text/event-stream"}


def mcp_modern(
    headers: Callable[[Site], Mapping[str, str]] = lambda site: {}, path: str = "/mcp", tool: str = "echo"
) -> Builder:
    """Calls in the stateless revision: everything a call needs travels with it."""

    def build(site: Site, callers: int, payload: bytes) -> list[bytes]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        fields = {
            **_ACCEPT,
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
            **headers(site),
        }
        return [request(site.port, "POST", path, fields, _tools_call(tool, payload, meta))] * callers

    return build


def mcp_session(
    headers: Callable[[Site], Mapping[str, str]] = lambda site: {}, path: str = "/mcp", tool: str = "echo"
) -> Builder:
    """Calls in sessions, one for each caller."""

    def build(site: Site, callers: int, payload: bytes) -> list[bytes]:
        body = _tools_call(tool, payload, None)
        return [request(site.port, "POST", path, open_session(site, headers(site), path), body) for _ in range(callers)]

    return build


def open_session(site: Site, headers: Mapping[str, str], path: str = "/mcp") -> dict[str, str]:
    """The handshake; gives the headers of every request that follows."""
    fields = {**_ACCEPT, **headers}
    parameters = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters}
    answer = _post(site, path, fields, hello)
    session = answer.header("Mcp-Session-Id")
    if session is None:
        raise NotReady(f"no session in the answer to initialize: {answer.body[:200]!r}")
    fields |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": HANDSHAKE}
    _post(site, path, fields, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    return fields


def _post(site: Site, path: str, fields: Mapping[str, str], message: Mapping[str, object]) -> Answer:
    answer = ask(site.port, request(site.port, "POST", path, fields, json.dumps(message).encode()))
    if answer.status not in (200, 202):
        raise NotReady(f"{message['method']} was answered with {answer.status}: {answer.body[:200]!r}")
    return answer


def _tools_call(tool: str, payload: bytes, meta: Mapping[str, object] | None) -> bytes:
    mark = payload.decode("ascii")
    parameters: dict[str, object] = {"name": tool, "arguments": {"text": mark}}
    if meta is not None:
        parameters["_meta"] = meta
    message = {"jsonrpc": "2.0", "id": mark, "method": "tools/call", "params": parameters}
    return json.dumps(message, separators=(",", ":")).encode()


def _mcp_text(answer: Any) -> object:
    return answer["result"]["content"][0]["text"]


_SERVING = ("uvicorn", "uvloop", "httptools")
REFERENCE_ENVIRONMENT = Environment("reference", ("starlette", *_SERVING))
SDK_ENVIRONMENT = Environment("sdk", ("mcp>=2,<3", *_SERVING))
FASTMCP_ENVIRONMENT = Environment("fastmcp", ("fastmcp>=4,<4.1.3", *_SERVING))

REFERENCE = Contender(
    "reference",
    "reference: plain Starlette route",
    _script(REFERENCE_ENVIRONMENT, "reference.py"),
    _plain,
    lambda answer: answer,
    REFERENCE_ENVIRONMENT,
)


def ours() -> list[Contender]:
    modern, session, many = f"ToolDock, MCP {MODERN}", f"ToolDock, MCP {HANDSHAKE}", many_tools(500)

    def by_modern(tool: str = "echo") -> Builder:
        return mcp_modern(gateway_headers, tool=tool)

    def by_session(tool: str = "echo") -> Builder:
        return mcp_session(gateway_headers, tool=tool)

    return [
        gateway("rest-async", "ToolDock, REST, async tool", rest("echo"), floor=0.60, cpu_us=110),
        gateway("rest-sync", "ToolDock, REST, sync tool", rest("echo_sync"), floor=0.40),
        gateway("mcp-modern", f"{modern}, async tool", by_modern(), _mcp_text, floor=0.60, cpu_us=110),
        gateway("mcp-session", f"{session}, async tool", by_session(), _mcp_text, floor=0.60, cpu_us=110),
        gateway("mcp-modern-sync", f"{modern}, sync tool", by_modern("echo_sync"), _mcp_text, floor=0.40),
        gateway("mcp-session-sync", f"{session}, sync tool", by_session("echo_sync"), _mcp_text, floor=0.40),
        gateway("mcp-modern-500", f"{modern}, 500 tools", by_modern(), _mcp_text, floor=0.60, prepare=many),
        gateway("mcp-session-500", f"{session}, 500 tools", by_session(), _mcp_text, floor=0.60, prepare=many),
    ]


def peers() -> list[Contender]:
    sdk = _script(SDK_ENVIRONMENT, "sdk_lowlevel.py")
    fastmcp = _script(FASTMCP_ENVIRONMENT, "fastmcp_http.py")
    modern, session = mcp_modern(), mcp_session()
    return [
        Contender("sdk-modern", f"MCP SDK low-level, {MODERN}", sdk, modern, _mcp_text, SDK_ENVIRONMENT),
        Contender("sdk-session", f"MCP SDK low-level, {HANDSHAKE}", sdk, session, _mcp_text, SDK_ENVIRONMENT),
        Contender("fastmcp-modern", f"FastMCP, {MODERN}", fastmcp, modern, _mcp_text, FASTMCP_ENVIRONMENT),
        Contender("fastmcp-session", f"FastMCP, {HANDSHAKE}", fastmcp, session, _mcp_text, FASTMCP_ENVIRONMENT),
    ]


def contenders(*, with_peers: bool) -> list[Contender]:
    """Every row but the reference, ours first."""
    return [*ours(), *(peers() if with_peers else [])]
