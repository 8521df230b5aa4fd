"""What is checked before a handler sees a request, and what every answer carries."""

from __future__ import annotations

import asyncio
import re

import pytest
from structlog.testing import capture_logs

from tests.edge.world import BEARER, Wire, ask, front, scope
from tooldock.edge import Metrics, Request, Response
from tooldock.errors import PolicyDenied


async def test_a_request_with_the_token_reaches_the_handler() -> None:
    answer = await ask(front(), "POST", "/x", {**BEARER, "x-namespace": "shared"}, b"hi")
    assert answer.status == 200
    assert answer.json() == {
        "method": "POST",
        "path": "/x",
        "namespace": "shared",
        "caller": "tester",
        "address": "127.0.0.1",
        "scheme": "http",
        "body": "hi",
    }
    assert answer.header("content-length") == str(len(answer.body))
    assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize("given", ["a", "req-1.2_3", "x" * 128])
async def test_a_good_request_id_is_kept(given: str) -> None:
    answer = await ask(front(), "GET", "/", {**BEARER, "x-request-id": given})
    assert answer.header("x-request-id") == given


@pytest.mark.parametrize("given", ["x" * 129, "a b", "a\nb", "ü", "{}", "a;b"])
async def test_a_bad_request_id_is_replaced_not_refused(given: str) -> None:
    answer = await ask(front(), "GET", "/", {**BEARER, "x-request-id": given})
    assert answer.status == 200
    assert re.fullmatch(r"[0-9a-f]{21}", answer.header("x-request-id") or "")


async def test_generated_request_ids_are_distinct_and_sort_by_time() -> None:
    app = front()
    ids = [(await ask(app, "GET", "/", BEARER)).header("x-request-id") or "" for _ in range(200)]
    assert len(set(ids)) == 200
    assert ids == sorted(ids)


async def test_refusals_carry_the_request_id_in_header_and_body() -> None:
    answer = await ask(front(), "GET", "/", {"x-request-id": "find-me"})
    assert answer.status == 401
    assert answer.header("x-request-id") == "find-me"
    assert answer.json()["error"]["request_id"] == "find-me"


@pytest.mark.parametrize(
    "name", ["host", "authorization", "content-length", "origin", "x-namespace", "x-manager-token"]
)
async def test_a_header_that_may_come_once_is_refused_twice(name: str) -> None:
    value = {"host": "localhost", "content-length": "0", "origin": "http://localhost"}.get(name, "v")
    answer = await ask(front(), "POST", "/", [(name, value), (name, value)])
    assert answer.status == 400
    assert name in answer.json()["error"]["message"]
    assert answer.header("x-request-id")


async def test_a_header_that_may_be_a_list_is_joined() -> None:
    async def handler(request: Request) -> Response:
        return Response(200, request.headers[b"accept"])

    answer = await ask(front(handler), "GET", "/", [*BEARER.items(), ("accept", "a/b"), ("accept", "c/d")])
    assert answer.body == b"a/b, c/d"


async def test_the_path_form_and_the_header_form_reach_the_same_handler() -> None:
    by_path = await ask(front(), "GET", "/ns/github/tools/x", BEARER)
    by_header = await ask(front(), "GET", "/tools/x", {**BEARER, "x-namespace": "github"})
    both = await ask(front(), "GET", "/ns/github/tools/x", {**BEARER, "x-namespace": "github"})
    assert by_path.json() == by_header.json() == both.json()
    assert by_path.json()["namespace"] == "github"
    assert by_path.json()["path"] == "/tools/x"


async def test_path_and_header_must_not_disagree() -> None:
    answer = await ask(front(), "GET", "/ns/github/tools", {**BEARER, "x-namespace": "shared"})
    assert answer.status == 400
    assert "'github'" in answer.json()["error"]["message"]
    assert "'shared'" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/ns/github", "/ns/github/"])
async def test_a_namespace_alone_is_its_root(path: str) -> None:
    assert (await ask(front(), "GET", path, BEARER)).json()["path"] == "/"


async def test_the_open_paths_need_no_token_and_nothing_else_is_open() -> None:
    app = front()
    for path in ("/health", "/docs", "/docs/docs.css"):
        assert (await ask(app, "GET", path)).json()["caller"] == "anonymous"
    for path in (
        "/",
        "/tools",
        "/metrics",
        "/healthz",
        "/docsx",
        "/ns/github/health",
        "/ns/x/docs",
        "//health",
    ):
        assert (await ask(app, "GET", path)).status == 401, path


async def test_an_open_path_knows_a_caller_who_shows_a_token() -> None:
    assert (await ask(front(), "GET", "/health", BEARER)).json()["caller"] == "tester"
    assert (await ask(front(), "GET", "/health", {"authorization": "Bearer wrong"})).json()["caller"] == "anonymous"


