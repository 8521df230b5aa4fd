"""What the gateway costs besides a call under load: starting, reloading, memory, growth.

Each measurement starts gateways of its own in a fresh data directory, from outside and with real folders, and
answers with findings. `MEASURES` lists them by the name `--only` takes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import START_SECONDS, Site, base_variables, poll_pause
from benchmarks.environments import BIN, NotMeasurable
from benchmarks.findings import Finding
from benchmarks.gateway import Gateway, running_gateway
from benchmarks.processes import Child, free_port, pss_bytes, tree_pss_bytes
from benchmarks.servers import TOOLS, gateway, gateway_variables, many_tools, rest, write_namespace
from benchmarks.wire import WireError, ask, request

MEGABYTE = 1_000_000
FLAT = 1.25
"""A cost that grows by less than this counts as flat: a busy neighbour moves CPU time by as much."""

VERSION = '''\
from fastmcp.tools import tool


@tool
async def version() -> int:
    """Return the version of this file."""
    return {number}
'''


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often to measure."""

    seconds: float
    repeats: int
    fault_seconds: float


Measure = Callable[[Path, Effort], list[Finding]]


def _folders(count: int) -> Callable[[Site], None]:
    """The namespace `bench` and others like it, `count` in all."""

    def prepare(site: Site) -> None:
        write_namespace(site, "bench", {"echo.py": TOOLS})
        for number in range(1, count):
            write_namespace(site, f"other-{number}", {"echo.py": TOOLS})

    return prepare


# Dropping a folder


def drop(directory: Path, effort: Effort) -> list[Finding]:
    """From writing a folder to the first answered call of its tool."""
    with running_gateway(gateway("drop", "", rest("echo")), directory) as ours:
        plain = [_drop(ours, f"plain-{number}", {"echo.py": TOOLS}) for number in range(effort.repeats)]
        # The first one may download; it fills uv's cache. Each further text is a new environment to build.
        needing = [
            _drop(ours, f"needing-{number}", {"echo.py": TOOLS, "requirements.txt": f"httpx>=0.{20 + number}\n"})
            for number in range(effort.repeats + 1)
        ]
    return [
        Finding("drop", "first answer after dropping a folder", statistics.median(plain), "s", 0.15),
        Finding(
            "drop",
            "the same with requirements in uv's cache",
            statistics.median(needing[1:]),
            "s",
            0.9,
            note=f"the very first, cache as found: {needing[0]:.2f} s",
        ),
    ]


def _drop(ours: Gateway, namespace: str, files: dict[str, str]) -> float:
    started = time.monotonic()
    ours.write(namespace, files)
    ours.reload()
    ours.call_until_answered(namespace, "echo", namespace, text=namespace)
    return time.monotonic() - started


# Memory


def memory(directory: Path, effort: Effort) -> list[Finding]:
    """What an idle worker adds: forked from the warm parent, and in an environment of its own."""
    few, many = (_memory_of(directory / str(count), count) for count in (10, 50))
    return [
        Finding("memory", "idle worker, forked (PSS)", (many - few) / 40 / MEGABYTE, "MB", 6),
        Finding("memory", "gateway with 10 idle namespaces (PSS)", few / MEGABYTE, "MB"),
        _own_environment(directory / "own"),
    ]


def _memory_of(directory: Path, count: int) -> int:
    with running_gateway(gateway("memory", "", rest("echo"), prepare=_folders(count)), directory) as ours:
        for number in range(1, count):
            ours.call_until_answered(f"other-{number}", "echo", "x", text="x")
        return tree_pss_bytes(ours.pid)


def _own_environment(directory: Path) -> Finding:
    with running_gateway(gateway("memory", "", rest("echo")), directory) as ours:
        _drop(ours, "own", {"echo.py": TOOLS, "requirements.txt": "idna\n"})
        pid = ours.workers().get("own")
        if pid is None:
            raise NotMeasurable("the gateway names no worker for a namespace that has just answered")
        value = pss_bytes([pid]) / MEGABYTE
    return Finding("memory", "idle worker in its own environment (PSS)", value, "MB", 30)


# Starting and reloading


def up(directory: Path, effort: Effort) -> list[Finding]:
    """`tooldock up` on a data directory that is already prepared, to the first good health answer."""
    site = Site(free_port(), directory, "bench-token-of-this-run", "bench-manager-token-of-this-run")
    write_namespace(site, "bench", {"echo.py": TOOLS})
    times = [_up(site) for _ in range(effort.repeats + 1)][1:]
    note = f"{min(times):.2f} to {max(times):.2f} s in {len(times)} runs"
    return [Finding("up", "`tooldock up` until ready", statistics.median(times), "s", 1.0, note=note)]


