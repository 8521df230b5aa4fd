"""One folder of tool files, three ways to run it: the light package, the real one, and FastMCP itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures" / "portable"
SRC = Path(__file__).parents[2] / "src"
CALLS: list[tuple[str, dict[str, Any]]] = json.loads((FIXTURES / "calls.json").read_text())
READINGS: list[tuple[str, str, dict[str, Any]]] = json.loads((FIXTURES / "readings.json").read_text())
DESCRIBED = ("title", "description", "mimeType", "annotations", "icons")


def run(
    script: str,
    python: str,
    folder: Path = FIXTURES / "tools",
    calls: Path = FIXTURES / "calls.json",
) -> dict[str, Any]:
    """What a script prints, run in a process of its own that finds the worker's package by its path."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "FASTMCP_LOG_ENABLED": "false"}
    done = subprocess.run(
        [python, str(FIXTURES / script), str(folder), str(calls)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@cache
def light() -> dict[str, Any]:
    return run("by_worker.py", sys.executable)


@pytest.fixture(scope="module")
def real_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment with the real package in it."""
    home = tmp_path_factory.mktemp("real")
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(home)], check=True, timeout=60)
    python = str(home / "bin" / "python")
    subprocess.run([uv, "pip", "install", "-q", "-p", python, "fastmcp>=4.1,<4.1.3"], check=True, timeout=100)
    return python


def as_client_sees(result: dict[str, Any], tool: dict[str, Any]) -> dict[str, Any]:
    """A worker's result as a client of MCP gets it, by the rules FastMCP documents."""
    if "error" in result:
        message = result["error"]["message"]
        return {"content": [{"type": "text", "text": message}], "isError": True}
    value, output = result["result"], tool.get("outputSchema")
    if "content" in result:
        seen = {"content": result["content"], "isError": result.get("is_error", False)}
        return seen | ({} if value is None else {"structuredContent": value})
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    seen = {"content": [] if value is None else [{"type": "text", "text": text}], "isError": False}
    if output is not None:
        seen["structuredContent"] = {"result": value} if output.get("x-fastmcp-wrap-result") else value
    elif isinstance(value, dict):
        seen["structuredContent"] = value
    return seen


def comparable(seen: dict[str, Any]) -> dict[str, Any]:
    """Without the notes FastMCP adds for its own client, and with numbers in text compared as numbers."""
    content = [{**block, "text": loosened(block["text"])} if "text" in block else block for block in seen["content"]]
    return {
        "content": content,
        "isError": seen.get("isError", False),
        "structuredContent": seen.get("structuredContent"),
    }


def as_read(result: dict[str, Any]) -> dict[str, Any]:
    """What was read, without what a protocol revision adds; JSON in text is compared as JSON."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if not key.startswith("io.model")}
    return {
        "contents": [
            {**part, "text": loosened(part["text"])} if "text" in part else part for part in result.get("contents", ())
        ],
        "messages": result.get("messages"),
        "description": result.get("description"),
        "_meta": meta,
    }


def loosened(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_the_light_package_serves_the_folder() -> None:
    seen = light()
    assert seen["light"] is True
    assert {name for name, _ in CALLS} == set(seen["tools"])
    assert {tool["file"] for tool in seen["tools"].values()} == {"media.py", "shop.py", "talk.py"}
    assert {prompt["file"] for prompt in seen["prompts"].values()} == {"letters.py"}
    assert {item["file"] for part in ("resources", "templates") for item in seen[part].values()} == {"pages.py"}


def test_progress_and_log_lines_go_out_in_order() -> None:
    assert [message["op"] for message in light()["messages"]] == ["progress", "log"]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", {"a": "3", "b": 4}, 7),
        ("same_call", {}, True),
        ("by_default", {}, True),
        ("handed", {"extra": 1}, "81 open"),
        ("handed_sync", {"extra": 1}, 81),
        ("count", {"to": 3}, [0, 1, 2]),
        ("raw", {"value": 12345678901234567890123}, 12345678901234567890123),
    ],
)
def test_a_call_under_the_light_package_gives_its_result(name: str, arguments: dict[str, Any], result: Any) -> None:
    """Written out, so that a mistake shared with the comparison below would still show."""
    assert light()["results"][CALLS.index([name, arguments])]["result"] == result  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "arguments", "result"),
    [
        ("resource", "library://motto", {}, "Read. Ünïcode too."),
        ("resource", "library://hours", {}, "9 to 5 True"),
        ("resource", "library://books/1", {}, "Emma"),
        ("resource", "library://files/a/b%20c.txt", {}, "file a/b c.txt"),
        ("prompt", "overdue", {"title": "7", "days": "7"}, "7 is 7 day(s) late (int)."),
        ("prompt", "signed", {}, "The Library True"),
    ],
)
def test_a_reading_under_the_light_package_gives_its_text(
    kind: str, name: str, arguments: dict[str, Any], result: str
) -> None:
    seen = light()["readings"][READINGS.index([kind, name, arguments])]["result"]  # type: ignore[arg-type]
    part = seen["contents"][0] if kind == "resource" else seen["messages"][0]["content"]
    assert part["text"] == result


@pytest.mark.parametrize(
    ("kind", "name", "arguments", "code"),
    [
        ("resource", "library://nowhere", {}, "resource_not_found"),
        ("resource", "library://books/9", {}, "resource_not_found"),
        ("resource", "library://files//etc/passwd", {}, "resource_not_found"),
        ("resource", "library://shelves/old/three", {}, "invalid_arguments"),
        ("resource", "library://closed", {}, "tool_error"),
        ("prompt", "nowhere", {}, "prompt_not_found"),
        ("prompt", "overdue", {"days": "7"}, "invalid_arguments"),
        ("prompt", "welcome", {"name": "Ann", "language": "de"}, "invalid_arguments"),
        ("prompt", "wrong", {}, "tool_error"),
    ],
)
def test_a_reading_that_fails_says_why(kind: str, name: str, arguments: dict[str, Any], code: str) -> None:
    assert light()["readings"][READINGS.index([kind, name, arguments])]["error"]["code"] == code  # type: ignore[arg-type]


@pytest.mark.network
@pytest.mark.process
def test_the_worker_treats_the_real_package_as_its_own(real_python: str) -> None:
    real = run("by_worker.py", real_python)
    assert real["light"] is False
    assert real["tools"] == light()["tools"]
    assert real["results"] == light()["results"]
    assert real["messages"] == light()["messages"]
    for part in ("resources", "templates", "prompts", "readings"):
        assert real[part] == light()[part]


@pytest.mark.network
@pytest.mark.process
def test_fastmcp_describes_the_same_tools(real_python: str) -> None:
    theirs = run("by_fastmcp.py", real_python)["tools"]
    ours = light()["tools"]
    assert set(theirs) == set(ours)
    for name, tool in ours.items():
        other = theirs[name]
        assert other["inputSchema"] == tool["inputSchema"], name
        assert other.get("outputSchema") == tool.get("outputSchema"), name
        assert other.get("description", "") == tool["description"], name
        assert other.get("annotations", {}) == tool.get("annotations", {}), name
        if "title" in tool:
            assert other["title"] == tool["title"]


@pytest.mark.network
@pytest.mark.process
def test_fastmcp_gives_the_same_results(real_python: str) -> None:
    theirs = run("by_fastmcp.py", real_python)["results"]
    ours = light()
    for (name, arguments), mine, other in zip(CALLS, ours["results"], theirs, strict=True):
        seen = comparable(as_client_sees(mine, ours["tools"][name]))
        expected = comparable(other)
        if mine.get("error") and name != "refuse":
            # The words for a bad argument or a crash are each side's own; that it failed is not.
            assert expected["isError"], (name, arguments)
            continue
        assert seen == expected, (name, arguments)


@pytest.mark.network
@pytest.mark.process
def test_fastmcp_describes_the_same_resources_and_prompts(real_python: str) -> None:
    theirs, ours = run("by_fastmcp.py", real_python), light()
    for part in ("resources", "templates", "prompts"):
        assert set(theirs[part]) == set(ours[part])
        for name, mine in ours[part].items():
            other = theirs[part][name]
            assert [other.get(key) for key in DESCRIBED] == [mine.get(key) for key in DESCRIBED], name
            assert other["_meta"].pop("fastmcp")["tags"] == mine.get("tags", [])
            assert other["_meta"] == mine.get("meta", {})
    for name, mine in ours["prompts"].items():
        required = [(item["name"], item["required"]) for item in mine["arguments"]]
        assert [(item["name"], item["required"]) for item in theirs["prompts"][name]["arguments"]] == required


@pytest.mark.network
@pytest.mark.process
def test_fastmcp_reads_the_same(real_python: str) -> None:
    theirs = run("by_fastmcp.py", real_python)["readings"]
    for reading, mine, other in zip(READINGS, light()["readings"], theirs, strict=True):
        # The words for what fails are each side's own; that it failed is not.
        assert ("error" in mine) == ("error" in other), reading
        if "error" not in mine:
            assert as_read(mine["result"]) == as_read(other["result"]), reading


@pytest.mark.network
@pytest.mark.process
def test_the_real_packages_own_objects_are_understood(real_python: str) -> None:
    folder = FIXTURES / "real_only"
    seen = run("by_worker.py", real_python, folder, folder / "calls.json")
    assert [reading.get("result") for reading in seen["readings"]] == [
        {"contents": [{"uri": "data://text", "mimeType": "text/plain", "text": "as it is"}]},
        {"contents": [{"uri": "data://made", "mimeType": "text/plain", "text": "made True"}]},
        {"contents": [{"uri": "data://number/7", "mimeType": "text/plain", "text": "8"}]},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello Ann"}}], "description": "Greets."},
    ]
    assert [item["name"] for item in seen["templates"]["data://number/{n}"]["arguments"]] == ["n"]
    tools = seen["tools"]
    assert set(tools) == {"plus", "renamed", "text", "attached", "whole", "ask"}
    assert tools["plus"]["tags"] == ["math"]
    assert tools["renamed"]["inputSchema"]["required"] == ["first"]
    assert tools["ask"]["annotations"] == {"readOnlyHint": True}
    assert tools["ask"]["inputSchema"]["properties"] == {}
    plus, refused, renamed, text, attached, whole, ask = seen["results"]
    assert plus == {"result": 3}
    assert refused["error"]["code"] == "invalid_arguments"
    assert renamed["result"] == {"result": 5}
    assert text == {"content": [{"type": "text", "text": "hello"}], "result": None}
    assert attached["content"] == [
        {"type": "text", "text": "see"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "a"}},
    ]
    assert whole == {"content": [{"type": "text", "text": "no"}], "is_error": True, "result": {"n": 1}}
    assert ask == {"result": "accepted True"}
