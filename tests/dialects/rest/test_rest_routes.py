"""Every route, by its status and its body."""

from __future__ import annotations

import json

import pytest

from tests.dialects.rest.world import BEARER, ECHO, MANAGER, OBJECT, SHARED, entry, tool, world
from tests.edge.world import ask
from tooldock import __version__
from tooldock.model import Outcome

JSON = {"content-type": "application/json"}


async def test_a_call_answers_the_bare_value() -> None:
    here = world()
    answer = await ask(here.app, "POST", "/tools/echo", {**SHARED, **JSON}, b'{"text": "hi"}')
    assert (answer.status, answer.body) == (200, b'"hello"')
    assert answer.header("content-type") == "application/json"
    (call,) = here.engine.calls
    assert (call.namespace, call.tool, call.arguments) == ("shared", "echo", {"text": "hi"})
    assert (call.caller.name, call.caller.address, call.protocol) == ("tester", "127.0.0.1", "rest")
    assert call.request_id == answer.header("x-request-id")


async def test_the_path_form_calls_the_same() -> None:
    here = world()
    assert (await ask(here.app, "POST", "/ns/shared/tools/echo", BEARER, b"{}")).body == b'"hello"'
    assert here.engine.calls[0].namespace == "shared"


async def test_large_results_pass_through_untouched() -> None:
    body = b'{"a":[' + b"1.10," * 200_000 + b"12345678901234567890123]  }"
    here = world(answer=lambda call: Outcome("ok", body))
    assert (await ask(here.app, "POST", "/tools/echo", SHARED, b"{}")).body == body


async def test_content_blocks_come_with_the_structured_value() -> None:
    blocks = ({"type": "text", "text": "ü"}, {"type": "image", "data": "AA==", "mimeType": "image/png"})
    here = world(answer=lambda call: Outcome("ok", b'{"n":1}', content=blocks))
    answer = await ask(here.app, "POST", "/tools/echo", SHARED, b"{}")
    assert answer.json() == {"content": list(blocks), "structured": {"n": 1}}


async def test_a_result_that_calls_itself_an_error_is_one() -> None:
    here = world(answer=lambda call: Outcome("error", content=({"type": "text", "text": "no"},)))
    answer = await ask(here.app, "POST", "/tools/echo", SHARED, b"{}")
    assert answer.status == 500
    assert answer.code == "tool_error"
    assert answer.json()["error"]["details"]["content"] == [{"type": "text", "text": "no"}]


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8", None, " "])
@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_no_body_means_no_arguments(content_type: str | None, body: bytes) -> None:
    here = world()
    headers = {**SHARED, **({"content-type": content_type} if content_type is not None else {})}
    assert (await ask(here.app, "POST", "/tools/other", headers, body)).status == 200
    assert here.engine.calls[0].arguments == {}


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
async def test_another_media_type_is_415(content_type: str) -> None:
    here = world()
    answer = await ask(here.app, "POST", "/tools/echo", {**SHARED, "content-type": content_type}, b"{}")
    assert answer.status == 415
    assert "application/json" in answer.json()["error"]["message"]
    assert not here.engine.calls


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/tools/echo"), ("GET", "/tools"), ("GET", "/tools/echo/schema"), ("GET", "/openapi.json")],
)
async def test_without_a_namespace_both_forms_are_shown(method: str, path: str) -> None:
    answer = await ask(world().app, method, path, BEARER)
    assert answer.status == 400
    assert "X-Namespace" in answer.json()["error"]["message"]
    assert f"/ns/NAME{path}" in answer.json()["error"]["message"]


