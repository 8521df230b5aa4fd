"""Both ways of starting children, with real children."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tooldock_worker
from tests.gateway import is_alive
from tooldock.errors import InternalError, Unavailable
from tooldock.workers import launcher as room
from tooldock.workers.launcher import Child, Launch, Launcher, Spawner, Zygote, open_launcher, plain_environment

pytestmark = pytest.mark.process

RUNTIME = Path(tooldock_worker.__file__).parent.parent
MODES = ["fork", "spawn"] if sys.platform == "linux" else ["spawn"]


@pytest.fixture(params=MODES)
async def launcher(request: pytest.FixtureRequest) -> AsyncIterator[Launcher]:
    made = open_launcher(request.param, python=Path(sys.executable), runtime=RUNTIME)
    yield made
    await made.close()


@pytest.fixture
async def zygote() -> AsyncIterator[Zygote]:
    made = Zygote(Path(sys.executable), RUNTIME)
    yield made
    await made.close()


class Pipe:
    """Collects what children print."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()

    async def readable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._read, ready.set)
        await asyncio.wait_for(ready.wait(), 20)
        loop.remove_reader(self._read)

    async def text(self) -> str:
        """Everything until the last writer is gone."""
        os.close(self.write)
        with os.fdopen(self._read, "rb") as file:
            return (await asyncio.wait_for(asyncio.to_thread(file.read), 20)).decode()


def shell(script: str, output: int, **changes: Any) -> Launch:
    values: dict[str, Any] = {"name": "math", "env": plain_environment(), "cwd": Path("/"), "output": output}
    return Launch(argv=("/bin/sh", "-c", script), **(values | changes))


async def ended(child: Child) -> int:
    return await asyncio.wait_for(asyncio.shield(child.exited), 20)


async def gone(pid: int) -> None:
    async with asyncio.timeout(10):
        while is_alive(pid):
            await asyncio.sleep(0.01)


async def test_a_child_gets_its_environment_directory_descriptors_and_nothing_else(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEARER_TOKEN", "ours-alone")
    pipe = Pipe()
    calls = os.open(tmp_path, os.O_RDONLY)
    script = "env; pwd; umask; readlink /proc/self/fd/0 /proc/self/fd/$0; echo problem >&2"
    launch = shell(script, pipe.write, env={"ONLY": "this"}, cwd=tmp_path, descriptors={"calls": calls})
    child = await launcher.start(Launch(**{**_fields(launch), "argv": (*launch.argv, "@calls")}))
    assert await ended(child) == 0
    os.close(calls)
    said = (await pipe.text()).splitlines()
    assert "ONLY=this" in said
    assert "ours-alone" not in " ".join(said)
    assert said.count(str(tmp_path)) >= 2
    assert "/dev/null" in said
    assert "0077" in said
    assert "problem" in said


def _fields(launch: Launch) -> dict[str, Any]:
    return {name: getattr(launch, name) for name in Launch.__slots__}


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("kill -KILL $$", -9)])
async def test_how_a_child_ended_is_known(launcher: Launcher, script: str, status: int) -> None:
    pipe = Pipe()
    child = await launcher.start(shell(script, pipe.write))
    assert await ended(child) == status
    child.kill()  # nothing happens
    await pipe.text()


async def test_killing_a_child_kills_its_group(launcher: Launcher) -> None:
    pipe = Pipe()
    child = await launcher.start(shell("sleep 600 & sleep 600 & echo up; wait", pipe.write))
    await pipe.readable()
    child.signal(signal.SIGTERM)
    assert await ended(child) == -signal.SIGTERM
    assert await pipe.text() == "up\n"  # the last writer is gone


async def test_a_child_can_be_killed_from_its_first_moment_on(launcher: Launcher) -> None:
    pipe = Pipe()
    for _ in range(20):
        child = await launcher.start(shell("exec sleep 600", pipe.write))
        child.kill()
        assert await ended(child) == -signal.SIGKILL
    assert await pipe.text() == ""


