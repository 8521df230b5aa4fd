from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.gateway import is_alive, until
from tooldock.errors import DependencyError
from tooldock.paths import Paths
from tooldock.workers import venvs as module
from tooldock.workers.venvs import (
    BASE_SET,
    Environment,
    Environments,
    copy_runtime,
    installer_environment,
    normalise,
)

builds = pytest.mark.network


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "data")
    paths.prepare()
    return paths


@pytest.fixture
async def environments(paths: Paths, venvs: Path) -> AsyncIterator[Callable[..., Environments]]:
    """Makers of environments in this test's own directory; packages come from the cache all tests share."""
    made: list[Environments] = []

    def make(*, build_timeout: float = 100) -> Environments:
        made.append(Environments(paths, uv_cache=venvs / ".cache", build_timeout=build_timeout))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(environment: Environment, code: str, **variables: str) -> str:
    """What the environment's own interpreter answers, with nothing of ours around it."""
    answer = subprocess.run(
        [environment.python, "-c", code],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return (answer.stdout + answer.stderr).strip()


PACKAGES = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"


# What a requirements text may say.


@pytest.mark.parametrize(
    "line",
    [
        "httpx",
        "httpx>=0.27",
        "httpx >= 0.27, < 1 ; python_version >= '3.11'",
        "httpx[http2,socks]~=0.27",
        "zope.interface==6.0",
        "torch===2.0",
        "six (>=1.0)",
        "six==1.16.0 --hash=sha256:8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254",
        "thing @ https://example.org/thing-1.0-py3-none-any.whl",
        "thing[x]@https://example.org/thing-1.0.tar.gz ; python_version > '3'",
        "https://example.org/thing-1.0-py3-none-any.whl",
        "thing @ git+https://example.org/x/thing@v1.0#subdirectory=py",
        "git+https://example.org/x/thing",
        "--pre",
        "--prefer-binary",
        "--require-hashes",
        "--only-binary :all:",
        "--no-binary thing,other",
        "--index-url https://example.org/simple",
        "--extra-index-url https://user:password@example.org/simple",
        "-i https://example.org/simple",
        "--find-links https://example.org/wheels",
    ],
)
def test_names_and_https_addresses_are_accepted(line: str) -> None:
    assert normalise(f"\n  {line}  # why\n") == (line,)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-e .", "git\\+https"),
        ("-e git+https://example.org/x", "git\\+https"),
        ("--editable=.", "git\\+https"),
        ("-r other.txt", "other files"),
        ("-rother.txt", "other files"),
        ("--requirement /etc/passwd", "other files"),
        ("-c constraints.txt", "other files"),
        (".", "by name"),
        ("./thing", "by name"),
        ("../thing", "by name"),
        ("/srv/thing", "by name"),
        ("~/thing", "by name"),
        ("thing.whl", "not a requirement"),
        ("thing-1.0.tar.gz", "not a requirement"),
        ("C:\\thing", "by name"),
        ("file:///srv/thing", "by name"),
        ("thing @ file:///srv/thing", "by name"),
        ("thing @ ./thing", "by name"),
        ("thing @ http://example.org/thing.whl", "by name"),
        ("git+ssh://git@example.org/x", "by name"),
        ("git+file:///srv/x", "by name"),
        ("git+https://example.org/x@--upload-pack=evil", "only --hash"),
        ("git+https://example.org/x@-u", "by name"),
        ("six --global-option=x", "only --hash"),
        ("six -r other.txt", "not a requirement"),
        ("--trusted-host example.org", "not allowed"),
        ("--no-index", "not allowed"),
        ("--index-url http://example.org", "https://"),
        ("--index-url file:///srv", "https://"),
        ("--find-links /srv/wheels", "https://"),
        ("-f .", "https://"),
        ("--config-settings x=y", "not allowed"),
        ("--index-url https://${SECRETS_KEY}@example.org", "variables"),
        ("thing @ https://example.org/${HOME}", "variables"),
        ("six\x00", "control"),
        ("a" * 1_001, "longer than"),
        ("two words", "not a requirement"),
        ("=1.0", "not a requirement"),
    ],
)
def test_what_reaches_around_is_refused_by_line(line: str, words: str) -> None:
    with pytest.raises(DependencyError, match=words) as caught:
        normalise(f"# first\nsix\n{line}\n")
    assert caught.value.message.startswith("requirements.txt line 3 ")


