"""Environments: the virtual environment a namespace's requirements ask for, built once and shared by content.

    venvs/<key>/            an environment; `.complete` is written last and holds what was installed
    venvs/base-<key>/       the one for namespaces without requirements: the worker's base set, nothing else
    venvs/<key>.lock        flock: exclusive while building or removing, shared while a process uses it

The key is the hash of the requirements, the interpreter and the base set, so an environment never changes and
is never renamed (its console scripts carry its path). A directory without its marker is a build that died;
whoever gets the lock next removes it. The installer ends with the gateway, and inherits the lock, so that it
excludes others for as long as it writes.

**What a requirements text may say.** It is written by whoever writes the tools, which may be a model, and it
is read by the gateway, outside the namespace's confinement. So it may name packages, not reach around:

- requirements by name, with extras, versions, markers, `--hash`; `name @ https://...` and `git+https://...`;
- `--index-url`, `--extra-index-url` and `--find-links` with an https address: the code that comes from there
  runs in the namespace only, like the tools themselves;
- `--pre`, `--prefer-binary`, `--only-binary`, `--no-binary`, `--require-hashes`;
- not `-r`, `-c`, `-e`, local paths, `file:` or other schemes: the key would not cover what they point to, and
  they would read the gateway's disk;
- not `--trusted-host`, and no `${NAME}`: the installer would put the gateway's own environment in its place.

This module knows nothing of namespaces, snapshots or workers: it takes text and hands back an interpreter.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import sys
import sysconfig
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
import uv
from structlog.typing import FilteringBoundLogger

from tooldock.errors import DependencyError, InternalError
from tooldock.paths import Paths

BASE_SET = ("pydantic>=2.10,<3",)
"""What the worker package itself needs, in every environment."""

Progress = Callable[[str], None]

_FORMAT = "1"
_MARKER = ".complete"
_WORDS_BOUND = 4_000
_OUTPUT_BOUND = 1024 * 1024
_LOCK_POLL_SECONDS = 0.05
_LOCK_MARGIN_SECONDS = 30.0
"""A waiter outlasts the build it waits for by this much, so that it can use the result."""

_PROGRESS = re.compile(r"(Resolved|Downloading|Downloaded|Building|Built|Prepared|Installed|Updating|Updated)\b")
_CREDENTIALS_IN_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)[^/\s]{1,1000}@")


@dataclass(frozen=True, slots=True)
class Environment:
    path: Path
    python: Path
    key: str


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """What decides whether an installed package fits."""

    path: Path
    version: str
    platform: str


class Environments:
    """Builds environments, keeps them while they are used, and collects the rest."""

    def __init__(
        self,
        paths: Paths,
        *,
        uv_cache: Path | None = None,
        build_timeout: float = 600.0,
        python: Path | None = None,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._paths = paths
        self._uv_cache = (uv_cache or paths.uv_cache).absolute()
        self._build_timeout = build_timeout
        self._python = python
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._interpreter: _Interpreter | None = None
        self._held: dict[str, int] = {}
        self._holding = threading.Lock()

    async def base(self, on_progress: Progress | None = None) -> Environment:
        """The environment that holds the base set alone."""
        key = await self._key(())
        return await self._environment(f"base-{key}", (), on_progress)

    async def for_requirements(self, text: str, on_progress: Progress | None = None) -> Environment:
        """The environment for a requirements file's text; `DependencyError` when there cannot be one."""
        lines = normalise(text)
        if not lines:
            return await self.base(on_progress)
        return await self._environment(await self._key(lines), lines, on_progress)

    async def collect(self, in_use: set[str]) -> list[str]:
        """Remove environments and runtimes nobody uses; answers with their names.

        `in_use` is what this process still needs, by key, including environments handed out a moment ago.
        What other processes use is known from their locks.
        """
        return await asyncio.to_thread(self._collect, frozenset(in_use))

    def release(self, key: str) -> None:
        """This process no longer uses an environment; another may collect it."""
        with self._holding:
            self._let_go(key)

    def close(self) -> None:
        """Let go of every environment; another process may collect them from now on."""
        with self._holding:
            for key in tuple(self._held):
                self._let_go(key)

    # Finding.

    async def _key(self, lines: tuple[str, ...]) -> str:
        if self._interpreter is None:
            self._interpreter = await self._describe()
        about = self._interpreter
        facts = [_FORMAT, *BASE_SET, "", str(about.path), about.version, about.platform, "", *lines]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    async def _describe(self) -> _Interpreter:
        own = Path(getattr(sys, "_base_executable", None) or sys.executable)
        if self._python is None or self._python == own:
            return _Interpreter(own, sys.version, sysconfig.get_platform())
        code = "import json, sys, sysconfig; print(json.dumps([sys.version, sysconfig.get_platform()]))"
        async with asyncio.timeout(60):
            done = await _run([str(self._python), "-I", "-c", code], self._child_environment())
        if done.returncode != 0:
            raise DependencyError(f"The interpreter {self._python} cannot be run: {done.words()}")
        version, platform = json.loads(done.stdout)
        return _Interpreter(self._python, version, platform)

    async def _environment(self, key: str, lines: tuple[str, ...], on_progress: Progress | None) -> Environment:
        path = self._paths.environment(key)
        environment = Environment(path, path / "bin" / "python", key)
        for _attempt in range(3):
            if await asyncio.to_thread(self._hold_complete, key):
                return environment
            async with self._locked(key) as lock:
                if not await asyncio.to_thread(_is_complete, path):
                    await self._build(environment, lines, on_progress or _silent, lock)
            # Between the build and our hold a collector may take it away again; then it is built once more.
        raise DependencyError(
            f"Environment {key} was removed by another process each time it was built. "
            "Look for a second ToolDock that collects garbage in the same directory, then reload.",
            key=key,
        )

    def _hold_complete(self, key: str) -> bool:
        """Whether the environment is there and is now held by this process."""
        path = self._paths.environment(key)
        with self._holding:
            if not _is_complete(path):
                # Somebody deleted it; our own hold must not keep us from building it again.
                self._let_go(key)
                return False
            if key in self._held:
                return True
            descriptor = _open_lock(self._paths.environment_lock(key))
            if _try_lock(descriptor, fcntl.LOCK_SH) and _is_complete(path):
                self._held[key] = descriptor
                return True
            os.close(descriptor)
            return False

    def _let_go(self, key: str) -> None:
        descriptor = self._held.pop(key, None)
        if descriptor is not None:
            os.close(descriptor)

    @asynccontextmanager
    async def _locked(self, key: str) -> AsyncIterator[int]:
        """The exclusive lock of one environment, across tasks and processes, with a bounded wait."""
        lock_file = self._paths.environment_lock(key)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._build_timeout + _LOCK_MARGIN_SECONDS
        descriptor = _open_lock(lock_file)
        try:
            while not _try_lock(descriptor, fcntl.LOCK_EX):
                if loop.time() > give_up:
                    raise DependencyError(
                        f"Another process has been building environment {key} for longer than "
                        f"{self._build_timeout:g} seconds. Wait for it or end it, then reload; "
                        "ENVIRONMENT_BUILD_TIMEOUT_SECONDS sets how long a build may take.",
                        key=key,
                    )
                await asyncio.sleep(_LOCK_POLL_SECONDS)
                if not _still_named(descriptor):
                    # What we waited for was collected, with its lock file: queue at the new one.
                    fresh = _open_lock(lock_file)
                    os.close(descriptor)
                    descriptor = fresh
            yield descriptor
        finally:
            os.close(descriptor)

    # Building.

    async def _build(self, environment: Environment, lines: tuple[str, ...], on_progress: Progress, lock: int) -> None:
        started = asyncio.get_running_loop().time()
        self._log.info("environment.build", key=environment.key, requirements=len(lines))
        try:
            await asyncio.to_thread(_remove, environment.path)
            async with asyncio.timeout(self._build_timeout):
                await self._install(environment, lines, on_progress, lock)
        except BaseException as error:
            await asyncio.to_thread(_remove, environment.path)
            self._log.info("environment.failed", key=environment.key, reason=type(error).__name__)
            if isinstance(error, TimeoutError):
                raise DependencyError(
                    f"Installing the requirements took longer than {self._build_timeout:g} seconds and was "
                    "stopped. Ask for fewer packages, or raise ENVIRONMENT_BUILD_TIMEOUT_SECONDS.",
                    key=environment.key,
                ) from None
            raise
        elapsed = asyncio.get_running_loop().time() - started
        self._log.info("environment.built", key=environment.key, seconds=round(elapsed, 2))

    async def _install(
        self, environment: Environment, lines: tuple[str, ...], on_progress: Progress, lock: int
    ) -> None:
        assert self._interpreter is not None
        made = await self._uv(
            ["venv", "--no-project", "--python", str(self._interpreter.path), str(environment.path)],
            lock=lock,
        )
        if made.returncode != 0:
            raise _failure("The environment could not be created.", made, environment)
        wanted = await asyncio.to_thread(_write_lines, environment.path / "requirements.in", (*lines, *BASE_SET))
        pins = await self._resolve(environment, wanted, on_progress, lock)
        options = tuple(line for line in lines if line.startswith("-"))
        pinned = await asyncio.to_thread(_write_lines, environment.path / "requirements.pins", (*options, *pins))
        # Pins carry no hashes; where the author gave some, those lines are installed, held to the pins.
        hashed = any("--hash" in line for line in lines)
        files = ["-r", str(wanted), "-c", str(pinned)] if hashed else ["-r", str(pinned)]
        command = ["pip", "install", "--python", str(environment.python), *files]
        done = await self._offline_first(command, on_progress, lock)
        if done.returncode != 0:
            raise _failure("The requirements could be resolved but not installed.", done, environment)
        await asyncio.to_thread(_mark_complete, environment.path, pins)

    async def _resolve(
        self, environment: Environment, wanted: Path, on_progress: Progress, lock: int
    ) -> tuple[str, ...]:
        command = ["pip", "compile", "--no-header", "--no-annotate", "--python", str(environment.python)]
        done = await self._offline_first([*command, str(wanted)], on_progress, lock)
        if done.returncode == 0:
            return _pins(done.stdout)
        if "pydantic" in done.stderr:
            await self._blame_base_set(environment, command, done, lock)
        raise _failure("The requirements cannot be resolved.", done, environment)

    async def _blame_base_set(self, environment: Environment, command: list[str], failed: _Finished, lock: int) -> None:
        """If the requirements resolve without the base set, that is what they clash with: say so plainly."""
        wanted = environment.path / "requirements.in"
        text = await asyncio.to_thread(wanted.read_text, "utf-8")
        alone = environment.path / "requirements.alone"
        await asyncio.to_thread(_write_lines, alone, tuple(line for line in text.splitlines() if line not in BASE_SET))
        done = await self._offline_first([*command, str(alone)], _silent, lock)
        found = re.search(r"(?m)^pydantic==(\S+)", done.stdout)
        if done.returncode == 0 and found:
            raise _failure(
                f"A namespace needs pydantic 2 ({BASE_SET[0]}), because the worker that runs its tools is "
                f"built on it, but these requirements lead to pydantic {found[1]}. Allow {BASE_SET[0]}, or "
                "use a release of the package that does.",
                failed,
                environment,
            )

    async def _offline_first(self, command: list[str], on_progress: Progress, lock: int) -> _Finished:
        """What the cache already holds needs no index, and is three times faster without one."""
        done = await self._uv([*command, "--offline"], on_progress, lock=lock)
        if done.returncode == 0:
            return done
        return await self._uv(command, on_progress, lock=lock)

    async def _uv(self, arguments: list[str], on_progress: Progress | None = None, *, lock: int) -> _Finished:
        return await _run(
            [uv.find_uv_bin(), *arguments],
            self._child_environment(),
            # Not below the data directory: a project that it lies in may configure the installer for itself.
            cwd=Path("/"),
            on_progress=on_progress or _silent,
            pass_fds=(lock,),
        )

    def _child_environment(self) -> dict[str, str]:
        return installer_environment(os.environ) | {
            "UV_CACHE_DIR": str(self._uv_cache),
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "NO_COLOR": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
        }

    # Collecting.

    def _collect(self, in_use: frozenset[str]) -> list[str]:
        removed = []
        for path in sorted(self._paths.venvs.iterdir()):
            if not path.is_dir() or path.is_symlink() or path.name.startswith(".") or path.name in in_use:
                continue
            with self._holding:
                self._let_go(path.name)
            if _remove_unused(path, self._paths.environment_lock(path.name)):
                removed.append(path.name)
        for lock_file in self._paths.venvs.glob("*.lock"):
            # Left by a build that failed.
            if not lock_file.with_suffix("").exists():
                _remove_unused(lock_file.with_suffix(""), lock_file)
        removed += _collect_runtimes(self._paths, in_use)
        if removed:
            self._log.info("environment.collected", names=removed)
        return removed


