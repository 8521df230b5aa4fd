"""A closed-loop load generator: N connections, each sends its next request when the last one is answered.

Runs in a process of its own (`python -m benchmarks.load`: a `Load` as JSON on stdin, a `Result` as JSON on
stdout), so that what it costs is not charged to anybody else. Requests are rendered before the run except
for a payload that is unique to each one; every answer must be, byte for byte, the expected one with that
payload, so an answer that belongs to another caller is caught. Bounded in count and in time. It knows bytes,
no server.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import secrets
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import uvloop

from benchmarks.processes import cpu_seconds
from benchmarks.wire import LOOPBACK, Answer, AnswerReader, WireError

PAYLOAD_LENGTH = 20
LIVES = 100
"""How often a connection that was lost is opened again before it gives up."""
MOST_REFUSALS = 20_000
"""How many answers other than 200 are kept one by one; all of them are counted."""


@dataclass(frozen=True, slots=True)
class Template:
    """Bytes with holes for the payload, kept as the pieces around the holes."""

    pieces: tuple[bytes, ...]

    @classmethod
    def cut(cls, text: bytes, payload: bytes) -> Template:
        return cls(tuple(text.split(payload)))

    def render(self, payload: bytes) -> bytes:
        return payload.join(self.pieces)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is sent and what must come back. Without `exact` an answer need only hold its payload."""

    request: Template
    answer: Template
    exact: bool = True

    def accepts(self, body: bytes, payload: bytes) -> bool:
        return body == payload.join(self.answer.pieces) if self.exact else payload in body


@dataclass(frozen=True, slots=True)
class Load:
    """One run. Connection i uses exchange i modulo their number: a session each, where there are sessions."""

    port: int
    connections: int
    exchanges: tuple[Exchange, ...]
    seconds: float
    warmup: float = 0.5
    limit: int = 5_000_000
    """The most requests that are sent, warm-up included."""
    drain: float = 10.0
    """How long to wait for outstanding answers after the last request was sent."""
    server: int | None = None
    """The pid whose process tree is charged with the CPU time of the measured window."""
    samples: str | None = None
    """A file for the (sent, answered) times of all good answers, as pairs of C doubles."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer with a status other than 200."""

    sent: float
    answered: float
    status: int
    retry_after: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """Rates and latencies belong to the measured window; problems are counted from the first request on."""

    answers: int
    seconds: float
    rps: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    server_cpu_us: float | None
    client_cpu: float
    """Share of one core the load process used; near 1.0 means that it, not the server, set the pace."""
    sent: int
    statuses: dict[str, int]
    wrong: int
    """Answers with status 200 and another body than the one asked for."""
    lost: int
    """Requests whose connection ended before the answer, or that could not be sent."""
    hung: int
    """Requests without an answer when the drain time was over."""
    problem: str | None
    """The first thing that went wrong, in words."""
    refusals: tuple[Refusal, ...] = field(default=())

    @property
    def errors(self) -> int:
        refused = sum(count for status, count in self.statuses.items() if status != "200")
        return refused + self.wrong + self.lost + self.hung