def test_a_refused_line_shows_no_password() -> None:
    with pytest.raises(DependencyError) as caught:
        normalise("git+ssh://user:hunt@er22@example.org/x")
    assert "er22" not in caught.value.message


def test_the_same_requirements_are_the_same_however_written() -> None:
    one = normalise("httpx>=0.27\nsix\n")
    assert one == normalise("\ufeff# needs\r\nsix   # strings\r\n\r\nhttpx>=0.27\r\nsix\r\n")


def test_options_keep_their_order_because_it_counts() -> None:
    first, second = "--extra-index-url https://a.example", "--extra-index-url https://b.example"
    assert normalise(f"six\n{second}\n{first}\n") == (second, first, "six")


def test_continued_lines_are_one_requirement() -> None:
    digest = "sha256:" + "a" * 64
    assert normalise(f"six==1.16.0 \\\n    --hash={digest} \\\n    --hash={digest}\n") == (
        f"six==1.16.0 --hash={digest} --hash={digest}",
    )


def test_a_huge_text_is_refused_and_long_whitespace_is_no_trap() -> None:
    with pytest.raises(DependencyError, match="shorten"):
        normalise("x" * 300_000)
    assert normalise(" " * 200_000 + "six") == ("six",)


def test_the_installer_sees_a_short_list_and_no_secret() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/home/x",
        "https_proxy": "http://proxy.example",
        "UV_INDEX_URL": "https://index.example",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_PUBLISH_TOKEN": "no",
        "UV_PYTHON": "3.9",
        "SECRETS_KEY": "no",
        "BEARER_TOKEN": "no",
        "PYTHONPATH": "/ours",
        "VIRTUAL_ENV": "/ours",
        "GITHUB_TOKEN": "no",
    }
    passed = installer_environment(environ)
    assert set(passed) == {"PATH", "HOME", "https_proxy", "UV_INDEX_URL", "SSL_CERT_FILE"}


# Building.


@builds
async def test_the_base_environment_holds_the_base_set_and_nothing_of_ours(
    environments: Callable[..., Environments], paths: Paths
) -> None:
    base = await environments().base()
    assert base.path.parent == paths.venvs
    assert base.key.startswith("base-")
    packages = ask(base, PACKAGES).split()
    assert "pydantic" in packages
    assert not {"tooldock-gateway", "uvicorn", "structlog", "pip"} & set(packages)
    assert (base.path / ".complete").read_text().count("==") == len(packages)
    assert "ModuleNotFoundError" in ask(base, "import tooldock")


@builds
async def test_requirements_are_installed_and_found_again_by_content(
    environments: Callable[..., Environments],
) -> None:
    maker = environments()
    lines: list[str] = []
    first = await maker.for_requirements("six==1.16.0\n", lines.append)
    assert ask(first, "import six, pydantic; print(six.__version__)") == "1.16.0"
    assert any(line.startswith("Resolved") for line in lines)
    assert any(line.startswith("Installed") for line in lines)
    lines.clear()
    assert await maker.for_requirements("# the same\nsix==1.16.0", lines.append) == first
    assert await environments().for_requirements("six==1.16.0", lines.append) == first
    assert lines == []
    assert (await maker.for_requirements("six==1.17.0")).key != first.key


@builds
async def test_no_requirements_means_the_base_environment(environments: Callable[..., Environments]) -> None:
    maker = environments()
    assert await maker.for_requirements("# none yet\n\n") == await maker.base()


@builds
async def test_hashes_the_author_gave_are_checked(environments: Callable[..., Environments]) -> None:
    good = "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"
    maker = environments()
    installed = await maker.for_requirements(f"six==1.16.0 --hash=sha256:{good}")
    assert ask(installed, "import six; print(six.__version__)") == "1.16.0"
    with pytest.raises(DependencyError, match=r"(?i)hash"):
        await maker.for_requirements(f"six==1.16.0 --hash=sha256:{good[::-1]}")


@builds
async def test_what_cannot_be_resolved_changes_nothing_and_says_why(
    environments: Callable[..., Environments], paths: Paths
) -> None:
    maker = environments()
    base = await maker.base()
    with pytest.raises(DependencyError) as caught:
        await maker.for_requirements("six==1.16.0\nsix==1.17.0")
    assert caught.value.message.startswith("The requirements cannot be resolved. The installer says:\n")
    assert "six==1.16.0" in caught.value.message
    assert str(paths.data_dir) not in caught.value.message
    assert len(caught.value.details["resolver"]) <= 4_000
    assert [path.name for path in paths.venvs.iterdir() if path.is_dir()] == [base.key]
    assert ask(base, "import pydantic; print('ok')") == "ok"


