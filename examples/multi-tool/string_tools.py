"""Several files in one namespace: their tools are served together."""

from typing import Literal

from _words import words
from fastmcp.tools import tool


@tool(annotations={"readOnlyHint": True})
def count_words(text: str) -> dict[str, int]:
    """Count how often each word occurs in a text, ignoring case.

    Args:
        text: Any text.

    Returns:
        The words with their counts, in order of appearance.
    """
    counts: dict[str, int] = {}
    for word in words(text):
        counts[word.lower()] = counts.get(word.lower(), 0) + 1
    return counts


@tool(annotations={"readOnlyHint": True})
def change_case(text: str, style: Literal["upper", "lower", "title", "snake"] = "title") -> str:
    """Write a text in another case.

    Args:
        text: Any text.
        style: The case to write it in; snake joins the words with underscores.

    Returns:
        The text in that case.
    """
    if style == "snake":
        return "_".join(word.lower() for word in words(text))
    return {"upper": text.upper, "lower": text.lower, "title": text.title}[style]()
