"""A tools directory with everything behind it but an HTTP face: real snapshots, environments and workers."""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tooldock.engine.audit import AuditLog
from tooldock.engine.pipeline import Engine
from tooldock.engine.registry import Registry
from tooldock.engine.secrets.store import Secrets
from tooldock.errors import ToolDockError
from tooldock.manager.prepare import Preparer
from tooldock.manager.reload import Reloader
from tooldock.model import Call, Caller, Namespace, Outcome
from tooldock.paths import Paths
from tooldock.settings import Settings
from tooldock.workers.launcher import open_launcher
from tooldock.workers.venvs import Environments, copy_runtime

ADD = """
from fastmcp.tools import tool

@tool
async def add(a: int, b: int) -> int:
    return a + b
"""


class World:
    """One run of a gateway over a data directory; several runs may follow each other."""

    def __init__(self, paths: Paths, preparer: Preparer, engine: Engine) -> None:
        self.paths = paths
        self.preparer = preparer
        self.engine = engine
        self.secrets = Secrets()
        self.secrets_error: ToolDockError | None = None
        self.changes: list[dict[str, Namespace]] = []
        self.said: list[tuple[str, str]] = []
        self.reloader = Reloader(
            paths,
            engine.registry,
            preparer,
            self._read_secrets,
            eager_limit=50,
            progress=lambda name, text: self.said.append((name, text)),
            changed=lambda rows: self.changes.append({row.name: row for row in rows}),
        )

    def _read_secrets(self) -> Secrets:
        if self.secrets_error is not None:
            raise self.secrets_error
        return self.secrets

    def write(self, namespace: str, file: str, text: str) -> Path:
        path = self.paths.tools / namespace / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    async def start(self) -> None:
        """Until everything that can be served is."""
        first_load = await self.reloader.start()
        await asyncio.wait_for(first_load, 60)

    @property
    def status(self) -> dict[str, Namespace]:
        return {row.name: row for row in self.reloader.status()}

    async def call(self, namespace: str, tool: str, /, **arguments: Any) -> Outcome:
        return await self.engine.call(Call(namespace, tool, arguments, Caller("ann"), "r-1", "rest"))

    async def value(self, namespace: str, tool: str, /, **arguments: Any) -> bytes:
        outcome = await self.call(namespace, tool, **arguments)
        assert outcome.error is None, outcome.error
        return outcome.body


@contextlib.asynccontextmanager
async def running(data: Path, venvs: Path, **flags: str) -> AsyncIterator[World]:
    paths = Paths(data, venvs)
    paths.prepare()
    settings = Settings.load(flags, {}, {})
    environments = Environments(paths)
    base = await environments.base()
    runtime = copy_runtime(paths)
    launcher = open_launcher("auto", python=base.python, runtime=runtime)
    engine = Engine(Registry(), AuditLog(lambda day: paths.audit_log(day, "core")))
    world = World(paths, Preparer(settings, paths, launcher, environments, runtime, "core"), engine)
    try:
        yield world
    finally:
        await world.reloader.close(5)
        await launcher.close()
        environments.close()
        engine.audit.close()
