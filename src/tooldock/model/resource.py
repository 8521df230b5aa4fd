"""Something to read, as callers see it: one at a fixed URI, or a whole family of them under a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tooldock.model.prompt import Argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    namespace: str
    uri: str
    """The URI; for a template, the template with its `{parameters}`."""
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    """Bytes, where they are known without reading it."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    icons: tuple[Mapping[str, Any], ...] = ()
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    """The file in the namespace that declares it, relative to the folder."""
    arguments: tuple[Argument, ...] = ()
    """The parameters of a template; none for a fixed URI."""

    @property
    def read_only(self) -> bool:
        """Reading changes nothing; that is what makes it a resource and not a tool."""
        return True
