"""Where tenders come from. A new source is a module here and an entry in ``SOURCES``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.sources.chilecompra_api import ChileCompraApi
from esclusa.pipelines.tenders.sources.chilecompra_site import ChileCompraSite
from esclusa.pipelines.tenders.sources.source import TenderSource

# All sources. Of equally complete values, the first source's is kept.
SOURCES: tuple[type[TenderSource], ...] = (ChileCompraApi, ChileCompraSite)


@asynccontextmanager
async def open_sources(settings: TendersSettings) -> AsyncIterator[list[TenderSource]]:
    """Open every source for the duration of the block."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(source.open(settings)) for source in SOURCES]