@builds
@pytest.mark.parametrize("requirement", ["pydantic<2", "pydantic==2.5.0"])
async def test_another_pydantic_is_refused_in_plain_words(
    environments: Callable[..., Environments], requirement: str
) -> None:
    with pytest.raises(DependencyError, match=r"^A namespace needs pydantic 2 \(") as caught:
        await environments().for_requirements(requirement)
    assert BASE_SET[0] in caught.value.message


async def test_a_password_in_an_index_address_is_not_in_the_error(
    environments: Callable[..., Environments],
) -> None:
    text = "--index-url https://someone:hunter22@127.0.0.1:9/simple\nno-such-package-here"
    with pytest.raises(DependencyError) as caught:
        await environments().for_requirements(text)
    assert "hunter22" not in caught.value.message + repr(caught.value.details)


async def test_a_build_that_takes_too_long_is_stopped_and_cleared(
    environments: Callable[..., Environments], paths: Paths
) -> None:
    with pytest.raises(DependencyError, match="ENVIRONMENT_BUILD_TIMEOUT_SECONDS"):
        await environments(build_timeout=0.001).for_requirements("six")
    assert not [path for path in paths.venvs.iterdir() if path.is_dir()]


@builds
async def test_a_cancelled_build_leaves_nothing_and_can_be_repeated(
    environments: Callable[..., Environments], paths: Paths
) -> None:
    maker = environments()
    resolving = asyncio.Event()
    build = asyncio.create_task(maker.for_requirements("six==1.16.0", lambda _: resolving.set()))
    await asyncio.wait_for(resolving.wait(), 60)
    build.cancel()
    with pytest.raises(asyncio.CancelledError):
        await build
    assert not [path for path in paths.venvs.iterdir() if path.is_dir() and path.name != ".cache"]
    assert ask(await maker.for_requirements("six==1.16.0"), "import six; print('ok')") == "ok"


@pytest.mark.process
async def test_cancelling_ends_the_whole_process_group() -> None:
    read_end, write_end = os.pipe()
    started = asyncio.Event()
    script = "sleep 300 & sleep 300 & echo Building >&2; wait"
    run = asyncio.create_task(
        module._run(["sh", "-c", script], os.environ, on_progress=lambda _: started.set(), pass_fds=(write_end,))
    )
    await asyncio.wait_for(started.wait(), 30)
    os.close(write_end)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    try:
        # The pipe ends when the last process that inherited it has.
        assert await asyncio.wait_for(asyncio.to_thread(os.read, read_end, 1), 30) == b""
    finally:
        os.close(read_end)


@pytest.mark.process
async def test_what_a_command_leaves_behind_is_ended() -> None:
    read_end, write_end = os.pipe()
    done = await module._run(["sh", "-c", "sleep 300 >&- 2>&- & exit 3"], os.environ, pass_fds=(write_end,))
    os.close(write_end)
    assert done.returncode == 3
    try:
        assert await asyncio.wait_for(asyncio.to_thread(os.read, read_end, 1), 30) == b""
    finally:
        os.close(read_end)


IN_A_CONTAINER = """
import asyncio, ctypes, os
from tooldock.workers.venvs import _run

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # what is orphaned below becomes ours, as it does for process 1
asyncio.run(_run(["true"], os.environ))
try:
    print("left behind", os.waitpid(-1, 0))
except ChildProcessError:
    print("nothing")
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_nothing_is_left_for_process_1_to_reap() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_CONTAINER], capture_output=True, text=True, timeout=60)
    assert done.stdout == "nothing\n", done.stderr


@pytest.mark.process
async def test_a_command_that_cannot_be_started_says_so() -> None:
    done = await module._run(["/nowhere/installer"], os.environ)
    assert done.returncode == 127
    assert done.words() == "/nowhere/installer: No such file or directory"


@pytest.mark.process
async def test_output_without_end_is_read_and_bounded() -> None:
    script = "import sys; sys.stdout.write('x' * 5_000_000); sys.stderr.write('Resolved ' + 'y' * 5_000_000)"
    lines: list[str] = []
    done = await asyncio.wait_for(module._run([sys.executable, "-c", script], os.environ, on_progress=lines.append), 60)
    assert done.returncode == 0
    assert len(done.stdout) < 1_200_000
    assert len(done.words()) <= 4_000


BUILD = """
import asyncio, os, signal, sys
from pathlib import Path
from tooldock.paths import Paths
from tooldock.workers.venvs import Environments

