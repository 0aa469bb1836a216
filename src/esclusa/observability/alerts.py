"""Alerts for people: posted to a webhook when they begin and when they end."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from esclusa.observability import log, redact

if TYPE_CHECKING:
    import aiohttp

    from esclusa.model.system_records import Alert

_MAX_QUEUED = 100


class AlertWebhook:
    """Posts alerts as JSON to a webhook in the background.

    ``send`` never raises and never waits. A failed post is retried, up to ``tries`` attempts with a
    growing delay. If the webhook stays unavailable, the oldest posts are dropped, and the log
    reports it. The URL is a secret: only its host is shown.
    """

    def __init__(
        self,
        webhook: str,
        *,
        timeout: float = 5.0,
        tries: int = 4,
        backoff: float = 0.5,
    ) -> None:
        parts = urlsplit(webhook)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("ESCLUSA_ALERT_WEBHOOK: must be an http:// or https:// URL")
        self._webhook = webhook
        self._host = parts.hostname
        self._timeout, self._tries, self._backoff = timeout, tries, backoff
        self._queue: deque[dict[str, Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._log = log.get("esclusa.alerts")

    def __repr__(self) -> str:
        return f"AlertWebhook({self._host})"

    async def send(self, alert: Alert) -> None:
        """Queue an alert that has begun or, if it has ``ended_at``, has ended."""
        if self._closed:
            return
        if len(self._queue) >= _MAX_QUEUED:
            lost = self._queue.popleft()
            self._log.error(
                "an alert was not delivered: the queue is full",
                alert=lost["name"],
                subject=lost["subject"],
                webhook=self._host,
            )
        self._queue.append(_post(alert))
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
            self._task = asyncio.create_task(self._deliver(), name="esclusa-alerts")

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
        try:
            async with session.post(self._webhook, json=alert, allow_redirects=False) as answer:
                return answer.status, "" if 200 <= answer.status < 300 else f"HTTP {answer.status}"
        except Exception as error:  # noqa: BLE001  # its text may contain the URL
            return None, type(error).__name__


def _post(alert: Alert) -> dict[str, Any]:
    """What the webhook gets, with secrets masked. Both posts of an alert have the same id."""
    begun, ended, over = alert.begun_at, alert.ended_at, "ended" if alert.ended_at else "begun"
    post = redact.fields(
        {
            "id": alert.id,
            "event": over,
            "text": f"[{alert.name} {over}] {alert.subject}: {alert.message}",
            "name": alert.name,
            "subject": alert.subject,
            "message": alert.message,
            "begun_at": begun.isoformat(),
            "ended_at": None if ended is None else ended.isoformat(),
            "details": alert.details,
        }
    )
    return post | {"key": redact.text(alert.key)}