@pytest.mark.parametrize("namespace", ["nope", "SHARED", "shared2", "_system", "x" * 5000, "../shared", "ü"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/tools/echo"), ("GET", "/tools"), ("GET", "/tools/echo/schema"), ("GET", "/openapi.json")],
)
async def test_an_unknown_namespace_is_404_and_never_an_empty_list(method: str, path: str, namespace: str) -> None:
    answer = await ask(world().app, method, path, {**BEARER, "x-namespace": namespace})
    assert answer.status == 404
    assert answer.code == "namespace_not_found"
    assert len(answer.body) < 1000


@pytest.mark.parametrize("name", ["nope", "ECHO", "e" * 5000, "ü"])
async def test_an_unknown_tool_is_404(name: str) -> None:
    here = world()
    for method, path in (("POST", f"/tools/{name}"), ("GET", f"/tools/{name}/schema")):
        answer = await ask(here.app, method, path, SHARED)
        assert (answer.status, answer.code) == (404, "tool_not_found")
        assert len(answer.body) < 1000


async def test_arguments_that_do_not_fit_are_422_with_their_place() -> None:
    answer = await ask(world().app, "POST", "/tools/echo", SHARED, b'{"text": 5}')
    assert (answer.status, answer.code) == (422, "invalid_arguments")
    assert answer.json()["error"]["details"]["errors"][0]["path"] == "text"


async def test_the_list_has_everything_about_each_tool_and_is_rendered_once() -> None:
    here = world(
        entry(
            "shared",
            ECHO,
            tool("bare"),
            tool("typed", output_schema={"type": "object"}),
        )
    )
    answer = await ask(here.app, "GET", "/tools", SHARED)
    assert answer.json() == {
        "namespace": "shared",
        "tools": [
            {
                "name": "echo",
                "title": "Echo",
                "description": "Say it again.",
                "inputSchema": ECHO.input_schema,
                "annotations": {"readOnlyHint": True},
            },
            {
                "name": "bare",
                "title": "bare",
                "description": "",
                "inputSchema": {"type": "object", "properties": {}},
            },
            {
                "name": "typed",
                "title": "typed",
                "description": "",
                "inputSchema": OBJECT,
                "outputSchema": {"type": "object"},
            },
        ],
    }
    held = here.engine.registry.catalogue.entry("shared")
    held.rendered["rest.tools"] = b'"kept"'
    assert (await ask(here.app, "GET", "/ns/shared/tools", BEARER)).body == b'"kept"'


async def test_one_tools_schema() -> None:
    answer = await ask(world().app, "GET", "/tools/echo/schema", SHARED)
    assert answer.json()["name"] == "echo"
    assert answer.json()["namespace"] == "shared"
    assert answer.json()["inputSchema"] == ECHO.input_schema
    assert "outputSchema" not in answer.json()


async def test_namespaces_show_what_works_and_what_does_not() -> None:
    rows = (await ask(world().app, "GET", "/namespaces", BEARER)).json()
    assert [row["name"] for row in rows] == ["shared", "broken"]
    assert rows[0]["tool_count"] == 2
    assert rows[0]["pid"] == 4711
    assert rows[1]["status"] == "failed"
    assert (rows[1]["error"], rows[1]["error_file"], rows[1]["error_line"]) == ("SyntaxError", "x.py", 3)


async def test_health_is_open_and_has_details_only_for_callers() -> None:
    here = world()
    assert (await ask(here.app, "GET", "/health")).json() == {"status": "degraded", "version": __version__}
    wrong = {"authorization": "Bearer wrong"}
    assert "namespaces" not in (await ask(here.app, "GET", "/health", wrong)).json()
    assert "namespaces" in (await ask(here.app, "GET", "/health", BEARER)).json()


async def test_reload_wants_bearer_manager_token_and_address() -> None:
    here = world()
    manager = {"x-manager-token": MANAGER}
    assert (await ask(here.app, "POST", "/reload", manager)).status == 401
    assert (await ask(here.app, "POST", "/reload", BEARER)).status == 401
    assert (await ask(here.app, "POST", "/reload", {**BEARER, "x-manager-token": "wrong"})).status == 401
    elsewhere = await ask(here.app, "POST", "/reload", {**BEARER, **manager}, peer=("10.0.0.9", 1))
    assert elsewhere.status == 403
    assert "INTERNAL_ALLOWED_CIDRS" in elsewhere.json()["error"]["message"]
    assert here.reloads == 0
    answer = await ask(here.app, "POST", "/reload", {**BEARER, **manager}, b"{}")
    assert answer.status == 200
    assert set(answer.json()) == {"reloaded", "namespaces", "workers_restarted", "deps_synced"}
    assert here.reloads == 1


async def test_the_index_links_to_everything() -> None:
    answer = await ask(world().app, "GET", "/", {**BEARER, "host": "localhost:1234"})
    assert answer.json()["version"] == __version__
    links = answer.json()["links"]
    assert links["docs"] == "http://localhost:1234/docs"
    assert links["openapi"] == "http://localhost:1234/ns/{namespace}/openapi.json"


async def test_a_person_who_types_the_address_gets_the_page() -> None:
    answer = await ask(world().app, "GET", "/", {**BEARER, "accept": "text/html,application/xhtml+xml"})
    assert (answer.status, answer.header("location")) == (302, "/docs")


async def test_docs_and_metrics_are_wired() -> None:
    here = world()
    assert b"<!doctype html>" in (await ask(here.app, "GET", "/docs")).body
    assert b"tooldock_http_requests_total" in (await ask(here.app, "GET", "/metrics", BEARER)).body


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/tools", "GET, HEAD, OPTIONS"),
        ("GET", "/tools/echo", "POST, OPTIONS"),
        ("HEAD", "/tools/echo", "POST, OPTIONS"),
        ("PUT", "/tools/echo", "POST, OPTIONS"),
        ("POST", "/tools/echo/schema", "GET, HEAD, OPTIONS"),
        ("DELETE", "/tools/echo/schema", "GET, HEAD, OPTIONS"),
        ("GET", "/reload", "POST, OPTIONS"),
        ("POST", "/health", "GET, HEAD, OPTIONS"),
        ("POST", "/docs", "GET, HEAD, OPTIONS"),
        ("PATCH", "/namespaces", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_wrong_method_is_405_and_says_which_are_right(method: str, path: str, allow: str) -> None:
    answer = await ask(world().app, method, path, SHARED)
    assert answer.status == 405
    assert answer.header("allow") == allow
    if method != "HEAD":
        assert answer.code == "method_not_allowed"


@pytest.mark.parametrize("path", ["/tools", "/tools/echo", "/tools/echo/schema", "/health", "/reload"])
async def test_options_tells_the_methods(path: str) -> None:
    answer = await ask(world().app, "OPTIONS", path, SHARED)
    assert answer.status == 204
    assert "OPTIONS" in (answer.header("allow") or "")


@pytest.mark.parametrize("path", ["/", "/tools", "/tools/echo/schema", "/openapi.json", "/namespaces", "/health"])
async def test_head_is_get_without_a_body(path: str) -> None:
    here = world()
    head, got = await ask(here.app, "HEAD", path, SHARED), await ask(here.app, "GET", path, SHARED)
    assert head.status == got.status == 200
    assert head.body == b""
    assert head.header("content-length") == got.header("content-length")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("POST", "/tools/"),
        ("GET", "/tools/"),
        ("POST", "/tools/a/b"),
        ("GET", "/tools/a/b"),
        ("POST", "/tools//schema"),
        ("GET", "/tools/echo/schema/"),
        ("GET", "/ns/"),
        ("GET", "/ns/shared/nothing"),
        ("GET", "//tools"),
        ("GET", "/docs/nothing"),
    ],
)
async def test_what_is_not_there_is_404_in_json(method: str, path: str) -> None:
    answer = await ask(world().app, method, path, BEARER)
    if path == "/ns/":
        assert answer.status == 200  # no namespace named: the index
        return
    assert answer.status == 404
    assert answer.code == "not_found"


async def test_everything_needs_a_token_but_health_and_docs() -> None:
    here = world()
    for path in ("/", "/tools", "/tools/echo/schema", "/openapi.json", "/namespaces", "/metrics", "/nothing"):
        assert (await ask(here.app, "GET", path, {"x-namespace": "shared"})).status == 401, path
    assert (await ask(here.app, "POST", "/tools/echo", {"x-namespace": "shared"}, b"{}")).status == 401
    assert not here.engine.calls


async def test_error_bodies_are_the_same_shape_everywhere() -> None:
    here = world()
    for method, path, headers in (
        ("GET", "/tools", {}),
        ("GET", "/tools", BEARER),
        ("GET", "/nothing", BEARER),
        ("PUT", "/tools", BEARER),
        ("GET", "/tools", {"host": "evil.example"}),
        ("GET", "/tools", {"origin": "https://evil.example"}),
    ):
        answer = await ask(here.app, method, path, headers)
        assert answer.status >= 400
        assert answer.header("content-type") == "application/json"
        error = json.loads(answer.body)["error"]
        assert set(error) == {"code", "message", "details", "request_id"}
        assert error["request_id"] == answer.header("x-request-id")
