"""ChileCompra's API: one call at a time, in its pace; its odd rule of success; the ticket in no message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import date
from typing import TYPE_CHECKING, Any

from esclusa import EsclusaError
from esclusa.http import retry_after
from esclusa.pipelines.tenders.answers import json_of, text_of
from esclusa.pipelines.tenders.settings import TendersSettings

if TYPE_CHECKING:
    import aiohttp

PATH = "/servicios/v1/publico/licitaciones.json"
STEPS = (1, 2, 4, 8, 15)
"""The waits between tries, in paces: 2, 4, 8, 16, 30 s in the pace that the API stands."""

Spend = Callable[[], Awaitable[None]]


class Blocked(EsclusaError):
    """Nothing more is to be had: the ticket is not valid, or its day's calls are used up."""


class CallFailed(EsclusaError):
    """A call failed, after its tries; another one may go through. ``outage``: it is the API, not what was asked."""

    def __init__(self, message: str, *, outage: bool) -> None:
        self.outage = outage
        super().__init__(message)


class ChileCompra:
    """The API. ``spend`` is awaited before every call: it counts against the ticket's day."""

    def __init__(self, session: aiohttp.ClientSession, settings: TendersSettings) -> None:
        self._session = session
        self._url = settings.api_url + PATH
        self._ticket = settings.ticket.get_secret_value() if settings.ticket else ""
        self._pace = settings.pace_seconds
        self._line = asyncio.Lock()
        self._free_at = 0.0

    async def summary(self, day: date, spend: Spend) -> list[dict[str, Any]]:
        """The tenders of a day, four fields each. Raises Blocked, CallFailed."""
        return await self._ask({"fecha": f"{day:%d%m%Y}"}, spend, STEPS)

    async def detail(
        self, code: str, spend: Spend, *, patient: bool = True
    ) -> dict[str, Any] | None:
        """All that is known of a tender; None if the API does not know it. Raises Blocked, CallFailed.
        ``patient``: a call that fails is tried again after a wait."""
        found = await self._ask({"codigo": code}, spend, STEPS if patient else ())
        return next(
            (
                row
                for row in found
                if isinstance(row, dict) and _same(row.get("CodigoExterno"), code)
            ),
            None,
        )

    async def _ask(
        self, params: dict[str, str], spend: Spend, steps: tuple[int, ...]
    ) -> list[dict[str, Any]]:
        if not self._ticket:
            raise Blocked("CHILECOMPRA_TICKET is not set")
        for step in (*steps, None):
            try:
                async with self._line:
                    await asyncio.sleep(max(0.0, self._free_at - time.monotonic()))
                    await spend()
                    try:
                        return await self._call(params)
                    finally:
                        self._free_at = time.monotonic() + self._pace
            except _Again as again:
                if step is None:
                    raise CallFailed(str(again), outage=True) from None
                await asyncio.sleep(min(60.0, max(step * self._pace, again.after)))
        raise AssertionError("unreachable")

    async def _call(self, params: dict[str, str]) -> list[dict[str, Any]]:
        try:
            async with self._session.get(
                self._url, params={**params, "ticket": self._ticket}
            ) as answer:
                status, body = answer.status, json_of(await text_of(answer))
                after = retry_after(answer.headers, time.time()) or 0.0
        except (OSError, TimeoutError, self._client_error) as error:
            raise _Again(
                f"the API did not answer: {type(error).__name__} {error}".replace(
                    self._ticket, "***"
                )
            ) from None
        if (
            status == 200
            and isinstance(body, dict)
            and "Listado" in body
            and isinstance(body["Listado"], list | None)
        ):
            rows: list[dict[str, Any]] = body["Listado"] or []
            return rows
        raise self._fault(status, body, after)

    @property
    def _client_error(self) -> type[Exception]:
        import aiohttp  # noqa: PLC0415 - heavy, and only needed where something is called

        return aiohttp.ClientError

    def _fault(self, status: int, body: Any, after: float) -> Exception:
        """What an answer that is no success means."""
        told = body if isinstance(body, dict) else {}
        inner = told.get("error")
        message = str(
            told.get("Mensaje") or (inner.get("message") if isinstance(inner, dict) else "") or ""
        ).replace(self._ticket, "***")
        code = str(told.get("Codigo") or "")[:20]
        said = f"{message[:300] or 'no message'} (HTTP {status}{f', code {code}' if code else ''})"
        if "cuota" in message.lower():
            return Blocked(f"the ticket's daily quota is used up: {said}")
        if status == 203 or code == "203":
            return Blocked(f"the ticket is not valid: {said}; check CHILECOMPRA_TICKET")
        if code == "10300":
            return CallFailed(f"the API refuses what was asked: {said}", outage=False)
        return _Again(f"the API failed: {said}", after)


def _same(said: Any, code: str) -> bool:
    return isinstance(said, str) and said.strip().casefold() == code.casefold()


class _Again(Exception):
    """The call may go through later."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        self.after = after
        super().__init__(message)
