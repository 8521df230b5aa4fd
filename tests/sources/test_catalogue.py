"""The catalogue on disk is a cache: what cannot be understood is as good as missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tooldock.model import Argument
from tooldock.sources import catalogue
from tooldock.sources.catalogue import Described, Record

RECORD = Record(
    "rev",
    "base-1",
    "runtime",
    Described(
        tools=({"name": "add", "inputSchema": {"type": "object"}},),
        resources=({"uri": "data://now", "name": "now"},),
        templates=({"uriTemplate": "data://{day}", "name": "day"},),
        prompts=({"name": "ask"},),
    ),
)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "math.json"
    catalogue.save(path, RECORD)
    assert catalogue.load(path) == RECORD
    assert list(path.parent.iterdir()) == [path]


def test_saving_replaces_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "math.json"
    catalogue.save(path, Record("old", "base-1", "runtime", Described()))
    catalogue.save(path, RECORD)
    assert catalogue.load(path) == RECORD


GOOD: dict[str, Any] = {
    "version": 2,
    "revision": "r",
    "environment": "e",
    "worker": "w",
    "tools": [],
    "resources": [],
    "templates": [],
    "prompts": [],
}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        json.dumps({key: value for key, value in GOOD.items() if key != "worker"}).encode(),
        json.dumps(GOOD | {"revision": 7}).encode(),
        json.dumps(GOOD | {"environment": None}).encode(),
        json.dumps(GOOD | {"tools": 5}).encode(),
        json.dumps(GOOD | {"tools": ["add"]}).encode(),
        json.dumps(GOOD | {"prompts": ["ask"]}).encode(),
        json.dumps({key: value for key, value in GOOD.items() if key != "resources"}).encode(),
    ],
)
def test_what_cannot_be_understood_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "math.json"
    path.write_bytes(data)
    assert catalogue.load(path) is None


def test_the_good_one_of_that_table_is_good(tmp_path: Path) -> None:
    path = tmp_path / "math.json"
    path.write_text(json.dumps(GOOD))
    assert catalogue.load(path) == Record("r", "e", "w", Described())
    assert catalogue.load(tmp_path / "missing.json") is None


def test_another_version_s_file_still_tells_which_revision_worked(tmp_path: Path) -> None:
    path = tmp_path / "math.json"
    path.write_text(json.dumps({"version": 1, "revision": "r", "environment": "e", "worker": "w", "tools": [5]}))
    assert catalogue.load(path) == Record("r", "e", "", Described())


def test_a_described_tool_keeps_everything_it_says() -> None:
    tool = catalogue.tool(
        "math",
        {
            "name": "add",
            "title": "Add",
            "description": "Sum.",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "integer"},
            "annotations": {"readOnlyHint": True},
            "icons": [{"src": "a.png"}],
            "tags": ["sum"],
            "meta": {"x": 1},
            "file": "a.py",
            "timeout": 3,
        },
    )
    assert (tool.namespace, tool.name, tool.title, tool.description) == ("math", "add", "Add", "Sum.")
    assert (tool.input_schema, tool.output_schema) == ({"type": "object"}, {"type": "integer"})
    assert (tool.read_only, tool.icons, tool.tags) == (True, ({"src": "a.png"},), ("sum",))
    assert (tool.meta, tool.file, tool.timeout) == ({"x": 1}, "a.py", 3.0)


@pytest.mark.parametrize("wrong", [7, [1], {"a": 1}, "text", None, -1, float("nan")])
def test_a_worker_that_describes_nonsense_does_no_harm(wrong: Any) -> None:
    keys = ("name", "title", "description", "file")
    maps = ("inputSchema", "outputSchema", "annotations", "meta")
    described = dict.fromkeys((*keys, *maps, "icons", "tags", "timeout"), wrong)
    described |= dict.fromkeys(("uri", "uriTemplate", "mimeType", "size", "arguments"), wrong)
    resource, prompt = catalogue.resource("math", described), catalogue.prompt("math", described)
    assert isinstance(resource.uri, str)
    assert isinstance(prompt.name, str)
    assert resource.size is None or resource.size >= 0
    assert all(isinstance(item, Argument) for item in (*resource.arguments, *prompt.arguments))
    tool = catalogue.tool("math", described)
    assert isinstance(tool.name, str)
    assert isinstance(tool.input_schema, dict)
    assert all(isinstance(icon, dict) for icon in tool.icons)
    assert tool.timeout is None or tool.timeout > 0


def test_a_described_resource_keeps_everything_it_says() -> None:
    described = {
        "uriTemplate": "page://{name}",
        "name": "page",
        "title": "Page",
        "description": "One page.",
        "mimeType": "text/markdown",
        "size": 12,
        "annotations": {"priority": 0.5},
        "icons": [{"src": "a.png"}],
        "tags": ["docs"],
        "meta": {"x": 1},
        "file": "pages.py",
        "arguments": [{"name": "name", "description": "Which.", "required": True, "values": ["a", "b"]}],
    }
    page = catalogue.resource("docs", described)
    assert (page.namespace, page.uri, page.name, page.title) == ("docs", "page://{name}", "page", "Page")
    assert (page.description, page.mime_type, page.size) == ("One page.", "text/markdown", 12)
    assert (page.annotations, page.icons, page.tags) == ({"priority": 0.5}, ({"src": "a.png"},), ("docs",))
    assert (page.meta, page.file, page.read_only) == ({"x": 1}, "pages.py", True)
    assert page.arguments == (Argument(name="name", description="Which.", required=True, values=("a", "b")),)
    fixed = catalogue.resource("docs", {"uri": "page://front", "name": "front"})
    assert (fixed.uri, fixed.mime_type, fixed.size, fixed.arguments) == ("page://front", None, None, ())


def test_a_described_prompt_keeps_everything_it_says() -> None:
    ask = catalogue.prompt(
        "docs",
        {
            "name": "ask",
            "title": "Ask",
            "description": "A question.",
            "arguments": [{"name": "about", "required": False}],
            "icons": [{"src": "a.png"}],
            "tags": ["docs"],
            "meta": {"x": 1},
            "file": "ask.py",
        },
    )
    assert (ask.namespace, ask.name, ask.title, ask.description) == ("docs", "ask", "Ask", "A question.")
    assert (ask.arguments, ask.icons, ask.tags) == ((Argument(name="about"),), ({"src": "a.png"},), ("docs",))
    assert (ask.meta, ask.file, ask.read_only) == ({"x": 1}, "ask.py", True)
