"""A contender, and how it becomes a running server that has answered correctly.

What an answer must look like is learnt from the server itself: the contender's checker reads the text out of
two probes, and from then on every answer must equal the probe's, byte for byte, but for its payload. Knows no
wire and no particular server; the rows are in `servers`.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import Environment, NotMeasurable
from benchmarks.load import PAYLOAD_LENGTH, Exchange, Load, Result, Template, run_apart
from benchmarks.processes import Child, cpu_seconds, free_port, tree_pss_bytes
from benchmarks.wire import WireError, ask

START_SECONDS = 30.0
QUIET_WINDOW = 0.4
QUIET_SHARE = 0.06
"""A server counts as idle when it used less than this share of a core for one window."""
WARMUP = 0.5


@dataclass(frozen=True, slots=True)
class Site:
    """Where one server of this run lives."""

    port: int
    directory: Path
    token: str
    """The caller's credential; made for this run and known to nobody else."""
    manager_token: str


Builder = Callable[[Site, int, bytes], list[bytes]]
"""(site, callers, payload) to a request each, after whatever handshake the wire wants."""


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    title: str
    command: Callable[[Site], list[str]]
    build: Builder
    read: Callable[[Any], object]
    """The echoed text in a decoded answer."""
    environment: Environment | None = None
    """The scratch environment it runs in; None for the project's own."""
    variables: Callable[[Site], Mapping[str, str]] = lambda site: {}
    prepare: Callable[[Site], None] = lambda site: None
    """What has to be on disk before it starts."""
    ours: bool = False
    """Whether the budgets apply to it."""
    floor: float | None = None
    """The share of the reference's rate it has to reach at 16 and at 100 connections."""
    cpu_us: float | None = None
    """The CPU time one call may cost at 16 connections, in microseconds."""


class Server:
    """A contender that runs and has answered correctly."""

    def __init__(self, contender: Contender, site: Site, child: Child) -> None:
        self.contender = contender
        self.site = site
        self.child = child
        self.start_seconds = 0.0
        self.idle_bytes = 0
        self._exchanges: list[Exchange] = []

    def wait_until_answering(self, started: float) -> None:
        """Ask until the right answer comes; the wait from the start of the process is a result of its own."""
        while True:
            try:
                self._learn(1)
                break
            except (OSError, WireError, NotReady) as error:
                self._give_up_late(started, error)
            time.sleep(poll_pause(started))
        self.start_seconds = time.monotonic() - started
        self._settle()
        self.idle_bytes = tree_pss_bytes(self.child.pid)

    def _settle(self) -> None:
        """Wait until it is idle: what a server still does after its first answer is not a cost of calls."""
        deadline = time.monotonic() + START_SECONDS
        before = cpu_seconds(self.child.pid)
        while time.monotonic() < deadline:
            time.sleep(QUIET_WINDOW)
            now = cpu_seconds(self.child.pid)
            if now - before <= QUIET_SHARE * QUIET_WINDOW:
                return
            before = now
        raise NotMeasurable(f"{self.contender.name} was still busy {START_SECONDS:g} s after its first answer")

    def _give_up_late(self, started: float, error: Exception) -> None:
        name = self.contender.name
        if self.child.ended():
            raise NotMeasurable(f"{name} ended while starting: {self.child.last_words()}")
        if time.monotonic() - started > START_SECONDS:
            raise NotMeasurable(f"{name} gave no right answer within {START_SECONDS:g} s: {error}")

    def _learn(self, callers: int) -> None:
        marks = (_payload(), _payload())
        requests = self.contender.build(self.site, callers, marks[0])
        templates = [Template.cut(one, marks[0]) for one in requests]
        answers = [self._probe(templates[0].render(mark), mark) for mark in marks]
        expected = [Template.cut(body, mark) for body, mark in zip(answers, marks, strict=True)]
        exact = expected[0] == expected[1]
        if not exact:
            name = self.contender.name
            print(f"  {name}: two answers differ in more than their text; only that is checked", file=sys.stderr)
        self._exchanges = [Exchange(template, expected[0], exact) for template in templates]

    def _probe(self, data: bytes, mark: bytes) -> bytes:
        answer = ask(self.site.port, data)
        if answer.status != 200:
            raise NotReady(f"status {answer.status}: {answer.body[:200]!r}")
        try:
            text = self.contender.read(answer.json())
        except (ValueError, LookupError, TypeError) as error:
            raise NotReady(f"an answer of another shape: {answer.body[:200]!r}") from error
        if text != mark.decode("ascii"):
            raise NotReady(f"the wrong text: {answer.body[:200]!r}")
        return answer.body

    def load(self, connections: int, seconds: float, **options: Any) -> Result:
        """One measured run in a load process of its own."""
        if len(self._exchanges) < connections:
            self._learn(connections)
        exchanges = tuple(self._exchanges[:connections])
        # Requests without a session are all alike; the load process need not be told a hundred times.
        if all(one == exchanges[0] for one in exchanges):
            exchanges = exchanges[:1]
        options.setdefault("warmup", WARMUP)
        return run_apart(Load(self.site.port, connections, exchanges, seconds, server=self.child.pid, **options))


def poll_pause(started: float) -> float:
    """How long to wait before asking again: a fiftieth of the wait so far, so that asking costs little."""
    return max(0.002, (time.monotonic() - started) / 50)


class NotReady(Exception):
    """The server answers, but not yet with what was asked for."""


def _payload() -> bytes:
    return secrets.token_hex(PAYLOAD_LENGTH // 2).encode("ascii")


@contextmanager
def running(contender: Contender, directory: Path) -> Iterator[Server]:
    """Start a contender in a directory of its own, wait for its first right answer, end it afterwards."""
    if contender.environment is not None:
        contender.environment.ensure()
    directory.mkdir(parents=True, exist_ok=True)
    site = Site(free_port(), directory, secrets.token_urlsafe(24), secrets.token_urlsafe(24))
    contender.prepare(site)
    command = contender.command(site)
    if not Path(command[0]).exists():
        raise NotMeasurable(f"{contender.name}: {Path(command[0]).name} is not installed")
    variables = {**base_variables(), **contender.variables(site)}
    started = time.monotonic()
    with Child(command, variables, directory / "output.log") as child:
        server = Server(contender, site, child)
        server.wait_until_answering(started)
        yield server


def base_variables() -> dict[str, str]:
    """What every server inherits: how to find programs and the package index, nothing that would tune it."""
    kept = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE")
    prefixes = ("UV_", "PIP_")
    return {
        name: value
        for name, value in os.environ.items()
        if name in kept or name.startswith(prefixes) or name.lower().endswith("_proxy")
    }
