"""What children print, on its way to the namespace's log file.

Lines get a time stamp, secrets are removed, and the file is bounded: it rotates once, so a tool that prints
gigabytes costs two files of a few megabytes.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger("tooldock.output")

_MAX_FILE = 4 << 20
_MAX_LINE = 16 << 10
_READ = 1 << 16


class Filter(Protocol):
    """Removes secrets from a stream without letting one pass across a boundary."""

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class Output:
    """One child's printed lines. Give `write_end` to the child, then close it here."""

    def __init__(self, path: Path, pid_name: str, secrets: Filter) -> None:
        self._path = path
        self._name = pid_name
        self._secrets = secrets
        self._partial = b""
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._on_readable)
        self._open = True
        self.last_at = 0.0
        self.tail: list[str] = []
        """The last lines, to explain a death."""

    def started(self) -> None:
        """The child has its copy of the write end."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Take what is still in the pipe and let go."""
        if not self._open:
            return
        self.started()
        for _ in range(64):
            if not self._on_readable():
                break
        self._finish()

    def _on_readable(self) -> bool:
        if not self._open:
            return False
        try:
            data = os.read(self._read_end, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._finish()
            return False
        self._take(self._secrets.feed(data))
        return True

    def _finish(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._take(self._secrets.finish() + b"\n")

    def _take(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _MAX_LINE:
            lines.append(self._partial)
            self._partial = b""
        lines = [line for line in lines if line]
        if lines:
            self._write(lines)

    def _write(self, lines: list[bytes]) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        prefix = f"{stamp} [{self._name}] ".encode()
        self.last_at = time.monotonic()
        self.tail = [*self.tail, *(line[:2000].decode(errors="replace") for line in lines[-20:])][-20:]
        text = b"".join(prefix + line[:_MAX_LINE] + b"\n" for line in lines)
        try:
            self._rotate(len(text))
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, text)
            finally:
                os.close(fd)
        except OSError as error:
            log.warning("output_not_written", file=str(self._path), reason=error.strerror)

    def _rotate(self, coming: int) -> None:
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return
        if size + coming > _MAX_FILE:
            os.replace(self._path, self._path.with_suffix(".log.1"))
