"""Every file and directory the product writes, named in one place.

    DATA_DIR/
    ├── tools/<ns>/                 what the operator serves, one folder a namespace
    ├── venvs/<key>/  <key>.lock    environments by content; `.cache` is the installer's cache
    ├── repos/                      working copies the manager made
    ├── logs/                       audit lines a day and a role; workers/<ns>.log is what a worker printed
    ├── state/                      ours alone (0700)
    │   ├── layout                  version of this tree
    │   ├── keys/<name>             generated credentials, 0600 each
    │   ├── ns/<ns>/                a namespace's private, lasting directory
    │   ├── snapshots/<ns>/<hash>/  the folder as it is being served
    │   ├── catalogue/<ns>.json     its tools, so that listing starts nothing
    │   ├── run/<role>/             one process's sockets and scratch
    │   ├── sessions/<role>.jsonl   MCP sessions, so that clients keep theirs across a restart; 0600
    │   └── runtime/<hash>/         the copy of the worker package that workers import
    ├── config.yaml
    └── secrets.enc  secrets.meta.yaml  secrets.lock

It knows names and modes, not contents: whoever owns a file reads and writes it.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tooldock.errors import ConfigError, SettingsError

LAYOUT_VERSION = 1

NAMESPACE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""Match with `fullmatch`; the name is also a directory name and travels in a header."""

RESERVED_NAMESPACES = frozenset({"_system"})

_CONTAINER_MARKERS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}")

Migration = Callable[["Paths"], None]
MIGRATIONS: Mapping[int, Migration] = {}
"""From a layout version to the step that leads to the next one."""


def check_namespace_name(name: str) -> str:
    """The name itself, or a `ConfigError` that says what a good one looks like."""
    if name in RESERVED_NAMESPACES:
        raise ConfigError(f"The namespace name {name!r} is reserved for the built-in tools; choose another.")
    if not NAMESPACE_NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} cannot be a namespace name: use 1 to 63 lowercase letters, digits and hyphens, "
            "with a letter or digit at both ends, like 'github' or 'my-tools'."
        )
    return name


def default_data_dir() -> Path:
    """`/data` in a container that has it, otherwise a folder beside the person."""
    volume = Path("/data")
    in_container = any(marker.exists() for marker in _CONTAINER_MARKERS)
    if in_container and volume.is_dir() and os.access(volume, os.W_OK | os.X_OK):
        return volume
    return Path("tooldock_data")


