"""What tools say about their namespace is passed on, and cannot drown anybody."""

from __future__ import annotations

import asyncio

import pytest

from tooldock.engine import announce
from tooldock.engine.announce import Announcer
from tooldock.engine.registry import Change, Registry


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Change]:
    monkeypatch.setattr(announce, "_SECONDS", 0.05)
    return []


def announcer(heard: list[Change]) -> Announcer:
    registry = Registry()
    registry.subscribe(heard.append)
    return Announcer(registry)


def updated(number: int, namespace: str = "docs") -> Change:
    return Change(namespace, frozenset(), frozenset({f"page://{number}"}))


async def until(heard: list[Change], count: int) -> None:
    async with asyncio.timeout(5):
        while len(heard) < count:
            await asyncio.sleep(0.005)


async def test_the_first_are_passed_on_at_once_and_the_rest_together(heard: list[Change]) -> None:
    tell = announcer(heard)
    for number in range(announce._AT_ONCE):
        tell.announce(updated(number))
    assert heard == [updated(number) for number in range(announce._AT_ONCE)]
    tell.announce(updated(100))
    tell.announce(updated(101))
    tell.announce(Change("docs", frozenset({"tools"})))
    tell.announce(Change("docs", frozenset({"prompts"})))
    assert len(heard) == announce._AT_ONCE
    await until(heard, announce._AT_ONCE + 1)
    assert heard[-1] == Change("docs", frozenset({"tools", "prompts"}), frozenset({"page://100", "page://101"}))


async def test_one_namespace_that_talks_does_not_silence_another(heard: list[Change]) -> None:
    tell = announcer(heard)
    for number in range(announce._AT_ONCE + 1):
        tell.announce(updated(number))
    tell.announce(updated(1, "other"))
    assert heard[-1] == updated(1, "other")


async def test_what_waits_stays_bounded(heard: list[Change], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "_MAX_URIS", 10)
    tell = announcer(heard)
    for number in range(announce._AT_ONCE + 500):
        tell.announce(updated(number))
    await until(heard, announce._AT_ONCE + 1)
    assert len(heard[-1].uris) == 10


async def test_after_a_second_everything_is_passed_on_at_once_again(heard: list[Change]) -> None:
    tell = announcer(heard)
    for number in range(announce._AT_ONCE):
        tell.announce(updated(number))
    async with asyncio.timeout(5):
        while tell._seconds:
            await asyncio.sleep(0.005)
    tell.announce(updated(1))
    assert heard[-1] == updated(1)
    assert len(heard) == announce._AT_ONCE + 1
