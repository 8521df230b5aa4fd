"""Numbers for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.edge.world import BEARER, ask, front
from tooldock.edge import Metrics


async def test_both_formats_tell_the_same_and_other_rooms_are_heard() -> None:
    metrics = Metrics()

    def calls() -> Iterable[Metric]:
        yield CounterMetricFamily("tooldock_calls", "Calls.", value=7)

    metrics.add(calls)
    traffic = metrics.face("core")
    for seconds in (0.0001, 0.0005, 0.3, 100.0):
        traffic.count(200, seconds)
    traffic.count(404, 0.0)
    app = front(metrics.respond)
    plain = await ask(app, "GET", "/metrics", BEARER)
    opened = await ask(app, "GET", "/metrics", {**BEARER, "accept": "application/openmetrics-text; version=1.0.0"})
    assert (plain.header("content-type") or "").startswith("text/plain")
    assert (opened.header("content-type") or "").startswith("application/openmetrics-text")
    as_opened = openmetrics.text_string_to_metric_families(opened.body.decode())  # type: ignore[no-untyped-call]
    for families in (parse_text(plain.body.decode()), as_opened):
        samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
        assert samples[("tooldock_calls_total",)] == 7
        assert samples[("tooldock_http_requests_total", ("face", "core"), ("status", "200"))] == 4
        assert samples[("tooldock_http_requests_total", ("face", "core"), ("status", "404"))] == 1
        assert samples[("tooldock_http_request_seconds_count", ("face", "core"))] == 5
        assert samples[("tooldock_http_request_seconds_bucket", ("face", "core"), ("le", "0.0005"))] == 3
        assert samples[("tooldock_http_request_seconds_bucket", ("face", "core"), ("le", "60.0"))] == 4


async def test_metrics_need_a_token() -> None:
    assert (await ask(front(Metrics().respond), "GET", "/metrics")).status == 401


async def test_an_accept_header_that_makes_no_sense_gets_plain_text() -> None:
    app = front(Metrics().respond)
    answer = await ask(app, "GET", "/metrics", {**BEARER, "accept": "application/openmetrics-text; version=x.y"})
    assert answer.status == 200
    assert (answer.header("content-type") or "").startswith("text/plain")
