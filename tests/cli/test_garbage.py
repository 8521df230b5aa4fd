"""What `tooldock gc` removes, and above all what it leaves alone."""

from __future__ import annotations

import fcntl
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tooldock.cli.garbage import GRACE_SECONDS, Garbage
from tooldock.paths import Paths
from tooldock.sources import catalogue

OLD = time.time() - 10 * GRACE_SECONDS
CURRENT, EARLIER = "c" * 32, "e" * 32


def age(path: Path, when: float = OLD) -> Path:
    os.utime(path, (when, when))
    return path


def tree(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_text("x" * 100)
    return age(path)


@pytest.fixture
def paths(data: Path) -> Paths:
    paths = Paths(data)
    paths.prepare()
    return paths


def serve(paths: Paths, namespace: str, environment: str = "env1", worker: str = "rt1") -> None:
    """What a gateway leaves on disk for a namespace it serves."""
    paths.namespace(namespace).mkdir(parents=True)
    catalogue.save(paths.catalogue(namespace), catalogue.Record(CURRENT, environment, worker, catalogue.Described()))
    age(paths.catalogue(namespace))
    tree(paths.snapshot(namespace, CURRENT))


def found(paths: Paths, days: int = 30) -> set[str]:
    garbage = Garbage(paths, retention_days=days)
    return {str(item.path.relative_to(paths.data_dir)) for item in garbage.find()}


def test_versions_that_are_not_served_go(paths: Paths) -> None:
    serve(paths, "a")
    tree(paths.snapshot("a", EARLIER))
    tree(paths.snapshots("a") / f".{EARLIER}.999999999")
    assert found(paths) == {f"state/snapshots/a/{EARLIER}", f"state/snapshots/a/.{EARLIER}.999999999"}


def test_a_version_somebody_is_writing_stays(paths: Paths) -> None:
    serve(paths, "a")
    tree(paths.snapshots("a") / f".{EARLIER}.{os.getpid()}")
    assert found(paths) == set()


def test_a_version_that_was_just_made_stays(paths: Paths) -> None:
    serve(paths, "a")
    age(tree(paths.snapshot("a", EARLIER)), time.time())
    assert found(paths) == set()


def test_versions_stay_while_a_replacement_is_fresh(paths: Paths) -> None:
    """The version before may still be finishing its calls."""
    serve(paths, "a")
    tree(paths.snapshot("a", EARLIER))
    age(paths.catalogue("a"), time.time())
    assert found(paths) == set()


@pytest.mark.parametrize(
    "said", [{"version": 99}, {"version": 99, "revision": CURRENT, "environment": "e", "worker": "w"}]
)
def test_versions_stay_when_the_catalogue_cannot_be_understood(paths: Paths, said: dict[str, Any]) -> None:
    serve(paths, "a")
    tree(paths.snapshot("a", EARLIER))
    age(paths.catalogue("a")).write_text(json.dumps(said))
    age(paths.catalogue("a"))
    assert found(paths) == set()


def test_versions_without_a_catalogue_go_only_when_nobody_serves_them(paths: Paths) -> None:
    paths.namespace("a").mkdir(parents=True)
    tree(paths.snapshot("a", EARLIER))
    run = paths.run_dir("core")
    run.mkdir(parents=True)
    (run / "core.json").write_text(json.dumps({"pid": os.getpid(), "url": "http://127.0.0.1:1"}))
    assert found(paths) == set()
    (run / "core.json").unlink()
    assert found(paths) == {f"state/snapshots/a/{EARLIER}"}


def test_environments_and_runtimes_no_catalogue_names_go(paths: Paths) -> None:
    serve(paths, "a", "env1", "rt1")
    for name in ("env1", "env2", ".cache"):
        tree(paths.venvs / name)
    for name in ("rt1", "rt2"):
        tree(paths.runtimes / name)
    assert found(paths) == {"venvs/env2", "state/runtime/rt2"}


def test_what_somebody_holds_stays_and_looking_leaves_no_lock_file(paths: Paths) -> None:
    tree(paths.environment("env2"))
    tree(paths.environment("env3"))
    with paths.environment_lock("env2").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert found(paths) == {"venvs/env3"}
        Garbage(paths, retention_days=30).remove()
        assert paths.environment("env2").exists()
    assert not paths.environment("env3").exists()
    assert not paths.environment_lock("env3").exists()


def test_a_young_environment_stays_when_another_goes(paths: Paths) -> None:
    age(tree(paths.environment("young")), time.time())
    tree(paths.environment("unused"))
    removed = Garbage(paths, retention_days=30).remove()
    assert [item.path.name for item in removed] == ["unused"]
    assert paths.environment("young").exists()


def test_scratch_of_the_dead_goes_and_of_the_living_stays(paths: Paths) -> None:
    for role, pid in (("core", os.getpid()), ("bridge", 999_999_999)):
        tree(paths.scratch(role, "a"))
        (paths.run_dir(role) / f"{role}.json").write_text(json.dumps({"pid": pid}))
    tree(paths.scratch("stdio", "a"))
    assert found(paths) == {"state/run/bridge/scratch/a", "state/run/stdio/scratch/a"}


def test_logs_go_when_their_time_is_over(paths: Paths) -> None:
    today = datetime.now(UTC).date()
    for day in (today, today - timedelta(days=8)):
        paths.audit_log(day, "core").write_text("{}\n")
        paths.audit_log(day, "bridge").write_text("{}\n")
    age(_written(paths.worker_log("quiet")), time.time() - 8 * 86_400)
    _written(paths.worker_log("busy"))
    gone = today - timedelta(days=8)
    assert found(paths, days=7) == {f"logs/{gone}.jsonl", f"logs/{gone}.bridge.jsonl", "logs/workers/quiet.log"}
    assert found(paths, days=0) == set()


def _written(path: Path) -> Path:
    path.write_text("x\n")
    return path


def test_state_secrets_and_tools_are_never_touched(paths: Paths, cli: Cli) -> None:
    kept = [
        tree(paths.namespace_state("gone")) / "file",
        tree(paths.namespace("mine")) / "file",
        age(_written(paths.secrets_enc), 0),
        age(_written(paths.config_file), 0),
        age(_written(paths.token("bearer_token")), 0),
        tree(paths.repos / "r") / "file",
    ]
    paths.config_file.write_text("")
    assert cli("gc").exit_code == 0
    assert all(path.exists() for path in kept)


def test_a_dry_run_reports_the_same_and_removes_nothing(paths: Paths, cli: Cli) -> None:
    serve(paths, "a")
    tree(paths.snapshot("a", EARLIER))
    tree(paths.environment("env2"))
    dry = report(cli, "gc", "--dry-run", "--json")
    assert paths.snapshot("a", EARLIER).exists()
    assert str(paths.snapshot("a", EARLIER)) in cli("gc", "--dry-run").stdout
    wet = report(cli, "gc", "--json")
    assert dry["items"] == wet["items"]
    assert (dry["bytes"], wet["bytes"]) == (200, 200)
    assert not paths.snapshot("a", EARLIER).exists()
    assert not paths.environment("env2").exists()
    assert cli("gc").stdout == "There is nothing to remove.\n"


def report(cli: Cli, *words: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(cli(*words).stdout)
    return parsed


def test_freed_bytes_are_told(paths: Paths, cli: Cli) -> None:
    (tree(paths.environment("env2")) / "big").write_bytes(b"x" * 3 * 1024 * 1024)
    age(paths.environment("env2"))
    assert cli("gc").stdout.splitlines()[-1] == "3.0 MiB freed."


def test_an_empty_place_is_fine(cli: Cli) -> None:
    assert cli("gc").stdout == "There is nothing to remove.\n"
