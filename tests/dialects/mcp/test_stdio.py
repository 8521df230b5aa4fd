"""MCP on a pipe: framing, both eras without a lock, cancelling, subscriptions, questions, the end."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from tests.dialects.mcp.stdio_world import (
    INITIALIZED,
    META,
    SECONDS,
    Tools,
    conversation,
    entry,
    enveloped,
    initialize,
    notification,
    request,
)
from tooldock.dialects.mcp import pipe
from tooldock.engine.registry import Catalogue, Change
from tooldock.model import Call, Channel

ELICITS: dict[str, Any] = {"elicitation": {}}


def error_of(message: Any) -> tuple[Any, int]:
    assert message["jsonrpc"] == "2.0"
    return message["id"], message["error"]["code"]


def text_of(message: Any) -> str:
    content = message["result"]["content"]
    assert [block["type"] for block in content] == ["text"]
    text: str = content[0]["text"]
    return text


# Framing.


@pytest.mark.parametrize(
    "line",
    [b"{nonsense", b'{"jsonrpc":"2.0","id":1', b'"\xff\xfe"', b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', b"\x00"],
)
async def test_g60_a_bad_line_is_answered_with_a_parse_error_and_the_loop_survives(line: bytes) -> None:
    async with conversation() as world:
        await world.client.send_bytes(line + b"\n")
        assert error_of(await world.client.receive()) == (None, -32700)
        assert await world.client.ask(request(1, "ping")) == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("line", [b"17", b'"text"', b"null", b"{}", b'{"id": 5}', b"[]", b"[1]"])
async def test_g60_json_that_is_no_message_is_an_invalid_request(line: bytes) -> None:
    async with conversation() as world:
        await world.client.send_bytes(line + b"\n")
        assert error_of(await world.client.receive())[1] == -32600
        assert (await world.client.ask(request(1, "ping")))["id"] == 1


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}, "x" * 600, 2**70])
async def test_g60_an_id_that_is_none_is_refused_without_repeating_it(id: Any) -> None:
    async with conversation() as world:
        await world.client.send_bytes(json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}).encode() + b"\n")
        assert error_of(await world.client.receive()) == (None, -32600)


async def test_g60_empty_lines_and_carriage_returns_are_tolerated() -> None:
    async with conversation() as world:
        await world.client.send_bytes(b'\n\r\n  \n{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n')
        assert (await world.client.receive())["id"] == 1


async def test_g60_a_line_arrives_in_pieces() -> None:
    async with conversation() as world:
        for byte in b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n':
            await world.client.send_bytes(bytes([byte]))
        assert (await world.client.receive())["id"] == 1


async def test_g60_a_line_longer_than_allowed_is_refused_once_and_not_kept() -> None:
    async with conversation(max_line=1000) as world:
        for _ in range(50):
            await world.client.send_bytes(b"x" * 100_000)
        await world.client.send_bytes(b'"\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        answer = await world.client.receive()
        assert error_of(answer) == (None, -32600)
        assert "MAX_REQUEST_SIZE" in answer["error"]["message"]
        assert (await world.client.receive())["id"] == 1


async def test_g60_the_longest_line_allowed_is_served_and_one_byte_more_is_not() -> None:
    line = json.dumps(request(1, "ping", pad="")).encode()
    for extra, code in ((0, None), (1, -32600)):
        async with conversation(max_line=500) as world:
            padded = line.replace(b'"pad": ""', b'"pad": "' + b"x" * (500 - len(line) + extra) + b'"')
            assert len(padded) == 500 + extra
            await world.client.send_bytes(padded + b"\n")
            assert (await world.client.receive()).get("error", {}).get("code") == code


async def test_g60_the_last_line_may_lack_its_end_and_the_end_of_input_ends_the_conversation() -> None:
    async with conversation() as world:
        await world.client.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        world.client.close()
        assert (await world.client.receive())["id"] == 1
        await world.over()


# The handshake.


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_handshake_of_every_revision_leads_to_a_tool_call(version: str) -> None:
    async with conversation() as world:
        await world.client.handshake(version)
        answer = await world.client.ask(request(1, "tools/call", name="echo", arguments={"text": "hello"}))
        assert text_of(answer) == "hello"


async def test_an_unknown_version_is_answered_with_the_newest_of_the_handshake() -> None:
    async with conversation() as world:
        for version in ("1999-01-01", "2026-07-28"):
            answer = await world.client.ask(initialize(version=version))
            assert answer["result"]["protocolVersion"] == "2025-11-25"


async def test_initialize_is_refused_with_the_versions_there_are_when_none_has_a_handshake() -> None:
    async with conversation(versions=["2026-07-28"]) as world:
        answer = await world.client.ask(initialize())
        assert error_of(answer) == ("init", -32022)
        assert answer["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


async def test_g06_ping_is_answered_before_initialize_and_while_calls_run() -> None:
    async with conversation() as world:
        assert (await world.client.ask(request("early", "ping")))["result"] == {}
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="forever"))
        assert await world.tools.started.get() == "forever"
        assert (await world.client.ask(request("late", "ping")))["id"] == "late"


async def test_requests_before_initialize_are_refused_also_when_lenient() -> None:
    for strict in (True, False):
        async with conversation(strict=strict) as world:
            answer = await world.client.ask(request(1, "tools/list"))
            assert error_of(answer) == (1, -32600)
            assert "initialize" in answer["error"]["message"]


async def test_requests_before_initialized_are_refused_when_strict_and_the_error_names_the_setting() -> None:
    async with conversation() as world:
        await world.client.ask(initialize())
        answer = await world.client.ask(request(1, "tools/list"))
        assert error_of(answer) == (1, -32600)
        assert "MCP_STRICT" in answer["error"]["message"]
        await world.client.send(INITIALIZED)
        assert "result" in await world.client.ask(request(2, "tools/list"))


async def test_requests_before_initialized_are_served_when_lenient() -> None:
    async with conversation(strict=False) as world:
        await world.client.ask(initialize())
        assert "result" in await world.client.ask(request(1, "tools/list"))


async def test_everything_may_be_written_at_once_and_is_taken_in_order() -> None:
    async with conversation() as world:
        await world.client.send(initialize(), INITIALIZED, request(1, "tools/list"))
        answers = [await world.client.receive() for _ in range(2)]
        assert [answer["id"] for answer in answers] == ["init", 1]
        assert {tool["name"] for tool in answers[1]["result"]["tools"]} >= {"echo", "forever"}


async def test_a_second_initialize_starts_the_handshake_anew() -> None:
    async with conversation() as world:
        await world.client.handshake("2025-11-25")
        answer = await world.client.ask(initialize("again", version="2024-11-05"))
        assert answer["result"]["protocolVersion"] == "2024-11-05"
        assert error_of(await world.client.ask(request(1, "tools/list"))) == (1, -32600)
        await world.client.send(INITIALIZED)
        answer = await world.client.ask(request(2, "tools/call", name="echo", arguments={"text": "x"}))
        assert "structuredContent" not in answer["result"]


async def test_an_unknown_method_and_an_unknown_tool_are_told_apart() -> None:
    async with conversation() as world:
        await world.client.handshake()
        assert error_of(await world.client.ask(request(1, "no/such"))) == (1, -32601)
        assert error_of(await world.client.ask(request(2, "tools/call", name="nope"))) == (2, -32602)
        assert (await world.client.ask(request(3, "tools/call", name="broken")))["result"]["isError"] is True


# Ids.


async def test_g21_an_id_in_use_is_refused_and_the_first_request_goes_on() -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="forever"))
        await world.tools.started.get()
        assert error_of(await world.client.ask(request(1, "tools/list"))) == (1, -32600)
        assert error_of(await world.client.ask(enveloped(1, "tools/list"))) == (1, -32600)
        assert world.tools.ended.empty()


async def test_g21_a_number_and_its_text_are_different_ids_and_keep_their_type() -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="forever"))
        await world.tools.started.get()
        assert (await world.client.ask(request("1", "tools/list")))["id"] == "1"


async def test_g21_an_id_may_be_used_again_when_its_request_is_answered() -> None:
    async with conversation() as world:
        await world.client.handshake()
        for _ in range(3):
            assert (
                text_of(await world.client.ask(request(1, "tools/call", name="echo", arguments={"text": "a"}))) == "a"
            )


async def test_requests_run_at_the_same_time() -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.send(*(request(number, "tools/call", name="forever") for number in range(20)))
        for _ in range(20):
            async with asyncio.timeout(SECONDS):
                await world.tools.started.get()
        assert text_of(await world.client.ask(request(99, "tools/call", name="echo", arguments={"text": "b"}))) == "b"


# Cancelling.


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_g42_a_cancelled_request_stops_and_nothing_more_is_said_about_it(era: str) -> None:
    gate = asyncio.Event()

    async def stubborn(call: Call, channel: Channel) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            await channel.progress(1, 2, "too late")
            gate.set()

    async with conversation(more={"stubborn": stubborn}) as world:
        await world.client.handshake()
        make = request if era == "handshake" else enveloped
        await world.client.send(make(7, "tools/call", name="stubborn", _meta={"progressToken": "p"}))
        await world.tools.started.get()
        await world.client.send(notification("notifications/cancelled", requestId=7, reason="changed my mind"))
        async with asyncio.timeout(SECONDS):
            await gate.wait()
        assert await world.tools.ended.get() == "cancelled"
        assert (await world.client.ask(request("after", "ping")))["id"] == "after"


@pytest.mark.parametrize("make", [request, enveloped])
async def test_g42_a_request_taken_back_in_the_same_breath_is_not_begun(make: Any) -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.send(
            make(1, "tools/call", name="echo"), notification("notifications/cancelled", requestId=1), request(2, "ping")
        )
        assert (await world.client.receive())["id"] == 2
        assert world.tools.started.empty()


async def test_g42_cancelling_what_is_not_there_is_ignored() -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="forever"))
        await world.tools.started.get()
        strangers: tuple[Any, ...] = ("1", 2, None, [], {"a": 1}, 1.0)
        for id in strangers:
            await world.client.send(notification("notifications/cancelled", requestId=id))
        await world.client.send(notification("notifications/cancelled"))
        assert (await world.client.ask(request("p", "ping")))["id"] == "p"
        assert world.tools.ended.empty()


async def test_g42_the_id_of_a_cancelled_request_is_free_at_once() -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="forever"))
        await world.tools.started.get()
        await world.client.send(
            notification("notifications/cancelled", requestId=1),
            request(1, "tools/call", name="echo", arguments={"text": "c"}),
        )
        assert text_of(await world.client.receive()) == "c"


# Both eras on one pipe.


async def test_g61_discover_and_then_initialize_on_one_pipe_works() -> None:
    async with conversation() as world:
        discovered = await world.client.ask(enveloped(0, "server/discover"))
        assert discovered["result"]["supportedVersions"][0] == "2026-07-28"
        await world.client.handshake()
        assert "result" in await world.client.ask(request(1, "tools/list"))


async def test_g61_each_request_is_served_by_its_own_envelope_whatever_came_before() -> None:
    async with conversation() as world:
        await world.client.handshake("2024-11-05")
        call: dict[str, Any] = {"name": "echo", "arguments": {"text": "d"}}
        for number in range(3):
            modern = await world.client.ask(enveloped(f"m{number}", "tools/call", **call))
            assert modern["result"]["resultType"] == "complete"
            assert text_of(modern) == "d"
            old = await world.client.ask(request(f"o{number}", "tools/call", **call))
            assert set(old["result"]) == {"content", "isError"}


async def test_g61_a_request_with_an_envelope_needs_no_handshake() -> None:
    async with conversation() as world:
        answer = await world.client.ask(enveloped(1, "tools/list"))
        assert answer["result"]["ttlMs"] >= 0
        assert error_of(await world.client.ask(enveloped(2, "ping"))) == (2, -32601)


async def test_g61_an_array_is_refused_unless_the_handshake_was_of_2025_03_26() -> None:
    batch = [request(1, "ping"), request(2, "tools/list")]
    async with conversation() as world:
        assert error_of(await world.client.ask(batch)) == (None, -32600)
        await world.client.handshake("2025-06-18")
        assert error_of(await world.client.ask(batch)) == (None, -32600)
        await world.client.handshake("2025-03-26")
        assert [answer["id"] for answer in await world.client.ask(batch)] == [1, 2]


async def test_g61_an_array_is_answered_by_one_array_without_what_wants_no_answer() -> None:
    async with conversation() as world:
        await world.client.handshake("2025-03-26")
        await world.client.send(
            [
                request(1, "tools/call", name="echo", arguments={"text": "e"}),
                notification("notifications/roots/list_changed"),
                initialize(2),
                enveloped(3, "tools/list"),
                17,
                request(1, "ping"),
                request(4, "tools/call", name="forever"),
            ]
        )
        while await world.tools.started.get() != "forever":
            pass
        await world.client.send(notification("notifications/cancelled", requestId=4))
        answers = await world.client.receive()
        assert [(one["id"], one.get("error", {}).get("code")) for one in answers] == [
            (1, None),
            (2, -32600),
            (3, -32600),
            (None, -32600),
            (1, -32600),
        ]


@pytest.mark.parametrize("batch", [[], [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(101)]])
async def test_g61_an_empty_and_an_endless_array_are_refused(batch: list[Any]) -> None:
    async with conversation() as world:
        await world.client.handshake("2025-03-26")
        assert error_of(await world.client.ask(batch)) == (None, -32600)


async def test_g61_an_array_of_notifications_alone_is_not_answered() -> None:
    async with conversation() as world:
        await world.client.handshake("2025-03-26")
        await world.client.send([INITIALIZED, notification("notifications/cancelled", requestId=5)])
        assert (await world.client.ask(request(1, "ping")))["id"] == 1


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({META + "protocolVersion": "1999-01-01", META + "clientCapabilities": {}}, -32022),
        ({META + "protocolVersion": "2025-11-25", META + "clientCapabilities": {}}, -32022),
        ({META + "protocolVersion": 7, META + "clientCapabilities": {}}, -32602),
        ({META + "protocolVersion": "2026-07-28"}, -32602),
        ({META + "protocolVersion": "2026-07-28", META + "clientCapabilities": []}, -32602),
        ({META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}, META + "logLevel": "loud"}, -32602),
    ],
)
async def test_an_envelope_that_is_wrong_is_refused(meta: dict[str, Any], code: int) -> None:
    async with conversation() as world:
        answer = await world.client.ask(request(1, "tools/list", _meta=meta))
        assert error_of(answer) == (1, code)
        if code == -32022:
            assert answer["error"]["data"]["requested"] == meta[META + "protocolVersion"]
            assert meta[META + "protocolVersion"] not in answer["error"]["data"]["supported"]


async def test_discover_without_an_envelope_tells_what_is_missing() -> None:
    async with conversation() as world:
        assert error_of(await world.client.ask(request(1, "server/discover"))) == (1, -32602)


# What a running tool says.


async def test_progress_and_log_lines_come_before_the_answer() -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="chatty", _meta={"progressToken": "t"}))
        log, progress, answer = [await world.client.receive() for _ in range(3)]
        assert (log["method"], log["params"]["level"]) == ("notifications/message", "warning")
        assert progress["params"] == {"progressToken": "t", "progress": 1, "total": 2, "message": "half"}
        assert text_of(answer) == "said"


async def test_the_log_level_is_the_clients_choice() -> None:
    async with conversation() as world:
        await world.client.handshake()
        assert (await world.client.ask(request(1, "logging/setLevel", level="debug")))["result"] == {}
        await world.client.send(request(2, "tools/call", name="chatty"))
        assert [(await world.client.receive()).get("params", {}).get("level") for _ in range(3)] == [
            "debug",
            "warning",
            None,
        ]
        assert error_of(await world.client.ask(request(3, "logging/setLevel", level="loud"))) == (3, -32602)


async def test_without_a_wish_an_enveloped_request_gets_no_log_lines() -> None:
    async with conversation() as world:
        answer = await world.client.ask(enveloped(1, "tools/call", name="chatty"))
        assert answer["id"] == 1
        await world.client.send(enveloped(2, "tools/call", name="chatty", _meta={META + "logLevel": "error"}))
        assert (await world.client.receive())["id"] == 2


# Questions.


async def test_a_question_of_the_handshake_is_a_request_to_the_client() -> None:
    async with conversation() as world:
        await world.client.handshake(capabilities=ELICITS)
        question = await world.client.ask(request(1, "tools/call", name="confirm"))
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "Sure?"
        await world.client.send({"jsonrpc": "2.0", "id": "1", "result": {"action": "decline"}})
        await world.client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        assert text_of(await world.client.receive()) == "accept"


async def test_a_client_that_answers_with_an_error_fails_the_question_only() -> None:
    async with conversation() as world:
        await world.client.handshake(capabilities=ELICITS)
        question = await world.client.ask(request(1, "tools/call", name="confirm"))
        problem = {"code": -1, "message": "Nobody is here."}
        await world.client.send({"jsonrpc": "2.0", "id": question["id"], "error": problem})
        answer = await world.client.receive()
        assert answer["result"]["isError"] is True
        assert "Nobody is here." in answer["result"]["content"][0]["text"]


async def test_a_client_that_cannot_be_asked_is_not_asked() -> None:
    async with conversation() as world:
        await world.client.handshake()
        assert (await world.client.ask(request(1, "tools/call", name="confirm")))["result"]["isError"] is True
        answer = await world.client.ask(enveloped(2, "tools/call", name="confirm"))
        assert error_of(answer) == (2, -32021)


async def test_a_cancelled_call_takes_its_question_back() -> None:
    async with conversation() as world:
        await world.client.handshake(capabilities=ELICITS)
        question = await world.client.ask(request(1, "tools/call", name="confirm"))
        withdrawn = await world.client.ask(notification("notifications/cancelled", requestId=1))
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]


async def test_a_question_open_at_the_end_of_input_fails_and_the_call_is_answered() -> None:
    async with conversation() as world:
        await world.client.handshake(capabilities=ELICITS)
        await world.client.ask(request(1, "tools/call", name="confirm"))
        world.client.close()
        assert (await world.client.receive())["result"]["isError"] is True
        await world.over()


async def test_g61_an_enveloped_call_is_never_asked_by_a_request_but_answered_input_required() -> None:
    async with conversation() as world:
        await world.client.handshake(capabilities=ELICITS)
        first = (await world.client.ask(enveloped(1, "tools/call", ELICITS, name="confirm")))["result"]
        assert first["resultType"] == "input_required"
        (key, question), *_ = first["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        again = {"inputResponses": {key: {"action": "accept"}}, "requestState": first["requestState"]}
        second = await world.client.ask(enveloped(2, "tools/call", ELICITS, name="confirm", **again))
        assert text_of(second) == "accept"
        assert world.tools.runs == 1
        third = await world.client.ask(enveloped(3, "tools/call", ELICITS, name="confirm", **again))
        assert third["error"]["data"]["reason"] == "invalid_request_state"


async def test_a_suspended_call_does_not_keep_the_process_from_ending() -> None:
    async with conversation() as world:
        await world.client.ask(enveloped(1, "tools/call", ELICITS, name="confirm"))
        world.client.close()
        await world.over()
        assert await world.tools.ended.get() == "cancelled"


# Changes.


async def test_changes_reach_the_client_after_the_handshake_and_not_before() -> None:
    async with conversation() as world:
        change = Change("shared", frozenset({"tools", "prompts"}))
        world.registry.announce(change)
        await world.client.ask(initialize())
        world.registry.announce(change)
        await world.client.send(INITIALIZED)
        assert (await world.client.ask(request(1, "ping")))["id"] == 1
        world.registry.announce(change)
        assert [(await world.client.receive())["method"] for _ in range(2)] == [
            "notifications/prompts/list_changed",
            "notifications/tools/list_changed",
        ]


async def test_a_reload_that_brings_another_tool_is_told() -> None:
    async with conversation() as world:
        await world.client.handshake()
        await world.client.ask(request(1, "ping"))
        tools = Tools({"another": world.tools.bodies["echo"]})
        world.registry.swap(Catalogue([entry(tools, "two")]))
        assert (await world.client.receive())["method"] == "notifications/tools/list_changed"
        answer = await world.client.ask(request(2, "tools/list"))
        assert [tool["name"] for tool in answer["result"]["tools"]] == ["another"]


async def test_a_subscribed_resource_that_changed_is_told_and_no_other() -> None:
    async with conversation() as world:
        await world.client.handshake()
        assert (await world.client.ask(request(1, "resources/subscribe", uri="a://1")))["result"] == {}
        assert (await world.client.ask(request(2, "resources/subscribe", uri="a://2")))["result"] == {}
        assert (await world.client.ask(request(3, "resources/unsubscribe", uri="a://2")))["result"] == {}
        world.registry.announce(Change("shared", frozenset(), frozenset({"a://1", "a://2", "a://3"})))
        told = await world.client.receive()
        assert (told["method"], told["params"]) == ("notifications/resources/updated", {"uri": "a://1"})
        assert (await world.client.ask(request(4, "ping")))["id"] == 4
        for uri in (None, 7, "", "x" * 3000):
            assert error_of(await world.client.ask(request(5, "resources/subscribe", uri=uri))) == (5, -32602)


async def test_g44_a_subscription_is_acknowledged_first_and_every_frame_carries_its_id() -> None:
    async with conversation() as world:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a://1"]}
        key = META + "subscriptionId"
        for id in (7, "7"):
            ack = await world.client.ask(enveloped(id, "subscriptions/listen", notifications=wanted))
            assert ack["method"] == "notifications/subscriptions/acknowledged"
            assert ack["params"]["notifications"] == wanted
            assert ack["params"]["_meta"][key] == id
        world.registry.announce(Change("shared", frozenset({"tools", "prompts"}), frozenset({"a://1"})))
        frames = [await world.client.receive() for _ in range(4)]
        assert [(frame["method"], frame["params"]["_meta"][key]) for frame in frames] == [
            ("notifications/tools/list_changed", 7),
            ("notifications/resources/updated", 7),
            ("notifications/tools/list_changed", "7"),
            ("notifications/resources/updated", "7"),
        ]


async def test_g44_a_cancelled_subscription_hears_nothing_more() -> None:
    async with conversation() as world:
        wanted = {"toolsListChanged": True}
        await world.client.ask(enveloped(7, "subscriptions/listen", notifications=wanted))
        await world.client.send(notification("notifications/cancelled", requestId=7))
        assert (await world.client.ask(request(1, "ping")))["id"] == 1
        world.registry.announce(Change("shared", frozenset({"tools"})))
        assert (await world.client.ask(request(2, "ping")))["id"] == 2


async def test_g44_a_subscription_ends_with_a_result_at_the_end_and_when_the_namespace_goes() -> None:
    for end in ("stop", "namespace"):
        async with conversation() as world:
            await world.client.ask(enveloped(7, "subscriptions/listen", notifications={"toolsListChanged": True}))
            if end == "stop":
                world.stop.set()
            else:
                world.registry.swap(Catalogue([]))
            last = await world.client.receive()
            assert last["id"] == 7
            assert last["result"]["_meta"][META + "subscriptionId"] == 7


async def test_g44_a_filter_that_is_none_is_refused() -> None:
    async with conversation() as world:
        filters: tuple[Any, ...] = (None, [], {"toolsListChanged": "yes"}, {"resourceSubscriptions": [1]})
        for wanted in filters:
            answer = await world.client.ask(enveloped(1, "subscriptions/listen", notifications=wanted))
            assert error_of(answer) == (1, -32602)


# A client that does not read.


async def test_answers_wait_for_a_client_that_reads_slowly_and_none_is_lost() -> None:
    async def big(call: Call, channel: Channel) -> Any:
        return "x" * 700_000

    async with conversation(more={"big": big}) as world:
        await world.client.handshake()
        await world.client.ask(request("p", "ping"))
        await world.client.send(*(request(number, "tools/call", name="big") for number in range(40)))
        for _ in range(40):
            async with asyncio.timeout(SECONDS):
                await world.tools.ended.get()
        assert world.outgoing.crowded
        answers = [await world.client.receive() for _ in range(40)]
        assert {answer["id"] for answer in answers} == set(range(40))
        assert all(len(text_of(answer)) == 700_000 for answer in answers)
        assert (await world.client.ask(request("q", "ping")))["id"] == "q"


class Deaf:
    """A pipe nobody reads, and the conversation's side of it."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


