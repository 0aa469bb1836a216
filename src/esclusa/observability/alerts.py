"""Alerts for people: delivered to a webhook when they begin and when they end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from esclusa.observability import log, redact

if TYPE_CHECKING:
    import aiohttp

    from esclusa.model.system_records import Alert

_MAX_QUEUED = 100


class AlertDelivery:
    """Delivers alerts to one place in the background.

    ``send`` never raises and never waits. A failed delivery is retried, up to ``tries`` attempts
    with a growing delay. If the place stays unavailable, the oldest alerts are dropped, and the log
    reports it. ``place`` names it in the log, without secrets.
    """

    def __init__(self, place: str, *, timeout: float, tries: int, backoff: float) -> None:
        self._place = place
        self._timeout, self._tries, self._backoff = timeout, tries, backoff
        self._queue: deque[dict[str, Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._log = log.get("esclusa.alerts")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place})"

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
                webhook=self._place,
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
            self._log.error(
                "alerts were not delivered", count=len(self._queue), webhook=self._place
            )
            self._queue.clear()

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        """What the deliveries of one batch share."""
        yield None

    async def _once(self, session: Any, alert: dict[str, Any]) -> tuple[bool, str]:
        """Try once: whether another try is useful, and why it was not delivered ("": it was)."""
        raise NotImplementedError

    def _start(self) -> None:
        if self._queue and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._deliver(), name="esclusa-alerts")

    async def _deliver(self) -> None:
        try:
            async with self._session() as session:
                while self._queue:
                    await self._try(session, self._queue[0])
        except Exception as error:  # noqa: BLE001  # alerts must not break the work
            self._log.error(
                "alerts cannot be delivered", webhook=self._place, error=type(error).__name__
            )

    async def _try(self, session: Any, alert: dict[str, Any]) -> None:
        why = ""
        for attempt in range(self._tries):
            if attempt:
                await asyncio.sleep(min(self._backoff * 2 ** (attempt - 1), 30.0))
            again, why = await self._once(session, alert)
            if not again:
                break
        with suppress(ValueError):  # dropped meanwhile, for a newer one
            self._queue.remove(alert)
        if why:
            self._log.error(
                "an alert was not delivered",
                alert=alert["name"],
                subject=alert["subject"],
                webhook=self._place,
                why=why,
            )


class AlertWebhook(AlertDelivery):
    """Posts alerts as JSON to a webhook. The URL is a secret: only its host is shown."""

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
        super().__init__(parts.hostname, timeout=timeout, tries=tries, backoff=backoff)
        self._webhook = webhook

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        import aiohttp  # noqa: PLC0415 - slow to import, needed only with a webhook

        async with aiohttp.ClientSession(
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as session:
            yield session

    async def _once(
        self, session: aiohttp.ClientSession, alert: dict[str, Any]
    ) -> tuple[bool, str]:
        try:
            async with session.post(self._webhook, json=alert, allow_redirects=False) as answer:
                status = answer.status
        except Exception as error:  # noqa: BLE001  # its text may contain the URL
            return True, type(error).__name__
        if 200 <= status < 300:
            return False, ""
        return status >= 500 or status in {408, 425, 429}, f"HTTP {status}"


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
