"""Metrics, events and spans of the observer."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import parser

from esclusa.observability import log, traces
from esclusa.observability.metrics import BUCKETS, MOST_LABELS, Metrics
from esclusa.observability.telemetry import Observer
from esclusa.ports.telemetry import Telemetry


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    log.configure("json", "info", stream=stream)
    yield stream
    log.configure("auto", "info")
    root.handlers[:] = handlers
    root.setLevel(level)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    page, kind = metrics.render()
    assert kind.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in parser.text_string_to_metric_families(page.decode())
        for sample in metric.samples
    }


def test_every_metric_is_on_the_page() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.settled("media.download", "moved", [0.02])
    metrics.settled("media.download", "retried", [7.0])
    metrics.claimed("media.download", 500, 0.004)
    metrics.claimed("media.download", 100, 0.004)
    metrics.run_finished("media.download", "ok", 1000.0)
    metrics.backlog("media.download", 12, 34.5)
    metrics.budget("tracer", "day", 399, 400)
    metrics.inflight("media.download", 16)
    values = samples(metrics)
    stage = ("stage", "media.download")
    assert values["esclusa_settled_total", (("result", "moved"), stage)] == 3
    assert values["esclusa_settled_total", (("result", "retried"), stage)] == 1
    assert values["esclusa_handle_seconds_count", (stage,)] == 4
    assert values["esclusa_handle_seconds_sum", (stage,)] == pytest.approx(7.06)
    assert values["esclusa_handle_seconds_bucket", (("le", "0.01"), stage)] == 0
    assert values["esclusa_handle_seconds_bucket", (("le", "0.025"), stage)] == 3
    assert values["esclusa_handle_seconds_bucket", (("le", "+Inf"), stage)] == 4
    assert values["esclusa_claimed_total", (stage,)] == 600
    assert values["esclusa_claim_seconds_count", ()] == 2
    assert values["esclusa_runs_total", (("cycle", "media.download"), ("outcome", "ok"))] == 1
    assert values["esclusa_run_seconds_bucket", (("cycle", "media.download"), ("le", "900.0"))] == 0
    assert values["esclusa_due", (stage,)] == 12
    assert values["esclusa_oldest_due_seconds", (stage,)] == 34.5
    assert values["esclusa_budget_used", (("budget", "tracer"), ("window", "day"))] == 399
    assert values["esclusa_budget_limit", (("budget", "tracer"), ("window", "day"))] == 400
    assert values["esclusa_worker_inflight", (stage,)] == 16


def test_a_page_without_events_and_openmetrics() -> None:
    metrics = Metrics()
    assert samples(metrics)["esclusa_claim_seconds_count", ()] == 0
    page, kind = metrics.render("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")


def test_a_value_equal_to_a_bound_is_in_its_bucket() -> None:
    metrics = Metrics()
    for bound in BUCKETS:
        metrics.settled("s", "moved", [bound])
    values = samples(metrics)
    assert [
        values["esclusa_handle_seconds_bucket", (("le", str(bound)), ("stage", "s"))]
        for bound in BUCKETS
    ] == list(range(1, len(BUCKETS) + 1))


def test_counting_is_thread_safe() -> None:
    metrics = Metrics()
    threads = [
        threading.Thread(target=lambda: [metrics.settled("s", "moved", [0.1]) for _ in range(5000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (
        samples(metrics)["esclusa_settled_total", (("result", "moved"), ("stage", "s"))] == 20_000
    )


def test_a_settlement_below_the_log_level_costs_microseconds(lines: io.StringIO) -> None:
    log.configure("json", "warning", stream=lines)
    observer = Observer(tracer=None)
    fields = {"id": "1"}
    best = 1.0
    for _ in range(5):
        begun = time.process_time()
        for _ in range(10_000):
            observer.settled("stage", "moved", [0.01], lambda n: fields)
        best = min(best, (time.process_time() - begun) / 10_000)
    assert best < 4e-6  # half of it on an idle machine
    assert lines.getvalue() == ""


def test_one_event_per_settlement(lines: io.StringIO) -> None:
    observer: Telemetry = Observer()
    observer.settled(
        "media.download",
        "moved",
        [0.25],
        lambda n: {"id": "7", "stage": "theirs", "api_token": "hidden"},
    )
    observer.settled("media.download", "exhausted", [0.5], lambda n: {"error_type": "timeout"})
    observer.settled("media.download", "rejected", [0.5], lambda n: {})
    observer.claimed("media.download", 3, 0.1)
    observer.run_finished("media.download", "partial", 2.0, {"moved": 3})
    observer.event("error", "the store does not answer", message_="x", seconds=3)
    observer.event("loud", "an unknown level")
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["severity"] for line in logged] == [
        "INFO",
        "WARNING",
        "ERROR",
        "WARNING",
        "ERROR",
        "INFO",
    ]
    first = logged[0]
    assert (first["engine_stage"], first["stage"], first["result"], first["seconds"]) == (
        "media.download",
        "theirs",
        "moved",
        0.25,
    )
    assert first["api_token"] == "***"
    assert logged[3]["counters"] == {"moved": 3}


def test_spans_of_settlements_claims_and_runs(lines: io.StringIO) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    observer = Observer(tracer=provider.get_tracer("test"))
    observer.settled(
        "s",
        "moved",
        [2.0],
        lambda n: {
            "id": "7",
            "token": "hidden",
            "url": "https://x?key=hidden",
            "more": {"not": "shown"},
        },
    )
    observer.settled("s", "exhausted", [0.0], lambda n: {})
    observer.claimed("s", 5, 0.1)
    observer.claimed("s", 0, 0.1)
    observer.run_finished("c", "ok", 1.0, {"moved": 2})
    spans = kept.get_finished_spans()
    assert [span.name for span in spans] == ["settle s", "settle s", "claim s", "run c"]
    first = spans[0]
    assert first.end_time is not None
    assert first.start_time is not None
    assert first.end_time - first.start_time == 2_000_000_000
    assert dict(first.attributes or {}) == {
        "esclusa.stage": "s",
        "esclusa.result": "moved",
        "esclusa.id": "7",
        "esclusa.url": "https://x?key=***",
    }
    assert [span.status.is_ok for span in spans] == [True, False, True, True]
    with provider.get_tracer("test").start_as_current_span("outer") as outer:
        observer.event("info", "inside")
    line = json.loads(lines.getvalue().splitlines()[-1])
    assert line["logging.googleapis.com/trace"].endswith(
        f"{outer.get_span_context().trace_id:032x}"
    )
    assert line["logging.googleapis.com/spanId"] == f"{outer.get_span_context().span_id:016x}"
    assert line["logging.googleapis.com/trace_sampled"] is True


def test_a_failing_tracer_is_switched_off(lines: io.StringIO) -> None:
    observer = Observer(tracer=object())
    observer.settled("s", "moved", [0.1], lambda n: {})
    observer.settled("s", "moved", [0.1], lambda n: {})
    assert lines.getvalue().count("tracing is switched off") == 1


def test_without_a_provider_there_is_no_tracer() -> None:
    assert traces.tracer() is None
    assert traces.setup({}) is None
    traces.flush()


async def test_spans_go_where_the_otel_settings_say() -> None:
    """In its own process: a tracer provider can be set only once."""
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(
            content_type="application/x-protobuf",
            body=b"" if b"settle s" in await request.read() else b"?",
        )

    app = web.Application()
    app.router.add_post("/v1/traces", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    code = (
        "from esclusa.observability import traces, telemetry, log;"
        "log.configure('json', 'error'); assert traces.setup() is None;"
        "telemetry.Observer().settled('s', 'moved', [0.1], lambda n: {}); traces.flush()"
    )
    environ = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{runner.addresses[0][1]}",
        "NO_PROXY": "127.0.0.1",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=environ)
    assert await process.wait() == 0
    await runner.cleanup()
    assert paths == ["/v1/traces"]


def test_metrics_of_handlers() -> None:
    metrics = Metrics()
    assert metrics.count_own("shop", "pages", 2, {"kind": "scan"}) is None
    assert metrics.count_own("shop", "pages", 3, {"kind": "scan"}) is None
    assert metrics.observe_own("shop", "bank_seconds", 0.3, {}) is None
    page = metrics.render()[0].decode()
    assert 'esclusa_shop_pages_total{kind="scan"} 5.0' in page
    assert "esclusa_shop_bank_seconds_count 1.0" in page
    wrong = metrics.count_own("shop", "pages", 1, {"size": "a4"})
    assert wrong == "metric esclusa_shop_pages is a counter with the labels ['kind']"
    assert "is a histogram" in (metrics.count_own("shop", "bank_seconds", 1, {}) or "")


def test_label_values_of_handlers_are_bounded() -> None:
    metrics = Metrics()
    for number in range(MOST_LABELS + 50):
        metrics.count_own("shop", "orders", 1, {"customer": number})
    page = metrics.render()[0].decode()
    assert page.count("esclusa_shop_orders_total{") == MOST_LABELS + 1
    assert 'esclusa_shop_orders_total{customer="other"} 50.0' in page


def test_a_wrong_call_of_a_metric_is_logged_once(lines: io.StringIO) -> None:
    observer = Observer(tracer=None)
    observer.counted("shop", "pages", 1, {})
    for _ in range(3):
        observer.counted("shop", "pages", 1, {"kind": "scan"})
    assert lines.getvalue().count("is a counter with the labels") == 1
