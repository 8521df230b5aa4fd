"""What may be thrown away from a data directory, also while a gateway runs on it.

Kept are, for every namespace, the version its catalogue names (served now, or last known to work) and all
that somebody holds a lock on. What is younger than `GRACE_SECONDS` is left alone, because a gateway may be
about to use it and says so only when it is done. A namespace's own state, secrets and configuration are never
looked at.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tooldock.cli.gateway import alive, running_core
from tooldock.manager.housekeeping import expired_logs
from tooldock.paths import Paths
from tooldock.sources import catalogue

Kind = Literal["snapshot", "environment", "runtime", "scratch", "log"]

GRACE_SECONDS = 600.0

_UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.(\d+)")


@dataclass(frozen=True, slots=True)
class Item:
    """One file or directory nobody needs any more."""

    kind: Kind
    path: Path
    size: int


class Garbage:
    def __init__(self, paths: Paths, *, retention_days: int, now: Callable[[], float] = time.time) -> None:
        self._paths = paths
        self._retention_days = retention_days
        self._now = now

    def find(self) -> list[Item]:
        """What would be removed; changes nothing."""
        found = [
            *(("snapshot", path) for path in self._snapshots()),
            *(("environment", path) for path in self._environments()),
            *(("runtime", path) for path in self._runtimes()),
            *(("scratch", path) for path in self._scratch()),
            *(("log", path) for path in self._logs()),
        ]
        return [Item(kind, path, size_of(path)) for kind, path in found]  # type: ignore[arg-type]

    def remove(self) -> list[Item]:
        """Remove it; what somebody took into use since, or what cannot be removed, is not in the answer."""
        found = self.find()
        kinds = {item.kind for item in found}
        for item in found:
            if item.kind in ("snapshot", "scratch", "log"):
                _delete(item.path)
        if kinds & {"environment", "runtime"}:
            self._collect()
        return [item for item in found if not os.path.lexists(item.path)]

    # Snapshots.

    def _snapshots(self) -> Iterator[Path]:
        for folder in _directories(self._paths.state / "snapshots"):
            record = self._paths.state / "catalogue" / f"{folder.name}.json"
            if self._young(record):
                continue  # just replaced: the version before may still be finishing its calls
            known = catalogue.load(record)
            if record.exists() and (known is None or not known.worker):
                continue  # written by another release; what it refers to is not ours to judge
            for path in _directories(folder):
                if self._young(path) or (known is not None and path.name == known.revision):
                    continue
                unfinished = _UNFINISHED.fullmatch(path.name)
                if unfinished and alive(int(unfinished[1])):
                    continue
                if known is None and self._served_without_record(folder.name):
                    continue
                yield path

    def _served_without_record(self, namespace: str) -> bool:
        """Without a catalogue nothing tells which version is in use: keep all while somebody may use one."""
        return running_core(self._paths) is not None and self._paths.namespace(namespace).is_dir()

    # Environments and runtimes.

    def _environments(self) -> Iterator[Path]:
        in_use = self._keys_in_use()
        for path in _directories(self._paths.venvs):
            if path.name.startswith(".") or path.name in in_use or self._young(path):
                continue
            if _is_free(self._paths.environment_lock(path.name)):
                yield path

    def _keys_in_use(self) -> set[str]:
        keys: set[str] = set()
        for file in (self._paths.state / "catalogue").glob("*.json"):
            try:
                record = json.loads(file.read_bytes())
                keys |= {str(record["environment"]), str(record.get("worker", ""))}
            except (OSError, ValueError, KeyError, TypeError):
                continue  # removed, or damaged; then its namespace is loaded afresh
        return keys

    def _runtimes(self) -> Iterator[Path]:
        in_use = self._keys_in_use()
        for path in _directories(self._paths.runtimes):
            if path.name.startswith(".") or path.name in in_use or self._young(path):
                continue
            if _is_free(path.with_name(f"{path.name}.lock")):
                yield path

    def _collect(self) -> None:
        import structlog

        from tooldock.workers.venvs import Environments

        # What is collected is the command's answer; as a log line it would be in the way.
        quiet = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr), wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
        )
        young = {path.name for folder in (self._paths.venvs, self._paths.runtimes) for path in _directories(folder)}
        young = {name for name in young if self._young_named(name)}
        asyncio.run(Environments(self._paths, log=quiet).collect(self._keys_in_use() | young))

    def _young_named(self, name: str) -> bool:
        return any(
            self._young(path) for path in (self._paths.venvs / name, self._paths.runtimes / name) if path.exists()
        )

    # Scratch and logs.

    def _scratch(self) -> Iterator[Path]:
        for role in _directories(self._paths.state / "run"):
            if _role_alive(role):
                continue
            for path in _directories(role / "scratch"):
                if not self._young(path):
                    yield path

    def _logs(self) -> Iterator[Path]:
        yield from expired_logs(self._paths, self._retention_days)
        if self._retention_days <= 0:
            return
        oldest = self._now() - self._retention_days * 86_400
        for file in sorted((self._paths.logs / "workers").glob("*.log*")):
            if file.is_file() and file.stat().st_mtime < oldest:
                yield file

    def _young(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime > self._now() - GRACE_SECONDS
        except FileNotFoundError:
            return False


def size_of(path: Path) -> int:
    """Bytes on disk; files that are linked from elsewhere too are not freed, so they do not count."""
    try:
        if not path.is_dir() or path.is_symlink():
            return path.lstat().st_size
        total = 0
        for parent, _, files in os.walk(path):
            for name in files:
                info = os.lstat(os.path.join(parent, name))
                total += info.st_size if info.st_nlink == 1 else 0
        return total
    except OSError:
        return 0


def _directories(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_free(lock_file: Path) -> bool:
    """Whether nobody holds the lock; looking must not create the file."""
    try:
        descriptor = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _role_alive(role: Path) -> bool:
    try:
        record = json.loads((role / f"{role.name}.json").read_bytes())
        return alive(int(record["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass  # the answer shows what is gone
