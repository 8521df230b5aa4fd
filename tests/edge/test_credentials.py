"""Tokens to callers, the manager's door, and addresses behind proxies."""

from __future__ import annotations

import pytest

from tests.edge.world import BEARER, TOKEN, ask, front, scope
from tooldock.edge import Credentials, ManagerGuard, Networks, Proxies
from tooldock.edge.http import ANONYMOUS, Request, fold
from tooldock.errors import NotAllowed, NotAuthenticated, SettingsError
from tooldock.model import Caller


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_is_read_in_any_case(scheme: str) -> None:
    assert (await ask(front(), "GET", "/", {"authorization": f"{scheme} {TOKEN}"})).status == 200


@pytest.mark.parametrize(
    "value",
    [
        None,
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN} x",
        f"Token {TOKEN}",
    ],
)
async def test_anything_else_is_401_with_a_challenge_and_no_echo(value: str | None) -> None:
    answer = await ask(front(), "GET", "/tools", {} if value is None else {"authorization": value})
    assert answer.status == 401
    assert answer.code == "not_authenticated"
    assert answer.header("www-authenticate") == "Bearer"
    assert TOKEN not in answer.body.decode()


def test_several_tokens_stand_for_several_callers() -> None:
    credentials = Credentials({"one": Caller("ann"), "two": Caller("bob", "operator")})
    assert credentials.caller(b"Bearer one", "1.2.3.4") == Caller("ann", "caller", "1.2.3.4")
    assert credentials.caller(b"Bearer two", "::1") == Caller("bob", "operator", "::1")
    assert credentials.caller(b"Bearer three", "::1") is ANONYMOUS


def test_an_empty_token_is_no_credential() -> None:
    assert Credentials({"": Caller("nobody")}).caller(b"Bearer ", "") is ANONYMOUS


def test_the_table_holds_no_token() -> None:
    credentials = Credentials({TOKEN: Caller("ann")})
    credentials.caller(f"Bearer {TOKEN}".encode(), "::1")
    held = repr((credentials._callers, credentials._seen, credentials._key))
    assert TOKEN not in held


def test_callers_seen_do_not_grow_without_bound() -> None:
    credentials = Credentials({TOKEN: Caller("ann")})
    for number in range(10_000):
        credentials.caller(f"Bearer {TOKEN}".encode(), str(number))
    assert len(credentials._seen) <= 4096


def _request(address: str, **headers: str) -> Request:
    async def receive() -> dict[str, object]:
        raise AssertionError

    request = Request(scope("POST", "/reload"), receive)
    request.address = address
    request.headers = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return request


def test_the_managers_door_wants_address_and_token() -> None:
    guard = ManagerGuard("second", Networks(["172.30.0.10/32", "127.0.0.1/32"], "INTERNAL_ALLOWED_CIDRS"))
    guard.check(_request("172.30.0.10", x_manager_token="second"))
    guard.check(_request("::ffff:127.0.0.1", x_manager_token="second"))
    with pytest.raises(NotAllowed, match="INTERNAL_ALLOWED_CIDRS"):
        guard.check(_request("172.30.0.11", x_manager_token="second"))
    with pytest.raises(NotAllowed):
        guard.check(_request("", x_manager_token="second"))
    with pytest.raises(NotAuthenticated, match="X-Manager-Token"):
        guard.check(_request("127.0.0.1", x_manager_token="secon"))
    with pytest.raises(NotAuthenticated):
        guard.check(_request("127.0.0.1"))


def test_a_door_without_a_token_stays_shut() -> None:
    guard = ManagerGuard("", Networks(["0.0.0.0/0"], "INTERNAL_ALLOWED_CIDRS"))
    with pytest.raises(NotAuthenticated):
        guard.check(_request("127.0.0.1", x_manager_token=""))


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.1", "6.6.6.6, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "203.0.113.7:4711", "203.0.113.7"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.1", "2001:db8::1", "2001:db8::1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("203.0.113.99", "127.0.0.1", "203.0.113.99"),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_not_ours(peer: str, forwarded: str | None, address: str) -> None:
    headers = {} if forwarded is None else {b"x-forwarded-for": forwarded.encode()}
    assert Proxies(["10.0.0.0/8"]).resolve(peer, "http", headers)[0] == address


async def test_forwarding_headers_count_only_from_a_trusted_peer() -> None:
    claims = {**BEARER, "x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"}
    behind = front(proxies=["127.0.0.1"])
    told = (await ask(behind, "GET", "/", claims)).json()
    assert (told["address"], told["scheme"]) == ("203.0.113.7", "https")
    for app in (front(), front(proxies=["10.0.0.0/8"])):
        told = (await ask(app, "GET", "/", claims)).json()
        assert (told["address"], told["scheme"]) == ("127.0.0.1", "http")


async def test_a_page_of_ours_behind_a_tls_proxy_is_still_ours() -> None:
    headers = {
        **BEARER,
        "host": "tools.example.org",
        "origin": "https://tools.example.org",
        "x-forwarded-proto": "https",
    }
    app = front(proxies=["127.0.0.1"], allowed_hosts=["tools.example.org"])
    assert (await ask(app, "GET", "/", headers)).status == 200


async def test_several_forwarding_headers_are_one_list() -> None:
    pairs = [*BEARER.items(), ("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7")]
    assert (await ask(front(proxies=["127.0.0.1"]), "GET", "/", pairs)).json()["address"] == "203.0.113.7"


async def test_a_strange_forwarded_scheme_is_ignored() -> None:
    told = await ask(front(proxies=["127.0.0.1"]), "GET", "/", {**BEARER, "x-forwarded-proto": "javascript"})
    assert told.json()["scheme"] == "http"


async def test_a_peer_without_an_address_is_served_and_trusted_with_nothing() -> None:
    told = await ask(front(proxies=["0.0.0.0/0"]), "GET", "/", {**BEARER, "x-forwarded-for": "1.2.3.4"}, peer=None)
    assert told.json()["address"] == ""


def test_a_range_that_is_none_names_the_setting() -> None:
    with pytest.raises(SettingsError, match="TRUSTED_PROXIES"):
        Proxies(["ten/8"])


def test_headers_fold_without_losing_any() -> None:
    assert fold([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]) == {b"a": b"1, 3", b"b": b"2"}
