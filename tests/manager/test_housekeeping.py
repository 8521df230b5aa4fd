"""What is thrown away, and what never is."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from tooldock.manager.housekeeping import clear_scratch, expire_logs, expired_logs
from tooldock.paths import Paths

TODAY = date(2026, 3, 10)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.prepare()
    return made


def test_logs_are_kept_for_exactly_as_many_days_as_asked(paths: Paths) -> None:
    for age in (0, 6, 7, 8, 400):
        (paths.logs / f"{TODAY - timedelta(days=age)}.jsonl").write_text("{}\n")
    assert [path.name for path in expired_logs(paths, 7, TODAY)] == ["2025-02-03.jsonl", "2026-03-02.jsonl"]


def test_zero_days_keep_everything(paths: Paths) -> None:
    (paths.logs / "2001-01-01.jsonl").write_text("{}\n")
    assert expired_logs(paths, 0, TODAY) == []
    assert expire_logs(paths, 0) == []
    assert (paths.logs / "2001-01-01.jsonl").exists()


def test_only_files_that_are_daily_logs_are_ever_removed(paths: Paths) -> None:
    kept = ["notes.txt", "2001-01-01.jsonl.bak", "2001-13-99.jsonl", "x2001-01-01.jsonl", "2001-01-01.txt"]
    for name in [*kept, "2001-01-01.jsonl", "2001-01-01.bridge.jsonl"]:
        (paths.logs / name).write_text("")
    gone = expire_logs(paths, 1)
    assert sorted(path.name for path in gone) == ["2001-01-01.bridge.jsonl", "2001-01-01.jsonl"]
    assert sorted(path.name for path in paths.logs.iterdir()) == sorted([*kept, "workers"])


def test_today_s_log_survives_the_shortest_retention(paths: Paths) -> None:
    today = paths.audit_log(datetime.now(UTC).date(), "core")
    today.write_text("{}\n")
    assert expire_logs(paths, 1) == []


def test_a_data_directory_without_logs_has_none_to_expire(tmp_path: Path) -> None:
    assert expired_logs(Paths(tmp_path / "new"), 7, TODAY) == []


def test_scratch_of_an_earlier_run_goes_and_that_of_other_roles_stays(paths: Paths) -> None:
    for role in ("core", "bridge"):
        scratch = paths.scratch(role, "math")
        scratch.mkdir(parents=True)
        (scratch / "file").write_text("")
    clear_scratch(paths, "core")
    clear_scratch(paths, "core")
    assert not paths.scratch("core", "math").exists()
    assert (paths.scratch("bridge", "math") / "file").exists()
