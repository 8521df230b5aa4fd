"""Every client does the same round of things, by every way there is to reach the gateway, and sees the same.

The round: list tools, call one, have one fail, call one that does not exist, follow one's progress, read a resource and
a template, get a prompt, complete an argument, answer a question.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import Gateway, running
from tests.node import MODULES, command, environ, needs_node

pytestmark = [pytest.mark.process, pytest.mark.clients]

HERE = Path(__file__).parent
NAMESPACE = "conformance"
FIXTURE = HERE.parent / "fixtures" / NAMESPACE
SECONDS = 60
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
INVALID_PARAMS = -32602
TEXT = "This is a simple text response for testing."
SEEN = {
    "text": TEXT,
    "failed": [True, "This tool intentionally returns an error for testing"],
    "unknown": INVALID_PARAMS,
    "progress": [0, 50, 100],
    "resource": "This is the content of the static text resource.",
    "template": "7",
    "prompt": "Prompt with arguments: arg1='a', arg2='b'",
    "completion": ["friendly", "frank"],
}
TOOLS = {"test_simple_text", "test_error_handling", "test_tool_with_progress", "json_schema_2020_12_tool"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, venvs: Path) -> Iterator[Gateway]:
    data = tmp_path_factory.mktemp("clients")
    shutil.copytree(FIXTURE, data / "tools" / NAMESPACE, ignore=shutil.ignore_patterns("__pycache__"))
    with running(data, venvs) as gateway:
        gateway.start()
        assert gateway.settled()[NAMESPACE]["status"] == "ready", gateway.namespaces()
        yield gateway


@pytest.fixture(scope="session")
def fastmcp_python(pytestconfig: pytest.Config) -> str:
    """An interpreter with FastMCP in reach; built once and kept, since its release is fixed."""
    home = Path(pytestconfig.cache.mkdir("tooldock-fastmcp-client")).resolve() / sys.implementation.cache_tag
    python, complete = home / "bin" / "python", home / "complete"
    if not complete.exists():
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(home)], check=True, timeout=60)
        install = [uv, "pip", "install", "-q", "-p", str(python), "fastmcp>=4.1,<4.1.3"]
        subprocess.run(install, check=True, timeout=100)
        complete.touch()
    return str(python)


def by_http(gateway: Gateway, route: str) -> dict[str, Any]:
    """The namespace in the path, or in a header: both reach the same handler."""
    if route == "path":
        return {"transport": "http", "url": f"{gateway.url}/ns/{NAMESPACE}/mcp", "headers": gateway.headers}
    headers = {**gateway.headers, "X-Namespace": NAMESPACE}
    return {"transport": "http", "url": f"{gateway.url}/mcp", "headers": headers}


def by_sse(gateway: Gateway) -> dict[str, Any]:
    return {
        "transport": "sse",
        "url": f"{gateway.url}/sse",
        "headers": {**gateway.headers, "X-Namespace": NAMESPACE},
    }


def by_stdio(gateway: Gateway, venvs: Path) -> dict[str, Any]:
    """The client starts the gateway itself, on the same files."""
    arguments = ["-m", "tooldock", "stdio", "--namespace", NAMESPACE, "--data-dir", str(gateway.data)]
    env = {**{name: value for name, value in os.environ.items() if name.isupper()}, "VENVS_DIR": str(venvs)}
    return {"transport": "stdio", "command": sys.executable, "args": arguments, "env": env}


def seen_by(program: list[str], plan: dict[str, Any], era: str, **options: bool) -> dict[str, Any]:
    """Run a client through its round; what it printed."""
    whole = {"era": era, "elicits": True, "listens": False, **plan, **options}
    env = (
        environ() if program[0].endswith("node") else {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    )
    done = subprocess.run([*program, json.dumps(whole)], env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    assert set(seen.pop("tools")) >= TOOLS
    assert {name: seen[name] for name in SEEN} == SEEN
    return seen


def greeted(seen: dict[str, Any]) -> bool:
    """Whether the tool got the name its question was answered with."""
    return bool(seen["elicited"] == "Hello, Alice!")


@pytest.mark.parametrize("route", ["path", "header"])
@pytest.mark.parametrize(("era", "revision"), [("auto", STATELESS), ("legacy", HANDSHAKE)])
def test_the_python_sdk_works_over_http(served: Gateway, era: str, revision: str, route: str) -> None:
    program = [sys.executable, str(HERE / "by_mcp.py")]
    seen = seen_by(program, by_http(served, route), era, listens=revision == STATELESS)
    assert seen["revision"] == revision
    assert greeted(seen)
    assert seen["header"] == "eu: q"
    assert seen.get("announced") == ("ToolsListChanged" if revision == STATELESS else None)


@pytest.mark.parametrize(("era", "revision"), [("auto", STATELESS), ("legacy", HANDSHAKE)])
def test_the_python_sdk_works_over_stdio(served: Gateway, venvs: Path, era: str, revision: str) -> None:
    seen = seen_by([sys.executable, str(HERE / "by_mcp.py")], by_stdio(served, venvs), era)
    assert seen["revision"] == revision
    assert greeted(seen)


def test_the_python_sdk_works_over_sse(served: Gateway) -> None:
    seen = seen_by([sys.executable, str(HERE / "by_mcp.py")], by_sse(served), "legacy")
    assert greeted(seen)


@pytest.mark.network
@pytest.mark.parametrize("route", ["path", "header"])
@pytest.mark.parametrize(("era", "revision"), [("auto", STATELESS), ("legacy", HANDSHAKE)])
def test_fastmcp_works_over_http(served: Gateway, fastmcp_python: str, era: str, revision: str, route: str) -> None:
    seen = seen_by([fastmcp_python, str(HERE / "by_fastmcp.py")], by_http(served, route), era)
    assert seen["revision"] == revision
    assert greeted(seen)
    assert seen["header"] == "eu: q"


@pytest.mark.network
@pytest.mark.parametrize(("era", "revision"), [("auto", STATELESS), ("legacy", HANDSHAKE)])
def test_fastmcp_works_over_stdio(served: Gateway, venvs: Path, fastmcp_python: str, era: str, revision: str) -> None:
    seen = seen_by([fastmcp_python, str(HERE / "by_fastmcp.py")], by_stdio(served, venvs), era)
    assert seen["revision"] == revision
    assert greeted(seen)


@needs_node
@pytest.mark.parametrize("route", ["path", "header"])
def test_the_first_typescript_sdk_works_over_http(served: Gateway, route: str) -> None:
    seen = seen_by(command(HERE / "v1.mjs"), by_http(served, route), "legacy")
    assert seen["revision"] == HANDSHAKE
    assert greeted(seen)


@needs_node
def test_the_first_typescript_sdk_works_over_sse(served: Gateway) -> None:
    seen = seen_by(command(HERE / "v1.mjs"), by_sse(served), "legacy")
    assert greeted(seen)


@needs_node
def test_the_first_typescript_sdk_works_over_stdio(served: Gateway, venvs: Path) -> None:
    seen = seen_by(command(HERE / "v1.mjs"), by_stdio(served, venvs), "legacy")
    assert greeted(seen)


@needs_node
@pytest.mark.parametrize("route", ["path", "header"])
@pytest.mark.parametrize(("era", "revision"), [("auto", STATELESS), ("legacy", HANDSHAKE)])
def test_the_second_typescript_sdk_works_over_http(served: Gateway, era: str, revision: str, route: str) -> None:
    seen = seen_by(command(HERE / "v2.mjs"), by_http(served, route), era)
    assert seen["revision"] == revision
    assert greeted(seen)
    assert seen["header"] == "eu: q"


@needs_node
@pytest.mark.parametrize(("era", "revision"), [("auto", STATELESS), ("legacy", HANDSHAKE)])
def test_the_second_typescript_sdk_works_over_stdio(served: Gateway, venvs: Path, era: str, revision: str) -> None:
    seen = seen_by(command(HERE / "v2.mjs"), by_stdio(served, venvs), era)
    assert seen["revision"] == revision
    assert greeted(seen)


def inspected(home: Path, target: list[str], *arguments: str) -> dict[str, Any]:
    """What the Inspector's command line prints for one method."""
    done = subprocess.run(
        command(INSPECTOR, "--cli", *target, "--format", "json", "--quiet", *arguments),
        env=environ(HOME=str(home)),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)["result"]
    return answer


