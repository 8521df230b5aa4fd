"""What a tool returned, for a person: text as it is, everything else as indented JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from tooldock.cli.terminal import is_terminal, printable


def show(value: Any) -> None:
    for text in _texts(value):
        # A file or a program gets what the tool returned, unchanged; a terminal must not be steered by it.
        click.echo(printable(text) if is_terminal(sys.stdout) else text, color=True)


def _texts(value: Any) -> list[str]:
    if _is_blocks(value):
        texts = [_block(block) for block in value["content"]]
        if value["structured"] is not None and value["structured"] != {}:
            texts.append(_json(value["structured"]))
        return texts
    return [value if isinstance(value, str) else _json(value)]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _is_blocks(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"content", "structured"}
        and isinstance(value["content"], list)
        and all(isinstance(block, dict) and "type" in block for block in value["content"])
    )


def _block(block: Mapping[str, Any]) -> str:
    kind = str(block["type"])
    if kind == "text":
        return str(block.get("text", ""))
    if kind in ("image", "audio"):
        size = len(str(block.get("data", ""))) * 3 // 4
        return f"[{kind}, {block.get('mimeType', 'unknown type')}, {size} bytes; --raw shows the data]"
    if kind == "resource_link":
        return f"[link to {block.get('uri', '')}]"
    if kind == "resource":
        resource = block.get("resource")
        if isinstance(resource, dict) and isinstance(resource.get("text"), str):
            return str(resource["text"])
        uri = resource.get("uri", "") if isinstance(resource, dict) else ""
        return f"[resource {uri}; --raw shows the data]"
    return _json(dict(block))
