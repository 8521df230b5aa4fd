"""Results as a table on the terminal, as the Markdown page of the reference, and as JSON."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.findings import Finding
from benchmarks.throughput import CONNECTIONS, Race, Standing

Row = Sequence[str]

RACE_HEADER = (
    "server",
    *(f"rps at {connections}" for connections in CONNECTIONS),
    "of ref. at 16",
    "of ref. at 100",
    "p50 at 1",
    "p50 at 16",
    "p99 at 16",
    "CPU per call",
    "memory",
    "first answer",
    "errors",
)
FINDING_HEADER = ("what", "measured", "budget", "", "note")


@dataclass(frozen=True, slots=True)
class Report:
    """Everything one run found out."""

    race: Race | None
    findings: list[Finding]
    versions: dict[str, str]
    settings: str
    """How long and how often was measured, in words."""
    date: str = ""

    @property
    def missed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.met is False]


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine() -> str:
    """Processor, cores, memory, kernel and Python; nothing that names the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, {python}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _absent(race: Race) -> list[tuple[str, str]]:
    return [(row.name, why) for row, why in race.absent]


def _race_row(one: Standing) -> Row:
    rates = [f"{one.median(count, lambda lap: lap.result.rps):,.0f}" for count in CONNECTIONS]
    return (
        one.contender.title,
        *rates,
        f"{one.ratio(16):.2f}",
        f"{one.ratio(100):.2f}",
        f"{one.median(1, lambda lap: lap.result.p50_ms):.2f} ms",
        f"{one.median(16, lambda lap: lap.result.p50_ms):.2f} ms",
        f"{one.median(16, lambda lap: lap.result.p99_ms):.1f} ms",
        f"{one.cpu_us(16):,.0f} µs",
        f"{one.idle_bytes / 1e6:.0f} MB",
        f"{one.start_seconds:.2f} s",
        str(one.errors),
    )


def _number(value: float, unit: str) -> str:
    if math.isinf(value):
        return "never"
    digits = 0 if not unit or unit == "µs" else 1 if unit in ("ms", "MB") else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def _finding_row(finding: Finding) -> Row:
    measured = "not measured" if finding.value is None else _number(finding.value, finding.unit)
    budget = "none"
    if finding.budget is not None:
        budget = f"{'≥' if finding.at_least else '≤'} {_number(finding.budget, finding.unit)}"
    mark = {True: "pass", False: "MISSED", None: ""}[finding.met]
    return (finding.what, measured, budget, mark, finding.note)


def _aligned(header: Row, rows: Sequence[Row]) -> str:
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    # The first column holds words and the last a note; figures between them stand right.
    lines = [
        "  ".join(
            cell.ljust(width) if column in (0, len(header) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (header, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(lines)


def terminal(report: Report) -> str:
    parts = [f"{machine()}\n{report.settings}"]
    if report.race is not None:
        parts.append(_aligned(RACE_HEADER, [_race_row(one) for one in report.race.standings]))
        parts += [f"{name}: not measured: {reason}" for name, reason in _absent(report.race)]
    if report.findings:
        parts.append(_aligned(FINDING_HEADER, [_finding_row(one) for one in report.findings]))
        held = [finding for finding in report.findings if finding.met is not None]
        parts.append(f"{len(held) - len(report.missed)} of {len(held)} budgets met.")
    return "\n\n".join(parts)


PAGE = """\
# Benchmarks

What a call through ToolDock costs, beside servers that do less. This page is written by `make bench`; do
not edit it by hand.

{machine}. Measured on {date}. {settings}

Versions: {versions}.

## How it is measured

- Every server offers the same function, `echo(text)`, on loopback. The reference is that function as a
  plain Starlette JSON route on uvicorn with uvloop and httptools: no tools, no checks, no isolation. ToolDock
  runs as installed: credentials, schema check, limits and audit on, the tool in a process of its own. The
  other servers answer with plain JSON, without an access log, on uvloop.
- One load process keeps N connections busy; each sends its next request when the last one is answered. Every
  request carries a text of its own and every answer is compared byte for byte, so that an answer meant for
  somebody else counts as an error.
- Each run of a server stands between two runs of the reference, and *of ref.* is its rate divided by their
  mean. Compare ratios and CPU time; rates alone say more about the machine.
- *CPU per call* is user and system time of all the server's processes at 16 connections. *Memory* is
  proportional set size (PSS) of all of them when idle after the first answer; *first answer* counts from
  the start of the process, with every environment already built.

## Calls

{race}

## Budgets

{findings}

## Running it

`make bench` measures everything and takes some minutes. `make bench ARGS="--quick"` is a short run,
`--only NAME` measures one server or one property (`--list` names them), `--no-peers` leaves the other
projects out, `--json FILE` keeps the figures, and `--strict` fails when a budget is missed. Only a complete
run rewrites this page; `--markdown FILE` writes it elsewhere from any run.
"""


def _pipes(header: Row, rows: Sequence[Row]) -> str:
    def line(cells: Row) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, rows)])


def markdown(report: Report) -> str:
    race = "Not measured in this run."
    if report.race is not None:
        race = _pipes(RACE_HEADER, [_race_row(one) for one in report.race.standings])
        race += "".join(f"\n\n`{name}` was not measured: {why}" for name, why in _absent(report.race))
    findings = "Not measured in this run."
    if report.findings:
        findings = _pipes(FINDING_HEADER, [_finding_row(one) for one in report.findings])
    return PAGE.format(
        machine=machine(),
        date=report.date,
        settings=report.settings,
        versions=", ".join(f"{name} {version}" for name, version in report.versions.items()),
        race=race,
        findings=findings,
    )


def as_json(report: Report) -> dict[str, Any]:
    standings = [] if report.race is None else report.race.standings
    return {
        "date": report.date,
        "machine": machine(),
        "python": sys.version,
        "versions": report.versions,
        "settings": report.settings,
        "servers": [_standing_json(one) for one in standings],
        "absent": {} if report.race is None else dict(_absent(report.race)),
        "findings": [{**asdict(one), "met": one.met} for one in report.findings],
    }


def _standing_json(one: Standing) -> dict[str, Any]:
    laps = {
        str(connections): [
            {"reference_rps": lap.reference_rps, **asdict(lap.result), "refusals": len(lap.result.refusals)}
            for lap in laps
        ]
        for connections, laps in one.laps.items()
    }
    return {
        "name": one.contender.name,
        "start_seconds": one.start_seconds,
        "idle_bytes": one.idle_bytes,
        "laps": laps,
    }
