"""What a tool returned or raised, as the JSON that goes to the gateway.

A plain value is one member, `"result":...`. A tool that returns content (pictures, sound, files, several
blocks, a `ToolResult`) gives `"content":[...]` with blocks as MCP spells them, then `"is_error":true` and
`"meta":{...}` where it set them, and last `"result"`: its structured content exactly as it is to be sent, or
null.

Never a newline in the bytes, never a traceback in an error: that goes to standard error, the namespace's log.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict

from tooldock_worker.context import AskFailed
from tooldock_worker.jsontext import EncodeError, clean, dumps, dumps_text
from tooldock_worker.light.exceptions import says_not_found, speaks_to_caller
from tooldock_worker.light.values import Kind, kind_of, on_wire
from tooldock_worker.problems import BadArguments

if TYPE_CHECKING:
    from tooldock_worker.tools import LoadedTool

__all__ = ["EncodeError", "Failure", "encode", "encode_error"]

_MAX_MESSAGE = 2_000
_DATA = frozenset({dict, int, bool, float, type(None)})
"""Types that are never content, so that the common results skip the questions below."""


class Failure(TypedDict):
    code: str
    message: str
    details: dict[str, Any]


def encode(tool: LoadedTool, value: Any) -> bytes:
    """The members of a success frame, without braces; raises `EncodeError`."""
    kind = type(value)
    if kind is str and tool.result_adapter is None:
        return b'"result":' + dumps_text(value)
    if kind in _DATA:
        return b'"result":' + dumps(value, tool.result_adapter)
    if kind is bytes:
        return b'"result":' + dumps_text(_text(value))
    if isinstance(value, list | tuple):
        if any(map(kind_of, set(map(type, value)))):
            return _content([_block(item) for item in value], _declared(tool, value))
    elif (content := kind_of(kind)) is not None:
        return _encode_content(tool, content, value)
    return b'"result":' + dumps(value, tool.result_adapter)


def encode_error(error: BaseException, kind: str = "tool") -> Failure:
    """An exception as the gateway's error: its code, a message for the caller, details for programs.

    `kind` is what raised it: a tool, a resource or a prompt.
    """
    if isinstance(error, BadArguments):
        message = f"The arguments do not fit the {kind}: " + _bounded(str(error))
        return {"code": "invalid_arguments", "message": message, "details": {"errors": list(error.errors)}}
    if isinstance(error, AskFailed):
        details = {"cause": error.code, **error.details}
        return {"code": "tool_error", "message": _bounded(error.message), "details": details}
    if kind == "resource" and says_not_found(error):
        message = clean(_said(error)) or "There is no such resource."
        return {"code": "resource_not_found", "message": message, "details": {}}
    if isinstance(error, EncodeError) or speaks_to_caller(error):
        return {"code": "tool_error", "message": clean(_said(error)) or type(error).__name__, "details": {}}
    _print(error)
    return {"code": "tool_error", "message": _bounded(_described(error)), "details": {}}


def _encode_content(tool: LoadedTool, kind: Kind, value: Any) -> bytes:
    if kind == "result":
        return _content(_blocks(value.content), value.structured_content, is_error=value.is_error, meta=value.meta)
    if kind == "call_result":
        wire = on_wire(value)
        structured = wire.get("structuredContent")
        return _content(wire["content"], structured, is_error=wire.get("isError", False), meta=wire.get("_meta"))
    if kind == "input_required":
        raise EncodeError("The tool returned InputRequiredResult; use ctx.elicit() to ask the caller instead.")
    return _content([_block(value)], _declared(tool, value))


def _content(blocks: list[Any], structured: Any, *, is_error: bool = False, meta: Any = None) -> bytes:
    members = b'"content":' + dumps(blocks)
    if is_error:
        members += b',"is_error":true'
    if meta is not None:
        members += b',"meta":' + dumps(meta)
    result = dumps(structured)
    if structured is not None and not result.startswith(b"{"):
        raise EncodeError("Structured content must be an object, not a bare value; give it a name in a dict.")
    return members + b',"result":' + result


def _declared(tool: LoadedTool, value: Any) -> Any:
    """Structured content beside the blocks, which only a tool that declares an output schema owes."""
    if tool.output_schema is None:
        return None
    try:
        dumps(value)
    except EncodeError:
        return None  # the blocks carry it
    return {"result": value} if tool.wraps_result else value


def _blocks(content: Any) -> list[Any]:
    """A `ToolResult`'s content as blocks."""
    if not isinstance(content, list | tuple):
        return [_block(content)]
    if content and all(map(_is_wire_block, content)):
        return list(content)
    if not content or any(kind_of(type(item)) for item in content):
        return [_block(item) for item in content]
    return [_block(content)]


def _is_wire_block(item: Any) -> bool:
    """A dict spelt as MCP spells a block: the type, and the member that type cannot be without."""
    if type(item) is not dict:
        return False
    member = {
        "text": "text",
        "image": "data",
        "audio": "data",
        "resource": "resource",
        "resource_link": "uri",
    }
    return member.get(str(item.get("type")), "") in item


def _block(item: Any) -> Any:
    kind = kind_of(type(item))
    if kind == "block":
        return getattr(item, "wire", None) or on_wire(item)
    if kind == "image":
        return _block(item.to_image_content())
    if kind == "audio":
        return _block(item.to_audio_content())
    if kind == "file":
        return _block(item.to_resource_content())
    return {"type": "text", "text": _text(item)}


def _text(item: Any) -> str:
    """Data shown as text: text as it is, bytes as text or base64, everything else as JSON."""
    if isinstance(item, str):
        return item
    if not isinstance(item, bytes):
        return dumps(item).decode()
    try:
        return item.decode()
    except UnicodeDecodeError:
        import base64

        return base64.b64encode(item).decode("ascii")


def _described(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        return f"{name}: " + "; ".join(_each(error.exceptions))
    text = _said(error)
    return f"{name}: {text}" if text else name


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""  # an exception whose own __str__ fails still has a name


def _each(errors: Iterable[BaseException]) -> list[str]:
    return [_described(error) for error in errors]


def _bounded(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


def _print(error: BaseException) -> None:
    import traceback

    try:
        traceback.print_exception(error, file=sys.stderr)
    except Exception:
        # A log that cannot be written must not turn a failed call into a lost one.
        return