# What a requirements text may say.

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_BY_NAME = re.compile(rf"({_NAME})\s*(\[[A-Za-z0-9._,\s-]*\])?\s*(\(?\s*(===|[~=!<>]=?).*|;.*|)")
_BY_ADDRESS = re.compile(rf"(?:{_NAME}\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*@\s*)?(\S+)(?:\s+;.*)?")
_ADDRESS = re.compile(r"(?i)(?:git\+)?https://[^\s/]+\S*")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
_ARCHIVE = re.compile(r"(?i).*\.(whl|zip|egg|tar|tgz|tbz2?|txz|tar\.[a-z0-9]+)")
_HASH = re.compile(r"\s+--hash[=\s](sha256|sha384|sha512):[0-9a-fA-F]+")
_PLAIN_OPTIONS = frozenset({"--pre", "--prefer-binary", "--require-hashes"})
_PACKAGE_OPTIONS = frozenset({"--only-binary", "--no-binary"})
_ADDRESS_OPTIONS = frozenset({"-i", "--index-url", "--extra-index-url", "-f", "--find-links"})
_FILE_OPTIONS = frozenset({"-r", "--requirement", "-c", "--constraint"})
_TEXT_BOUND = 256 * 1024
_REQUIREMENT_BOUND = 1_000


def normalise(text: str) -> tuple[str, ...]:
    """The lines that matter, checked: options in their order, then requirements sorted.

    `DependencyError` names the line that is not allowed.
    """
    options: list[str] = []
    requirements: set[str] = set()
    if len(text) > _TEXT_BOUND:
        raise DependencyError(f"requirements.txt has more than {_TEXT_BOUND} characters; shorten it.")
    for number, line in _logical_lines(text):
        _refuse_control(number, line)
        if line.startswith("-"):
            options.append(_check_option(number, line))
        else:
            requirements.add(_check_requirement(number, line))
    return (*dict.fromkeys(options), *sorted(requirements))


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines with their number, continuation lines joined, comments and blanks left out."""
    pending, start = "", 0
    for number, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = _COMMENT.sub("", raw).rstrip()
        start = start if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        whole = re.sub(r"[ \t]+", " ", pending + line).strip()
        pending = ""
        if whole:
            yield start, whole
    if pending.strip():
        yield start, pending.strip()


def _refuse_control(number: int, line: str) -> None:
    if not line.isprintable():
        raise _refused(number, line, "it holds a control character")
    if "${" in line:
        raise _refused(number, line, "variables are not filled in; write the value itself")


def _check_option(number: int, line: str) -> str:
    name, value = _split_option(line)
    if name in _PLAIN_OPTIONS and not value:
        return name
    if name in _PACKAGE_OPTIONS and re.fullmatch(r"[A-Za-z0-9._,:-]+", value):
        return f"{name} {value}"
    if name in _ADDRESS_OPTIONS:
        if re.fullmatch(r"(?i)https://[^\s/]+\S*", value):
            return f"{name} {value}"
        raise _refused(number, line, "the address must start with https://")
    if name in _FILE_OPTIONS:
        raise _refused(number, line, "other files are not read; put their lines into this one")
    if name in ("-e", "--editable"):
        raise _refused(number, line, "name the package or its git+https address instead")
    raise _refused(number, line, "this option is not allowed here")


def _split_option(line: str) -> tuple[str, str]:
    if line.startswith("--"):
        name, _, value = line.replace("=", " ", 1).partition(" ")
        return name, value.strip()
    return line[:2], line[2:].strip()


def _check_requirement(number: int, line: str) -> str:
    bare = _HASH.sub("", line)
    if len(bare) > _REQUIREMENT_BOUND:
        raise _refused(number, line, f"it is longer than {_REQUIREMENT_BOUND} characters")
    by_name = _BY_NAME.fullmatch(bare)
    if by_name and "--" not in bare and not _ARCHIVE.fullmatch(by_name[1]):
        return line
    address = _BY_ADDRESS.fullmatch(bare)
    if address and _ADDRESS.fullmatch(address[1]) and "@-" not in address[1]:
        return line
    if "--" in bare:
        raise _refused(number, line, "only --hash may follow a requirement")
    if address and (":" in address[1] or "/" in address[1] or address[1].startswith(".")):
        raise _refused(number, line, "packages come by name, or from an https:// or git+https:// address")
    raise _refused(number, line, "it is not a requirement; write one like httpx>=0.27")


def _refused(number: int, line: str, why: str) -> DependencyError:
    shown = _mask(line[:2_000])[:120]
    return DependencyError(f"requirements.txt line {number} cannot be used ({shown!r}): {why}.", line=number)


# Running the installer.

_PASSED_ON = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"})
_PASSED_PREFIXES = ("UV_", "PIP_", "SSL_")
_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})
_KEPT_BACK = re.compile(r"UV_PUBLISH_|UV_(?:PYTHON|SYSTEM_PYTHON|PROJECT|PROJECT_ENVIRONMENT|WORKING_DIRECTORY)$")


def installer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the installer and the build scripts it runs may see: a short list, no secret of the gateway."""
    return {
        name: value
        for name, value in environ.items()
        if name in _PASSED_ON
        or name.upper() in _PROXIES
        or (name.startswith(_PASSED_PREFIXES) and not _KEPT_BACK.match(name))
    }


