"""The smallest namespace: one file, one function.

Copy this folder into `tools/` of the data directory, under the name the namespace should have.
"""

from fastmcp.tools import tool


@tool(annotations={"readOnlyHint": True})
def say_hello(name: str = "World") -> str:
    """Greet someone by name.

    Args:
        name: Who to greet. Without a name, the whole world is greeted.

    Returns:
        The greeting.
    """
    return f"Hello, {name}!"
