"""The values that preferences can have: regions, categories (rubros) and buyers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Any, Generic, TypeVar

from fastapi import APIRouter, Query
from pydantic import BaseModel

from esclusa import Runtime, at_least, not_null
from esclusa.pipelines.tenders.records import Licitacion, Rubro
from esclusa.pipelines.tenders.regions import REGIONS
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.words import begins_word, normalize
from esclusa.web import ListOut, own_credentials

T = TypeVar("T")

# How far back tenders are read for their categories and buyers, and the most that are read.
DAYS, MAX_TENDERS = 90, 50_000
# How long what was read is kept.
KEPT_SECONDS = 600.0
# The digits of a category's code that name each of its levels, from the widest on.
LEVELS = (2, 4, 6)

Search = Annotated[str, Query(max_length=200, description="Words of the name, or a code")]
Shown = Annotated[int, Query(ge=1, le=10_000, description="Maximum number of items")]


class RegionOut(BaseModel):
    """A region of Chile. Preferences take its code, its number or its name."""

    code: int
    number: str
    name: str


class RubroOut(BaseModel):
    """A category. A preference for it matches all below it, too."""

    code: str
    name: str
    parent_code: str | None = None


class BuyerOut(BaseModel):
    """An organisation, and how many of its tenders were published in the last 90 days."""

    code: str
    name: str
    tenders: int


class Kept(Generic[T]):
    """A value that is read again when it is too old; concurrent callers share one reading."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read, self._lock = read, asyncio.Lock()
        self._value: T | None = None
        self._until = 0.0

    async def get(self) -> T:
        """Return the value."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._value is None or now >= self._until:
                self._value, self._until = await self._read(), now + KEPT_SECONDS
            return self._value


class Choices:
    """What the tenders of the last days and the table of categories offer."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.rubros = Kept(self._read_rubros)
        self.buyers = Kept(self._read_buyers)
        self.regions = Kept(self._read_regions)

    async def _recent(self) -> dict[str, Any]:
        since = await self._runtime.engine.clock.sync() - timedelta(days=DAYS)
        return {"created_at": at_least(since)}

    async def _read_rubros(self) -> list[dict[str, Any]]:
        """Return the team's own table of categories, and the categories of tenders."""
        found: dict[str, dict[str, Any]] = {}
        read = 0
        async for tender in self._runtime.records.each(Licitacion, await self._recent()):
            read += 1
            if read > MAX_TENDERS:
                break
            for item in tender.items or ():
                if isinstance(item, dict):
                    found |= _categories(item)
        async for row in self._runtime.records.each(Rubro):
            found[row.code] = {"code": row.code, "name": row.name, "parent_code": row.parent_code}
        return [found[code] for code in sorted(found)]

    async def _read_buyers(self) -> list[dict[str, Any]]:
        names = ["codigo_organismo", "organismo"]
        where = await self._recent() | {"codigo_organismo": not_null}
        found: dict[str, dict[str, Any]] = {}
        totals = await self._runtime.records.totals(Licitacion, names, where=where)
        for total in sorted(totals, key=lambda each: each.count):
            code, name = (total.values[n] for n in names)
            before = found.get(code, {"tenders": 0})["tenders"]
            found[code] = {"code": code, "name": name or code, "tenders": before + total.count}
        return sorted(found.values(), key=lambda buyer: (normalize(buyer["name"]), buyer["code"]))

    async def _read_regions(self) -> list[str]:
        """Return the names of regions as tenders have them."""
        totals = await self._runtime.records.totals(Licitacion, ["region"])
        return sorted({total.values["region"] for total in totals} - {None, ""})


def _categories(item: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the category of an item, and those above it if its text names them."""
    code, text = str(item.get("CodigoCategoria") or ""), str(item.get("Categoria") or "").strip()
    if not code or not text:
        return {}
    parts = [part.strip() for part in text.split(" / ")]
    if len(code) != 8 or not code.isdigit() or len(parts) != len(LEVELS):
        return {code: {"code": code, "name": parts[-1], "parent_code": None}}
    codes = [code[:digits].ljust(8, "0") for digits in LEVELS]
    return {
        each: {"code": each, "name": name, "parent_code": parent if parent != each else None}
        for each, name, parent in zip(codes, parts, [None, *codes], strict=False)
    }


def add_choices(runtime: Runtime, api: APIRouter, choices: Choices) -> None:
    """Add the routes of regions, categories and buyers."""
    settings: TendersSettings = runtime.settings_of("tenders")
    for_apps = own_credentials(anonymous=settings.open_to_apps)

    @api.get(
        "/regions",
        response_model=ListOut[RegionOut],
        summary="The regions of Chile",
        openapi_extra=for_apps,
    )
    async def regions() -> Any:
        return {
            "items": [{"code": r.code, "number": r.number, "name": r.name} for r in REGIONS],
            "next": None,
        }

    @api.get(
        "/rubros",
        response_model=ListOut[RubroOut],
        summary="Categories: those of the table of categories and of recent tenders",
        openapi_extra=for_apps,
    )
    async def rubros(q: Search = "", limit: Shown = 10_000) -> Any:
        return _chosen(await choices.rubros.get(), q, limit)

    @api.get(
        "/buyers",
        response_model=ListOut[BuyerOut],
        summary="Organisations with recent tenders, by name",
        openapi_extra=for_apps,
    )
    async def buyers(q: Search = "", limit: Shown = 10_000) -> Any:
        return _chosen(await choices.buyers.get(), q, limit)


def _chosen(items: list[dict[str, Any]], q: str, limit: int) -> dict[str, Any]:
    """Return the items whose code begins with ``q``, or whose name has its words."""
    words = normalize(q).split()
    found = [
        item
        for item in items
        if item["code"].startswith(q.strip())
        or all(begins_word(word, normalize(item["name"])) for word in words)
    ]
    return {"items": found[:limit], "next": None}
