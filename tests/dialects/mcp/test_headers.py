"""Headers that repeat a request, held against its body."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.dialects.mcp.stateless_world import World, echo, entry, world
from tests.edge.world import exchange
from tooldock.dialects.mcp.headers import BadAnnotation, decode, mirrors_of
from tooldock.dialects.mcp.jsonrpc import HEADER_MISMATCH

REGION = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "deep": {"type": "object", "properties": {"er": {"type": "string", "x-mcp-header": "Deeper"}}},
    },
}


def wrapped(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def place(tmp_path: Path, tool: str = "echo") -> Any:
    return world(tmp_path, entry("one", {tool: echo}, {tool: REGION}))


async def refused(here: World, *args: Any, **how: Any) -> None:
    response = await here.call(*args, **how)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["code"] == HEADER_MISMATCH
    assert response.json()["id"] == 1


async def served(here: World, *args: Any, **how: Any) -> None:
    response = await here.call(*args, **how)
    assert response.status_code == 200, response.text
    assert response.json()["result"]["isError"] is False


WRONG: list[dict[str, str | None]] = [
    {"mcp-protocol-version": None},
    {"mcp-protocol-version": "2025-11-25"},
    {"mcp-method": None},
    {"mcp-method": "tools/list"},
    {"mcp-method": "TOOLS/CALL"},
    {"mcp-name": None},
    {"mcp-name": "Echo"},
    {"mcp-name": "other"},
    {"mcp-name": "=?base64?ZWNobw?="},
    {"mcp-name": "=?base64?ZWNo!bw=?="},
]


async def test_g30_a_missing_different_or_malformed_header_is_refused(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for headers in WRONG:
            await refused(here, "echo", headers=headers)


async def test_g30_space_around_a_value_does_not_matter(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        good = here.request("tools/call", {"name": "echo", "arguments": {"region": "eu"}}, headers={"mcp-name": None})
        head = [b"%b: %b" % pair for pair in good.headers.raw]
        head += [b"Mcp-Name:   echo \t", b"Mcp-Param-Region: \teu  ", b"Connection: close"]
        sent = b"POST /mcp HTTP/1.1\r\n" + b"\r\n".join(head) + b"\r\n\r\n" + good.content
        assert (await exchange(here.port, sent)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp-name": wrapped("echo")},
        {"MCP-METHOD": "tools/call"},
        {"mcp-method": wrapped("tools/call")},
    ],
)
async def test_g30_the_wrapping_of_a_value_and_the_case_of_names_do_not_matter(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with place(tmp_path) as here:
        await served(here, "echo", headers=headers)


async def test_g30_a_name_beyond_ascii_travels_wrapped_and_only_so(tmp_path: Path) -> None:
    async with world(tmp_path, entry("one", {"größe": echo, "=?base64?eA==?=": echo})) as here:
        await served(here, "größe", headers={"mcp-name": wrapped("größe")})
        request = here.request("tools/call", {"name": "größe"}, headers={"mcp-name": None})
        request.headers.raw.append((b"mcp-name", "größe".encode()))
        response = await here.http.send(request)
        assert response.json()["error"]["code"] == HEADER_MISMATCH
        # A name that looks wrapped has to be wrapped itself: plain, it would mean something else.
        await refused(here, "=?base64?eA==?=")
        await served(here, "=?base64?eA==?=", headers={"mcp-name": wrapped("=?base64?eA==?=")})


@pytest.mark.parametrize("header", ["mcp-protocol-version", "mcp-method", "mcp-name"])
async def test_g30_a_header_sent_twice_is_refused_even_when_both_agree(tmp_path: Path, header: str) -> None:
    async with place(tmp_path) as here:
        good = here.request("tools/call", {"name": "echo"})
        response = await here.http.send(
            here.raw(good.content, [*good.headers.multi_items(), (header, good.headers[header])])
        )
        assert response.status_code == 400
        assert response.json()["error"]["code"] == HEADER_MISMATCH


async def test_g30_a_header_sent_twice_is_told_before_a_missing_envelope(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        good = here.request("tools/list", id=3)
        pairs = [pair for pair in good.headers.multi_items() if pair[0] != "content-length"]
        body = b'{"jsonrpc":"2.0","id":3,"method":"tools/list"}'
        response = await here.http.send(here.raw(body, [*pairs, ("mcp-method", "tools/list")]))
        assert response.json()["error"]["code"] == HEADER_MISMATCH


async def test_g30_two_lines_cannot_pass_for_one_name_with_a_comma(tmp_path: Path) -> None:
    async with world(tmp_path, entry("one", {"a, b": echo})) as here:
        good = here.request("tools/call", {"name": "a, b"}, headers={"mcp-name": None})
        pairs = [*good.headers.multi_items(), ("mcp-name", "a"), ("mcp-name", "b")]
        response = await here.http.send(here.raw(good.content, pairs))
        assert response.json()["error"]["code"] == HEADER_MISMATCH
        await served(here, "a, b")


async def test_g30_prompts_and_resources_repeat_their_name_and_uri(tmp_path: Path) -> None:
    async def read(arguments: dict[str, Any], channel: Any) -> Any:
        return {"contents": [{"uri": "x://1", "text": "hi"}]}

    async with world(tmp_path, entry("one", {"x://1": read})) as here:
        good = await here.post("resources/read", {"uri": "x://1"})
        assert good.json()["result"]["contents"][0]["text"] == "hi"
        bad = await here.post("resources/read", {"uri": "x://1"}, headers={"mcp-name": "x://2"})
        assert bad.status_code == 400
        assert bad.json()["error"]["code"] == HEADER_MISMATCH


AGREEING: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    ({"region": None}, {}),
    ({"region": "eu"}, {"mcp-param-region": "eu"}),
    ({"region": "eu"}, {"MCP-PARAM-REGION": "eu"}),
    ({"region": "Ä"}, {"mcp-param-region": wrapped("Ä")}),
    ({"region": " eu"}, {"mcp-param-region": wrapped(" eu")}),
    ({"region": ""}, {"mcp-param-region": ""}),
    ({"region": "SGVsbG8="}, {"mcp-param-region": "SGVsbG8="}),
    ({"region": "=?base64?SGVsbG8="}, {"mcp-param-region": "=?base64?SGVsbG8="}),
    ({"count": 42}, {"mcp-param-count": "42"}),
    ({"count": 42}, {"mcp-param-count": "42.0"}),
    ({"count": 42}, {"mcp-param-count": "042"}),
    ({"count": 42.0}, {"mcp-param-count": "42"}),
    ({"count": -7}, {"mcp-param-count": "-7"}),
    ({"count": 2**53 + 1}, {"mcp-param-count": str(2**53 + 1)}),
    ({"dry": True}, {"mcp-param-dry-run": "true"}),
    ({"deep": {"er": "x"}}, {"mcp-param-deeper": "x"}),
    ({"deep": {}}, {}),
]


async def test_g30_arguments_and_their_headers_agree(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for arguments, headers in AGREEING:
            response = await here.call("echo", arguments, headers=headers)
            assert response.status_code == 200, (arguments, headers, response.text)


CONTRADICTING: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"region": "eu"}, {}),
    ({"region": "eu"}, {"mcp-param-region": "us"}),
    ({"region": "eu"}, {"mcp-param-region": "EU"}),
    ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVsbG8?="}),
    ({"region": "Hello"}, {"mcp-param-region": "=?base64?SGVs!!!bG8=?="}),
    ({"region": "a"}, {"mcp-param-region": "=?base64?YR==?="}),
    ({"region": "a"}, {"mcp-param-region": "=?base64?/w==?="}),
    ({}, {"mcp-param-region": "eu"}),
    ({"region": None}, {"mcp-param-region": "null"}),
    ({"region": ["eu"]}, {"mcp-param-region": "eu"}),
    ({"count": 42}, {"mcp-param-count": "43"}),
    ({"count": 42}, {"mcp-param-count": "42.5"}),
    ({"count": 42}, {"mcp-param-count": "4.2e1"}),
    ({"count": 2**53 + 1}, {"mcp-param-count": str(2**53)}),
    ({"dry": True}, {"mcp-param-dry-run": "1"}),
    ({"dry": True}, {"mcp-param-dry-run": "True"}),
    ({"deep": {"er": "x"}}, {}),
    ({"deep": "x"}, {"mcp-param-deeper": "x"}),
]


async def test_g30_an_argument_that_contradicts_its_header_is_refused(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        for arguments, headers in CONTRADICTING:
            await refused(here, "echo", arguments, headers=headers)


async def test_g30_an_argument_header_sent_twice_is_refused(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        good = here.request("tools/call", {"name": "echo", "arguments": {"region": "eu, eu"}})
        pairs = [*good.headers.multi_items(), ("mcp-param-region", "eu"), ("mcp-param-region", "eu")]
        response = await here.http.send(here.raw(good.content, pairs))
        assert response.json()["error"]["code"] == HEADER_MISMATCH


async def test_g32_a_header_alone_chooses_nothing_the_body_does(tmp_path: Path) -> None:
    """A proxy that lets `Mcp-Name: safe` through cannot be made to let another tool through."""
    ran: list[str] = []

    async def note(arguments: dict[str, Any], channel: Any) -> None:
        ran.append("danger")

    async with world(tmp_path, entry("one", {"safe": echo, "danger": note})) as here:
        await refused(here, "danger", headers={"mcp-name": "safe"})
        await refused(here, "danger", headers={"mcp-method": "tools/list"})
        assert ran == []
        assert here.audit() == []


async def test_g33_headers_nobody_asked_for_are_ignored(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await served(here, "echo", headers={"mcp-param-unknown": "=?base64?!?=", "mcp-param-": "x"})


async def test_an_invalid_annotation_is_ignored_and_logged_once(tmp_path: Path) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    async with world(tmp_path, entry("one", {"echo": echo}, {"echo": bad})) as here:
        with capture_logs() as logs:
            await served(here, "echo", {"a": 1.5})
            await served(here, "echo", {"a": 1.5}, headers={"mcp-param-a": "2"})
        assert [line["event"] for line in logs] == ["bad_header_annotation"]
        assert logs[0]["tool"] == "echo"


@pytest.mark.parametrize(
    "schema",
    [
        {"x-mcp-header": "A", "type": "string"},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string", "null"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A B"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 7}}},
        {"properties": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}},
        {"properties": {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}},
        {"$defs": {"properties": {"type": "string", "x-mcp-header": "A"}}},
        {"$defs": {"x": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}}},
        {
            "properties": {
                "a": {"type": "string", "x-mcp-header": "A"},
                "b": {"type": "string", "x-mcp-header": "a"},
            }
        },
    ],
)
def test_annotations_that_break_the_rules_are_recognised(schema: dict[str, Any]) -> None:
    with pytest.raises(BadAnnotation):
        mirrors_of(schema)


def test_a_property_may_be_called_like_a_keyword_or_like_the_annotation() -> None:
    schema = {
        "properties": {
            "properties": {"type": "string", "x-mcp-header": "A"},
            "x-mcp-header": {"type": "string"},
            "default": {"type": "object", "default": {"x-mcp-header": "no schema"}},
        }
    }
    assert [mirror.path for mirror in mirrors_of(schema)] == [("properties",)]


@pytest.mark.parametrize("value", [b"=?base64?=", b"=?BASE64?YQ==?=", b"plain", b"a b"])
def test_what_only_resembles_the_wrapping_is_plain(value: bytes) -> None:
    assert decode(value) == value.decode()


@pytest.mark.parametrize("value", [b"\xc3\xa4", b"=?base64?Y Q==?=", b"=?base64?YQ?="])
def test_what_is_neither_plain_nor_wrapped_means_nothing(value: bytes) -> None:
    assert decode(value) is None
