"""How what a namespace offers, and what became of a call, look in each revision.

A revision gets no member that it does not know: clients of old ones may decode strictly. What an old revision cannot
show at all (a sound, a link) becomes a line of text that says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from tooldock import __version__
from tooldock.dialects.mcp.jsonrpc import dump
from tooldock.dialects.mcp.revisions import R2025_03_26, R2025_06_18, R2025_11_25, R2026_07_28
from tooldock.errors import NoBackChannel, ToolDockError
from tooldock.model import Outcome, Prompt, Resource, Tool

SERVER_INFO = {"name": "tooldock", "version": __version__}

_WRAPS = "x-fastmcp-wrap-result"
_SERVER_META = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
COMPLETE = b',"resultType":"complete","_meta":%b}' % orjson.dumps(_SERVER_META)
"""The end of every result of the stateless revision."""
PRIVATE = b',"ttlMs":%d,"cacheScope":"private"'
ERROR_KEY = "tooldock/error"
_META = b'"_meta"'


# What is on offer.


def tool(item: Tool, revision: str) -> dict[str, Any]:
    shaped: dict[str, Any] = {"name": item.name}
    if item.title and revision >= R2025_06_18:
        shaped["title"] = item.title
    if item.description:
        shaped["description"] = item.description
    shaped["inputSchema"] = _object_schema(item.input_schema)
    if item.output_schema is not None and revision >= R2025_06_18:
        schema = output_schema(item.output_schema, revision)
        if schema is not None:
            shaped["outputSchema"] = schema
    if revision >= R2025_03_26:
        hints = dict(item.annotations)
        if item.title and revision < R2025_06_18:
            hints.setdefault("title", item.title)
        if hints:
            shaped["annotations"] = hints
    return _with_icons(shaped, item.icons, item.meta, revision)


def resource(item: Resource, revision: str, *, template: bool = False) -> dict[str, Any]:
    shaped: dict[str, Any] = {"uriTemplate" if template else "uri": item.uri, "name": item.name}
    if item.title and revision >= R2025_06_18:
        shaped["title"] = item.title
    if item.description:
        shaped["description"] = item.description
    if item.mime_type:
        shaped["mimeType"] = item.mime_type
    if item.size is not None and not template:
        shaped["size"] = item.size
    notes = _notes(item.annotations, revision)
    if notes:
        shaped["annotations"] = notes
    return _with_icons(shaped, item.icons, item.meta, revision)


def prompt(item: Prompt, revision: str) -> dict[str, Any]:
    shaped: dict[str, Any] = {"name": item.name}
    if item.title and revision >= R2025_06_18:
        shaped["title"] = item.title
    if item.description:
        shaped["description"] = item.description
    shaped["arguments"] = [
        {
            "name": argument.name,
            **({"description": argument.description} if argument.description else {}),
            "required": argument.required,
        }
        for argument in item.arguments
    ]
    return _with_icons(shaped, item.icons, item.meta, revision)


def output_schema(schema: Mapping[str, Any], revision: str) -> Mapping[str, Any] | None:
    """Until the stateless revision a result is an object; another one travels as the member `result` of one."""
    if revision >= R2026_07_28 or schema.get("type") == "object":
        return schema
    text = orjson.dumps(schema)
    if text.count(b'"$ref":"#') > text.count(b'"$ref":"#/$defs/'):
        return None  # it refers to a place in itself that would be another one in the object around it
    inner = dict(schema)
    definitions = inner.pop("$defs", None)
    wrapped: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    if definitions is not None:
        wrapped["$defs"] = definitions
    return wrapped


def implementation(namespace: str, description: str, revision: str) -> dict[str, Any]:
    info: dict[str, Any] = dict(SERVER_INFO)
    if revision >= R2025_06_18:
        info["title"] = f"ToolDock: {namespace}"
    if description and revision >= R2025_11_25:
        info["description"] = description
    return info


# What a tool asks.


def form(schema: Mapping[str, Any], revision: str) -> Mapping[str, Any]:
    """A form as far as the revision knows it: until 2025-11-25 choices have one list of names, one is chosen, and only
    yes or no has a default. A form that asks for more cannot be asked at all."""
    if revision >= R2025_11_25:
        return schema
    fields = {name: _plain_field(name, field) for name, field in schema.get("properties", {}).items()}
    return {**schema, "properties": fields}


def _plain_field(name: str, field: Mapping[str, Any]) -> Mapping[str, Any]:
    if field.get("type") == "array":
        raise NoBackChannel(
            f"The tool's question has a field {name!r} with several choices, which this client's revision of MCP does "
            "not know. Use a client that speaks 2025-11-25 or newer."
        )
    plain = {key: value for key, value in field.items() if key != "oneOf"}
    if field.get("type") != "boolean":
        plain.pop("default", None)
    choices = field.get("oneOf")
    if isinstance(choices, list):
        plain["enum"] = [choice.get("const") for choice in choices]
        plain["enumNames"] = [choice.get("title", choice.get("const")) for choice in choices]
    return plain


# What became of a call.


def call_result(outcome: Outcome, item: Tool, revision: str) -> bytes:
    """A `CallToolResult` for an outcome that is the tool's own: a value, content, or a failure the model may see."""
    schema = item.output_schema
    if outcome.error is not None and outcome.content is None:
        return _failure(outcome.error, schema is not None, revision)
    if outcome.content is not None:
        return _content_result(outcome, revision)
    body = outcome.body
    if body.startswith(b'"'):
        content = b'[{"type":"text","text":%b}]' % body
    elif body == b"null":
        content = b"[]"
    else:
        content = b'[{"type":"text","text":%b}]' % orjson.dumps(body.decode())
    if outcome.truncated and schema is not None:
        # What is left does not fit what the tool promised, so it cannot be offered as its result.
        return _finish(b'{"content":%b,"isError":true' % content, outcome, revision)
    if revision < R2025_06_18:
        return b'{"content":%b,"isError":false}' % content
    structured = _structured(body, schema, revision)
    if structured is None:
        return _finish(b'{"content":%b,"isError":false' % content, outcome, revision)
    return _finish(b'{"content":%b,"structuredContent":%b,"isError":false' % (content, structured), outcome, revision)


