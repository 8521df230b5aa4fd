"""The values that travel cannot be changed on the way."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tooldock.errors import NoBackChannel
from tooldock.model import Argument, Call, Caller, Namespace, Outcome, Prompt, Resource, SilentChannel, Tool

CALL = Call("math", "add", {}, Caller("ann"), "r-1", "rest")


@pytest.mark.parametrize(
    "value",
    [
        CALL.caller,
        Tool(namespace="math", name="add"),
        Resource(namespace="math", uri="data://pi", name="pi"),
        Prompt(namespace="math", name="explain"),
        Argument(name="topic"),
        Namespace(name="math", status="ready"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_frozen_and_takes_no_other_attribute(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "other")
    assert not hasattr(value, "__dict__")


@pytest.mark.parametrize("value", [CALL, Outcome("ok")], ids=lambda value: type(value).__name__)
def test_a_value_made_for_each_call_takes_no_other_attribute(value: Any) -> None:
    """That nobody changes one is the type checker's business: freezing costs more than the engine's checks."""
    with pytest.raises(AttributeError):
        value.other = 1
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


def test_a_call_is_for_a_tool_unless_it_says_otherwise() -> None:
    assert CALL.kind == "tool"
    assert dataclasses.fields(Call)[-1].name == "kind"


def test_reading_a_resource_or_rendering_a_prompt_changes_nothing() -> None:
    assert Resource(namespace="math", uri="data://pi", name="pi").read_only
    assert Prompt(namespace="math", name="explain").read_only
