"""ToolDock turns a folder into a governed tool server."""

__version__ = "0.1.0"
