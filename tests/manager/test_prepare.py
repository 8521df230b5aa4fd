"""One version of a folder made servable, step by step, with real workers."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import orjson
import pytest

from tests.gateway import is_alive
from tests.manager.world import ADD, World, running
from tooldock.engine.secrets.store import Secrets
from tooldock.errors import ConfigError, DependencyError
from tooldock.manager.prepare import Version
from tooldock.model import SilentChannel
from tooldock.sources import catalogue, folder
from tooldock.sources.catalogue import Described
from tooldock.workers.states import State

pytestmark = pytest.mark.process

LOOK = """
import os
from fastmcp.tools import tool

@tool
async def look() -> dict[str, str]:
    return {**os.environ, "cwd": os.getcwd(), "file": __file__}
"""


async def prepare(
    world: World, name: str = "math", *, secrets: Secrets | None = None, start: bool = True, trust: bool = False
) -> Version:
    found = folder.read(name, world.paths.tools / name)
    return await world.preparer.prepare(
        found, secrets or Secrets(), lambda *said: world.said.append(said), start=start, trust_cache=trust
    )


async def test_a_worker_gets_its_own_directories_environment_and_secrets(
    tmp_path: Path, venvs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRETS_KEY", "ours-alone")
    async with running(tmp_path / "data", venvs) as world:
        root = tmp_path / "shared"
        root.mkdir()
        world.write("math", "a.py", LOOK)
        world.write("math", "tooldock.yaml", f"env:\n  MODE: fast\nroots:\n  - {root}\n")
        version = await prepare(world, secrets=Secrets(shared={"TOKEN": "short"}))
        try:
            assert version.source is not None
            worker = version.source.supervisor.current
            assert worker is not None
            deadline = asyncio.get_running_loop().time() + 10
            seen = orjson.loads((await worker.call("look", {}, {}, deadline, SilentChannel())).body)
        finally:
            await version.close()
        state, scratch = world.paths.namespace_state("math"), world.paths.scratch("core", "math")
        assert (seen["MODE"], seen["TOKEN"], seen["TOOLDOCK_NAMESPACE"]) == ("fast", "short", "math")
        assert (seen["TOOLDOCK_STATE_DIR"], seen["TMPDIR"], seen["TOOLDOCK_ROOTS"]) == (
            str(state),
            str(scratch),
            str(root),
        )
        assert seen["cwd"] == str(state)
        assert seen["file"] == str(world.paths.snapshot("math", version.revision) / "a.py")
        assert "SECRETS_KEY" not in seen
        assert state.stat().st_mode & 0o777 == scratch.stat().st_mode & 0o777 == 0o700


async def test_a_secret_in_what_a_namespace_says_of_itself_is_neither_served_nor_kept(
    tmp_path: Path, venvs: Path
) -> None:
    async with running(tmp_path, venvs) as world:
        world.write(
            "math",
            "a.py",
            """
            import os
            from fastmcp.prompts import prompt
            from fastmcp.resources import resource
            from fastmcp.tools import tool

            TOKEN = os.environ["TOKEN"]

            @tool(description=f"Uses {TOKEN}.", meta={"key": TOKEN})
            def add() -> None: ...

            @resource(f"data://{TOKEN}/x", description=TOKEN)
            def page() -> str: ...

            @prompt(title=TOKEN)
            def ask(a: str = TOKEN) -> str: ...
            """,
        )
        secret = "s3cr3t-value-0001"
        secrets = Secrets(shared={"TOKEN": secret})
        for trust in (False, True):
            version = await prepare(world, secrets=secrets, trust=trust)
            await version.close()
            assert version.entry is not None
            assert secret not in repr(version.entry.parts)
            assert version.entry.offer("add").tool.description == "Uses [redacted:TOKEN]."
        assert secret not in world.paths.catalogue("math").read_text()


async def test_limits_are_the_namespace_s_own_where_it_names_them(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs, tool_call_timeout_seconds="11", namespace_max_concurrency="7") as world:
        world.write("math", "a.py", ADD)
        world.write("math", "tooldock.yaml", "limits:\n  timeout_seconds: 3\n  max_queue: 0\n")
        version = await prepare(world)
        await version.close()
        assert version.entry is not None
        limits = version.entry.limits
        assert (limits.timeout, limits.max_queue, limits.max_concurrency) == (3, 0, 7)


async def test_described_tools_need_no_worker_when_nothing_changed(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        await (await prepare(world)).close()
        known = await prepare(world, start=False, trust=True)
        assert known.source is not None
        assert known.entry is not None
        assert known.source.supervisor.state is State.IDLE
        assert known.source.pid is None
        assert list(known.entry.offers) == ["add"]
        await known.close()


async def test_described_resources_and_prompts_need_no_worker_either(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write(
            "math",
            "a.py",
            """
            from typing import Literal
            from fastmcp.prompts import prompt
            from fastmcp.resources import resource

            @resource("data://pi", mime_type="text/x")
            def pi(): ...

            @resource("data://{name}")
            def constant(name: Literal["e", "i"]): ...

            @prompt(title="Explain")
            def explain(topic: str = "pi"): ...
            """,
        )
        first = await prepare(world)
        await first.close()
        known = await prepare(world, start=False, trust=True)
        assert known.source is not None
        assert known.source.pid is None
        assert first.entry is not None
        assert known.entry is not None
        assert known.entry.parts == first.entry.parts
        assert known.entry.resources["data://pi"].mime_type == "text/x"
        assert known.entry.templates["data://{name}"].arguments[0].values == ("e", "i")
        assert known.entry.prompts["explain"].title == "Explain"
        assert known.entry.reading is known.source
        await known.close()


@pytest.mark.parametrize("change", ["files", "environment", "worker", "distrust"])
async def test_described_tools_are_not_believed_when_something_changed(
    tmp_path: Path, venvs: Path, change: str
) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        first = await prepare(world)
        await first.close()
        path = world.paths.catalogue("math")
        record = catalogue.load(path)
        assert record is not None
        told = {
            "files": catalogue.Record("other", record.environment, record.worker, Described()),
            "environment": catalogue.Record(record.revision, "base-other", record.worker, Described()),
            "worker": catalogue.Record(record.revision, record.environment, "other", Described()),
            "distrust": catalogue.Record(record.revision, record.environment, record.worker, Described()),
        }[change]
        catalogue.save(path, told)
        again = await prepare(world, trust=change != "distrust")
        assert again.entry is not None
        assert list(again.entry.offers) == ["add"]
        await again.close()


async def test_a_schema_that_cannot_be_checked_is_refused_and_its_worker_ended(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write(
            "math",
            "a.py",
            """
            import os
            from typing import Annotated
            from fastmcp.tools import tool
            from pydantic import WithJsonSchema

            open("pid", "w").write(str(os.getpid()))

            @tool
            async def bad(value: Annotated[str, WithJsonSchema({"$ref": "https://schemas.example/x"})]) -> None: ...
            """,
        )
        with pytest.raises(ConfigError, match="'bad' cannot be used"):
            await prepare(world)
        assert not is_alive(int((world.paths.namespace_state("math") / "pid").read_text()))


async def test_a_requirements_file_that_is_not_text_is_refused(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        (world.paths.tools / "math" / "requirements.txt").write_bytes(b"\xff\xfe")
        with pytest.raises(DependencyError, match="not UTF-8") as caught:
            await prepare(world)
        assert caught.value.details["file"] == "requirements.txt"


async def test_a_requirements_file_that_names_nothing_uses_the_shared_environment(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("math", "requirements.txt", "# nothing yet\n")
        version = await prepare(world)
        assert version.has_requirements
        assert version.source is not None
        assert version.source.spec.shared_environment
        await version.close()


async def test_a_bad_configuration_file_is_reported_with_its_line(tmp_path: Path, venvs: Path) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        world.write("math", "tooldock.yaml", "description: x\nenabled: perhaps\n")
        with pytest.raises(ConfigError) as caught:
            await prepare(world)
        assert caught.value.details["line"] == 2


@pytest.mark.parametrize("where", ["snapshots", "catalogue"])
async def test_a_disk_that_takes_no_files_is_named(tmp_path: Path, venvs: Path, where: str) -> None:
    async with running(tmp_path, venvs) as world:
        world.write("math", "a.py", ADD)
        directory = world.paths.state / where
        os.rename(directory, world.paths.state / "moved")
        directory.write_text("a file is in the way")
        with pytest.raises(ConfigError, match="math"):
            await prepare(world)
