"""The actions of operators: register a baseline, send waiting deliveries now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from esclusa import To
from esclusa.pipelines.tenders.records import Delivery

if TYPE_CHECKING:
    from esclusa import ActionContext


async def baseline(at: ActionContext) -> str:
    """Register what is listed now without announcing it, before the first ingest."""
    run = await at.run("tenders.ingest", baseline=True)
    counted = ", ".join(f"{name} {count:,}" for name, count in run.named_counters.items() if count)
    return f"{run.outcome}: {counted or run.message or 'nothing was listed'}"


async def retry(delivery: Delivery, at: ActionContext) -> To | str:
    """Send deliveries that wait for another attempt at the next dispatch."""
    if delivery.completed_at is not None:
        return "it is completed"
    return To("retryable", attempts=delivery.attempts)
