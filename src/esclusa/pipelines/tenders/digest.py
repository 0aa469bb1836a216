"""Digests: a device that wants one gets all new tenders of a day as one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, time, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

from esclusa import RecordWithChildren, RunContext, above, at_most, not_null, one_of
from esclusa.pipelines.tenders.records import (
    DIGEST,
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationEvent,
    NotificationPreferences,
)
from esclusa.pipelines.tenders.settings import CHILE
from esclusa.pipelines.tenders.targeting import DeviceIndex, is_announced

T = TypeVar("T")

BATCH = 500
# How far back a digest reaches after a time in which no worker ran.
FARTHEST = timedelta(days=7)


async def announce_digests(run: RunContext) -> None:
    """Make an event and a delivery for each device whose time of the day has come.

    A digest has the tenders that were found since the one before it. A device for which there are
    none gets no message. To repeat it adds nothing.
    """
    wanted: dict[str, list[NotificationPreferences]] = {}
    async for row in run.records.each(NotificationPreferences, {"digest": not_null}, size=5000):
        if row.digest is not None and parse_clock(row.digest) is not None:
            wanted.setdefault(row.digest, []).append(row)
    done: dict[str, datetime] = run.context.digests
    for text, devices in wanted.items():
        moment = last_moment(text, run.now)
        if done.get(text) == moment or run.stopping:
            continue
        since = moment - timedelta(days=1)
        if text not in done:
            since = max(run.now - FARTHEST, min(since, await _missed_since(run, text, since)))
        run.count("digests", await _announce(run, devices, since, moment))
        done[text] = moment


def parse_clock(text: str | None) -> time | None:
    """Return the time of the day; None if a row of another program has none."""
    try:
        return None if text is None else time.fromisoformat(text)
    except ValueError:
        return None


def last_moment(text: str, now: datetime) -> datetime:
    """Return when it was this time of the day in Chile last."""
    clock, zone = parse_clock(text), ZoneInfo(CHILE)
    assert clock is not None
    day = now.astimezone(zone).date()
    moment = datetime.combine(day, clock, zone)
    return moment if moment <= now else datetime.combine(day - timedelta(days=1), clock, zone)


async def _missed_since(run: RunContext, text: str, otherwise: datetime) -> datetime:
    """Return since when no digest was sent: a day before the first that no run could send."""
    last: datetime | None = None
    async for earlier in run.earlier(since=run.now - FARTHEST):
        last = earlier.started_at
    return otherwise if last is None else last_moment(text, last)


async def _announce(
    run: RunContext, devices: Sequence[NotificationPreferences], since: datetime, moment: datetime
) -> int:
    created = (above(since), at_most(moment))
    tenders = [
        tender
        async for tender in run.records.each(Licitacion, {"created_at": created}, size=1000)
        if is_announced(tender, run.now)
    ]
    if not tenders:
        return 0
    rates = await run.context.rates.load(run.records, run.now)
    index = DeviceIndex(await _reachable(run, devices), rates, digest=True)
    found: dict[str, list[Licitacion]] = {}
    for tender in sorted(tenders, key=lambda each: each.created_at or since, reverse=True):
        for id in index.matching(tender):
            found.setdefault(id, []).append(tender)
    digests = {f"{DIGEST}:{moment:%Y-%m-%d}:{id}": (id, of) for id, of in found.items()}
    return sum([await _insert(run, part) for part in _parts(list(digests.items()))])


async def _reachable(
    run: RunContext, devices: Sequence[NotificationPreferences]
) -> list[tuple[str, NotificationPreferences]]:
    reachable = []
    for part in _parts(devices):
        ids = [row.installation_id for row in part]
        found = await run.records.get_many(DeviceInstallation, ids)
        reachable += [
            (row.installation_id, row)
            for row, device in zip(part, found, strict=True)
            if device is not None and device.is_reachable
        ]
    return reachable


async def _insert(
    run: RunContext, digests: Sequence[tuple[str, tuple[str, list[Licitacion]]]]
) -> int:
    types = [type for type, _ in digests]
    known = {
        event.type async for event in run.records.each(NotificationEvent, {"type": one_of(*types)})
    }
    groups = [
        RecordWithChildren(
            NotificationEvent(
                type=type, licitacion_id=of[0].id, licitaciones=[tender.id for tender in of]
            ),
            [Delivery(notification_event_id="", installation_id=id)],
            link="notification_event_id",
        )
        for type, (id, of) in digests
        if type not in known
    ]
    answers = await run.records.insert_if_new(groups)
    return sum(answer is not None for answer in answers)


def _parts(rows: Sequence[T]) -> Iterable[Sequence[T]]:
    return (rows[start : start + BATCH] for start in range(0, len(rows), BATCH))
