"""The values that travel cannot be changed on the way."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tooldock.errors import NoBackChannel
from tooldock.model import Call, Caller, Namespace, Outcome, SilentChannel, Tool

CALL = Call("math", "add", {}, Caller("ann"), "r-1", "rest")


@pytest.mark.parametrize(
    "value",
    [CALL, CALL.caller, Outcome("ok"), Tool(namespace="math", name="add"), Namespace(name="math", status="ready")],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_frozen_and_takes_no_other_attribute(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "other")
    assert not hasattr(value, "__dict__")


@pytest.mark.parametrize(
    ("annotations", "read_only"),
    [({}, False), ({"readOnlyHint": False}, False), ({"readOnlyHint": "yes"}, False), ({"readOnlyHint": True}, True)],
)
def test_only_a_plain_yes_makes_a_tool_read_only(annotations: dict[str, Any], read_only: bool) -> None:
    assert Tool(namespace="math", name="add", annotations=annotations).read_only is read_only


async def test_a_caller_who_cannot_be_asked_says_so_and_ignores_the_rest() -> None:
    channel = SilentChannel()
    await channel.progress(1, 2, "half")
    await channel.log("info", "hello", None, None)
    with pytest.raises(NoBackChannel, match="elicit") as caught:
        await channel.ask("elicit", {"message": "?"})
    assert caught.value.details == {"kind": "elicit"}
    assert CALL.channel is not None
