"""Results that are larger than allowed: cut with a marker that says how much is missing, or refused."""

from __future__ import annotations

from dataclasses import replace

import orjson

from tooldock.errors import ToolFailed
from tooldock.model import Kind, Outcome


def whole(outcome: Outcome, limit: int, kind: Kind) -> Outcome:
    """The outcome itself; a resource or prompt that is too large is refused, since half of one is of no use."""
    if len(outcome.body) <= limit:
        return outcome
    raise ToolFailed(
        f"The {kind} has {len(outcome.body):,} bytes; {limit:,} are allowed. Serve it in smaller parts, or raise "
        "limits.max_output_size in tooldock.yaml (or MAX_OUTPUT_SIZE)."
    )


def fit(outcome: Outcome, limit: int) -> Outcome:
    """The outcome itself when it is small enough; otherwise its beginning.

    A text stays a text and ends with the marker. Other JSON cannot be cut and stay JSON, so its beginning is
    given as text, in an object that says so.
    """
    if len(outcome.body) <= limit and not outcome.partial:
        return outcome
    if outcome.content is not None:
        raise ToolFailed(
            f"The tool returned {len(outcome.body):,} bytes of content; {limit:,} are allowed. Return less, or raise "
            "limits.max_output_size in tooldock.yaml (or MAX_OUTPUT_SIZE)."
        )
    if outcome.partial:
        kind, text, total = outcome.partial, orjson.loads(outcome.body), outcome.total_bytes
    elif outcome.body.startswith(b'"'):
        kind, text = "text", orjson.loads(outcome.body)
        total = len(text.encode())
        if total <= limit:
            return outcome
    else:
        kind, text, total = "json", outcome.body.decode(), len(outcome.body)
    beginning = text.encode()[:limit].decode(errors="ignore")
    shown = len(beginning.encode())
    if kind == "text":
        body = orjson.dumps(f"{beginning}\n[cut: the first {shown:,} of {total:,} bytes are shown]")
    else:
        body = orjson.dumps({"truncated": True, "shown_bytes": shown, "total_bytes": total, "text": beginning})
    return replace(outcome, body=body, partial="", total_bytes=total, truncated=total - shown)