def _up(site: Site) -> float:
    command = [str(BIN / "tooldock"), "up", "--data-dir", str(site.directory / "data")]
    command += ["--core-port", str(site.port)]
    variables = {**base_variables(), **gateway_variables(site), "MANAGER_PORT": str(free_port())}
    started = time.monotonic()
    with Child(command, variables, site.directory / "output.log") as child:
        while not _healthy(site.port):
            if child.ended() or time.monotonic() - started > START_SECONDS:
                raise NotMeasurable(f"`tooldock up` did not become ready: {child.last_words()}")
            time.sleep(poll_pause(started))
        return time.monotonic() - started


def _healthy(port: int) -> bool:
    try:
        return ask(port, request(port, "GET", "/health")).status == 200
    except (OSError, WireError):
        return False


def reload(directory: Path, effort: Effort) -> list[Finding]:
    """A reload that finds one of two hundred namespaces changed."""
    row = gateway("reload", "", rest("echo"), prepare=_folders(200))
    with running_gateway(row, directory) as ours:
        times = [_change_one(ours, number) for number in range(effort.repeats + 1)][1:]
    return [
        Finding("reload", "reload of 200 namespaces, one changed", statistics.median(times), "s", 0.3),
    ]


def _change_one(ours: Gateway, number: int) -> float:
    ours.write("bench", {"version.py": VERSION.format(number=number)})
    started = time.monotonic()
    ours.reload()
    elapsed = time.monotonic() - started
    answer = ours.call("bench", "version")
    if answer.status != 200 or answer.json() != number:
        raise NotMeasurable(f"after the reload the old code still answered: {answer.body[:200]!r}")
    return elapsed


# Growth


def namespaces(directory: Path, effort: Effort) -> list[Finding]:
    """A call's cost with one namespace and with five hundred."""
    return _grown("namespaces", "500 namespaces", _folders(1), _folders(500), directory, effort)


def tools(directory: Path, effort: Effort) -> list[Finding]:
    """A call's cost with three tools in its namespace and with five hundred."""
    return _grown("tools", "500 tools in the namespace", many_tools(1), many_tools(500), directory, effort)


def _grown(
    name: str,
    title: str,
    small: Callable[[Site], None],
    large: Callable[[Site], None],
    directory: Path,
    effort: Effort,
) -> list[Finding]:
    build = rest("echo")
    with (
        running_gateway(gateway(name, "", build, prepare=small), directory / "small") as one,
        running_gateway(gateway(name, "", build, prepare=large), directory / "large") as many,
    ):
        cpu: tuple[list[float], list[float]] = ([], [])
        p50: tuple[list[float], list[float]] = ([], [])
        for _ in range(3):
            for side, ours in enumerate((one, many)):
                cpu[side].append(ours.server.load(16, effort.seconds / 2).server_cpu_us or 0.0)
                p50[side].append(ours.server.load(1, effort.seconds / 2).p50_ms)
    cpus = [statistics.median(values) for values in cpu]
    waits = [statistics.median(values) for values in p50]
    if not all((*cpus, *waits)):
        raise NotMeasurable("a run had no right answers")
    return [
        Finding(
            name,
            f"CPU per call with {title}",
            cpus[1] / cpus[0],
            "x",
            FLAT,
            note=f"{cpus[0]:.0f} to {cpus[1]:.0f} µs",
        ),
        Finding(
            name,
            f"p50 with {title}",
            waits[1] / waits[0],
            "x",
            FLAT,
            note=f"{waits[0]:.2f} to {waits[1]:.2f} ms",
        ),
    ]


def waiting(directory: Path, effort: Effort) -> list[Finding]:
    """A tool that waits a tenth of a second: alone, and with a hundred callers at once."""
    with running_gateway(gateway("waiting", "", rest("slow")), directory) as ours:
        alone = ours.server.load(1, max(effort.seconds, 2.0))
        crowd = ours.server.load(100, max(effort.seconds, 2.0))
    if not alone.answers or not crowd.answers:
        raise NotMeasurable(f"a run had no right answers: {alone.problem or crowd.problem}")
    return [
        Finding("waiting", "100 ms async tool, one caller (p50)", alone.p50_ms, "ms"),
        Finding(
            "waiting",
            "100 ms async tool, 100 callers at once (p99), of one caller's",
            crowd.p99_ms / alone.p50_ms,
            "x",
            note=f"p50 {crowd.p50_ms:.0f} ms, p99 {crowd.p99_ms:.0f} ms, {crowd.errors} errors",
        ),
    ]


MEASURES: dict[str, Measure] = {
    "drop": drop,
    "memory": memory,
    "up": up,
    "reload": reload,
    "namespaces": namespaces,
    "tools": tools,
    "waiting": waiting,
}
