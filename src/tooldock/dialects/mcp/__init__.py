"""MCP, every revision: over HTTP (`http`) and over a pipe (`stdio`)."""
