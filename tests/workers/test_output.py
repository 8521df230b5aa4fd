"""What a child prints, through a real pipe into real files."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
import structlog.testing

from tooldock.engine.secrets.redact import Redactor
from tooldock.workers import output
from tooldock.workers.output import Output

SECRET = "s3cr3t-value-0001"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \[math\] (.*)")


def make(path: Path) -> Output:
    return Output(path, "math", Redactor([("TOKEN", SECRET)]).stream())


def said(path: Path) -> list[str]:
    found = [LINE.fullmatch(line) for line in path.read_text().splitlines()]
    return [match[1] for match in found if match is not None]


async def test_lines_are_stamped_and_kept_in_order(tmp_path: Path) -> None:
    path = tmp_path / "workers" / "math.log"
    out = make(path)
    os.write(out.write_end, b"one\n\ntwo\nth")
    os.write(out.write_end, b"ree\nlast, without an end")
    out.close()
    assert said(path) == ["one", "two", "three", "last, without an end"]
    assert out.tail[-1] == "last, without an end"
    assert path.stat().st_mode & 0o777 == 0o600


async def test_lines_arrive_while_the_child_runs(tmp_path: Path) -> None:
    path = tmp_path / "math.log"
    out = make(path)
    os.write(out.write_end, b"hello\n" + b"." * 200 + b"\n")
    async with asyncio.timeout(5):
        while not path.exists():
            await asyncio.sleep(0)
    assert said(path)[0] == "hello"
    out.close()


async def test_a_secret_is_removed_even_in_two_pieces(tmp_path: Path) -> None:
    path = tmp_path / "math.log"
    out = make(path)
    for piece in (b"token is s3cr3t-", b"value-0001 indeed\n"):
        os.write(out.write_end, piece)
        await asyncio.sleep(0)
    out.close()
    assert said(path) == ["token is [redacted:TOKEN] indeed"]
    assert SECRET not in "".join(out.tail)


async def test_the_end_of_the_child_ends_the_reading(tmp_path: Path) -> None:
    out = make(tmp_path / "math.log")
    before = len(os.listdir("/proc/self/fd"))
    os.write(out.write_end, b"bye\n")
    out.started()
    out.started()
    async with asyncio.timeout(5):
        while len(os.listdir("/proc/self/fd")) > before - 2:
            await asyncio.sleep(0)
    out.close()
    assert said(tmp_path / "math.log") == ["bye"]


async def test_a_stray_that_keeps_printing_cannot_keep_it_open(tmp_path: Path) -> None:
    out = make(tmp_path / "math.log")
    kept = os.dup(out.write_end)
    os.write(kept, b"still here\n")
    out.close()
    out.close()
    with pytest.raises(BrokenPipeError):
        os.write(kept, b"anybody?\n")
    os.close(kept)
    assert said(tmp_path / "math.log") == ["still here"]


async def test_a_line_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_MAX_LINE", 100)
    out = make(tmp_path / "math.log")
    os.write(out.write_end, b"x" * 1000)
    out.close()
    assert all(len(line) <= 100 for line in said(tmp_path / "math.log"))
    assert len(out.tail[0]) <= 2000


async def test_the_file_rotates_once_and_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_MAX_FILE", 1000)
    path = tmp_path / "math.log"
    for number in range(30):
        out = make(path)
        os.write(out.write_end, b"%03d " % number + b"x" * 100 + b"\n")
        out.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["math.log", "math.log.1"]
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    assert said(path)[-1].startswith("029")


async def test_a_disk_that_takes_no_lines_is_logged_and_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "math.log").symlink_to("/dev/full")
    out = make(tmp_path / "math.log")
    os.write(out.write_end, b"hello\n")
    with structlog.testing.capture_logs() as logged:
        out.close()
    assert logged[0]["event"] == "output_not_written"
    assert out.tail == ["hello"]