async def test_what_a_child_leaves_in_its_group_goes_with_it(launcher: Launcher) -> None:
    pipe = Pipe()
    child = await launcher.start(shell("sleep 600 & exit 0", pipe.write))
    assert await ended(child) == 0
    assert await pipe.text() == ""


async def test_closing_ends_every_child(launcher: Launcher) -> None:
    pipe = Pipe()
    children = [await launcher.start(shell("trap '' TERM; sleep 600", pipe.write)) for _ in range(3)]
    await asyncio.wait_for(launcher.close(), 20)
    assert await pipe.text() == ""
    for child in children:
        assert await ended(child) == -signal.SIGKILL
        assert not is_alive(child.pid)


async def test_children_started_at_once_are_told_apart(launcher: Launcher) -> None:
    pipe = Pipe()
    children = await asyncio.gather(*(launcher.start(shell(f"exit {n}", pipe.write)) for n in range(1, 11)))
    assert [await ended(child) for child in children] == list(range(1, 11))
    await pipe.text()


def test_the_way_is_chosen_by_mode_and_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    async def choose(mode: Any) -> type:
        return type(open_launcher(mode, python=Path(sys.executable), runtime=RUNTIME))

    assert asyncio.run(choose("fork")) is Zygote
    assert asyncio.run(choose("spawn")) is Spawner
    assert asyncio.run(choose("auto")) is (Zygote if sys.platform == "linux" else Spawner)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert asyncio.run(choose("auto")) is Spawner


def test_children_learn_nothing_from_the_gateway_s_environment_but_a_short_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SECRETS_KEY", "BEARER_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD"):
        monkeypatch.setenv(name, "value")
    monkeypatch.setenv("TZ", "UTC")
    known = plain_environment()
    assert known["TZ"] == "UTC"
    assert not known.keys() & {"SECRETS_KEY", "BEARER_TOKEN", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH", "LD_PRELOAD"}


async def test_spawning_what_does_not_exist_is_refused() -> None:
    with pytest.raises(Unavailable, match="/nowhere/python cannot be executed"):
        await Spawner().start(
            Launch(name="math", argv=("/nowhere/python",), env={}, cwd=Path("/"), output=1, descriptors={})
        )


async def test_a_spawned_worker_is_told_to_die_with_us() -> None:
    pipe = Pipe()
    launcher = Spawner()
    launch = Launch(
        name="math",
        argv=("/bin/echo", "tooldock_worker", "@calls"),
        env={},
        cwd=Path("/"),
        output=pipe.write,
        descriptors={"calls": pipe.write},
    )
    assert await ended(await launcher.start(launch)) == 0
    number = pipe.write
    assert await pipe.text() == f"tooldock_worker {number} --die-with-parent {os.getpid()}\n"


# The warm parent.


async def until_warm(zygote: Zygote) -> int:
    """Its process id, once a child ran."""
    pipe = Pipe()
    assert await ended(await zygote.start(shell("exit 0", pipe.write))) == 0
    await pipe.text()
    assert zygote._process is not None
    return zygote._process.pid


async def test_a_warm_parent_that_died_takes_its_children_along_and_is_started_again(zygote: Zygote) -> None:
    first = await until_warm(zygote)
    pipe = Pipe()
    child = await zygote.start(shell("exec sleep 600", pipe.write))
    os.kill(first, signal.SIGKILL)
    assert await ended(child) == -signal.SIGKILL
    await pipe.text()
    assert await until_warm(zygote) != first


async def test_a_start_the_warm_parent_did_not_live_to_make_is_refused(zygote: Zygote) -> None:
    pid = await until_warm(zygote)
    os.kill(pid, signal.SIGSTOP)
    pipe = Pipe()
    starting = asyncio.create_task(zygote.start(shell("exit 0", pipe.write)))
    async with asyncio.timeout(10):
        while not zygote._requests:
            await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="launcher ended"):
        await asyncio.wait_for(starting, 10)
    assert zygote._requests == {}
    await pipe.text()


