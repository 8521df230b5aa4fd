"""The race: every server under the same load, each between two runs of the reference.

All servers are up for the whole race and only one is loaded at a time. A server's rate is divided by the
mean of the reference runs just before and just after it, so that what the machine does meanwhile falls on
both sides.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import Contender, Server, running
from benchmarks.environments import NotMeasurable
from benchmarks.findings import Finding
from benchmarks.load import Result
from benchmarks.servers import REFERENCE

CONNECTIONS = (1, 16, 100)
SLOWER_THAN_REFERENCE = 3.0
TAIL = 5.0
FASTER_THAN = {"fastmcp": 15.0, "sdk": 5.0}
"""How many times a peer's rate ours should be, by the first part of the peer's name."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One run of one server, with the reference's figures around it."""

    result: Result
    reference_rps: float
    reference_p50_ms: float


Laps = dict[str, dict[int, list[Lap]]]
"""By server and connections."""


@dataclass(frozen=True, slots=True)
class Standing:
    """All laps of one server, by connections."""

    contender: Contender
    laps: dict[int, list[Lap]]
    start_seconds: float
    idle_bytes: int

    def median(self, connections: int, value: Callable[[Lap], float]) -> float:
        return statistics.median(value(lap) for lap in self.laps[connections])

    def ratio(self, connections: int) -> float:
        return self.median(connections, lambda lap: lap.result.rps / lap.reference_rps)

    def p50_ratio(self, connections: int) -> float:
        return self.median(connections, lambda lap: lap.result.p50_ms / lap.reference_p50_ms)

    def tail(self, connections: int) -> float:
        return self.median(connections, lambda lap: lap.result.p99_ms / lap.result.p50_ms)

    def cpu_us(self, connections: int) -> float:
        return self.median(connections, lambda lap: lap.result.server_cpu_us or 0.0)

    @property
    def results(self) -> list[Result]:
        return [lap.result for laps in self.laps.values() for lap in laps]

    @property
    def errors(self) -> int:
        return sum(result.errors for result in self.results)


@dataclass(frozen=True, slots=True)
class Race:
    standings: list[Standing]
    """The reference first."""
    absent: list[tuple[Contender, str]]
    """Servers that did not take part, and why."""


def run(rows: Sequence[Contender], directory: Path, seconds: float, rounds: int) -> Race:
    """Start everything, then measure it in turn."""
    absent: list[tuple[Contender, str]] = []
    with ExitStack() as stack:
        reference = stack.enter_context(running(REFERENCE, directory / REFERENCE.name))
        servers: list[Server] = []
        for row in rows:
            try:
                if row.ours:
                    _prime(row, directory / row.name)
                servers.append(stack.enter_context(running(row, directory / row.name)))
            except NotMeasurable as error:
                absent.append((row, str(error)))
        laps: Laps = {server.contender.name: {count: [] for count in CONNECTIONS} for server in [reference, *servers]}
        for _ in range(rounds):
            for connections in CONNECTIONS:
                _lap(reference, servers, connections, seconds, laps)
        standings = [
            Standing(one.contender, laps[one.contender.name], one.start_seconds, one.idle_bytes)
            for one in [reference, *servers]
        ]
    return Race(standings, absent)


def _prime(row: Contender, directory: Path) -> None:
    # The gateway's first start on a data directory builds its base environment. The peers' environments stand
    # already, so the start that counts is the second one.
    with running(row, directory):
        pass


def _lap(
    reference: Server,
    servers: Iterable[Server],
    connections: int,
    seconds: float,
    laps: Laps,
) -> None:
    before = _measure(reference, connections, seconds)
    laps[REFERENCE.name][connections].append(Lap(before, before.rps, before.p50_ms))
    for server in servers:
        result = _measure(server, connections, seconds)
        after = _measure(reference, connections, seconds)
        lap = Lap(result, (before.rps + after.rps) / 2, (before.p50_ms + after.p50_ms) / 2)
        laps[server.contender.name][connections].append(lap)
        laps[REFERENCE.name][connections].append(Lap(after, after.rps, after.p50_ms))
        before = after


def _measure(server: Server, connections: int, seconds: float) -> Result:
    result = server.load(connections, seconds)
    name = server.contender.name
    if not result.answers:
        raise NotMeasurable(f"{name} gave no right answer at {connections} connections: {result.problem}")
    trouble = f", {result.errors} errors ({result.problem})" if result.errors else ""
    print(f"  {name}, {connections} connections: {result.rps:,.0f} rps{trouble}", file=sys.stderr)
    return result


def verdicts(race: Race) -> list[Finding]:
    """What the budgets say about our rows."""
    found = [finding for one in race.standings if one.contender.ours for finding in _judge(one)]
    found += _against_peers(race)
    found += [Finding(row.name, row.title, None, note=why) for row, why in race.absent if row.ours]
    return found


def _against_peers(race: Race) -> list[Finding]:
    """Our row of the same wire beside each peer, in the same run: `mcp-modern` beside `sdk-modern`."""
    ours = {one.contender.name.partition("-")[2]: one for one in race.standings if one.contender.name[:4] == "mcp-"}
    found = []
    for peer in race.standings:
        project, _, wire = peer.contender.name.partition("-")
        own = next((row for name, row in ours.items() if name == wire), None)
        if project not in FASTER_THAN or own is None:
            continue
        found += [
            Finding(
                own.contender.name,
                f"{own.contender.title}: rate at {connections} connections, of {peer.contender.title}",
                own.ratio(connections) / peer.ratio(connections),
                "x",
                FASTER_THAN[project],
                at_least=True,
            )
            for connections in (16, 100)
        ]
    return found


def _judge(one: Standing) -> list[Finding]:
    name, title = one.contender.name, one.contender.title
    problem = next((result.problem for result in one.results if result.problem), "")
    found = [
        Finding(name, f"{title}: errors in all runs", one.errors, "", 0, note=problem),
        Finding(
            name,
            f"{title}: p50 at 1 connection, of the reference",
            one.p50_ratio(1),
            "x",
            SLOWER_THAN_REFERENCE,
        ),
        Finding(name, f"{title}: p99 at 16 connections, of its p50", one.tail(16), "x", TAIL),
    ]
    if one.contender.floor is not None:
        found += [
            Finding(
                name,
                f"{title}: rate at {connections} connections, of the reference",
                one.ratio(connections),
                "x",
                one.contender.floor,
                at_least=True,
            )
            for connections in (16, 100)
        ]
    if one.contender.cpu_us is not None:
        found.append(
            Finding(name, f"{title}: CPU per call at 16 connections", one.cpu_us(16), "µs", one.contender.cpu_us)
        )
    return found
