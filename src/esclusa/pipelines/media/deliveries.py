"""Deliveries of Meta's webhook: kept whole first, then mapped to rows of the table."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from esclusa import Attempt, Duplicate, Outcome, Retry, RunContext, Text, To, below
from esclusa.pipelines.media import webhook
from esclusa.pipelines.media.publications import Publications
from esclusa.pipelines.media.records import WebhookDelivery
from esclusa.pipelines.media.settings import MediaSettings

if TYPE_CHECKING:
    from esclusa import Runtime

WHO = "webhook:meta"
STAGE = "media.map"
# The alert that media of a delivery are refused.
ALERT = "delivery_refused"
# How long only the server that received a delivery maps it; after a crash, any worker does.
OWN = timedelta(seconds=30)
# The most refused media that are kept with a delivery.
MOST = 1000


async def receive(runtime: Runtime, body: str) -> WebhookDelivery:
    """Store a delivery, then map it; return it as it is then.

    The same body again is the same delivery, and is mapped again: that adds nothing twice.
    """
    now = runtime.read_model.now()
    digest = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
    delivery = WebhookDelivery(digest=digest, body=body, received_at=now, due_at=now + OWN)
    [answer] = await runtime.records.insert([delivery])
    mine = not isinstance(answer, Duplicate) or await runtime.records.edit(
        WebhookDelivery,
        answer.id,
        among=("mapped", "failed"),
        to="received",
        attempts=0,
        who=WHO,
        reason=Text("it was delivered again"),
    )
    await runtime.handle(STAGE, answer.id)
    found = await runtime.records.get(WebhookDelivery, answer.id) or delivery
    if mine:
        return found
    # Another call maps it, and reports what it created.
    known = found.created + found.updated + found.known
    return found.but(created=0, updated=0, known=known)


async def map_delivery(delivery: WebhookDelivery, at: Attempt) -> Outcome:
    """Store the media of a delivery as rows. What the table refuses fails the delivery."""
    settings: MediaSettings = at.settings
    media = webhook.read_media(webhook.parse(delivery.body), settings.tenant_of)
    counts = await Publications(at.records, WHO).receive(media)
    refused = counts.pop("errors", [])
    at.log("mapped a delivery of Meta's webhook", **counts, refused=len(refused))
    if not refused:
        await _end_alert(at.run)
        return To("mapped", refused=[], **counts)
    first = refused[0]
    why = Text(
        "{count} media were refused; the first, number {number}: {why}",
        count=len(refused),
        number=first["row"],
        why=first["error"],
    )
    await at.run.alert(ALERT, Text("media of Meta's webhook are not stored: {why}", why=why))
    return Retry(why, type="refused", permanent=True, refused=refused[:MOST], **counts)


async def _end_alert(run: RunContext) -> None:
    failed, _ = await run.records.count(WebhookDelivery, {"status": "failed"}, cap=1)
    if not failed:
        await run.end_alert(ALERT)


async def prune(run: RunContext) -> None:
    """Delete deliveries that were mapped long ago."""
    settings: MediaSettings = run.settings
    old = run.now - timedelta(days=settings.keep_deliveries_days)
    where = {"status": "mapped", "received_at": below(old)}
    await run.records.purge(WebhookDelivery, where)


def dead_letter(delivery: WebhookDelivery) -> dict[str, Any]:
    """Return the fields of a dead letter; the delivery itself keeps the body."""
    return {"digest": delivery.digest, "received_at": delivery.received_at.isoformat()}
