"""Everything that can go wrong with a call, as one tree.

ToolDockError
├── MalformedRequest          the bytes are not a request
│   └── TooLarge              ... and there are too many of them
├── NotAuthenticated          no credential, or a wrong one
├── NotAllowed                a credential without the right (origin, address, role)
├── NamespaceNotFound
├── ToolNotFound
├── ResourceNotFound
├── PromptNotFound
├── InvalidArguments          do not fit the tool's schema
├── PolicyDenied
├── ConfirmationRequired      somebody has to say yes first
├── RateLimited
├── Unavailable               not now: starting, crash loop, queue full, worker lost
├── ExecutionTimeout
├── Cancelled
├── DependencyError           the namespace's environment or files cannot be used
├── ToolFailed                the tool ran and raised
├── NoBackChannel             a tool asked a caller whose wire cannot answer
├── SettingsError             found at start; never reaches a caller
├── ConfigError               a file an operator wrote; file, line, column
└── InternalError             our own fault

An error carries facts: a stable `code`, a message for people (what happened, to what, what to do next) and
`details` for programs. It knows no status number: each dialect has one function from error to envelope.
Messages never hold a secret or an argument's value.
"""

from __future__ import annotations

from typing import Any, ClassVar


class ToolDockError(Exception):
    """Base of the tree; `code` is the stable name programs match on."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same call may succeed, when that is known."""
        value = self.details.get("retry_after")
        return float(value) if value is not None else None


class MalformedRequest(ToolDockError):
    code = "malformed_request"


class TooLarge(MalformedRequest):
    code = "too_large"


class NotAuthenticated(ToolDockError):
    code = "not_authenticated"


class NotAllowed(ToolDockError):
    code = "not_allowed"


class NamespaceNotFound(ToolDockError):
    code = "namespace_not_found"


class ToolNotFound(ToolDockError):
    code = "tool_not_found"


class ResourceNotFound(ToolDockError):
    """`details["uri"]` is what was asked for."""

    code = "resource_not_found"


class PromptNotFound(ToolDockError):
    code = "prompt_not_found"


class InvalidArguments(ToolDockError):
    """`details["errors"]` is a list of `{"path": ..., "message": ...}`."""

    code = "invalid_arguments"


class PolicyDenied(ToolDockError):
    code = "policy_denied"


class ConfirmationRequired(ToolDockError):
    code = "confirmation_required"


class RateLimited(ToolDockError):
    code = "rate_limited"


class Unavailable(ToolDockError):
    code = "unavailable"


class ExecutionTimeout(ToolDockError):
    code = "execution_timeout"


class Cancelled(ToolDockError):
    code = "cancelled"


class DependencyError(ToolDockError):
    code = "dependency_error"


class ToolFailed(ToolDockError):
    """The tool's own exception; its message is the tool's, its traceback stays in the namespace's log."""

    code = "tool_error"


class NoBackChannel(ToolDockError):
    code = "no_back_channel"


class InternalError(ToolDockError):
    code = "internal_error"


class SettingsError(ToolDockError):
    """A setting that cannot be used; found at start, so it never reaches a caller."""

    code = "invalid_settings"


class ConfigError(ToolDockError):
    """A file an operator wrote that cannot be used; `details` has file, line and column."""

    code = "invalid_config"


BY_CODE: dict[str, type[ToolDockError]] = {
    cls.code: cls
    for cls in (
        MalformedRequest,
        TooLarge,
        NotAuthenticated,
        NotAllowed,
        NamespaceNotFound,
        ToolNotFound,
        ResourceNotFound,
        PromptNotFound,
        InvalidArguments,
        PolicyDenied,
        ConfirmationRequired,
        RateLimited,
        Unavailable,
        ExecutionTimeout,
        Cancelled,
        DependencyError,
        ToolFailed,
        NoBackChannel,
        InternalError,
    )
}
"""For errors that crossed a pipe: the code on the wire back to the class."""
