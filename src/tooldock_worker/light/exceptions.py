"""The exceptions tool files may import from `fastmcp.exceptions`."""

from __future__ import annotations

import logging


class FastMCPError(Exception):
    """Base of the errors whose text is meant for the caller."""

    def __init__(self, *args: object, log_level: int = logging.ERROR) -> None:
        super().__init__(*args)
        self.log_level = log_level


class ToolError(FastMCPError):
    """The tool cannot do what was asked; its text goes to the caller as it is."""


class ValidationError(FastMCPError):
    """A value the tool was given or got does not fit."""


class ResourceError(FastMCPError):
    """A resource cannot be read."""


class PromptError(FastMCPError):
    """A prompt cannot be rendered."""


class AuthorizationError(FastMCPError):
    """The caller may not do this."""


class InvalidSignature(Exception):
    """A function that cannot be served."""


class ClientError(Exception):
    """A client's request failed."""


class NotFoundError(Exception):
    """What was asked for does not exist."""


class DisabledError(Exception):
    """What was asked for is switched off."""


_PACKAGES = frozenset({"fastmcp", "mcp", "tooldock_worker"})


def speaks_to_caller(error: BaseException) -> bool:
    """Whether the text was written for the caller: one of these, or the real package's."""
    return _is_a(error, "FastMCPError", "ToolError")


def says_not_found(error: BaseException) -> bool:
    """Whether a resource's function says that there is nothing at this URI."""
    return _is_a(error, "NotFoundError")


def _is_a(error: BaseException, *names: str) -> bool:
    return any(
        kind.__name__ in names and kind.__module__.partition(".")[0] in _PACKAGES for kind in type(error).__mro__
    )
