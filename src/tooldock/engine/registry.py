"""The catalogue: which tools exist right now, as one immutable snapshot that is replaced in one assignment.

A call resolves once and keeps what it found, so a reload in the middle changes nothing for it. The registry knows
no files and starts nothing; whoever builds a new catalogue hands it in whole.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tooldock.engine.schema import Validator
from tooldock.engine.secrets.redact import Redactor
from tooldock.errors import NamespaceNotFound, ToolDockError, ToolNotFound
from tooldock.model import Tool, ToolSource

_MAX_NAME = 128
"""Longer names resemble nothing; comparing them would cost time the caller decides on."""


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


class Registry:
    """Holds the current catalogue and tells who is interested when it changes."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self._listeners: list[Callable[[frozenset[str]], None]] = []

    def subscribe(self, listener: Callable[[frozenset[str]], None]) -> None:
        """`listener` gets the names of namespaces whose tools appeared, changed or went."""
        self._listeners.append(listener)

    def swap(self, catalogue: Catalogue) -> frozenset[str]:
        old, self.catalogue = self.catalogue.entries, catalogue
        new = catalogue.entries
        changed = frozenset(
            name
            for name in old.keys() | new.keys()
            if name not in old or name not in new or old[name].tools != new[name].tools
        )
        if changed:
            for listener in self._listeners:
                listener(changed)
        return changed


def _near(name: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(name[:_MAX_NAME], list(known)[:2000], n=1)
    return f" Did you mean {match[0]!r}?" if match else ""
