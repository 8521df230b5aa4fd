"""The nouns: frozen values that travel, and the ports between rooms. No I/O, no clock."""

from tooldock.model.call import Call, Caller, Role
from tooldock.model.namespace import Namespace, NamespaceStatus
from tooldock.model.outcome import Outcome, Status
from tooldock.model.ports import AskKind, Channel, LogLevel, SilentChannel, ToolSource
from tooldock.model.tool import Tool

__all__ = [
    "AskKind",
    "Call",
    "Caller",
    "Channel",
    "LogLevel",
    "Namespace",
    "NamespaceStatus",
    "Outcome",
    "Role",
    "SilentChannel",
    "Status",
    "Tool",
    "ToolSource",
]