async def test_with_authentication_off_everybody_is_local() -> None:
    assert (await ask(front(auth=False), "GET", "/tools")).json()["caller"] == "local"


async def test_an_error_of_the_tree_becomes_its_answer() -> None:
    async def handler(request: Request) -> Response:
        raise PolicyDenied("No.", rule="r1")

    answer = await ask(front(handler), "GET", "/", BEARER)
    assert answer.status == 403
    assert answer.json()["error"] == {
        "code": "policy_denied",
        "message": "No.",
        "details": {"rule": "r1"},
        "request_id": answer.header("x-request-id"),
    }


async def test_a_fault_of_ours_shows_nothing_but_its_request_id_and_is_logged_once() -> None:
    async def handler(request: Request) -> Response:
        raise RuntimeError("the password is hunter2")

    with capture_logs() as logs:
        answer = await ask(front(handler), "GET", "/", BEARER)
    assert answer.status == 500
    assert answer.code == "internal_error"
    assert b"hunter2" not in answer.body
    assert b"Traceback" not in answer.body
    (line,) = logs
    assert line["event"] == "request_failed"
    assert line["log_level"] == "error"
    assert line["exc_info"] is True
    assert line["request_id"] == answer.header("x-request-id")


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    app = front()
    got = await ask(app, "GET", "/health")
    head = await ask(app, "HEAD", "/health")
    assert head.body == b""
    assert int(head.header("content-length") or 0) == len(got.body) + 1  # "HEAD" is one letter longer than "GET"


async def test_a_204_has_neither_body_nor_length() -> None:
    async def handler(request: Request) -> Response:
        return Response(204)

    answer = await ask(front(handler), "GET", "/", BEARER)
    assert answer.header("content-length") is None


async def test_a_stream_arrives_in_its_pieces_without_a_length() -> None:
    async def handler(request: Request) -> Response:
        outlet = request.open(200, ((b"content-type", b"text/event-stream"),))
        outlet.write(b"one")
        await asyncio.sleep(0)
        outlet.write(b"two")
        return Response(200)

    answer = await ask(front(handler), "GET", "/", BEARER)
    assert answer.chunks == [b"one", b"two", b""]
    assert answer.header("content-length") is None
    assert answer.header("x-request-id")


async def test_a_stream_that_breaks_is_left_unfinished_and_logged() -> None:
    async def handler(request: Request) -> Response:
        request.open(200, ()).write(b"one")
        await asyncio.sleep(0)
        raise RuntimeError("broken")

    wire = Wire({"type": "http.request", "body": b"", "more_body": False})
    with capture_logs() as logs:
        await front(handler)(scope("GET", "/", BEARER), wire.receive, wire.send)
    assert wire.answer is not None
    assert wire.answer.body == b"one"
    assert not wire.answer.finished
    assert [line["event"] for line in logs] == ["request_failed"]


@pytest.mark.parametrize(
    ("headers", "closes"),
    [
        ({"content-length": "20"}, False),
        ({"transfer-encoding": "chunked"}, False),
        ({"content-length": "20", "expect": "100-continue"}, True),
    ],
)
async def test_only_a_body_that_never_comes_costs_the_connection(headers: dict[str, str], closes: bool) -> None:
    answer = await ask(front(), "POST", "/tools/x", headers)
    assert answer.status == 401
    assert answer.header("connection") == ("close" if closes else None)


async def test_a_server_that_ends_a_request_itself_says_so_to_the_client() -> None:
    waiting = asyncio.Event()

    async def handler(request: Request) -> Response:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    wire = Wire({"type": "http.request", "body": b"", "more_body": False})
    task = asyncio.create_task(front(handler)(scope("GET", "/", BEARER), wire.receive, wire.send))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.answer is not None
    assert wire.answer.status == 503
    assert wire.answer.header("retry-after") == "5"
    assert wire.answer.header("connection") == "close"


async def test_requests_are_counted_by_status() -> None:
    metrics = Metrics()
    app = front(metrics=metrics)
    await ask(app, "GET", "/", BEARER)
    await ask(app, "GET", "/")
    await ask(app, "GET", "/")
    assert metrics.face("core").by_status == {200: 1, 401: 2}
    assert sum(metrics.face("core").seconds.counts) == 3


async def test_websockets_are_turned_away_and_lifespan_is_acknowledged() -> None:
    sent: list[str] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(str(message["type"]))

    async def websocket() -> dict[str, str]:
        return {"type": "websocket.connect"}

    await front()({"type": "websocket"}, websocket, send)  # type: ignore[arg-type]
    events = iter(("lifespan.startup", "lifespan.shutdown"))

    async def lifespan() -> dict[str, str]:
        return {"type": next(events)}

    await front()({"type": "lifespan"}, lifespan, send)  # type: ignore[arg-type]
    assert sent == ["websocket.close", "lifespan.startup.complete", "lifespan.shutdown.complete"]
