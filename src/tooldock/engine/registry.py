"""The catalogue: which tools, resources and prompts exist right now, as one immutable snapshot that is replaced in
one assignment.

A call resolves once and keeps what it found, so a reload in the middle changes nothing for it. The registry knows
no files and starts nothing; whoever builds a new catalogue hands it in whole.
"""

from __future__ import annotations

import difflib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tooldock.engine.schema import Validator
from tooldock.engine.secrets.redact import Redactor
from tooldock.errors import NamespaceNotFound, PromptNotFound, ResourceNotFound, ToolDockError, ToolNotFound
from tooldock.model import Prompt, Resource, Tool, ToolSource
from tooldock_worker.uris import MAX_URI, BadTemplate, Template

Part = Literal["tools", "resources", "prompts"]

_MAX_NAME = 64
"""Longer names resemble nothing; comparing them would cost time the caller decides on."""
_MAX_COMPARED = 100
_MAX_SLIP = 5
"""Characters that a slip of the pen adds or leaves out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one namespace may use."""

    timeout: float
    max_concurrency: int
    max_queue: int
    max_output: int


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """One callable tool: its face, where it runs, and its compiled argument check."""

    tool: Tool
    source: ToolSource
    validator: Validator


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One namespace in the catalogue."""

    name: str
    offers: Mapping[str, Offer]
    limits: Limits
    description: str = ""
    version: str = ""
    revision: str = ""
    redactor: Redactor = field(default_factory=lambda: Redactor(()))
    rendered: dict[str, Any] = field(default_factory=dict)
    """What dialects rendered from this entry (tool lists, OpenAPI), kept as long as the entry lives."""
    resources: Mapping[str, Resource] = field(default_factory=dict)
    """By URI."""
    templates: Mapping[str, Resource] = field(default_factory=dict)
    """By template."""
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    reading: ToolSource | None = None
    """Where resources are read and prompts rendered; None where there are none."""

    @property
    def tools(self) -> list[Tool]:
        return [offer.tool for offer in self.offers.values()]

    def offer(self, tool: str) -> Offer:
        try:
            return self.offers[tool]
        except KeyError:
            raise ToolNotFound(
                f"Namespace {self.name!r} has no tool {tool!r}.{_near(tool, self.offers)}",
                namespace=self.name,
                tool=tool,
                available=sorted(self.offers)[:100],
            ) from None

    def resource(self, uri: str) -> Resource:
        """What is served at a URI: the resource with exactly that one, else the first template that fits."""
        found = self.resources.get(uri) or self._template(uri)
        if found is None:
            raise ResourceNotFound(
                f"Namespace {self.name!r} has no resource at {uri[:MAX_URI]!r}.{_near(uri, self.resources)}",
                namespace=self.name,
                uri=uri,
            )
        return found

    def prompt(self, name: str) -> Prompt:
        try:
            return self.prompts[name]
        except KeyError:
            raise PromptNotFound(
                f"Namespace {self.name!r} has no prompt {name!r}.{_near(name, self.prompts)}",
                namespace=self.name,
                prompt=name,
                available=sorted(self.prompts)[:100],
            ) from None

    @property
    def parts(self) -> Mapping[Part, object]:
        """What it serves, to tell whether another version serves the same."""
        return {
            "tools": self.tools,
            "resources": (list(self.resources.values()), list(self.templates.values())),
            "prompts": list(self.prompts.values()),
        }

    def _template(self, uri: str) -> Resource | None:
        for template, resource in self.templates.items():
            understood = _understood(template)
            if understood is not None and understood.match(uri) is not None:
                return resource
        return None


class Catalogue:
    """Every namespace that can be called, and why the others that exist cannot. Immutable."""

    __slots__ = ("absent", "entries")

    def __init__(self, entries: Iterable[Entry] = (), absent: Mapping[str, ToolDockError] | None = None) -> None:
        self.entries: Mapping[str, Entry] = MappingProxyType({entry.name: entry for entry in entries})
        self.absent: Mapping[str, ToolDockError] = MappingProxyType(dict(absent or {}))

    def entry(self, namespace: str) -> Entry:
        try:
            return self.entries[namespace]
        except KeyError:
            if namespace in self.absent:
                known = self.absent[namespace]
                raise type(known)(known.message, **known.details) from None
            raise NamespaceNotFound(
                f"There is no namespace {namespace!r}.{_near(namespace, self.entries)} "
                "GET /namespaces (or `tooldock namespaces`) lists what is being served.",
                namespace=namespace,
            ) from None


@dataclass(frozen=True, slots=True)
class Change:
    """Something about one namespace that clients may want to hear."""

    namespace: str
    parts: frozenset[Part]
    """The lists that are no longer what they were."""
    uris: frozenset[str] = frozenset()
    """Resources whose content changed, as far as a tool said so."""
    reloaded: bool = False
    """Another version is served (or none any more): the content of any resource may have changed."""


class Registry:
    """Holds the current catalogue and tells who is interested when it changes."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self._listeners: list[Callable[[Change], None]] = []

    def subscribe(self, listener: Callable[[Change], None]) -> None:
        """`listener` gets one `Change` for each namespace that appeared, changed or went."""
        self._listeners.append(listener)

    def announce(self, change: Change) -> None:
        """Tell the listeners, also of what a running tool says about its namespace."""
        for listener in self._listeners:
            listener(change)

    def swap(self, catalogue: Catalogue) -> frozenset[str]:
        """Serve from this catalogue on; the names of the namespaces that changed with it."""
        old, self.catalogue = self.catalogue.entries, catalogue
        new = catalogue.entries
        changes = [_change(name, old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())]
        told = [change for change in changes if change is not None]
        for change in told:
            self.announce(change)
        return frozenset(change.namespace for change in told)


def _change(name: str, old: Entry | None, new: Entry | None) -> Change | None:
    if old is new:
        return None
    before, after = (old or _NOTHING).parts, (new or _NOTHING).parts
    parts = frozenset(part for part in before if before[part] != after[part])
    reloaded = old is None or new is None or old.revision != new.revision
    return Change(name, parts, reloaded=reloaded) if parts or reloaded else None


_NOTHING = Entry("", {}, Limits(0, 0, 0, 0))


@functools.lru_cache(maxsize=4096)
def _understood(template: str) -> Template | None:
    try:
        return Template(template)
    except BadTemplate:
        return None  # fits nothing; its worker would have refused it


def _near(name: str, known: Iterable[str]) -> str:
    if len(name) > _MAX_NAME:
        return ""
    alike = (other for other in known if abs(len(other) - len(name)) <= _MAX_SLIP)
    match = difflib.get_close_matches(name, itertools.islice(alike, _MAX_COMPARED), n=1)
    return f" Did you mean {match[0]!r}?" if match else ""
