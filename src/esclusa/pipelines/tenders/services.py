"""The external services of the pipeline, open as long as the process runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from esclusa.http import session
from esclusa.pipelines.tenders.expo import ExpoClient
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.sources import TenderSource, open_sources


@dataclass(frozen=True, slots=True)
class TenderServices:
    """The sources of tenders, and Expo."""

    sources: list[TenderSource]
    expo: ExpoClient


@asynccontextmanager
async def open_services(settings: TendersSettings) -> AsyncIterator[TenderServices]:
    """Open the services for the duration of the block; handlers get them as ``at.context``."""
    timeout, connections = settings.expo_timeout_seconds, settings.expo_concurrency
    async with (
        open_sources(settings) as sources,
        session(total=timeout, connections=connections) as http,
    ):
        yield TenderServices(sources, ExpoClient(http, settings))
