"""The module tree `fastmcp` as tool files import it, made of this package's parts.

Only what can work inside a worker is there. Any other name fails at import with the way out.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Annotated, Any, NoReturn

from pydantic import Field

from tooldock_worker import elicitation
from tooldock_worker.context import Context, get_context
from tooldock_worker.light import exceptions
from tooldock_worker.light.decorator import ToolMeta, tool
from tooldock_worker.light.dependencies import CurrentContext, Depends
from tooldock_worker.light.prompts import Message, PromptMeta, PromptResult, prompt
from tooldock_worker.light.resources import (
    ResourceContent,
    ResourceMeta,
    ResourceResult,
    ResourceSecurity,
    resource,
)
from tooldock_worker.light.values import Audio, File, Image, ToolResult

_HINT = "this is ToolDock's light fastmcp, add fastmcp to requirements.txt for the full package"


def _get_logger(name: str) -> logging.Logger:
    return logging.getLogger(name if name.startswith("fastmcp") else f"fastmcp.{name}")


_CONTEXT = {"Context": Context}
_DEPENDENCIES = {"CurrentContext": CurrentContext, "Depends": Depends}
_TREE: dict[str, dict[str, Any]] = {
    "fastmcp": _CONTEXT,
    "fastmcp.dependencies": _DEPENDENCIES,
    "fastmcp.exceptions": {
        name: value
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and issubclass(value, Exception)
    },
    "fastmcp.prompts": {"Message": Message, "PromptResult": PromptResult, "prompt": prompt},
    "fastmcp.prompts.base": {"Message": Message, "PromptResult": PromptResult},
    "fastmcp.prompts.function_prompt": {"PromptMeta": PromptMeta, "prompt": prompt},
    "fastmcp.resources": {
        "ResourceContent": ResourceContent,
        "ResourceResult": ResourceResult,
        "ResourceSecurity": ResourceSecurity,
        "resource": resource,
    },
    "fastmcp.resources.base": {"ResourceContent": ResourceContent, "ResourceResult": ResourceResult},
    "fastmcp.resources.function_resource": {"ResourceMeta": ResourceMeta, "resource": resource},
    "fastmcp.resources.security": {"ResourceSecurity": ResourceSecurity},
    "fastmcp.server": _CONTEXT,
    "fastmcp.server.context": _CONTEXT,
    "fastmcp.server.dependencies": {"get_context": get_context, **_DEPENDENCIES},
    "fastmcp.server.elicitation": {
        "AcceptedElicitation": elicitation.AcceptedElicitation,
        "CancelledElicitation": elicitation.CancelledElicitation,
        "DeclinedElicitation": elicitation.DeclinedElicitation,
    },
    "fastmcp.tools": {"ToolResult": ToolResult, "tool": tool},
    "fastmcp.tools.base": {"ToolResult": ToolResult},
    "fastmcp.tools.function_tool": {"ToolMeta": ToolMeta, "tool": tool},
    # Where ToolResult lived in version 3; `fastmcp.tools.tool` as an attribute stays the decorator.
    "fastmcp.tools.tool": {"ToolResult": ToolResult},
    "fastmcp.types": {"Textarea": Annotated[str, Field(json_schema_extra={"format": "textarea"})]},
    "fastmcp.utilities": {},
    "fastmcp.utilities.logging": {"get_logger": _get_logger},
    "fastmcp.utilities.types": {"Audio": Audio, "File": File, "Image": Image},
}


class _Refuser:
    """The last finder to be asked for a submodule that is not there; it says why."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name.startswith("fastmcp."):
            raise ModuleNotFoundError(f"There is no module {name}: {_HINT}.", name=name)


def install() -> bool:
    """Make the light package importable; False where the real one is installed, which then serves."""
    present = sys.modules.get("fastmcp")
    if present is not None:
        return getattr(present, "__tooldock_light__", False)
    found = importlib.util.find_spec("fastmcp")
    if found is not None and found.submodule_search_locations is not None:
        return False  # a package; a single file of that name is somebody's tool file
    for name, members in _TREE.items():
        sys.modules[name] = _module(name, members)
    for name in _TREE:
        parent, _, child = name.rpartition(".")
        if parent and child not in _TREE[parent]:
            setattr(sys.modules[parent], child, sys.modules[name])
    sys.meta_path.append(_Refuser())
    return True


def _module(name: str, members: dict[str, Any]) -> ModuleType:
    module = ModuleType(name, f"ToolDock's light {name}.")
    is_package = any(other.startswith(f"{name}.") for other in _TREE)
    module.__spec__ = ModuleSpec(name, None, is_package=is_package)
    if is_package:
        module.__path__ = []
    module.__dict__.update(members, __all__=sorted(members), __getattr__=_missing(name))
    if name == "fastmcp":
        module.__dict__["__tooldock_light__"] = True
    return module


def _missing(module: str) -> Callable[[str], NoReturn]:
    def __getattr__(name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        # Not AttributeError: `from fastmcp import X` would replace its text by a general one.
        import difflib

        near = difflib.get_close_matches(name, _TREE[module], n=1)
        advice = f"did you mean {near[0]}?" if near else f"{_HINT}."
        raise ImportError(f"{module} has no {name}: {advice}", name=module)

    return __getattr__