@dataclass(frozen=True, slots=True)
class _Finished:
    returncode: int
    stdout: str
    stderr: str

    def words(self) -> str:
        """The installer's own words, bounded, without anybody's password."""
        text = _mask((self.stderr.strip() or self.stdout.strip())[: 16 * _WORDS_BOUND])
        if len(text) <= _WORDS_BOUND:
            return text
        return text[: _WORDS_BOUND - 6].rstrip() + " [...]"


def _mask(text: str) -> str:
    return _CREDENTIALS_IN_URL.sub(r"\1***@", text)


def _failure(sentence: str, done: _Finished, environment: Environment) -> DependencyError:
    words = done.words()
    for name in ("requirements.in", "requirements.pins", "requirements.alone"):
        words = words.replace(str(environment.path / name), "requirements.txt")
    return DependencyError(f"{sentence} The installer says:\n{words}", key=environment.key, resolver=words)


def _silent(_line: str) -> None:
    return None


_LEASH = """
import os, select, signal, sys
ended, tell = os.pipe()
os.set_blocking(tell, False)
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.set_wakeup_fd(tell)
child = os.fork()
if child == 0:
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        os.write(2, f"{sys.argv[1]}: {error.strerror}".encode())
    finally:
        os._exit(127)
select.select([0, ended], [], [])
for kill in os.killpg, os.kill:
    try:
        kill(child, 9)
    except OSError:
        pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
"""
"""Runs a command in a group of its own and waits for it. When it has ended, or when our end of the standard input
closes, which even kill -9 of the gateway causes, all that it started is ended as well. It is the command's parent, so
that nobody is left to be reaped by a process 1 that does not do so, such as a gateway in a container."""


