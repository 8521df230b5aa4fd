"""Whatever is sent, the answer is JSON and not our fault."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

from tests.dialects.rest.world import ECHO, SHARED, entry, tool, world
from tests.edge.world import Answer, ask
from tooldock.model import Outcome

JSONISH = st.text(alphabet='{}[]":,0123456789.eE+-truefalsn \\u\n', max_size=200).map(str.encode)
BYTES = st.binary(max_size=200)
ALMOST = st.tuples(st.binary(max_size=10), st.just(b'{"text": "x"}'), st.binary(max_size=10)).map(b"".join)


def _ask(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
    return asyncio.run(ask(world().app, method, path, headers, body))


@given(JSONISH | BYTES | ALMOST)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_body_is_answered_in_json_and_never_with_a_server_error(body: bytes) -> None:
    answer = _ask("POST", "/tools/echo", SHARED, body)
    assert answer.status < 500
    json.loads(answer.body)
    assert answer.header("content-type") == "application/json"


MOVE = {
    "type": "object",
    "properties": {
        "to": {"$ref": "#/$defs/Point"},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
    },
    "required": ["to"],
    "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "integer"}}}},
}
PARTS = ["ns", "shared", "tools", "echo", "schema", "docs", ""]
NAMES = ["host", "origin", "x-namespace", "x-request-id", "content-type", "accept", "if-none-match"]
HEADER_VALUE = st.text(st.characters(min_codepoint=32, max_codepoint=255), min_size=1, max_size=40)


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "X"]),
    path=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40).map(lambda text: "/" + text)
    | st.lists(st.sampled_from(["ns", "shared", "tools", "echo", "schema", "docs", ""]), max_size=6).map(
        lambda parts: "/" + "/".join(parts)
    ),
    extra=st.dictionaries(st.sampled_from(NAMES), HEADER_VALUE, max_size=4),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_request_line_and_headers_are_answered(method: str, path: str, extra: dict[str, str]) -> None:
    answer = _ask(method, path, {**SHARED, **extra}, b"")
    assert answer.status < 500
    assert answer.header("x-request-id")
    if answer.status >= 400 and method != "HEAD":
        assert set(answer.json()["error"]) == {"code", "message", "details", "request_id"}


def test_calls_made_from_the_document_itself_are_never_a_server_error() -> None:
    """Schemathesis reads the document we serve and tries what it allows and what it does not."""
    here = world(entry("shared", ECHO, tool("move", MOVE)), answer=lambda call: Outcome("ok", b"[]"))
    headers = {**SHARED, "host": "localhost"}
    schema = schemathesis.openapi.from_asgi("/ns/shared/openapi.json", here.app, headers=headers)
    tried = 0

    for operation in schema.get_all_operations():
        cases = operation.ok().as_strategy()  # type: ignore[union-attr]

        @given(case=cases)
        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
        def attempt(case: Any) -> None:
            nonlocal tried
            tried += 1
            response = case.call(headers=headers)
            case.validate_response(response, checks=[not_a_server_error])
            response.json()

        attempt()
    assert tried >= 20


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
async def test_a_body_at_the_limit(size: int) -> None:
    body = b'{"text": "' + b"x" * (size - 12) + b'"}'
    answer = await ask(world().app, "POST", "/tools/echo", SHARED, body)
    assert answer.status == (200 if size == 1 << 20 else 413)
