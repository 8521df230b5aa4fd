"""Which names we answer to, and which pages may ask."""

from __future__ import annotations

import pytest

from tests.edge.world import BEARER, ask, front

LOOPBACK = [
    "localhost",
    "localhost:8000",
    "LOCALHOST:1",
    "127.0.0.1",
    "127.9.9.9:80",
    "[::1]:8000",
    "a.localhost",
]
FOREIGN = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "10.0.0.1:8000",
    "[::2]",
    "0.0.0.0",
]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_on_loopback_loopback_names_are_ours(host: str) -> None:
    assert (await ask(front(), "GET", "/", {**BEARER, "host": host})).status == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_on_loopback_other_names_are_refused_and_the_setting_named(host: str) -> None:
    app = front()
    for _ in range(2):
        answer = await ask(app, "GET", "/health", {"host": host})
        assert answer.status == 421
        assert "ALLOWED_HOSTS" in answer.json()["error"]["message"]


@pytest.mark.parametrize("host", ["a b", "a/b", "user@localhost", "localhost:99999999", "[::1", "ü", ":80"])
async def test_a_host_that_is_none_is_refused_everywhere(host: str) -> None:
    assert (await ask(front(bind_host="0.0.0.0"), "GET", "/health", {"host": host})).status == 400


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("tools.example.org", 200),
        ("TOOLS.example.org:443", 200),
        ("tools.example.org.", 200),
        ("a.wild.example.org", 200),
        ("wild.example.org", 421),
        ("other.example.org:8443", 200),
        ("other.example.org:1", 421),
        ("evil.example", 421),
        ("127.0.0.1:8000", 200),
    ],
)
@pytest.mark.parametrize("bind_host", ["127.0.0.1", "0.0.0.0"])
async def test_allowed_hosts_adds_names(bind_host: str, host: str, status: int) -> None:
    app = front(
        bind_host=bind_host,
        allowed_hosts=["tools.example.org", "*.wild.example.org", "other.example.org:8443"],
    )
    assert (await ask(app, "GET", "/health", {"host": host})).status == status


async def test_off_loopback_without_a_list_every_name_is_ours() -> None:
    assert (await ask(front(bind_host="0.0.0.0"), "GET", "/health", {"host": "any.example"})).status == 200
    assert (await ask(front(allowed_hosts=["*"]), "GET", "/health", {"host": "any.example"})).status == 200


async def test_http_1_1_needs_a_host_and_1_0_does_not() -> None:
    no_host = [("host", "")]  # an empty value leaves the header out
    assert (await ask(front(), "GET", "/health", no_host)).status == 400
    assert (await ask(front(), "GET", "/health", no_host, http_version="1.0")).status == 200


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:5173"])
async def test_without_a_list_pages_on_this_machine_may_ask(origin: str) -> None:
    answer = await ask(front(), "GET", "/", {**BEARER, "origin": origin})
    assert answer.status == 200
    assert answer.header("access-control-allow-origin") == origin
    assert answer.header("vary") == "Origin"
    exposed = answer.header("access-control-expose-headers") or ""
    for name in ("X-Request-ID", "Mcp-Session-Id", "MCP-Protocol-Version", "Retry-After"):
        assert name in exposed


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "file://",
        "http://",
        "chrome-extension://localhost",
    ],
)
@pytest.mark.parametrize("path", ["/health", "/tools"])
async def test_other_pages_are_refused_before_anything_else(path: str, origin: str) -> None:
    answer = await ask(front(), "GET", path, {**BEARER, "origin": origin})
    assert answer.status == 403
    assert "CORS_ORIGINS" in answer.json()["error"]["message"]
    assert answer.header("access-control-allow-origin") is None


async def test_a_list_replaces_the_loopback_rule() -> None:
    app = front(origins=["https://chat.example.org"])
    assert (await ask(app, "GET", "/", {**BEARER, "origin": "https://chat.example.org"})).status == 200
    assert (await ask(app, "GET", "/", {**BEARER, "origin": "http://localhost:3000"})).status == 403


async def test_a_star_is_only_meant_when_written() -> None:
    answer = await ask(front(origins=["*"]), "GET", "/", {**BEARER, "origin": "https://any.example"})
    assert answer.header("access-control-allow-origin") == "*"


async def test_our_own_pages_are_allowed_whatever_the_list_says() -> None:
    app = front(origins=["https://chat.example.org"])
    answer = await ask(app, "GET", "/", {**BEARER, "host": "localhost:8000", "origin": "http://localhost:8000"})
    assert answer.status == 200
    other_port = {**BEARER, "host": "localhost:8000", "origin": "http://localhost:9000"}
    assert (await ask(app, "GET", "/", other_port)).status == 403
    other_scheme = {**BEARER, "host": "localhost:8000", "origin": "https://localhost:8000"}
    assert (await ask(app, "GET", "/", other_scheme)).status == 403


async def test_a_preflight_is_answered_without_a_token() -> None:
    answer = await ask(
        front(),
        "OPTIONS",
        "/tools/x",
        {
            "origin": "http://localhost:3000",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, x-namespace",
            "access-control-request-private-network": "true",
        },
    )
    assert answer.status == 204
    assert answer.header("access-control-allow-origin") == "http://localhost:3000"
    assert "POST" in (answer.header("access-control-allow-methods") or "")
    assert answer.header("access-control-allow-headers") == "authorization, x-namespace"
    assert answer.header("access-control-allow-private-network") == "true"


async def test_a_preflight_of_a_foreign_page_is_refused_and_says_nothing() -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = await ask(front(), "OPTIONS", "/tools/x", headers)
    assert answer.status == 403
    assert answer.header("access-control-allow-methods") is None


async def test_strange_requested_headers_are_not_echoed() -> None:
    headers = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "POST",
        "access-control-request-headers": "a; b=c",
    }
    answer = await ask(front(), "OPTIONS", "/", headers)
    assert "a; b" not in (answer.header("access-control-allow-headers") or "")


async def test_options_without_a_page_is_an_ordinary_request() -> None:
    assert (await ask(front(), "OPTIONS", "/tools")).status == 401


async def test_refusals_to_an_allowed_page_can_be_read_by_it() -> None:
    answer = await ask(front(), "GET", "/tools", {"origin": "http://localhost:3000"})
    assert answer.status == 401
    assert answer.header("access-control-allow-origin") == "http://localhost:3000"


async def test_remembered_names_do_not_grow_without_bound() -> None:
    from tooldock.edge.hosts import Hosts

    hosts = Hosts("127.0.0.1")
    for port in range(3000):
        hosts.check(b"localhost:%d" % port)
    assert len(hosts._good) <= 1024
