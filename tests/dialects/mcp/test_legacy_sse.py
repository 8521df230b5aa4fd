"""The transport of revision 2024-11-05: a stream, and POSTs beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.dialects.mcp.handshake_world import (
    ABLE,
    OTHER_TOKEN,
    TOKEN,
    Client,
    Events,
    Held,
    World,
    ask,
    echo,
    entry,
    steps,
    until,
    world,
)
from tooldock.dialects.mcp.jsonrpc import CANCELLED, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from tooldock.dialects.mcp.revisions import R2024_11_05, R2025_06_18
from tooldock.model import Channel


class Old:
    """A client of that age."""

    def __init__(self, served: World, events: Events, endpoint: str, headers: dict[str, str]) -> None:
        self.served = served
        self.events = events
        self.endpoint = endpoint
        self.headers = headers

    async def post(self, body: Any, **headers: str) -> httpx.Response:
        return await self.served.http.post(self.endpoint, json=body, headers={**self.headers, **headers})

    async def send(self, method: str, params: Any = None, id: Any = 1) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": id, "method": method}
        return await self.post(body if params is None else {**body, "params": params})

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> Any:
        """The answer, which comes on the stream."""
        response = await self.send(method, params, id)
        assert response.status_code == 202, response.text
        assert response.content == b""
        return await self.events.message()

    async def initialize(self, revision: str = R2024_11_05) -> Any:
        answer = await self.ask("initialize", {"protocolVersion": revision, "capabilities": ABLE, "clientInfo": {}})
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer["result"]


@asynccontextmanager
async def connected(
    served: World, path: str = "/sse", namespace: str | None = "one", token: str = TOKEN
) -> AsyncIterator[Old]:
    headers = {"authorization": f"Bearer {token}"}
    if namespace is not None:
        headers["x-namespace"] = namespace
    async with served.http.stream("GET", path, headers={**headers, "accept": "text/event-stream"}) as response:
        assert response.status_code == 200
        events = Events(response)
        first = await events.event()
        assert first is not None
        assert first.event == "endpoint"
        assert first.data is not None
        yield Old(served, events, first.data, headers)


async def test_g62_the_first_event_names_where_to_post_and_answers_are_message_events() -> None:
    async with world() as served, connected(served) as old:
        assert old.endpoint.startswith("/messages?session_id=")
        assert len(old.endpoint) > 60
        result = await old.initialize()
        assert result["protocolVersion"] == R2024_11_05
        assert (await old.send("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, 7)).status_code == 202
        event = await old.events.event()
        assert event is not None
        assert event.event == "message"
        assert event.message["id"] == 7
        assert event.message["result"]["content"][0]["text"] == "hi"


async def test_g62_the_endpoint_keeps_the_namespace_of_the_path() -> None:
    async with world() as served, connected(served, "/ns/one/sse", None) as old:
        assert old.endpoint.startswith("/ns/one/messages?session_id=")
        assert len((await old.ask("tools/list"))["result"]["tools"]) == 1


async def test_g62_requests_are_served_without_initialize() -> None:
    async with world() as served, connected(served) as old:
        assert (await old.ask("tools/list", id="first"))["id"] == "first"
        assert (await old.ask("ping"))["result"] == {}
        assert (await old.ask("nonsense"))["error"]["code"] == METHOD_NOT_FOUND


async def test_g62_newer_clients_may_negotiate_a_newer_revision_once() -> None:
    async with world() as served, connected(served) as old:
        assert (await old.initialize(R2025_06_18))["protocolVersion"] == R2025_06_18
        again = await old.ask("initialize", {"protocolVersion": R2024_11_05, "capabilities": {}})
        assert again["error"]["code"] == INVALID_REQUEST


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 5}, {"protocolVersion": "x", "capabilities": 5}])
async def test_g62_a_wrong_initialize_is_refused_and_may_be_repeated(params: Any) -> None:
    async with world() as served, connected(served) as old:
        assert (await old.ask("initialize", params))["error"]["code"] == INVALID_PARAMS
        assert (await old.initialize())["protocolVersion"] == R2024_11_05


async def test_g62_connections_keep_little_of_what_clients_say_and_share_their_callers_bounds() -> None:
    much: dict[str, Any] = {str(number): {} for number in range(20_000)}
    async with world() as served, connected(served) as old, connected(served) as second:
        await old.ask("initialize", {"protocolVersion": R2024_11_05, "capabilities": {"roots": much, "more": much}})
        await second.ask("resources/subscribe", {"uri": "x://1"})
        one, two = (connection.session for connection in served.legacy._connections.values())
        assert one.capabilities == {"roots": {}}
        assert one.share.subscribed == two.share.subscribed > 0


async def test_g62_missing_session_is_400_and_unknown_404() -> None:
    async with world() as served, connected(served) as old:
        for endpoint, status in (("/messages", 400), ("/messages?session_id=", 400), ("/messages?session_id=x", 404)):
            old.endpoint = endpoint
            assert (await old.send("ping")).status_code == status


async def test_g62_another_caller_or_namespace_cannot_post_to_a_connection() -> None:
    async with world() as served, connected(served) as old:
        unknown = await served.http.post("/messages?session_id=x", json={}, headers=old.headers)
        for headers in ({"x-namespace": "two"}, {"authorization": f"Bearer {OTHER_TOKEN}"}):
            response = await old.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)
            assert response.status_code == 404
            assert response.json()["error"]["message"] == unknown.json()["error"]["message"]
        assert (await old.post({}, authorization="")).status_code == 401
        assert (await old.ask("ping"))["result"] == {}


async def test_g62_what_is_no_message_is_400_and_what_is_no_json_415() -> None:
    async with world() as served, connected(served) as old:
        for body in (
            [],
            [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
            {},
            {"jsonrpc": "2.0", "id": None, "method": "x"},
        ):
            response = await old.post(body)
            assert response.status_code == 400
            assert response.json()["error"]["code"] == INVALID_REQUEST
        response = await served.http.post(
            old.endpoint, content=b"{", headers={**old.headers, "content-type": "application/json"}
        )
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32700)
        response = await served.http.post(
            old.endpoint, content=b"{}", headers={**old.headers, "content-type": "text/plain"}
        )
        assert response.status_code == 415


async def test_g62_get_needs_a_client_that_takes_events() -> None:
    async with world() as served:
        headers = {"authorization": f"Bearer {TOKEN}", "x-namespace": "one", "accept": "application/json"}
        assert (await served.http.get("/sse", headers=headers)).status_code == 406


async def test_g62_a_disconnect_ends_the_session_and_its_calls() -> None:
    held = Held()
    async with world(entry("one", held=held)) as served:
        async with connected(served) as old:
            await old.send("tools/call", {"name": "held"})
            await held.started.wait()
        await until("the call was cancelled", lambda: held.ended == "cancelled")
        await until("the connection is forgotten", lambda: not served.legacy._connections)
        assert (await old.send("ping")).status_code == 404


async def test_g62_the_connection_is_kept_alive() -> None:
    async with world(keepalive=0.05) as served, connected(served) as old:
        reading = asyncio.ensure_future(old.events.event())
        await until("a comment came", lambda: old.events.comments)
        await old.send("ping")
        assert (await reading) is not None


async def test_g62_connections_are_bounded() -> None:
    async with world(max_connections=3, max_per_caller=2) as served:
        headers = {"authorization": f"Bearer {TOKEN}", "x-namespace": "one"}
        async with connected(served), connected(served):
            assert (await served.http.get("/sse", headers=headers)).status_code == 503
            async with connected(served, token=OTHER_TOKEN):
                refused = await served.http.get("/sse", headers={**headers, "authorization": f"Bearer {OTHER_TOKEN}"})
                assert refused.status_code == 503
                assert refused.headers["retry-after"]
        await until("they are gone", lambda: not served.legacy._connections)
        async with connected(served) as old:
            assert (await old.ask("ping"))["result"] == {}


async def test_g62_progress_questions_and_cancelling_work_on_the_stream() -> None:
    held = Held()

    async def roots(arguments: dict[str, Any], channel: Channel) -> Any:
        return await channel.ask("roots", {})

    offered = entry("one", steps=steps, ask=ask, roots=roots, held=held)
    async with world(offered) as served, connected(served) as old:
        await old.initialize()
        params = Client.calling("steps", progressToken="t")
        assert (await old.ask("tools/call", params))["params"]["progress"] == 1
        assert (await old.events.message())["params"]["progress"] == 2
        assert (await old.events.message())["result"]["content"][0]["text"] == "done"
        question = await old.ask("tools/call", Client.calling("roots"), 2)
        assert question["method"] == "roots/list"
        await old.post({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
        assert (await old.events.message())["id"] == 2
        # This revision has no forms, so nobody is asked.
        assert (await old.ask("tools/call", Client.calling("ask"), 5))["result"]["isError"] is True
        await old.send("tools/call", Client.calling("held"), 3)
        await held.started.wait()
        assert (await old.ask("ping", id=4))["id"] == 4
        await old.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}})
        assert (await old.events.message())["error"]["code"] == CANCELLED


async def test_g62_a_duplicate_id_in_flight_is_refused() -> None:
    held = Held()
    async with world(entry("one", held=held, echo=echo)) as served, connected(served) as old:
        await old.send("tools/call", Client.calling("held"), 3)
        await held.started.wait()
        assert (await old.send("tools/call", Client.calling("echo"), 3)).status_code == 400
        held.go.set()
        assert (await old.events.message())["result"]["content"][0]["text"] == "released"


async def test_g45_changes_reach_connections_of_the_namespace_that_said_hello() -> None:
    async with world() as served, connected(served) as old, connected(served, namespace="two") as other:
        await old.initialize()
        await other.initialize()
        await old.ask("resources/subscribe", {"uri": "x://1"})
        served.swap(entry("one", echo=echo, more=echo), entry("two", echo=echo))
        assert (await old.events.message())["method"] == "notifications/tools/list_changed"
        assert (await other.ask("ping", id="p"))["id"] == "p"


async def test_g62_closing_ends_connections_and_takes_no_new_ones() -> None:
    async with world() as served, connected(served) as old:
        served.legacy.close()
        assert await old.events.event() is None
        headers = {"authorization": f"Bearer {TOKEN}", "x-namespace": "one"}
        assert (await served.http.get("/sse", headers=headers)).status_code == 503
