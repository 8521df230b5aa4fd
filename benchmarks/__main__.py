"""`python -m benchmarks`: choose what to measure, measure it, show it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from benchmarks import report, throughput
from benchmarks.contender import Contender
from benchmarks.environments import ROOT, SCRATCH, NotMeasurable, installed
from benchmarks.faults import faults
from benchmarks.findings import Finding
from benchmarks.measures import MEASURES, Effort, Measure
from benchmarks.servers import REFERENCE, contenders
from benchmarks.sessions import SESSION_MEASURES

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
TOLD_VERSIONS = ("tooldock-gateway", "starlette", "uvicorn", "uvloop", "httptools", "mcp", "fastmcp")
FULL = Effort(seconds=4.0, repeats=5, fault_seconds=60.0)
QUICK = Effort(seconds=1.0, repeats=3, fault_seconds=10.0)
ALL_MEASURES: dict[str, Measure] = {**MEASURES, **SESSION_MEASURES, "faults": faults}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measure ToolDock beside its peers.")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="measure this server or property alone (repeatable)"
    )
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a first impression")
    parser.add_argument("--rounds", type=int, default=1, help="how often each server is measured (default 1)")
    parser.add_argument("--no-peers", action="store_true", help="leave the other projects' servers out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page here instead of into docs/")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a budget is missed")
    parser.add_argument("--list", action="store_true", help="list the names --only takes, and exit")
    return parser.parse_args(argv)


def _chosen(
    options: argparse.Namespace,
) -> tuple[list[Contender], dict[str, Measure]]:
    rows = contenders(with_peers=not options.no_peers)
    if not options.only:
        return rows, ALL_MEASURES
    known = {REFERENCE.name, *(row.name for row in rows), *ALL_MEASURES}
    unknown = [name for name in options.only if name not in known]
    if unknown:
        sys.exit(f"Nothing is called {', '.join(unknown)}. Choose from: {', '.join(sorted(known))}.")
    return (
        [row for row in rows if row.name in options.only],
        {name: measure for name, measure in ALL_MEASURES.items() if name in options.only},
    )


def _measure_all(chosen: dict[str, Measure], directory: Path, effort: Effort) -> list[Finding]:
    found: list[Finding] = []
    for name, measure in chosen.items():
        print(f"Measuring {name} ...", file=sys.stderr)
        place = directory / name
        place.mkdir()
        try:
            found += measure(place, effort)
        except NotMeasurable as error:
            found.append(Finding(name, name, None, note=str(error)))
    return found


def _versions(rows: Sequence[Contender]) -> dict[str, str]:
    seen = installed(Path(sys.executable))
    for row in (REFERENCE, *rows):
        if row.environment is not None:
            seen = {**row.environment.versions(), **seen}
    return {name: seen[name] for name in TOLD_VERSIONS if name in seen}


def _in_words(effort: Effort, rounds: int) -> str:
    return (
        f"Each figure of the call table comes from {rounds} run{'s' if rounds != 1 else ''} "
        f"of {effort.seconds:g} s, timings from {effort.repeats} repetitions."
    )


def _race(rows: list[Contender], options: argparse.Namespace, directory: Path, effort: Effort) -> throughput.Race:
    print(f"Measuring calls: {len(rows)} servers and the reference ...", file=sys.stderr)
    return throughput.run(rows, directory, effort.seconds, options.rounds)


def _stop(number: int, frame: FrameType | None) -> None:
    # Unwinds the stack like Ctrl-C does, so that every server is ended on the way out.
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments(argv)
    if options.list:
        rows = contenders(with_peers=not options.no_peers)
        print("\n".join([REFERENCE.name, *(row.name for row in rows), *ALL_MEASURES]))
        return 0
    rows, measures = _chosen(options)
    effort = QUICK if options.quick else FULL
    signal.signal(signal.SIGTERM, _stop)
    SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=SCRATCH, ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch)
        wants_race = bool(rows) or REFERENCE.name in (options.only or ())
        race = _race(rows, options, directory / "race", effort) if wants_race else None
        found = throughput.verdicts(race) if race is not None else []
        found += _measure_all(measures, directory, effort)
    result = report.Report(race, found, _versions(rows), _in_words(effort, options.rounds), report.today())
    print(report.terminal(result))
    _write(result, options)
    return 1 if options.strict and result.missed else 0


def _write(result: report.Report, options: argparse.Namespace) -> None:
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(result), indent=2), encoding="utf-8")
    complete = not (options.only or options.quick or options.no_peers)
    page = options.markdown or (PAGE if complete else None)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(report.markdown(result), encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
