"""Keeps the catalogue in step with the tools directory.

A reload looks at every folder, prepares only what changed, and swaps the catalogue whole. What fails to prepare
keeps its last good version, in memory or from the snapshot of an earlier run, with the error beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from tooldock.engine.registry import Catalogue, Registry
from tooldock.engine.secrets.store import Secrets
from tooldock.errors import ConfigError, DependencyError, InternalError, ToolDockError, Unavailable
from tooldock.manager.prepare import Preparer, Progress, Version
from tooldock.model import Namespace, NamespaceStatus
from tooldock.paths import NAMESPACE_NAME, Paths, check_namespace_name
from tooldock.sources import catalogue, folder
from tooldock.sources.folder import Folder, Stamp
from tooldock.workers.states import State

log = structlog.get_logger("tooldock.reload")

_PREPARED_AT_ONCE = 8

Found = Folder | ToolDockError | None
"""A folder's files when they changed, None when they did not, the error when they cannot be read."""
Folders = dict[str, Found]


@dataclass(slots=True)
class _Place:
    """What is known of one namespace."""

    name: str
    stamp: Stamp | None = None
    served: Version | None = None
    problem: ToolDockError | None = None
    """Why the folder as it is now is not what is served."""
    building: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a version is prepared: one at a time for each namespace, all namespaces at once."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One namespace went from one version to another."""

    place: _Place
    old: Version | None
    new: Version


@dataclass(slots=True)
class Reloaded:
    """What a reload did."""

    namespaces: list[str] = field(default_factory=list)
    workers_restarted: list[str] = field(default_factory=list)
    deps_synced: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "reloaded": True,
            "namespaces": self.namespaces,
            "workers_restarted": self.workers_restarted,
            "deps_synced": self.deps_synced,
            "errors": self.errors,
        }


