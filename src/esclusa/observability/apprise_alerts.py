"""Alerts through apprise: e-mail, Slack, Teams, Telegram and the rest of what it knows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from esclusa.model.errors import SettingsError
from esclusa.observability.alerts import AlertDelivery

SETTING = "ESCLUSA_ALERT_URLS"


def apprise_deliveries(urls: Sequence[str]) -> list[AppriseDelivery]:
    """One delivery for each URL. Raises SettingsError; it names URLs by number, never by value."""
    try:
        import apprise  # noqa: PLC0415 - slow to import, needed only with this setting
    except ImportError as error:
        missing = f"{SETTING} needs the extra esclusa[apprise]: pip install 'esclusa[apprise]'"
        raise SettingsError("settings", [missing]) from error
    services = [apprise.Apprise.instantiate(url) for url in urls]
    faults = [
        f"{SETTING}: URL {number} is not one that apprise {apprise.__version__} can use; "
        "its form is described at https://github.com/caronc/apprise/wiki"
        for number, service in enumerate(services, 1)
        if service is None
    ]
    if faults:
        raise SettingsError("settings", faults)
    return [AppriseDelivery(service, number) for number, service in enumerate(services, 1)]


class AppriseDelivery(AlertDelivery):
    """Sends alerts to one service of apprise, each try in a thread of its own.

    A try that takes longer than ``timeout`` counts as failed. Its thread does not keep the process
    from ending.
    """

    def __init__(
        self,
        service: Any,
        number: int,
        *,
        timeout: float = 15.0,
        tries: int = 4,
        backoff: float = 1.0,
    ) -> None:
        place = f"{service.service_name} (URL {number} of {SETTING})"
        super().__init__(place, timeout=timeout, tries=tries, backoff=backoff)
        self._service = service

    async def _once(self, session: Any, alert: dict[str, Any]) -> tuple[bool, str]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str] = loop.create_future()

        def finish(why: str) -> None:
            if not done.done():
                done.set_result(why)

        def notify() -> None:
            why = self._notify(alert)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(finish, why)

        threading.Thread(target=notify, name="esclusa-alert", daemon=True).start()
        try:
            async with asyncio.timeout(self._timeout):
                why = await done
        except TimeoutError:
            return True, f"no answer in {self._timeout:g} s"
        return bool(why), why

    def _notify(self, alert: dict[str, Any]) -> str:
        """Send it; return why that failed, or an empty text."""
        ended = alert["event"] == "ended"
        try:
            sent = self._service.notify(
                title=f"[{alert['name']} {alert['event']}] {alert['subject']}",
                body=str(alert["message"]),
                notify_type="success" if ended else "failure",
            )
        except Exception as error:  # noqa: BLE001  # its text may contain the URL
            return type(error).__name__
        return "" if sent else "the service refused it or did not answer"
