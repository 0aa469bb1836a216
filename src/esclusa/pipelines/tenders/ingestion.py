"""Ingest: find new tenders, read each one's detail, write it with its event and deliveries in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from esclusa import BudgetEmpty, EsclusaError, FanOut, Record, RecordWithChildren, RunContext
from esclusa.pipelines.tenders.chilecompra import Blocked, CallFailed, Spend
from esclusa.pipelines.tenders.outside import Outside
from esclusa.pipelines.tenders.records import (
    NEW_TENDER,
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationEvent,
    NotificationPreferences,
    RegistryEntry,
)
from esclusa.pipelines.tenders.settings import CHILE
from esclusa.pipelines.tenders.site import SiteFailed
from esclusa.pipelines.tenders.targeting import Targets, notifies
from esclusa.pipelines.tenders.tender import from_detail, make, merge

Listed = dict[str, dict[str, Any]]
"""What a list says of each tender, by its code."""

NEWEST = 20
IMPATIENT = 3
"""After so many details in a row that the API failed on, it is not waited for any more: each is asked for once."""

COUNTERS = {name: name for name in ("found", "known", "new", "deliveries", "left")}
"""``left``: codes whose detail could not be had; the next run asks again."""

CAUGHT_UP = "caught_up"
"""Counted by the run of a day that had all that the day before left: its list is not read again."""


async def ingest(run: RunContext) -> None:
    """Scrape and ask for today's tenders; drop what the registry knows; detail, merge and write the rest, one by one.

    What yesterday's last run could not see, or left, is in yesterday's list alone: the first run of a day reads that too.
    """
    outside: Outside = run.context

    async def spend() -> None:
        await run.spend(run.settings.calls)

    site = await _site(run, outside)
    today = run.now.astimezone(ZoneInfo(CHILE)).date()
    try:
        listed = _listed(await outside.chilecompra.summary(today, spend))
        late = await _late(run, outside, today, spend)
        codes = dict.fromkeys((*listed, *site, *(late or ())))
        run.count("found", len(codes))
        fresh = await _unknown(run, codes)
        run.count("known", len(codes) - len(fresh))
        left = await _details(run, outside, fresh, (late or {}) | listed, site, spend)
        if late is not None and left.isdisjoint(late):
            run.count(CAUGHT_UP)
    except CallFailed as error:
        run.end("error", f"today's tenders could not be read: {error}")
    except (Blocked, BudgetEmpty) as error:
        run.halt("blocked", str(error))


async def _late(run: RunContext, outside: Outside, today: date, spend: Spend) -> Listed | None:
    """Yesterday's list; None if it is not to be read: a run of today had all of it, or nothing ran before today."""
    midnight = datetime.combine(today, time(), ZoneInfo(CHILE))
    async for earlier in run.earlier(since=midnight):
        if CAUGHT_UP in earlier.counters:
            return None
    first = await anext(run.earlier(), None)
    if first is None or first.started_at >= midnight:
        return None
    try:
        return _listed(await outside.chilecompra.summary(today - timedelta(days=1), spend))
    except CallFailed as error:
        said = f"yesterday's tenders could not be read once more: {error}"
        run.log(said, level="warning")
        run.end("ok", said)
        return None


async def _site(run: RunContext, outside: Outside) -> Listed:
    """The newest tenders of the public site by code; none if it fails, which is told and harms nothing."""
    try:
        found = await outside.newest(NEWEST)
    except Exception as error:  # noqa: BLE001 - it never blocks, whatever its page does to who reads it
        said = str(error) if isinstance(error, SiteFailed) else f"{type(error).__name__}: {error}"
        run.log(f"the public site failed: {said}", level="warning")
        run.end("ok", f"the public site failed: {said}")
        return {}
    return {row["codigo_externo"]: row for row in found}


def _listed(summary: Iterable[Any]) -> Listed:
    found = ((row.get("CodigoExterno"), row) for row in summary if isinstance(row, dict))
    return {code.strip(): row for code, row in found if isinstance(code, str) and code.strip()}


async def _unknown(run: RunContext, codes: Iterable[str]) -> list[str]:
    """The codes that nobody has claimed, asked before any detail is: the API's calls are few."""
    named = {RegistryEntry.kind.id_of(code): code for code in codes}
    ids, fresh = list(named), []
    for start in range(0, len(ids), 1000):
        part = ids[start : start + 1000]
        known = await run.records.get_many(RegistryEntry, part)
        fresh += [named[id] for id, entry in zip(part, known, strict=True) if entry is None]
    return fresh


async def _details(
    run: RunContext, outside: Outside, codes: list[str], listed: Listed, site: Listed, spend: Spend
) -> set[str]:
    """Read and write each, what its detail lacks by what the list and the site say; return the codes that are left for the next run."""
    targets: Targets | None = None
    failures, left = 0, set(codes)
    for code in codes:
        if run.stopping:
            break
        try:
            detail = await outside.chilecompra.detail(code, spend, patient=failures < IMPATIENT)
            if detail is None:
                raise CallFailed("the API does not know it", outage=False)
            told = merge(from_detail(detail), from_detail(listed.get(code, {})), site.get(code, {}))
            tender = make({**told, "codigo_externo": code, "detalle": detail}, run.now)
        except (Blocked, BudgetEmpty):
            raise
        except EsclusaError as error:  # the call failed, or what it told makes no tender
            run.count("left")
            run.log(
                f"{code} is left for the next run: {error}", level="warning", codigo_externo=code
            )
            run.end(
                "ok",
                f"{run.counters['left']} tenders are left for the next run; the last: {code}: {error}",
            )
            failures = failures + 1 if isinstance(error, CallFailed) and error.outage else 0
            continue
        failures = 0
        targets = targets or await load_targets(run.records)
        await write(run, tender, targets)
        left.discard(code)
    return left


async def load_targets(records: Any) -> Targets:
    """Every active device with its preferences, indexed."""
    wanted = {
        row.installation_id: row async for row in records.each(NotificationPreferences, size=5000)
    }
    active = [
        row.installation_id
        async for row in records.each(DeviceInstallation, {"active": True}, size=5000)
    ]
    return Targets((id, wanted.get(id)) for id in active)


async def write(run: RunContext, tender: Licitacion, targets: Targets) -> None:
    """Claim the code and, if it is new, write the tender, its event and a delivery for each device: all, or nothing."""
    entry = RegistryEntry(
        codigo_externo=tender.codigo_externo, claimed_by=run.engine.worker, claimed_at=run.now
    )
    rest: list[Record | FanOut] = [tender]
    chosen: list[str] = []
    if notifies(tender):
        id = Licitacion.kind.id_of(tender.codigo_externo)
        event = NotificationEvent(type=NEW_TENDER, licitacion_id=id)
        chosen = targets.of(tender)
        blank = Delivery(
            notification_event_id=NotificationEvent.kind.id_of(NEW_TENDER, id),
            installation_id="",
            licitacion_id=id,
        )
        rest += [event, FanOut(blank, "installation_id", chosen)]
    [new] = await run.records.insert_if_new([RecordWithChildren(entry, rest)])
    if new is None:
        run.count("known")
    else:
        run.count("new")
        run.count("deliveries", len(chosen))
