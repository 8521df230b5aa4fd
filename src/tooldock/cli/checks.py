"""The examinations behind `tooldock doctor`. Each looks at one thing, changes nothing and never raises."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tooldock.cli.failure import Failure
from tooldock.cli.gateway import Gateway, running_core, stored_credential
from tooldock.cli.place import data_paths, load_settings
from tooldock.errors import ToolDockError
from tooldock.paths import Paths
from tooldock.settings import Settings

Status = Literal["ok", "warn", "fail"]

LEAST_PYTHON = (3, 11)
_UV_SECONDS = 10
_LITTLE = 1 << 30
_NONE = 200 << 20


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    status: Status
    text: str
    advice: str = ""


def examine() -> list[Result]:
    paths = data_paths()
    try:
        settings: Settings | None = load_settings()
        configured = Result("settings", "ok", "flags, environment and config.yaml can be used")
    except ToolDockError as error:
        settings = None
        configured = Result("settings", "fail", error.message, "correct them; docs/reference/settings.md has each one")
    if settings is not None:
        paths = settings.paths()
    results = [python_version(), uv_runs(), configured, *data_directory(paths)]
    if settings is not None:
        results += [*ports(settings, paths), secrets_readable(settings, paths)]
    return [*results, *token_modes(paths), *kernel(), cgroup(), core_reachable(paths)]


def python_version(version: tuple[int, ...] = sys.version_info[:3]) -> Result:
    shown = ".".join(map(str, version))
    if tuple(version) < LEAST_PYTHON:
        return Result("python", "fail", shown, "install Python 3.11 or newer")
    return Result("python", "ok", f"{shown} on {platform.system()} {platform.machine()}")


def uv_runs() -> Result:
    advice = "reinstall ToolDock; without uv no namespace gets its requirements"
    try:
        import uv

        program = uv.find_uv_bin()
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_UV_SECONDS, check=True)
    except (ImportError, FileNotFoundError):
        return Result("uv", "fail", "is not installed", advice)
    except (OSError, subprocess.SubprocessError) as error:
        return Result("uv", "fail", f"cannot be run ({type(error).__name__})", advice)
    return Result("uv", "ok", done.stdout.strip().removeprefix("uv "))


# The data directory.


def data_directory(paths: Paths) -> Iterator[Result]:
    folder = paths.data_dir
    if not folder.exists():
        parent = next(parent for parent in folder.parents if parent.exists())
        if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
            yield Result("data", "ok", f"{folder} will be made by the first start")
        else:
            advice = f"make {parent} a directory that user id {os.geteuid()} may write, or set DATA_DIR"
            yield Result("data", "fail", f"{folder} does not exist and cannot be made", advice)
        yield _free_space(parent)
        return
    yield _rights(paths)
    yield _free_space(folder)


def _rights(paths: Paths) -> Result:
    for folder in (paths.data_dir, paths.tools, paths.venvs, paths.logs, paths.state):
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            advice = f"give user id {os.geteuid()} the right to write there"
            return Result("data", "fail", f"{folder} cannot be written", advice)
    for folder in (paths.state, paths.keys, paths.logs):
        if folder.exists() and folder.stat().st_mode & 0o077:
            return Result("data", "warn", f"{folder} is open to other users", f"run: chmod 700 {folder}")
    return Result("data", "ok", f"{paths.data_dir} can be written")


def _free_space(folder: Path) -> Result:
    free = shutil.disk_usage(folder).free
    shown = f"{free / (1 << 30):.1f} GiB free"
    if free < _NONE:
        return Result("disk", "fail", shown, "make room; `tooldock gc` removes what nobody uses")
    if free < _LITTLE:
        return Result("disk", "warn", shown, "environments may not fit; `tooldock gc` removes what nobody uses")
    return Result("disk", "ok", shown)


# Ports.


def ports(settings: Settings, paths: Paths) -> Iterator[Result]:
    from urllib.parse import urlsplit

    try:
        record = running_core(paths)
    except Failure:
        record = None  # `core_reachable` tells
    own = urlsplit(str(record["url"])).port if record else None
    for role, port in (("core", settings.port_for("core")), ("manager", settings.manager_port)):
        yield _port(role, settings.host, port, own=role == "core" and port == own)


def _port(role: str, host: str, port: int, *, own: bool) -> Result:
    name = f"port {port}"
    if own:
        return Result(name, "ok", f"{role}: held by the running gateway of this data directory")
    if port == 0:
        return Result(name, "ok", f"{role}: a free one is taken")
    if _is_free(host, port):
        return Result(name, "ok", f"{role}: free")
    from tooldock.edge.holder import holder

    who = holder(port)
    text = f"{role}: taken by {who}" if who else f"{role}: taken by a process that cannot be seen from here"
    return Result(name, "warn", text, f"end it, or set {role.upper()}_PORT to another port")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


# Credentials and secrets.


def token_modes(paths: Paths) -> Iterator[Result]:
    try:
        files = sorted(file for file in paths.keys.iterdir() if not file.name.startswith("."))
    except FileNotFoundError:
        yield Result("tokens", "ok", "none yet; the first start makes them")
        return
    except OSError as error:
        yield Result("tokens", "fail", f"{paths.keys} cannot be read ({error.strerror})", "run this as its owner")
        return
    bad = [file for file in files if not stat.S_ISREG(file.lstat().st_mode) or file.lstat().st_mode & 0o077]
    for file in bad:
        advice = f"remove it to have a new one made, or run: chmod 600 {file}"
        yield Result("tokens", "fail", f"{file} can be read by others than its owner", advice)
    if not bad:
        yield Result("tokens", "ok", f"{len(files)} in {paths.keys}, readable by their owner alone")


def secrets_readable(settings: Settings, paths: Paths) -> Result:
    if not paths.secrets_enc.exists():
        return Result("secrets", "ok", "none are stored")
    advice = "set SECRETS_KEY to the passphrase they were stored with"
    try:
        key = settings.secrets_key or stored_credential(paths.token("secrets_key"))
    except Failure as failure:
        return Result("secrets", "fail", failure.message, failure.next_step)
    if not key:
        return Result("secrets", "fail", f"{paths.secrets_enc} exists, but there is no key for it", advice)
    from tooldock.engine.secrets import store

    try:
        store.read(paths.secrets_enc, key, {})
    except ToolDockError as error:
        return Result("secrets", "fail", error.message, advice)
    return Result("secrets", "ok", f"{paths.secrets_enc.name} opens with the key")


# The kernel.


def kernel() -> list[Result]:
    """What confines and ends workers reliably; where it lacks, something weaker takes its place."""
    if sys.platform != "linux":
        text = f"{platform.system()} lacks PDEATHSIG and Landlock"
        return [Result("kernel", "warn", text, "workers end when their socket closes; confinement is not enforced")]
    checks: tuple[tuple[str, Callable[[], str | None], str], ...] = (
        ("pidfd", _pidfd, "a kernel from 5.3 on has it"),
        ("memfd", _memfd, "a kernel from 3.17 on has it"),
        ("pdeathsig", lambda: _prctl(2), "workers then end only when their socket closes"),
        ("subreaper", lambda: _prctl(37), "processes a tool leaves behind are then not found"),
        ("landlock", _landlock, "a kernel from 5.13 on with landlock in its LSM list has it"),
    )
    results = []
    for name, check, advice in checks:
        found = check()
        results.append(Result(name, "ok", found) if found else Result(name, "warn", "is not available", advice))
    return results


def _pidfd() -> str | None:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return None
    return "available"


def _memfd() -> str | None:
    try:
        os.close(os.memfd_create("doctor"))
    except (OSError, AttributeError):
        return None
    return "available"


def _prctl(option: int) -> str | None:
    """PR_GET_PDEATHSIG (2) and PR_GET_CHILD_SUBREAPER (37) only read."""
    value = ctypes.c_int(0)
    libc = ctypes.CDLL(None, use_errno=True)
    return "available" if libc.prctl(option, ctypes.byref(value), 0, 0, 0) == 0 else None


def _landlock() -> str | None:
    """landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) answers with the ABI version."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return f"ABI {version}" if version > 0 else None


def cgroup() -> Result:
    if sys.platform != "linux":
        return Result("cgroup", "ok", "not used on this system")
    controllers = Path("/sys/fs/cgroup/cgroup.controllers")
    if controllers.exists():
        return Result("cgroup", "ok", f"v2 with {controllers.read_text().strip() or 'no controllers'}")
    return Result("cgroup", "warn", "version 2 is not mounted", "memory and processor limits are not enforced")


# The running gateway.


def core_reachable(paths: Paths) -> Result:
    try:
        if not os.environ.get("CORE_URL") and running_core(paths) is None:
            return Result("gateway", "ok", f"not running for {paths.data_dir}; `tooldock up` starts it")
        gateway = Gateway.find()
        try:
            health = gateway.get("/health")
        finally:
            gateway.close()
    except Failure as failure:
        return Result("gateway", "fail", failure.message, failure.next_step)
    text = f"version {health.get('version')} answers at {gateway.url}"
    if health.get("status") != "ok":
        return Result("gateway", "warn", f"{text}, and is {health.get('status')}", "`tooldock namespaces` shows why")
    return Result("gateway", "ok", text)
