"""Child processes that are owned and ended, and what /proc says about them and their descendants.

Linux only: CPU time and memory come from /proc. A child leads a session of its own, so a Ctrl-C on the
terminal reaches only the benchmark, which then ends its children in order.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.wire import LOOPBACK

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 8.0
"""How long a server may take to end after SIGTERM before it is killed."""


class Process(NamedTuple):
    pid: int
    parent: int
    ticks: int
    """User and system time so far, in clock ticks."""
    born: int
    """Start time in ticks since boot; with the pid it names a process for good."""


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and brackets; the fields after its last bracket do not.
    fields = text[text.rindex(")") + 2 :].split()
    if fields[0] == "Z":
        return None
    return Process(pid, int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))


def tree(root: int) -> list[Process]:
    """The living process `root` and all its living descendants."""
    children: dict[int, list[Process]] = {}
    found: list[Process] = []
    for name in os.listdir("/proc"):
        process = _read(int(name)) if name.isdigit() else None
        if process is None:
            continue
        children.setdefault(process.parent, []).append(process)
        if process.pid == root:
            found.append(process)
    for process in found:
        found.extend(children.get(process.pid, ()))
    return found


def cpu_seconds(root: int) -> float:
    """CPU time spent so far by a process and its descendants."""
    return sum(process.ticks for process in tree(root)) / TICKS_PER_SECOND


def pss_bytes(pids: Iterable[int]) -> int:
    """Proportional memory: a page shared by n processes counts as one nth in each."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return total * 1024


def tree_pss_bytes(root: int) -> int:
    return pss_bytes(process.pid for process in tree(root))


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_gone(process: Process, seconds: float) -> bool:
    """Wait until a process has ended; works for processes that are not our children."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if _read(process.pid) is None:
            return True
        readable, _, _ = select.select([descriptor], [], [], seconds)
        return bool(readable)
    finally:
        os.close(descriptor)


class Child:
    """One started program; leaving the context ends it and everything it started."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        return self._process.poll() is not None

    def last_words(self) -> str:
        """The last line the program printed, for an error message; all of it goes to the terminal."""
        text = self._log.read_text(encoding="utf-8", errors="replace").strip()
        print(text[-4000:], file=sys.stderr)
        return text.splitlines()[-1] if text else "it printed nothing"

    def stop(self) -> list[Process]:
        """End the program; the answer is what of its tree outlived it and had to be killed."""
        family = tree(self.pid)
        if not self.ended():
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        leftovers = [one for one in family if one.pid != self.pid and not wait_gone(one, 1.0)]
        for process in leftovers:
            current = _read(process.pid)
            if current is not None and current.born == process.born:
                os.kill(process.pid, signal.SIGKILL)
        return leftovers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
