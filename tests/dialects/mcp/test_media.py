"""What a client takes, by its Accept header, and what it sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tooldock.dialects.mcp.media import accepted, check_content_type
from tooldock.edge.http import UnsupportedMedia


@pytest.mark.parametrize(
    ("header", "json", "sse", "stated"),
    [
        (None, True, True, False),
        (b"application/json, text/event-stream", True, True, True),
        (b"text/event-stream;q=0.9, APPLICATION/JSON", True, True, True),
        (b"*/*", True, True, True),
        (b"application/*,text/*;q=0.1", True, True, True),
        (b"application/json", True, False, False),
        (b"text/event-stream", False, True, False),
        (b"text/html", False, False, False),
        (b"", False, False, False),
        (b"application/json, text/event-stream; q=0", True, False, False),
    ],
)
def test_g23_the_accept_header_is_read_as_http_has_it(
    header: bytes | None, json: bool, sse: bool, stated: bool
) -> None:
    found = accepted(header)
    assert (found.json, found.sse, found.stated) == (json, sse, stated)


@pytest.mark.parametrize(
    ("header", "first"),
    [
        (b"application/json, text/event-stream", False),
        (b"text/event-stream, application/json", True),
        (b"text/event-stream", True),
        (b"*/*", False),
        (None, False),
    ],
)
def test_a_client_that_names_the_stream_first_would_rather_have_one(header: bytes | None, first: bool) -> None:
    assert accepted(header).sse_first == first


@given(st.binary(max_size=100))
def test_any_accept_header_is_read(header: bytes) -> None:
    found = accepted(header)
    assert found.stated == (found.json and found.sse)


@pytest.mark.parametrize("header", [b"application/json", b"application/json;charset=utf-8", b" Application/Json "])
def test_g22_json_is_taken(header: bytes) -> None:
    check_content_type(header)


@pytest.mark.parametrize("header", [None, b"", b"text/json", b"application/json-rpc", b"application/jsonx"])
def test_g22_nothing_else_is(header: bytes | None) -> None:
    with pytest.raises(UnsupportedMedia):
        check_content_type(header)
