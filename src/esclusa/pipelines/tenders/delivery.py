"""Dispatch and receipt: send deliveries to Expo in batches and settle what it answers."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from random import Random

from esclusa import (
    Attempt,
    BudgetEmpty,
    Exists,
    Failure,
    Move,
    Outcome,
    Retry,
    Text,
    To,
    Wait,
    above,
)
from esclusa.pipelines.tenders.dispatch_data import DispatchData, load_data
from esclusa.pipelines.tenders.expo import PushAccepted, PushRefused, PushResult, encode_body
from esclusa.pipelines.tenders.messages import build_message
from esclusa.pipelines.tenders.records import (
    REGISTERED,
    Delivery,
    DeviceInstallation,
    DeviceToken,
    Licitacion,
)
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.targeting import matches, quiet_until, wants_event
from esclusa.pipelines.tenders.worker_records import KEPT

# A delivery that may be sent, with its device and its tender.
Ready = tuple[Delivery, DeviceInstallation, Licitacion]

# Seconds that a batch waits for its turn in the project's pace; otherwise it is given back.
PACE_WAIT = 5.0

DISPATCH_COUNTERS = {
    "sent": "sent",
    "retried": "retryable",
    "failed": "failed",
    "invalid": "invalidated",
}
RECEIPT_COUNTERS = {
    "ok": "ok",
    "retryable": "retryable",
    "failed": "failed",
    "invalid": "invalidated",
}


async def dispatch(batch: list[Delivery], at: Attempt) -> list[Outcome]:
    """Check each delivery again, send those that may go, and settle the batch together."""
    data = await load_data(batch, at)
    sending: Counter[str] = at.context.sending
    outcomes: dict[str, Outcome] = {}
    ready: list[Ready] = []
    try:
        for delivery in batch:
            device, tender = data.devices[delivery.installation_id], data.tender(delivery)
            refusal = _check(delivery, device, tender, data, at)
            if refusal is None and device is not None and tender is not None:
                ready.append((delivery, device, tender))
                sending[delivery.installation_id] += 1
            elif refusal is not None:
                outcomes[delivery.id] = refusal
        if ready:
            await at.caught_up()
        outcomes |= await _send(ready, data, at)
    finally:
        for delivery, _, _ in ready:
            sending[delivery.installation_id] -= 1
            if not sending[delivery.installation_id]:
                del sending[delivery.installation_id]
    return [outcomes[delivery.id] for delivery in batch]


async def _send(ready: list[Ready], data: DispatchData, at: Attempt) -> dict[str, Outcome]:
    """Send in requests of the size that the pace has, and return the outcome of each delivery.

    Once Expo limits the project, nothing more is sent until it is over.
    """
    settings: TendersSettings = at.settings
    outcomes: dict[str, Outcome] = {}
    announced: set[str] = set()
    for start in range(0, len(ready), settings.expo_request):
        part = ready[start : start + settings.expo_request]
        messages = [
            build_message(d, data.event(d), device, tender, settings, at.now, data.digest(d))
            for d, device, tender in part
        ]
        body = encode_body(messages)
        try:
            async with at.context.expo.turn:
                await at.spend(settings.expo_budget, len(part), wait=PACE_WAIT)
                if (limited := at.context.expo.limited_until) and limited > at.now:
                    raise BudgetEmpty(settings.expo_budget.name, limited)
        except BudgetEmpty as denied:
            outcomes |= {d.id: Wait(denied.until, denied.message) for d, _, _ in ready[start:]}
            break
        results = await at.context.expo.send(messages, body)
        for (delivery, device, tender), result in zip(part, results, strict=True):
            outcomes[delivery.id] = await _sent(delivery, device, tender, result, announced, at)
        refused = next((r for r in results if getattr(r, "kind", "") == "limited"), None)
        if isinstance(refused, PushRefused):
            until = at.now + timedelta(seconds=_retry_delay(refused, 1, settings))
            at.context.expo.limited_until = until
            await at.run.observe(settings.expo_budget, "second", until=until)
    return outcomes


def _already_pushed(delivery: Delivery, at: Attempt) -> Outcome | None:
    """Return the outcome of a delivery that the team's own worker pushed: its receipt is asked.

    Only the call for its receipt failed. This pipeline empties the ticket of what it pushes again.
    """
    settings: TendersSettings = at.settings
    if delivery.status != "retryable" or not delivery.provider_ticket_id:
        return None
    pushed, sends = delivery.pushed_at, max(1, delivery.attempts - 1)
    if pushed is None or at.now >= pushed + timedelta(seconds=settings.receipt_life):
        why = Text("it was pushed more than a day ago, and its receipt is lost")
        return To("failed", fault=Failure(why, type="receipt_missing"), attempts=sends)
    age = (at.now - pushed).total_seconds()
    after = max(0.0, settings.ticket_age - age)
    return To("sent", after=after, attempts=sends, sends=sends, sent_at=pushed)


def _check(
    delivery: Delivery,
    device: DeviceInstallation | None,
    tender: Licitacion | None,
    data: DispatchData,
    at: Attempt,
) -> Outcome | None:
    """Return the outcome of a delivery that is not sent now; None if it is sent."""
    if (pushed := _already_pushed(delivery, at)) is not None:
        return pushed
    if device is None or not device.is_reachable:
        why = Text("the installation is inactive")
        if device is None:
            why = Text("the installation was deleted")
        return To("invalid", fault=Failure(why, type="installation_inactive"))
    if tender is None:
        return Retry(Text("its tender does not exist"), type="tender_missing", permanent=True)
    preferences, event = data.preferences[delivery.installation_id], data.event(delivery)
    if not wants_event(preferences, event) or not matches(preferences, tender, data.rates):
        return To(
            "failed",
            fault=Failure(
                Text("the device's preferences no longer match the tender"),
                type="preferences_changed",
            ),
        )
    cap = preferences.daily_cap if preferences else None
    if cap is not None and data.sent_today[delivery.installation_id] >= cap:
        why = Text("the device wants at most {count} messages a day", count=cap)
        return To("failed", fault=Failure(why, type="daily_cap"))
    try:
        until = quiet_until(preferences.quiet_hours if preferences else None, at.now)
    except (LookupError, TypeError, ValueError, OSError) as error:
        # Another program wrote the row; the rest of the batch must not fail because of it.
        return Retry(
            Text("its quiet hours cannot be read: {why}", why=f"{type(error).__name__} {error}"),
            type="bad_preferences",
        )
    if until is not None:
        return Wait(until, Text("quiet hours"))
    data.sent_today[delivery.installation_id] += 1
    return None


async def _sent(
    delivery: Delivery,
    device: DeviceInstallation,
    tender: Licitacion,
    result: PushResult,
    announced: set[str],
    at: Attempt,
) -> Outcome:
    """Return the outcome of a delivery that was sent.

    ``announced``: the tenders that a delivery of this batch already marks as ``notificada``.
    """
    settings: TendersSettings = at.settings
    match result:
        case PushAccepted(ticket):
            effects = []
            if not tender.notificada and tender.id not in announced:
                announced.add(tender.id)
                effects.append(
                    Move(Licitacion, tender.id, REGISTERED, frm=REGISTERED, notificada=True)
                )
            return To(
                "sent",
                also=effects,
                after=settings.ticket_age,
                attempts=delivery.attempts,
                sends=delivery.attempts,
                provider_ticket_id=ticket,
                provider_receipt_id=None,
                sent_at=at.now,
                last_attempt_at=at.now,
            )
        case PushRefused(kind="unregistered"):
            return To(
                "invalid",
                fault=result.failure,
                also=await _deactivate(delivery, device, at),
            )
        case PushRefused(kind="final"):
            return Retry(result.failure, permanent=True)
        case PushRefused(kind="throttled"):
            return Wait(_retry_delay(result, delivery.attempts, settings), result.text)
        case PushRefused(kind="limited"):
            # The budget holds the others back. A long wait is not worth claiming them.
            delay = _retry_delay(result, 1, settings)
            return Wait(delay, result.text, stage=delay > PACE_WAIT)
        case PushRefused(kind="stop"):
            at.run.halt(
                "blocked",
                Text(
                    "Expo refuses every message: {why}; check EXPO_ACCESS_TOKEN", why=result.message
                ),
            )
            return Wait(settings.minute_seconds, result.text)
        case PushRefused():
            return Retry(result.failure)


def _retry_delay(refused: PushRefused, attempt: int, settings: TendersSettings) -> float:
    """Return the delay that Expo asks for, or else that of the retry policy."""
    if refused.after is not None:
        return refused.after
    return settings.send_retry.delay(max(1, attempt), Random(0))


async def _deactivate(
    delivery: Delivery, device: DeviceInstallation | None, at: Attempt
) -> list[Move]:
    """Return the effects that deactivate the device, unless it registered again since.

    ``device``: as it was when its message was sent. Another program may have renamed it meanwhile.
    """
    id, since, reason = delivery.installation_id, delivery.pushed_at, "DeviceNotRegistered"
    if device is not None:
        since, where = device.last_seen_at, {"push_token": device.push_token}
        id = getattr(await at.records.first(DeviceInstallation, where), "installation_id", id)
    again = None
    if since is not None:
        again = Exists(DeviceInstallation, installation_id=id, last_seen_at=above(since))
    effects = [
        Move(
            DeviceInstallation,
            id,
            REGISTERED,
            frm=REGISTERED,
            unless=again,
            reason=reason,
            active=False,
            invalidated_at=at.now,
            invalid_reason=reason,
        )
    ]
    page = await at.records.find(DeviceToken, {"installation_id": id, "active": True})
    return effects + [
        Move(DeviceToken, row.id, KEPT, frm=KEPT, unless=again, active=False) for row in page.items
    ]


async def receipt(batch: list[Delivery], at: Attempt) -> list[Outcome]:
    """Read the receipts of sent deliveries. A delivery without one waits, for up to a day."""
    settings: TendersSettings = at.settings
    asked = [d for d in batch if d.provider_ticket_id and not _is_lost(d, settings, at.now)]
    tickets = [d.provider_ticket_id for d in asked]
    results = await at.context.expo.receipts(tickets) if tickets else {}
    if isinstance(results, PushRefused) and results.kind == "stop":
        at.run.halt(
            "blocked",
            Text(
                "Expo refuses to send receipts: {why}; check EXPO_ACCESS_TOKEN", why=results.message
            ),
        )
    if isinstance(results, PushRefused):
        return [_without_receipt(delivery, results, at) for delivery in batch]
    return [
        _without_receipt(delivery, None, at)
        if (result := results.get(delivery.provider_ticket_id)) is None
        else await _with_receipt(delivery, result, at)
        for delivery in batch
    ]


def _is_lost(delivery: Delivery, settings: TendersSettings, now: datetime) -> bool:
    """Whether Expo keeps no receipt of a delivery any more, as far as its row shows."""
    pushed = delivery.pushed_at
    return pushed is None or now >= pushed + timedelta(seconds=settings.receipt_life)


def _sends(delivery: Delivery) -> int:
    """Return the attempts up to the last send; the row of another worker does not count them."""
    return delivery.sends or max(1, delivery.attempts - 1)


def _without_receipt(delivery: Delivery, refused: PushRefused | None, at: Attempt) -> Outcome:
    settings: TendersSettings = at.settings
    sends = _sends(delivery)
    if not delivery.provider_ticket_id or _is_lost(delivery, settings, at.now):
        why = Text("it has no ticket")
        if delivery.provider_ticket_id:
            why = Text("no receipt came within a day")
        return Retry(why, type="receipt_missing", permanent=True, attempts=sends)
    if refused is None:
        return Wait(settings.ticket_age, Text("no receipt yet"), attempts=sends)
    after = refused.after if refused.after is not None else settings.minute_seconds
    return Wait(after, refused.text, attempts=sends)


async def _with_receipt(delivery: Delivery, result: PushResult, at: Attempt) -> Outcome:
    settings: TendersSettings = at.settings
    sends, ticket = _sends(delivery), delivery.provider_ticket_id
    match result:
        case PushAccepted():
            return To("ok", attempts=sends, provider_receipt_id=ticket)
        case PushRefused(kind="unregistered"):
            return To(
                "invalid",
                fault=result.failure,
                also=await _deactivate(delivery, None, at),
                attempts=sends,
                provider_receipt_id=ticket,
            )
        case PushRefused(kind="throttled"):
            return To(
                "retryable",
                fault=result.failure,
                after=_retry_delay(result, sends, settings),
                attempts=max(0, sends - 1),
                provider_ticket_id=None,
                provider_receipt_id=ticket,
            )
        case PushRefused(kind="transient") if not settings.send_retry.spent(sends):
            return To(
                "retryable",
                fault=result.failure,
                after=_retry_delay(result, sends, settings),
                attempts=sends,
                provider_ticket_id=None,
                provider_receipt_id=ticket,
            )
        case PushRefused():
            return Retry(result.failure, permanent=True, attempts=sends, provider_receipt_id=ticket)
