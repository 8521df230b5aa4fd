"""From an error to its REST answer: the one table of statuses, and the one shape of an error body.

{"error": {"code": "...", "message": "...", "details": {...}, "request_id": "..."}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from typing import Any

import orjson

from tooldock import errors
from tooldock.edge.http import Headers, HttpError, Request, Response
from tooldock.errors import ToolDockError

JSON: Headers = ((b"content-type", b"application/json"),)

STATUS: dict[type[ToolDockError], int] = {
    errors.MalformedRequest: 400,
    errors.TooLarge: 413,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.NamespaceNotFound: 404,
    errors.ToolNotFound: 404,
    errors.ResourceNotFound: 404,
    errors.PromptNotFound: 404,
    errors.InvalidArguments: 422,
    errors.PolicyDenied: 403,
    errors.ConfirmationRequired: 409,
    errors.RateLimited: 429,
    errors.Unavailable: 503,
    errors.ExecutionTimeout: 504,
    errors.Cancelled: 499,
    errors.DependencyError: 500,
    errors.ToolFailed: 500,
    errors.NoBackChannel: 500,
    errors.InternalError: 500,
    errors.SettingsError: 500,
    errors.ConfigError: 500,
    ToolDockError: 500,
}

_CHALLENGE = (b"www-authenticate", b"Bearer")
_RETRYABLE = frozenset((429, 503))


def envelope(error: ToolDockError, request_id: str = "") -> tuple[int, bytes, Headers]:
    """Status, body and headers of the answer to a failed request."""
    status = status_of(error)
    body = dump(
        {
            "error": {
                "code": error.code,
                "message": error.message,
                "details": error.details,
                "request_id": request_id,
            }
        }
    )
    headers = JSON
    if isinstance(error, HttpError):
        headers += error.headers
    if status == 401:
        headers += (_CHALLENGE,)
    elif status in _RETRYABLE:
        headers += ((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after or 1))),)
    return status, body, headers


def refuse(request: Request, error: ToolDockError) -> Response:
    return Response(*envelope(error, request.request_id))


def status_of(error: ToolDockError) -> int:
    if isinstance(error, HttpError):
        return error.status
    for cls in type(error).__mro__:
        if cls in STATUS:
            return STATUS[cls]
    raise AssertionError("ToolDockError itself is in the table")


def dump(value: Any) -> bytes:
    """JSON text of whatever errors and tools carry; integers beyond 64 bits included."""
    try:
        return orjson.dumps(value, default=_plain)
    except (orjson.JSONEncodeError, RecursionError):
        return json.dumps(value, default=_plain, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return sorted(value, key=str)
    return str(value)
