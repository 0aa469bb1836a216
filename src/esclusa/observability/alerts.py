"""Alerts for people: written to the log and posted to a webhook."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from esclusa.observability import log, redact

if TYPE_CHECKING:
    import aiohttp

_MAX_QUEUED = 100
_MAX_REMEMBERED = 1000


class AlertWebhook:
    """Writes each alert to the log, and posts it as JSON to the webhook in the background.

    ``send`` never raises and never waits. A failed post is retried, up to ``tries`` attempts with a
    growing delay. If the webhook stays unavailable, the oldest alerts are dropped, and the log
    reports it. The URL is a secret: only its host is shown.
    """

    def __init__(
        self,
        webhook: str | None = None,
        *,
        timeout: float = 5.0,
        tries: int = 4,
        backoff: float = 0.5,
    ) -> None:
        if webhook is not None and (
            urlsplit(webhook).scheme not in {"http", "https"} or not urlsplit(webhook).hostname
        ):
            raise ValueError("ESCLUSA_ALERT_WEBHOOK: must be an http:// or https:// URL")
        self._webhook = webhook
        self._host = urlsplit(webhook).hostname if webhook else None
        self._timeout, self._tries, self._backoff = timeout, tries, backoff
        self._queue: deque[dict[str, Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._log = log.get("esclusa.alerts")

    def __repr__(self) -> str:
        return f"AlertWebhook({self._host})"

    def send(self, alert: dict[str, Any]) -> None:
        """Log and queue an alert with name, subject, message, raised_at, details and folded."""
        alert = redact.fields(alert)
        self._log.write(
            "warning",
            f"alert {alert['name']}: {alert['message']}",
            {k: v for k, v in alert.items() if k != "message"},
        )
        if self._webhook is None or self._closed:
            return
        if len(self._queue) >= _MAX_QUEUED:
            lost = self._queue.popleft()
            self._log.error(
                "an alert was not delivered: the queue is full",
                alert=lost["name"],
                subject=lost["subject"],
                webhook=self._host,
            )
        self._queue.append(
            {
                "id": uuid.uuid4().hex,
                "text": f"[{alert['name']}] {alert['subject']}: {alert['message']}",
                **alert,
            }
        )
        self._start()

    async def close(self, grace: float = 5.0) -> None:
        """Deliver the queued alerts, at most for the grace period."""
        self._closed = True
        self._start()
        task, self._task = self._task, None
        if task is not None:
            _, unfinished = await asyncio.wait([task], timeout=grace)
            if unfinished:
                task.cancel()
                await asyncio.wait([task])
        if self._queue:
            self._log.error("alerts were not delivered", count=len(self._queue), webhook=self._host)
            self._queue.clear()

    def _start(self) -> None:
        if self._queue and (self._task is None or self._task.done()):
            with suppress(RuntimeError):  # no loop is running: start with the next call
                self._task = asyncio.get_running_loop().create_task(
                    self._deliver(), name="esclusa-alerts"
                )

    async def _deliver(self) -> None:
        import aiohttp  # noqa: PLC0415 - slow to import, needed only with a webhook

        try:
            async with aiohttp.ClientSession(
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session:
                while self._queue:
                    await self._post(session, self._queue[0])
        except Exception as error:  # noqa: BLE001  # alerts must not break the work
            self._log.error(
                "alerts cannot be delivered", webhook=self._host, error=type(error).__name__
            )

    async def _post(self, session: aiohttp.ClientSession, alert: dict[str, Any]) -> None:
        why = ""
        for attempt in range(self._tries):
            if attempt:
                await asyncio.sleep(min(self._backoff * 2 ** (attempt - 1), 30.0))
            status, why = await self._once(session, alert)
            if status is not None and status < 500 and status not in {408, 425, 429}:
                break
        with suppress(ValueError):  # dropped meanwhile, for a newer one
            self._queue.remove(alert)
        if why:
            self._log.error(
                "an alert was not delivered",
                alert=alert["name"],
                subject=alert["subject"],
                webhook=self._host,
                why=why,
            )

    async def _once(
        self, session: aiohttp.ClientSession, alert: dict[str, Any]
    ) -> tuple[int | None, str]:
        """The status, if there was a response, and why it was not delivered ("": it was)."""
        assert self._webhook is not None
        try:
            async with session.post(self._webhook, json=alert, allow_redirects=False) as answer:
                return answer.status, "" if 200 <= answer.status < 300 else f"HTTP {answer.status}"
        except Exception as error:  # noqa: BLE001  # its text may contain the URL
            return None, type(error).__name__


class AlertNotifier:
    """Sends alerts, but not the same one twice within the quiet period.

    Repeated alerts are counted and folded into the next one that is sent.
    """

    def __init__(
        self,
        webhook: AlertWebhook,
        *,
        quiet: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._webhook, self._quiet, self._clock = webhook, quiet, clock
        self._sent: dict[tuple[str, str], tuple[float, int]] = {}

    def notify(self, name: str, subject: str, message: str, /, **details: Any) -> bool:
        """Send an alert. Returns False if it was folded. Never raises, never waits."""
        now = self._clock()
        key = (name, subject)
        last, folded = self._sent.get(key, (None, 0))
        if last is not None and now - last < self._quiet:
            self._sent[key] = (last, folded + 1)
            return False
        self._sent.pop(key, None)
        self._sent[key] = (now, 0)
        if len(self._sent) > _MAX_REMEMBERED:
            del self._sent[next(iter(self._sent))]  # the oldest one
        self._webhook.send(
            {
                "name": name,
                "subject": subject,
                "message": message,
                "raised_at": datetime.now(UTC).isoformat(),
                "details": details,
                "folded": folded,
            }
        )
        return True

    async def close(self, grace: float = 5.0) -> None:
        await self._webhook.close(grace)
