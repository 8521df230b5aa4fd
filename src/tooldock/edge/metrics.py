"""What happened here, as numbers: plain integers on the hot path, Prometheus text when somebody asks.

A face counts its requests; other rooms hand in collectors of their own. prometheus-client is imported on
the first scrape, so that serving does not wait for it.
"""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tooldock import __version__
from tooldock.edge.http import Request, Response

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

Collect = Callable[[], Iterable["Metric"]]

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts per duration; cumulative only when it is read."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """In the form prometheus-client takes: upper bound as text, requests up to it."""
        running = 0
        rows: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            running += count
            rows.append((bound, running))
        return rows


class Traffic:
    """The requests of one face."""

    __slots__ = ("by_status", "face", "seconds")

    def __init__(self, face: str) -> None:
        self.face = face
        self.by_status: dict[int, int] = {}
        self.seconds = Histogram()

    def count(self, status: int, seconds: float) -> None:
        self.by_status[status] = self.by_status.get(status, 0) + 1
        self.seconds.observe(seconds)


class Metrics:
    def __init__(self) -> None:
        self._faces: dict[str, Traffic] = {}
        self._collectors: list[Collect] = []
        self._registry: CollectorRegistry | None = None
        self._started = time.time()

    def face(self, name: str) -> Traffic:
        return self._faces.setdefault(name, Traffic(name))

    def add(self, collect: Collect) -> None:
        """`collect` is asked at every scrape for prometheus-client metric families."""
        self._collectors.append(collect)

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily("tooldock_http_requests", "HTTP requests answered.", labels=("face", "status"))
        seconds = HistogramMetricFamily(
            "tooldock_http_request_seconds", "Time from request to answer.", labels=("face",)
        )
        for traffic in self._faces.values():
            for status, count in sorted(traffic.by_status.items()):
                requests.add_metric((traffic.face, str(status)), count)
            seconds.add_metric((traffic.face,), traffic.seconds.buckets(), sum_value=traffic.seconds.total)
        yield requests
        yield seconds
        build = GaugeMetricFamily(
            "tooldock_build", "Version and interpreter.", labels=("version", "python", "platform")
        )
        build.add_metric((__version__, platform.python_version(), sys.platform), 1)
        yield build
        yield GaugeMetricFamily("tooldock_start_time_seconds", "When this process started.", value=self._started)
        for collect in self._collectors:
            yield from collect()

    async def respond(self, request: Request) -> Response:
        """`GET /metrics`: OpenMetrics for a client that asks for it, else Prometheus text."""
        if self._registry is None:
            # The first import reads files, so it happens beside the loop.
            self._registry = await asyncio.to_thread(self._register)
        from prometheus_client.exposition import choose_encoder

        accept = request.headers.get(b"accept", b"").decode("latin-1")
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version it cannot compare
            encode, content_type = choose_encoder("")
        return Response(200, encode(self._registry), ((b"content-type", content_type.encode()),))

    def _register(self) -> CollectorRegistry:
        import prometheus_client.exposition
        from prometheus_client import CollectorRegistry

        assert prometheus_client.exposition
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry
