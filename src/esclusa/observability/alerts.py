"""Alerts: something that a person should look at now, told to the log and to a webhook."""

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

_WAITING = 100
_REMEMBERED = 1000


class AlertWebhook:
    """Writes each alert to the log at once, and posts it as JSON to the webhook in the background.

    ``send`` never raises and never waits. A webhook that fails is tried again, ``tries`` times in all with a growing
    delay; one that stays away costs its alerts, oldest first, and the log says so. Its address is a secret: of it only
    the host is ever told.
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
            raise ValueError("ESCLUSA_ALERT_WEBHOOK: must be an http:// or https:// address")
        self._webhook = webhook
        self._host = urlsplit(webhook).hostname if webhook else None
        self._timeout, self._tries, self._backoff = timeout, tries, backoff
        self._waiting: deque[dict[str, Any]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._log = log.get("esclusa.alerts")

    def __repr__(self) -> str:
        return f"AlertWebhook({self._host})"

    def send(self, alert: dict[str, Any]) -> None:
        """Tell it. ``alert`` has name, subject, message, raised_at, details, folded."""
        alert = redact.fields(alert)
        self._log.write(
            "warning",
            f"alert {alert['name']}: {alert['message']}",
            {k: v for k, v in alert.items() if k != "message"},
        )
        if self._webhook is None or self._closed:
            return
        if len(self._waiting) >= _WAITING:
            lost = self._waiting.popleft()
            self._log.error(
                "an alert was not delivered: too many wait",
                alert=lost["name"],
                subject=lost["subject"],
                webhook=self._host,
            )
        text = f"[{alert['name']}] {alert['subject']}: {alert['message']}"
        self._waiting.append({"id": uuid.uuid4().hex, "text": text, **alert})
        self._start()

    async def close(self, grace: float = 5.0) -> None:
        """Deliver what waits, as far as the grace period allows."""
        self._closed = True
        self._start()
        task, self._task = self._task, None
        if task is not None:
            _, late = await asyncio.wait([task], timeout=grace)
            if late:
                task.cancel()
                await asyncio.wait([task])
        if self._waiting:
            self._log.error(
                "alerts were not delivered", count=len(self._waiting), webhook=self._host
            )
            self._waiting.clear()

    def _start(self) -> None:
        if self._waiting and (self._task is None or self._task.done()):
            with suppress(RuntimeError):  # no loop runs yet: it waits for the next call
                self._task = asyncio.get_running_loop().create_task(
                    self._deliver(), name="esclusa-alerts"
                )

    async def _deliver(self) -> None:
        import aiohttp  # noqa: PLC0415  # only who has a webhook pays for it

        try:
            async with aiohttp.ClientSession(
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session:
                while self._waiting:
                    await self._post(session, self._waiting[0])
        except Exception as error:  # noqa: BLE001  # an alert never breaks the work
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
        with suppress(ValueError):  # it may have made room for a newer one meanwhile
            self._waiting.remove(alert)
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
        """The answer's status if there was one, and why it does not count as delivered ("" if it does)."""
        assert self._webhook is not None
        try:
            async with session.post(self._webhook, json=alert, allow_redirects=False) as answer:
                return answer.status, "" if 200 <= answer.status < 300 else f"HTTP {answer.status}"
        except Exception as error:  # noqa: BLE001  # whatever the network does; its text may hold the address
            return None, type(error).__name__


class AlertNotifier:
    """The bell. The same alert about the same subject within the quiet period is folded into the next one that is told."""

    def __init__(
        self, sink: AlertWebhook, *, quiet: float = 900.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sink = sink
        self._quiet = quiet
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def notify(self, name: str, subject: str, message: str, /, **details: Any) -> bool:
        """Tell a person; False if it was folded because they have just been told. Never raises, never waits."""
        now = self._clock()
        key = (name, subject)
        last, folded = self._told.get(key, (None, 0))
        if last is not None and now - last < self._quiet:
            self._told[key] = (last, folded + 1)
            return False
        self._told.pop(key, None)
        self._told[key] = (now, 0)
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]  # the one told longest ago
        raised_at = datetime.now(UTC).isoformat()
        self._sink.send(
            {
                "name": name,
                "subject": subject,
                "message": message,
                "raised_at": raised_at,
                "details": details,
                "folded": folded,
            }
        )
        return True

    async def close(self, grace: float = 5.0) -> None:
        await self._sink.close(grace)
