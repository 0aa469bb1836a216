"""The list of tenders that the team's app shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from esclusa import BadQuery, at_least, at_most, one_of
from esclusa.pipelines.tenders.app_json import read_cursor, tender_json, write_cursor
from esclusa.pipelines.tenders.records import Licitacion
from esclusa.pipelines.tenders.regions import region_key
from esclusa.pipelines.tenders.targeting import category_prefix

SortMode = Literal["latest_published", "most_relevant", "closing_soon"]
# The most tenders that a call reads to find those of a category.
MAX_READ = 5000
# The field and the cursor's member that each order has; without a mode, that of insertion.
ORDERS: dict[SortMode | None, tuple[str, str]] = {
    None: ("created_at", "createdAt"),
    "latest_published": ("fecha_publicacion", "fechaPublicacion"),
    "most_relevant": ("fecha_publicacion", "fechaPublicacion"),
    "closing_soon": ("fecha_cierre", "fechaCierre"),
}


@dataclass(frozen=True, slots=True)
class Feed:
    """What the app asks for. ``regions``: the names that tenders have."""

    limit: int
    window_days: int
    cursor: str | None
    rubro: str | None
    tipo: str | None
    region: str | None
    amount_min: Decimal | None
    amount_max: Decimal | None
    sort_mode: SortMode | None

    async def answer(self, records: Any, regions: list[str], now: datetime) -> dict[str, Any]:
        """Return a page. Raises BadQuery for a cursor of another list."""
        since = now - timedelta(days=self.window_days)
        field, member = ORDERS[self.sort_mode]
        behind = None
        if self.cursor:
            try:
                behind = read_cursor(self.cursor, member)
            except ValueError as error:
                raise BadQuery(str(error)) from None
        found, last, more = await self._read(records, regions, since, now, behind)
        following = None
        if more and last is not None:
            following = write_cursor(member, getattr(last, field), last.id)
        return {
            "data": [tender_json(tender) for tender in found],
            "pageInfo": {
                "limit": self.limit,
                "hasMore": following is not None,
                "nextCursor": following,
                "windowDays": self.window_days,
                "windowStart": since.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "sortMode": self.sort_mode,
            },
        }

    async def _read(
        self,
        records: Any,
        regions: list[str],
        since: datetime,
        now: datetime,
        behind: tuple[datetime, str] | None,
    ) -> tuple[list[Licitacion], Licitacion | None, bool]:
        """Return the tenders of a page, the last one read, and whether there may be more."""
        field, _ = ORDERS[self.sort_mode]
        where, ascending = self._where(regions, since), self.sort_mode == "closing_soon"
        tests = [at_least(now)] if ascending else []
        if behind is not None:
            tests.append(at_least(behind[0]) if ascending else at_most(behind[0]))
        if field in where:
            tests.append(where[field])
        if tests:
            where[field] = tuple(tests) if len(tests) > 1 else tests[0]
        order = (field, "id") if ascending else (f"-{field}", "-id")
        found: list[Licitacion] = []
        last, read = None, 0
        prefix = category_prefix(self.rubro) if self.rubro else ""
        async for tender in records.each(Licitacion, where, order=order, size=200):
            position = (getattr(tender, field), tender.id)
            if position[0] is None or (
                behind is not None and (position <= behind if ascending else position >= behind)
            ):
                continue
            if len(found) == self.limit or read == MAX_READ:
                return found, last, True
            last, read = tender, read + 1
            if not prefix or _has_category(tender, prefix):
                found.append(tender)
        return found, last, False

    def _where(self, regions: list[str], since: datetime) -> dict[str, Any]:
        where: dict[str, Any] = {"created_at": at_least(since)}
        if self.tipo:
            where["tipo"] = self.tipo
        if self.region:
            wanted = region_key(self.region)
            where["region"] = one_of(
                *(name for name in regions if region_key(name) == wanted), self.region
            )
        amounts = [] if self.amount_min is None else [at_least(self.amount_min)]
        amounts += [] if self.amount_max is None else [at_most(self.amount_max)]
        if amounts:
            where["monto_estimado"] = tuple(amounts) if len(amounts) > 1 else amounts[0]
        return where


def _has_category(tender: Licitacion, prefix: str) -> bool:
    return any(
        isinstance(code, str) and code.startswith(prefix)
        for code in (tender.rubro_code, *(tender.categorias or ()))
    )
