"""The registry of sessions: who finds what, for how long, and at what cost."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.mcp.handshake_world import ABLE, Held, echo, entry, events, steps, world
from tooldock.dialects.mcp.jsonrpc import Message, RpcError
from tooldock.dialects.mcp.revisions import R2025_06_18, R2025_11_25
from tooldock.dialects.mcp.sessions import MAX_RUNNING, MAX_SUBSCRIBED, Questions, Session, Sessions
from tooldock.dialects.mcp.store import FileStore
from tooldock.errors import NoBackChannel, Unavailable


def made(sessions: Sessions, caller: str = "tester", namespace: str = "one") -> Session:
    return sessions.open(caller, namespace, R2025_11_25, dict(ABLE), {"name": "a client", "version": "1.0"})


def older(session: Session, seconds: float) -> None:
    session.used -= seconds


class Request:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cancel(self, reason: str) -> None:
        self.reasons.append(reason)


async def test_g19_an_idle_session_expires_and_one_in_use_does_not() -> None:
    sessions = Sessions(ttl_seconds=3600)
    idle, used, calling = made(sessions), made(sessions), made(sessions)
    calling.admit(1, Request())
    for session in (idle, calling):
        older(session, 3601)
    older(used, 3000)
    sessions.sweep()
    assert sessions.find(idle.id, "tester", "one") is None
    assert sessions.find(used.id, "tester", "one") is used
    assert sessions.find(calling.id, "tester", "one") is calling
    sessions.close()


async def test_g19_an_open_stream_is_activity() -> None:
    async with world() as served:
        client = await served.client().open()
        [session] = served.sessions.all()
        async with client.stream() as listening:
            await listening.event()
            older(session, 10**6)
            served.sessions.sweep()
            assert (await client.send("ping")).status_code == 200
        older(session, 10**6)
        served.sessions.sweep()


async def test_g19_an_expired_session_is_404_even_before_anybody_swept() -> None:
    async with world() as served:
        client = await served.client().open()
        [session] = served.sessions.all()
        older(session, 10**6)
        assert (await client.send("ping")).status_code == 404
        assert len(served.sessions) == 0


async def test_g19_expired_sessions_make_room_for_new_ones() -> None:
    sessions = Sessions(ttl_seconds=3600, max_sessions=2)
    first = made(sessions)
    made(sessions)
    with pytest.raises(Unavailable):
        made(sessions)
    older(first, 3601)
    sessions._swept -= 2
    made(sessions)
    assert len(sessions) == 2
    sessions.close()


async def test_g11_nothing_but_the_digest_of_an_id_is_kept(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "core.jsonl")
    sessions = Sessions(store)
    await sessions.restore()
    session = made(sessions)
    sessions.close()
    text = (tmp_path / "core.jsonl").read_bytes()
    assert session.id not in text
    assert hashlib.sha256(session.id).hexdigest().encode() in text


async def test_g20_a_session_continues_after_a_restart(tmp_path: Path) -> None:
    async def restored() -> Sessions:
        sessions = Sessions(FileStore(tmp_path / "core.jsonl"))
        await sessions.restore()
        return sessions

    tools = entry("one", echo=echo, steps=steps)
    async with world(tools, sessions=await restored()) as served:
        client = await served.client().open(R2025_06_18, {"roots": {}})
        await client.send("logging/setLevel", {"level": "critical"})
        await client.send("resources/subscribe", {"uri": "x://1"})
        lost = events(await client.call("steps", progressToken=1))
        ended = await served.client().open()
        await served.http.send(ended.request("DELETE"))
    async with world(tools, sessions=await restored()) as served:
        client._world = ended._world = served
        for foreign in (served.client("two"), served.client(token="another-token-for-the-tests")):
            foreign.id, foreign.revision = client.id, client.revision
            assert (await foreign.send("tools/list")).status_code == 404
        assert (await client.call("echo", {"text": "again"})).json()["result"]["content"][0]["text"] == "again"
        [session] = served.sessions.all()
        assert (session.revision, session.capabilities) == (R2025_06_18, {"roots": {}})
        assert (session.log_level, session.subscriptions) == ("critical", {"x://1"})
        assert session.initialized
        assert session.client_name == "a test"
        assert (await ended.send("tools/list")).status_code == 404
        async with client.resume(str(lost[0].id)) as again:
            served.swap(entry("one", echo=echo))
            assert (await again.message())["method"] == "notifications/tools/list_changed"


async def test_g20_what_expired_or_is_no_longer_served_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    sessions = Sessions(FileStore(path), ttl_seconds=3600)
    await sessions.restore()
    old, fresh = made(sessions), made(sessions)
    older(old, 3601)
    sessions.save(old)
    sessions.close()
    for revisions, left in (((R2025_11_25,), 1), ((R2025_06_18,), 0)):
        sessions = Sessions(FileStore(path), ttl_seconds=3600)
        assert await sessions.restore(revisions) == left
        assert (sessions.find(fresh.id, "tester", "one") is not None) is (left == 1)
        sessions.close()


async def test_restored_sessions_count_and_expire_like_others(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    sessions = Sessions(FileStore(path))
    await sessions.restore()
    made(sessions)
    sessions.close()
    sessions = Sessions(FileStore(path), max_per_caller=1, ttl_seconds=24 * 3600)
    await sessions.restore()
    with pytest.raises(Unavailable):
        made(sessions)
    [session] = sessions.all()
    older(session, 10**6)
    sessions.sweep()
    assert len(sessions) == 0
    made(sessions)
    sessions.close()


async def test_times_of_use_are_saved_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    sessions = Sessions(FileStore(path), ttl_seconds=3600)
    await sessions.restore()
    session = made(sessions)
    lines = len(path.read_bytes().splitlines())
    sessions._tick()
    assert len(path.read_bytes().splitlines()) == lines
    session.saved -= 3600
    sessions._tick()
    assert len(path.read_bytes().splitlines()) == lines + 1
    sessions.close()


async def test_ten_thousand_idle_sessions_cost_less_than_five_kilobytes_each(tmp_path: Path) -> None:
    sessions = Sessions(FileStore(tmp_path / "core.jsonl"))
    await sessions.restore()
    made(sessions)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(10_000):
        capabilities = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}}}
        client = {"name": f"client {number}", "version": "1.0"}
        session = sessions.open("tester", "one", R2025_11_25, capabilities, client)
        session.initialized = True
        sessions.save(session)
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / 10_000
    tracemalloc.stop()
    sessions.close()
    assert each < 5000, f"{each:.0f} bytes each"


async def test_of_what_a_client_declares_only_what_questions_need_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    sessions = Sessions(FileStore(path))
    await sessions.restore()
    much: dict[str, Any] = {str(number): {} for number in range(2000)}
    declared = {"roots": much, "sampling": {"tools": much}, "elicitation": {"form": much, "url": {}}, "more": much}
    session = sessions.open("tester", "one", R2025_11_25, {**declared, "huge": 10**30}, {})
    assert session.capabilities == {"roots": {}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}
    again = sessions.open("tester", "one", R2025_11_25, declared, {})
    assert again.capabilities is session.capabilities
    strange: dict[str, Any] = {"roots": True, "sampling": None, "elicitation": {"telepathy": {}}}
    assert sessions.open("tester", "one", R2025_11_25, strange, {}).capabilities == {}
    assert path.stat().st_size < 2000
    sessions.close()


async def test_what_the_sessions_of_one_caller_subscribe_to_is_bounded_together(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "core.jsonl")
    sessions = Sessions(store)
    await sessions.restore()
    uri = "x" * 2000

    def fill(session: Session, most: int) -> int:
        for number in range(most):
            try:
                session.subscribe({"uri": f"{uri}{number}"})
            except RpcError:
                return number
        return most

    first = made(sessions)
    assert fill(first, 256) == 256
    sessions.save(first)
    taken = 256
    while fill(made(sessions), 256) == 256:
        taken += 256
        assert taken * len(uri) < MAX_SUBSCRIBED
    last = made(sessions)
    assert fill(last, 1) == 0
    assert fill(made(sessions, "somebody else"), 1) == 1
    first.unsubscribe({"uri": f"{uri}0"})
    assert fill(last, 2) == 1
    sessions.end(first)
    assert fill(last, 200) == 200
    sessions.close()


async def test_subscriptions_a_former_process_left_are_counted_as_well(tmp_path: Path) -> None:
    path = tmp_path / "core.jsonl"
    sessions = Sessions(FileStore(path))
    await sessions.restore()
    session = made(sessions)
    session.subscribe({"uri": "x://1"})
    sessions.save(session)
    before = session.share.subscribed
    sessions.close()
    sessions = Sessions(FileStore(path))
    await sessions.restore()
    found = sessions.find(session.id, "tester", "one")
    assert found is not None
    assert found.share.subscribed == before > 0
    assert made(sessions).share is found.share
    sessions.end(found)
    assert found.share.subscribed == 0
    sessions.close()


async def test_g21_a_session_has_a_bounded_number_of_requests_under_way() -> None:
    sessions = Sessions()
    session = made(sessions)
    for number in range(MAX_RUNNING):
        session.admit(number, Request())
    session_again = made(sessions)
    session_again.admit(0, Request())
    with pytest.raises(Unavailable):
        session.admit("one more", Request())
    with pytest.raises(RpcError):
        session.admit(0, Request())
    sessions.close()


async def test_ending_a_session_stops_what_it_has_under_way() -> None:
    sessions = Sessions()
    session, request = made(sessions), Request()
    session.admit(1, request)
    sessions.end(session, "because")
    sessions.end(session, "again")
    assert request.reasons == ["because"]
    assert len(sessions) == 0
    assert list(sessions.of("one")) == []
    sessions.close()


async def test_open_questions_are_bounded_and_end_with_their_call() -> None:
    questions = Questions()
    sent: list[bytes] = []
    asked: set[Any] = set()
    asking = [asyncio.ensure_future(questions.ask(sent.append, "x", {}, asked)) for _ in range(64)]
    await asyncio.sleep(0)
    assert len(questions) == len(asked) == 64
    with pytest.raises(NoBackChannel, match="64 questions"):
        await questions.ask(sent.append, "x", {}, set())
    questions.answer(Message("reply", next(iter(asked)), result={"a": 1}))
    questions.abandon(asked)
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert results.count({"a": 1}) == 1
    assert sum(isinstance(one, NoBackChannel) for one in results) == 63
    assert len(questions) == len(asked) == 0


async def test_the_sessions_name_that_tools_see_is_not_its_id() -> None:
    held = Held()
    held.go.set()
    tools = entry("one", held=held)
    async with world(tools) as served:
        client = await served.client().open()
        await client.call("held")
        source: Any = tools.reading
        seen = source.calls[0].meta["session_id"]
        assert client.id is not None
        assert seen == hashlib.sha256(client.id.encode()).hexdigest()


async def test_a_caller_who_never_ends_sessions_loses_those_it_left_longest() -> None:
    sessions = Sessions(max_per_caller=3)
    unused, left, fresh = (made(sessions) for _ in range(3))
    for session in (left, fresh):
        session.initialized = True
    older(left, 5000)
    older(unused, 1000)
    sessions._swept -= 10
    made(sessions)
    assert sessions.find(unused.id, "tester", "one") is None
    assert sessions.find(left.id, "tester", "one") is not None
    older(left, 5000)
    sessions._swept -= 10
    made(sessions)
    assert sessions.find(left.id, "tester", "one") is None
    assert sessions.find(fresh.id, "tester", "one") is not None
    sessions._swept -= 10
    with pytest.raises(Unavailable):
        made(sessions)
    sessions.close()


async def test_nobody_s_sessions_give_way_to_another_caller_s() -> None:
    sessions = Sessions(max_sessions=1)
    session = made(sessions)
    older(session, 5000)
    sessions._swept -= 10
    with pytest.raises(Unavailable):
        made(sessions, caller="other")
    assert sessions.find(session.id, "tester", "one") is not None
    sessions.close()
