"""Streams of the handshake revisions: what goes where, what is kept, who may continue what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.dialects.mcp.handshake_world import (
    OTHER_TOKEN,
    Held,
    World,
    ask,
    echo,
    entry,
    events,
    steps,
    until,
    world,
)
from tooldock.dialects.mcp.revisions import R2025_03_26, R2025_06_18, R2025_11_25
from tooldock.dialects.mcp.sessions import Sessions
from tooldock.dialects.mcp.streams import MAX_STANDING, Replay, Stream, Streams, position
from tooldock.edge.outlet import Outlet
from tooldock.engine.registry import Change
from tooldock.model import Channel

TOOLS = "notifications/tools/list_changed"


def attached(served: World) -> int:
    return sum(
        one.outlet is not None
        for session in served.sessions.all()
        if session.streams is not None
        for one in session.streams._by_id.values()
    )


def change(served: World, *uris: str, namespace: str = "one", tools: bool = True) -> None:
    parts = frozenset(("tools",)) if tools else frozenset()
    served.engine.registry.announce(Change(namespace, parts, frozenset(uris)))  # type: ignore[arg-type]


async def test_g35_get_gives_a_stream_or_says_what_it_must_accept() -> None:
    async with world() as served:
        client = await served.client().open()
        async with client.stream() as listening:
            assert listening.response.status_code == 200
            assert listening.response.headers["content-type"] == "text/event-stream"
        for accept in ("application/json", None):
            response = await served.http.send(client.request("GET", headers={"accept": accept}))
            assert response.status_code == 406
        async with client.stream(headers={"accept": "*/*"}) as listening:
            assert listening.response.status_code == 200


async def test_g36_several_get_streams_are_held_and_each_message_goes_to_exactly_one() -> None:
    async with world() as served:
        client = await served.client().open()
        async with client.stream() as first, client.stream() as second:
            await first.event(), await second.event()
            change(served)
            assert (await second.message())["method"] == TOOLS
            await second.response.aclose()
            await until("the newer stream is gone", lambda: attached(served) == 1)
            change(served, tools=True)
            assert (await first.message())["method"] == TOOLS
            served.handshake.close()
            assert [one for one in await first.rest() if one.data] == []


async def test_g36_too_many_get_streams_cost_the_oldest() -> None:
    async with world() as served:
        client = await served.client().open()
        async with client.stream() as first:
            await first.event()
            others = [await served.http.send(client.request("GET"), stream=True) for _ in range(MAX_STANDING)]
            rest = await first.rest()
            assert [one.retry for one in rest] == [1000]
            for other in others:
                await other.aclose()


async def test_g37_what_belongs_to_a_request_goes_to_its_stream_and_answers_never_to_a_get() -> None:
    async with world(entry("one", steps=steps, ask=ask)) as served:
        client = await served.client().open()
        async with client.stream() as listening:
            await listening.event()
            found = events(await client.call("steps", progressToken=1))
            assert [one.message.get("method") for one in found if one.data] == ["notifications/progress"] * 2 + [None]
            async with client.streaming("ask") as answer:
                question = await answer.message()
                await client.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}})
                assert "result" in await answer.message()
            served.handshake.close()
            assert [one for one in await listening.rest() if one.data] == []


@pytest.mark.parametrize("revision", [R2025_03_26, R2025_06_18, R2025_11_25])
async def test_g38_streams_begin_with_an_id_to_come_back_with_since_2025_11_25(revision: str) -> None:
    async with world(entry("one", steps=steps)) as served:
        client = await served.client().open(revision)
        found = events(await client.call("steps", progressToken=1))
        primed = revision == R2025_11_25
        assert (found[0].data == "") is primed
        assert (found[0].retry == 1000) is primed
        assert all(one.id for one in found)
        assert len({one.id for one in found}) == len(found)
        async with client.stream() as listening:
            change(served)
            first = await listening.event()
            assert first is not None
            assert (first.data == "") is primed


async def test_g38_a_tool_may_close_the_connection_and_the_answer_waits() -> None:
    go, results = asyncio.Event(), []

    async def parting(arguments: dict[str, Any], channel: Channel) -> Any:
        results.append(await channel.ask("close_stream", {}))
        await go.wait()
        await channel.progress(1, None, None)
        return "later"

    async with world(entry("one", parting=parting)) as served:
        client = await served.client().open()
        found = events(await client.call("parting", id=9, progressToken=1))
        assert results == [True]
        assert [one.data for one in found] == ["", None]
        assert found[-1].retry == 1000
        assert found[0].id
        async with client.resume(found[0].id) as again:
            first = await again.event()
            assert first is not None
            assert first.data == ""
            go.set()
            rest = await again.rest()
        assert [one.message.get("method") for one in rest] == ["notifications/progress", None]
        assert rest[-1].message["id"] == 9
        assert rest[-1].message["result"]["content"][0]["text"] == "later"


async def test_g38_an_answer_that_is_ready_before_the_client_is_back_is_kept_for_it() -> None:
    async def parting(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.ask("close_stream", {})
        return "already"

    async with world(entry("one", parting=parting)) as served:
        client = await served.client().open()
        found = events(await client.call("parting"))
        async with client.resume(str(found[0].id)) as again:
            assert (await again.message())["result"]["content"][0]["text"] == "already"
            assert await again.event() is None
        assert attached(served) == 0


@pytest.mark.parametrize("revision", [R2025_03_26, R2025_06_18])
async def test_g38_older_clients_keep_their_connection(revision: str) -> None:
    async def parting(arguments: dict[str, Any], channel: Channel) -> Any:
        return await channel.ask("close_stream", {})

    async with world(entry("one", parting=parting)) as served:
        client = await served.client().open(revision)
        response = await client.call("parting")
        assert response.json()["result"]["content"][0]["text"] == "false"


async def test_g39_a_client_that_lost_its_stream_gets_the_rest_and_then_the_end() -> None:
    async with world(entry("one", steps=steps)) as served:
        client = await served.client().open()
        found = events(await client.call("steps", {"count": 3}, progressToken=1))
        async with client.resume(str(found[2].id)) as again:
            rest = await again.rest()
        assert [one.id for one in rest[1:]] == [one.id for one in found[3:]]
        assert [one.data for one in rest[1:]] == [one.data for one in found[3:]]
        assert rest[0].id == found[2].id


async def test_g39_a_client_that_has_everything_may_listen_instead() -> None:
    async with world(entry("one", steps=steps)) as served:
        client = await served.client().open()
        found = events(await client.call("steps", progressToken=1))
        async with client.resume(str(found[-1].id)) as again:
            first = await again.event()
            assert first is not None
            assert first.data == ""
            change(served)
            assert (await again.message())["method"] == TOOLS


@pytest.mark.parametrize(
    "last", ["nonsense", "-", "-1", "abc-", "abc-x", "a b-1", "abc-1.5", "x" * 200 + "-1", "ab--1x"]
)
async def test_g39_a_malformed_event_id_is_400(last: str) -> None:
    async with world() as served:
        client = await served.client().open()
        response = await served.http.send(client.request("GET", headers={"last-event-id": last}))
        assert response.status_code == 400
        assert "Last-Event-ID" in response.json()["error"]["message"]


async def test_g39_an_id_from_before_a_restart_gets_a_stream_that_listens() -> None:
    async with world() as served:
        client = await served.client().open()
        async with client.resume("00000000ff-7") as again:
            await again.event()
            change(served)
            assert (await again.message())["method"] == TOOLS


@pytest.mark.parametrize("stranger", ["another session", "another caller", "another namespace"])
async def test_g39_nobody_else_replays_a_stream(stranger: str) -> None:
    held = Held()
    async with world(entry("one", steps=steps, held=held), entry("two", echo=echo)) as served:
        client = await served.client().open()
        found = events(await client.call("steps", progressToken=1))
        other = {
            "another session": served.client(),
            "another caller": served.client(token=OTHER_TOKEN),
            "another namespace": served.client("two"),
        }[stranger]
        await other.open()
        async with client.streaming("held", {"speak": True}) as live:
            primer = await live.event()
            assert primer is not None
            for last in (found[0].id, primer.id):
                async with other.resume(str(last)) as again:
                    first = await again.event()
                    assert first is not None
                    assert str(first.id).partition("-")[0] != str(last).partition("-")[0]
                    assert first.data == ""
            held.go.set()
            assert len([one for one in await live.rest() if one.data]) == 3
        served.handshake.close()


async def test_g39_one_streams_events_never_come_up_on_another() -> None:
    async with world(entry("one", steps=steps)) as served:
        client = await served.client().open()
        one = events(await client.call("steps", id="one", progressToken="one"))
        two = events(await client.call("steps", id="two", progressToken="two"))
        async with client.resume(str(one[0].id)) as again:
            rest = [event.message for event in await again.rest() if event.data]
        assert {message.get("id", "one") for message in rest} == {"one"}
        assert {message["params"]["progressToken"] for message in rest if "params" in message} == {"one"}
        assert not {event.id for event in one} & {event.id for event in two}


async def test_g40_the_log_is_bounded_by_count() -> None:
    sessions = Sessions(replay=Replay(max_events=5))
    async with world(entry("one", steps=steps), sessions=sessions) as served:
        client = await served.client().open()
        found = events(await client.call("steps", {"count": 50}, progressToken=1))
        async with client.resume(str(found[0].id)) as again:
            rest = [one for one in await again.rest() if one.data]
        assert [one.id for one in rest] == [one.id for one in found[-5:]]
        assert "result" in rest[-1].message
        assert sessions.replay.evicted == 46


async def test_g40_the_log_is_bounded_by_bytes_in_a_stream_a_session_and_in_total() -> None:
    async def big(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.progress(1, None, "x" * 1000)
        return "y" * 1000

    replay = Replay(max_stream_bytes=4000, max_session_bytes=10_000, max_total_bytes=15_000)
    async with world(entry("one", big=big), sessions=Sessions(replay=replay)) as served:
        for _ in range(3):
            client = await served.client().open()
            for _ in range(10):
                found = events(await client.call("big", progressToken=1))
                assert replay.bytes <= 15_000
            [session] = [one for one in served.sessions.all() if one.streams and one.id == str(client.id).encode()]
            assert session.streams is not None
            assert 0 < session.streams.bytes <= 10_000
            async with client.resume(str(found[0].id)) as again:
                assert len([one for one in await again.rest() if one.data]) == 2
        assert replay.evicted > 0


async def test_g40_an_answer_too_large_for_the_log_still_reaches_its_client() -> None:
    async def huge(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.progress(1, None, None)
        return "z" * (6 << 20)

    async with world(entry("one", huge=huge)) as served:
        client = await served.client().open()
        found = events(await client.call("huge", progressToken=1))
        assert len(found[-1].message["result"]["content"][0]["text"]) == 6 << 20
        assert served.sessions.replay.bytes < 1000


async def test_g40_a_client_that_lost_an_answer_too_large_for_the_log_does_not_come_back_for_ever() -> None:
    ready = asyncio.Event()

    async def huge(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.progress(1, None, None)
        await ready.wait()
        return "z" * (3 << 20)

    async with world(entry("one", huge=huge)) as served:
        client = await served.client().open()
        [session] = served.sessions.all()
        async with client.streaming("huge") as answer:
            await answer.event()
            seen = await answer.event()
            assert seen is not None
        ready.set()
        await until("the call is over", lambda: not session.running)
        async with client.resume(str(seen.id)) as again:
            await again.event()
            change(served)
            assert (await again.message())["method"] == TOOLS


async def test_g40_the_log_is_bounded_by_age_and_forgets_the_streams_too() -> None:
    replay = Replay(max_age=0)
    async with world(entry("one", steps=steps), sessions=Sessions(replay=replay)) as served:
        client = await served.client().open()
        await client.call("steps", progressToken=1)
        assert replay.bytes > 0
        replay.sweep()
        assert replay.bytes == replay.streams == 0
        [session] = served.sessions.all()
        assert session.streams is not None
        assert not session.streams._by_id


async def test_g40_a_session_that_ends_takes_its_log_with_it() -> None:
    held = Held()
    async with world(entry("one", steps=steps, held=held)) as served:
        client = await served.client().open()
        await client.call("steps", progressToken=1)
        async with client.streaming("held", {"speak": True}) as answer:
            await held.started.wait()
            await served.http.send(client.request("DELETE"))
            await answer.rest()
        assert served.sessions.replay.bytes == served.sessions.replay.streams == 0


async def test_g41_a_client_that_goes_away_does_not_stop_its_call_and_finds_the_answer_later() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client = await served.client().open()
        async with client.streaming("held", {"speak": True}, id=5) as answer:
            primer, begun = await answer.event(), await answer.event()
            assert primer is not None
            assert begun is not None
        await until("the loss is noticed", lambda: attached(served) == 0)
        held.go.set()
        await until("the call is done", lambda: held.ended == "done")
        async with client.resume(str(begun.id)) as again:
            rest = [one.message for one in await again.rest() if one.data]
        assert rest[0]["params"]["message"] == "nearly"
        assert rest[1]["id"] == 5
        assert rest[1]["result"]["content"][0]["text"] == "released"


async def test_g41_a_client_that_comes_back_in_the_middle_reads_on_live() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client = await served.client().open()
        async with client.streaming("held", {"speak": True}, id=5) as answer:
            primer = await answer.event()
            assert primer is not None
        async with client.resume(str(primer.id)) as again:
            assert (await again.message())["params"]["message"] == "begun"
            held.go.set()
            assert (await again.message())["params"]["message"] == "nearly"
            assert (await again.message())["id"] == 5
            assert await again.event() is None


async def test_g41_a_client_may_take_over_a_connection_that_only_looks_alive() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client = await served.client().open()
        async with client.streaming("held", {"speak": True}, id=5) as answer:
            primer = await answer.event()
            assert primer is not None
            async with client.resume(str(primer.id)) as again:
                assert (await again.message())["params"]["message"] == "begun"
                held.go.set()
                assert [one.message.get("id") for one in await again.rest()] == [None, 5]


async def test_g41_without_a_stream_the_call_goes_on_as_well() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client = await served.client().open()
        call = asyncio.create_task(client.call("held"))
        await held.started.wait()
        call.cancel()
        await asyncio.wait((call,))
        [session] = served.sessions.all()
        assert session.running
        [running] = session.running.values()
        await until("the loss is noticed", lambda: running.post.gone)  # type: ignore[attr-defined]
        held.go.set()
        await until("the call is done", lambda: held.ended == "done")
        await until("it is no longer under way", lambda: not session.running)


async def test_g45_list_changed_reaches_every_session_of_the_namespace_and_no_other() -> None:
    async with world() as served:
        first, second, foreign = [await served.client(name).open() for name in ("one", "one", "two")]
        async with first.stream() as here, second.stream() as there, foreign.stream() as elsewhere:
            for stream in (here, there, elsewhere):
                await stream.event()
            served.swap(entry("one", echo=echo, more=echo), entry("two", echo=echo))
            assert (await here.message())["method"] == TOOLS
            assert (await there.message())["method"] == TOOLS
            served.handshake.close()
            assert [one for one in await elsewhere.rest() if one.data] == []


async def test_g45_what_changes_while_nobody_listens_is_told_once() -> None:
    async with world() as served:
        client = await served.client().open()
        for _ in range(20):
            change(served)
        async with client.stream() as listening:
            assert (await listening.message())["method"] == TOOLS
            served.handshake.close()
            assert [one for one in await listening.rest() if one.data] == []


async def test_g45_updated_resources_reach_their_subscribers_only() -> None:
    async with world() as served:
        client, other = await served.client().open(), await served.client().open()
        await client.send("resources/subscribe", {"uri": "x://1"})
        await client.send("resources/subscribe", {"uri": "x://2"})
        await client.send("resources/unsubscribe", {"uri": "x://2"})
        async with client.stream() as listening, other.stream() as elsewhere:
            await listening.event(), await elsewhere.event()
            change(served, "x://1", "x://2", "x://3", tools=False)
            message = await listening.message()
            assert message["method"] == "notifications/resources/updated"
            assert message["params"] == {"uri": "x://1"}
            served.engine.registry.announce(Change("one", frozenset(), reloaded=True))
            assert (await listening.message())["params"] == {"uri": "x://1"}
            served.handshake.close()
            assert [one for one in await elsewhere.rest() if one.data] == []


async def test_closing_tells_listeners_when_to_come_back_and_takes_no_new_ones() -> None:
    async with world() as served:
        client = await served.client().open()
        async with client.stream() as listening:
            await listening.event()
            served.handshake.close()
            assert [one.retry for one in await listening.rest()] == [1000]
        assert (await served.http.send(client.request("GET"))).status_code == 503
        assert (await served.client().initialize()).status_code == 503


async def test_open_streams_of_a_caller_are_bounded() -> None:
    async with world(sessions=Sessions(max_per_caller=2)) as served:
        client = await served.client().open()
        async with client.stream(), client.stream():
            await until("both are open", lambda: attached(served) == 2)
            assert (await served.http.send(client.request("GET"))).status_code == 503
        await until("both are gone", lambda: attached(served) == 0)
        async with client.stream() as again:
            assert again.response.status_code == 200


@pytest.mark.parametrize(
    ("id", "found"),
    [(b"ab1-0", (b"ab1", 0)), (b" ab1-12 ", (b"ab1", 12)), (b"", None), (b"ab1", None), (b"\xff-1", None)],
)
def test_event_ids_name_a_stream_and_a_number(id: bytes, found: Any) -> None:
    assert position(id) == found


async def _send(message: Any) -> None:
    return None


async def test_a_session_remembers_a_bounded_number_of_streams() -> None:
    replay = Replay()
    streams = Streams(replay, primed=True)
    made: list[Stream] = []
    for _ in range(200):
        outlet = Outlet(_send, {"type": "http.response.start"})
        stream = streams.open(outlet, standing=False)
        made.append(stream)
        stream.finish(b"{}")
        await outlet.over()
    assert len(streams._by_id) <= 65
    assert streams.find(made[-1].id) is made[-1]
    assert streams.find(made[0].id) is None
    assert replay.evicted >= 135
    assert replay.bytes == sum(one.bytes for one in streams._by_id.values())
