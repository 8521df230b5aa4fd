"""Tools as plain HTTP resources with JSON bodies, and an OpenAPI description of them."""

from tooldock.dialects.rest.envelope import envelope, refuse
from tooldock.dialects.rest.handler import Rest

__all__ = ["Rest", "envelope", "refuse"]
