"""The audit: one JSON line per call, written before the caller is answered.

A line goes to the operating system before its answer does, so it survives the death of this process. Calls that end in
the same turn of the event loop share one write (`gather`). When a line cannot be written (a full disk), the lines are
kept in memory up to a bound and written when there is room again, a `gap` record tells how many were lost, and until
then only tools that declare themselves read-only are run.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import orjson
import structlog

from tooldock.model import Call, Item, Outcome

log = structlog.get_logger("tooldock.audit")

_KEPT = 10_000
"""Lines held while they cannot be written."""
_RETRY_SECONDS = 1.0

Record = dict[str, Any]


def describe(call: Call, item: Item | None, outcome: Outcome, arguments: bytes) -> Record:
    """The record of one call. Arguments and results stay out of it; their digest and sizes go in."""
    error = outcome.error
    record = {
        "ts": _now(),
        "request_id": call.request_id,
        "namespace": call.namespace,
        "tool": call.tool,
        "args_hash": hashlib.sha256(arguments).hexdigest(),
        "mutates": item is not None and not item.read_only,
        "requires_confirm": False,
        "status": "ok" if error is None else "fail",
        "error": None if error is None else error.code,
        "exit_code": outcome.exit_code,
        "elapsed_ms": round(outcome.elapsed_ms, 3),
        "caller": call.caller.name,
        "address": call.caller.address,
        "protocol": call.protocol,
        "depth": call.depth,
        "stdout_trunc": outcome.truncated,
        "stderr_trunc": 0,
        "policy_revision": None,
        "decision": "allow" if error is None or error.code not in _REFUSALS else "refuse",
    }
    if call.kind != "tool":
        record["kind"] = call.kind  # `tool` is then the URI, or the prompt's name
    return record


_second: tuple[int, str] = (0, "")


def _now() -> str:
    """ISO 8601 in UTC. The part down to the second is kept: formatting it costs more than the rest of a record."""
    global _second
    now = time.time()
    whole = int(now)
    if _second[0] != whole:
        _second = (whole, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)))
    return f"{_second[1]}.{int((now - whole) * 1_000_000):06d}+00:00"


_REFUSALS = frozenset(
    {"namespace_not_found", "tool_not_found", "resource_not_found", "prompt_not_found"}
    | {"invalid_arguments", "policy_denied", "confirmation_required"}
)


class AuditLog:
    """Appends records to one file a day.

    `file_for` names the file of a day. `seal` turns a record into its line; it is where a keyed chain of records
    attaches.
    """

    def __init__(
        self,
        file_for: Callable[[date], Path],
        *,
        enabled: bool = True,
        seal: Callable[[Record], bytes] = lambda record: orjson.dumps(record) + b"\n",
    ) -> None:
        self._file_for = file_for
        self._seal = seal
        self.enabled = enabled
        self._fd = -1
        self._day = 0
        self._size = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gathered: list[bytes] = []
        self._kept: deque[bytes] = deque()
        self._lost = 0
        self._retry_at = 0.0
        self.problem: str | None = None
        """Why lines cannot be written right now."""

    def write(self, record: Record) -> None:
        if not self.enabled:
            return
        line = self._seal(record)
        if self._loop is None:
            self._put([line])
            return
        if not self._gathered:
            self._loop.call_soon(self.flush)
        self._gathered.append(line)

    def gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on write the lines of a turn of the loop together. Whoever answers calls `flush` before."""
        self._loop = loop

    def flush(self) -> None:
        """Hand over what was gathered."""
        if self._gathered:
            lines, self._gathered = self._gathered, []
            self._put(lines)

    def _put(self, lines: list[bytes]) -> None:
        if self.problem is None or self._recover():
            try:
                self._append(lines[0] if len(lines) == 1 else b"".join(lines))
                return
            except OSError as error:
                self._fail(error)
        for line in lines:
            self._keep(line)

    def recover(self) -> bool:
        """Try again now, if there was a problem; true when lines can be written."""
        return self.problem is None or self._recover()

    def close(self) -> None:
        self.flush()
        self._retry_at = 0.0  # the last chance; it does not wait for the next one
        self.recover()
        if self._kept or self._lost:
            log.error("audit_lines_lost", count=len(self._kept) + self._lost, reason=self.problem)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes) -> None:
        day = int(time.time() // 86400)
        if day != self._day or self._fd < 0:
            self._open(day)
        written = os.write(self._fd, data)
        if written != len(data):
            # A full disk took a part. A torn line must not stay, or it would spoil the next one too.
            os.ftruncate(self._fd, self._size)
            raise OSError(28, "No space left on device")
        self._size += written

    def _open(self, day: int) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        path = self._file_for(datetime.fromtimestamp(day * 86400, UTC).date())
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                os.write(fd, b"\n")  # a line torn by a crash of the machine stays its own, damaged line
                size += 1
        except OSError:
            os.close(fd)
            raise
        self._fd, self._day, self._size = fd, day, size

    def _recover(self) -> bool:
        now = time.monotonic()
        if now < self._retry_at:
            return False
        try:
            while self._kept:
                self._append(self._kept[0])
                self._kept.popleft()
            if self._lost:
                gap = {
                    "ts": datetime.now(UTC).isoformat(),
                    "record": "gap",
                    "lost": self._lost,
                    "reason": self.problem,
                }
                self._append(self._seal(gap))
        except OSError as error:
            self._fail(error)
            return False
        log.warning("audit_writable_again", lost=self._lost)
        self._lost = 0
        self.problem = None
        return True

    def _keep(self, line: bytes) -> None:
        if len(self._kept) < _KEPT:
            self._kept.append(line)
        else:
            self._lost += 1

    def _fail(self, error: OSError) -> None:
        if self.problem is None:
            log.error("audit_not_writable", reason=error.strerror or str(error))
        self.problem = error.strerror or str(error)
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        if self._fd >= 0:  # opened again by the next try: by then another disk may be in its place
            os.close(self._fd)
            self._fd = -1
