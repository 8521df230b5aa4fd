"""Subscriptions of the stateless revision: what a client asked to hear about, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.mcp.stateless_world import OTHER_TOKEN, Stream, World, echo, entry, until, world
from tooldock.dialects.mcp.jsonrpc import INVALID_PARAMS
from tooldock.dialects.mcp.listen import MAX_PENDING, MAX_URI, MAX_URIS, SUBSCRIPTION_KEY, Listeners, Subscription
from tooldock.dialects.mcp.sse import KeepAlive
from tooldock.engine.registry import Change

ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def listen(here: World, wanted: Any, id: Any = 7, **how: Any) -> Any:
    return here.stream("subscriptions/listen", {"notifications": wanted}, id=id, **how)


def change(*parts: Any, namespace: str = "one", uris: tuple[str, ...] = (), reloaded: bool = False) -> Change:
    return Change(namespace, frozenset(parts), frozenset(uris), reloaded)


async def acknowledged(stream: Stream) -> Any:
    first = await stream.next()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    return first["params"]


def place(tmp_path: Path) -> Any:
    return world(tmp_path, entry("one", {"echo": echo}), entry("two", {"echo": echo}))


@pytest.mark.parametrize("id", [7, "7", "a b"])
async def test_g44_the_acknowledgement_comes_first_and_every_message_carries_the_id(tmp_path: Path, id: Any) -> None:
    async with place(tmp_path) as here, listen(here, {"toolsListChanged": True}, id) as stream:
        assert stream.response.status_code == 200
        assert stream.response.headers["content-type"] == "text/event-stream"
        told = await acknowledged(stream)
        assert told == {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION_KEY: id}}
        here.engine.registry.announce(change("tools"))
        assert await stream.next() == {
            "jsonrpc": "2.0",
            "method": "notifications/tools/list_changed",
            "params": {"_meta": {SUBSCRIPTION_KEY: id}},
        }
        here.stateless.close()
        last = await stream.next()
        assert (last["id"], type(last["id"])) == (id, type(id))
        assert last["result"]["resultType"] == "complete"
        assert last["result"]["_meta"][SUBSCRIPTION_KEY] == id
        assert await stream.next() is None


async def test_g44_only_what_was_asked_for_is_acknowledged_and_sent(tmp_path: Path) -> None:
    wanted = {
        "promptsListChanged": True,
        "toolsListChanged": False,
        "madeUp": True,
        "resourceSubscriptions": ["x://1", "x://1", "y" * 5000],
    }
    async with place(tmp_path) as here, listen(here, wanted) as stream:
        told = await acknowledged(stream)
        assert told["notifications"] == {"promptsListChanged": True, "resourceSubscriptions": ["x://1"]}
        registry = here.engine.registry
        registry.announce(change("tools", "resources"))
        registry.announce(change("prompts", namespace="two"))
        registry.announce(change(uris=("x://2",)))
        registry.announce(change("prompts"))
        registry.announce(change(uris=("x://1",)))
        assert (await stream.next())["method"] == "notifications/prompts/list_changed"
        updated = await stream.next()
        assert updated["method"] == "notifications/resources/updated"
        assert updated["params"] == {"uri": "x://1", "_meta": {SUBSCRIPTION_KEY: 7}}


async def test_g45_a_changed_namespace_reaches_those_who_listen_to_it_and_no_others(tmp_path: Path) -> None:
    async with place(tmp_path) as here, listen(here, ALL) as mine, listen(here, ALL, namespace="two") as theirs:
        await acknowledged(mine)
        await acknowledged(theirs)
        here.swap(entry("one", {"echo": echo, "more": echo}), here.engine.registry.catalogue.entries["two"])
        assert (await mine.next())["method"] == "notifications/tools/list_changed"
        here.stateless.close()
        assert "result" in await theirs.next()
        assert "result" in await mine.next()


async def test_g45_new_code_behind_a_subscribed_resource_counts_as_a_change_of_it(tmp_path: Path) -> None:
    async with place(tmp_path) as here, listen(here, {"resourceSubscriptions": ["x://1"]}) as stream:
        await acknowledged(stream)
        here.engine.registry.announce(change(reloaded=True))
        assert (await stream.next())["params"]["uri"] == "x://1"


async def test_g44_several_subscriptions_at_once_each_get_their_own_copy(tmp_path: Path) -> None:
    async with place(tmp_path) as here, AsyncExitStack() as stack:
        # Also twice with one id: over HTTP every request stands alone.
        streams = [await stack.enter_async_context(listen(here, ALL, id)) for id in (1, 2, 2)]
        for stream in streams:
            await acknowledged(stream)
        here.engine.registry.announce(change("tools"))
        told = [(await stream.next())["params"]["_meta"][SUBSCRIPTION_KEY] for stream in streams]
        assert told == [1, 2, 2]


async def test_g44_a_namespace_that_goes_ends_its_subscriptions_politely(tmp_path: Path) -> None:
    async with place(tmp_path) as here, listen(here, ALL) as stream:
        await acknowledged(stream)
        here.swap(here.engine.registry.catalogue.entries["two"])
        assert "result" in await stream.next()
        assert await stream.next() is None
        await until("it is forgotten", lambda: len(here.stateless.listeners) == 0)


async def test_g44_a_client_that_leaves_is_forgotten(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        async with listen(here, ALL) as stream:
            await acknowledged(stream)
            assert len(here.stateless.listeners) == 1
        await until("it is forgotten", lambda: len(here.stateless.listeners) == 0)
        here.engine.registry.announce(change("tools"))


async def test_g44_a_caller_has_a_bounded_number_of_subscriptions(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for bounds, other_too in (({"per_caller": 1}, False), ({"total": 1}, True)):
            here.stateless.listeners = Listeners(here.engine.registry, KeepAlive(), **bounds)
            async with listen(here, ALL) as stream:
                await acknowledged(stream)
                async with listen(here, ALL, id=8) as second:
                    assert second.response.status_code == 503
                    assert int(second.response.headers["retry-after"]) > 0
                    await second.response.aread()
                    assert second.response.json()["id"] == 8
                async with listen(here, ALL, token=OTHER_TOKEN) as third:
                    assert third.response.status_code == (503 if other_too else 200)
            await until("all are forgotten", lambda: len(here.stateless.listeners) == 0)


async def test_g44_a_client_that_does_not_read_is_dropped_and_one_that_does_is_not(tmp_path: Path) -> None:
    long = [f"x://{'a' * 2000}{number}" for number in range(100)]
    async with place(tmp_path) as here, listen(here, {"resourceSubscriptions": long}) as reading:
        await acknowledged(reading)
        _, writer = await asyncio.open_connection("127.0.0.1", here.port, limit=1024)
        request = here.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": long}})
        head = b"\r\n".join(b"%b: %b" % pair for pair in request.headers.raw)
        writer.write(b"POST /mcp HTTP/1.1\r\n" + head + b"\r\n\r\n" + request.content)
        try:
            await until("it listens", lambda: len(here.stateless.listeners) == 2)
            async with asyncio.timeout(20):
                while len(here.stateless.listeners) == 2:
                    here.engine.registry.announce(change(reloaded=True))
                    for uri in long:
                        assert (await reading.next())["params"]["uri"] == uri
        finally:
            writer.transport.abort()
        here.engine.registry.announce(change(uris=(long[0],)))
        assert (await reading.next())["params"]["uri"] == long[0]


NO_FILTER: list[Any] = [
    {},
    {"notifications": None},
    {"notifications": []},
    {"notifications": {"toolsListChanged": "yes"}},
    {"notifications": {"toolsListChanged": None}},
    {"notifications": {"resourceSubscriptions": "x://1"}},
    {"notifications": {"resourceSubscriptions": [7]}},
    {"notifications": {"resourceSubscriptions": {"x://1": True}}},
]


async def test_g44_a_filter_that_is_none_is_refused_before_a_stream_begins(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for params in NO_FILTER:
            response = await here.post("subscriptions/listen", params)
            assert response.status_code == 400
            assert response.json()["error"]["code"] == INVALID_PARAMS


async def test_after_closing_nobody_can_subscribe(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        here.stateless.close()
        response = await here.post("subscriptions/listen", {"notifications": ALL})
        assert response.status_code == 503


def test_resources_beyond_the_bound_are_not_honoured() -> None:
    many = {"notifications": {"resourceSubscriptions": [f"x://{number}" for number in range(MAX_URIS + 5)]}}
    assert len(Subscription(1, "one", many).uris) == MAX_URIS


def test_one_change_of_everything_subscribed_to_is_less_than_a_client_may_leave_unread() -> None:
    many = [f"{number}".ljust(MAX_URI, letter) for letter in ("\U0001f600", "\x01") for number in range(MAX_URIS)]
    subscription = Subscription(1, "one", {"notifications": {"resourceSubscriptions": many}})
    assert subscription.uris
    assert sum(map(len, subscription.messages(change(reloaded=True)))) < MAX_PENDING / 2


def test_an_empty_filter_is_acknowledged_as_such() -> None:
    subscription = Subscription("a", "one", {"notifications": {}})
    assert b'"notifications":{}' in subscription.acknowledged()
    assert list(subscription.messages(change("tools", "prompts", "resources", uris=("x://1",)))) == []