async def _run(
    command: list[str],
    environment: Mapping[str, str],
    *,
    cwd: Path | None = None,
    on_progress: Progress = _silent,
    pass_fds: tuple[int, ...] = (),
) -> _Finished:
    """Run to the end; cancellation (also by a deadline) ends it and all it started first."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _LEASH, *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=cwd,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as readers:
            out = readers.create_task(_read(process.stdout, _silent))
            err = readers.create_task(_read(process.stderr, on_progress))
        await process.wait()
    except BaseException:
        process.stdin.close()
        await process.wait()
        raise
    process.stdin.close()
    assert process.returncode is not None
    return _Finished(process.returncode, out.result(), err.result())


async def _read(stream: asyncio.StreamReader, on_line: Progress) -> str:
    """What the stream says, up to a bound; the rest is read and dropped so that the writer never blocks."""
    kept: list[bytes] = []
    size = 0
    partial = b""
    while chunk := await stream.read(65536):
        if size < _OUTPUT_BOUND:
            kept.append(chunk)
            size += len(chunk)
        *lines, partial = (partial + chunk).split(b"\n")
        partial = partial[-4096:]
        for line in lines:
            text = line.decode("utf-8", "replace").strip()
            if _PROGRESS.match(text):
                on_line(_mask(text)[:300])
    return b"".join(kept).decode("utf-8", "replace")


# Files and locks.


def _is_complete(path: Path) -> bool:
    return (path / _MARKER).is_file()


def _write_lines(file: Path, lines: Iterable[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return file


def _pins(text: str) -> tuple[str, ...]:
    return tuple(line for raw in text.splitlines() if (line := raw.strip()) and not line.startswith("#"))


def _mark_complete(path: Path, pins: Iterable[str]) -> None:
    for name in ("requirements.in", "requirements.pins"):
        (path / name).unlink(missing_ok=True)
    unfinished = _write_lines(path / f"{_MARKER}.new", pins)
    os.replace(unfinished, path / _MARKER)


def _remove(path: Path) -> None:
    """Remove a tree so that it stops counting as complete first."""
    (path / _MARKER).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        raise DependencyError(f"The unfinished environment {path} cannot be removed. Remove it by hand, then reload.")


def _open_lock(lock_file: Path) -> int:
    try:
        return os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DependencyError(
            f"The directory of environments {lock_file.parent} cannot be written ({error.strerror}). "
            "Make it writable, or set VENVS_DIR to another directory."
        ) from error


def _try_lock(descriptor: int, kind: int) -> bool:
    """Take the lock if it is free and its file still has a name; a collector may have removed it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return _still_named(descriptor)


