"""OpenTelemetry: sends spans only if a tracer provider is set up."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any

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
