"""`config.yaml` in the data directory: settings for the gateway, and policies that outlive a tool folder.

    settings:
      log_level: debug
      tool_call_timeout_seconds: 30
    policies:
      github: {...}

What the settings mean is decided in `settings.py`, which gets them as a plain mapping; policies are handed on
as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tooldock.config.load import load_yaml
from tooldock.config.locate import Located


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    settings: Mapping[str, Any] = field(default_factory=dict)
    policies: Mapping[str, Any] = field(default_factory=dict)


def read_gateway(path: Path) -> GatewayConfig:
    """No file is an empty one."""
    try:
        root = load_yaml(path, path.name)
    except FileNotFoundError:
        return GatewayConfig()
    return gateway_config(root)


def gateway_config(root: Located) -> GatewayConfig:
    values = root.mapping("config.yaml must be a mapping, like\n  settings:\n    log_level: debug")
    root.only(("settings", "policies"), "config.yaml")
    return GatewayConfig(
        settings=_plain(values.get("settings"), "'settings' must be a mapping, like\n  settings:\n    port: 8000"),
        policies=_plain(values.get("policies"), "'policies' must be a mapping from namespaces to their policy."),
    )


def _plain(node: Located | None, complaint: str) -> Mapping[str, Any]:
    if node is None:
        return {}
    return {name: item.plain() for name, item in node.mapping(complaint).items()}
