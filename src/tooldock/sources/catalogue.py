"""What a namespace's worker said it offers, kept on disk.

So that listing tools needs no running worker, and so that a restart knows the last version that worked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tooldock.model import Tool

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """The last version of a namespace that loaded."""

    revision: str
    environment: str
    worker: str
    """The worker package that described the tools; another one may describe them differently."""
    tools: tuple[dict[str, Any], ...]


def load(path: Path) -> Record | None:
    """None when there is none, or it cannot be understood: it is a cache, the worker knows better."""
    try:
        data = orjson.loads(path.read_bytes())
        if data["version"] != _VERSION:
            return None
        names = (data["revision"], data["environment"], data["worker"])
        tools = tuple(data["tools"])
        if not all(isinstance(name, str) for name in names) or not all(isinstance(item, dict) for item in tools):
            return None
        return Record(*names, tools)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(path: Path, record: Record) -> None:
    data = {
        "version": _VERSION,
        "revision": record.revision,
        "environment": record.environment,
        "worker": record.worker,
        "tools": record.tools,
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
        icons=tuple(icon for icon in _sequence(described, "icons") if isinstance(icon, dict)),
        tags=tuple(str(tag) for tag in _sequence(described, "tags")),
        meta=_mapping(described, "meta"),
        file=_text(described, "file"),
        timeout=_seconds(described.get("timeout")),
    )


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
