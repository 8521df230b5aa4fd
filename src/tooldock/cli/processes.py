"""The processes that use a data directory, told apart from those that only have a number in common with them.

Each holds a lock on a file of its run directory for as long as it lives, and has its number written in it.
"""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tooldock.paths import Paths

_PIPES = "stdio-*"


def holder(paths: Paths, role: str) -> int | None:
    """The process that runs this role for the data directory; None when there is none."""
    return _holder(paths.run_dir(role) / "lock")


def hang_up(paths: Paths) -> int:
    """Have every `tooldock stdio` of the data directory read its folder again. Returns how many were told."""
    told = 0
    for run in sorted(paths.run_dir("core").parent.glob(_PIPES)):
        if not (run / f"{run.name}.json").exists():
            continue  # not there yet: before it listens for the signal, the signal would end it
        pid = _holder(run / "lock")
        if pid is None or run.name != f"stdio-{pid}" or not _has_open(pid, run / "lock") or not _handles_hangup(pid):
            continue
        try:
            os.kill(pid, signal.SIGHUP)
        except OSError:
            continue  # gone meanwhile, or somebody else's
        told += 1
    return told


def _holder(lock: Path) -> int | None:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdecimal() else None
    finally:
        os.close(descriptor)
    return None


def _has_open(pid: int, file: Path) -> bool:
    """Whether it is this process that holds it, where the system tells: in a container on the same directory the
    number may be another's."""
    if not Path("/proc/self/fd").is_dir():
        return True
    try:
        opened = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False  # gone, or somebody else's
    return any(_is_same(file, entry) for entry in opened)


def _is_same(file: Path, other: Path) -> bool:
    try:
        return file.samefile(other)
    except OSError:
        return False  # closed meanwhile


def _handles_hangup(pid: int) -> bool:
    """Whether the signal would be heard rather than end the process, where the system tells."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGHUP - 1) & 1)
    except (OSError, ValueError, StopIteration, IndexError):
        return True