def report(line):
    print(line, flush=True)
    if mode == "die" and line.startswith("Resolved"):
        os.kill(os.getpid(), signal.SIGKILL)

data, cache, mode = sys.argv[1:]

async def main():
    environments = Environments(Paths(Path(data)), uv_cache=Path(cache))
    environment = await environments.for_requirements("six==1.16.0", report)
    print("ready", environment.python, flush=True)

asyncio.run(main())
"""


def start_build(paths: Paths, venvs: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(paths.data_dir), str(venvs / ".cache"), mode],
        stdout=subprocess.PIPE,
        text=True,
    )


@builds
@pytest.mark.process
def test_two_processes_that_want_the_same_build_it_once(paths: Paths, venvs: Path) -> None:
    processes = [start_build(paths, venvs, "live") for _ in range(3)]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len({output.splitlines()[-1].partition("ready ")[2] for output in outputs}) == 1
    assert sum("Installed" in output for output in outputs) == 1


@builds
@pytest.mark.process
async def test_a_build_killed_half_way_is_cleared_and_repeated(
    environments: Callable[..., Environments], paths: Paths, venvs: Path
) -> None:
    process = start_build(paths, venvs, "die")
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    [left] = [path for path in paths.venvs.iterdir() if path.is_dir()]
    (left / "rubbish").write_text("of the dead build")
    environment = await environments().for_requirements("six==1.16.0")
    assert environment.path == left
    assert not (left / "rubbish").exists()
    assert ask(environment, "import six; print(six.__version__)") == "1.16.0"


@pytest.mark.process
def test_an_installer_ends_with_a_killed_gateway_and_lets_go_of_the_lock(paths: Paths, tmp_path: Path) -> None:
    """The real installer cannot be told to hang, so a script stands in for it: it starts a child, kills the
    gateway and waits."""
    installer, children = tmp_path / "installer", tmp_path / "children"
    installer.write_text(f"#!/bin/sh\nsleep 600 &\necho $$ $! > {children}\nkill -9 $UV_GATEWAY\nwait\n")
    installer.chmod(0o700)
    stand_in = f"import uv; uv.find_uv_bin = lambda: {str(installer)!r}\n"
    stand_in += "import os; os.environ['UV_GATEWAY'] = str(os.getpid())\n"
    gateway = subprocess.Popen([sys.executable, "-c", stand_in + BUILD, str(paths.data_dir), str(tmp_path), "live"])
    assert gateway.wait(60) == -signal.SIGKILL
    [lock_file] = paths.venvs.glob("*.lock")
    descriptor = os.open(lock_file, os.O_RDWR)
    waiting = threading.Thread(target=fcntl.flock, args=(descriptor, fcntl.LOCK_EX), daemon=True)
    waiting.start()
    waiting.join(5)
    assert not waiting.is_alive()
    os.close(descriptor)
    pids = [int(pid) for pid in children.read_text().split()]
    assert len(pids) == 2
    until("the installer is gone", lambda: not any(map(is_alive, pids)), 5)


def test_a_cache_is_where_the_operator_stands_not_where_the_installer_runs(paths: Paths) -> None:
    given = Environments(paths, uv_cache=Path("cache"))._child_environment()["UV_CACHE_DIR"]
    assert given == str(Path.cwd() / "cache")


@builds
async def test_a_project_around_the_data_directory_does_not_change_what_is_installed(
    environments: Callable[..., Environments], paths: Paths
) -> None:
    project = '[project]\nname = "around"\nversion = "1"\n[tool.uv]\noverride-dependencies = ["six==1.15.0"]\n'
    (paths.data_dir / "pyproject.toml").write_text(project)
    environment = await environments().for_requirements("six==1.16.0")
    assert ask(environment, "import six; print(six.__version__)") == "1.16.0"


# Collecting.


@builds
async def test_what_is_not_in_use_is_collected(environments: Callable[..., Environments], paths: Paths) -> None:
    maker = environments()
    base, six = await maker.base(), await maker.for_requirements("six==1.16.0")
    assert await maker.collect({base.key, six.key}) == []
    assert await maker.collect({base.key}) == [six.key]
    assert not six.path.exists()
    assert not paths.environment_lock(six.key).exists()
    assert ask(base, "import pydantic; print('ok')") == "ok"
    assert ask(await maker.for_requirements("six==1.16.0"), "import six; print('ok')") == "ok"


@builds
async def test_what_another_process_uses_is_not_collected(environments: Callable[..., Environments]) -> None:
    ours, theirs = environments(), environments()
    base = await theirs.base()
    assert await ours.collect(set()) == []
    assert base.path.exists()
    theirs.close()
    assert await ours.collect(set()) == [base.key]


@builds
async def test_an_environment_deleted_by_hand_is_built_again(
    environments: Callable[..., Environments],
) -> None:
    maker = environments()
    base = await maker.base()
    await asyncio.to_thread(module._remove, base.path)
    assert await maker.base() == base
    assert ask(base, "import pydantic; print('ok')") == "ok"


async def test_the_lock_of_a_failed_build_is_collected(environments: Callable[..., Environments], paths: Paths) -> None:
    maker = environments(build_timeout=0.001)
    with pytest.raises(DependencyError):
        await maker.for_requirements("six")
    assert list(paths.venvs.glob("*.lock"))
    assert await maker.collect(set()) == []
    assert not list(paths.venvs.glob("*.lock"))


# The runtime.


def test_the_runtime_is_the_worker_package_and_nothing_else(paths: Paths) -> None:
    runtime = copy_runtime(paths)
    assert runtime.parent == paths.runtimes
    assert [path.name for path in runtime.iterdir()] == ["tooldock_worker"]
    files = [path for path in runtime.rglob("*") if path.is_file()]
    assert files
    assert {path.suffix for path in files} == {".py"}
    assert copy_runtime(paths) == runtime


def test_a_runtime_somebody_changed_is_replaced(paths: Paths) -> None:
    runtime = copy_runtime(paths)
    target = runtime / "tooldock_worker" / "__init__.py"
    original = target.read_bytes()
    target.write_bytes(b"raise SystemExit('changed')\n")
    (runtime / "tooldock_worker" / "extra.py").write_text("")
    assert copy_runtime(paths) == runtime
    assert target.read_bytes() == original
    assert not (runtime / "tooldock_worker" / "extra.py").exists()
    assert [path.name for path in paths.runtimes.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["json.py", "pydantic/__init__.py", "tooldock_worker/frames.abi3.so"])
def test_a_runtime_somebody_added_to_is_replaced(name: str, paths: Paths) -> None:
    """Workers have it first on their path, so a file there would stand in for any module of theirs."""
    runtime = copy_runtime(paths)
    cached = runtime / "tooldock_worker" / "__pycache__" / "frames.pyc"
    cached.parent.mkdir()
    cached.touch()
    assert copy_runtime(paths) == runtime
    assert cached.exists()
    planted = runtime / name
    planted.parent.mkdir(exist_ok=True)
    planted.write_text("raise SystemExit('planted')\n")
    assert copy_runtime(paths) == runtime
    assert not planted.exists()


def test_copies_made_at_once_are_one(paths: Paths) -> None:
    copies: list[Path] = []
    threads = [threading.Thread(target=lambda: copies.append(copy_runtime(paths))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(copies) == 8
    assert len(set(copies)) == 1
    assert [path for path in paths.runtimes.iterdir() if path.is_dir()] == [copies[0]]


async def test_old_runtimes_are_collected_and_the_current_one_stays(
    environments: Callable[..., Environments], paths: Paths
) -> None:
    runtime = await asyncio.to_thread(copy_runtime, paths)
    old = paths.runtime("0123456789abcdef")
    (old / "tooldock_worker").mkdir(parents=True)
    assert await environments().collect(set()) == [old.name]
    assert runtime.is_dir()
    assert not old.exists()


@builds
async def test_an_environment_with_the_runtime_sees_the_worker_and_not_the_gateway(
    environments: Callable[..., Environments], paths: Paths
) -> None:
    base = await environments().base()
    runtime = await asyncio.to_thread(copy_runtime, paths)
    code = (
        "import importlib.util as u, json, tooldock_worker;"
        "print(json.dumps([tooldock_worker.__file__, u.find_spec('tooldock') is None]))"
    )
    file, alone = json.loads(ask(base, code, PYTHONPATH=str(runtime)))
    assert Path(file).is_relative_to(runtime)
    assert alone
