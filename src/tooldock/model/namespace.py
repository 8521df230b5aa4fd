"""A namespace as people see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NamespaceStatus = Literal["ready", "idle", "starting", "building", "crash_loop", "failed", "disabled"]
"""ready: a worker is up. idle: none is needed yet; the first call starts one. starting: a worker is on its way.
building: dependencies are being installed. crash_loop: the worker keeps dying; calls are refused for a while.
failed: no version of this namespace ever worked. disabled: switched off in tooldock.yaml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    name: str
    status: NamespaceStatus
    tools: int = 0
    resources: int = 0
    """Templates included."""
    prompts: int = 0
    description: str = ""
    version: str = ""
    author: str = ""
    revision: str = ""
    """Short content hash of what is being served."""
    error: str | None = None
    """Why the newest version of the folder is not the one being served."""
    error_file: str | None = None
    error_line: int | None = None
    has_requirements: bool = False
    missing_secrets: tuple[str, ...] = ()
    pid: int | None = None
    restarts: int = 0
