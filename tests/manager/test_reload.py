"""From folders to what is served, and back, with real workers."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.gateway import is_alive
from tests.manager.world import ADD, running
from tooldock.engine.secrets.store import Secrets
from tooldock.errors import ConfigError, DependencyError, NamespaceNotFound, ToolNotFound
from tooldock.manager.prepare import Preparer, Version
from tooldock.sources import catalogue
from tooldock.sources.folder import Folder

pytestmark = pytest.mark.process

BROKEN = "def broken(:\n"
MUL = ADD.replace("add", "mul").replace("a + b", "a * b")


async def test_every_folder_becomes_a_namespace_and_a_broken_one_harms_no_other(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("bad", "a.py", BROKEN)
        world.write("Not A Name", "a.py", ADD)
        (world.paths.tools / os.fsdecode(b"caf\xe9")).mkdir()
        await world.start()
        assert await world.value("math", "add", a=1, b=2) == b"3"
        assert {name: row.status for name, row in world.status.items()} == {
            "math": "ready",
            "bad": "failed",
            "Not A Name": "failed",
            "caf\\xe9": "failed",
        }
        bad = world.status["bad"]
        assert (bad.error_file, bad.error_line) == ("a.py", 1)
        assert isinstance((await world.call("bad", "add")).error, DependencyError)
        assert world.changes[-1].keys() == world.status.keys()


READABLE = """
from fastmcp.prompts import prompt
from fastmcp.resources import resource

@resource("a://one")
def one() -> str:
    return "1"

@resource("a://many/{number}")
def many(number: str) -> str:
    return number

@prompt
def ask() -> str:
    return "?"
"""


async def test_resources_and_prompts_are_counted(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("read", "a.py", READABLE)
        await world.start()
        counts = {name: (row.tools, row.resources, row.prompts) for name, row in world.status.items()}
        assert counts == {"math": (1, 0, 0), "read": (0, 2, 1)}


async def test_a_reload_changes_only_what_changed(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("other", "a.py", ADD)
        await world.start()
        pids = {name: row.pid for name, row in world.status.items()}
        assert (await world.reloader.reload()).workers_restarted == []
        world.write("math", "b.py", MUL)
        done = await world.reloader.reload()
        assert done.as_json() == {
            "reloaded": True,
            "namespaces": ["math", "other"],
            "workers_restarted": ["math"],
            "deps_synced": [],
            "errors": {},
        }
        assert await world.value("math", "mul", a=3, b=4) == b"12"
        assert world.status["other"].pid == pids["other"]
        assert world.status["math"].pid != pids["math"]
        old = pids["math"]
        assert old is not None
        async with asyncio.timeout(10):
            while is_alive(old):
                await asyncio.sleep(0.01)


async def test_namespaces_appear_and_disappear(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        await world.start()
        assert world.status == {}
        world.write("math", "a.py", ADD)
        assert (await world.reloader.reload()).namespaces == ["math"]
        shutil.rmtree(world.paths.tools / "math")
        assert (await world.reloader.reload()).namespaces == []
        assert isinstance((await world.call("math", "add", a=1, b=2)).error, NamespaceNotFound)
        assert catalogue.load(world.paths.catalogue("math")) is None


async def test_a_file_that_breaks_leaves_the_last_good_version_serving(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await world.start()
        before = world.status["math"]
        world.write("math", "a.py", BROKEN)
        done = await world.reloader.reload()
        assert "a.py" in done.errors["math"]
        assert await world.value("math", "add", a=1, b=2) == b"3"
        now = world.status["math"]
        assert (now.revision, now.pid, now.status) == (before.revision, before.pid, "ready")
        assert now.error_file == "a.py"
        world.write("math", "a.py", ADD)
        assert (await world.reloader.reload()).errors == {}
        assert world.status["math"].error is None
        assert world.status["math"].pid == before.pid


async def test_a_broken_folder_serves_its_last_version_after_a_restart_too(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await world.start()
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", BROKEN)
        await world.start()
        assert await world.value("math", "add", a=1, b=2) == b"3"
        assert world.status["math"].error is not None
        file = world.paths.catalogue("math")
    file.write_bytes(orjson.dumps(orjson.loads(file.read_bytes()) | {"version": 1}))  # of an earlier ToolDock
    async with running(tmp_path, venvs) as world:
        await world.start()
        assert await world.value("math", "add", a=1, b=2) == b"3"
    async with running(tmp_path, venvs) as world:
        snapshots = world.paths.snapshots("math")
        revision = catalogue.load(world.paths.catalogue("math"))
        assert revision is not None
        (snapshots / revision.revision / "a.py").write_text("tampered")
        await world.start()
        assert world.status["math"].status == "failed"


async def test_a_known_folder_is_served_before_its_worker_is_there(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await world.start()
    async with running(tmp_path, venvs) as world:
        first_load = await world.reloader.start()
        assert [tool.name for tool in world.engine.registry.catalogue.entry("math").tools] == ["add"]
        assert world.status["math"].status in ("starting", "ready")
        await first_load
        assert await world.value("math", "add", a=1, b=2) == b"3"


@pytest.mark.parametrize("record", [b"rubbish", b'{"version":2,"revision":7,"environment":1,"worker":1,"tools":[]}'])
async def test_a_damaged_memory_of_what_worked_is_no_reason_to_fail(tmp_path: Path, venvs: Path, record: bytes) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("bad", "a.py", BROKEN)
        for name in ("math", "bad"):
            world.paths.catalogue(name).write_bytes(record)
        await world.start()
        assert await world.value("math", "add", a=1, b=2) == b"3"
        assert world.status["bad"].status == "failed"


async def test_a_switched_off_namespace_is_known_but_not_served(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("math", "tooldock.yaml", "enabled: false\ndescription: Sums\n")
        await world.start()
        assert (world.status["math"].status, world.status["math"].description) == ("disabled", "Sums")
        assert (await world.call("math", "add", a=1, b=2)).error is not None
        world.write("math", "tooldock.yaml", "tools:\n  add:\n    enabled: false\n")
        world.write("math", "b.py", MUL)
        await world.reloader.reload()
        assert isinstance((await world.call("math", "add", a=1, b=2)).error, ToolNotFound)
        assert await world.value("math", "mul", a=1, b=2) == b"2"


ENVIRONMENT = """
import os
from fastmcp.tools import tool

