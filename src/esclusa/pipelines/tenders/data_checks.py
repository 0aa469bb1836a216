"""What ``esclusa doctor`` says of stored data that another program may have written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from esclusa import above, not_null
from esclusa.pipelines.tenders.records import Licitacion, NotificationPreferences
from esclusa.pipelines.tenders.settings import CHILE, TendersSettings
from esclusa.pipelines.tenders.targeting import quiet_until

# The devices that a finding names.
NAMED = 3
# Fewer tenders may be written late by chance.
ENOUGH_TENDERS = 5


async def check_data(settings: TendersSettings, records: Any) -> AsyncIterator[Any]:
    """Yield what is wrong with quiet hours and with times."""
    now = datetime.now(UTC)
    async for fault in _check_quiet_hours(records, now):
        yield fault
    async for warning in _check_times(records, now):
        yield warning


async def _check_times(records: Any, now: datetime) -> AsyncIterator[tuple[str, str]]:
    """Yield whether another program stores Chile's time as if it were UTC.

    Then each of its tenders seems to be published hours before it was written. Noon stands for a
    day without a time.
    """
    behind = -(ZoneInfo(CHILE).utcoffset(now) or timedelta())
    lags = [
        tender.created_at - tender.fecha_publicacion
        async for tender in records.each(
            Licitacion, {"fecha_publicacion": above(now - timedelta(days=1))}, size=1000
        )
        if not tender.detalle and tender.fecha_publicacion.time() != time(12)
    ]
    if len(lags) >= ENOUGH_TENDERS and min(lags) >= behind:
        finding = (
            f"all {len(lags):,} tenders that another program wrote for the last day were published "
            f"{behind.seconds // 3600} hours or more before they were written: it stores Chile's "
            f"time as UTC. Let its session have the time zone {CHILE}; open tenders are corrected "
            "when they are read again"
        )
        yield "warn", finding


async def _check_quiet_hours(records: Any, now: datetime) -> AsyncIterator[str]:
    """Yield the devices whose quiet hours cannot be read, such as those of an unknown time zone."""
    faults, count = list[str](), 0
    async for given in records.each(NotificationPreferences, {"quiet_hours": not_null}, size=1000):
        try:
            quiet_until(given.quiet_hours, now)
        except (LookupError, TypeError, ValueError, OSError, AttributeError) as error:
            count += 1
            if len(faults) < NAMED:
                faults.append(f"{given.installation_id} ({_shown(given.quiet_hours, error)})")
    if count:
        more = f" and {count - NAMED:,} more" if count > NAMED else ""
        yield (
            f"the quiet hours of {count:,} devices cannot be read, so that they get no messages: "
            f"{', '.join(faults)}{more}; change them with PATCH /devices/…"
        )


def _shown(hours: Any, error: Exception) -> str:
    zone = hours.get("timezone") if isinstance(hours, dict) else None
    if isinstance(error, LookupError | OSError) and zone and {"start", "end"} <= hours.keys():
        return f"no time zone {zone!r:.60}"
    return f"{type(error).__name__} {error}"[:100]