def _still_named(descriptor: int) -> bool:
    return os.fstat(descriptor).st_nlink > 0


def _remove_unused(path: Path, lock_file: Path) -> bool:
    """Remove `path` and its lock file unless somebody holds the lock."""
    descriptor = _open_lock(lock_file)
    try:
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            return False
        try:
            _remove(path)
        except DependencyError:
            return False  # what cannot be removed now is tried again next time
        lock_file.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


# The runtime: the worker package, copied out of the gateway's own environment.

_runtime_holds: dict[Path, int] = {}
"""Shared locks on the runtimes this process uses, held until it ends."""


def copy_runtime(paths: Paths) -> Path:
    """The directory workers get as PYTHONPATH: a copy of the worker package and nothing else.

    The package itself lies in the gateway's environment; putting that on a worker's path would show every
    namespace the gateway's own packages. The copy is named by its content and checked before it is used
    again, because a tool may have written to it.
    """
    files = _worker_files()
    content_hash = _content_hash(files)
    target = paths.runtime(content_hash)
    _hold_runtime(target)
    if target.is_dir():
        if _is_unchanged(target, files):
            return target
        _set_aside(target)
    unfinished = paths.runtimes / f".new-{secrets.token_hex(8)}"
    try:
        for name, content in files.items():
            file = unfinished / "tooldock_worker" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        os.rename(unfinished, target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        # Another process made the same copy in the meantime.
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _worker_files() -> dict[str, bytes]:
    spec = importlib.util.find_spec("tooldock_worker")
    if spec is None or not spec.submodule_search_locations:
        raise InternalError("The package tooldock_worker is missing: reinstall ToolDock.")
    return _python_files(Path(next(iter(spec.submodule_search_locations))))


def _python_files(package: Path) -> dict[str, bytes]:
    return {
        file.relative_to(package).as_posix(): file.read_bytes()
        for file in sorted(package.rglob("*.py"))
        if file.is_file()
    }


def _is_unchanged(target: Path, files: Mapping[str, bytes]) -> bool:
    """Whether a runtime holds what was copied and nothing else, apart from what the interpreter caches."""
    package = target / "tooldock_worker"
    expected = {package / name for name in files}
    for path in target.rglob("*"):
        if path not in expected and path.parent.name != "__pycache__" and (path.is_symlink() or not path.is_dir()):
            return False
    return _python_files(package) == files


def _content_hash(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _hold_runtime(target: Path) -> None:
    if target in _runtime_holds:
        return
    lock_file = target.with_name(f"{target.name}.lock")
    while True:
        descriptor = _open_lock(lock_file)
        # Exclusive is held only for the moment it takes to remove one, so this wait is short.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _still_named(descriptor):
            _runtime_holds[target] = descriptor
            return
        os.close(descriptor)


def _set_aside(target: Path) -> None:
    spoilt = target.with_name(f".old-{secrets.token_hex(8)}")
    try:
        os.rename(target, spoilt)
    except FileNotFoundError:
        return  # another process noticed first
    shutil.rmtree(spoilt, ignore_errors=True)


def _collect_runtimes(paths: Paths, in_use: frozenset[str]) -> list[str]:
    removed = []
    for path in sorted(paths.runtimes.iterdir()) if paths.runtimes.is_dir() else []:
        if not path.is_dir() or path.name.startswith(".") or path.name in in_use or path in _runtime_holds:
            continue
        if _remove_unused(path, path.with_name(f"{path.name}.lock")):
            removed.append(path.name)
    return removed
