"""Running one of the official suites, and reading what it found.

A suite writes a folder per scenario with its checks in it. A check that was not made is as bad as one that failed:
the suites call some of those "untestable", and let others pass because the answer was an error of the right shape.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.node import MODULES, command, environ

SECONDS = 100
"""For all scenarios of a leg; they take about ten."""

_HOLLOW = ("tool_not_found", "prompt_not_found", "has no tool", "has no prompt", "unknown tool", "unknown prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One suite at one revision."""

    name: str
    package: str
    options: tuple[str, ...]
    scenarios: int
    """How many it has for us, every suite of it but the extensions'."""
    checks: int
    """How many of its checks must have been made and passed. What it only notes, such as that an answer came as plain
    JSON where a stream would have been allowed, is not among them."""
    warned: frozenset[str] = frozenset()
    """Checks it warns of, where we mean to differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    scenario: str
    id: str
    status: str
    message: str
    details: Any

    @property
    def is_hollow(self) -> bool:
        """Passed or noted without having been tried."""
        seen = json.dumps(self.details).lower()
        return '"untestable": true' in seen or any(text in seen for text in _HOLLOW)

    @property
    def is_bad(self) -> bool:
        return self.status not in ("SUCCESS", "INFO", "SKIPPED") or (self.status == "SUCCESS" and self.is_hollow)


def run(leg: Leg, url: str, folder: Path) -> list[Check]:
    """Run a leg against a server; its checks, in the order of the scenarios' names."""
    script = MODULES / leg.package / "dist" / "index.js"
    done = subprocess.run(
        command(script, "server", "--url", url, *leg.options, "--output-dir", str(folder)),
        env=environ(),
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    checks = [check for path in sorted(folder.glob("*/checks.json")) for check in _read(path)]
    assert checks, f"{leg.name} wrote no results:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return checks


def _read(path: Path) -> list[Check]:
    # server-<scenario>-2026-11-15T12-56-38-411Z
    scenario = path.parent.name.removeprefix("server-").rsplit("-", 6)[0]
    return [
        Check(
            scenario=scenario,
            id=item["id"],
            status=item["status"],
            message=item.get("errorMessage") or "",
            details=item.get("details"),
        )
        for item in json.loads(path.read_text("utf-8"))
    ]


def table(checks: list[Check], warned: frozenset[str] = frozenset()) -> str:
    """A line per scenario with its counts, and under it whatever is wrong."""
    lines = []
    for scenario in sorted({check.scenario for check in checks}):
        own = [check for check in checks if check.scenario == scenario]
        bad = [check for check in own if check.is_bad and check.id not in warned]
        passed = sum(check.status == "SUCCESS" and not check.is_bad for check in own)
        noted = sum(check.status in ("INFO", "SKIPPED") for check in own)
        meant = sum(check.id in warned for check in own)
        counts = f"{passed:3} passed" + (f", {noted} noted" if noted else "")
        counts += f", {meant} warned of, as meant" if meant else ""
        lines.append(f"{'FAIL' if bad else 'ok':4}  {scenario:55} {counts}")
        for check in bad:
            lines.append(f"        {check.status} {check.id}: {check.message[:1500] or 'not really tried'}")
            if check.id != "wire-schema-valid":  # whose message holds it all
                lines.append(f"        {json.dumps(check.details)[:1500]}")
    return "\n".join(lines)
