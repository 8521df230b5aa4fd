"""Shared by the tool files beside it. The underscore keeps it from being searched for tools."""

import re

_WORD = re.compile(r"\w+(?:'\w+)?")


def words(text: str) -> list[str]:
    return _WORD.findall(text)
