"""MCP clients that others wrote, each doing the same round of things with a real gateway."""