def is_any_text(schema: Mapping[str, Any]) -> bool:
    """Whether a tool promises no more than a text, which is the commonest promise."""
    properties = schema.get("properties")
    inner = properties.get("result") if schema.get(_WRAPS) and isinstance(properties, dict) else None
    return isinstance(inner, dict) and inner.get("type") == "string" and not inner.keys() - {"type", "title"}


def promised(outcome: Outcome, item: Tool) -> Any:
    """The value that has to fit the output schema as the tool declared it."""
    value = orjson.loads(outcome.body)
    wraps = outcome.content is None and item.output_schema is not None and item.output_schema.get(_WRAPS)
    return {"result": value} if wraps else value


def complete(result: bytes, revision: str, *, ttl_ms: int | None = None) -> bytes:
    """An object as the result of a request; the stateless revision wants more members."""
    if revision < R2026_07_28:
        return result
    more = COMPLETE if ttl_ms is None else PRIVATE % ttl_ms + COMPLETE
    return b"{" + more[1:] if result == b"{}" else result[:-1] + more


def read_result(body: bytes, revision: str) -> bytes:
    """What was read at a URI."""
    if revision < R2025_06_18 and _META in body:
        read = orjson.loads(body)
        read["contents"] = [_without(part, "_meta") for part in read["contents"]]
        body = dump(read)
    return _own(body, PRIVATE % 0, revision)


def prompt_result(body: bytes, revision: str) -> bytes:
    """A rendered prompt."""
    if revision < R2025_11_25:
        rendered = orjson.loads(body)
        for entry in rendered["messages"]:
            entry["content"] = block(entry["content"], revision)
        body = dump(rendered)
    return _own(body, b"", revision)


