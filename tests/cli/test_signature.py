from __future__ import annotations

from typing import Any

import pytest

from tooldock.cli.signature import signature


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({}, "f()"),
        ({"properties": {"a": {"type": "number"}}, "required": ["a"]}, "f(a: number)"),
        (
            {"properties": {"a": {"type": "number", "default": 1}, "b": {"type": "string"}}, "required": ["b"]},
            "f(b: string, a: number = 1)",
        ),
        ({"properties": {"a": {"type": "string"}}}, "f(a?: string)"),
        ({"properties": {"a": {"default": "x" * 50}}}, "f(a: any = …)"),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, "f(a?: string[])"),
        (
            {"properties": {"a": {"type": "array", "items": {"type": ["string", "null"]}}}},
            "f(a?: (string | null)[])",
        ),
        ({"properties": {"a": {"enum": ["x", 1]}}}, 'f(a?: "x" | 1)'),
        ({"properties": {"a": {"const": True}}}, "f(a?: true)"),
        ({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}, "f(a?: integer | null)"),
        (
            {"properties": {"a": {"$ref": "#/$defs/Issue"}}, "$defs": {"Issue": {"type": "object"}}},
            "f(a?: Issue)",
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/Colour"}}, "$defs": {"Colour": {"enum": ["red"]}}},
            'f(a?: "red")',
        ),
        ({"properties": {"a": True}}, "f(a?: any)"),
        ({"properties": {"a\x1b[2J": {"type": "string"}}}, "f(a\\x1b[2J?: string)"),
    ],
)
def test_a_schema_reads_like_a_signature(schema: dict[str, Any], shown: str) -> None:
    assert signature("f", schema) == shown
