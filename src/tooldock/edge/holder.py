"""Which process listens on a port, as far as this machine lets us see (Linux: /proc; elsewhere nothing)."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"
_INTERPRETERS = ("python", "node", "ruby", "perl", "java")


def holder(port: int) -> str | None:
    """`name (pid 123)`; None when it cannot be told."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return None
    for process in _PROC.iterdir():
        if process.name.isdigit() and _has_open(process, sockets):
            return f"{_command(process)} (pid {process.name})"
    return None


def _inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _has_open(process: Path, sockets: set[str]) -> bool:
    try:
        return any(os.readlink(handle) in sockets for handle in (process / "fd").iterdir())
    except OSError:
        # Somebody else's process, or one that is just ending.
        return False


def _command(process: Path) -> str:
    """The program, and for an interpreter what it runs. No further arguments: they may hold a secret."""
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "a process"
    name = os.path.basename(words[0]) or "a process"
    if not name.startswith(_INTERPRETERS) or len(words) < 2:
        return name
    if words[1] == "-m" and len(words) > 2:
        return f"{name} -m {words[2]}"
    return name if words[1].startswith("-") else f"{name} {os.path.basename(words[1])}"
