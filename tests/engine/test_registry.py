"""The catalogue is replaced whole, and what a call found stays what it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tooldock.engine.registry import Catalogue, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.errors import NamespaceNotFound, ToolNotFound
from tooldock.model import Call, Channel, Outcome, Tool

LIMITS = Limits(timeout=5, max_concurrency=4, max_queue=4, max_output=1000)


class Nowhere:
    """A source nobody calls."""

    def list(self) -> Sequence[Tool]:
        return ()

    async def call(self, call: Call, tool: Tool, deadline: float, channel: Channel) -> Outcome:
        raise AssertionError

    async def close(self) -> None:
        return None


def entry(name: str, *tools: str, description: str = "") -> Entry:
    offers: Mapping[str, Any] = {
        tool: Offer(
            Tool(namespace=name, name=tool, description=description), Nowhere(), Validator(tool, {"type": "object"})
        )
        for tool in tools
    }
    return Entry(name, offers, LIMITS)


def test_a_swap_is_seen_whole_and_what_was_found_before_stays() -> None:
    registry = Registry()
    registry.swap(Catalogue([entry("math", "add")]))
    before = registry.catalogue
    found = before.entry("math").offer("add")
    registry.swap(Catalogue([entry("text", "upper")]))
    assert before.entry("math").offer("add") is found
    assert list(registry.catalogue.entries) == ["text"]
    with pytest.raises(NamespaceNotFound):
        registry.catalogue.entry("math")


def test_a_catalogue_cannot_be_changed() -> None:
    catalogue = Catalogue([entry("math", "add")])
    with pytest.raises(TypeError):
        catalogue.entries["text"] = entry("text")  # type: ignore[index]


def test_listeners_hear_the_names_of_namespaces_whose_tools_differ() -> None:
    registry = Registry()
    heard: list[frozenset[str]] = []
    registry.subscribe(heard.append)
    registry.swap(Catalogue([entry("math", "add"), entry("text", "upper")]))
    registry.swap(Catalogue([entry("math", "add"), entry("text", "upper", "lower")]))
    registry.swap(Catalogue([entry("math", "add", description="Sum."), entry("text", "upper", "lower")]))
    registry.swap(Catalogue([entry("math", "add", description="Sum.")]))
    assert heard == [frozenset({"math", "text"}), frozenset({"text"}), frozenset({"math"}), frozenset({"text"})]


def test_a_swap_that_changes_no_tool_is_silent() -> None:
    registry = Registry()
    registry.swap(Catalogue([entry("math", "add")]))
    registry.subscribe(lambda names: pytest.fail(f"told about {names}"))
    assert registry.swap(Catalogue([entry("math", "add")])) == frozenset()


def test_a_misspelt_tool_is_answered_with_the_nearest_one_and_what_there_is() -> None:
    with pytest.raises(ToolNotFound) as caught:
        entry("text", "uppercase", "lowercase").offer("upercase")
    assert "Did you mean 'uppercase'?" in caught.value.message
    assert caught.value.details["available"] == ["lowercase", "uppercase"]


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ToolNotFound) as caught:
        entry("text", "uppercase").offer("zzz")
    assert "Did you mean" not in caught.value.message


def test_a_misspelt_namespace_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(NamespaceNotFound) as caught:
        Catalogue([entry("github", "issues")]).entry("gihub")
    assert "Did you mean 'github'?" in caught.value.message


def test_the_list_of_what_there_is_stays_bounded() -> None:
    with pytest.raises(ToolNotFound) as caught:
        entry("many", *(f"tool{number}" for number in range(500))).offer("other")
    assert len(caught.value.details["available"]) == 100
