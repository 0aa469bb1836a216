"""Spans around handlers: those of the handler are within, and attempts are linked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To
from esclusa.observability.telemetry import Observer

pytestmark = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


class Order(Record, table="orders", key="number"):
    number: str
    lifecycle = Lifecycle("""
        new -> busy -> done | bad | new
        bad -> new
    """)


class Spans:
    """What was sent, and a tracer for handlers."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("shop")
        self.telemetry = Observer(tracer=provider.get_tracer("esclusa"))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Spans:
    return Spans()


def shop(spans: Spans, *, plain: bool) -> App:
    app = App("shop")
    options: Any = {"take": "new", "hold": "busy", "exhausted": "bad"}
    retry = Backoff(tries=3, base=0)

    def pay(order: Order, at: Attempt) -> Outcome:
        with spans.tracer.start_as_current_span("call the bank"):
            if at.number == 1:
                raise TimeoutError("slow")
        return To("done")

    async def pay_async(order: Order, at: Attempt) -> Outcome:
        await asyncio.sleep(0)
        return pay(order, at)

    app.stage(Order, name="pay", retry=retry, **options)(pay if plain else pay_async)
    return app


@pytest.mark.parametrize("plain", [False, True], ids=["async", "thread"])
async def test_spans_of_a_handler_are_within_that_of_the_attempt(
    new_engine: Any, spans: Spans, plain: bool
) -> None:
    engine = await new_engine(shop(spans, plain=plain), telemetry=spans.telemetry)
    await engine.records.insert([Order(number="1")])
    for _ in range(2):
        await engine.run_cycle("shop.pay")
    order = await engine.records.get(Order, "1")
    assert order is not None
    assert (order.status, order.attempts) == ("done", 2)
    first, second = spans.named("handle shop.pay")
    calls = spans.named("call the bank")
    assert [call.parent.span_id for call in calls if call.parent] == [
        each.context.span_id for each in (first, second) if each.context
    ]
    assert first.attributes is not None
    assert first.attributes["esclusa.record"] == "1"
    assert first.attributes["esclusa.attempt"] == 1
    assert not first.status.is_ok
    assert second.status.is_ok
    # The second attempt is a trace of its own, with a link to the first.
    assert first.context is not None
    assert second.context is not None
    assert second.context.trace_id != first.context.trace_id
    [link] = second.links
    assert link.context.span_id == first.context.span_id
    assert not first.links
    settled = spans.named("settle shop.pay")
    assert [each.parent.span_id for each in settled if each.parent] == [
        first.context.span_id,
        second.context.span_id,
    ]


async def test_without_a_tracer_nothing_is_noted(new_engine: Any, spans: Spans) -> None:
    engine = await new_engine(shop(spans, plain=False))
    await engine.records.insert([Order(number="1")])
    await engine.run_cycle("shop.pay")
    order = await engine.records.get(Order, "1")
    assert order is not None
    assert order.last_error is not None
    assert "trace" not in order.last_error


async def test_a_tracer_that_fails_does_not_fail_the_record(new_engine: Any, spans: Spans) -> None:
    engine = await new_engine(shop(spans, plain=False), telemetry=Observer(tracer=object()))
    await engine.records.insert([Order(number="1")])
    for _ in range(2):
        await engine.run_cycle("shop.pay")
    order = await engine.records.get(Order, "1")
    assert order is not None
    assert order.status == "done"
