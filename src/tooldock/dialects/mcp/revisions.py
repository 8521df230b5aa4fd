"""The protocol's revisions: which there are, which this gateway speaks, which one a client gets.

Revisions are dates, so `revision >= R2025_06_18` asks whether something exists in it.
"""

from __future__ import annotations

from collections.abc import Iterable

R2024_11_05 = "2024-11-05"
R2025_03_26 = "2025-03-26"
R2025_06_18 = "2025-06-18"
R2025_11_25 = "2025-11-25"
R2026_07_28 = "2026-07-28"

HANDSHAKE = (R2025_11_25, R2025_06_18, R2025_03_26, R2024_11_05)
"""Newest first: a client says `initialize`, and a session follows."""
STATELESS = (R2026_07_28,)
"""Every request says by itself who asks, in what revision and with what abilities."""


class Revisions:
    """Those an operator left switched on."""

    __slots__ = ("handshake", "served", "stateless")

    def __init__(self, supported: Iterable[str], *, legacy: bool = True) -> None:
        wanted = set(supported)
        if not legacy:
            wanted.discard(R2024_11_05)
        self.handshake = tuple(revision for revision in HANDSHAKE if revision in wanted)
        self.stateless = tuple(revision for revision in STATELESS if revision in wanted)
        self.served = frozenset(self.handshake + self.stateless)

    def negotiate(self, requested: object) -> str | None:
        """What `initialize` is answered with: the revision asked for, else the newest; None when none has sessions."""
        if isinstance(requested, str) and requested in self.handshake:
            return requested
        return self.handshake[0] if self.handshake else None

    def listed(self) -> list[str]:
        """Newest first, for people and for errors."""
        return [*self.stateless, *self.handshake]
