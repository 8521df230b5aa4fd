"""Arguments against a tool's JSON Schema.

Compiled once per catalogue, so that a call only pays for the check. References that leave the schema are refused
when it is compiled, never fetched; patterns have a bounded number of backtracking steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from tooldock.errors import ConfigError, InvalidArguments

_MAX_ERRORS = 20
_SAID = 5
"""Faults named in the message, which is all that a model may see of them."""
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1 << 20, dfa_size_limit=1 << 20)


_DEFAULT = "https://json-schema.org/draft/2020-12/schema"
_DRAFTS: dict[str, Any] = {
    _DEFAULT: jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
}


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is outside the schema")


class Validator:
    """The compiled argument check of one tool."""

    __slots__ = ("_check", "_is_valid", "_tool")

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        dialect = schema.get("$schema", _DEFAULT)
        draft = _DRAFTS.get(dialect.rstrip("#")) if isinstance(dialect, str) else None
        if draft is None:
            raise ConfigError(
                f"The input schema of tool {tool!r} is written in a dialect of JSON Schema that is not known here: "
                f"{str(dialect)[:200]!r}. Leave $schema out for 2020-12, or name one of {', '.join(_DRAFTS)}.",
                tool=tool,
            )
        try:
            self._check = draft(dict(schema), retriever=_refuse, pattern_options=_PATTERNS, mask="the value")
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            reason = str(error).split("\n", 1)[0]
            raise ConfigError(
                f"The input schema of tool {tool!r} cannot be used: {reason}. A schema may refer only to itself "
                "($defs); copy what it refers to into it.",
                tool=tool,
            ) from None
        self._is_valid = self._check.is_valid

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise `InvalidArguments` with one entry per fault; values are never repeated back."""
        if self._is_valid(arguments):
            return
        errors: list[dict[str, str]] = []
        for error in self._check.iter_errors(arguments):
            path = ".".join(str(part) for part in error.instance_path)
            errors.append({"path": path, "message": error.message})
            if len(errors) == _MAX_ERRORS:
                break
        said = "; ".join(
            f"{one['path']}: {one['message']}" if one["path"] else one["message"] for one in errors[:_SAID]
        )
        more = f" (and {len(errors) - _SAID} more)" if len(errors) > _SAID else ""
        raise InvalidArguments(
            f"The arguments do not fit tool {self._tool!r}: {said}{more}.", tool=self._tool, errors=errors
        )
