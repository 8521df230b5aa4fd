"""Requests nobody should send, in every revision, against a running core: exact statuses, exact codes, and it lives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway import ECHO, TOKEN, Gateway

pytestmark = pytest.mark.process

MODERN = "2026-07-28"
SESSIONED = ("2025-11-25", "2025-06-18", "2025-03-26")
ALL = (MODERN, *SESSIONED)
BOTH = "application/json, text/event-stream"
PARSE, INVALID, NO_METHOD, PARAMS = -32700, -32600, -32601, -32602
MISMATCH, UNSUPPORTED = -32020, -32022
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, venvs: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("malformed"), venvs, MAX_REQUEST_SIZE="100000")
    gateway.write("echo", "echo.py", ECHO)
    gateway.write("other", "echo.py", ECHO)
    gateway.start()
    gateway.settled()
    yield gateway
    gateway.close()


@dataclass
class Client:
    """One revision's way of posting: its headers, its session, its envelope."""

    core: Gateway
    revision: str
    session: str | None = None
    base: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = {
            "Authorization": f"Bearer {TOKEN}",
            "X-Namespace": "echo",
            "Content-Type": "application/json",
            "Accept": BOTH,
        }
        if self.revision == MODERN:
            self.base |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
            return
        hello = self.message(
            "initialize",
            {"protocolVersion": self.revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
        )
        answer = self.post(hello)
        assert answer.status_code == 200, answer.text
        assert answer.json()["result"]["protocolVersion"] == self.revision
        self.session = answer.headers["mcp-session-id"]
        self.base["Mcp-Session-Id"] = self.session
        if self.revision != "2025-03-26":
            self.base["MCP-Protocol-Version"] = self.revision
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202

    def message(self, method: str, params: dict[str, Any] | None = None, id: Any = 7) -> dict[str, Any]:
        params = dict(params or {})
        if self.revision == MODERN:
            params["_meta"] = META
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def call(self, id: Any = 7, **arguments: Any) -> dict[str, Any]:
        return self.message("tools/call", {"name": "echo", "arguments": arguments or {"text": "hi"}}, id)

    def post(self, body: Any, headers: dict[str, str | None] | None = None, method: str = "POST") -> httpx.Response:
        fields = {**self.base, **(headers or {})}
        sent = {name: value for name, value in fields.items() if value is not None}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.core.http.request(method, f"{self.core.url}/mcp", content=content, headers=sent)


@pytest.fixture(params=ALL)
def client(request: pytest.FixtureRequest, core: Gateway) -> Client:
    return Client(core, request.param)


@pytest.fixture(params=SESSIONED)
def sessioned(request: pytest.FixtureRequest, core: Gateway) -> Client:
    return Client(core, request.param)


def refused(answer: httpx.Response, status: int, code: int, id: Any = None) -> dict[str, Any]:
    """The answer is that status with that JSON-RPC error, and says something."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body: dict[str, Any] = answer.json()
    assert body.keys() == {"jsonrpc", "id", "error"}
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", id, code)
    assert len(body["error"]["message"]) > 10
    return body


def alive(client: Client) -> None:
    answer = client.post(client.call())
    assert answer.status_code == 200
    assert answer.json()["result"]["content"][0]["text"] == "hi"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"nul", b"{'a':1}", b'{"jsonrpc":"2.0",}'])
def test_g26_what_is_not_json_is_a_parse_error(client: Client, body: bytes) -> None:
    refused(client.post(body), 400, PARSE)
    alive(client)


@pytest.mark.parametrize(
    "body", [b"[" * 10_000 + b"]" * 10_000, b'{"a":' * 15_000 + b"1" + b"}" * 15_000, b"[" * 50_000]
)
def test_g27_nesting_without_end_is_a_parse_error(client: Client, body: bytes) -> None:
    refused(client.post(body), 400, PARSE)
    alive(client)


def test_g27_a_body_beyond_the_limit_is_too_large(client: Client) -> None:
    refused(client.post(client.call(text="x" * 200_000)), 413, INVALID)
    alive(client)


def test_g27_many_keys_and_long_numbers_do_no_harm(client: Client) -> None:
    assert client.post(client.call(text="a", **{f"k{n}": n for n in range(3000)})).status_code == 200
    body = json.dumps(client.call()).encode()
    assert client.post(body.replace(b'"hi"', b"1" * 300)).status_code == 200
    refused(client.post(body.replace(b'"hi"', b"1" * 5000)), 400, PARSE)
    alive(client)


@pytest.mark.parametrize("id", [None, 1.5, True, [], {}])
def test_g26_an_id_that_is_none_is_an_invalid_request(client: Client, id: Any) -> None:
    refused(client.post(client.call(id=id)), 400, INVALID)


@pytest.mark.parametrize("value", ["text", 5, None, True])
def test_g26_json_that_is_no_object_is_an_invalid_request(client: Client, value: Any) -> None:
    refused(client.post(value), 400, INVALID)


@pytest.mark.parametrize(
    "change",
    [{"jsonrpc": "1.0"}, {"jsonrpc": None}, {"method": 5}, {"method": None}],
)
def test_g26_json_that_is_no_message_is_an_invalid_request(client: Client, change: dict[str, Any]) -> None:
    refused(client.post({**client.call(), **change}), 400, INVALID, 7)


@pytest.mark.parametrize("media", ["text/plain", "application/xml", "", "application/jsonx", "multipart/form-data"])
def test_g22_another_content_type_is_415(client: Client, media: str) -> None:
    refused(client.post(client.call(), {"Content-Type": media}), 415, INVALID)


def test_g22_a_missing_content_type_is_415(client: Client) -> None:
    refused(client.post(client.call(), {"Content-Type": None}), 415, INVALID)


@pytest.mark.parametrize("media", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"])
def test_g22_json_with_parameters_is_json(client: Client, media: str) -> None:
    assert client.post(client.call(), {"Content-Type": media}).status_code == 200


@pytest.mark.parametrize("accept", ["application/json", "text/html", "text/event-stream", "application/json;q=0"])
def test_g23_both_media_types_must_be_acceptable_since_2025_06_18(client: Client, accept: str) -> None:
    answer = client.post(client.call(), {"Accept": accept})
    if client.revision == "2025-03-26" and accept == "application/json":
        assert answer.status_code == 200
    elif client.revision == "2025-03-26" and accept == "text/event-stream":
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
    else:
        body = refused(answer, 406, INVALID, answer.json()["id"])
        if accept == "application/json":
            assert "MCP_STRICT" in body["error"]["message"]


@pytest.mark.parametrize("accept", ["*/*", "application/*, text/*", "text/event-stream,application/json;q=0.5"])
def test_g23_wildcards_count_as_both(client: Client, accept: str) -> None:
    assert client.post(client.call(), {"Accept": accept}).status_code == 200


def test_g25_an_array_is_refused_where_the_revision_has_none(client: Client) -> None:
    if client.revision == "2025-03-26":
        answer = client.post([client.call(1), client.call(2)])
        assert answer.status_code == 200
        assert {one["id"] for one in answer.json()} == {1, 2}
        refused(client.post([]), 400, INVALID)
    else:
        refused(client.post([client.call(1)]), 400, INVALID)
        refused(client.post([]), 400, INVALID)


def test_an_unknown_method_is_not_found(client: Client) -> None:
    answer = client.post(client.message("no/such"), {"Mcp-Method": "no/such", "Mcp-Name": None})
    refused(answer, 404 if client.revision == MODERN else 200, NO_METHOD, 7)


def test_g51_an_unknown_tool_is_an_invalid_parameter(client: Client) -> None:
    answer = client.post(client.message("tools/call", {"name": "none"}), {"Mcp-Name": "none"})
    body = refused(answer, 400 if client.revision == MODERN else 200, PARAMS, 7)
    assert "none" in body["error"]["message"]


def test_g50_wrong_arguments_are_for_the_model_since_2025_11_25(client: Client) -> None:
    answer = client.post(client.call(text=5))
    if client.revision in (MODERN, "2025-11-25"):
        assert answer.status_code == 200
        assert answer.json()["result"]["isError"] is True
    else:
        refused(answer, 200, PARAMS, 7)


@pytest.mark.parametrize("params", [{"name": 5}, {}, {"name": "echo", "arguments": [1]}])
def test_ill_typed_parameters_are_invalid(client: Client, params: dict[str, Any]) -> None:
    answer = client.post(client.message("tools/call", params), {"Mcp-Name": None if "name" not in params else "echo"})
    if client.revision == MODERN:
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] in (PARAMS, MISMATCH)
    else:
        refused(answer, 200, PARAMS, 7)


def test_params_that_are_no_object_are_refused(client: Client) -> None:
    refused(client.post({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": [1]}), 400, INVALID, 7)


@pytest.mark.parametrize("version", ["1999-01-01", "x", "2025-11-25x"])
def test_g04_an_unserved_version_in_the_header_is_400_and_named(sessioned: Client, version: str) -> None:
    answer = sessioned.post(sessioned.call(), {"MCP-Protocol-Version": version})
    body = refused(answer, 400, UNSUPPORTED, 7)
    assert body["error"]["data"]["requested"] == version
    assert MODERN in body["error"]["data"]["supported"]


def test_g13_an_unknown_session_is_404_and_a_missing_one_400(sessioned: Client) -> None:
    for method in ("POST", "GET", "DELETE"):
        answer = sessioned.post(sessioned.call() if method == "POST" else b"", {"Mcp-Session-Id": "none"}, method)
        assert answer.status_code == 404
        assert "mcp-session-id" not in answer.headers
    answer = sessioned.post(sessioned.call(), {"Mcp-Session-Id": None})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == INVALID


def test_g18_a_session_is_of_one_namespace(sessioned: Client) -> None:
    assert sessioned.post(sessioned.call(), {"X-Namespace": "other"}).status_code == 404
    alive(sessioned)


def test_g59_without_a_token_everything_is_401_with_a_challenge(client: Client) -> None:
    for method in ("POST", "GET", "DELETE"):
        answer = client.post(client.call() if method == "POST" else b"", {"Authorization": None}, method)
        refused(answer, 401, INVALID)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_g57_a_foreign_origin_is_403_on_every_method(client: Client, origin: str) -> None:
    for method in ("POST", "GET", "DELETE"):
        refused(client.post(client.call() if method == "POST" else b"", {"Origin": origin}, method), 403, INVALID)


def test_g57_a_foreign_host_is_refused(client: Client) -> None:
    answer = client.post(client.call(), {"Host": "evil.example"})
    assert 400 <= answer.status_code < 500


def test_g58_a_page_may_ask_beforehand_with_the_protocols_headers(client: Client) -> None:
    wanted = (
        "authorization, content-type, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, last-event-id, "
        "mcp-param-region"
    )
    answer = client.core.http.request(
        "OPTIONS",
        f"{client.core.url}/mcp",
        headers={
            "Origin": "http://localhost:3000",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": wanted,
        },
    )
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-headers"] == wanted
    answer = client.post(client.call(), {"Origin": "http://localhost:3000"})
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert "mcp-session-id" in exposed
    assert "www-authenticate" in exposed


def test_no_namespace_is_400_and_an_unknown_one_404(client: Client) -> None:
    refused(client.post(client.call(), {"X-Namespace": None}), 400, INVALID)
    refused(client.post(client.call(), {"X-Namespace": "none"}), 404, INVALID)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
def test_other_http_methods_are_405_with_the_ones_there_are(client: Client, method: str) -> None:
    answer = client.post(b"", None, method)
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]


def test_g31_get_and_delete_are_405_in_the_stateless_revision(core: Gateway) -> None:
    client = Client(core, MODERN)
    for method in ("GET", "DELETE"):
        answer = client.post(b"", None, method)
        assert answer.status_code == 405
        assert "POST" in answer.headers["allow"]


def test_g30_an_envelope_whose_header_was_lost_is_a_mismatch_and_not_an_older_revision(core: Gateway) -> None:
    client = Client(core, MODERN)
    refused(client.post(client.call(), {"MCP-Protocol-Version": None}), 400, MISMATCH, 7)


def test_the_trailing_slash_is_served_without_a_redirect(client: Client) -> None:
    fields = dict(client.base)
    answer = client.core.http.post(f"{client.core.url}/mcp/", content=json.dumps(client.call()), headers=fields)
    assert answer.status_code == 200


def test_g04_a_version_that_is_said_twice_alike_is_said_once(core: Gateway) -> None:
    """A client that also has the header in its configuration sends both, in one line."""
    client = Client(core, "2025-11-25")
    assert client.post(client.call(), {"MCP-Protocol-Version": "2025-11-25, 2025-11-25"}).status_code == 200
    assert client.post(client.call(), {"MCP-Protocol-Version": "2025-11-25, 2025-06-18"}).status_code == 400
    modern = Client(core, MODERN)
    refused(modern.post(modern.call(), {"MCP-Protocol-Version": f"{MODERN}, {MODERN}"}), 400, MISMATCH, 7)
