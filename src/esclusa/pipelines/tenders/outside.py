"""The services outside, open as long as the process is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from esclusa.http import session
from esclusa.model.value import value
from esclusa.pipelines.tenders import site
from esclusa.pipelines.tenders.chilecompra import ChileCompra
from esclusa.pipelines.tenders.expo import Expo
from esclusa.pipelines.tenders.settings import TendersSettings


@value
class Outside:
    """ChileCompra's API and site, and Expo."""

    chilecompra: ChileCompra
    expo: Expo
    settings: TendersSettings
    _web: Any

    @classmethod
    @asynccontextmanager
    async def opened(cls, settings: TendersSettings) -> AsyncIterator[Outside]:
        async with (
            session(total=settings.api_timeout_seconds, connections=1) as api,
            session(
                total=settings.expo_timeout_seconds, connections=settings.expo_concurrency
            ) as expo,
            session(total=settings.api_timeout_seconds, connections=1) as web,
        ):
            yield cls(ChileCompra(api, settings), Expo(expo, settings), settings, web)

    async def newest(self, count: int) -> list[dict[str, Any]]:
        """The newest tenders of the public site. Raises SiteFailed."""
        return await site.newest(self._web, self.settings.site_url, count)