async def test_a_client_that_never_reads_is_let_go_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "STALL_SECONDS", 0.05)
    deaf = Deaf()
    try:
        outgoing = pipe.Outgoing(deaf.writing)
        outgoing.write(b"x" * 200_000)
        async with asyncio.timeout(SECONDS):
            await outgoing.broken.wait()
        outgoing.write(b"more")
        outgoing.close()
    finally:
        deaf.close()


async def test_what_waits_for_a_client_that_does_not_read_is_bounded() -> None:
    deaf = Deaf()
    try:
        outgoing = pipe.Outgoing(deaf.writing)
        for _ in range(20):
            outgoing.write(b"x" * (1 << 20))
        assert outgoing.broken.is_set()
        outgoing.close()
    finally:
        deaf.close()


async def test_a_client_that_is_gone_ends_the_conversation() -> None:
    deaf = Deaf()
    outgoing = pipe.Outgoing(deaf.writing)
    os.close(deaf.reading)
    outgoing.write(b"hello")
    assert outgoing.broken.is_set()
    outgoing.close()
    os.close(deaf.writing)


async def test_the_pipe_is_left_as_it_was_found() -> None:
    deaf = Deaf()
    try:
        outgoing = pipe.Outgoing(deaf.writing)
        assert not os.get_blocking(deaf.writing)
        outgoing.close()
        assert os.get_blocking(deaf.writing)
    finally:
        deaf.close()


