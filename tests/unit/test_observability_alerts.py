"""Alerts over HTTP: delivered, folded, retried, dropped, and never blocking the work."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web
from support.loopback import free_port

from esclusa.observability import log
from esclusa.observability.alerts import AlertNotifier, AlertWebhook


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


async def test_an_alert_reaches_the_log_and_the_webhook(hook: Hook, lines: io.StringIO) -> None:
    alerts = AlertNotifier(AlertWebhook(hook.url))
    assert alerts.notify(
        "error_rate",
        "media.download",
        "31 % of 200 ended in error",
        rate=0.31,
        api_token="hidden",
        url="https://x?ticket=hidden",
    )
    await alerts.close()
    [got] = hook.got
    assert got["text"] == "[error_rate] media.download: 31 % of 200 ended in error"
    assert (got["name"], got["subject"], got["folded"]) == ("error_rate", "media.download", 0)
    assert got["details"] == {"rate": 0.31, "api_token": "***", "url": "https://x?ticket=***"}
    assert got["id"]
    [line] = logged(lines)
    assert (line["severity"], line["subject"]) == ("WARNING", "media.download")
    assert "hidden" not in lines.getvalue()


async def test_without_a_webhook_the_log_is_enough(lines: io.StringIO) -> None:
    alerts = AlertNotifier(AlertWebhook())
    assert alerts.notify("backlog", "s", "too old")
    await alerts.close()
    assert logged(lines)[0]["message"] == "alert backlog: too old"


async def test_the_same_alert_is_folded_within_the_quiet_period(hook: Hook) -> None:
    now = [0.0]
    alerts = AlertNotifier(AlertWebhook(hook.url), quiet=900, clock=lambda: now[0])
    answers = [alerts.notify("error_rate", "a", "x") for _ in range(5)]
    answers.append(alerts.notify("error_rate", "b", "another subject"))
    now[0] = 899.0
    answers.append(alerts.notify("error_rate", "a", "x"))
    now[0] = 900.0
    answers.append(alerts.notify("error_rate", "a", "again"))
    assert answers == [True, False, False, False, False, True, False, True]
    await alerts.close()
    assert [(got["subject"], got["folded"]) for got in hook.got] == [("a", 0), ("b", 0), ("a", 5)]


async def test_a_failing_webhook_is_retried(hook: Hook, lines: io.StringIO) -> None:
    hook.answers = [500, 429, 503]
    alerts = AlertNotifier(AlertWebhook(hook.url, backoff=0.001))
    alerts.notify("x", "y", "z")
    await alerts.close()
    assert [got["status"] for got in hook.got] == [500, 429, 503, 204]
    assert len({got["id"] for got in hook.got}) == 1
    assert len(logged(lines)) == 1


@pytest.mark.parametrize(("answers", "tries"), [([500] * 9, 4), ([404], 1), ([302], 1)])
async def test_an_alert_that_cannot_be_delivered_is_dropped_and_logged(
    hook: Hook, lines: io.StringIO, answers: list[int], tries: int
) -> None:
    hook.answers = list(answers)
    alerts = AlertNotifier(AlertWebhook(hook.url, backoff=0.001))
    alerts.notify("x", "y", "z")
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
    alerts = AlertNotifier(
        AlertWebhook(f"http://127.0.0.1:{free_port()}/T0P-SECRET", backoff=0.001)
    )
    alerts.notify("x", "y", "z")
    await alerts.close()
    assert logged(lines)[-1]["why"].startswith("Client")
    assert "T0P-SECRET" not in lines.getvalue()


async def test_a_webhook_that_hangs_blocks_nothing(hook: Hook, lines: io.StringIO) -> None:
    hook.hold = asyncio.Event()
    alerts = AlertNotifier(AlertWebhook(hook.url, timeout=30))
    begun = time.perf_counter()
    for number in range(150):
        alerts.notify("x", f"subject {number}", "z")
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


async def test_an_alert_without_a_running_loop_is_sent_later(hook: Hook) -> None:
    alerts = AlertNotifier(AlertWebhook(hook.url))
    await asyncio.to_thread(alerts.notify, "early", "a", "no loop in this thread")
    alerts.notify("late", "b", "z")
    await alerts.close()
    assert [got["name"] for got in hook.got] == ["early", "late"]


def test_a_wrong_url_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="ESCLUSA_ALERT_WEBHOOK") as caught:
        AlertWebhook("hooks.example/T0P-SECRET")
    assert "T0P-SECRET" not in str(caught.value)
    assert "T0P-SECRET" not in repr(AlertWebhook("https://hooks.example/T0P-SECRET"))
