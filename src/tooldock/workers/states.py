"""The states of a supervised process.

IDLE ──first use──▶ STARTING ──ready──▶ READY ──exit, had proven itself──▶ STARTING
                      │  ▲                └──idle too long──▶ IDLE
         early death  ▼  │ pause over
                    BACKOFF ──too many early deaths──▶ CRASH_LOOP ──pause over──▶ STARTING
any ──close──▶ CLOSED
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    IDLE = "idle"
    """Nothing runs and nothing is needed."""
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    """It died before it was of use; the next try comes after a pause. Calls wait."""
    CRASH_LOOP = "crash_loop"
    """It died early again and again. Calls are refused until a try succeeds."""
    CLOSED = "closed"
