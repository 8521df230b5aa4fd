"""From one version of a folder to something that can be served.

snapshot → configuration → environment → worker → tools, resources, prompts → compiled checks. Each step may refuse;
nothing that is being served is touched here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tooldock.config.namespace import NamespaceConfig, read_namespace
from tooldock.engine.registry import Entry, Limits, Offer
from tooldock.engine.schema import Validator
from tooldock.engine.secrets.redact import Redactor
from tooldock.engine.secrets.store import Secrets
from tooldock.errors import ConfigError, DependencyError
from tooldock.paths import Paths
from tooldock.settings import Settings
from tooldock.sources import catalogue
from tooldock.sources.folder import Folder, write_snapshot
from tooldock.sources.python import PythonSource
from tooldock.workers.launcher import Launcher, plain_environment
from tooldock.workers.venvs import Environment, Environments
from tooldock.workers.worker import WorkerSpec, worker_environment

Progress = Callable[[str, str], None]

REQUIREMENTS = "requirements.txt"


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """One version of one namespace, ready to serve (or switched off)."""

    revision: str
    secrets_digest: str
    config: NamespaceConfig
    has_requirements: bool
    missing_secrets: tuple[str, ...]
    entry: Entry | None
    source: PythonSource | None

    @property
    def enabled(self) -> bool:
        return self.config.enabled

    @property
    def environment(self) -> str | None:
        """The key of the environment its worker runs in."""
        return None if self.source is None else self.source.spec.python.parent.parent.name

    async def close(self) -> None:
        if self.source is not None:
            await self.source.close()


class Preparer:
    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        launcher: Launcher,
        environments: Environments,
        runtime: Path,
        role: str,
    ) -> None:
        self._settings = settings
        self._paths = paths
        self._launcher = launcher
        self._environments = environments
        self._runtime = runtime
        self._role = role

    async def prepare(
        self, folder: Folder, secrets: Secrets, progress: Progress, *, start: bool, trust_cache: bool
    ) -> Version:
        """`trust_cache`: tools described by an earlier worker will do, no worker has to be ready first.
        `start`: have one running, whether or not it was needed to learn the tools."""
        name = folder.name
        target = self._paths.snapshot(name, folder.revision)
        await asyncio.to_thread(self._write, folder, target)
        config = await asyncio.to_thread(read_namespace, target, name)
        digest = secrets.digest(name)
        requirements = folder.files.get(REQUIREMENTS)
        missing = secrets.missing(name, config.secrets)
        if not config.enabled:
            return Version(folder.revision, digest, config, requirements is not None, missing, None, None)
        environment = await self._environment(name, requirements, progress)
        source = self._source(name, target, config, secrets, environment)
        try:
            await self._know(source, folder.revision, environment, start=start, trust_cache=trust_cache)
            entry = self._entry(name, folder.revision, config, secrets, source)
        except BaseException:
            await source.close()
            raise
        return Version(folder.revision, digest, config, requirements is not None, missing, entry, source)

    def release(self, environment: str) -> None:
        """No version that is served uses this environment any more. The base environment is always in use."""
        if not environment.startswith("base-"):
            self._environments.release(environment)

    def _write(self, folder: Folder, target: Path) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_snapshot(folder, target)
            state = self._paths.namespace_state(folder.name)
            state.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(
                f"The files of namespace {folder.name!r} could not be copied to {target.parent}: {error.strerror}.",
                namespace=folder.name,
            ) from error

    async def _environment(self, name: str, requirements: bytes | None, progress: Progress) -> Environment:
        if requirements is None:
            return await self._environments.base(lambda text: progress("", text))
        try:
            text = requirements.decode()
        except UnicodeDecodeError:
            raise DependencyError("requirements.txt is not UTF-8 text.", file=REQUIREMENTS) from None
        try:
            return await self._environments.for_requirements(text, lambda line: progress(name, line))
        except DependencyError as error:
            raise DependencyError(error.message, **{"file": REQUIREMENTS, **error.details}) from error

    def _source(
        self, name: str, target: Path, config: NamespaceConfig, secrets: Secrets, environment: Environment
    ) -> PythonSource:
        settings = self._settings
        limits = self._limits(config)
        state = self._paths.namespace_state(name)
        scratch = self._paths.scratch(self._role, name)
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        extra = {
            **config.env,
            **secrets.for_namespace(name),
            "TOOLDOCK_NAMESPACE": name,
            "TOOLDOCK_STATE_DIR": str(state),
            "TOOLDOCK_ROOTS": os.pathsep.join(map(str, config.roots)),
            "TMPDIR": str(scratch),
        }
        spec = WorkerSpec(
            namespace=name,
            python=environment.python,
            folder=target,
            env=worker_environment(plain_environment(), extra, environment.python, self._runtime),
            cwd=state,
            log_file=self._paths.worker_log(name),
            shared_environment=environment.key.startswith("base-"),
            threads=limits.max_concurrency,
            max_output=limits.max_output,
            max_frame=settings.worker_max_frame,
            ready_seconds=settings.worker_ready_timeout_seconds,
            grace_seconds=settings.worker_grace_seconds,
            ping_seconds=settings.worker_ping_seconds,
        )
        return PythonSource(
            spec,
            self._launcher,
            Redactor(secrets.values_for(name)),
            idle_seconds=settings.worker_idle_seconds,
        )

    async def _know(
        self, source: PythonSource, revision: str, environment: Environment, *, start: bool, trust_cache: bool
    ) -> None:
        path = self._paths.catalogue(source.spec.namespace)
        known = catalogue.load(path) if trust_cache else None
        worker = self._runtime.name
        if known is not None and (known.revision, known.environment, known.worker) == (
            revision,
            environment.key,
            worker,
        ):
            source.know(known.described)
            if start:
                source.supervisor.wake()
            return
        described = await source.learn()
        if not start:
            source.supervisor.rest()
        record = catalogue.Record(revision, environment.key, worker, described)
        try:
            await asyncio.to_thread(catalogue.save, path, record)
        except OSError as error:
            raise ConfigError(
                f"The tool list of {source.spec.namespace!r} could not be written to {path.parent}: {error.strerror}."
            ) from error

    def _entry(
        self, name: str, revision: str, config: NamespaceConfig, secrets: Secrets, source: PythonSource
    ) -> Entry:
        offers = {
            tool.name: Offer(tool, source, Validator(tool.name, tool.input_schema))
            for tool in source.list()
            if tool.name not in config.disabled_tools
        }
        return Entry(
            name,
            offers,
            self._limits(config),
            config.description,
            config.version,
            revision,
            Redactor(secrets.values_for(name)),
            resources={resource.uri: resource for resource in source.resources()},
            templates={template.uri: template for template in source.templates()},
            prompts={prompt.name: prompt for prompt in source.prompts()},
            reading=source,
        )

    def _limits(self, config: NamespaceConfig) -> Limits:
        own, settings = config.limits, self._settings
        return Limits(
            timeout=own.timeout_seconds or settings.tool_call_timeout_seconds,
            max_concurrency=own.max_concurrency or settings.namespace_max_concurrency,
            max_queue=settings.namespace_max_queue if own.max_queue is None else own.max_queue,
            max_output=own.max_output_size or settings.max_output_size,
        )
