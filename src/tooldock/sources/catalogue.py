"""What a namespace's worker said it offers, kept on disk.

So that listing tools, resources and prompts needs no running worker, and so that a restart knows the last version
that worked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tooldock.model import Argument, Prompt, Resource, Tool

_VERSION = 2

Items = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Described:
    """What a worker said it offers, in its own words."""

    tools: Items = ()
    resources: Items = ()
    templates: Items = ()
    prompts: Items = ()

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Described:
        """From a worker's message or a file; raises `ValueError`, `KeyError` or `TypeError` if it is no such thing."""
        lists = [tuple(said[part]) for part in _PARTS]
        if not all(isinstance(item, dict) for items in lists for item in items):
            raise ValueError("something described is no object")
        return cls(*lists)

    def as_json(self) -> dict[str, Items]:
        return {part: getattr(self, part) for part in _PARTS}


_PARTS = ("tools", "resources", "templates", "prompts")


@dataclass(frozen=True, slots=True)
class Record:
    """The last version of a namespace that loaded."""

    revision: str
    environment: str
    worker: str
    """The worker package that described it; another one may describe it differently. Empty if nobody can tell."""
    described: Described


def load(path: Path) -> Record | None:
    """None when there is none, or it cannot be understood: it is a cache, the worker knows better."""
    try:
        data = orjson.loads(path.read_bytes())
        names = (data["revision"], data["environment"], data["worker"])
        if not all(isinstance(name, str) for name in names):
            return None
        if data["version"] != _VERSION:
            # Spelt otherwise, so a worker has to describe it again; but which revision worked is known.
            return Record(*names[:2], "", Described())
        return Record(*names, Described.of(data))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(path: Path, record: Record) -> None:
    data = {
        "version": _VERSION,
        "revision": record.revision,
        "environment": record.environment,
        "worker": record.worker,
        **record.described.as_json(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    partial.write_bytes(orjson.dumps(data))
    os.replace(partial, path)


def tool(namespace: str, described: Mapping[str, Any]) -> Tool:
    """A tool as its worker describes it. The worker runs users' code, so nothing is taken on trust."""
    return Tool(
        namespace=namespace,
        name=_text(described, "name"),
        description=_text(described, "description"),
        title=_text(described, "title") or None,
        input_schema=_mapping(described, "inputSchema"),
        output_schema=_mapping(described, "outputSchema") or None,
        annotations=_mapping(described, "annotations"),
        icons=_icons(described),
        tags=_tags(described),
        meta=_mapping(described, "meta"),
        file=_text(described, "file"),
        timeout=_seconds(described.get("timeout")),
    )


def resource(namespace: str, described: Mapping[str, Any]) -> Resource:
    """A resource as its worker describes it, or a template."""
    return Resource(
        namespace=namespace,
        uri=_text(described, "uri") or _text(described, "uriTemplate"),
        name=_text(described, "name"),
        title=_text(described, "title") or None,
        description=_text(described, "description"),
        mime_type=_text(described, "mimeType") or None,
        size=_bytes(described.get("size")),
        annotations=_mapping(described, "annotations"),
        icons=_icons(described),
        tags=_tags(described),
        meta=_mapping(described, "meta"),
        file=_text(described, "file"),
        arguments=_arguments(described),
    )


def prompt(namespace: str, described: Mapping[str, Any]) -> Prompt:
    return Prompt(
        namespace=namespace,
        name=_text(described, "name"),
        title=_text(described, "title") or None,
        description=_text(described, "description"),
        arguments=_arguments(described),
        icons=_icons(described),
        tags=_tags(described),
        meta=_mapping(described, "meta"),
        file=_text(described, "file"),
    )


def _arguments(described: Mapping[str, Any]) -> tuple[Argument, ...]:
    return tuple(
        Argument(
            name=_text(item, "name"),
            description=_text(item, "description"),
            required=item.get("required") is True,
            values=tuple(str(value) for value in _sequence(item, "values")),
        )
        for item in _sequence(described, "arguments")
        if isinstance(item, dict)
    )


def _icons(described: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(icon for icon in _sequence(described, "icons") if isinstance(icon, dict))


def _tags(described: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(tag) for tag in _sequence(described, "tags"))


def _text(described: Mapping[str, Any], key: str) -> str:
    value = described.get(key)
    return value if isinstance(value, str) else ""


def _mapping(described: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = described.get(key)
    return value if isinstance(value, dict) else {}


def _sequence(described: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = described.get(key)
    return value if isinstance(value, list) else ()


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _bytes(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