class _Run:
    """State shared by the connections of one run."""

    def __init__(self, load: Load) -> None:
        self.load = load
        nonce = secrets.token_hex(4).encode("ascii")
        self.payloads = (nonce + b"%012d" % number for number in itertools.count())
        self.budget = load.limit
        self.stopping = False
        self.measuring = False
        self.latencies = array("d")
        self.samples: array[float] | None = array("d") if load.samples else None
        self.statuses: Counter[int] = Counter()
        self.sent = self.wrong = self.lost = 0
        self.problem: str | None = None
        self.refusals: list[Refusal] = []
        self.open: set[_Connection] = set()
        self.done = asyncio.Event()

    def report(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem

    def refuse(self, sent: float, now: float, answer: Answer) -> None:
        self.report(f"status {answer.status}: {answer.body[:200]!r}")
        if len(self.refusals) < MOST_REFUSALS:
            self.refusals.append(Refusal(sent, now, answer.status, answer.header("retry-after")))

    def leave(self, connection: _Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self.done.set()


class _Connection(asyncio.Protocol):
    """One caller: sends, waits, checks, sends again."""

    def __init__(self, run: _Run, exchange: Exchange) -> None:
        self._run = run
        self._exchange = exchange
        self._reader = AnswerReader()
        self._transport: asyncio.Transport | None = None
        self._payload: bytes | None = None
        self._sent_at = 0.0
        self._lives = LIVES
        self._opening: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        return self._payload is not None

    def open(self) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, LOOPBACK, self._run.load.port)
        except OSError as error:
            self._opening = None
            self._run.sent += 1
            self._lose(f"cannot connect: {error}")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._opening = None
        self._reader = AnswerReader()
        self._send()

    def _send(self) -> None:
        run = self._run
        if run.stopping or run.budget <= 0:
            self.end()
            return
        run.budget -= 1
        run.sent += 1
        payload = self._payload = next(run.payloads)
        data = payload.join(self._exchange.request.pieces)
        self._sent_at = time.monotonic()
        self._transport.write(data)  # type: ignore[union-attr]  # only called while connected

    def data_received(self, data: bytes) -> None:
        try:
            answer = self._reader.feed(data)
        except WireError as error:
            self._drop(str(error))
            return
        if answer is None:
            return
        payload = self._payload
        if payload is None:
            self._drop("an answer came that nobody asked for")
            return
        self._take(answer, payload)
        self._payload = None
        if answer.keep_alive:
            self._send()
        else:
            self._drop(None)

    def _take(self, answer: Answer, payload: bytes) -> None:
        now = time.monotonic()
        run = self._run
        run.statuses[answer.status] += 1
        if answer.status != 200:
            run.refuse(self._sent_at, now, answer)
            return
        if not self._exchange.accepts(answer.body, payload):
            run.wrong += 1
            run.report(f"sent {payload!r}, got {answer.body[:200]!r}")
            return
        if run.measuring:
            run.latencies.append(now - self._sent_at)
        if run.samples is not None:
            run.samples.extend((self._sent_at, now))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._lose("the server closed the connection" if exc is None else f"connection lost: {exc}")

    def _drop(self, problem: str | None) -> None:
        """Close from our side and go on with a new connection."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._lose(problem)

    def _lose(self, problem: str | None) -> None:
        # A server may close an idle connection; it is a loss only when a request was on its way.
        if problem is not None and (self._payload is not None or problem.startswith("cannot")):
            self._run.lost += 1
            self._run.report(problem)
            self._lives -= 1
        self._payload = None
        if self._run.stopping or self._lives <= 0:
            self.end()
        else:
            self.open()

    def end(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._run.leave(self)


async def drive(load: Load) -> Result:
    """Carry out one load in the running event loop."""
    run = _Run(load)
    connections = [_Connection(run, load.exchanges[number % len(load.exchanges)]) for number in range(load.connections)]
    run.open.update(connections)
    for connection in connections:
        connection.open()
    await _until_done(run, load.warmup)
    server_before = cpu_seconds(load.server) if load.server else 0.0
    client_before = time.process_time()
    started = time.monotonic()
    run.measuring = True
    await _until_done(run, load.seconds)
    run.measuring = False
    elapsed = time.monotonic() - started
    client_cpu = (time.process_time() - client_before) / elapsed
    server_cpu = cpu_seconds(load.server) - server_before if load.server else None
    run.stopping = True
    await _until_done(run, load.drain)
    hung = sum(connection.waiting for connection in run.open)
    for connection in list(run.open):
        connection.end()
    return _summary(run, elapsed, server_cpu, client_cpu, hung)


async def _until_done(run: _Run, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await run.done.wait()
    except TimeoutError:
        pass  # the usual end of a phase; an early one means that every connection has left


def _summary(run: _Run, elapsed: float, server_cpu: float | None, client_cpu: float, hung: int) -> Result:
    if run.samples is not None and run.load.samples:
        with Path(run.load.samples).open("wb") as output:
            run.samples.tofile(output)
    ordered = sorted(run.latencies)
    count = len(ordered)
    if hung:
        run.report(f"{hung} requests had no answer after {run.load.drain:g} s")
    return Result(
        answers=count,
        seconds=elapsed,
        rps=count / elapsed,
        p50_ms=quantile(ordered, 0.50) * 1e3,
        p90_ms=quantile(ordered, 0.90) * 1e3,
        p99_ms=quantile(ordered, 0.99) * 1e3,
        server_cpu_us=server_cpu * 1e6 / count if server_cpu is not None and count else None,
        client_cpu=client_cpu,
        sent=run.sent,
        statuses={str(status): number for status, number in sorted(run.statuses.items())},
        wrong=run.wrong,
        lost=run.lost,
        hung=hung,
        problem=run.problem,
        refusals=tuple(run.refusals),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the sorted values do not exceed; 0.0 of nothing."""
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def run_apart(load: Load) -> Result:
    """Carry out one load in a process of its own."""
    bound = load.warmup + load.seconds + load.drain + 30
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=_encode(load),
        capture_output=True,
        timeout=bound,
        check=False,
        start_new_session=True,
        cwd=Path(__file__).resolve().parent.parent,
    )
    if finished.returncode != 0:
        raise RuntimeError(f"the load process failed: {finished.stderr.decode(errors='replace')[-2000:]}")
    fields: dict[str, Any] = json.loads(finished.stdout)
    fields["refusals"] = tuple(Refusal(**refusal) for refusal in fields["refusals"])
    return Result(**fields)


def _encode(load: Load) -> bytes:
    return json.dumps(asdict(load), default=_latin).encode("ascii")


def _latin(value: object) -> str:
    # JSON has no bytes; latin-1 maps each byte to one character and back.
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise TypeError(f"{type(value).__name__} cannot be sent to the load process")


def _decode(text: bytes) -> Load:
    fields: dict[str, Any] = json.loads(text)
    fields["exchanges"] = tuple(
        Exchange(_template(one["request"]), _template(one["answer"]), one["exact"]) for one in fields["exchanges"]
    )
    return Load(**fields)


def _template(fields: dict[str, list[str]]) -> Template:
    return Template(tuple(piece.encode("latin-1") for piece in fields["pieces"]))


def main() -> None:
    load = _decode(sys.stdin.buffer.read())
    # A collection in the middle of the run would be counted as the server's latency.
    gc.disable()
    print(json.dumps(asdict(uvloop.run(drive(load)))))


if __name__ == "__main__":
    main()
