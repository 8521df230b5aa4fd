from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.gateway import until
from tooldock.cli.logs import last_lines


@pytest.fixture
def log(data: Path) -> Path:
    (data / "tools" / "a").mkdir(parents=True)
    path = data / "logs" / "workers" / "a.log"
    path.parent.mkdir(parents=True)
    return path


def test_the_last_lines_are_shown(cli: Cli, log: Path) -> None:
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert cli("logs", "a").stdout.splitlines() == [f"line {number}" for number in range(50, 100)]
    assert cli("logs", "a", "-n", "2").stdout == "line 98\nline 99\n"
    assert cli("logs", "a", "-n", "0").stdout == ""
    assert cli("logs", "a", "-n", "-1").exit_code == 2


def test_lines_from_before_a_rotation_are_shown_too(log: Path) -> None:
    log.with_suffix(".log.1").write_text("one\ntwo\n")
    log.write_text("three\n")
    assert last_lines(log, 2) == [b"two", b"three"]
    assert last_lines(log, 9) == [b"one", b"two", b"three"]


def test_lines_longer_than_a_block_are_whole(log: Path) -> None:
    log.write_text("x" * 200_000 + "\n" + "y" * 200_000 + "\n")
    assert last_lines(log, 1) == [b"y" * 200_000]


def test_a_namespace_that_printed_nothing_is_no_error(cli: Cli, log: Path) -> None:
    result = cli("logs", "a")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "printed nothing yet" in result.stderr


def test_a_log_that_may_not_be_read_is_no_traceback(cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the kernel's refusal is played."""

    def refused(path: Path, *_args: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    log.write_text("line\n")
    monkeypatch.setattr(Path, "open", refused)
    result = cli("logs", "a")
    assert result.exit_code == 1
    assert "run this as the user who started ToolDock" in result.stderr


@pytest.mark.parametrize("name", ["nope", "../../etc/passwd"])
def test_an_unknown_namespace_is_an_error(cli: Cli, log: Path, name: str) -> None:
    assert cli("logs", name).exit_code == 1


@contextmanager
def following(data: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    with out.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "tooldock", "logs", "a", "-f"],
            env={**os.environ, "DATA_DIR": str(data)},
            stdout=stream,
            stderr=subprocess.PIPE,
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.process
def test_following_goes_on_over_a_rotation_until_ctrl_c(data: Path, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    log.write_text("first\n")
    with following(data, out) as process:
        until("the first line", lambda: out.read_text() == "first\n", 20)
        with log.open("a") as stream:
            stream.write("second\nhalf")
        until("the second line", lambda: out.read_text() == "first\nsecond\n")
        with log.open("a") as stream:
            stream.write(" done\n")
        os.replace(log, log.with_suffix(".log.1"))
        log.write_text("third\n")
        until("the third line", lambda: out.read_text() == "first\nsecond\nhalf done\nthird\n")
        process.send_signal(2)
        assert process.wait(10) == 130
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.process
def test_following_waits_for_a_log_that_is_yet_to_come(data: Path, log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with following(data, out) as process:
        assert process.stderr is not None
        assert b"printed nothing yet" in process.stderr.readline()
        log.write_text("at last\n")
        until("the line", lambda: out.read_text() == "at last\n")
