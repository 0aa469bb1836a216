"""Alerts through apprise: real HTTP and SMTP on loopback, faults, and settings."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from esclusa.model.errors import SettingsError
from esclusa.model.system_records import Alert
from esclusa.observability import log
from esclusa.observability.apprise_alerts import AppriseDelivery, apprise_deliveries

# Some plugins of apprise import modules that Python is about to remove.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
BEGUN = Alert(
    id="a1", name="backlog", subject="shop.stock", message="due for 2 hours", begun_at=NOW
)


class Service:
    """An HTTP service with configurable responses that keeps its requests."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[dict[str, Any]] = []
        self.delay = 0.0
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.got.append(await request.json())
        await asyncio.sleep(self.delay)
        return web.Response(status=self.answers.pop(0) if self.answers else 200)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    service = Service()
    app = web.Application()
    app.router.add_post("/hook/{secret}", service.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    service.url = f"json://127.0.0.1:{runner.addresses[0][1]}/hook/T0P-SECRET"
    yield service
    await runner.cleanup()


async def test_a_begin_and_an_end_are_delivered(service: Service) -> None:
    [delivery] = apprise_deliveries([service.url])
    await delivery.send(BEGUN)
    await delivery.send(BEGUN.but(ended_at=NOW + timedelta(hours=1)))
    await delivery.close()
    assert [(got["title"], got["message"], got["type"]) for got in service.got] == [
        ("[backlog begun] shop.stock", "due for 2 hours", "failure"),
        ("[backlog ended] shop.stock", "due for 2 hours", "success"),
    ]


async def test_a_failure_is_retried_and_then_logged_without_the_url(service: Service) -> None:
    service.answers = [503, 503, 503]
    [made] = apprise_deliveries([service.url])
    delivery = AppriseDelivery(made._service, 1, tries=3, backoff=0.01)
    stream = io.StringIO()
    log.configure("json", "info", stream=stream)
    await delivery.send(BEGUN)
    await delivery.close()
    assert len(service.got) == 3
    assert "an alert was not delivered" in stream.getvalue()
    assert "URL 1 of ESCLUSA_ALERT_URLS" in stream.getvalue()
    assert "SECRET" not in stream.getvalue()
    assert "SECRET" not in repr(delivery)


async def test_a_service_that_hangs_does_not_hold_up_the_process(service: Service) -> None:
    service.delay = 3.0
    [made] = apprise_deliveries([service.url])
    delivery = AppriseDelivery(made._service, 1, timeout=0.1, tries=1)
    began = time.monotonic()
    await delivery.send(BEGUN)
    assert time.monotonic() - began < 0.1
    await delivery.close()
    assert time.monotonic() - began < 2.0


async def test_an_e_mail_is_sent() -> None:
    lines: list[str] = []

    async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test\r\n")
        body = False
        while line := (await reader.readline()).decode().rstrip():
            lines.append(line)
            if line.upper().startswith("DATA"):
                writer.write(b"354 go on\r\n")
                body = True
                while (text := (await reader.readline()).decode().rstrip("\r\n")) != ".":
                    lines.append(text)
                body = False
            if not body:
                writer.write(b"221 bye\r\n" if line.upper() == "QUIT" else b"250 ok\r\n")
            if line.upper() == "QUIT":
                break
        writer.close()

    server = await asyncio.start_server(smtp, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"mailto://127.0.0.1:{port}/?from=esclusa@example.cl&to=ops@example.cl&mode=insecure"
    [delivery] = apprise_deliveries([url])
    await delivery.send(BEGUN)
    await delivery.close()
    server.close()
    assert any("ops@example.cl" in line for line in lines)
    assert any(line.startswith("Subject:") and "backlog begun" in line for line in lines)


def test_a_url_that_apprise_does_not_know_is_named_by_its_number() -> None:
    with pytest.raises(SettingsError) as refused:
        apprise_deliveries(["json://127.0.0.1/ok", "nonsense://T0P-SECRET"])
    assert "URL 2" in str(refused.value)
    assert "SECRET" not in str(refused.value)


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(SettingsError, match=r"esclusa\[apprise\]"):
        apprise_deliveries(["json://127.0.0.1/ok"])
