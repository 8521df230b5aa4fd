"""What a resource or prompt gave, as the result MCP sends: contents of a resource, messages of a prompt.

    {"contents":[{"uri":...,"mimeType":...,"text":...}]}
    {"description":...,"messages":[{"role":...,"content":...}]}

Recognises the real package's classes as well as the light ones, by name, so that nothing has to be imported for it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tooldock_worker.jsontext import EncodeError, dumps
from tooldock_worker.light.values import kind_of, on_wire

_PACKAGES = frozenset({"fastmcp", "mcp", "mcp_types", "tooldock_worker"})
_ROLES = frozenset({"user", "assistant"})


def resource_result(value: Any, uri: str, mime_type: str, meta: Mapping[str, Any] | None) -> bytes:
    """What is read at a URI. A result that says everything itself is taken as it is; else the declared type holds."""
    if _is_a(value, "ResourceResult"):
        result: dict[str, Any] = {"contents": [_part(item, uri, None) for item in value.contents]}
        if value.meta:
            result["_meta"] = value.meta
        return dumps(result)
    _refuse_questions(value)
    if _is_a(value, "ResourceContent"):
        value = [value]
    if isinstance(value, list) and value and all(_is_a(item, "ResourceContent") for item in value):
        return dumps({"contents": [_part(item, uri, meta) for item in value]})
    text = value if isinstance(value, str | bytes) else dumps(value).decode()
    return dumps({"contents": [_content(text, uri, mime_type, meta)]})


def prompt_result(value: Any, description: str, meta: Mapping[str, Any] | None) -> bytes:
    """A prompt's messages, with what is said about it."""
    if _is_a(value, "PromptResult"):
        messages, description, meta = value.messages, value.description or description, value.meta
    else:
        _refuse_questions(value)
        messages = value if isinstance(value, list | tuple) else [value]
    result: dict[str, Any] = {"messages": [_message(item, index) for index, item in enumerate(messages)]}
    if description:
        result["description"] = description
    if meta:
        result["_meta"] = meta
    return dumps(result)


def _part(item: Any, uri: str, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    own = {**(meta or {}), **(item.meta or {})}
    usual = "text/plain" if isinstance(item.content, str) else "application/octet-stream"
    return _content(item.content, uri, item.mime_type or usual, own)


def _content(value: str | bytes, uri: str, mime_type: str, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    content: dict[str, Any] = {"uri": uri, "mimeType": mime_type}
    if isinstance(value, str):
        content["text"] = value
    else:
        content["blob"] = base64.b64encode(value).decode("ascii")
    return content | ({"_meta": meta} if meta else {})


def _message(item: Any, index: int) -> dict[str, Any]:
    if isinstance(item, str):
        return {"role": "user", "content": {"type": "text", "text": item}}
    if _is_a(item, "Message") or _is_a(item, "PromptMessage"):
        return {"role": item.role, "content": getattr(item.content, "wire", None) or on_wire(item.content)}
    if isinstance(item, Mapping) and item.get("role") in _ROLES and isinstance(item.get("content"), Mapping):
        return {"role": item["role"], "content": item["content"]}
    raise EncodeError(
        f"The prompt gave {type(item).__name__} as message {index + 1}. Return a text, or a list of texts and Message."
    )


def _refuse_questions(value: Any) -> None:
    if kind_of(type(value)) == "input_required":
        raise EncodeError("It returned InputRequiredResult; use ctx.elicit() to ask the caller instead.")


def _is_a(value: Any, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] in _PACKAGES for kind in type(value).__mro__)