class Reloader:
    def __init__(
        self,
        paths: Paths,
        registry: Registry,
        preparer: Preparer,
        read_secrets: Callable[[], Secrets],
        *,
        eager_limit: int,
        progress: Progress,
        changed: Callable[[Sequence[Namespace]], None],
        only: str | None = None,
    ) -> None:
        """`only`: serve this namespace and leave the others alone."""
        self._paths = paths
        self._registry = registry
        self._preparer = preparer
        self._read_secrets = read_secrets
        self._eager_limit = eager_limit
        self._progress = progress
        self._changed = changed
        self._only = only
        self._eager = True
        self._closed = False
        self._places: dict[str, _Place] = {}
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._reloads: set[asyncio.Task[Reloaded]] = set()
        self._secrets = Secrets()
        self.secrets_problem: ToolDockError | None = None

    async def start(self) -> asyncio.Task[None]:
        """Serve what is ready at once; the task it returns brings in what has to be built or loaded first."""
        async with self._lock:
            await self._refresh_secrets()
            folders = await asyncio.to_thread(self._scan)
            self._places = {name: _Place(name) for name in folders}
            self._eager = len(folders) <= self._eager_limit
            known = await asyncio.gather(*(self._serve_known(name, found) for name, found in folders.items()))
            later = [name for name, is_known in zip(folders, known, strict=True) if not is_known]
            self._swap()
            await asyncio.to_thread(self._forget_others)
        return asyncio.create_task(self._bring_in({name: folders[name] for name in later}), name="first-load")

    async def reload(self) -> Reloaded:
        """Finishes even if who asked for it leaves: after half a reload nobody would close the old versions."""
        if self._closed:
            raise Unavailable("The gateway is shutting down.", retry_after=5)
        task = asyncio.create_task(self._reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        return await asyncio.shield(task)

    async def _reload(self) -> Reloaded:
        async with self._lock:  # short: nothing is built or started under it
            await self._refresh_secrets()
            folders = await asyncio.to_thread(self._scan)
            gone = [self._places.pop(name) for name in list(self._places) if name not in folders]
            for name in folders:
                self._places.setdefault(name, _Place(name))
        await asyncio.to_thread(self._forget_others)
        before = self._problems()
        changes = await self._prepare_all(folders)
        self._swap()
        self._close_replaced(changes, gone)
        if changes or gone or before != self._problems():
            self._changed(self.status())
        return self._summary(changes)

    def status(self) -> list[Namespace]:
        return [self._describe(place) for _, place in sorted(self._places.items())]

    async def health(self, seconds: float) -> dict[str, Any]:
        """What the namespaces' own health checks say, those that have one and a running worker."""
        sources = {
            place.name: place.served.source
            for place in self._places.values()
            if place.served is not None and place.served.source is not None
        }

        async def check(name: str) -> Any:
            try:
                return await sources[name].health(seconds)
            except TimeoutError:
                return {"status": "unknown", "reason": "no answer in time"}
            except ToolDockError as error:
                return {"status": "error", "reason": error.message}

        answers = await asyncio.gather(*map(check, sources))
        return {name: answer for name, answer in zip(sources, answers, strict=True) if answer is not None}

    async def close(self, drain: float) -> None:
        """End every worker; calls in flight have `drain` seconds."""
        self._closed = True
        for task in self._reloads:
            task.cancel()  # it may be building an environment, which takes minutes
        if self._reloads:
            await asyncio.wait(self._reloads)
        for place in self._places.values():
            if place.served is not None:
                self._close_later(place.served)
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=drain)
            for closing in late:
                closing.cancel()  # what they wait for is ended with the launcher
            if late:
                await asyncio.wait(late)

    # Reading.

    def _scan(self) -> Folders:
        """Every folder: its files when they changed, None when not, the error when it cannot be read."""
        found: Folders = {}
        for name in folder.names(self._paths.tools):
            if self._only is not None and name != self._only:
                continue
            path = self._paths.tools / name
            place = self._places.get(name)
            try:
                check_namespace_name(name)
                stamp = folder.stamp(path)
                if place is not None and place.stamp == stamp and place.problem is None:
                    found[name] = None
                    continue
                found[name] = folder.read(name, path)
                if place is not None:
                    place.stamp = stamp
            except ToolDockError as error:
                found[name] = error
            except OSError as error:
                found[name] = ConfigError(f"Namespace {name!r} cannot be read: {error.strerror}.", namespace=name)
        return found

    async def _refresh_secrets(self) -> None:
        try:
            self._secrets = await asyncio.to_thread(self._read_secrets)
            self.secrets_problem = None
        except ToolDockError as error:
            # The namespaces go on with the secrets they have.
            self.secrets_problem = error
            log.error("secrets_not_read", reason=error.message)

    def _forget_others(self) -> None:
        """What was remembered of namespaces whose folder is gone; their snapshots can be collected then."""
        if self._only is not None:
            return  # the others are not gone, only not ours
        for record in self._paths.catalogue("x").parent.glob("*.json"):
            if record.stem not in self._places:
                record.unlink(missing_ok=True)

    def _problems(self) -> dict[str, str]:
        return {name: place.problem.message for name, place in self._places.items() if place.problem is not None}

    # Preparing.

    async def _serve_known(self, name: str, found: Found) -> bool:
        """At start: serve a version that loaded before, without waiting for a worker. False if there is none."""
        if not isinstance(found, Folder):  # its name may not even be fit for a file
            return False
        record = catalogue.load(self._paths.catalogue(name))
        if record is None or found.revision != record.revision:
            return False
        if found.files.get("requirements.txt") is not None and not self._paths.environment(record.environment).is_dir():
            return False  # has to be built first
        place = self._places[name]
        try:
            place.served = await self._preparer.prepare(
                found, self._secrets, self._progress, start=self._eager, trust_cache=True
            )
        except ToolDockError as error:
            place.problem = error
            return False
        except Exception:  # one namespace's fault of ours must not keep the others from starting
            log.exception("namespace_failed", namespace=name)
            return False
        return True

    async def _bring_in(self, folders: Folders) -> None:
        """After start: each namespace appears as soon as it is ready, whatever the others do."""
        slots = asyncio.Semaphore(_PREPARED_AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                change = await self._update(self._places.get(name), folders[name], first=True)
            self._swap()
            self._close_replaced([change] if change else [])

        for name in folders:
            self._places[name].building = True
        await asyncio.gather(*map(one, folders))
        self._changed(self.status())

    async def _prepare_all(self, folders: Folders) -> list[_Change]:
        slots = asyncio.Semaphore(_PREPARED_AT_ONCE)

        async def one(name: str) -> _Change | None:
            async with slots:
                return await self._update(self._places.get(name), folders[name], first=False)

        due = [name for name in folders if name in self._places and self._is_due(self._places[name], folders[name])]
        return [change for change in await asyncio.gather(*map(one, due)) if change is not None]

    def _is_due(self, place: _Place, found: Found) -> bool:
        if found is None:
            served = place.served
            return served is not None and served.secrets_digest != self._secrets.digest(place.name)
        return not isinstance(found, Folder) or place.problem is not None or not self._is_served(place, found)

    async def _update(self, place: _Place | None, found: Found, *, first: bool) -> _Change | None:
        """Bring one namespace to what its folder says now, or note why that cannot be."""
        if place is None:
            return None  # its folder is gone meanwhile
        async with place.lock:
            place.building = True
            old = place.served
            try:
                await self._bring_to(place, found, start=self._eager or not first)
            except ToolDockError as error:
                place.problem = error
                log.warning("namespace_not_loaded", namespace=place.name, reason=error.message)
                if place.served is None and first:
                    await self._fall_back(place)
            except Exception as error:  # one namespace's fault of ours must not stop the others
                log.exception("namespace_failed", namespace=place.name)
                place.problem = InternalError(f"Preparing the namespace failed: {type(error).__name__}. See the log.")
            finally:
                place.building = False
            new = place.served
            return None if new is None or new is old else _Change(place, old, new)

    async def _bring_to(self, place: _Place, found: Found, *, start: bool) -> None:
        if isinstance(found, ToolDockError):
            raise found
        # Read again: this may have waited for another reload, and must not bring back what that one replaced.
        found = await asyncio.to_thread(folder.read, place.name, self._paths.tools / place.name)
        if not self._is_served(place, found):
            place.served = await self._preparer.prepare(
                found, self._secrets, self._progress, start=start, trust_cache=False
            )
        place.problem = None

    def _is_served(self, place: _Place, found: Folder) -> bool:
        served = place.served
        return served is not None and (served.revision, served.secrets_digest) == (
            found.revision,
            self._secrets.digest(place.name),
        )

    async def _fall_back(self, place: _Place) -> None:
        """After a restart: the folder is broken, but a version of an earlier run worked."""
        if not NAMESPACE_NAME.fullmatch(place.name):
            return
        record = catalogue.load(self._paths.catalogue(place.name))
        if record is None:
            return
        path = self._paths.snapshot(place.name, record.revision)
        if not await asyncio.to_thread(folder.is_intact, path, record.revision):
            return
        try:
            found = await asyncio.to_thread(folder.read, place.name, path)
            place.served = await self._preparer.prepare(
                found, self._secrets, self._progress, start=self._eager, trust_cache=True
            )
        except ToolDockError as error:
            log.warning("last_version_not_loaded", namespace=place.name, reason=error.message)

    # Swapping.

    def _swap(self) -> None:
        entries = [place.served.entry for place in self._places.values() if place.served is not None]
        absent = {place.name: _why_absent(place) for place in self._places.values() if place.served is None}
        self._registry.swap(Catalogue((entry for entry in entries if entry is not None), absent))

    def _close_replaced(self, changes: Sequence[_Change], gone: Sequence[_Place] = ()) -> None:
        """After a swap: what is no longer in the catalogue finishes its calls and ends."""
        for change in changes:
            if change.old is not None:
                self._close_later(change.old)
            if self._places.get(change.place.name) is not change.place:
                self._close_later(change.new)  # its folder was removed while it was being prepared
        for place in gone:
            if place.served is not None:
                self._close_later(place.served)

    def _summary(self, changes: Sequence[_Change]) -> Reloaded:
        done = Reloaded(namespaces=sorted(self._registry.catalogue.entries))
        for change in sorted(changes, key=lambda change: change.place.name):
            if change.new.source is not None:
                done.workers_restarted.append(change.place.name)
                if change.new.has_requirements:
                    done.deps_synced.append(change.place.name)
        done.errors = self._problems()
        return done

    def _close_later(self, version: Version) -> None:
        task = asyncio.create_task(self._close_version(version), name="close-version")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_version(self, version: Version) -> None:
        await version.close()
        used = {place.served.environment for place in self._places.values() if place.served is not None}
        if version.environment is not None and version.environment not in used:
            self._preparer.release(version.environment)

    # Describing.

    def _describe(self, place: _Place) -> Namespace:
        version = place.served
        entry = version.entry if version is not None else None
        source = version.source if version is not None else None
        problem = place.problem or (source.supervisor.error if source is not None else None)
        details = problem.details if problem is not None else {}
        return Namespace(
            name=place.name,
            status=_status(place),
            tools=len(entry.offers) if entry is not None else 0,
            resources=len(entry.resources) + len(entry.templates) if entry is not None else 0,
            prompts=len(entry.prompts) if entry is not None else 0,
            description=version.config.description if version is not None else "",
            version=version.config.version if version is not None else "",
            author=version.config.author if version is not None else "",
            revision=version.revision[:12] if version is not None else "",
            error=problem.message if problem is not None else None,
            error_file=details.get("file"),
            error_line=details.get("line"),
            has_requirements=version.has_requirements if version is not None else False,
            missing_secrets=version.missing_secrets if version is not None else (),
            pid=source.pid if source is not None else None,
            restarts=source.supervisor.restarts if source is not None else 0,
        )


def _why_absent(place: _Place) -> ToolDockError:
    """What a call to a namespace hears that exists but of which no version can be served."""
    if place.building or place.problem is None:
        return Unavailable(
            f"Namespace {place.name!r} is being prepared: its dependencies are installed and its files loaded.",
            namespace=place.name,
            retry_after=2,
            reason="building",
        )
    return DependencyError(
        f"Namespace {place.name!r} could not be loaded. {place.problem.message}",
        **{**place.problem.details, "namespace": place.name},
    )


def _status(place: _Place) -> NamespaceStatus:
    version = place.served
    if version is None:
        return "building" if place.building else "failed"
    if version.source is None:
        return "disabled"
    match version.source.supervisor.state:
        case State.READY:
            return "ready"
        case State.IDLE:
            return "idle"
        case State.CRASH_LOOP:
            return "crash_loop"
        case _:
            return "starting"
