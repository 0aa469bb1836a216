"""Known tenders: read again while they are open, and announce what happens to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

from esclusa import FanOut, RecordWithChildren, RunContext, Text, above, at_most, below, one_of
from esclusa.pipelines.tenders.overlap import overlapping_writes
from esclusa.pipelines.tenders.records import (
    AWARDED,
    CHANGED,
    CLOSED,
    CLOSING_SOON,
    IS_AWARDED,
    PUBLISHED,
    Delivery,
    Licitacion,
    NotificationEvent,
)
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.sources.source import SourceFailed, TenderSource
from esclusa.pipelines.tenders.targeting import DeviceIndex, is_closed
from esclusa.pipelines.tenders.tender_fields import is_same_closing, newer_fields

BATCH = 500
# Failed calls in a row after which the other tenders are left for the next time.
MAX_FAILURES = 3
# A closed tender is read again after this time, until it is awarded.
AWARD_WAIT = timedelta(days=1)
# Counted by the run that compared the open tenders with the source's list.
FOLLOWED = "followed"

LoadDevices = Callable[[], Awaitable[DeviceIndex]]


async def follow(
    run: RunContext, source: TenderSource, listed: dict[str, Any], devices: LoadDevices
) -> None:
    """Read known tenders again whose state or closing date changed, and write what is new.

    It is done once in TENDERS_REFRESH_MINUTES. ``listed``: the rows of today's list.
    """
    settings: TendersSettings = run.settings
    if not await _is_due(run, timedelta(minutes=settings.refresh_minutes)):
        return
    try:
        rows = listed | (await source.list_open(run)).rows
    except SourceFailed as error:
        warn(run, Text("known tenders were not compared: {why}", why=error))
        return
    run.count(FOLLOWED)
    index = await devices()
    failures = 0
    async for tender in _stale(run, source, rows, index):
        if (
            run.stopping
            or failures >= MAX_FAILURES
            or run.counters["read"] >= settings.refresh_calls
        ):
            break
        run.count("read")
        try:
            detail = await source.detail(run, tender.codigo_externo, retry=False)
        except SourceFailed as error:
            failures += 1
            run.log(f"{tender.codigo_externo} is not read again: {error}", level="warning")
            continue
        failures = 0
        if detail is not None:
            await update_tender(run, tender, source.fields(detail), index)
    await _announce_closing(run, index)


def warn(run: RunContext, message: str) -> None:
    """Log the message, and add it to that of the run."""
    run.log(message, level="warning")
    if run.message:
        message = Text("{message}; {more}", message=run.message, more=message)
    run.end("ok", message)


async def _is_due(run: RunContext, interval: timedelta) -> bool:
    first = await anext(run.earlier(), None)
    if first is None or first.started_at > run.now - interval:
        return False
    async for earlier in run.earlier(since=run.now - interval):
        if FOLLOWED in earlier.counters:
            return False
    return True


async def _stale(
    run: RunContext, source: TenderSource, rows: dict[str, Any], index: DeviceIndex
) -> Any:
    """Yield the tenders that have to be read again, the most urgent first.

    Those that the source lists otherwise than they are stored; those that are stored as open and
    not listed; and, if a device wants to know, those that may have been awarded.
    """
    codes = list(rows)
    for start in range(0, len(codes), BATCH):
        part = codes[start : start + BATCH]
        where = {"codigo_externo": one_of(*part)}
        async for tender in run.records.each(Licitacion, where, size=BATCH):
            if _differs(tender, source.fields(rows[tender.codigo_externo])):
                yield tender
    async for tender in run.records.each(Licitacion, {"codigo_estado": PUBLISHED}, size=BATCH):
        # An empty list of open tenders may be a fault of the source.
        if tender.codigo_externo not in rows and (rows or is_closed(tender, run.now)):
            yield tender
    if index.wants(AWARDED):
        closed = {"codigo_estado": CLOSED, "updated_at": below(run.now - AWARD_WAIT)}
        async for tender in run.records.each(Licitacion, closed, size=BATCH):
            yield tender


def _differs(tender: Licitacion, listed: dict[str, Any]) -> bool:
    return any(
        listed[name] is not None and listed[name] != getattr(tender, name)
        for name in ("codigo_estado", "fecha_cierre")
    )


async def update_tender(
    run: RunContext, tender: Licitacion, fields: dict[str, Any], index: DeviceIndex
) -> None:
    """Write what is new of a tender, and announce it.

    The events are written first: after a crash between the two, the next run writes both again, and
    an event that exists is not written twice.
    """
    changes = newer_fields(tender, fields)
    after = tender.but(**changes)
    for type in events_of(tender, after, run.now):
        await write_event(run, type, after, index)
    # Written even if nothing changed: `updated_at` is when it was read last.
    await run.records.edit(
        Licitacion, tender.id, among=[tender.status], who=run.worker, reason="read again", **changes
    )
    if changes:
        run.count("refreshed")


def events_of(before: Licitacion, after: Licitacion, now: datetime) -> Iterator[str]:
    """Yield the types of the events that the change of a tender is.

    That an open tender closes at its time is no event, nor is the time of a closing of which only
    the day was known. A tender may change more than once: each change has a type of its own.
    """
    if after.codigo_estado == IS_AWARDED and before.codigo_estado != IS_AWARDED:
        yield AWARDED
        return
    if is_same_closing(before, after):
        before = before.but(fecha_cierre=after.fecha_cierre)
    was, present = (
        (t.fecha_cierre, t.monto_estimado, t.moneda, t.codigo_estado) for t in (before, after)
    )
    ended = after.codigo_estado == CLOSED and (after.fecha_cierre or now) <= now
    if before.codigo_estado == PUBLISHED and was != present and not ended:
        yield f"{CHANGED}:{sha256(repr(present).encode()).hexdigest()[:12]}"


async def _announce_closing(run: RunContext, index: DeviceIndex) -> None:
    """Write an event for each open tender that closes within TENDERS_CLOSING_SOON_HOURS."""
    if not index.wants(CLOSING_SOON):
        return
    until = run.now + timedelta(hours=run.settings.closing_soon_hours)
    where = {"codigo_estado": PUBLISHED, "fecha_cierre": (above(run.now), at_most(until))}
    async with overlapping_writes() as writes:
        async for tender in run.records.each(Licitacion, where, size=BATCH):
            if run.stopping:
                return
            await writes.start(partial(write_event, run, CLOSING_SOON, tender, index))


async def write_event(run: RunContext, type: str, tender: Licitacion, index: DeviceIndex) -> None:
    """Write an event with a delivery for each device that wants it, unless it exists."""
    matching = index.matching(tender, type.partition(":")[0])
    if not matching:
        return
    event = event_with_deliveries(type, tender.id, matching)
    [new] = await run.records.insert_if_new([event])
    if new is not None:
        run.count("events")
        run.count("deliveries", new)


def event_with_deliveries(type: str, tender: str, devices: Sequence[str]) -> RecordWithChildren:
    """Return an event of a tender, and a delivery for each of these devices."""
    template = Delivery(notification_event_id="", installation_id="")
    return RecordWithChildren(
        NotificationEvent(type=type, licitacion_id=tender),
        [FanOut(template, "installation_id", devices)],
        link="notification_event_id",
    )
