"""OpenTelemetry: sends spans only if a tracer provider is set up."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from esclusa.ports.telemetry import SpanLink

_TRACEPARENT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def setup(environ: Mapping[str, str] = os.environ) -> str | None:
    """Send spans to the endpoint in the standard OTEL_* variables, if one is set.

    Returns a message if a package is missing.
    """
    name = next((name for name in _ENDPOINTS if environ.get(name)), None)
    if name is None or tracer() is not None:
        return None
    try:
        installed = all(
            importlib.util.find_spec(f"opentelemetry.{part}")
            for part in ("sdk", "exporter.otlp.proto.http")
        )
    except ModuleNotFoundError:
        installed = False
    if not installed:
        return f"{name} is set, but spans cannot be sent: install esclusa[otel]"
    from opentelemetry import trace  # noqa: PLC0415 - slow to import
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(
        resource=Resource.create({"service.name": environ.get("OTEL_SERVICE_NAME") or "esclusa"})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return None


def tracer() -> Any | None:
    """A tracer if a provider is set up in this process, else None. Imports nothing."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or api.get_tracer_provider().__class__.__name__ in {
        "ProxyTracerProvider",
        "NoOpTracerProvider",
    }:
        return None
    return api.get_tracer("esclusa")


def flush() -> None:
    """Send the spans that are still queued, before the process ends."""
    api = sys.modules.get("opentelemetry.trace")
    force = getattr(api.get_tracer_provider(), "force_flush", None) if api is not None else None
    if force is not None:
        force(5000)


class CurrentSpan:
    """The span around a handler; see ``ports.telemetry.HandlerSpan``."""

    def __init__(self, span: Any) -> None:
        self._span = span
        self.context = _traceparent(span.get_span_context())

    def result(self, outcome: str, *, failed: bool) -> None:
        self._span.set_attribute("esclusa.outcome", outcome)
        if failed:
            from opentelemetry.trace import StatusCode  # noqa: PLC0415 - loaded already

            self._span.set_status(StatusCode.ERROR, outcome)


def handler_span(
    tracer: Any, name: str, attributes: Mapping[str, Any], links: Sequence[SpanLink]
) -> AbstractContextManager[CurrentSpan]:
    """Start a span with these links, which is current within the block."""
    from opentelemetry.trace import Link  # noqa: PLC0415 - loaded already

    linked = [
        Link(context, {"esclusa.link": link.meaning})
        for link in links
        if (context := context_of(link.context)) is not None
    ]
    return _current(tracer.start_span(name, attributes=dict(attributes), links=linked))


def current_span() -> str | None:
    """The current span of this task or thread as a ``traceparent``; None if it is not sampled."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    return _traceparent(context) if context.is_valid and context.trace_flags.sampled else None


def _traceparent(context: Any) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@contextmanager
def _current(span: Any) -> Iterator[CurrentSpan]:
    from opentelemetry.trace import use_span  # noqa: PLC0415 - loaded already

    # Messages of exceptions may have secrets, so they are not noted.
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        yield CurrentSpan(span)


def context_of(traceparent: str | None) -> Any | None:
    """The span that a ``traceparent`` names, or None if it names none."""
    match = _TRACEPARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if match is None:
        return None
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415 - loaded already

    trace, span, flags = (int(part, 16) for part in match.groups())
    return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))


def within(context: Any) -> Any:
    """The context of a span's children."""
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context  # noqa: PLC0415

    return set_span_in_context(NonRecordingSpan(context))
