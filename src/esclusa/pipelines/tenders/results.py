"""Tenders as files: OCDS releases, or one row per tender as CSV, NDJSON or Parquet."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from esclusa import NotFound, Runtime, at_least, below, null
from esclusa.exports import MEDIA_TYPES, encode, record_columns, record_row
from esclusa.pipelines.tenders.ocds import build_release, write_package
from esclusa.pipelines.tenders.rates import load_rates
from esclusa.pipelines.tenders.records import Licitacion
from esclusa.pipelines.tenders.restore import check_month
from esclusa.pipelines.tenders.settings import TendersSettings

ResultFormat = Literal["ocds", "csv", "ndjson", "parquet"]
FORMATS: tuple[ResultFormat, ...] = get_args(ResultFormat)


class TenderFile:
    """The bytes of a file of tenders, made while they are read. It can be read once.

    Tenders of the archive are included. ``month``: only those published in it (UTC), as in the
    archive's files. Raises NotFound if there is none, before the first byte.
    """

    def __init__(
        self, runtime: Runtime, form: ResultFormat, month: str | None, uri: str | None = None
    ) -> None:
        self.month = None if month is None else check_month(month)
        self.name = f"licitaciones-{self.month or 'all'}.{'json' if form == 'ocds' else form}"
        self.media_type = "application/json" if form == "ocds" else MEDIA_TYPES[form]
        self.count = 0
        self._runtime, self._form = runtime, form
        self._uri = uri or f"urn:esclusa:tenders:{self.month or 'all'}"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        tenders = self._tenders()
        first = await anext(tenders, None)
        if first is None:
            raise NotFound(
                "there is no tender" + (f" of {self.month}" if self.month is not None else "")
            )
        content = self._encoded(_chain(first, tenders))
        async for chunk in content:
            yield chunk

    async def _tenders(self) -> AsyncIterator[Licitacion]:
        """Yield each tender once, though another program may have stored two rows of one code."""
        seen: set[str] = set()
        wheres: list[dict[str, Any]] = [{}]
        if self.month is not None:
            during = _during(self.month)
            wheres = [
                {"fecha_publicacion": during},
                {"fecha_publicacion": null, "created_at": during},
            ]
        for archived in (False, True):
            for where in wheres:
                async for tender in self._runtime.records.each(
                    Licitacion, where, size=1000, archived=archived
                ):
                    if tender.codigo_externo not in seen:
                        seen.add(tender.codigo_externo)
                        self.count += 1
                        yield tender

    def _encoded(self, tenders: AsyncIterable[Licitacion]) -> AsyncIterable[bytes]:
        if self._form == "ocds":
            return self._package(tenders)
        columns = record_columns(Licitacion)

        async def rows() -> AsyncIterator[dict[str, Any]]:
            async for tender in tenders:
                yield record_row(tender, columns)

        return encode(columns, rows(), self._form)

    async def _package(self, tenders: AsyncIterable[Licitacion]) -> AsyncIterator[bytes]:
        settings: TendersSettings = self._runtime.settings_of("tenders")
        now = await self._runtime.engine.clock.sync()
        rates = await load_rates(self._runtime.records, settings.rates)

        async def releases() -> AsyncIterator[dict[str, Any]]:
            async for tender in tenders:
                yield build_release(tender, settings, rates)

        async for chunk in write_package(releases(), self._uri, now, settings.publisher):
            yield chunk


async def _chain(first: Licitacion, rest: AsyncIterator[Licitacion]) -> AsyncIterator[Licitacion]:
    yield first
    async for tender in rest:
        yield tender


def _during(month: str) -> tuple[Any, Any]:
    """Return the conditions that a time lies in the month."""
    first = datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC)
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    return at_least(first), below(following)
