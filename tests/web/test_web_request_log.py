"""Requests in the log, in the format of Cloud Logging."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.datastructures import Headers
from web.shop import Client

from esclusa.observability import log
from esclusa.observability.log import Trace
from esclusa.web.request_log import trace_of

TRACE, SPAN = "105445aa7843bc8bf206b12000100000", "000000000000004a"


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        ({"traceparent": f"00-{TRACE}-{SPAN}-01"}, Trace(TRACE, SPAN, True)),
        ({"traceparent": f"00-{TRACE}-{SPAN}-00"}, Trace(TRACE, SPAN, False)),
        ({"traceparent": f"01-{TRACE}-{SPAN}-01-more"}, Trace(TRACE, SPAN, True)),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, None),
        ({"traceparent": f"ff-{TRACE}-{SPAN}-01"}, None),
        ({"traceparent": f"00-{TRACE}-{SPAN}"}, None),
        ({"x-cloud-trace-context": f"{TRACE}/74;o=1"}, Trace(TRACE, SPAN, True)),
        ({"x-cloud-trace-context": f"{TRACE.upper()}/74;o=0"}, Trace(TRACE, SPAN, False)),
        ({"x-cloud-trace-context": TRACE}, Trace(TRACE)),
        ({"x-cloud-trace-context": f"{TRACE}/{1 << 64}"}, Trace(TRACE)),
        ({"x-cloud-trace-context": "x/1;o=1"}, None),
        (
            {"traceparent": "junk", "x-cloud-trace-context": f"{TRACE}/74;o=1"},
            Trace(TRACE, SPAN, True),
        ),
        ({}, None),
    ],
)
def test_the_trace_in_the_headers(headers: dict[str, str], trace: Trace | None) -> None:
    assert trace_of(Headers(headers)) == trace


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield io.StringIO()
    log.configure("auto", "info")
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_log_lines_of_a_request_carry_its_trace(shop: Client, lines: io.StringIO) -> None:
    log.configure("json", "debug", stream=lines, project="p")
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "user-agent": "curl"}
    await shop.get("/shop/boom?password=hunter2", headers=headers)
    await shop.get("/shop/hello")
    await shop.get("/healthz")
    logged: list[dict[str, Any]] = [json.loads(line) for line in lines.getvalue().splitlines()]
    requests = [line for line in logged if "httpRequest" in line]
    assert [(line["severity"], line["message"]) for line in requests] == [
        ("WARNING", "GET /shop/boom: 500"),
        ("DEBUG", "GET /shop/hello: 200"),
    ]
    first = requests[0]
    assert first["logging.googleapis.com/trace"] == f"projects/p/traces/{TRACE}"
    assert (
        first["logging.googleapis.com/spanId"],
        first["logging.googleapis.com/trace_sampled"],
    ) == (SPAN, True)
    assert (
        first["httpRequest"].items()
        >= {
            "requestMethod": "GET",
            "requestUrl": "/shop/boom",
            "status": 500,
            "userAgent": "curl",
        }.items()
    )
    assert "password" not in json.dumps(first["httpRequest"])
    failed = next(line for line in logged if "stack_trace" in line)
    assert failed["logging.googleapis.com/trace"] == f"projects/p/traces/{TRACE}"
    assert "logging.googleapis.com/trace" not in requests[1]
