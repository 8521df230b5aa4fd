"""Messages from bytes and to bytes, whatever the bytes are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tooldock.dialects.jsonbody import MAX_DEPTH
from tooldock.dialects.mcp import jsonrpc
from tooldock.dialects.mcp.jsonrpc import INVALID_REQUEST, PARSE_ERROR, Message, RpcError, message, parse

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=10), inner), max_leaves=20
)
IDS = st.text(max_size=100) | st.integers(-(2**63), 2**63 - 1)


KINDS = ("request", "notification", "reply")


def kind_or_code(read: Callable[[], Message]) -> str | int:
    try:
        return read().kind
    except RpcError as error:
        return error.code


def code_of(body: bytes) -> int:
    with pytest.raises(RpcError) as caught:
        message(parse(body))
    return caught.value.code


@given(st.binary(max_size=200))
def test_g26_any_bytes_are_a_message_or_a_protocol_error(body: bytes) -> None:
    assert kind_or_code(lambda: message(parse(body))) in (*KINDS, PARSE_ERROR, INVALID_REQUEST)


@given(VALUES)
def test_g26_any_json_is_a_message_or_an_invalid_request(value: Any) -> None:
    assert kind_or_code(lambda: message(value)) in (*KINDS, INVALID_REQUEST)


@given(st.fixed_dictionaries({"jsonrpc": st.just("2.0")}, optional={"id": VALUES, "method": VALUES, "params": VALUES}))
def test_what_looks_like_a_message_has_members_of_the_right_types(value: dict[str, Any]) -> None:
    try:
        found = message(value)
    except RpcError:
        return
    assert type(found.params) is dict
    assert type(found.method) is str
    assert (found.kind == "notification") == (found.id is None)


@given(IDS, st.text(max_size=30), st.dictionaries(st.text(max_size=10), VALUES, max_size=5))
def test_g21_a_request_survives_the_way_out_and_in_with_its_ids_type(
    id: str | int, method: str, params: dict[str, Any]
) -> None:
    try:
        sent = jsonrpc.request(id, method, params)
    except UnicodeEncodeError:
        return  # lone surrogates are no text
    found = message(parse(sent))
    assert (found.kind, found.id, found.method, found.params) == ("request", id, method, params)
    assert type(found.id) is type(id)


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}, "x" * 513, 2**63, -(2**63) - 1])
def test_g26_an_id_is_a_string_or_an_integer_of_bounded_size(id: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}).encode()
    assert code_of(body) == INVALID_REQUEST


@pytest.mark.parametrize(
    "body",
    [
        b"[]x",
        b"",
        b"{",
        b"\xff",
        b"nul",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} trailing',
        b'{"a":NaN}',
        b"[" * 1000 + b"]" * 1000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)
def test_g27_what_is_not_json_or_too_deep_is_a_parse_error(body: bytes) -> None:
    assert code_of(body) == PARSE_ERROR


@pytest.mark.parametrize(
    "value",
    [
        [],
        1,
        "x",
        None,
        {},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "x"}},
        {"jsonrpc": "2.0", "id": 1, "error": "x"},
        {"jsonrpc": "2.0", "result": {}},
    ],
)
def test_g26_json_that_is_no_message_is_an_invalid_request(value: Any) -> None:
    with pytest.raises(RpcError) as caught:
        message(value)
    assert caught.value.code == INVALID_REQUEST


def test_g27_nesting_up_to_the_bound_is_read() -> None:
    depth = MAX_DEPTH - 1
    assert parse(b"[" * depth + b"]" * depth)


def test_integers_beyond_64_bits_keep_their_value() -> None:
    number = 123456789012345678901234567890
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":%d}}' % number
    found = message(parse(body))
    assert found.params["n"] == number
    assert b"%d" % number in jsonrpc.notification("m", found.params)


def test_an_error_carries_data_only_where_there_is_some() -> None:
    assert json.loads(jsonrpc.error(None, RpcError(-1, "x"))) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -1, "message": "x"},
    }
    assert json.loads(jsonrpc.error("a", RpcError(-1, "x", {"b": 1})))["error"]["data"] == {"b": 1}


@pytest.mark.parametrize(("value", "id"), [({"id": "x"}, "x"), ({"id": 0}, 0), ({"id": 1.5}, None), ([], None)])
def test_an_error_about_a_broken_message_carries_its_id_where_that_is_usable(value: Any, id: Any) -> None:
    assert jsonrpc.id_of(value) == id
