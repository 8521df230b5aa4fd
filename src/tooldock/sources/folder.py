"""A namespace's folder, read whole and addressed by its content.

Workers never run from the folder itself but from a snapshot of it, so a half-written or broken file cannot reach
a running namespace, and the last good version survives a restart. Reading takes the bytes once: what is hashed
is what is written to the snapshot.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tooldock.errors import ConfigError

MAX_BYTES = 64 << 20
MAX_FILES = 5000

_IGNORED = frozenset(
    {"__pycache__", ".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".mypy_cache", ".ruff_cache"}
)

Stamp = tuple[tuple[str, int, int, int, int], ...]
"""Names, sizes and times of all files: equal stamps mean nothing was touched."""


@dataclass(frozen=True, slots=True)
class Folder:
    """One version of a namespace's files."""

    name: str
    revision: str
    files: dict[str, bytes]


def names(tools: Path) -> list[str]:
    """Every entry below `tools` that could be a namespace, valid name or not; hidden and private ones are not."""
    try:
        with os.scandir(tools) as entries:
            return sorted(_shown(entry.name) for entry in entries if entry.name[0] not in "._" and entry.is_dir())
    except FileNotFoundError:
        return []


def stamp(path: Path) -> Stamp:
    """Cheap: no file is opened."""
    rows = []
    for relative, full in _walk(path):
        info = os.stat(full)
        rows.append((relative, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino))
    return tuple(rows)


def read(name: str, path: Path) -> Folder:
    files: dict[str, bytes] = {}
    total = 0
    try:
        for relative, full in _walk(path):
            total += os.stat(full).st_size
            if total > MAX_BYTES:
                raise ConfigError(
                    f"The folder of namespace {name!r} holds more than {MAX_BYTES >> 20} MB. Keep tools there and data "
                    "elsewhere: in the namespace's state directory, or in a folder listed under roots in "
                    "tooldock.yaml.",
                    namespace=name,
                )
            files[relative] = full.read_bytes()
    except OSError as error:
        raise ConfigError(f"Namespace {name!r} cannot be read: {error.strerror}.", namespace=name) from error
    return Folder(name, revision(files), files)


def revision(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for relative in sorted(files):
        name = os.fsencode(relative)  # a file name need not be UTF-8
        digest.update(b"%d:%b%d:" % (len(name), name, len(files[relative])))
        digest.update(files[relative])
    return digest.hexdigest()[:32]


def write_snapshot(folder: Folder, target: Path) -> None:
    """Put `folder` at `target`, all or nothing; an intact one that is already there stays."""
    if target.is_dir():
        if is_intact(target, folder.revision):
            return
        shutil.rmtree(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    for relative, data in folder.files.items():
        file = partial / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    partial.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(partial, target)
    except OSError:
        if not target.is_dir():  # another process wrote the same version first
            raise
        shutil.rmtree(partial, ignore_errors=True)


def is_intact(target: Path, expected: str) -> bool:
    try:
        return read(target.name, target).revision == expected
    except (OSError, ConfigError):
        return False


def _walk(path: Path) -> Iterator[tuple[str, Path]]:
    """Files below `path`, sorted, with their relative names. A link that leads out of the folder is an error."""
    root = path.resolve()
    count = 0
    for parent, directories, files in os.walk(root):
        directories[:] = sorted(d for d in directories if d not in _IGNORED and not d.startswith("."))
        for link in [d for d in directories if os.path.islink(os.path.join(parent, d))]:
            _refuse_escape(root, Path(parent, link), path.name)
            directories.remove(link)
        for file in sorted(files):
            full = Path(parent, file)
            if file.startswith(".") or file.endswith((".pyc", "~", ".swp")):
                continue
            if full.is_symlink():
                _refuse_escape(root, full, path.name)
            if not stat.S_ISREG(os.stat(full).st_mode):
                continue
            count += 1
            if count > MAX_FILES:
                raise ConfigError(
                    f"The folder of namespace {path.name!r} holds more than {MAX_FILES:,} files.",
                    namespace=path.name,
                )
            yield full.relative_to(root).as_posix(), full


def _refuse_escape(root: Path, link: Path, name: str) -> None:
    target = link.resolve()
    if not target.is_relative_to(root):
        shown = _shown(str(link.relative_to(root)))
        raise ConfigError(
            f"{shown} in namespace {name!r} is a link that leads out of the folder. Copy the file, "
            "or list its folder under roots in tooldock.yaml.",
            namespace=name,
            file=shown,
        )


def _shown(name: str) -> str:
    """A file name as text that can be sent anywhere, also when its bytes are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
