"""Where sessions outlive the process: a file of JSON lines, one for every change.

    {"key": "<SHA-256 of the id>", "caller": …, "seen": …}    a session as it is now
    {"drop": "<key>"}                                          it is over
    {"seen": 1763200000.0, "keys": ["<key>", …]}               these were used

The last line about a session wins. Ids are not in the file, only their digests: whoever reads it can continue nobody's
session. Lines are written when something happens, so that killing the process loses none; the file is written afresh
when most of it is history. It knows no protocol: what a record means is up to `sessions`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
import structlog

log = structlog.get_logger("tooldock.mcp")

_SLACK = 1024 * 1024
"""Bytes of history that are never worth writing the file afresh."""
_MAX_LINE = 4 * 1024 * 1024
_READ = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """One session, as it is kept."""

    key: str
    caller: str
    namespace: str
    revision: str
    seen: float
    """When it was used last, on the wall clock."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    client_name: str = ""
    client_version: str = ""
    initialized: bool = False
    log_level: str = "info"
    subscriptions: tuple[str, ...] = ()


class SessionStore(Protocol):
    """Keeps records. None of it raises or waits: a session that cannot be kept still works."""

    def load(self) -> list[Record]:
        """What was kept. Called once, before anything else; may take a moment."""
        ...

    def put(self, record: Record) -> None: ...

    def drop(self, key: str) -> None: ...

    def touch(self, keys: Iterable[str], seen: float) -> None:
        """These were used. Called about once a minute, also with no keys."""
        ...

    def close(self) -> None: ...


class FileStore:
    """A `SessionStore` in one file, which belongs to one process at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._lines: dict[str, bytes] = {}
        self._live = 0
        self._size = 0
        self._behind = False
        """The file lacks something; it has to be written afresh before anything is added."""
        self._warned = False
        self._rewriting: asyncio.Task[None] | None = None
        self._since: list[bytes] = []
        """What was added while the file is being written afresh."""

    def load(self) -> list[Record]:
        records: dict[str, Record] = {}
        damaged = 0
        try:
            for line in _lines(self._path):
                damaged += not _apply(line, records)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("sessions_not_read", file=str(self._path), reason=error.strerror)
        if damaged:
            log.warning("sessions_damaged", file=str(self._path), lines=damaged)
        self._lines = {record.key: _line(record) for record in records.values()}
        self._live = sum(map(len, self._lines.values()))
        try:
            self._replace(self._write_new(list(self._lines.values())), [])
        except OSError as error:
            self._fail(error)
        return list(records.values())

    def put(self, record: Record) -> None:
        line = _line(record)
        self._live += len(line) - len(self._lines.get(record.key, b""))
        self._lines[record.key] = line
        self._add(line)

    def drop(self, key: str) -> None:
        line = self._lines.pop(key, None)
        if line is not None:
            self._live -= len(line)
            self._add(_line({"drop": key}))

    def touch(self, keys: Iterable[str], seen: float) -> None:
        known = [key for key in keys if key in self._lines]
        for key in known:
            self._lines[key] = _line({**orjson.loads(self._lines[key]), "seen": seen})
        if known:
            self._add(_line({"seen": seen, "keys": known}))
        if self._behind:
            self._rewrite()

    def close(self) -> None:
        if self._rewriting is not None:
            self._rewriting.cancel()
            self._rewriting = None
        if self._behind:
            try:
                self._replace(self._write_new(list(self._lines.values())), [])
            except OSError as error:
                self._fail(error)
        self._close_file()

    # Writing.

    def _add(self, line: bytes) -> None:
        if self._rewriting is not None:
            self._since.append(line)
        if self._behind:
            return
        try:
            if self._fd < 0:
                raise OSError(0, "the file is not open")
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(0, "only a part of a line could be written")
        except OSError as error:
            self._fail(error)
            return
        self._size += written
        if self._size > 2 * self._live + _SLACK:
            self._rewrite()

    def _rewrite(self) -> None:
        """Write the file afresh, beside the loop; meanwhile lines go to the old file and are noted for the new one."""
        if self._rewriting is not None:
            return
        self._since = []
        self._rewriting = asyncio.get_running_loop().create_task(self._rewrite_from(list(self._lines.values())))

    async def _rewrite_from(self, lines: list[bytes]) -> None:
        try:
            descriptor = await asyncio.to_thread(self._write_new, lines)
            self._replace(descriptor, self._since)
        except OSError as error:
            self._fail(error)
        finally:
            self._since = []
            self._rewriting = None

    @property
    def _new(self) -> Path:
        return self._path.with_name(f"{self._path.name}.new")

    def _write_new(self, lines: list[bytes]) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._new.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._new, flags, 0o600)
        try:
            _write_all(descriptor, b"".join(lines))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _replace(self, descriptor: int, more: list[bytes]) -> None:
        try:
            _write_all(descriptor, b"".join(more))
            os.replace(self._new, self._path)
        except OSError:
            os.close(descriptor)
            raise
        self._close_file()
        self._fd = descriptor
        self._size = os.fstat(descriptor).st_size
        if self._warned:
            log.info("sessions_saved_again", file=str(self._path))
        self._behind = self._warned = False

    def _fail(self, error: OSError) -> None:
        self._behind = True
        if not self._warned:
            self._warned = True
            log.warning(
                "sessions_not_saved",
                file=str(self._path),
                reason=error.strerror,
                hint="MCP sessions work, but will not survive a restart until this file can be written again",
            )

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _line(fields: Mapping[str, Any] | Record) -> bytes:
    return orjson.dumps(fields, default=str) + b"\n"


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines and a torn last one; a line that never ends is not collected."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            # A pipe or a device that somebody put there could be read for ever.
            raise OSError(errno.EINVAL, "not a regular file")
        rest = b""
        while chunk := file.read(_READ):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > _MAX_LINE:
                rest = b"?"
        if rest:
            yield rest


def _apply(line: bytes, records: dict[str, Record]) -> bool:
    """Whether the line could be read."""
    try:
        fields = orjson.loads(line)
        if "drop" in fields:
            records.pop(fields["drop"], None)
        elif "keys" in fields:
            for key in fields["keys"]:
                if key in records:
                    records[key] = replace(records[key], seen=_past(fields["seen"]))
        else:
            record = _record(fields)
            records[record.key] = record
    except (ValueError, TypeError, KeyError):
        return False
    return True


_TEXTS = ("key", "caller", "namespace", "revision", "client_name", "client_version", "log_level")


def _record(fields: dict[str, Any]) -> Record:
    record = Record(**{**fields, "subscriptions": tuple(fields["subscriptions"])})
    if not all(isinstance(getattr(record, name), str) for name in _TEXTS) or not isinstance(record.capabilities, dict):
        raise TypeError("not a session")
    if not all(isinstance(uri, str) for uri in record.subscriptions):
        raise TypeError("not a session")
    record = replace(record, seen=_past(record.seen), initialized=record.initialized is True)
    _line(record)  # what could not be written again is not taken, either
    return record


def _past(seen: Any) -> float:
    """A clock that was wrong once must not keep a session for ever."""
    now = time.time()
    given = float(seen)
    return given if given <= now else now
