"""Spans around handlers: those of the handler are within, and attempts are linked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, To
from esclusa.observability import log
from esclusa.observability.telemetry import Observer

pytestmark = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


class Order(Record, table="orders", key="number"):
    number: str
    lifecycle = Lifecycle("""
        new -> busy -> done | bad | new
        bad -> new
    """)


class Note(Record, table="notes"):
    text: str
    lifecycle = Lifecycle("new -> done")


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


async def test_first_attempt_links_to_the_span_in_which_the_record_was_added(
    new_engine: Any, spans: Spans
) -> None:
    engine = await new_engine(shop(spans, plain=False), telemetry=spans.telemetry)
    with spans.tracer.start_as_current_span("POST /orders") as request:
        await engine.records.insert([Order(number="1"), Order(number="2")])
    with spans.tracer.start_as_current_span("POST /orders again"):
        await engine.records.insert([Order(number="1")])  # it is known
    await engine.records.insert([Order(number="3")])  # nobody asked
    with log.tracing(log.Trace("a" * 32, "b" * 16, sampled=True)):  # of a client that makes spans
        await engine.records.insert([Order(number="4")])
    with log.tracing(log.Trace("a" * 32, "b" * 16, sampled=False)):
        await engine.records.insert([Order(number="5")])
    await engine.run_cycle("shop.pay")
    linked = {
        span.attributes["esclusa.record"]: [f"{link.context.span_id:016x}" for link in span.links]
        for span in spans.named("handle shop.pay")
        if span.attributes is not None and span.attributes["esclusa.attempt"] == 1
    }
    asked = f"{request.get_span_context().span_id:016x}"
    assert linked == {"1": [asked], "2": [asked], "3": [], "4": ["b" * 16], "5": []}


async def test_records_of_a_batch_without_keys_are_linked_too(
    new_engine: Any, spans: Spans
) -> None:
    app = App("notes")

    @app.stage(Note, take="new", retry=Backoff(tries=None), batch=10)
    async def read(notes: list[Note], at: Attempt) -> list[Outcome]:
        return [To("done") for _ in notes]

    engine = await new_engine(app, telemetry=spans.telemetry)
    for name in ("first", "second"):
        with spans.tracer.start_as_current_span(name):
            await engine.records.insert([Note(text=name), Note(text=name)])
    await engine.run_cycle("notes.read")
    [handled] = spans.named("handle notes.read")
    assert {link.context.span_id for link in handled.links} == {
        span.context.span_id
        for name in ("first", "second")
        for span in spans.named(name)
        if span.context is not None
    }


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