def block(content: Any, revision: str) -> Any:
    """One content block, as far as the revision can show it."""
    if not isinstance(content, dict) or revision >= R2025_11_25:
        return content
    if revision >= R2025_06_18:
        return _without(content, "icons")
    kind = content.get("type")
    if kind == "audio" and revision < R2025_03_26:
        return {"type": "text", "text": f"[audio, {content.get('mimeType', 'unknown type')}: not shown here]"}
    if kind == "resource_link":
        return {"type": "text", "text": f"{content.get('name', 'resource')}: {content.get('uri', '')}"}
    shown = _without(content, "_meta")
    if isinstance(shown.get("resource"), dict):
        shown["resource"] = _without(shown["resource"], "_meta")
    if isinstance(shown.get("annotations"), dict):
        shown["annotations"] = _notes(shown["annotations"], revision)
    return shown


def _structured(body: bytes, schema: Mapping[str, Any] | None, revision: str) -> bytes | None:
    """A value for programs: what the schema promises, or an object without a promise."""
    if schema is None:
        return body if body.startswith(b"{") else None
    if schema.get(_WRAPS):
        return b'{"result":%b}' % body
    if revision >= R2026_07_28 or schema.get("type") == "object":
        return body
    return b'{"result":%b}' % body


def _content_result(outcome: Outcome, revision: str) -> bytes:
    assert outcome.content is not None
    content = dump([block(item, revision) for item in outcome.content])
    failed = b"true" if outcome.status == "error" else b"false"
    if outcome.body == b"null" or revision < R2025_06_18:
        return _finish(b'{"content":%b,"isError":%b' % (content, failed), outcome, revision)
    return _finish(
        b'{"content":%b,"structuredContent":%b,"isError":%b' % (content, outcome.body, failed), outcome, revision
    )


def _failure(error: ToolDockError, promised: bool, revision: str) -> bytes:
    """A call that failed, as a result, so that the model behind the client can read why and try again.

    Programs get the facts as structured content; not where the tool promised another shape, since clients check it.
    """
    facts = {"code": error.code, "message": error.message, "details": error.details}
    head = b'{"content":[{"type":"text","text":%b}]' % dump(error.message)
    if revision < R2025_06_18:
        return head + b',"isError":true}'
    meta: dict[str, Any] = {}
    if promised:
        meta[ERROR_KEY] = facts
    else:
        head += b',"structuredContent":%b' % dump({"error": facts})
    return _end(head + b',"isError":true', meta, revision)


def _finish(result: bytes, outcome: Outcome, revision: str) -> bytes:
    if outcome.meta is None:
        return result + (COMPLETE if revision >= R2026_07_28 else b"}")
    return _end(result, outcome.meta if revision >= R2025_06_18 else {}, revision)


def _end(result: bytes, meta: Mapping[str, Any], revision: str) -> bytes:
    if not meta:
        return result + (COMPLETE if revision >= R2026_07_28 else b"}")
    if revision >= R2026_07_28:
        return result + b',"resultType":"complete","_meta":%b}' % dump({**meta, **_SERVER_META})
    return result + b',"_meta":%b}' % dump(meta)


def _own(body: bytes, hints: bytes, revision: str) -> bytes:
    """What a namespace rendered as a whole, whose own `_meta` and the server's become one."""
    if revision < R2026_07_28:
        return body
    meta: dict[str, Any] = {}
    if _META in body:
        rendered = orjson.loads(body)
        meta = rendered.pop("_meta", meta)
        body = dump(rendered)
    return _end(body[:-1] + hints, meta, revision)


def _notes(annotations: Mapping[str, Any], revision: str) -> dict[str, Any]:
    """For whom a resource or block is, and how important; since 2025-06-18 also of when."""
    return dict(annotations) if revision >= R2025_06_18 else _without(annotations, "lastModified")


def _without(members: Mapping[str, Any], unknown: str) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name != unknown}


def _object_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Clients insist on the word."""
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def _with_icons(
    shaped: dict[str, Any], icons: Iterable[Mapping[str, Any]], meta: Mapping[str, Any], revision: str
) -> dict[str, Any]:
    pictures = [dict(icon) for icon in icons]
    if pictures and revision >= R2025_11_25:
        shaped["icons"] = pictures
    if meta and revision >= R2025_06_18:
        shaped["_meta"] = dict(meta)
    return shaped
