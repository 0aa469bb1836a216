"""Alerts over HTTP: delivered, retried, dropped, and never blocking the work."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from support.loopback import free_port

from esclusa.model.system_records import Alert
from esclusa.observability import log
from esclusa.observability.alerts import AlertWebhook

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Hook:
    """A webhook with configurable responses that records what it gets."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[dict[str, Any]] = []
        self.came = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.came.set()
        if self.hold is not None:
            await self.hold.wait()
        status = self.answers.pop(0) if self.answers else 204
        self.got.append({"status": status, **body})
        return web.Response(
            status=status, headers={"Location": "/elsewhere"} if status == 302 else {}
        )


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application()
    app.router.add_post("/services/{secret}", hook.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/services/T0P-SECRET"
    yield hook
    await runner.cleanup()


@pytest.fixture(autouse=True)
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    log.configure("json", "info", stream=stream)
    yield stream
    log.configure("auto", "info")
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def alert(name: str = "x", subject: str = "y", message: str = "z") -> Alert:
    return Alert(id=f"{name}:{subject}", name=name, subject=subject, message=message, begun_at=NOW)


async def test_the_webhook_gets_the_beginning_and_the_end(hook: Hook, lines: io.StringIO) -> None:
    webhook = AlertWebhook(hook.url)
    begun = alert("error_rate", "media.download", "31 % of 200 ended in error").but(
        details={"rate": 0.31, "api_token": "hidden", "url": "https://x?ticket=hidden"}
    )
    await webhook.send(begun)
    await webhook.send(begun.but(ended_at=NOW + timedelta(minutes=3)))
    await webhook.close()
    first, last = hook.got
    assert first["text"] == "[error_rate begun] media.download: 31 % of 200 ended in error"
    assert (first["event"], first["key"]) == ("begun", "error_rate:media.download")
    assert (first["begun_at"], first["ended_at"]) == (NOW.isoformat(), None)
    assert first["details"] == {"rate": 0.31, "api_token": "***", "url": "https://x?ticket=***"}
    assert (last["event"], last["id"], last["ended_at"]) == (
        "ended",
        first["id"],
        "2026-11-18T12:03:00+00:00",
    )
    assert lines.getvalue() == ""  # the engine logs alerts


async def test_a_failing_webhook_is_retried(hook: Hook, lines: io.StringIO) -> None:
    hook.answers = [500, 429, 503]
    alerts = AlertWebhook(hook.url, backoff=0.001)
    await alerts.send(alert())
    await alerts.close()
    assert [got["status"] for got in hook.got] == [500, 429, 503, 204]
    assert len({got["id"] for got in hook.got}) == 1
    assert logged(lines) == []


@pytest.mark.parametrize(("answers", "tries"), [([500] * 9, 4), ([404], 1), ([302], 1)])
async def test_an_alert_that_cannot_be_delivered_is_dropped_and_logged(
    hook: Hook, lines: io.StringIO, answers: list[int], tries: int
) -> None:
    hook.answers = list(answers)
    alerts = AlertWebhook(hook.url, backoff=0.001)
    await alerts.send(alert())
    await alerts.close()
    assert len(hook.got) == tries
    last = logged(lines)[-1]
    assert (last["message"], last["why"], last["webhook"]) == (
        "an alert was not delivered",
        f"HTTP {answers[0]}",
        "127.0.0.1",
    )
    assert "T0P-SECRET" not in lines.getvalue()


async def test_a_webhook_that_refuses_connections(lines: io.StringIO) -> None:
    alerts = AlertWebhook(f"http://127.0.0.1:{free_port()}/T0P-SECRET", backoff=0.001)
    await alerts.send(alert())
    await alerts.close()
    assert logged(lines)[-1]["why"].startswith("Client")
    assert "T0P-SECRET" not in lines.getvalue()


async def test_a_webhook_that_hangs_blocks_nothing(hook: Hook, lines: io.StringIO) -> None:
    hook.hold = asyncio.Event()
    alerts = AlertWebhook(hook.url, timeout=30)
    begun = time.perf_counter()
    for number in range(150):
        await alerts.send(alert("x", f"subject {number}"))
    assert time.perf_counter() - begun < 1.0
    await hook.came.wait()
    await alerts.close(grace=0.01)
    lost = [
        line
        for line in logged(lines)
        if line["message"].startswith("an alert was not delivered: the queue")
    ]
    assert len(lost) == 50
    assert logged(lines)[-1]["count"] == 100
    hook.hold.set()


def test_a_wrong_url_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="ESCLUSA_ALERT_WEBHOOK") as caught:
        AlertWebhook("hooks.example/T0P-SECRET")
    assert "T0P-SECRET" not in str(caught.value)
    assert "T0P-SECRET" not in repr(AlertWebhook("https://hooks.example/T0P-SECRET"))
