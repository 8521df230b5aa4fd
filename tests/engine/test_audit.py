"""The audit on real files, including disks that are full and lines that were torn."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog.testing

from tooldock.engine import audit
from tooldock.engine.audit import AuditLog, describe
from tooldock.errors import InvalidArguments, ToolFailed
from tooldock.model import Call, Caller, Outcome, Tool

NAME = "audit.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_RETRY_SECONDS", 0.0)


@pytest.fixture
def opened() -> Iterator[Callable[..., AuditLog]]:
    made: list[AuditLog] = []

    def make(file_for: Callable[[date], Path], **options: Any) -> AuditLog:
        made.append(AuditLog(file_for, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


Opener = Callable[..., AuditLog]


def call(**changes: Any) -> Call:
    values: dict[str, Any] = {
        "namespace": "math",
        "tool": "add",
        "arguments": {"password": "hunter2-hunter2"},
        "caller": Caller("ann", address="127.0.0.1"),
        "request_id": "r-1",
        "protocol": "rest",
    }
    return Call(**(values | changes))


def test_one_record_is_one_private_line_written_at_once(tmp_path: Path, opened: Opener) -> None:
    path = tmp_path / NAME
    log = opened(lambda day: path)
    for number in range(3):
        log.write({"n": number, "text": "two\nlines"})
        assert [row["n"] for row in lines(path)] == list(range(number + 1))
    assert path.stat().st_mode & 0o777 == 0o600


def test_each_day_has_its_own_file(tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [86400.0 * 20000 + 86399]
    monkeypatch.setattr(audit, "time", SimpleNamespace(time=lambda: now[0], monotonic=lambda: 0.0))
    log = opened(lambda day: tmp_path / f"{day}.jsonl")
    log.write({"n": 1})
    now[0] += 2
    log.write({"n": 2})
    assert [(path.name, lines(path)) for path in sorted(tmp_path.iterdir())] == [
        ("2024-10-04.jsonl", [{"n": 1}]),
        ("2024-10-05.jsonl", [{"n": 2}]),
    ]


def test_a_line_torn_by_a_crash_does_not_spoil_the_next(tmp_path: Path, opened: Opener) -> None:
    path = tmp_path / NAME
    path.write_bytes(b'{"n":0}\n{"n":')
    log = opened(lambda day: path)
    log.write({"n": 1})
    assert path.read_bytes() == b'{"n":0}\n{"n":\n{"n":1}\n'


def test_a_full_disk_is_noticed_and_lines_follow_when_there_is_room(
    tmp_path: Path, opened: Opener, retry_at_once: None
) -> None:
    path = tmp_path / NAME
    path.symlink_to("/dev/full")
    log = opened(lambda day: path)
    for number in range(3):
        log.write({"n": number})
    assert log.problem == "No space left on device"
    assert not log.recover()
    path.unlink()
    assert log.recover()
    assert log.problem is None
    log.write({"n": 3})
    assert [row["n"] for row in lines(path)] == [0, 1, 2, 3]


def test_while_lines_cannot_be_written_the_disk_is_not_tried_with_every_call(tmp_path: Path, opened: Opener) -> None:
    path = tmp_path / "missing" / NAME
    log = opened(lambda day: path)
    log.write({"n": 1})
    path.parent.mkdir()
    log.write({"n": 2})
    assert not path.exists()
    assert log.problem is not None
    log.close()
    assert [row["n"] for row in lines(path)] == [1, 2]


def test_a_line_of_which_only_a_part_was_taken_is_not_left_behind(
    tmp_path: Path, opened: Opener, retry_at_once: None
) -> None:
    """A limit on the file's size makes the kernel take a part, as a nearly full disk does."""
    path = tmp_path / NAME
    log = opened(lambda day: path)
    log.write({"n": 0})
    size = path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, limits[1]))
    try:
        with structlog.testing.capture_logs():  # pytest keeps standard output in a file, which is limited too
            log.write({"n": 1, "text": "x" * 100})
        left = path.stat().st_size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert left == size
    assert log.problem is not None
    log.write({"n": 2})
    assert [row["n"] for row in lines(path)] == [0, 1, 2]


