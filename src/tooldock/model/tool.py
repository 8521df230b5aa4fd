"""A tool as callers see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    namespace: str
    name: str
    description: str = ""
    title: str | None = None
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: Mapping[str, Any] | None = None
    """What the tool returns, when its return type says so; None when it does not."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """MCP hints (readOnlyHint, destructiveHint, ...); they may only tighten what policy allows."""
    icons: tuple[Mapping[str, Any], ...] = ()
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    """The file in the namespace that declares it, relative to the folder."""
    timeout: float | None = None
    """Seconds a call may take, when the tool asks for less than its namespace allows."""

    @property
    def read_only(self) -> bool:
        return self.annotations.get("readOnlyHint") is True
