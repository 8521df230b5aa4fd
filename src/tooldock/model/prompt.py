"""A prompt as callers see it: a named text with blanks, rendered into messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One blank of a prompt, or one parameter of a resource template. Its value is always a text."""

    name: str
    description: str = ""
    required: bool = False
    values: tuple[str, ...] = ()
    """The texts it takes, where they can be listed; empty when any may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    namespace: str
    name: str
    title: str | None = None
    description: str = ""
    arguments: tuple[Argument, ...] = ()
    icons: tuple[Mapping[str, Any], ...] = ()
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    """The file in the namespace that declares it, relative to the folder."""

    @property
    def read_only(self) -> bool:
        """Rendering changes nothing."""
        return True
