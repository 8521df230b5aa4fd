"""The catalogue is replaced whole, and what a call found stays what it was."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.source import EmptySource
from tooldock.engine.registry import Catalogue, Change, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.errors import NamespaceNotFound, PromptNotFound, ResourceNotFound, ToolNotFound
from tooldock.model import Prompt, Resource, Tool

LIMITS = Limits(timeout=5, max_concurrency=4, max_queue=4, max_output=1000)


def entry(name: str, *tools: str, description: str = "", revision: str = "1", **more: Any) -> Entry:
    offers: Mapping[str, Any] = {
        tool: Offer(
            Tool(namespace=name, name=tool, description=description), EmptySource(), Validator(tool, {"type": "object"})
        )
        for tool in tools
    }
    return Entry(name, offers, LIMITS, revision=revision, **more)


def resource(uri: str, **more: Any) -> dict[str, Resource]:
    return {uri: Resource(namespace="docs", uri=uri, name="page", **more)}


def prompt(name: str, **more: Any) -> dict[str, Prompt]:
    return {name: Prompt(namespace="docs", name=name, **more)}


def part(name: str, *parts: Any, reloaded: bool = False) -> Change:
    return Change(name, frozenset(parts), reloaded=reloaded)


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


def test_listeners_hear_of_each_namespace_whose_tools_differ() -> None:
    registry = Registry()
    heard: list[Change] = []
    registry.subscribe(heard.append)
    registry.swap(Catalogue([entry("math", "add"), entry("text", "upper")]))
    registry.swap(Catalogue([entry("math", "add"), entry("text", "upper", "lower")]))
    registry.swap(Catalogue([entry("math", "add", description="Sum."), entry("text", "upper", "lower")]))
    registry.swap(Catalogue([entry("math", "add", description="Sum.")]))
    assert heard == [
        part("math", "tools", reloaded=True),
        part("text", "tools", reloaded=True),
        part("text", "tools"),
        part("math", "tools"),
        part("text", "tools", reloaded=True),
    ]


def test_listeners_hear_which_lists_differ_and_whether_another_version_is_served() -> None:
    registry = Registry()
    registry.swap(Catalogue([entry("docs", "search")]))
    heard: list[Change] = []
    registry.subscribe(heard.append)
    registry.swap(Catalogue([entry("docs", "search", resources=resource("page://1"))]))
    registry.swap(Catalogue([entry("docs", "search", templates=resource("page://{n}"), revision="2")]))
    registry.swap(Catalogue([entry("docs", "search", prompts=prompt("ask"), revision="3")]))
    registry.swap(Catalogue([entry("docs", "search", prompts=prompt("ask"), revision="4")]))
    assert heard == [
        part("docs", "resources"),
        part("docs", "resources", reloaded=True),
        part("docs", "resources", "prompts", reloaded=True),
        part("docs", reloaded=True),
    ]


def test_what_a_running_tool_announces_reaches_every_listener() -> None:
    registry = Registry()
    heard: list[Change] = []
    registry.subscribe(heard.append)
    registry.subscribe(heard.append)
    change = Change("docs", frozenset(), frozenset({"page://1"}))
    registry.announce(change)
    assert heard == [change, change]


def test_a_swap_that_changes_no_tool_is_silent() -> None:
    registry = Registry()
    registry.swap(Catalogue([entry("math", "add")]))
    registry.subscribe(lambda change: pytest.fail(f"told about {change}"))
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


def test_a_uri_is_served_by_the_resource_that_has_it_else_by_the_first_template_that_fits() -> None:
    served = entry(
        "docs",
        resources=resource("page://front"),
        templates=resource("page://{name}") | resource("page://{path*}"),
    )
    assert served.resource("page://front").uri == "page://front"
    assert served.resource("page://other").uri == "page://{name}"
    assert served.resource("page://a/b").uri == "page://{path*}"


@pytest.mark.parametrize("uri", ["page://", "other://front", "", "page://" + "x" * 5000])
def test_a_uri_nothing_is_served_at_is_refused_by_name(uri: str) -> None:
    with pytest.raises(ResourceNotFound) as caught:
        entry("docs", templates=resource("page://{name}") | resource("{broken")).resource(uri)
    assert caught.value.details["uri"] == uri
    assert len(caught.value.message) < 4300


def test_a_misspelt_prompt_is_answered_with_the_nearest_one_and_what_there_is() -> None:
    with pytest.raises(PromptNotFound) as caught:
        entry("docs", prompts=prompt("summary") | prompt("review")).prompt("sumary")
    assert "Did you mean 'summary'?" in caught.value.message
    assert caught.value.details["available"] == ["review", "summary"]


@pytest.mark.parametrize("length", [20, 60])
def test_a_miss_among_very_many_names_costs_little(length: int) -> None:
    """It is answered on the gateway's event loop, and callers may miss as often as they like."""
    known = {name: one for n in range(5000) for name, one in resource(f"{'ab' * length}{n}").items()}
    served = entry("docs", resources=known)
    started = time.process_time()
    with pytest.raises(ResourceNotFound):
        served.resource("ba" * (length + 2))
    assert time.process_time() - started < 0.2
