"""Folders on a real disk: what counts as their content, and copies that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tooldock.errors import ConfigError
from tooldock.sources import folder
from tooldock.sources.folder import Folder


def fill(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    root.mkdir(parents=True, exist_ok=True)
    return root


NAMES = st.text("abc", min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=2).map("/".join)
FILES = st.dictionaries(PATHS, st.binary(max_size=8), max_size=4).filter(
    # A name cannot be a file and a directory at once.
    lambda files: not any(other.startswith(f"{name}/") for name in files for other in files)
)


@settings(max_examples=60, deadline=None)
@given(one=FILES, other=FILES)
def test_the_revision_differs_exactly_when_the_files_do(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        first = folder.read("x", fill(Path(place, "a"), one))
        second = folder.read("x", fill(Path(place, "b"), other))
        assert first.files == one
        assert (first.revision == second.revision) == (one == other)


def test_names_and_contents_cannot_be_moved_into_each_other() -> None:
    assert folder.revision({"ab": b"c"}) != folder.revision({"a": b"bc"})
    assert folder.revision({"a": b"1:b0:"}) != folder.revision({"a": b"", "b": b""})


@pytest.mark.parametrize(
    "name",
    [
        "__pycache__/a.cpython-311.pyc",
        ".git/HEAD",
        ".venv/pyvenv.cfg",
        "venv/pyvenv.cfg",
        "node_modules/a/index.js",
        ".env",
        ".a.py.swp",
        "a.py~",
        "a.pyc",
        "a.swp",
        "deep/.hidden/file",
    ],
)
def test_what_is_not_a_tool_s_business_does_not_count(tmp_path: Path, name: str) -> None:
    before = folder.read("x", fill(tmp_path, {"a.py": b"1"})).revision
    fill(tmp_path, {name: b"whatever"})
    assert folder.read("x", tmp_path).revision == before


def test_an_untouched_folder_has_an_equal_stamp_and_a_touched_one_does_not(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": b"1", "b/c.py": b"2"})
    before = folder.stamp(tmp_path)
    assert folder.stamp(tmp_path) == before
    os.utime(tmp_path / "b/c.py", ns=(1, 1))
    assert folder.stamp(tmp_path) != before


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.py", "/etc", ".."])
def test_a_link_out_of_the_folder_is_an_error_that_names_it(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside.py").write_text("x = 1")
    root = fill(tmp_path / "ns", {"a.py": b"1"})
    (root / "link").symlink_to(target)
    with pytest.raises(ConfigError, match="link") as caught:
        folder.read("ns", root)
    assert caught.value.details["file"] == "link"


def test_a_link_within_the_folder_is_read_as_what_it_points_to(tmp_path: Path) -> None:
    root = fill(tmp_path / "ns", {"a.py": b"1", "sub/b.py": b"2"})
    (root / "link.py").symlink_to("a.py")
    (root / "again").symlink_to("sub")
    assert folder.read("ns", root).files == {"a.py": b"1", "link.py": b"1", "sub/b.py": b"2"}


def test_a_folder_that_is_itself_a_link_is_read(tmp_path: Path) -> None:
    fill(tmp_path / "real", {"a.py": b"1"})
    (tmp_path / "ns").symlink_to("real")
    assert folder.read("ns", tmp_path / "ns").files == {"a.py": b"1"}


def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path) -> None:
    fill(tmp_path, {"a.py": b"1"})
    os.mkfifo(tmp_path / "pipe")
    assert list(folder.read("x", tmp_path).files) == ["a.py"]


def test_a_file_name_that_is_not_utf_8_is_a_file_like_any_other(tmp_path: Path) -> None:
    fill(tmp_path / "ns", {"a.py": b"1"})
    (tmp_path / "ns" / os.fsdecode(b"\xff.txt")).write_bytes(b"2")
    found = folder.read("ns", tmp_path / "ns")
    assert len(found.files) == 2
    folder.write_snapshot(found, tmp_path / "copy")
    assert folder.is_intact(tmp_path / "copy", found.revision)


def test_too_much_data_is_refused_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_BYTES", 1 << 20)
    fill(tmp_path, {"a.bin": b"x" * (1 << 19), "b.bin": b"x" * (1 << 19)})
    folder.read("x", tmp_path)
    fill(tmp_path, {"c.py": b"1"})
    with pytest.raises(ConfigError, match=r"more than 1 MB.*roots"):
        folder.read("x", tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_FILES", 3)
    fill(tmp_path, {f"{number}.py": b"" for number in range(3)})
    folder.read("x", tmp_path)
    fill(tmp_path, {"3.py": b""})
    with pytest.raises(ConfigError, match="more than 3 files"):
        folder.read("x", tmp_path)


def test_every_directory_could_be_a_namespace_but_hidden_and_private_ones(tmp_path: Path) -> None:
    for name in ("math", "Bad Name", ".git", "_drafts", os.fsdecode(b"caf\xe9")):
        (tmp_path / name).mkdir()
    (tmp_path / "file.txt").write_text("")
    assert folder.names(tmp_path) == ["Bad Name", "caf\\xe9", "math"]
    assert folder.names(tmp_path / "missing") == []


# Snapshots.


def snapshot(tmp_path: Path) -> tuple[Folder, Path]:
    found = Folder("ns", folder.revision({"a.py": b"1", "s/b.py": b"2"}), {"a.py": b"1", "s/b.py": b"2"})
    target = tmp_path / "snapshots" / found.revision
    target.parent.mkdir()
    folder.write_snapshot(found, target)
    return found, target


def test_a_snapshot_holds_what_was_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    found, target = snapshot(tmp_path)
    assert folder.read("ns", target) == found
    assert list(target.parent.iterdir()) == [target]


def test_an_empty_folder_has_a_snapshot_too(tmp_path: Path) -> None:
    folder.write_snapshot(Folder("ns", folder.revision({}), {}), tmp_path / "empty")
    assert folder.is_intact(tmp_path / "empty", folder.revision({}))


def test_an_intact_snapshot_is_left_alone(tmp_path: Path) -> None:
    found, target = snapshot(tmp_path)
    before = (target / "a.py").stat()
    folder.write_snapshot(found, target)
    assert (target / "a.py").stat().st_ino == before.st_ino


@pytest.mark.parametrize("damage", ["changed", "missing", "added", "unreadable"])
def test_a_damaged_snapshot_is_found_and_repaired(tmp_path: Path, damage: str) -> None:
    found, target = snapshot(tmp_path)
    if damage == "changed":
        (target / "a.py").write_bytes(b"evil")
    elif damage == "missing":
        (target / "a.py").unlink()
    elif damage == "added":
        (target / "c.py").write_bytes(b"evil")
    else:
        (target / "a.py").unlink()
        (target / "a.py").symlink_to("/nowhere/at/all")
    assert not folder.is_intact(target, found.revision)
    folder.write_snapshot(found, target)
    assert folder.is_intact(target, found.revision)


def test_a_writing_that_fails_half_way_leaves_no_snapshot(tmp_path: Path) -> None:
    files = {"a.py": b"1", "a.py/b.py": b"2"}  # cannot exist on a disk
    target = tmp_path / "target"
    with pytest.raises(OSError):
        folder.write_snapshot(Folder("ns", folder.revision(files), files), target)
    assert not target.exists()


def test_what_an_interrupted_writing_left_is_not_mixed_in(tmp_path: Path) -> None:
    found, target = snapshot(tmp_path)
    folder.write_snapshot(Folder("ns", "other", {"x.py": b""}), tmp_path / "other")
    leftover = fill(target.with_name(f".{target.name}.{os.getpid()}"), {"stale.py": b"0"})
    (target / "a.py").unlink()
    folder.write_snapshot(found, target)
    assert folder.read("ns", target) == found
    assert not leftover.exists()


def test_a_snapshot_another_process_finished_first_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.py": b"1"}
    found, target = Folder("ns", folder.revision(files), files), tmp_path / "target"
    real = os.rename

    def overtaken(source: Path, goal: Path) -> None:
        fill(goal, files)
        real(source, goal)

    monkeypatch.setattr(os, "rename", overtaken)
    folder.write_snapshot(found, target)
    assert folder.is_intact(target, found.revision)
    assert list(tmp_path.iterdir()) == [target]


def test_a_snapshot_that_cannot_be_put_in_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("a file is in the way")
    with pytest.raises(OSError):
        folder.write_snapshot(Folder("ns", "r", {"a.py": b"1"}), tmp_path / "target")