def test_lines_beyond_what_is_kept_leave_a_gap_that_says_how_many(
    tmp_path: Path, opened: Opener, retry_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_KEPT", 2)
    path = tmp_path / NAME
    path.symlink_to("/dev/full")
    log = opened(lambda day: path)
    for number in range(5):
        log.write({"n": number})
    path.unlink()
    log.write({"n": 5})
    kept, gap, last = lines(path)[:2], lines(path)[2], lines(path)[3]
    assert [row["n"] for row in kept] == [0, 1]
    assert (gap["record"], gap["lost"], gap["reason"]) == ("gap", 3, "No space left on device")
    assert last == {"n": 5}


def test_lines_that_never_found_room_are_counted_in_the_log_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.symlink_to("/dev/full")
    log = AuditLog(lambda day: path)
    log.write({"n": 1})
    with structlog.testing.capture_logs() as said:
        log.close()
    assert [(row["event"], row["count"]) for row in said if row["event"] == "audit_lines_lost"] == [
        ("audit_lines_lost", 1)
    ]


def test_a_disk_that_stays_full_costs_no_descriptors(tmp_path: Path, opened: Opener, retry_at_once: None) -> None:
    """With a torn line at its end the file is repaired on opening, and that fails too."""
    path = tmp_path / NAME
    path.write_bytes(b"torn" * 10)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with structlog.testing.capture_logs():
            log = opened(lambda day: path)
            for number in range(20):
                log.write({"n": number})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.problem is not None
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_switched_off_it_writes_nothing(tmp_path: Path, opened: Opener) -> None:
    log = opened(lambda day: tmp_path / NAME, enabled=False)
    log.write({"n": 1})
    assert list(tmp_path.iterdir()) == []
    assert log.recover()


def test_a_seal_decides_what_a_line_is(tmp_path: Path, opened: Opener) -> None:
    log = opened(lambda day: tmp_path / NAME, seal=lambda record: b"sealed %d\n" % record["n"])
    log.write({"n": 7})
    assert (tmp_path / NAME).read_bytes() == b"sealed 7\n"


def test_a_record_has_digests_and_sizes_but_no_values() -> None:
    tool = Tool(namespace="math", name="add")
    outcome = Outcome("ok", b'"hunter2-hunter2"', elapsed_ms=1.23456, truncated=7, exit_code=0)
    record = describe(call(), tool, outcome, b'{"password":"hunter2-hunter2"}')
    assert "hunter2" not in json.dumps(record)
    assert record | {"ts": ""} == {
        "ts": "",
        "request_id": "r-1",
        "namespace": "math",
        "tool": "add",
        "args_hash": hashlib.sha256(b'{"password":"hunter2-hunter2"}').hexdigest(),
        "mutates": True,
        "requires_confirm": False,
        "status": "ok",
        "error": None,
        "exit_code": 0,
        "elapsed_ms": 1.235,
        "caller": "ann",
        "address": "127.0.0.1",
        "protocol": "rest",
        "depth": 0,
        "stdout_trunc": 7,
        "stderr_trunc": 0,
        "policy_revision": None,
        "decision": "allow",
    }


def test_a_refusal_is_told_from_a_failure() -> None:
    refused = describe(call(), None, Outcome("error", error=InvalidArguments("no")), b"{}")
    failed = describe(call(), None, Outcome("error", error=ToolFailed("no")), b"{}")
    assert (refused["decision"], refused["status"], refused["error"]) == ("refuse", "fail", "invalid_arguments")
    assert (failed["decision"], failed["status"], failed["error"]) == ("allow", "fail", "tool_error")


def test_only_a_tool_that_says_so_is_recorded_as_read_only() -> None:
    reading = Tool(namespace="math", name="add", annotations={"readOnlyHint": True})
    assert describe(call(), reading, Outcome("ok"), b"{}")["mutates"] is False
    assert describe(call(), None, Outcome("ok"), b"{}")["mutates"] is False


async def test_records_of_one_turn_share_a_write_and_are_there_when_asked_for(
    tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / NAME
    log = opened(lambda day: path)
    log.gather(asyncio.get_running_loop())
    writes: list[bytes] = []
    write = os.write

    def seen(fd: int, data: bytes) -> int:
        writes.append(data)
        return write(fd, data)

    monkeypatch.setattr(os, "write", seen)
    log.write({"n": 1})
    log.write({"n": 2})
    assert writes == []
    log.flush()
    assert [row["n"] for row in lines(path)] == [1, 2]
    assert len(writes) == 1
    log.write({"n": 3})
    await asyncio.sleep(0)
    assert [row["n"] for row in lines(path)] == [1, 2, 3]
    log.write({"n": 4})
    log.close()
    assert [row["n"] for row in lines(path)] == [1, 2, 3, 4]


async def test_gathered_records_that_find_no_room_are_kept_one_by_one(
    tmp_path: Path, opened: Opener, retry_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_KEPT", 2)
    path = tmp_path / "missing" / NAME
    log = opened(lambda day: path)
    log.gather(asyncio.get_running_loop())
    for number in range(3):
        log.write({"n": number})
    log.flush()
    assert log.problem is not None
    path.parent.mkdir()
    assert log.recover()
    assert [row.get("n", row.get("lost")) for row in lines(path)] == [0, 1, 1]