# The end.


async def test_a_call_that_finishes_soon_after_the_end_of_input_is_answered() -> None:
    go = asyncio.Event()

    async def soon(call: Call, channel: Channel) -> Any:
        await go.wait()
        return "just in time"

    async with conversation(more={"soon": soon}) as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="soon"))
        await world.tools.started.get()
        world.client.close()
        go.set()
        assert text_of(await world.client.receive()) == "just in time"
        await world.over()


async def test_nobody_waits_for_a_call_whose_client_is_gone_altogether() -> None:
    async with conversation(grace=600) as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="forever"))
        await world.tools.started.get()
        world.client.vanish()
        await world.over()
        assert world.tools.ended.get_nowait() == "cancelled"


async def test_a_call_that_does_not_finish_in_time_is_stopped_and_answered() -> None:
    async with conversation(grace=0.05) as world:
        await world.client.handshake()
        await world.client.send(request(1, "tools/call", name="forever"))
        await world.tools.started.get()
        world.stop.set()
        assert error_of(await world.client.receive()) == (1, -32603)
        await world.over()
        assert await world.tools.ended.get() == "cancelled"


# The line protocol on the same pipe.


FIELDS = {"ok", "need_confirm", "summary", "data", "stdout", "stderr", "metrics"}


async def test_both_protocols_share_the_pipe() -> None:
    async with conversation() as world:
        await world.client.handshake()
        line = await world.client.ask({"method": "call_tool", "name": "echo", "args": {"text": "f"}})
        assert set(line) == FIELDS
        assert (line["ok"], line["data"]) == (True, {"result": "f"})
        assert "result" in await world.client.ask(request(1, "tools/list"))
        line = await world.client.ask({"id": [1], "method": "list_tools"})
        assert set(line) == FIELDS | {"id"}
        assert line["id"] == [1]


