"""Sessions on disk."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog

from tests.dialects.mcp.handshake_world import until
from tooldock.dialects.mcp import store as module
from tooldock.dialects.mcp.revisions import R2025_06_18
from tooldock.dialects.mcp.store import FileStore, Record


def record(key: str = "k" * 64, **fields: Any) -> Record:
    given: dict[str, Any] = {
        "caller": "tester",
        "namespace": "one",
        "revision": R2025_06_18,
        "seen": time.time() - 10,
        "capabilities": {"roots": {}},
        "client_name": "c",
        "client_version": "1",
        "initialized": True,
        "log_level": "error",
        "subscriptions": ("x://1",),
        **fields,
    }
    return Record(key, **given)


DEEP = orjson.dumps(record(capabilities="?")).replace(b'"?"', b'{"a":' * 900 + b"1" + b"}" * 900)


def opened(path: Path) -> FileStore:
    store = FileStore(path)
    store.load()
    return store


def kept(path: Path) -> list[Record]:
    store = FileStore(path)
    try:
        return store.load()
    finally:
        store.close()


def test_what_was_put_is_loaded_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "core.jsonl"
    store = opened(path)
    one, two = record("a" * 64), record("b" * 64, initialized=False, subscriptions=())
    store.put(one)
    store.put(two)
    store.put(replace(two, initialized=True, log_level="debug"))
    store.close()
    assert kept(path) == [one, replace(two, initialized=True, log_level="debug")]


def test_what_was_dropped_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    store = opened(path)
    store.put(record("a" * 64))
    store.put(record("b" * 64))
    store.drop("a" * 64)
    store.drop("never there")
    store.close()
    assert [one.key for one in kept(path)] == ["b" * 64]


def test_touching_many_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    store = opened(path)
    for number in range(100):
        store.put(record(f"{number:064}"))
    before = len(path.read_bytes().splitlines())
    now = time.time()
    store.touch([f"{number:064}" for number in range(100)], now)
    assert len(path.read_bytes().splitlines()) == before + 1
    store.close()
    assert {one.seen for one in kept(path)} == {now}


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / "core.jsonl"
    os.umask(0o022)
    store = opened(path)
    store.put(record())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.close()
    path.chmod(0o644)
    opened(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "tail", [b'{"key":"torn', b"\xff\xfe", b"[]", b'{"key":5}', b"null", b'{"keys":[[]],"seen":1}', DEEP]
)
def test_a_torn_or_strange_line_costs_nothing_else(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "core.jsonl"
    store = opened(path)
    store.put(record("a" * 64))
    store.close()
    with path.open("ab") as file:
        file.write(tail)
    store = FileStore(path)
    assert [one.key for one in store.load()] == ["a" * 64]
    store.put(record("b" * 64))
    store.close()
    assert [one.key for one in kept(path)] == ["a" * 64, "b" * 64]


def test_a_time_in_the_future_does_not_keep_a_session_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    store = opened(path)
    store.put(record(seen=time.time() + 10**6))
    store.close()
    assert kept(path)[0].seen <= time.time()
    store = opened(path)
    store.touch(["k" * 64], time.time() + 10**6)
    store.close()
    assert kept(path)[0].seen <= time.time()
    path.write_bytes(orjson.dumps({**asdict(record()), "seen": "nan"}))
    assert kept(path)[0].seen <= time.time()


def test_neither_a_link_nor_a_pipe_in_its_place_is_read(tmp_path: Path) -> None:
    elsewhere, path = tmp_path / "elsewhere.jsonl", tmp_path / "core.jsonl"
    store = opened(elsewhere)
    store.put(record())
    store.close()
    path.symlink_to(elsewhere)
    assert kept(path) == []
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # without one, opening it for reading waits for ever
    try:
        os.write(writer, orjson.dumps(record()) + b"\n")
        assert kept(path) == []
    finally:
        os.close(writer)
    assert path.is_file()
    assert len(kept(elsewhere)) == 1


async def test_history_is_cleared_away_while_lines_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLACK", 2000)
    path = tmp_path / "core.jsonl"
    store = opened(path)
    for number in range(200):
        store.put(record("a" * 64, client_name=str(number)))
        await until("nothing is being written afresh", lambda: store._rewriting is None)
    store.put(record("b" * 64))
    assert path.stat().st_size < 10_000
    store.close()
    found = {one.key: one for one in kept(path)}
    assert found["a" * 64].client_name == "199"
    assert "b" * 64 in found


async def test_lines_written_during_a_rewrite_are_in_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "core.jsonl"
    store = opened(path)
    store.put(record("a" * 64))
    store._rewrite()
    store.put(record("b" * 64))
    store.drop("a" * 64)
    await until("it is done", lambda: store._rewriting is None)
    store.close()
    assert [one.key for one in kept(path)] == ["b" * 64]


def test_a_place_that_cannot_be_written_costs_one_warning_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with structlog.testing.capture_logs() as logged:
        store = opened(tmp_path / "file" / "core.jsonl")
        for number in range(5):
            store.put(record(f"{number:064}"))
        store.drop(f"{1:064}")
        store.close()
    assert [entry["event"] for entry in logged if entry["event"] == "sessions_not_saved"] == ["sessions_not_saved"]


async def test_a_disk_that_works_again_gets_everything(tmp_path: Path) -> None:
    directory = tmp_path / "sessions"
    directory.write_text("in the way")
    store = opened(directory / "core.jsonl")
    store.put(record("a" * 64))
    directory.unlink()
    with structlog.testing.capture_logs() as logged:
        store.touch((), time.time())
        await until("it is saved", lambda: store._rewriting is None)
    assert [entry["event"] for entry in logged] == ["sessions_saved_again"]
    store.put(record("b" * 64))
    store.close()
    assert [one.key for one in kept(directory / "core.jsonl")] == ["a" * 64, "b" * 64]


def test_a_line_that_was_only_half_written_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "core.jsonl"
    store = opened(path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:20]))
    store.put(record("a" * 64))
    monkeypatch.undo()
    store.put(record("b" * 64))
    store.close()
    assert [one.key for one in kept(path)] == ["a" * 64, "b" * 64]


KILLED = """
import os, pathlib, signal, sys, time
from tooldock.dialects.mcp.store import FileStore, Record
store = FileStore(pathlib.Path(sys.argv[1]))
store.load()
for number in range(500):
    store.put(Record(f"{number:064}", "c", "n", "2025-06-18", time.time()))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_killing_the_process_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(kept(path)) == 500
