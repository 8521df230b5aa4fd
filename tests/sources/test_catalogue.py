"""The catalogue on disk is a cache: what cannot be understood is as good as missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tooldock.sources import catalogue
from tooldock.sources.catalogue import Record

RECORD = Record("rev", "base-1", "runtime", ({"name": "add", "inputSchema": {"type": "object"}},))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "math.json"
    catalogue.save(path, RECORD)
    assert catalogue.load(path) == RECORD
    assert list(path.parent.iterdir()) == [path]


def test_saving_replaces_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "math.json"
    catalogue.save(path, Record("old", "base-1", "runtime", ()))
    catalogue.save(path, RECORD)
    assert catalogue.load(path) == RECORD


GOOD: dict[str, Any] = {"version": 1, "revision": "r", "environment": "e", "worker": "w", "tools": []}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        json.dumps(GOOD | {"version": 2}).encode(),
        json.dumps({key: value for key, value in GOOD.items() if key != "worker"}).encode(),
        json.dumps(GOOD | {"revision": 7}).encode(),
        json.dumps(GOOD | {"environment": None}).encode(),
        json.dumps(GOOD | {"tools": 5}).encode(),
        json.dumps(GOOD | {"tools": ["add"]}).encode(),
    ],
)
def test_what_cannot_be_understood_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "math.json"
    path.write_bytes(data)
    assert catalogue.load(path) is None


def test_the_good_one_of_that_table_is_good(tmp_path: Path) -> None:
    path = tmp_path / "math.json"
    path.write_text(json.dumps(GOOD))
    assert catalogue.load(path) == Record("r", "e", "w", ())
    assert catalogue.load(tmp_path / "missing.json") is None


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
    tool = catalogue.tool("math", described)
    assert isinstance(tool.name, str)
    assert isinstance(tool.input_schema, dict)
    assert all(isinstance(icon, dict) for icon in tool.icons)
    assert tool.timeout is None or tool.timeout > 0