@dataclass(frozen=True, slots=True)
class Paths:
    data_dir: Path
    venvs_dir: Path | None = None

    def __post_init__(self) -> None:
        # Children run in other working directories, so nothing relative may leave here.
        object.__setattr__(self, "data_dir", _absolute(self.data_dir))
        if self.venvs_dir is not None:
            object.__setattr__(self, "venvs_dir", _absolute(self.venvs_dir))

    # What the operator writes.

    @property
    def tools(self) -> Path:
        return self.data_dir / "tools"

    def namespace(self, ns: str) -> Path:
        return self.tools / _segment(ns)

    @property
    def config_file(self) -> Path:
        return self.data_dir / "config.yaml"

    # Secrets.

    @property
    def secrets_enc(self) -> Path:
        return self.data_dir / "secrets.enc"

    @property
    def secrets_meta(self) -> Path:
        return self.data_dir / "secrets.meta.yaml"

    @property
    def secrets_lock(self) -> Path:
        return self.data_dir / "secrets.lock"

    # Environments and working copies.

    @property
    def venvs(self) -> Path:
        return self.venvs_dir or self.data_dir / "venvs"

    @property
    def uv_cache(self) -> Path:
        """Beside the environments, on the same file system, so that installing is linking."""
        return self.venvs / ".cache"

    def environment(self, key: str) -> Path:
        return self.venvs / _segment(key)

    def environment_lock(self, key: str) -> Path:
        return self.venvs / f"{_segment(key)}.lock"

    @property
    def repos(self) -> Path:
        return self.data_dir / "repos"

    # Logs.

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    def audit_log(self, day: date, role: str) -> Path:
        """Core's file carries the day alone; every other process adds its role."""
        suffix = "" if role == "core" else f".{_segment(role)}"
        return self.logs / f"{day.isoformat()}{suffix}.jsonl"

    def worker_log(self, ns: str) -> Path:
        return self.logs / "workers" / f"{_segment(ns)}.log"

    # State.

    @property
    def state(self) -> Path:
        return self.data_dir / "state"

    @property
    def layout_version_file(self) -> Path:
        return self.state / "layout"

    @property
    def layout_lock(self) -> Path:
        return self.state / "layout.lock"

    @property
    def keys(self) -> Path:
        return self.state / "keys"

    def token(self, name: str) -> Path:
        """A generated credential, readable by its owner alone."""
        return self.keys / _segment(name)

    def run_dir(self, role: str) -> Path:
        return self.state / "run" / _segment(role)

    def scratch(self, role: str, name: str) -> Path:
        return self.run_dir(role) / "scratch" / _segment(name)

    def namespace_state(self, ns: str) -> Path:
        return self.state / "ns" / _segment(ns)

    def snapshots(self, ns: str) -> Path:
        return self.state / "snapshots" / _segment(ns)

    def snapshot(self, ns: str, content_hash: str) -> Path:
        return self.snapshots(ns) / _segment(content_hash)

    def catalogue(self, ns: str) -> Path:
        return self.state / "catalogue" / f"{_segment(ns)}.json"

    def sessions(self, role: str) -> Path:
        """MCP sessions of one process, by the digests of their ids; readable by its owner alone."""
        return self.state / "sessions" / f"{_segment(role)}.jsonl"

    @property
    def runtimes(self) -> Path:
        return self.state / "runtime"

    def runtime(self, content_hash: str) -> Path:
        return self.runtimes / _segment(content_hash)

    # Preparing the tree.

    def prepare(self, migrations: Mapping[int, Migration] = MIGRATIONS) -> None:
        """Create what is missing, close what must be private, check the layout version.

        Safe to run in several processes at once. Raises `SettingsError` when the directory cannot be used.
        """
        for directory in (self.data_dir, self.tools, self.venvs, self.repos):
            _make(directory)
        for directory in (self.logs, self.state, self.keys):
            _make(directory)
            _close_to_others(directory)
        for directory in (
            self.logs / "workers",
            self.state / "ns",
            self.state / "snapshots",
            self.state / "catalogue",
            self.state / "run",
            self.state / "sessions",
            self.runtimes,
        ):
            _make(directory)
        for directory in (self.data_dir, self.venvs, self.logs, self.state):
            _check_writable(directory)
        self._check_layout(migrations)

    def _check_layout(self, migrations: Mapping[int, Migration]) -> None:
        with _exclusive(self.layout_lock):
            version = self._layout_version()
            if version > LAYOUT_VERSION:
                raise SettingsError(
                    f"The data directory {self.data_dir} has layout version {version}, but this ToolDock "
                    f"knows only up to {LAYOUT_VERSION}: a newer release wrote it. Upgrade ToolDock, or set "
                    "DATA_DIR to another directory.",
                    found=version,
                    known=LAYOUT_VERSION,
                )
            while version < LAYOUT_VERSION:
                step = migrations.get(version)
                if step is None:
                    raise SettingsError(
                        f"The data directory {self.data_dir} has layout version {version}, and there is no "
                        f"way from it to {LAYOUT_VERSION}. Set DATA_DIR to another directory.",
                        found=version,
                        known=LAYOUT_VERSION,
                    )
                step(self)
                version += 1
                self._write_layout_version(version)
            if not self.layout_version_file.exists():
                self._write_layout_version(LAYOUT_VERSION)

    def _layout_version(self) -> int:
        try:
            text = self.layout_version_file.read_text("ascii").strip()
        except FileNotFoundError:
            return LAYOUT_VERSION
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"The layout version in {self.layout_version_file} cannot be read.") from error
        if not text.isdigit():
            raise SettingsError(
                f"{self.layout_version_file} should hold the layout version as a number and does not. "
                f"Restore the data directory from a backup, or write {LAYOUT_VERSION} into that file if it "
                "is known to be current."
            )
        return int(text)

    def _write_layout_version(self, version: int) -> None:
        temporary = self.layout_version_file.with_name("layout.new")
        temporary.write_text(f"{version}\n", "ascii")
        os.replace(temporary, self.layout_version_file)


def _absolute(path: Path) -> Path:
    return Path(path).expanduser().absolute()


def _segment(name: str) -> str:
    """Names become path segments only if they cannot climb, hide or contain a separator."""
    if not _SEGMENT.fullmatch(name):
        raise ValueError(f"not usable as a file name: {name[:80]!r}")
    return name


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise SettingsError(
            f"{directory} must be a directory, but a file is in its place. Move the file away, or set "
            "DATA_DIR (or VENVS_DIR) to another directory."
        ) from error
    except OSError as error:
        raise _unusable(directory, error.strerror or "unknown reason") from error


def _close_to_others(directory: Path) -> None:
    mode = directory.stat().st_mode
    if not mode & 0o077:
        return
    try:
        directory.chmod(0o700)
    except OSError as error:
        raise SettingsError(
            f"{directory} must be private to its owner, but it is not and belongs to another user. "
            f"Run ToolDock as that user, or run: chmod 700 {directory}"
        ) from error


def _check_writable(directory: Path) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise _unusable(directory, "Permission denied")


def _unusable(directory: Path, reason: str) -> SettingsError:
    return SettingsError(
        f"The directory {directory} cannot be written ({reason}). Give user id {os.geteuid()} the right to "
        "write there, or set DATA_DIR (or VENVS_DIR) to a directory that it may write."
    )


@contextmanager
def _exclusive(lock_file: Path) -> Iterator[None]:
    descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