async def test_a_malformed_line_is_answered_in_the_protocol_that_was_spoken() -> None:
    async with conversation() as world:
        await world.client.send_bytes(b"{oops\n")
        assert error_of(await world.client.receive()) == (None, -32700)
        await world.client.ask({"method": "list_tools"})
        for line in (b"{oops", b"[1]", b"17", b'{"id": 3}', b"[]"):
            await world.client.send_bytes(line + b"\n")
            answer = await world.client.receive()
            assert set(answer) - {"id"} == FIELDS
            assert answer["ok"] is False
        await world.client.ask(request(1, "ping"))
        await world.client.send_bytes(b"{oops\n")
        assert error_of(await world.client.receive()) == (None, -32700)
        await world.client.ask({"method": "list_tools"})
        await world.client.send_bytes(b"{oops\n")
        assert error_of(await world.client.receive()) == (None, -32700)


async def test_a_line_that_is_too_long_is_answered_in_the_line_protocol_there() -> None:
    async with conversation(max_line=1000) as world:
        await world.client.ask({"method": "list_tools"})
        await world.client.send_bytes(b"x" * 5000 + b"\n")
        answer = await world.client.receive()
        assert set(answer) == FIELDS
        assert answer["data"]["error"] == "too_large"


async def test_a_line_that_cannot_be_understood_says_what_is_wrong() -> None:
    async with conversation() as world:
        unknown = await world.client.ask({"method": "dance"})
        assert unknown["data"]["supported_methods"] == ["list_tools", "call_tool"]
        missing = await world.client.ask({"method": "call_tool", "name": "nope"})
        assert "echo" in missing["data"]["available"]
        wrong = await world.client.ask({"method": "call_tool", "name": "echo", "args": {"text": 7}})
        assert wrong["data"]["errors"][0]["path"] == "text"
        failed = await world.client.ask({"method": "call_tool", "name": "broken"})
        assert (failed["summary"], failed["metrics"]["exit_code"]) == ("It broke.", 1)
        assert not any(answer["ok"] for answer in (unknown, missing, wrong, failed))


