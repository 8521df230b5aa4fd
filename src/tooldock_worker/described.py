"""What an author said about a tool, resource or prompt, as callers are told: the part that all three share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tooldock_worker.jsontext import EncodeError, dumps
from tooldock_worker.light.values import on_wire
from tooldock_worker.schema import SchemaError

Described = dict[str, Any]

_TEXTS = ("title", "description", "mimeType")


def describe(file: str, record: Any, facts: Described, more: Described) -> Described:
    """`facts`, and what else there is to say: the record's own, then `more`. Raises `SchemaError`."""
    if facts["name"] == "<lambda>":
        raise SchemaError("is a lambda and needs a name=")
    if getattr(record, "auth", None) is not None:
        # Left unchecked, it would look like a lock and be none.
        raise SchemaError("has auth=, which is not checked here; remove it")
    optional = {
        "title": record.title,
        "icons": [on_wire(icon) for icon in record.icons or ()],
        "tags": sorted(record.tags or ()),
        "meta": record.meta,
        "version": None if record.version is None else str(record.version),
        **more,
    }
    said = {**facts, "file": file} | {key: value for key, value in optional.items() if value}
    for key in _TEXTS:
        if not isinstance(said.get(key), str | None):
            raise SchemaError(f"has a {key} that is no text")
    if record.meta is not None and not isinstance(record.meta, Mapping):
        raise SchemaError("has a meta that is no dict")
    try:
        plain: Described = json.loads(dumps(said))  # dates and the like become text, as in results
    except EncodeError as error:
        raise SchemaError("is described in its decorator with a value that JSON cannot carry") from error
    return plain