@tool
async def token() -> str:
    return os.environ.get("TOKEN", "")[::-1]
"""


async def test_changed_secrets_restart_who_uses_them_and_nobody_else(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("one", "a.py", ENVIRONMENT)
        world.write("two", "a.py", ENVIRONMENT)
        world.write("one", "tooldock.yaml", "secrets: [TOKEN]\n")
        await world.start()
        assert world.status["one"].missing_secrets == ("TOKEN",)
        world.secrets = Secrets(by_namespace={"one": {"TOKEN": "first-value"}})
        assert (await world.reloader.reload()).workers_restarted == ["one"]
        assert await world.value("one", "token") == b'"eulav-tsrif"'
        assert await world.value("two", "token") == b'""'
        assert not world.status["one"].missing_secrets
        world.secrets_error = ConfigError("secrets.enc cannot be read.")
        await world.reloader.reload()
        assert world.reloader.secrets_problem is world.secrets_error
        assert await world.value("one", "token") == b'"eulav-tsrif"'


async def test_a_secret_in_a_load_error_or_a_health_check_is_not_shown(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.secrets = Secrets(shared={"TOKEN": "s3cr3t-value-0001"})
        world.write("bad", "a.py", "import os\nraise RuntimeError('with ' + os.environ['TOKEN'])\n")
        world.write("one", "a.py", ADD)
        world.write("one", "_health.py", "import os\ndef health():\n    return {'token': os.environ['TOKEN']}\n")
        world.write("two", "a.py", ADD)
        world.write("two", "_health.py", "import os\ndef health():\n    raise RuntimeError(os.environ['TOKEN'])\n")
        world.write("slow", "a.py", ADD)
        world.write("slow", "_health.py", "import time\ndef health():\n    time.sleep(30)\n")
        world.write("none", "a.py", ADD)
        await world.start()
        error = world.status["bad"].error
        assert error is not None
        assert "[redacted:TOKEN]" in error
        health = await world.reloader.health(1)
        assert health.keys() == {"one", "two", "slow"}
        assert health["one"] == {"token": "[redacted:TOKEN]"}
        assert "[redacted:TOKEN]" in health["two"]["reason"]
        assert health["slow"]["status"] == "unknown"
        assert "s3cr3t" not in f"{health}{world.status}"


async def test_a_crashed_worker_comes_back_with_the_version_being_served(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await world.start()
        await world.value("math", "add", a=1, b=2)
        world.write("math", "a.py", BROKEN)
        pid = world.status["math"].pid
        assert pid is not None
        os.kill(pid, 9)
        assert await world.value("math", "add", a=1, b=2) == b"3"
        assert world.status["math"].restarts == 1


async def test_calls_during_reloads_all_succeed(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await world.start()
        stop = asyncio.Event()

        async def keep_calling() -> int:
            count = 0
            while not stop.is_set():
                assert await world.value("math", "add", a=1, b=2) == b"3"
                count += 1
            return count

        callers = [asyncio.create_task(keep_calling()) for _ in range(4)]
        for number in range(5):
            world.write("math", "a.py", f"# {number}\n{ADD}")
            assert (await world.reloader.reload()).workers_restarted == ["math"]
        stop.set()
        assert all(count > 0 for count in await asyncio.gather(*callers))


async def test_a_reload_whose_caller_left_is_finished(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await world.start()
        world.write("math", "b.py", MUL)
        asking = asyncio.create_task(world.reloader.reload())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        async with asyncio.timeout(20):
            while "mul" not in world.engine.registry.catalogue.entry("math").offers:
                await asyncio.sleep(0.01)


async def test_an_unreadable_folder_is_reported(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        path = world.write("math", "a.py", ADD)
        (path.parent / "gone.py").symlink_to("nothing.py")
        await world.start()
        assert "cannot be read" in (world.status["math"].error or "")


async def test_closing_ends_every_worker(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        for name in ("one", "two"):
            world.write(name, "a.py", ADD)
        await world.start()
        pids = [row.pid for row in world.status.values()]
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids if pid is not None)


async def test_a_fault_of_ours_in_one_namespace_stops_no_other(
    tmp_path: Path, venvs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Preparer.prepare

    async def faulty(self: Preparer, found: Folder, *rest: Any, **options: Any) -> Version:
        if found.name == "bad":
            raise RuntimeError("inner detail")
        return await real(self, found, *rest, **options)

    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("bad", "a.py", ADD)
        await world.start()
    monkeypatch.setattr(Preparer, "prepare", faulty)
    async with running(tmp_path, venvs) as world:
        await world.start()
        assert await world.value("math", "add", a=1, b=2) == b"3"
        error = world.status["bad"].error
        assert error is not None
        assert "RuntimeError" in error
        assert "inner detail" not in error
    monkeypatch.undo()
    async with running(tmp_path, venvs) as world:
        await world.start()
        assert world.status["bad"].error is None


async def test_closing_does_not_wait_longer_for_calls_than_it_was_told(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write(
            "math",
            "a.py",
            """
            import asyncio
            from fastmcp.tools import tool

            @tool
            async def wait() -> None:
                open("begun", "w").close()
                await asyncio.Event().wait()
            """,
        )
        await world.start()
        calling = asyncio.create_task(world.call("math", "wait"))
        async with asyncio.timeout(10):
            while not (world.paths.namespace_state("math") / "begun").exists():
                await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            await world.reloader.close(0.05)
        assert (await asyncio.wait_for(calling, 10)).error is not None


async def test_closing_ends_a_reload_that_is_under_way(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await world.start()
        world.write("slow", "a.py", "import time\nopen('begun', 'w').close()\ntime.sleep(60)\n")
        reloading = asyncio.create_task(world.reloader.reload())
        async with asyncio.timeout(20):
            while not (world.paths.namespace_state("slow") / "begun").exists():
                await asyncio.sleep(0.01)
        assert world.status["slow"].status == "building"
        async with asyncio.timeout(10):
            await world.reloader.close(1)
        with pytest.raises(asyncio.CancelledError):
            await reloading


async def test_a_folder_removed_while_it_was_being_prepared_leaves_no_worker(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        await world.start()
        world.write("math", "a.py", f"import time\nopen('begun', 'w').close()\ntime.sleep(1)\n{ADD}")
        first = asyncio.create_task(world.reloader.reload())
        async with asyncio.timeout(20):
            while not (world.paths.namespace_state("math") / "begun").exists():
                await asyncio.sleep(0.01)
        shutil.rmtree(world.paths.tools / "math")
        assert (await world.reloader.reload()).namespaces == []
        await first
        assert world.status == {}
        assert list(world.engine.registry.catalogue.entries) == []
