"""A `ToolSource` for tests that bring tools of their own."""

from __future__ import annotations

from collections.abc import Sequence

from tooldock.model import Call, Channel, Item, Outcome, Prompt, Resource, Tool


class EmptySource:
    """Offers nothing, and nobody is to call it."""

    def list(self) -> Sequence[Tool]:
        return ()

    def resources(self) -> Sequence[Resource]:
        return ()

    def templates(self) -> Sequence[Resource]:
        return ()

    def prompts(self) -> Sequence[Prompt]:
        return ()

    async def call(self, call: Call, item: Item, deadline: float, channel: Channel, /) -> Outcome:
        raise AssertionError("nothing runs here")

    async def close(self) -> None:
        return None
