"""Dispatch and receipt: send deliveries to Expo in batches and settle what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from esclusa import Attempt, Exists, Failure, Move, Outcome, Retry, To, Wait, above, one_of
from esclusa.pipelines.tenders.expo import PushAccepted, PushRefused, PushResult
from esclusa.pipelines.tenders.records import (
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationPreferences,
)
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.targeting import matches, quiet_until

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


@dataclass(frozen=True, slots=True)
class DispatchData:
    """The devices, preferences and tenders of a batch."""

    devices: dict[str, DeviceInstallation | None]
    preferences: dict[str, NotificationPreferences | None]
    tenders: dict[str, Licitacion]


async def dispatch(batch: list[Delivery], at: Attempt) -> list[Outcome]:
    """Check each delivery again, send those that may go, and settle the batch together."""
    data = await _load_data(batch, at)
    outcomes: dict[str, Outcome] = {}
    ready: list[tuple[Delivery, DeviceInstallation]] = []
    for delivery in batch:
        device = data.devices[delivery.installation_id]
        refusal = _check(delivery, device, data, at.now)
        if refusal is None and device is not None:
            ready.append((delivery, device))
        elif refusal is not None:
            outcomes[delivery.id] = refusal
    if ready:
        await at.caught_up()
        results = await at.context.expo.send(
            [_message(device.push_token, data.tenders[d.licitacion_id]) for d, device in ready]
        )
        announced: set[str] = set()
        for (delivery, device), result in zip(ready, results, strict=True):
            tender = data.tenders[delivery.licitacion_id]
            outcomes[delivery.id] = _sent(delivery, device, tender, result, announced, at)
    return [outcomes[delivery.id] for delivery in batch]


async def _load_data(batch: list[Delivery], at: Attempt) -> DispatchData:
    names = list(dict.fromkeys(d.installation_id for d in batch))
    ids = [DeviceInstallation.kind.id_of(name) for name in names]
    tender_ids = list(dict.fromkeys(d.licitacion_id for d in batch))
    tenders = {t.id: t for t in await at.records.get_many(Licitacion, tender_ids) if t is not None}
    if archived := [id for id in tender_ids if id not in tenders]:
        page = await at.records.find(
            Licitacion, {"id": one_of(*archived)}, limit=len(archived), archived=True
        )
        tenders |= {t.id: t for t in page.items}
    return DispatchData(
        dict(zip(names, await at.records.get_many(DeviceInstallation, ids), strict=True)),
        dict(zip(names, await at.records.get_many(NotificationPreferences, ids), strict=True)),
        tenders,
    )


def _check(
    delivery: Delivery, device: DeviceInstallation | None, data: DispatchData, now: datetime
) -> Outcome | None:
    """Return the outcome of a delivery that is not sent now; None if it is sent."""
    if device is None or not device.active:
        why = "the installation was deleted" if device is None else "the installation is inactive"
        return To("invalid", fault=Failure(why, type="installation_inactive"))
    tender = data.tenders.get(delivery.licitacion_id)
    if tender is None:
        return Retry("its tender does not exist", type="tender_missing", permanent=True)
    preferences = data.preferences[delivery.installation_id]
    if not matches(preferences, tender):
        return To(
            "failed",
            fault=Failure(
                "the device's preferences no longer match the tender", type="preferences_changed"
            ),
        )
    try:
        until = quiet_until(preferences.quiet_hours if preferences else None, now)
    except (LookupError, TypeError, ValueError, OSError) as error:
        # Another program wrote the row; the rest of the batch must not fail because of it.
        return Retry(
            f"its quiet hours cannot be read: {type(error).__name__} {error}",
            type="bad_preferences",
        )
    return None if until is None else Wait(until, "quiet hours")


def _message(token: str, tender: Licitacion) -> dict[str, Any]:
    """Return the message. Its body is shortened, because Apple and Google accept 4 kB in all."""
    body = " — ".join(part for part in (tender.nombre, tender.organismo) if part)
    return {
        "to": token,
        "title": "Nueva licitación",
        "body": _shorten(body or tender.codigo_externo),
        "data": {"codigo_externo": tender.codigo_externo},
        "sound": "default",
    }


def _shorten(text: str, length: int = 240) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def _sent(
    delivery: Delivery,
    device: DeviceInstallation,
    tender: Licitacion,
    result: PushResult,
    announced: set[str],
    at: Attempt,
) -> Outcome:
    """Return the outcome of a delivery that was sent.

    ``announced``: the tenders that a delivery of this batch already moves to ``notificada``.
    """
    settings: TendersSettings = at.settings
    match result:
        case PushAccepted(ticket):
            effects = []
            if tender.status == "registrada" and tender.id not in announced:
                announced.add(tender.id)
                effects.append(
                    Move(Licitacion, tender.id, "notificada", frm="registrada", notificada=True)
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
            )
        case PushRefused(kind="unregistered"):
            return To(
                "invalid",
                fault=result.failure,
                also=[_deactivate(delivery, device.registered_at)],
            )
        case PushRefused(kind="final"):
            return Retry(result.failure, permanent=True)
        case PushRefused(kind="throttled"):
            return Wait(
                _retry_delay(result, delivery.attempts, settings),
                f"{result.code}: {result.message}",
            )
        case PushRefused(kind="stop"):
            at.run.halt(
                "blocked", f"Expo refuses every message: {result.message}; check EXPO_ACCESS_TOKEN"
            )
            return Wait(settings.minute_seconds, f"{result.code}: {result.message}")
        case PushRefused():
            return Retry(result.failure)


def _retry_delay(refused: PushRefused, attempt: int, settings: TendersSettings) -> float:
    """Return the delay that Expo asks for, or else that of the retry policy."""
    if refused.after is not None:
        return refused.after
    return settings.send_retry.delay(max(1, attempt), Random(0))


def _deactivate(delivery: Delivery, since: datetime) -> Move:
    """Return the effect that deactivates the device, unless it registered again after ``since``."""
    return Move(
        DeviceInstallation,
        DeviceInstallation.kind.id_of(delivery.installation_id),
        "inactive",
        frm="active",
        unless=Exists(
            DeviceInstallation, installation_id=delivery.installation_id, registered_at=above(since)
        ),
        reason="DeviceNotRegistered",
        active=False,
    )


async def receipt(batch: list[Delivery], at: Attempt) -> list[Outcome]:
    """Read the receipts of sent deliveries. A delivery without one waits, for up to a day."""
    tickets = [d.provider_ticket_id for d in batch if d.provider_ticket_id]
    results = await at.context.expo.receipts(tickets) if tickets else {}
    if isinstance(results, PushRefused) and results.kind == "stop":
        at.run.halt(
            "blocked", f"Expo refuses to send receipts: {results.message}; check EXPO_ACCESS_TOKEN"
        )
    if isinstance(results, PushRefused):
        return [_without_receipt(delivery, results, at) for delivery in batch]
    return [
        _without_receipt(delivery, None, at)
        if (result := results.get(delivery.provider_ticket_id)) is None
        else _with_receipt(delivery, result, at)
        for delivery in batch
    ]


def _without_receipt(delivery: Delivery, refused: PushRefused | None, at: Attempt) -> Outcome:
    settings: TendersSettings = at.settings
    sent = delivery.sent_at or delivery.updated_at or at.now
    if at.now >= sent + timedelta(seconds=settings.receipt_life):
        return Retry(
            "no receipt came within a day",
            type="receipt_missing",
            permanent=True,
            attempts=delivery.sends,
        )
    if refused is None:
        return Wait(settings.ticket_age, "no receipt yet", attempts=delivery.sends)
    after = refused.after if refused.after is not None else settings.minute_seconds
    return Wait(after, f"{refused.code}: {refused.message}", attempts=delivery.sends)


def _with_receipt(delivery: Delivery, result: PushResult, at: Attempt) -> Outcome:
    settings: TendersSettings = at.settings
    sends, ticket = delivery.sends, delivery.provider_ticket_id
    match result:
        case PushAccepted():
            return To("ok", attempts=sends, provider_receipt_id=ticket)
        case PushRefused(kind="unregistered"):
            return To(
                "invalid",
                fault=result.failure,
                also=[_deactivate(delivery, delivery.sent_at or at.now)],
                attempts=sends,
                provider_receipt_id=ticket,
            )
        case PushRefused(kind="throttled"):
            return To(
                "retryable",
                fault=result.failure,
                after=_retry_delay(result, sends, settings),
                attempts=max(0, sends - 1),
                provider_receipt_id=ticket,
            )
        case PushRefused(kind="transient") if not settings.send_retry.spent(sends):
            return To(
                "retryable",
                fault=result.failure,
                after=_retry_delay(result, sends, settings),
                attempts=sends,
                provider_receipt_id=ticket,
            )
        case PushRefused():
            return Retry(result.failure, permanent=True, attempts=sends, provider_receipt_id=ticket)