@needs_node
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_works_over_http(served: Gateway, tmp_path: Path, era: str) -> None:
    plan = by_http(served, "header")
    headers = [text for name, value in plan["headers"].items() for text in ("--header", f"{name}: {value}")]
    target = [plan["url"], "--transport", "http", "--protocol-era", era, *headers]
    assert {tool["name"] for tool in inspected(tmp_path, target, "--method", "tools/list")["tools"]} >= TOOLS
    called = inspected(tmp_path, target, "--method", "tools/call", "--tool-name", "test_simple_text")
    assert called["content"] == [{"type": "text", "text": TEXT}]
    read = inspected(tmp_path, target, "--method", "resources/read", "--uri", "test://static-text")
    assert read["contents"][0]["text"] == SEEN["resource"]
    got = inspected(
        tmp_path, target, "--method", "prompts/get", "--prompt-name", "test_prompt_with_arguments",
        "--prompt-args", "arg1=a", "arg2=b",
    )  # fmt: skip
    assert got["messages"][0]["content"]["text"] == SEEN["prompt"]


@needs_node
def test_the_inspector_finds_nothing_wrong_with_the_tools(served: Gateway, tmp_path: Path) -> None:
    """Its own check of what other clients will make of the schemas; fails on any error it finds."""
    plan = by_http(served, "path")
    headers = [text for name, value in plan["headers"].items() for text in ("--header", f"{name}: {value}")]
    target = [plan["url"], "--transport", "http", *headers]
    assert inspected(tmp_path, target, "--method", "tools/list", "--strict")["tools"]


@needs_node
def test_the_inspector_works_over_stdio(served: Gateway, venvs: Path, tmp_path: Path) -> None:
    plan = by_stdio(served, venvs)
    config = tmp_path / "servers.json"
    server = {"command": plan["command"], "args": plan["args"], "env": plan["env"]}
    config.write_text(json.dumps({"mcpServers": {NAMESPACE: server}}))
    target = ["--config", str(config), "--server", NAMESPACE]
    called = inspected(tmp_path, target, "--method", "tools/call", "--tool-name", "test_simple_text")
    assert called["content"] == [{"type": "text", "text": TEXT}]
