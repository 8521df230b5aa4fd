"""Several tools in one file: every function with `@tool` becomes one."""

import math

from fastmcp.exceptions import ToolError
from fastmcp.tools import tool


@tool(annotations={"readOnlyHint": True})
def add(a: float, b: float) -> float:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        Their sum.
    """
    return a + b


@tool(annotations={"readOnlyHint": True})
def multiply(a: float, b: float) -> float:
    """Multiply two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        Their product.
    """
    return a * b


@tool(annotations={"readOnlyHint": True})
def mean(numbers: list[float]) -> float:
    """Average a list of numbers.

    Args:
        numbers: At least one number.

    Returns:
        The arithmetic mean.
    """
    if not numbers:
        raise ToolError("An empty list has no mean; pass at least one number.")
    return math.fsum(numbers) / len(numbers)
