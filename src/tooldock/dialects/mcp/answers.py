"""HTTP answers that carry JSON-RPC, and the one way from an error of the gateway to one of the protocol."""

from __future__ import annotations

import math

from tooldock import errors
from tooldock.dialects.mcp import jsonrpc
from tooldock.dialects.mcp.jsonrpc import Id, RpcError
from tooldock.dialects.mcp.revisions import R2026_07_28
from tooldock.edge.http import Headers, HttpError, Request, Response
from tooldock.errors import ToolDockError

JSON: Headers = ((b"content-type", b"application/json"),)

_STATUS: dict[type[ToolDockError], int] = {
    errors.TooLarge: 413,
    errors.MalformedRequest: 400,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.NamespaceNotFound: 404,
    errors.Unavailable: 503,
}
_INVALID_REQUEST = (
    errors.MalformedRequest,
    errors.NotAuthenticated,
    errors.NotAllowed,
    errors.NamespaceNotFound,
)
_INVALID_PARAMS = (errors.ToolNotFound, errors.PromptNotFound, errors.InvalidArguments)


def answer(message: bytes, headers: Headers = JSON) -> Response:
    return Response(200, message, headers)


def accepted() -> Response:
    return Response(202)


def problem(status: int, id: Id | None, error: RpcError, headers: Headers = ()) -> Response:
    return Response(status, jsonrpc.error(id, error), JSON + headers)


def rpc_error(error: ToolDockError, revision: str) -> RpcError:
    """An error of the gateway that answers a request as a whole, and is not a tool's result."""
    if isinstance(error, errors.ResourceNotFound):
        code = jsonrpc.INVALID_PARAMS if revision >= R2026_07_28 else jsonrpc.RESOURCE_NOT_FOUND
    elif isinstance(error, _INVALID_PARAMS):
        code = jsonrpc.INVALID_PARAMS
    elif isinstance(error, _INVALID_REQUEST):
        code = jsonrpc.INVALID_REQUEST
    else:
        code = jsonrpc.INTERNAL_ERROR
    return RpcError(code, error.message, {"code": error.code, **error.details})


def refuse(request: Request, error: ToolDockError) -> Response:
    """The answer to a request that did not get as far as a method."""
    status = error.status if isinstance(error, HttpError) else _status(error)
    headers: Headers = error.headers if isinstance(error, HttpError) else ()
    if status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    elif status == 503:
        headers += ((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after or 1))),)
    wrong = rpc_error(error, R2026_07_28)
    wrong.data = {**wrong.data, "request_id": request.request_id}
    return problem(status, None, wrong, headers)


def _status(error: ToolDockError) -> int:
    for cls in type(error).__mro__:
        if cls in _STATUS:
            return _STATUS[cls]
    return 500
