"""What ``esclusa doctor`` says of the quiet hours of devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from esclusa import not_null
from esclusa.pipelines.tenders.records import NotificationPreferences
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.targeting import quiet_until

# The devices that a finding names.
NAMED = 3


async def check_quiet_hours(settings: TendersSettings, records: Any) -> AsyncIterator[str]:
    """Yield the devices whose quiet hours cannot be read, such as those of an unknown time zone."""
    now, faults, count = datetime.now(UTC), list[str](), 0
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
