"""What the operator serves: the only reader of operators' YAML. Complaints name file, line and column."""

from tooldock.config.gateway import GatewayConfig, read_gateway
from tooldock.config.load import load_yaml, parse_yaml
from tooldock.config.locate import Located, Place
from tooldock.config.namespace import Limits, NamespaceConfig, ToolConfig, read_namespace

__all__ = [
    "GatewayConfig",
    "Limits",
    "Located",
    "NamespaceConfig",
    "Place",
    "ToolConfig",
    "load_yaml",
    "parse_yaml",
    "read_gateway",
    "read_namespace",
]
