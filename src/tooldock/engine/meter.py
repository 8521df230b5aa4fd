"""Counts of what happened, as plain numbers: adding one must cost nothing next to a call.

Whoever exposes them turns them into a metrics format when asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the latency histogram, in seconds."""


class Series:
    """One histogram: calls of one tool with one outcome."""

    __slots__ = ("buckets", "count", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.count = 0
        self.total = 0.0


class Meter:
    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], Series] = {}

    def add(self, namespace: str, tool: str, status: str, seconds: float) -> None:
        key = (namespace, tool, status)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series()
        series.count += 1
        series.total += seconds
        series.buckets[bisect_left(BUCKETS, seconds)] += 1

    def series(self) -> Iterator[tuple[tuple[str, str, str], Series]]:
        return iter(list(self._series.items()))
