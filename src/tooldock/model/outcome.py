"""One call on its way out."""

from __future__ import annotations

from typing import Any, Literal

from tooldock.errors import ToolDockError
from tooldock.model.value import value

Status = Literal["ok", "error"]


@value
class Outcome:
    """What became of a call.

    A result is kept as the JSON text the source produced (`body`), because most wires send it on as it is:
    decoding and encoding a large answer costs more than the call. `content` is set only when the tool returned
    content blocks (images, audio, resources, several texts); otherwise the blocks follow from `body`.
    """

    status: Status
    body: bytes = b"null"
    content: tuple[dict[str, Any], ...] | None = None
    error: ToolDockError | None = None
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    elapsed_ms: float = 0.0
    partial: Literal["", "text", "json"] = ""
    """The source sent only the beginning: `body` is a JSON string with the first part of a text, or of JSON."""
    total_bytes: int = 0
    """Size of the whole result, when only a part of it is here."""
    truncated: int = 0
    """Bytes that were cut because the result was larger than allowed."""
    meta: dict[str, Any] | None = None

    def after(self, elapsed_ms: float) -> Outcome:
        """Note the time it took. For the engine alone, before anyone else has seen this outcome: a copy would cost as
        much as checking the arguments."""
        object.__setattr__(self, "elapsed_ms", elapsed_ms)
        return self