async def test_a_line_whose_call_is_stopped_is_answered() -> None:
    async with conversation(grace=0.05) as world:
        await world.client.send({"method": "call_tool", "name": "forever", "id": 1})
        await world.tools.started.get()
        world.client.close()
        answer = await world.client.receive()
        assert (answer["id"], answer["ok"], answer["data"]["error"]) == (1, False, "cancelled")
        await world.over()


async def test_lines_without_an_id_are_run_and_answered_in_their_order() -> None:
    """Their client knows an answer by its place alone."""
    gate = asyncio.Event()

    async def slow(call: Call, channel: Channel) -> Any:
        await gate.wait()
        return "slow"

    async with conversation() as world:
        world.tools.bodies["forever"] = slow
        await world.client.send(
            {"method": "call_tool", "name": "forever"},
            {"method": "call_tool", "name": "echo", "args": {"text": "second"}},
            {"method": "no_such"},
            {"method": "list_tools"},
            {"id": "mine", "method": "call_tool", "name": "echo", "args": {"text": "early"}},
        )
        early = await world.client.receive()
        assert (early["id"], early["data"]) == ("mine", {"result": "early"})
        assert world.tools.runs == 2  # the second waits for the first
        gate.set()
        answers = [await world.client.receive() for _ in range(4)]
    assert [answer["data"].get("result") for answer in answers[:2]] == ["slow", "second"]
    assert "no_such" in answers[2]["summary"]
    assert "tools" in answers[3]["data"]


async def test_lines_that_wait_for_their_turn_when_the_pipe_closes_are_not_begun() -> None:
    async with conversation(grace=0.05) as world:
        await world.client.send({"method": "call_tool", "name": "forever"}, {"method": "call_tool", "name": "echo"})
        await world.tools.started.get()
        world.stop.set()
        assert (await world.client.receive())["data"]["error"] == "cancelled"
        await world.over()
        assert world.tools.runs == 1
