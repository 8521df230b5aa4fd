"""Every error of the gateway in MCP's terms: what refuses a request, and what a call that failed looks like."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tooldock import errors
from tooldock.dialects.mcp import answers
from tooldock.dialects.mcp.exchange import Exchange
from tooldock.dialects.mcp.jsonrpc import RpcError
from tooldock.dialects.mcp.methods import Methods
from tooldock.dialects.mcp.revisions import HANDSHAKE, R2025_11_25, R2026_07_28, Revisions
from tooldock.edge.http import Request
from tooldock.engine.registry import Catalogue, Entry, Limits, Offer, Registry
from tooldock.engine.schema import Validator
from tooldock.errors import ToolDockError
from tooldock.model import Call, Caller, Outcome, Tool

ALL = (*HANDSHAKE, R2026_07_28)
INVALID, PARAMS, INTERNAL, NO_RESOURCE = -32600, -32602, -32603, -32002

TABLE: list[tuple[type[ToolDockError], int, int, int | None]] = [
    # the error; a refused request's status and code; the code of a failed call, None where it is a result
    (errors.MalformedRequest, 400, INVALID, None),
    (errors.TooLarge, 413, INVALID, None),
    (errors.NotAuthenticated, 401, INVALID, None),
    (errors.NotAllowed, 403, INVALID, None),
    (errors.NamespaceNotFound, 404, INVALID, INVALID),
    (errors.ToolNotFound, 500, PARAMS, PARAMS),
    (errors.ResourceNotFound, 500, PARAMS, None),
    (errors.PromptNotFound, 500, PARAMS, None),
    (errors.InvalidArguments, 500, PARAMS, None),
    (errors.PolicyDenied, 500, INTERNAL, None),
    (errors.ConfirmationRequired, 500, INTERNAL, None),
    (errors.RateLimited, 500, INTERNAL, None),
    (errors.Unavailable, 503, INTERNAL, None),
    (errors.ExecutionTimeout, 500, INTERNAL, None),
    (errors.Cancelled, 500, INTERNAL, None),
    (errors.DependencyError, 500, INTERNAL, None),
    (errors.ToolFailed, 500, INTERNAL, None),
    (errors.NoBackChannel, 500, INTERNAL, None),
    (errors.InternalError, 500, INTERNAL, INTERNAL),
    (errors.SettingsError, 500, INTERNAL, None),
    (errors.ConfigError, 500, INTERNAL, None),
    (errors.ToolDockError, 500, INTERNAL, None),
]


def test_the_table_is_complete() -> None:
    def below(cls: type[ToolDockError]) -> set[type[ToolDockError]]:
        return {cls}.union(*(below(child) for child in cls.__subclasses__()))

    ours = {cls for cls in below(ToolDockError) if cls.__module__ == "tooldock.errors"}
    assert ours == {row[0] for row in TABLE}


def request() -> Request:
    scope: dict[str, Any] = {"method": "POST", "path": "/mcp", "query_string": b"", "scheme": "http"}

    async def receive() -> dict[str, Any]:
        return {}

    made = Request(scope, receive)
    made.request_id = "r1"
    return made


@pytest.mark.parametrize(("cls", "status", "code", "_call"), TABLE)
def test_a_refused_request_has_the_status_of_its_reason(
    cls: type[ToolDockError], status: int, code: int, _call: int | None
) -> None:
    answer = answers.refuse(request(), cls("What happened.", tool="echo"))
    body = json.loads(answer.body)
    assert (answer.status, body["error"]["code"], body["id"]) == (status, code, None)
    assert body["error"]["message"] == "What happened."
    assert body["error"]["data"]["request_id"] == "r1"
    headers = dict(answer.headers)
    assert headers[b"content-type"] == b"application/json"
    assert (b"www-authenticate" in headers) == (status == 401)
    assert (b"retry-after" in headers) == (status == 503)


class Failing:
    def __init__(self, error: ToolDockError) -> None:
        self.registry = Registry()
        tool = Tool(namespace="n", name="echo")
        offers = {"echo": Offer(tool, None, Validator("echo", tool.input_schema))}  # type: ignore[arg-type]
        self.registry.swap(Catalogue([Entry("n", offers, Limits(60, 8, 8, 1 << 20))]))
        self._error = error

    async def call(self, call: Call) -> Outcome:
        return Outcome("error", error=self._error)


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(("cls", "_status", "_code", "code"), TABLE)
async def test_a_failed_call_is_a_result_for_the_model_unless_the_request_or_we_are_wrong(
    cls: type[ToolDockError], _status: int, _code: int, code: int | None, revision: str
) -> None:
    methods = Methods(Failing(cls("What happened.", tool="echo")), Revisions(ALL))
    exchange = Exchange("n", Caller("t"), "r1", revision, 1, "tools/call", {"name": "echo"}, {})
    if cls is errors.InvalidArguments and revision < R2025_11_25:
        code = PARAMS
    if code is None:
        result = json.loads(await methods.answer(exchange))
        assert result["isError"] is True
        assert result["content"] == [{"type": "text", "text": "What happened."}]
        return
    with pytest.raises(RpcError) as caught:
        await methods.answer(exchange)
    assert caught.value.code == code


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("method", ["resources/read", "prompts/get"])
async def test_g51_reads_have_no_result_for_failures_so_they_are_errors(method: str, revision: str) -> None:
    params = {"uri": "a://b", "name": "p"}
    for cls in (errors.ToolFailed, errors.ExecutionTimeout, errors.Unavailable):
        exchange = Exchange("n", Caller("t"), "r1", revision, 1, method, params, {})
        with pytest.raises(RpcError) as caught:
            await Methods(Failing(cls("x")), Revisions(ALL)).answer(exchange)
        assert caught.value.code == INTERNAL
