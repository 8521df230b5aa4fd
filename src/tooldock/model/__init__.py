"""The nouns: frozen values that travel, and the ports between rooms. No I/O, no clock."""

from tooldock.model.call import Call, Caller, Kind, Role
from tooldock.model.namespace import Namespace, NamespaceStatus
from tooldock.model.outcome import Outcome, Status
from tooldock.model.ports import AskKind, Channel, Item, LogLevel, SilentChannel, ToolSource
from tooldock.model.prompt import Argument, Prompt
from tooldock.model.resource import Resource
from tooldock.model.tool import Tool

__all__ = [
    "Argument",
    "AskKind",
    "Call",
    "Caller",
    "Channel",
    "Item",
    "Kind",
    "LogLevel",
    "Namespace",
    "NamespaceStatus",
    "Outcome",
    "Prompt",
    "Resource",
    "Role",
    "SilentChannel",
    "Status",
    "Tool",
    "ToolSource",
]
