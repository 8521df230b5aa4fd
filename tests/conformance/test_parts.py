"""The Node parts are pinned, and by content alone: where they are fetched from is each machine's own business."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.node import HERE

PACKAGE: dict[str, Any] = json.loads((HERE / "package.json").read_text("utf-8"))
LOCKED: dict[str, dict[str, Any]] = json.loads((HERE / "package-lock.json").read_text("utf-8"))["packages"]


def test_every_part_is_asked_for_in_one_exact_version() -> None:
    wanted = {**PACKAGE["dependencies"], **PACKAGE["optionalDependencies"]}
    assert {name: text for name, text in wanted.items() if not re.search(r"(^|@)\d+\.\d+\.\d+[\w.-]*$", text)} == {}


def test_the_lock_holds_contents_and_no_addresses() -> None:
    parts = {path: entry for path, entry in LOCKED.items() if path.startswith("node_modules/")}
    own = {path for path, entry in parts.items() if entry.get("link") or path.endswith("/none")}
    assert {path for path, entry in parts.items() if "integrity" not in entry} == own
    assert [path for path, entry in parts.items() if "://" in entry.get("resolved", "")] == []


def test_the_lock_belongs_to_the_package_file() -> None:
    root = LOCKED[""]
    assert root["dependencies"] == PACKAGE["dependencies"]
    assert root["optionalDependencies"] == PACKAGE["optionalDependencies"]
