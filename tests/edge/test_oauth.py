"""Clients that look for OAuth are told in their own terms that there is none."""

from __future__ import annotations

import pytest

from tests.edge.world import BEARER, ask, front
from tooldock.edge import Request, Response


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/.well-known/oauth-protected-resource/ns/x/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/.well-known/openid-configuration"),
        ("POST", "/register"),
        ("GET", "/authorize"),
        ("POST", "/token"),
    ],
)
async def test_where_a_client_looks_for_a_login_it_reads_that_there_is_none(method: str, path: str) -> None:
    async def never(request: Request) -> Response:
        raise AssertionError("nobody is served without a token")

    answer = await ask(front(never), method, path)
    assert answer.status == 404
    assert answer.json()["error"] == "invalid_request"
    assert "not OAuth" in answer.json()["error_description"]


async def test_everything_else_still_wants_the_token() -> None:
    assert (await ask(front(), "POST", "/registers")).status == 401
    assert (await ask(front(), "GET", "/token/x")).status == 401
    assert (await ask(front(), "GET", "/token", BEARER)).status == 200


@pytest.mark.parametrize("value", ["Bearer ${TOOLDOCK_TOKEN}", "bearer  ${env:TOKEN}"])
async def test_a_variable_that_was_never_filled_in_is_recognised(value: str) -> None:
    answer = await ask(front(), "POST", "/mcp", {"authorization": value})
    assert answer.status == 401
    assert "variable" in answer.json()["error"]["message"]
    assert "TOKEN}" not in answer.json()["error"]["message"]
