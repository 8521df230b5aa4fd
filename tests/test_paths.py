from __future__ import annotations

import stat
import sys
import threading
from datetime import date
from pathlib import Path

import pytest

import tooldock.paths
from tooldock.errors import ConfigError, SettingsError
from tooldock.paths import LAYOUT_VERSION, Paths, check_namespace_name, default_data_dir


@pytest.mark.parametrize("name", ["a", "github", "my-tools", "0", "a1-b2", "a" * 63])
def test_good_namespace_names_are_accepted(name: str) -> None:
    assert check_namespace_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "-a", "a-", "A", "a_b", "a.b", "a/b", "..", "a" * 64, "a\n", "ä", " a", "_system", ".hidden"],
)
def test_other_namespace_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        check_namespace_name(name)


def test_the_reserved_name_is_refused_as_reserved() -> None:
    with pytest.raises(ConfigError, match="reserved"):
        check_namespace_name("_system")


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "/etc", "a\0", ".hidden"])
def test_no_name_can_lead_out_of_the_tree(name: str, tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for make in (
        paths.namespace,
        paths.environment,
        paths.environment_lock,
        paths.worker_log,
        paths.token,
        paths.run_dir,
        paths.namespace_state,
        paths.snapshots,
        paths.catalogue,
        paths.runtime,
        lambda name: paths.snapshot("ns", name),
        lambda name: paths.scratch("core", name),
        lambda name: paths.audit_log(date(2026, 2, 13), name),
    ):
        with pytest.raises(ValueError):
            make(name)


def test_relative_directories_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = Paths(Path("data"), Path("elsewhere"))
    assert paths.data_dir == tmp_path / "data"
    assert paths.venvs == tmp_path / "elsewhere"
    assert paths.uv_cache == tmp_path / "elsewhere" / ".cache"


def test_environments_lie_in_the_data_directory_by_default(tmp_path: Path) -> None:
    assert Paths(tmp_path).venvs == tmp_path / "venvs"


def test_core_has_the_plain_audit_file_and_others_add_their_role(tmp_path: Path) -> None:
    paths, day = Paths(tmp_path), date(2026, 2, 13)
    assert paths.audit_log(day, "core").name == "2026-02-13.jsonl"
    assert paths.audit_log(day, "manager").name == "2026-02-13.manager.jsonl"


def test_prepare_makes_the_tree_and_closes_what_is_private(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "data")
    paths.logs.mkdir(parents=True, mode=0o755)
    paths.logs.chmod(0o755)
    paths.prepare()
    for directory in (paths.tools, paths.venvs, paths.repos, paths.runtimes, paths.worker_log("x").parent):
        assert directory.is_dir()
    for directory in (paths.logs, paths.state, paths.keys):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert paths.layout_version_file.read_text() == f"{LAYOUT_VERSION}\n"


def test_prepare_twice_and_at_once_is_fine(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "data")
    failures: list[BaseException] = []

    def prepare() -> None:
        try:
            paths.prepare()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=prepare) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures
    assert paths.layout_version_file.read_text() == f"{LAYOUT_VERSION}\n"


def test_a_newer_layout_is_refused_and_left_alone(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.prepare()
    paths.layout_version_file.write_text("2\n")
    with pytest.raises(SettingsError, match=r"layout version 2.*newer release"):
        paths.prepare()
    assert paths.layout_version_file.read_text() == "2\n"


def test_an_older_layout_is_migrated_step_by_step(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.prepare()
    paths.layout_version_file.write_text("0\n")
    steps: list[Path] = []
    paths.prepare(migrations={0: lambda given: steps.append(given.data_dir)})
    assert steps == [tmp_path]
    assert paths.layout_version_file.read_text() == f"{LAYOUT_VERSION}\n"


def test_a_failed_migration_keeps_the_old_version(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.prepare()
    paths.layout_version_file.write_text("0\n")

    def fail(_: Paths) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        paths.prepare(migrations={0: fail})
    assert paths.layout_version_file.read_text() == "0\n"


def test_an_old_layout_without_a_way_forward_is_refused(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.prepare()
    paths.layout_version_file.write_text("0\n")
    with pytest.raises(SettingsError, match="no way from it"):
        paths.prepare(migrations={})


@pytest.mark.parametrize("content", [b"one\n", b"", b"\xff", b"-1\n"])
def test_a_spoilt_layout_version_is_refused(tmp_path: Path, content: bytes) -> None:
    paths = Paths(tmp_path)
    paths.prepare()
    paths.layout_version_file.write_bytes(content)
    with pytest.raises(SettingsError, match="layout version"):
        paths.prepare()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "tools").write_text("")
    with pytest.raises(SettingsError, match="tools must be a directory"):
        Paths(tmp_path).prepare()


def test_a_directory_that_cannot_be_written_is_named() -> None:
    """Below /proc nobody may make a directory, not even root."""
    with pytest.raises(SettingsError, match=r"cannot be written.*DATA_DIR"):
        Paths(Path("/proc/self/data") if sys.platform == "linux" else Path("/dev/null/data")).prepare()


def test_a_path_below_a_file_is_reported_as_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        Paths(tmp_path / "file" / "data").prepare()


def test_the_default_is_the_volume_only_inside_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tooldock.paths, "_CONTAINER_MARKERS", (tmp_path / "absent",))
    assert default_data_dir() == Path("tooldock_data")
