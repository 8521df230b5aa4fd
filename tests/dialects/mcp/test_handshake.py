"""The handshake, versions, sessions and POSTs of the handshake revisions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.dialects.mcp.handshake_world import (
    OTHER_TOKEN,
    Held,
    ask,
    echo,
    entry,
    events,
    messages,
    steps,
    until,
    world,
)
from tooldock.dialects.mcp.exchange import LEVELS
from tooldock.dialects.mcp.jsonrpc import CANCELLED, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from tooldock.dialects.mcp.revisions import HANDSHAKE, R2024_11_05, R2025_03_26, R2025_06_18, R2025_11_25, R2026_07_28
from tooldock.dialects.mcp.sessions import MAX_SUBSCRIPTIONS, Sessions
from tooldock.model import Channel


def problem(response: httpx.Response, status: int, code: int = INVALID_REQUEST) -> str:
    """The text of an error, which must have this status and code."""
    assert response.status_code == status, response.text
    assert response.json()["error"]["code"] == code
    assert "mcp-session-id" not in response.headers
    return str(response.json()["error"]["message"])


def text(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["result"]["content"][0]["text"]


@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_g01_a_served_revision_is_echoed(revision: str) -> None:
    async with world() as served:
        client = await served.client().open(revision)
        assert client.revision == revision
        assert text(await client.call("echo", {"text": "hi"})) == "hi"


@pytest.mark.parametrize("requested", ["1999-01-01", R2026_07_28, "", "x" * 4000])
async def test_g01_any_other_revision_gets_the_newest_with_a_handshake(requested: str) -> None:
    async with world() as served:
        response = await served.client().initialize(requested)
        assert response.status_code == 200
        assert response.json()["result"]["protocolVersion"] == R2025_11_25


async def test_g01_a_revision_that_is_switched_off_is_not_negotiated() -> None:
    async with world(served=(R2025_06_18, R2025_03_26)) as served:
        response = await served.client().initialize(R2025_11_25)
        assert response.json()["result"]["protocolVersion"] == R2025_06_18


@pytest.mark.parametrize("version", ["1999-01-01", "nonsense", "2024-11-06"])
async def test_g04_an_unserved_version_header_is_refused(version: str) -> None:
    async with world(strict=False) as served:
        client = await served.client().open()
        assert (await client.send("tools/list", headers={"mcp-protocol-version": version})).status_code == 400
        for method in ("GET", "DELETE"):
            request = client.request(method, headers={"mcp-protocol-version": version})
            assert (await served.http.send(request)).status_code == 400
        assert (await client.send("tools/list")).status_code == 200


async def test_g04_without_a_version_header_the_sessions_revision_holds() -> None:
    async with world() as served:
        client = await served.client().open(R2025_11_25)
        response = await client.send("tools/list", headers={"mcp-protocol-version": None})
        assert response.status_code == 200
        # Batches belong to 2025-03-26, which a client without a session would be taken for.
        body = [client.message("tools/list")]
        assert "batches" in problem(await client.post(body, {"mcp-protocol-version": None}), 400)


async def test_g05_strict_a_version_header_must_be_the_sessions() -> None:
    async with world() as served:
        client = await served.client().open(R2025_06_18)
        said = problem(await client.send("tools/list", headers={"mcp-protocol-version": R2025_11_25}), 400)
        assert "MCP_STRICT" in said
        request = client.request("GET", headers={"mcp-protocol-version": R2025_11_25})
        assert "MCP_STRICT" in problem(await served.http.send(request), 400)


async def test_g05_lenient_any_served_version_header_does_and_replies_follow_the_session() -> None:
    async with world(strict=False) as served:
        client = await served.client().open(R2024_11_05)
        response = await client.send("tools/list", headers={"mcp-protocol-version": R2025_11_25})
        assert response.status_code == 200
        assert "annotations" not in response.json()["result"]["tools"][0]


async def test_g06_ping_is_answered_before_initialize_and_before_initialized() -> None:
    async with world() as served:
        client = served.client()
        assert (await client.send("ping", id="a")).json() == {"jsonrpc": "2.0", "id": "a", "result": {}}
        await client.open(ready=False)
        assert (await client.send("ping", id=7)).json() == {"jsonrpc": "2.0", "id": 7, "result": {}}


async def test_g06_ping_is_answered_while_a_call_runs() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client = await served.client().open()
        call = asyncio.create_task(client.call("held"))
        await held.started.wait()
        assert (await client.send("ping")).json()["result"] == {}
        held.go.set()
        assert text(await call) == "released"


async def test_g07_strict_requests_wait_for_initialized() -> None:
    async with world() as served:
        client = await served.client().open(ready=False)
        assert "MCP_STRICT" in problem(await client.send("tools/list"), 400)
        assert "MCP_STRICT" in problem(await client.send("logging/setLevel", {"level": "info"}), 400)
        await client.notify("notifications/initialized")
        assert (await client.send("tools/list")).status_code == 200


async def test_g07_lenient_requests_may_come_before_initialized() -> None:
    async with world(strict=False) as served:
        client = await served.client().open(ready=False)
        assert text(await client.call("echo", {"text": "early"})) == "early"
        assert "initialize" in problem(await served.client().send("tools/list"), 400)


async def test_g10_unknown_capabilities_and_meta_are_tolerated() -> None:
    able = {"elicitation": {"form": {}, "url": {}}, "extensions": {"x/ui": {"a": [1]}}, "roots": {"listChanged": True}}
    async with world() as served:
        client = served.client()
        response = await client.initialize(R2024_11_05, able, _meta={"x/y": 1}, more={"deep": [{}]})
        assert response.status_code == 200
        client.id, client.revision = response.headers["mcp-session-id"], R2024_11_05
        await client.notify("notifications/initialized", {"_meta": {"a": 1}})
        assert text(await client.call("echo", {"text": "ok"}, **{"x/trace": {"a": 1}})) == "ok"
        await client.notify("notifications/roots/list_changed")
        assert (await client.notify("notifications/never/heard/of", {"a": 1})).status_code == 202


async def test_g11_ids_are_long_unique_and_visible_ascii() -> None:
    async with world() as served:
        ids = {(await served.client().open()).id for _ in range(50)}
        assert len(ids) == 50
        for id in ids:
            assert id is not None
            assert len(id) >= 43
            assert all(0x21 <= ord(letter) <= 0x7E for letter in id)


async def test_g12_errors_carry_no_session_id() -> None:
    async with world() as served:
        client = served.client()
        for response in (
            await client.send("tools/list"),
            await client.send("initialize", {}),
            await client.send("initialize", {"protocolVersion": 5}),
            await client.initialize(headers={"accept": "application/json"}),
            await client.send("tools/list", headers={"mcp-session-id": "unknown"}),
        ):
            assert response.status_code in (400, 404, 406)
            assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("id", ["unknown", "", "x" * 5000])
async def test_g13_an_unknown_session_is_404_for_every_method(id: str) -> None:
    async with world() as served:
        client = await served.client().open()
        for method, body in (("POST", client.message("tools/list")), ("GET", None), ("DELETE", None)):
            response = await served.http.send(client.request(method, body, {"mcp-session-id": id}))
            assert response.status_code == 404, method
            assert response.json()["error"]["code"] == INVALID_REQUEST


async def test_g13_a_missing_session_header_is_400() -> None:
    async with world() as served:
        client = served.client()
        said = problem(await client.send("tools/list", id=3), 400)
        assert "Mcp-Session-Id" in said
        for method in ("GET", "DELETE"):
            assert "Mcp-Session-Id" in problem(await served.http.send(client.request(method)), 400)
        assert (await client.notify("notifications/initialized")).status_code == 400


async def test_g14_initialize_with_a_dead_id_opens_a_fresh_session() -> None:
    async with world() as served:
        client = await served.client().open()
        dead = client.id
        await served.http.send(client.request("DELETE"))
        response = await client.initialize()
        assert response.status_code == 200
        assert response.headers["mcp-session-id"] != dead


async def test_g15_a_second_initialize_in_a_live_session_is_refused() -> None:
    async with world() as served:
        client = await served.client().open()
        assert "already" in problem(await client.initialize(), 400)
        assert (await client.send("tools/list")).status_code == 200


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"protocolVersion": 1},
        {"protocolVersion": R2025_11_25, "capabilities": []},
        {"protocolVersion": R2025_11_25, "clientInfo": "me"},
    ],
)
async def test_g16_a_failed_initialize_leaves_no_session(params: Any) -> None:
    async with world() as served:
        problem(await served.client().send("initialize", params), 400, INVALID_PARAMS)
        assert len(served.sessions) == 0


async def test_g17_delete_ends_a_session_once() -> None:
    async with world() as served:
        client = await served.client().open()
        assert (await served.http.send(client.request("DELETE"))).status_code == 200
        problem(await client.send("tools/list"), 404)
        assert (await served.http.send(client.request("DELETE"))).status_code == 404
        assert (await served.http.send(client.request("GET"))).status_code == 404


async def test_g17_delete_stops_calls_and_streams_of_the_session() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client = await served.client().open()
        call = asyncio.create_task(client.call("held"))
        async with client.stream() as listening:
            assert (await listening.event()) is not None
            await held.started.wait()
            await served.http.send(client.request("DELETE"))
            assert await listening.event() is None
        assert (await call).json()["error"]["code"] == CANCELLED
        assert held.ended == "cancelled"


async def test_g18_another_principal_or_namespace_sees_no_session() -> None:
    async with world() as served:
        client = await served.client().open()
        unknown = await client.send("tools/list", id=9, headers={"mcp-session-id": "unknown"})
        for foreign in (served.client("two"), served.client(token=OTHER_TOKEN)):
            foreign.id, foreign.revision = client.id, client.revision
            response = await foreign.send("tools/list", id=9)
            assert response.status_code == 404
            assert response.content == unknown.content
            assert (await served.http.send(foreign.request("GET"))).status_code == 404
            assert (await served.http.send(foreign.request("DELETE"))).status_code == 404
        assert (await client.send("tools/list")).status_code == 200


async def test_g18_a_session_is_no_credential() -> None:
    async with world() as served:
        client = await served.client().open()
        assert (await client.send("tools/list", headers={"authorization": None})).status_code == 401


async def test_g19_more_sessions_than_allowed_are_refused_with_a_time_to_retry() -> None:
    async with world(sessions=Sessions(max_sessions=3, max_per_caller=2)) as served:
        client = await served.client().open()
        await served.client().open()
        refused = await served.client().initialize()
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert "MCP_MAX_SESSIONS_PER_CALLER" in refused.json()["error"]["message"]
        await served.client(token=OTHER_TOKEN).open()
        refused = await served.client(token=OTHER_TOKEN).initialize()
        assert "MCP_MAX_SESSIONS)" in refused.json()["error"]["message"]
        await served.http.send(client.request("DELETE"))
        await served.client().open()


@pytest.mark.parametrize("id", [1, "1", -5, 2**53, "", "ä" * 100])
async def test_g21_ids_are_echoed_in_their_json_type(id: Any) -> None:
    async with world() as served:
        client = await served.client().open()
        answer = (await client.call("echo", {"text": "x"}, id=id)).json()
        assert answer["id"] == id
        assert type(answer["id"]) is type(id)


async def test_g21_a_duplicate_id_in_flight_is_refused_and_harms_nobody() -> None:
    held = Held()
    async with world(entry("one", held=held, echo=echo)) as served:
        client = await served.client().open()
        first = asyncio.create_task(client.call("held", id=1))
        await held.started.wait()
        problem(await client.call("echo", {"text": "twice"}, id=1), 400)
        assert text(await client.call("echo", {"text": "another"}, id="1")) == "another"
        held.go.set()
        assert text(await first) == "released"
        assert text(await client.call("echo", {"text": "later"}, id=1)) == "later"


@pytest.mark.parametrize("revision", [R2025_03_26, R2025_06_18, R2025_11_25])
async def test_g24_notifications_and_replies_are_202_and_empty(revision: str) -> None:
    async with world() as served:
        client = await served.client().open(revision)
        for body in (
            {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
            {"jsonrpc": "2.0", "id": 5, "result": {}},
            {"jsonrpc": "2.0", "id": "5", "error": {"code": -1, "message": "no"}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}},
            {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        ):
            response = await client.post(body)
            assert response.status_code == 202
            assert response.content == b""


async def test_g25_a_batch_is_answered_as_an_array() -> None:
    async with world() as served:
        client = await served.client().open(R2025_03_26)
        response = await client.post(
            [
                client.message("tools/call", client.calling("echo", {"text": "a"}), "a"),
                {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
                client.message("tools/call", client.calling("echo", {"text": "b"}), "b"),
                client.message("nonsense", {}, "c"),
                client.message("logging/setLevel", {"level": "error"}, "d"),
                {"jsonrpc": "2.0", "id": None, "method": "ping"},
            ]
        )
        assert response.status_code == 200
        found = {answer["id"]: answer for answer in response.json()}
        assert found["a"]["result"]["content"][0]["text"] == "a"
        assert found["b"]["result"]["content"][0]["text"] == "b"
        assert found["c"]["error"]["code"] == METHOD_NOT_FOUND
        assert found["d"]["result"] == {}
        assert found[None]["error"]["code"] == INVALID_REQUEST
        assert len(response.json()) == 5


async def test_g25_calls_of_a_batch_run_at_once_and_can_be_cancelled_singly() -> None:
    one, other = Held(), Held()
    async with world(entry("one", one=one, other=other)) as served:
        client = await served.client().open(R2025_03_26)
        batch = [client.message("tools/call", client.calling(name), name) for name in ("one", "other")]
        answering = asyncio.create_task(client.post(batch))
        async with asyncio.timeout(10):
            await one.started.wait()
            await other.started.wait()
        await client.notify("notifications/cancelled", {"requestId": "other"})
        await until("one is cancelled", lambda: other.ended)
        one.go.set()
        found = {answer["id"]: answer for answer in (await answering).json()}
        assert found["one"]["result"]["content"][0]["text"] == "released"
        assert found["other"]["error"]["code"] == CANCELLED


async def test_g25_a_batch_that_streams_ends_with_one_response_each() -> None:
    async with world(entry("one", steps=steps, echo=echo)) as served:
        client = await served.client().open(R2025_03_26)
        response = await client.post(
            [
                client.message("tools/call", client.calling("steps", progressToken="s"), 1),
                client.message("tools/call", client.calling("echo", {"text": "e"}), 2),
            ]
        )
        found = messages(response)
        assert [one["params"]["progress"] for one in found if "method" in one] == [1, 2]
        assert sorted(one["id"] for one in found if "result" in one) == [1, 2]


async def test_g25_batches_without_requests_are_202_and_bad_ones_400() -> None:
    async with world() as served:
        client = await served.client().open(R2025_03_26)
        note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
        assert (await client.post([note, note])).status_code == 202
        assert (await client.post([{"jsonrpc": "2.0", "id": 1, "result": {}}])).status_code == 202
        problem(await client.post([]), 400)
        problem(await client.post([note] * 101), 400)
        problem(await client.post([client.message("initialize", {"protocolVersion": R2025_03_26})]), 400)
        same = client.message("ping", id=1)
        problem(await client.post([same, same]), 400)


@pytest.mark.parametrize("revision", [R2025_06_18, R2025_11_25, R2024_11_05])
async def test_g25_other_revisions_take_no_arrays(revision: str) -> None:
    async with world() as served:
        client = await served.client().open(revision)
        problem(await client.post([client.message("ping")]), 400)
        problem(await served.client().post([client.message("initialize")]), 400)


async def test_g28_errors_of_accepted_requests_are_200() -> None:
    async with world() as served:
        client = await served.client().open()
        for method, params, code in (
            ("nonsense", None, METHOD_NOT_FOUND),
            ("tools/call", {"name": "missing"}, INVALID_PARAMS),
            ("tools/call", {"name": 5}, INVALID_PARAMS),
            ("tools/list", {"cursor": "?"}, INVALID_PARAMS),
            ("logging/setLevel", {"level": "loud"}, INVALID_PARAMS),
            ("resources/subscribe", {}, INVALID_PARAMS),
        ):
            response = await client.send(method, params, "x")
            assert response.status_code == 200, method
            assert response.json()["error"]["code"] == code
            assert response.json()["id"] == "x"


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "text/html", None])
async def test_strict_both_media_types_must_be_accepted_since_2025_06_18(accept: str | None) -> None:
    async with world() as served:
        client = await served.client().open(R2025_11_25)
        response = await client.send("tools/list", headers={"accept": accept})
        assert "MCP_STRICT" in problem(response, 406)
        assert (await client.initialize(headers={"accept": accept, "mcp-session-id": None})).status_code == 406
        old = await served.client().open(R2025_03_26)
        status = (await old.send("tools/list", headers={"accept": accept})).status_code
        assert status == (406 if accept == "text/html" else 200)


async def test_lenient_an_answer_comes_in_the_form_that_is_accepted() -> None:
    async with world(entry("one", echo=echo, steps=steps), strict=False) as served:
        client = await served.client().open()
        response = await client.send("tools/call", client.calling("steps", progressToken=1), headers={"accept": None})
        assert len(messages(response)) == 3
        json_only = {"accept": "application/json"}
        response = await client.send("tools/call", client.calling("steps", progressToken=1), headers=json_only)
        assert text(response) == "done"
        sse_only = {"accept": "text/event-stream"}
        response = await client.send("tools/call", client.calling("echo", {"text": "x"}), headers=sse_only)
        assert messages(response)[-1]["result"]["content"][0]["text"] == "x"
        response = await served.client().initialize(headers=sse_only)
        assert messages(response)[-1]["result"]["protocolVersion"] == R2025_11_25
        assert response.headers["mcp-session-id"]
        assert (await client.send("tools/list", headers={"accept": "text/html"})).status_code == 406


async def test_a_tool_cannot_ask_a_client_that_takes_no_stream() -> None:
    async with world(entry("one", ask=ask), strict=False) as served:
        client = await served.client().open()
        response = await client.send("tools/call", client.calling("ask"), headers={"accept": "application/json"})
        assert response.json()["result"]["isError"] is True
        assert "event stream" in text(response)


async def test_g42_cancelled_stops_the_sessions_own_request_only() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client, other = await served.client().open(), await served.client().open()
        call = asyncio.create_task(client.call("held", id=1))
        await held.started.wait()
        assert (await other.notify("notifications/cancelled", {"requestId": 1})).status_code == 202
        assert (await client.notify("notifications/cancelled", {"requestId": "1"})).status_code == 202
        assert (await client.notify("notifications/cancelled", {"requestId": 77})).status_code == 202
        assert held.ended == ""
        assert (await client.notify("notifications/cancelled", {"requestId": 1, "reason": "no"})).status_code == 202
        response = await call
        assert response.status_code == 200
        assert response.json() == {
            "jsonrpc": "2.0",
            "id": 1,
            "error": {"code": CANCELLED, "message": "The client cancelled the request."},
        }
        assert held.ended == "cancelled"
        # The connection and the session are as good as before.
        assert (await client.send("tools/list", id=1)).status_code == 200


async def test_g42_a_cancelled_stream_ends_with_the_error() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        client = await served.client().open()
        async with client.streaming("held", {"speak": True}, id=4) as answer:
            await held.started.wait()
            await client.notify("notifications/cancelled", {"requestId": 4})
            found = [one.message for one in await answer.rest() if one.data]
        assert found[-1]["error"]["code"] == CANCELLED


async def test_g43_progress_needs_a_token_and_increases() -> None:
    async def wavering(arguments: dict[str, Any], channel: Channel) -> Any:
        for value in (1, 3, 2, 3, 4):
            await channel.progress(value, 5, None)
        return "done"

    async with world(entry("one", wavering=wavering)) as served:
        client = await served.client().open()
        assert text(await client.call("wavering")) == "done"
        found = messages(await client.call("wavering", progressToken=0))
        assert [one["params"]["progress"] for one in found[:-1]] == [1, 3, 4]
        assert {one["params"]["progressToken"] for one in found[:-1]} == {0}
        assert "result" in found[-1]


async def test_g55_log_lines_follow_the_level_of_the_session() -> None:
    async def talk(arguments: dict[str, Any], channel: Channel) -> Any:
        for level in LEVELS[:2] + LEVELS[4:5]:
            await channel.log(level, level, None, None)
        return "done"

    def levels(response: httpx.Response) -> list[str]:
        return [one["params"]["level"] for one in messages(response) if "method" in one]

    async with world(entry("one", talk=talk)) as served:
        client, other = await served.client().open(), await served.client().open()
        assert levels(await client.call("talk")) == ["info", "error"]
        assert (await client.send("logging/setLevel", {"level": "error"})).json()["result"] == {}
        assert levels(await client.call("talk")) == ["error"]
        await client.send("logging/setLevel", {"level": "debug"})
        assert levels(await client.call("talk")) == ["debug", "info", "error"]
        assert levels(await other.call("talk")) == ["info", "error"]
        await client.send("logging/setLevel", {"level": "emergency"})
        assert text(await client.call("talk")) == "done"


async def test_subscriptions_are_bounded_and_any_short_uri_will_do() -> None:
    async with world() as served:
        client = await served.client().open()
        for uri in ("x" * 2049, "", 5, None):
            response = await client.send("resources/subscribe", {"uri": uri})
            assert response.json()["error"]["code"] == INVALID_PARAMS
        for number in range(MAX_SUBSCRIPTIONS):
            assert (await client.send("resources/subscribe", {"uri": f"x://{number}"})).json()["result"] == {}
        assert "error" in (await client.send("resources/subscribe", {"uri": "x://one-more"})).json()
        assert (await client.send("resources/unsubscribe", {"uri": "x://0"})).json()["result"] == {}
        assert (await client.send("resources/unsubscribe", {"uri": "x://never"})).json()["result"] == {}
        assert (await client.send("resources/subscribe", {"uri": "x://one-more"})).json()["result"] == {}


# Questions.


async def test_a_question_goes_out_on_the_requests_stream_and_its_answer_comes_by_post() -> None:
    async with world(entry("one", ask=ask)) as served:
        client = await served.client().open()
        async with client.streaming("ask", id=1) as answer:
            question = await answer.message()
            assert question["method"] == "elicitation/create"
            assert question["params"] == {
                "mode": "form",
                "message": "Really?",
                "requestedSchema": {"type": "object", "properties": {}},
            }
            result = {"action": "accept", "content": {"a": 1}}
            reply = await client.post({"jsonrpc": "2.0", "id": question["id"], "result": result})
            assert reply.status_code == 202
            final = await answer.message()
            assert final["id"] == 1
            assert json.loads(final["result"]["content"][0]["text"]) == result
            assert await answer.event() is None


async def test_another_sessions_reply_is_ignored() -> None:
    async with world(entry("one", ask=ask)) as served:
        client, other = await served.client().open(), await served.client().open()
        async with client.streaming("ask") as answer:
            question = await answer.message()
            forged = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
            assert (await other.post(forged)).status_code == 202
            assert (await client.post({**forged, "id": str(question["id"])})).status_code == 202
            await client.post({**forged, "result": {"action": "decline"}})
            final = await answer.message()
            assert json.loads(final["result"]["content"][0]["text"]) == {"action": "decline"}


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"error": {"code": -1, "message": "not now"}}, "not now"),
        ({"error": {}}, "no reason"),
        ({"error": {"message": ["x"]}}, "no reason"),
        ({"result": None}, "no object"),
        ({"result": [1]}, "no object"),
    ],
)
async def test_a_client_that_refuses_a_question_or_answers_nonsense_fails_the_tool(reply: Any, said: str) -> None:
    async with world(entry("one", ask=ask)) as served:
        client = await served.client().open()
        async with client.streaming("ask") as answer:
            question = await answer.message()
            assert (await client.post({"jsonrpc": "2.0", "id": question["id"], **reply})).status_code == 202
            final = await answer.message()
            assert final["result"]["isError"] is True
            assert said in final["result"]["content"][0]["text"]


async def test_an_open_question_is_withdrawn_when_its_call_is_cancelled() -> None:
    async with world(entry("one", ask=ask)) as served:
        client = await served.client().open()
        async with client.streaming("ask", id=1) as answer:
            question = await answer.message()
            await client.notify("notifications/cancelled", {"requestId": 1})
            withdrawn = await answer.message()
            assert withdrawn["method"] == "notifications/cancelled"
            assert withdrawn["params"]["requestId"] == question["id"]
            assert (await answer.message())["error"]["code"] == CANCELLED
        late = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert (await client.post(late)).status_code == 202


async def test_a_question_nobody_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tooldock.dialects.mcp.sessions.ASK_SECONDS", 0.05)
    async with world(entry("one", ask=ask)) as served:
        client = await served.client().open()
        found = messages(await client.call("ask"))
        assert found[1]["method"] == "notifications/cancelled"
        assert "did not answer" in found[-1]["result"]["content"][0]["text"]


async def test_a_question_needs_the_clients_capability() -> None:
    async with world(entry("one", ask=ask)) as served:
        client = await served.client().open(capabilities={})
        response = await client.call("ask")
        assert response.json()["result"]["isError"] is True
        assert "elicitation" in text(response)


# Hostile input.


@pytest.mark.parametrize(
    "body",
    [
        5,
        "text",
        None,
        {},
        {"jsonrpc": "2.0"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": {}, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
        {"jsonrpc": "2.0", "id": 1, "error": "x"},
    ],
)
async def test_whatever_is_no_message_is_400_with_and_without_a_session(body: Any) -> None:
    async with world() as served:
        for client in (served.client(), await served.client().open()):
            problem(await client.post(json.dumps(body).encode()), 400)


async def test_a_fault_of_ours_is_an_answer_and_no_trace() -> None:
    async with world() as served:
        client = await served.client().open()

        async def broken(exchange: Any) -> bytes:
            raise ZeroDivisionError("private detail")

        served.handshake._methods.answer = broken  # type: ignore[method-assign]
        response = await client.send("tools/list")
        assert response.status_code == 200
        assert response.json()["error"]["code"] == -32603
        assert "private" not in response.text


async def test_a_call_that_is_over_leaves_nothing_in_the_session() -> None:
    async with world(entry("one", echo=echo, steps=steps, ask=ask)) as served:
        client = await served.client().open()
        await client.call("echo")
        await client.call("missing")
        await client.call("steps", progressToken=1)
        [session] = served.sessions.all()
        assert not session.running
        assert not session.busy
        assert not session.questions


async def test_a_request_handled_in_time_is_plain_json_and_a_slow_one_becomes_a_stream() -> None:
    held = Held()
    async with world(entry("one", held=held, echo=echo), keepalive=0.05) as served:
        client = await served.client().open()
        assert (await client.call("echo")).headers["content-type"] == "application/json"
        async with client.streaming("held") as answer:
            assert answer.response.headers["content-type"] == "text/event-stream"
            held.go.set()
            assert (await answer.message())["result"]["content"][0]["text"] == "released"


async def test_g34_streams_say_what_proxies_must_know_and_stay_alive() -> None:
    held = Held()
    async with world(entry("one", held=held), keepalive=0.05) as served:
        client = await served.client().open()
        async with client.streaming("held", {"speak": True}) as answer, client.stream() as listening:
            for stream in (answer, listening):
                headers = stream.response.headers
                assert headers["content-type"] == "text/event-stream"
                assert headers["cache-control"] == "no-cache, no-transform"
                assert headers["x-accel-buffering"] == "no"

            async def hear(stream: Any) -> None:
                while not stream.comments:
                    reading = asyncio.ensure_future(stream._lines.__anext__())
                    line = await asyncio.wait_for(reading, 5)
                    stream.comments += line.startswith(":")

            await hear(answer)
            await hear(listening)
            held.go.set()
        assert events(await client.call("held", {"speak": True}, progressToken=1))[1].event == "message"
