"""One call on its way in: who wants which tool, resource or prompt with what, and how to talk back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from tooldock.model.ports import Channel, SilentChannel
from tooldock.model.value import value

Role = Literal["caller", "operator", "read-only"]
Kind = Literal["tool", "resource", "prompt"]

_SILENT = SilentChannel()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, as far as the credential shows."""

    name: str
    role: Role = "caller"
    address: str = ""


@value
class Call:
    namespace: str
    tool: str
    """Its name; the URI when a resource is read, the prompt's name when one is rendered."""
    arguments: dict[str, Any]
    caller: Caller
    request_id: str
    protocol: str
    """The wire it came by: `rest`, `mcp/2025-11-25`, ..."""
    channel: Channel = _SILENT
    deadline: float | None = None
    """On the event loop's clock; None takes the tool's or the gateway's default."""
    depth: int = 0
    """How many tools called each other to get here."""
    meta: dict[str, Any] = field(default_factory=dict)
    """What the wire knows besides: `session_id`, `client_capabilities`, ..."""
    kind: Kind = "tool"
