"""Requests that are wrong in themselves: each gets its own refusal, and no worker notices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.gateway import Gateway
from tests.process.evidence import no_strays, recorded, records, refused

pytestmark = pytest.mark.process

TOOLS = '''
from fastmcp.tools import tool

@tool
async def echo(text: str) -> str:
    """Give back what was given."""
    return text

@tool
async def digits(n: int) -> str:
    """A number, spelt out."""
    return str(n)

@tool
async def same(n: int) -> int:
    """A number, as it came."""
    return n
'''

JSON = {"Content-Type": "application/json"}
ECHO = "/ns/plain/tools/echo"


@pytest.fixture(scope="module")
def core(stage: Callable[..., Gateway]) -> Gateway:
    gateway = stage(MAX_REQUEST_SIZE="8192")
    gateway.write("plain", "tools.py", TOOLS)
    gateway.start().settled()
    return gateway


@pytest.fixture(autouse=True)
def _worker_goes_on(core: Gateway) -> Iterator[None]:
    """Whatever a request holds, the worker that runs before it runs after it."""
    before = core.worker_pid("plain")
    yield
    row = core.namespaces()["plain"]
    assert (row["pid"], row["restarts"], row["status"]) == (before, 0, "ready")
    assert core.value("plain", "echo", text="still here") == "still here"
    no_strays(core)


def post(core: Gateway, body: bytes, path: str = ECHO, **headers: str) -> httpx.Response:
    return core.request("POST", path, content=body, headers={**JSON, **headers})


def test_malformed_json_is_answered_with_its_place(core: Gateway) -> None:
    response = post(core, b'{"text": "a",\n "more" 1}')
    error = refused(response, 400, "malformed_request")
    assert error["details"]["line"] == 2
    assert records(core, response) == []  # it never became a call


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"1", b"null", b"true"])
def test_body_that_is_no_object_is_malformed(core: Gateway, body: bytes) -> None:
    refused(post(core, body), 400, "malformed_request")


@pytest.mark.parametrize("text", [1, None, ["a"], {"a": 1}, True])
def test_argument_of_the_wrong_type_is_refused_by_name(core: Gateway, text: Any) -> None:
    response = core.call("plain", "echo", text=text)
    error = refused(response, 422, "invalid_arguments")
    assert [fault["path"] for fault in error["details"]["errors"]] == ["text"]
    assert recorded(core, response, "invalid_arguments")["decision"] == "refuse"


def test_missing_argument_is_refused(core: Gateway) -> None:
    response = core.call("plain", "echo")
    assert "text" in refused(response, 422, "invalid_arguments")["message"]
    recorded(core, response, "invalid_arguments")


def test_unknown_namespace_suggests_the_near_one(core: Gateway) -> None:
    response = core.call("plane", "echo", text="a")
    assert "'plain'" in refused(response, 404, "namespace_not_found")["message"]
    recorded(core, response, "namespace_not_found")


def test_unknown_tool_suggests_the_near_one(core: Gateway) -> None:
    response = core.call("plain", "ehco", text="a")
    error = refused(response, 404, "tool_not_found")
    assert "'echo'" in error["message"]
    assert error["details"]["available"] == ["digits", "echo", "same"]
    recorded(core, response, "tool_not_found")


def test_oversized_body_is_refused_with_the_limit(core: Gateway) -> None:
    response = post(core, json.dumps({"text": "x" * 9000}).encode())
    assert refused(response, 413, "too_large")["details"]["limit"] == 8192


def test_oversized_body_of_unknown_length_is_refused(core: Gateway) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(20):
            yield b"x" * 1000
        yield b'"}'

    response = core.request("POST", ECHO, content=chunks(), headers=JSON)
    refused(response, 413, "too_large")


@pytest.mark.parametrize("pair", [(b"[", b"]"), (b'{"a":', b"}")])
def test_deeply_nested_body_is_refused(core: Gateway, pair: tuple[bytes, bytes]) -> None:
    opening, closing = pair
    response = post(core, b'{"text":' + opening * 1000 + b"1" + closing * 1000 + b"}")
    refused(response, 400, "malformed_request")


def test_body_that_is_not_utf8_is_refused(core: Gateway) -> None:
    error = refused(post(core, b'{"text": "\xff\xfe"}'), 400, "malformed_request")
    assert "UTF-8" in error["message"]


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_non_finite_number_is_not_json(core: Gateway, number: bytes) -> None:
    refused(post(core, b'{"n": %b}' % number, "/ns/plain/tools/digits"), 400, "malformed_request")


@pytest.mark.parametrize("number", [2**63, 2**64, 2**200, -(2**200), 10**300])
def test_integer_beyond_64_bits_is_carried_exactly(core: Gateway, number: int) -> None:
    body = json.dumps({"n": number}).encode()
    spelt = post(core, body, "/ns/plain/tools/digits")
    assert spelt.json() == str(number)
    assert json.loads(post(core, body, "/ns/plain/tools/same").content) == number
    recorded(core, spelt, None)


def test_request_without_a_namespace_is_malformed(core: Gateway) -> None:
    error = refused(post(core, b"{}", "/tools/echo"), 400, "malformed_request")
    assert "X-Namespace" in error["message"]


def test_namespace_in_the_header_reaches_the_same_tool(core: Gateway) -> None:
    response = post(core, b'{"text": "a"}', "/tools/echo", **{"X-Namespace": "plain"})
    assert response.json() == "a"


def test_the_address_itself_needs_no_token_and_gives_nothing_away(core: Gateway) -> None:
    page = core.http.get(core.url + "/", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (302, "/docs")
    assert set(core.http.get(core.url + "/").json()) == {"name", "version", "links"}


@pytest.mark.parametrize("given", ["Bearer wrong", "Basic d3Jvbmc=", "Bearer"])
def test_wrong_token_is_challenged(core: Gateway, given: str) -> None:
    response = post(core, b'{"text": "a"}', Authorization=given)
    refused(response, 401, "not_authenticated")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert records(core, response) == []


def test_missing_token_is_challenged(core: Gateway) -> None:
    response = core.http.post(core.url + ECHO, json={"text": "a"})
    refused(response, 401, "not_authenticated")
    assert response.headers["www-authenticate"].startswith("Bearer")


def test_foreign_origin_is_not_allowed(core: Gateway) -> None:
    refused(post(core, b'{"text": "a"}', Origin="https://example.com"), 403, "not_allowed")


def test_foreign_host_name_is_refused_on_loopback(core: Gateway) -> None:
    error = refused(post(core, b'{"text": "a"}', Host="example.com"), 421, "wrong_host")
    assert "ALLOWED_HOSTS" in error["message"]


def test_reload_needs_more_than_the_callers_token(core: Gateway) -> None:
    assert core.request("POST", "/reload").status_code in (401, 403)
