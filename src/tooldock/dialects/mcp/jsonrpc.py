"""JSON-RPC 2.0 messages: from bytes, checked, and to bytes.

Reading trusts nothing: sizes, nesting, numbers beyond 64 bits (which keep their exact value) and the shape of ids are
looked at here, so that nobody after has to. Writing never encodes a result again that already is JSON text.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import orjson

from tooldock.dialects.jsonbody import MAX_DEPTH, has_long_number, is_too_deep

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
"""Of the handshake revisions; the stateless one says INVALID_PARAMS."""
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
CANCELLED = -32800

MAX_BATCH = 100
_MAX_ID = 512

Id = str | int


class RpcError(Exception):
    """An error a client gets as such, and not as a tool's result."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Message:
    """One message of a client: a request (it has an id and a method), a notification, or a reply to a question."""

    __slots__ = ("error", "id", "kind", "method", "params", "result")

    def __init__(
        self,
        kind: Literal["request", "notification", "reply"],
        id: Id | None = None,
        method: str = "",
        params: dict[str, Any] | None = None,
        result: Any = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.id = id
        self.method = method
        self.params: dict[str, Any] = {} if params is None else params
        self.result = result
        self.error = error


def parse(body: bytes) -> Any:
    """The JSON value in a body; raises `RpcError` PARSE_ERROR."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RpcError(PARSE_ERROR, f"Parse error: {_why(body, error)}") from None
    if is_too_deep(body, value):
        raise RpcError(PARSE_ERROR, f"Parse error: nested deeper than {MAX_DEPTH} levels.")
    if has_long_number(body):
        # orjson would round integers beyond 64 bits. Last, because this parser recurses.
        value = json.loads(body)
    return value


def message(value: Any) -> Message:
    """One message, checked; raises `RpcError` INVALID_REQUEST."""
    if type(value) is not dict:
        raise RpcError(INVALID_REQUEST, "Invalid request: a message is a JSON object.")
    if value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'Invalid request: "jsonrpc" must be "2.0".')
    method = value.get("method")
    if method is None:
        return _reply(value)
    if type(method) is not str:
        raise RpcError(INVALID_REQUEST, 'Invalid request: "method" must be a string.')
    params = value.get("params")
    if params is not None and type(params) is not dict:
        raise RpcError(INVALID_REQUEST, 'Invalid request: "params" must be an object.')
    if "id" not in value:
        return Message("notification", None, method, params)
    return Message("request", checked_id(value["id"]), method, params)


def checked_id(id: Any) -> Id:
    if type(id) is str and len(id) <= _MAX_ID:
        return id
    if type(id) is int and -(2**63) <= id < 2**63:
        return id
    raise RpcError(INVALID_REQUEST, 'Invalid request: "id" must be a string or an integer, not null or a fraction.')


def id_of(value: Any) -> Id | None:
    """The id an error about this value carries: its own where it has a usable one."""
    if type(value) is not dict:
        return None
    try:
        return checked_id(value.get("id"))
    except RpcError:
        return None


def result(id: Id, body: bytes) -> bytes:
    """A response around a result that is JSON text already."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(id), body)


def error(id: Id | None, problem: RpcError) -> bytes:
    fields: dict[str, Any] = {"code": problem.code, "message": problem.message}
    if problem.data is not None:
        fields["data"] = problem.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (orjson.dumps(id), dump(fields))


def notification(method: str, params: Any = None) -> bytes:
    if params is None:
        return b'{"jsonrpc":"2.0","method":%b}' % orjson.dumps(method)
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (orjson.dumps(method), dump(params))


def request(id: Id, method: str, params: Any) -> bytes:
    head = b'{"jsonrpc":"2.0","id":%b,"method":%b' % (orjson.dumps(id), orjson.dumps(method))
    return head + b',"params":%b}' % dump(params)


def dump(value: Any) -> bytes:
    """JSON text; integers beyond 64 bits included."""
    try:
        return orjson.dumps(value, default=str)
    except (orjson.JSONEncodeError, RecursionError):
        return json.dumps(value, default=str, separators=(",", ":")).encode()


def _reply(value: dict[str, Any]) -> Message:
    problem = value.get("error")
    if ("result" in value) == (problem is not None):
        raise RpcError(
            INVALID_REQUEST, 'Invalid request: a message has a "method", or else either a "result" or an "error".'
        )
    if problem is not None and type(problem) is not dict:
        raise RpcError(INVALID_REQUEST, 'Invalid request: "error" must be an object.')
    return Message("reply", checked_id(value.get("id")), result=value.get("result"), error=problem)


def _why(body: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return f"byte {wrong.start} is not UTF-8."
    return f"{error.msg} at line {error.lineno}, column {error.colno}."
