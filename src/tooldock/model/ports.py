"""The seams between rooms, as Protocols.

`ToolSource` is how the engine reaches tools of any kind, resources and prompts; `Channel` is how what runs talks
back to who called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from tooldock.errors import NoBackChannel

if TYPE_CHECKING:
    from tooldock.model.call import Call
    from tooldock.model.outcome import Outcome
    from tooldock.model.prompt import Prompt
    from tooldock.model.resource import Resource
    from tooldock.model.tool import Tool

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
AskKind = Literal["elicit", "sample", "roots", "call_tool", "notify", "close_stream"]
"""elicit, sample, roots: questions to the caller. close_stream: the caller may let go of the connection for now and
come back for the answer. call_tool, notify: for the engine itself; they never reach a caller's channel."""

Item: TypeAlias = "Tool | Resource | Prompt"
"""What a call can be for."""


class ToolSource(Protocol):
    """Where one namespace's tools of one kind come from, with the resources and prompts beside them."""

    def list(self) -> Sequence[Tool]:
        """The tools on offer; never starts anything."""
        ...

    def resources(self) -> Sequence[Resource]:
        """What can be read at a fixed URI; never starts anything."""
        ...

    def templates(self) -> Sequence[Resource]:
        """What can be read at any URI that fits a template; `uri` holds the template."""
        ...

    def prompts(self) -> Sequence[Prompt]: ...

    async def call(self, call: Call, item: Item, deadline: float, channel: Channel, /) -> Outcome:
        """Run one call, of the kind `call.kind` says: `item` is then a tool, a resource (or template) or a prompt.

        Raises `ToolDockError`; answers at the latest at `deadline` (event loop's clock), save for the time its caller
        takes to answer questions. `channel` is the way back to the caller, with the engine's rules applied;
        `call.channel` is without them.
        """
        ...

    async def close(self) -> None:
        """Let calls in flight finish, then release every process and file."""
        ...


class Channel(Protocol):
    """What flows back to the caller while a call runs."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    async def log(self, level: LogLevel, message: str, logger: str | None, data: Any) -> None: ...

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        """Put a question to the caller and wait for the answer; `NoBackChannel` where the wire has no way."""
        ...


class SilentChannel:
    """For wires that answer once: progress and log go nowhere, questions are refused by name."""

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return None

    async def log(self, level: LogLevel, message: str, logger: str | None, data: Any) -> None:
        return None

    async def ask(self, kind: AskKind, params: Mapping[str, Any]) -> Any:
        raise NoBackChannel(
            f"The tool asked its caller a question ({kind}), but this caller's connection cannot carry one. "
            "Call it through an MCP client that supports it.",
            kind=kind,
        )