async def test_a_start_that_takes_too_long_is_refused_and_its_child_ended(
    zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_START_SECONDS", 0.05)
    pid = await until_warm(zygote)
    os.kill(pid, signal.SIGSTOP)
    pipe = Pipe()
    with pytest.raises(Unavailable, match="did not start 'math'"):
        await zygote.start(shell("exec sleep 600", pipe.write))
    os.kill(pid, signal.SIGCONT)
    assert await pipe.text() == ""


async def test_a_start_nobody_waits_for_any_more_leaves_nothing_running(zygote: Zygote) -> None:
    await until_warm(zygote)
    pipe = Pipe()
    for turns in range(4):
        starting = asyncio.create_task(zygote.start(shell("exec sleep 600", pipe.write)))
        for _ in range(turns):
            await asyncio.sleep(0.001)
        starting.cancel()
        try:
            child = await starting
        except asyncio.CancelledError:
            continue
        child.kill()
    assert await pipe.text() == ""
    async with asyncio.timeout(10):
        while zygote._children:
            await asyncio.sleep(0)


async def test_a_child_whose_end_overtakes_its_start_is_known_as_ended(zygote: Zygote) -> None:
    """Both messages are waiting when the gateway reads."""
    await until_warm(zygote)
    pipe = Pipe()
    starting = asyncio.create_task(zygote.start(shell("exit 5", pipe.write)))
    async with asyncio.timeout(10):
        while not zygote._requests:
            await asyncio.sleep(0)
    pid = zygote._process.pid if zygote._process else 0
    loop = asyncio.get_running_loop()
    assert zygote._control is not None
    loop.remove_reader(zygote._control)
    await pipe.text()  # the child is gone
    os.kill(pid, 0)
    loop.add_reader(zygote._control, zygote._on_readable)
    assert await ended(await asyncio.wait_for(starting, 10)) == 5


async def test_a_warm_parent_that_cannot_be_executed_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path / "missing", RUNTIME)
    pipe = Pipe()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(Unavailable, match="cannot be started"):
            await zygote.start(shell("exit 0", pipe.write))
    assert len(os.listdir("/proc/self/fd")) == before
    await zygote.close()
    await pipe.text()


async def test_a_warm_parent_that_ends_at_once_is_refused(tmp_path: Path) -> None:
    zygote = Zygote(Path("/bin/false"), RUNTIME)
    pipe = Pipe()
    with pytest.raises(Unavailable):
        await zygote.start(shell("exit 0", pipe.write))
    await zygote.close()
    await pipe.text()


async def test_a_warm_parent_that_never_gets_ready_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_WARM_SECONDS", 0.1)
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    zygote = Zygote(slow, RUNTIME)
    pipe = Pipe()
    with pytest.raises(InternalError, match="did not become ready"):
        await zygote.start(shell("exit 0", pipe.write))
    await zygote.close()
    await pipe.text()


async def test_signals_to_a_warm_parent_that_is_gone_are_not_an_error(zygote: Zygote) -> None:
    await until_warm(zygote)
    assert zygote._control is not None
    os.kill(zygote._process.pid if zygote._process else 0, signal.SIGKILL)
    async with asyncio.timeout(10):
        while zygote._control is not None:
            zygote.signal(1, 0)
            await asyncio.sleep(0)
    zygote.signal(1, 0)


async def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_END_SECONDS", 0.05)
    pipe = Pipe()
    launcher = Spawner()
    child = await launcher.start(shell("exec sleep 600", pipe.write))
    launcher.signal = lambda pid, number: None  # type: ignore[method-assign]
    await asyncio.wait_for(launcher.close(), 10)
    assert await ended(child) == -signal.SIGKILL
    await gone(child.pid)
    await pipe.text()
