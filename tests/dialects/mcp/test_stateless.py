"""The revision without sessions, over HTTP: what is refused with what, and what an answer looks like."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dialects.mcp.stateless_world import (
    FORM,
    OTHER_TOKEN,
    echo,
    entry,
    messages,
    until,
    world,
)
from tooldock.dialects.mcp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from tooldock.dialects.mcp.revisions import HANDSHAKE, R2025_11_25, R2026_07_28, Revisions
from tooldock.dialects.mcp.stateless import CAPABILITIES_KEY, LOG_LEVEL_KEY, VERSION_KEY
from tooldock.errors import InternalError
from tooldock.model import Channel


def place(tmp_path: Path, **how: Any) -> Any:
    return world(tmp_path, entry("one", {"echo": echo}), **how)


def check_error(response: httpx.Response, status: int, code: int, id: Any = 1) -> Any:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    told = response.json()
    assert told["error"]["code"] == code, told
    assert told["id"] == id
    assert told["error"]["message"]
    return told["error"]


# Discovery and revisions.


async def test_g02_discovery_tells_versions_capabilities_and_how_long_they_hold(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        response = await here.post("server/discover")
        result = response.json()["result"]
        assert response.status_code == 200
        assert result["resultType"] == "complete"
        assert result["supportedVersions"][0] == R2026_07_28
        assert result["capabilities"]["tools"] == {"listChanged": True}
        assert result["ttlMs"] >= 0
        assert result["cacheScope"] == "private"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "tooldock"


async def test_g03_an_unserved_version_is_told_which_are(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        listed = (await here.post("server/discover")).json()["result"]["supportedVersions"]
        for version in ("1900-01-01", "v999.0.0", R2025_11_25):
            response = await here.post(
                "server/discover", meta={VERSION_KEY: version}, headers={"mcp-protocol-version": version}
            )
            error = check_error(response, 400, UNSUPPORTED_VERSION)
            assert error["data"]["requested"] == version
            assert R2026_07_28 in error["data"]["supported"]
            assert set(error["data"]["supported"]) <= set(listed)
            assert version not in error["data"]["supported"]


async def test_g03_where_the_revision_is_switched_off_clients_are_sent_to_the_handshake(tmp_path: Path) -> None:
    async with place(tmp_path, revisions=Revisions(HANDSHAKE)) as here:
        error = check_error(await here.post("server/discover"), 400, UNSUPPORTED_VERSION)
        assert error["data"]["supported"] == list(HANDSHAKE)


async def test_g08_two_gateways_give_the_same_answer_to_the_same_request(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with place(first) as here, place(second) as there:
        for method, params in (
            ("server/discover", {}),
            ("tools/list", {}),
            ("tools/call", {"name": "echo", "arguments": {"text": "hi"}}),
            ("tools/call", {"name": "none"}),
            ("nothing", {}),
        ):
            # One of them has been asked other things before.
            await here.call("echo", able=FORM)
            one, other = await here.post(method, params), await there.post(method, params)
            assert (one.status_code, one.content) == (other.status_code, other.content)


async def test_g08_abilities_of_an_earlier_request_on_the_connection_are_not_remembered(tmp_path: Path) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        return await channel.ask("elicit", {"message": "Sure?", "schema": {"type": "object"}})

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        assert (await here.call("ask", able=FORM)).json()["result"]["resultType"] == "input_required"
        check_error(await here.call("ask"), 400, MISSING_CAPABILITY)


# One message, with an envelope.


INCOMPLETE: list[tuple[dict[str, Any], str]] = [
    ({VERSION_KEY: None}, VERSION_KEY),
    ({CAPABILITIES_KEY: None}, CAPABILITIES_KEY),
    ({VERSION_KEY: 7}, VERSION_KEY),
    ({CAPABILITIES_KEY: []}, CAPABILITIES_KEY),
    ({CAPABILITIES_KEY: "all"}, CAPABILITIES_KEY),
]


async def test_g29_an_incomplete_envelope_is_400_and_says_what_it_lacks(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for meta, lacks in INCOMPLETE:
            error = check_error(await here.post("tools/list", meta=meta, id="x"), 400, INVALID_PARAMS, "x")
            assert lacks in error["message"]


NO_ENVELOPE: list[Any] = [None, {}, {"_meta": None}, {"_meta": []}, {"_meta": "x"}]


async def test_g29_no_envelope_at_all_is_400(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for params in NO_ENVELOPE:
            good = here.request("tools/list")
            body = {"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": params}
            check_error(
                await here.http.send(here.raw(json.dumps(body).encode(), _headers(good))), 400, INVALID_PARAMS, 3
            )


async def test_client_info_is_not_needed_and_unknown_members_are_tolerated(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        odd = {"io.modelcontextprotocol/clientInfo": 7, "made/up": [1], "progressToken": {}, "traceparent": None}
        response = await here.call("echo", {"text": "hi"}, able={"extensions": {"x/y": {}}, "odd": 7}, meta=odd)
        assert response.json()["result"]["content"][0]["text"] == "hi"


IDS: list[Any] = [1, "1", 0, -5, "", 2**53]


async def test_g21_the_id_comes_back_as_it_was(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for id in IDS:
            told = (await here.call("echo", {"text": "x"}, id=id)).json()["id"]
            assert (told, type(told)) == (id, type(id))


async def test_g24_notifications_are_taken_silently_and_posted_replies_refused(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        headers = _headers(here.request("tools/list"))
        silent: list[dict[str, Any]] = [{"params": {}}, {}, {"params": {"_meta": {VERSION_KEY: R2026_07_28}}}]
        for params in silent:
            body = {"jsonrpc": "2.0", "method": "notifications/made/up", **params}
            response = await here.http.send(here.raw(json.dumps(body).encode(), headers))
            assert (response.status_code, response.content) == (202, b"")
        replies: list[dict[str, Any]] = [{"result": {}}, {"error": {"code": 1, "message": "no"}}]
        for told in replies:
            reply = {"jsonrpc": "2.0", "id": 5, **told}
            response = await here.http.send(here.raw(json.dumps(reply).encode(), headers))
            check_error(response, 400, INVALID_REQUEST, 5)


async def test_g24_a_notification_of_an_unserved_version_is_refused(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        headers = _headers(here.request("tools/list"))
        for version in ("1900-01-01", 7):
            body = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": {VERSION_KEY: version}}}
            response = await here.http.send(here.raw(json.dumps(body).encode(), headers))
            check_error(response, 400, UNSUPPORTED_VERSION, None)


NOT_ONE_MESSAGE: list[Any] = [
    [],
    [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}],
    7,
    "x",
    None,
    {},
    {"jsonrpc": "1.0", "id": 1, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": None, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": True, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 1, "method": 7},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": []},
]


async def test_g24_what_is_not_one_message_is_400(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for value in NOT_ONE_MESSAGE:
            headers = _headers(here.request("tools/list"))
            response = await here.http.send(here.raw(json.dumps(value).encode(), headers))
            assert response.status_code == 400
            assert response.json()["error"]["code"] == INVALID_REQUEST


# Statuses.


async def test_g29_unknown_and_removed_methods_are_404(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for method in (
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "tasks/get",
            "unknown/method",
            "",
            "x" * 5000,
        ):
            check_error(await here.post(method), 404, METHOD_NOT_FOUND)


async def test_g29_bad_parameters_of_a_method_are_400(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for method, params in (
            ("tools/call", {}),
            ("tools/call", {"name": 7}),
            ("tools/call", {"name": "none"}),
            ("tools/call", {"name": "echo", "arguments": []}),
            ("tools/list", {"cursor": "made up"}),
            ("resources/read", {"uri": "no://thing"}),
            ("resources/read", {}),
            ("prompts/get", {"name": "none"}),
            ("subscriptions/listen", {}),
        ):
            check_error(await here.post(method, params), 400, INVALID_PARAMS)


async def test_g29_our_own_fault_answers_a_good_request(tmp_path: Path) -> None:
    async def broken(arguments: dict[str, Any], channel: Channel) -> Any:
        raise InternalError("Something of ours broke.")

    async with world(tmp_path, entry("one", {"broken": broken})) as here:
        check_error(await here.call("broken"), 200, INTERNAL_ERROR)


async def test_g29_an_error_after_the_stream_began_is_an_event(tmp_path: Path) -> None:
    async def broken(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.progress(1, None, None)
        raise InternalError("Something of ours broke.")

    async with world(tmp_path, entry("one", {"broken": broken})) as here:
        response = await here.call("broken", meta={"progressToken": 9}, id="b")
        assert response.status_code == 200
        progress, error = messages(response)
        assert progress["params"] == {"progressToken": 9, "progress": 1}
        assert (error["id"], error["error"]["code"]) == ("b", INTERNAL_ERROR)


async def test_g29_an_answer_is_plain_json_until_something_is_said_before_it(tmp_path: Path) -> None:
    async def steps(arguments: dict[str, Any], channel: Channel) -> Any:
        for step in (1, 2):
            await channel.progress(step, 2, f"step {step}")
        return "done"

    async with world(tmp_path, entry("one", {"steps": steps})) as here:
        plain = await here.call("steps")  # without a token there is nothing to say
        assert plain.headers["content-type"] == "application/json"
        streamed = await here.call("steps", meta={"progressToken": "t"})
        assert streamed.headers["x-accel-buffering"] == "no"
        first, second, last = messages(streamed)
        assert first["params"] == {"progressToken": "t", "progress": 1, "total": 2, "message": "step 1"}
        assert second["params"]["progress"] == 2
        assert last["result"]["content"] == plain.json()["result"]["content"]
        assert b"\nid:" not in streamed.content
        assert b"retry:" not in streamed.content


async def test_g29_a_slow_answer_begins_as_a_stream_before_a_proxy_gives_up(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def slow(arguments: dict[str, Any], channel: Channel) -> Any:
        await go.wait()
        return "done"

    async with (
        world(tmp_path, entry("one", {"slow": slow}), keepalive=0.05) as here,
        here.stream("tools/call", {"name": "slow"}) as stream,
    ):
        assert stream.response.headers["content-type"] == "text/event-stream"
        go.set()
        assert (await stream.next())["result"]["content"][0]["text"] == "done"
        assert await stream.next() is None


async def test_a_large_result_on_a_stream_is_not_taken_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    async def large(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.progress(1, None, None)
        return "x" * (6 << 20)

    async with world(tmp_path, entry("one", {"large": large})) as here:
        response = await here.call("large", meta={"progressToken": 1})
        assert len(messages(response)[-1]["result"]["content"][0]["text"]) == 6 << 20


# Accept.


NOT_BOTH: list[str | None] = [None, "application/json", "text/event-stream", "text/html"]


async def test_g23_strictly_both_forms_must_be_accepted(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for accept in NOT_BOTH:
            request = here.request("tools/list", headers={"accept": accept})
            if accept is None:
                del request.headers["accept"]
            error = check_error(await here.http.send(request), 406, INVALID_REQUEST)
            assert "MCP_STRICT" in error["message"]


async def test_g23_leniently_what_fits_is_enough(tmp_path: Path) -> None:
    async def steps(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.progress(1, None, None)
        return "done"

    async with world(tmp_path, entry("one", {"steps": steps}), strict=False) as here:
        how: dict[str, Any] = {"meta": {"progressToken": 1}}
        only_json = await here.call("steps", headers={"accept": "application/json"}, **how)
        assert only_json.json()["result"]["content"][0]["text"] == "done"
        only_events = await here.call("steps", headers={"accept": "text/event-stream"})
        assert messages(only_events)[-1]["result"]["content"][0]["text"] == "done"
        wild = await here.call("steps", headers={"accept": "*/*"}, **how)
        assert len(messages(wild)) == 2
        check_error(await here.call("steps", headers={"accept": "text/html"}), 406, INVALID_REQUEST)
        listen = {"notifications": {"toolsListChanged": True}}
        refused = await here.post("subscriptions/listen", listen, headers={"accept": "application/json"})
        check_error(refused, 406, INVALID_REQUEST)
        unknown = await here.call("none", headers={"accept": "application/json"})
        check_error(unknown, 400, INVALID_PARAMS)


# No sessions.


async def test_g31_session_ids_and_event_ids_are_ignored_and_never_given(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        headers = {"mcp-session-id": "made-up", "last-event-id": "1-1"}
        response = await here.call("echo", {"text": "hi"}, headers=headers)
        assert response.status_code == 200
        assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_g31_only_post_exists_in_this_revision(tmp_path: Path, method: str) -> None:
    async with place(tmp_path) as here:
        response = await here.http.request(method, "/mcp", headers=_headers(here.request("tools/list")))
        assert response.status_code == 405
        assert "POST" in response.headers["allow"]


# Leaving.


async def test_g41_a_client_that_leaves_cancels_its_call(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(arguments: dict[str, Any], channel: Channel) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with world(tmp_path, entry("one", {"slow": slow})) as here:
        for able in ({}, FORM):
            begun.clear()
            ended.clear()
            call = asyncio.ensure_future(here.call("slow", able=able))
            await asyncio.wait_for(begun.wait(), 5)
            call.cancel()
            await asyncio.wait_for(ended.wait(), 5)
            await until("nothing is left", lambda: not here.stateless.rounds.running)
        await until("both are recorded", lambda: len(here.audit()) == 2)
        assert {line["error"] for line in here.audit()} == {"cancelled"}


async def test_g41_a_client_that_leaves_in_the_middle_of_a_stream_hears_no_more(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def steps(arguments: dict[str, Any], channel: Channel) -> Any:
        try:
            step = 0
            while True:
                step += 1
                await channel.progress(step, None, None)
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    async with world(tmp_path, entry("one", {"steps": steps})) as here:
        async with here.stream("tools/call", {"name": "steps"}, meta={"progressToken": 1}) as stream:
            assert (await stream.next())["params"]["progress"] == 1
        await asyncio.wait_for(ended.wait(), 5)


async def test_g21_the_same_id_twice_at_once_is_two_requests(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    async def meet(arguments: dict[str, Any], channel: Channel) -> Any:
        await both.wait()
        return arguments["text"]

    async with world(tmp_path, entry("one", {"meet": meet})) as here:
        responses = await asyncio.gather(*(here.call("meet", {"text": text}, id=1) for text in "ab"))
        assert [response.json()["result"]["content"][0]["text"] for response in responses] == ["a", "b"]


# Results, abilities, logs.


async def test_g52_every_result_has_a_type_and_what_may_be_kept_says_how_long(tmp_path: Path) -> None:
    async def read(arguments: dict[str, Any], channel: Channel) -> Any:
        return {"contents": [{"uri": "x://1", "text": "hi"}]}

    async def render(arguments: dict[str, Any], channel: Channel) -> Any:
        return {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}

    async with world(tmp_path, entry("one", {"echo": echo, "x://1": read, "prompt_a": render})) as here:
        for method, params, kept in (
            ("server/discover", {}, True),
            ("tools/list", {}, True),
            ("resources/list", {}, True),
            ("resources/templates/list", {}, True),
            ("prompts/list", {}, True),
            ("resources/read", {"uri": "x://1"}, True),
            ("prompts/get", {"name": "prompt_a"}, False),
            ("tools/call", {"name": "echo"}, False),
        ):
            result = (await here.post(method, params)).json()["result"]
            assert result["resultType"] == "complete", method
            assert "io.modelcontextprotocol/serverInfo" in result["_meta"], method
            assert ("ttlMs" in result) is kept, method
            if kept:
                assert result["ttlMs"] >= 0
                assert result["cacheScope"] == "private"


@pytest.mark.parametrize(
    ("kind", "able", "needed"),
    [
        ("elicit", {}, {"elicitation": {"form": {}}}),
        ("elicit", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("elicit", {"elicitation": None}, {"elicitation": {"form": {}}}),
        ("sample", FORM, {"sampling": {}}),
        ("roots", FORM, {"roots": {}}),
    ],
)
async def test_g53_a_question_the_client_cannot_take_is_never_asked(
    tmp_path: Path, kind: Any, able: Any, needed: Any
) -> None:
    async def ask(arguments: dict[str, Any], channel: Channel) -> Any:
        return await channel.ask(kind, {"message": "Sure?"})

    async with world(tmp_path, entry("one", {"ask": ask})) as here:
        error = check_error(await here.call("ask", able=able), 400, MISSING_CAPABILITY)
        assert error["data"]["requiredCapabilities"] == needed


async def test_g55_logs_come_only_when_wanted_and_only_those_wanted(tmp_path: Path) -> None:
    async def chatty(arguments: dict[str, Any], channel: Channel) -> Any:
        await channel.log("debug", "little", None, None)
        await channel.log("error", "much", "me", {"a": 1})
        return "done"

    async with world(tmp_path, entry("one", {"chatty": chatty})) as here:
        assert (await here.call("chatty")).headers["content-type"] == "application/json"
        log, last = messages(await here.call("chatty", meta={LOG_LEVEL_KEY: "warning"}))
        assert log["method"] == "notifications/message"
        assert log["params"] == {"level": "error", "data": {"message": "much", "a": 1}, "logger": "me"}
        assert last["result"]["resultType"] == "complete"
        assert len(messages(await here.call("chatty", meta={LOG_LEVEL_KEY: "debug"}))) == 3
        for level in ("loud", 7, ["debug"], "DEBUG", ""):
            check_error(await here.call("chatty", meta={LOG_LEVEL_KEY: level}), 400, INVALID_PARAMS)


async def test_g55_logs_of_one_request_never_reach_another(tmp_path: Path) -> None:
    together = asyncio.Barrier(2)

    async def chatty(arguments: dict[str, Any], channel: Channel) -> Any:
        await together.wait()
        await channel.log("info", arguments["text"], None, None)
        await together.wait()
        return arguments["text"]

    async with world(tmp_path, entry("one", {"chatty": chatty})) as here:
        wanted, unwanted = await asyncio.gather(
            here.call("chatty", {"text": "a"}, meta={LOG_LEVEL_KEY: "info"}),
            here.call("chatty", {"text": "b"}, token=OTHER_TOKEN),
        )
        assert [told["params"]["data"] for told in messages(wanted)[:-1]] == ["a"]
        assert unwanted.headers["content-type"] == "application/json"


async def test_an_unknown_namespace_is_404(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        response = await here.call("echo", namespace="none")
        assert response.status_code == 404


def _headers(request: httpx.Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name not in ("content-length", "host")}
