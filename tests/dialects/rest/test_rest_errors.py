"""The error table: every error of the tree and its REST answer."""

from __future__ import annotations

import json

import pytest

from tests.dialects.rest.world import SHARED, world
from tests.edge.world import ask
from tooldock import errors
from tooldock.dialects.rest import envelope
from tooldock.edge.http import BodyTooSlow, HttpError, NoSuchPath, UnsupportedMedia, WrongMethod
from tooldock.errors import ToolDockError
from tooldock.model import Outcome

TABLE: list[tuple[type[ToolDockError], int, str]] = [
    (errors.MalformedRequest, 400, "malformed_request"),
    (errors.TooLarge, 413, "too_large"),
    (errors.NotAuthenticated, 401, "not_authenticated"),
    (errors.NotAllowed, 403, "not_allowed"),
    (errors.NamespaceNotFound, 404, "namespace_not_found"),
    (errors.ToolNotFound, 404, "tool_not_found"),
    (errors.ResourceNotFound, 404, "resource_not_found"),
    (errors.PromptNotFound, 404, "prompt_not_found"),
    (errors.InvalidArguments, 422, "invalid_arguments"),
    (errors.PolicyDenied, 403, "policy_denied"),
    (errors.ConfirmationRequired, 409, "confirmation_required"),
    (errors.RateLimited, 429, "rate_limited"),
    (errors.Unavailable, 503, "unavailable"),
    (errors.ExecutionTimeout, 504, "execution_timeout"),
    (errors.Cancelled, 499, "cancelled"),
    (errors.DependencyError, 500, "dependency_error"),
    (errors.ToolFailed, 500, "tool_error"),
    (errors.NoBackChannel, 500, "no_back_channel"),
    (errors.InternalError, 500, "internal_error"),
    (errors.SettingsError, 500, "invalid_settings"),
    (errors.ConfigError, 500, "invalid_config"),
    (errors.ToolDockError, 500, "internal_error"),
]


def test_the_table_is_complete() -> None:
    def below(cls: type[ToolDockError]) -> set[type[ToolDockError]]:
        return {cls}.union(*(below(child) for child in cls.__subclasses__()))

    ours = {cls for cls in below(ToolDockError) if cls.__module__ == "tooldock.errors"}
    assert ours == {cls for cls, _, _ in TABLE}


@pytest.mark.parametrize(("cls", "status", "code"), TABLE)
async def test_an_outcomes_error_becomes_its_answer(cls: type[ToolDockError], status: int, code: str) -> None:
    here = world(answer=lambda call: Outcome("error", error=cls("What happened.", tool="echo")))
    answer = await ask(here.app, "POST", "/tools/echo", SHARED, b"{}")
    assert answer.status == status
    assert answer.json() == {
        "error": {
            "code": code,
            "message": "What happened.",
            "details": {"tool": "echo"},
            "request_id": answer.header("x-request-id"),
        }
    }
    assert answer.header("retry-after") == ("1" if status in (429, 503) else None)
    assert answer.header("www-authenticate") == ("Bearer" if status == 401 else None)


@pytest.mark.parametrize(("seconds", "header"), [(0, b"1"), (0.2, b"1"), (7, b"7"), (7.1, b"8")])
@pytest.mark.parametrize("cls", [errors.Unavailable, errors.RateLimited])
def test_retry_after_is_whole_seconds_and_never_zero(cls: type[ToolDockError], seconds: float, header: bytes) -> None:
    _, _, headers = envelope(cls("Later.", retry_after=seconds))
    assert (b"retry-after", header) in headers


def test_a_new_kind_of_error_takes_its_parents_answer() -> None:
    class StillStarting(errors.Unavailable):
        code = "still_starting"

    status, body, _ = envelope(StillStarting("Wait."))
    assert status == 503
    assert json.loads(body)["error"]["code"] == "still_starting"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NoSuchPath("x"), 404),
        (WrongMethod("PUT", "/x", "GET"), 405),
        (BodyTooSlow("x"), 408),
        (UnsupportedMedia("x"), 415),
    ],
)
def test_what_only_http_has_a_word_for_knows_its_status(error: HttpError, status: int) -> None:
    assert envelope(error)[0] == status


def test_details_of_any_kind_become_json() -> None:
    odd = {"set": {2, 1}, "big": 10**30, "path": errors, "tuple": (1, 2)}
    details = json.loads(envelope(errors.ToolFailed("x", **odd))[1])["error"]["details"]
    assert details["set"] == [1, 2]
    assert details["big"] == 10**30
    assert details["tuple"] == [1, 2]
