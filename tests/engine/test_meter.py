"""The histogram counts what was added, each in its bucket."""

from __future__ import annotations

import pytest

from tooldock.engine.meter import BUCKETS, Meter


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (0.001, 0), (0.0011, 1), (1.0, BUCKETS.index(1.0)), (60.0, len(BUCKETS) - 1), (61.0, len(BUCKETS))],
)
def test_a_duration_lands_in_the_first_bucket_that_holds_it(seconds: float, bucket: int) -> None:
    meter = Meter()
    meter.add("math", "add", "ok", seconds)
    ((_, series),) = meter.series()
    assert series.buckets.index(1) == bucket
    assert sum(series.buckets) == 1


def test_counts_and_sums_are_kept_by_namespace_tool_and_outcome() -> None:
    meter = Meter()
    for seconds in (0.5, 0.25):
        meter.add("math", "add", "ok", seconds)
    meter.add("math", "add", "tool_error", 0.1)
    series = dict(meter.series())
    assert series["math", "add", "ok"].count == 2
    assert series["math", "add", "ok"].total == pytest.approx(0.75)
    assert series["math", "add", "tool_error"].count == 1


def test_series_can_be_read_while_new_ones_appear() -> None:
    meter = Meter()
    meter.add("math", "add", "ok", 0.1)
    for _ in meter.series():
        meter.add("math", "mul", "ok", 0.1)
    assert len(dict(meter.series())) == 2
