"""What MCP costs besides calls: long lists, many idle sessions, many open streams, starting over a pipe."""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.contender import Site, base_variables
from benchmarks.environments import BIN, NotMeasurable
from benchmarks.findings import Finding
from benchmarks.gateway import Gateway, running_gateway
from benchmarks.measures import Effort, Measure
from benchmarks.processes import cpu_seconds, pss_bytes
from benchmarks.servers import (
    MODERN,
    TOOLS,
    gateway,
    gateway_headers,
    many_tools,
    open_session,
    rest,
    write_namespace,
)
from benchmarks.wire import LOOPBACK, AnswerReader, request

SESSIONS = 10_000
STREAMS = 1_000
STREAM_SECONDS = 32.0
"""Long enough for two rounds of keep-alives."""


class _Line:
    """One kept connection, asked again and again."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), timeout=30)
        self._reader = AnswerReader()

    def ask(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        while True:
            answer = self._reader.feed(self._socket.recv(1 << 20))
            if answer is not None:
                if answer.status != 200:
                    raise NotMeasurable(f"status {answer.status}: {answer.body[:200]!r}")
                return answer.body

    def close(self) -> None:
        self._socket.close()


def listing(directory: Path, effort: Effort) -> list[Finding]:
    """`tools/list` of 500 tools, one caller."""
    row = gateway("listing", "", rest("echo"), prepare=many_tools(500))
    with running_gateway(row, directory) as ours:
        site = ours.site
        session = open_session(site, gateway_headers(site))
        plain = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        envelope = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
        modern = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/list",
            **gateway_headers(site),
        }
        found = []
        for title, headers, body in (
            (MODERN, modern, json.dumps(envelope).encode()),
            ("2025-11-25", session, plain),
        ):
            times, size = _listed(ours, headers, body, effort)
            found.append(
                Finding(
                    "listing",
                    f"MCP {title}: tools/list of 500 tools (p50)",
                    statistics.median(times) * 1000,
                    "ms",
                    5,
                    note=f"{size / 1000:.0f} kB",
                )
            )
    return found


def _listed(ours: Gateway, headers: Mapping[str, str], body: bytes, effort: Effort) -> tuple[list[float], int]:
    line = _Line(ours.site.port)
    data = request(ours.site.port, "POST", "/mcp", headers, body)
    times = []
    try:
        for _ in range(20 * effort.repeats):
            started = time.perf_counter()
            answer = line.ask(data)
            times.append(time.perf_counter() - started)
    finally:
        line.close()
    count = len(json.loads(answer)["result"]["tools"])
    if count != 500:
        raise NotMeasurable(f"{count} tools were listed, not 500")
    return times, len(answer)


def idle_sessions(directory: Path, effort: Effort) -> list[Finding]:
    """Memory of core with ten thousand sessions that were opened and left."""
    with running_gateway(gateway("idle-sessions", "", rest("echo")), directory) as ours:
        open_session(ours.site, gateway_headers(ours.site))
        before = pss_bytes([ours.pid])
        started = time.monotonic()
        for _ in range(SESSIONS):
            open_session(ours.site, gateway_headers(ours.site))
        seconds = time.monotonic() - started
        after = pss_bytes([ours.pid])
    note = f"{SESSIONS:,} sessions opened in {seconds:.0f} s"
    return [
        Finding(
            "idle-sessions", "an idle MCP session (PSS of core)", (after - before) / SESSIONS / 1000, "kB", 5, note=note
        )
    ]


def streams(directory: Path, effort: Effort) -> list[Finding]:
    """A thousand open event streams with nothing to say."""
    with running_gateway(gateway("streams", "", rest("echo")), directory) as ours, ExitStack() as stack:
        site = ours.site
        before = pss_bytes([ours.pid])
        open_streams = [stack.enter_context(_stream(site)) for _ in range(STREAMS)]
        memory = pss_bytes([ours.pid]) - before
        for one in open_streams:
            one.setblocking(False)
            _drain(one)
        cpu = cpu_seconds(ours.pid)
        started = time.monotonic()
        time.sleep(STREAM_SECONDS)
        share = (cpu_seconds(ours.pid) - cpu) / (time.monotonic() - started)
        kept = sum(1 for one in open_streams if b": " in _drain(one))
    if kept != STREAMS:
        raise NotMeasurable(f"only {kept} of {STREAMS} streams were kept alive")
    note = f"{memory / STREAMS / 1000:.1f} kB a stream with its session"
    return [Finding("streams", "1,000 open event streams, share of a core", 100 * share, "%", 10, note=note)]


def _stream(site: Site) -> socket.socket:
    headers = {**open_session(site, gateway_headers(site)), "Accept": "text/event-stream"}
    connection = socket.create_connection((LOOPBACK, site.port), timeout=10)
    connection.sendall(request(site.port, "GET", "/mcp", headers))
    head = connection.recv(1 << 16)
    if b" 200 " not in head[:20]:
        raise NotMeasurable(f"a stream was answered with {head[:200]!r}")
    return connection


def _drain(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except BlockingIOError:
        return b""


def pipe(directory: Path, effort: Effort) -> list[Finding]:
    """`tooldock stdio` from the start of the process to the first answered call."""
    site = Site(0, directory, "", "")
    write_namespace(site, "bench", {"echo.py": TOOLS})
    times = [_over_pipe(directory / "data") for _ in range(effort.repeats + 1)]
    hellos, calls = [one[0] for one in times[1:]], [one[1] for one in times[1:]]
    return [
        Finding("pipe", "`tooldock stdio` to the answer to initialize", statistics.median(hellos), "s", 0.7),
        Finding("pipe", "`tooldock stdio` to the first answered call", statistics.median(calls), "s", 0.7),
    ]


def _over_pipe(data: Path) -> tuple[float, float]:
    command = [str(BIN / "tooldock"), "stdio", "--namespace", "bench", "--data-dir", str(data)]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}},
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}}
    started = time.monotonic()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=base_variables()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in (hello, ready, call)))
        process.stdin.flush()
        process.stdout.readline()
        greeted = time.monotonic() - started
        answer = process.stdout.readline()
        called = time.monotonic() - started
        process.stdin.close()
        process.wait(30)
    if b'"isError":false' not in answer:
        raise NotMeasurable(f"the call was answered with {answer[:300]!r}")
    return greeted, called


SESSION_MEASURES: dict[str, Measure] = {
    "listing": listing,
    "idle-sessions": idle_sessions,
    "streams": streams,
    "pipe": pipe,
}
