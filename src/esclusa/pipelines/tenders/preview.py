"""The tenders that preferences would have matched in the last days."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from esclusa import Runtime, at_least
from esclusa.pipelines.tenders.rates import load_rates
from esclusa.pipelines.tenders.records import Licitacion, NotificationPreferences
from esclusa.pipelines.tenders.targeting import matches
from esclusa.web import record_json

MAX_DAYS = 90
# The most tenders that are compared: about a month's. One day has some 1,000.
MAX_TENDERS = 30_000


async def preview_matches(
    runtime: Runtime, preferences: NotificationPreferences | None, days: int, limit: int
) -> dict[str, Any]:
    """Return how many tenders of the last days match, and the newest ``limit`` of them."""
    rates = await load_rates(runtime.records, runtime.settings_of("tenders").rates)
    since = await runtime.engine.clock.sync() - timedelta(days=days)
    read = matched = 0
    items: list[dict[str, Any]] = []
    found = runtime.records.each(
        Licitacion, {"created_at": at_least(since)}, order="-created_at", size=1000
    )
    enabled = preferences is None or preferences.enabled
    async for tender in found:
        if read == MAX_TENDERS:
            return _answer(since, read, matched, items, exact=False)
        read += 1
        if enabled and matches(preferences, tender, rates):
            matched += 1
            if len(items) < limit:
                items.append(record_json(tender))
    return _answer(since, read, matched, items, exact=True)


def _answer(
    since: Any, read: int, matched: int, items: list[dict[str, Any]], *, exact: bool
) -> dict[str, Any]:
    return {
        "since": since.isoformat(),
        "tenders": read,
        "matched": matched,
        "exact": exact,
        "items": items,
    }
