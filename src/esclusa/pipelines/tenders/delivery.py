"""Dispatch and receipt: deliveries go out in batches, and what Expo says of each decides what becomes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Any

from esclusa import Attempt, Backoff, Exists, Failure, Move, Outcome, Retry, To, Wait, above, one_of
from esclusa.model.value import value
from esclusa.pipelines.tenders.expo import MOST_MESSAGES, MOST_RECEIPTS, Accepted, Answer, Refused
from esclusa.pipelines.tenders.records import (
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationPreferences,
)
from esclusa.pipelines.tenders.settings import TendersSettings
from esclusa.pipelines.tenders.targeting import matches, quiet_until

__all__ = ["ASKING", "MOST_MESSAGES", "MOST_RECEIPTS", "SENDING", "asking", "dispatch", "receipt"]

SENDING = {"sent": "sent", "retried": "retryable", "failed": "failed", "invalid": "invalidated"}
ASKING = {"ok": "ok", "retryable": "retryable", "failed": "failed", "invalid": "invalidated"}


def asking(settings: TendersSettings) -> Backoff:
    """A receipt may be asked for again without limit: it ends by its age, not by a count."""
    return Backoff(
        tries=None,
        base=settings.minute_seconds,
        factor=2,
        cap=15 * settings.minute_seconds,
        jitter=0,
    )


# dispatch


@value
class Known:
    """What is known of the deliveries of a batch: their devices, what those want, the tenders."""

    devices: dict[str, DeviceInstallation | None]
    wanted: dict[str, NotificationPreferences | None]
    tenders: dict[str, Licitacion]


async def dispatch(batch: list[Delivery], at: Attempt) -> list[Outcome]:
    """Check each delivery once more, send what may go, and settle the batch's tickets together, right after the answer."""
    known = await _known(batch, at)
    now = at.now
    outcomes: dict[str, Outcome] = {}
    ready: list[tuple[Delivery, DeviceInstallation]] = []
    for delivery in batch:
        device = known.devices[delivery.installation_id]
        held = _held(delivery, device, known, now)
        if held is None and device is not None:
            ready.append((delivery, device))
        elif held is not None:
            outcomes[delivery.id] = held
    if ready:
        messages = [
            _message(device.push_token, known.tenders[d.licitacion_id]) for d, device in ready
        ]
        await at.caught_up()
        answers = await at.context.expo.send(messages)
        told: set[str] = set()
        for (delivery, device), answer in zip(ready, answers, strict=True):
            outcomes[delivery.id] = _settled(delivery, device, answer, known, told, at)
    return [outcomes[delivery.id] for delivery in batch]


async def _known(batch: list[Delivery], at: Attempt) -> Known:
    devices = list(dict.fromkeys(d.installation_id for d in batch))
    ids = [DeviceInstallation.kind.id_of(name) for name in devices]
    tender_ids = list(dict.fromkeys(d.licitacion_id for d in batch))
    tenders = {t.id: t for t in await at.records.get_many(Licitacion, tender_ids) if t is not None}
    if missing := [id for id in tender_ids if id not in tenders]:  # archived while it still waited
        page = await at.records.find(
            Licitacion, {"id": one_of(*missing)}, limit=len(missing), archived=True
        )
        tenders |= {t.id: t for t in page.items}
    return Known(
        dict(zip(devices, await at.records.get_many(DeviceInstallation, ids), strict=True)),
        dict(zip(devices, await at.records.get_many(NotificationPreferences, ids), strict=True)),
        tenders,
    )


def _held(
    delivery: Delivery, device: DeviceInstallation | None, known: Known, now: datetime
) -> Outcome | None:
    """Why this one is not sent now; None if it is."""
    tender, wanted = (
        known.tenders.get(delivery.licitacion_id),
        known.wanted[delivery.installation_id],
    )
    if device is None or not device.active:
        why = "the installation was deleted" if device is None else "the installation is inactive"
        return To("invalid", fault=Failure(why, type="installation_inactive"))
    if tender is None:
        return Retry("its tender is gone", type="tender_missing", permanent=True)
    if not matches(wanted, tender):
        return To(
            "failed",
            fault=Failure(
                "the device's preferences do not match the tender any more",
                type="preferences_changed",
            ),
        )
    try:
        until = quiet_until(wanted.quiet_hours if wanted else None, now)
    except (
        LookupError,
        TypeError,
        ValueError,
        OSError,
    ) as error:  # another program's row; the batch has nothing to do with it
        return Retry(
            f"its quiet hours cannot be read: {type(error).__name__} {error}",
            type="bad_preferences",
        )
    return None if until is None else Wait(until, "quiet hours")


def _message(token: str, tender: Licitacion) -> dict[str, Any]:
    """The message; its texts are cut, for Apple and Google take 4 kB in all."""
    body = " — ".join(part for part in (tender.nombre, tender.organismo) if part)
    data = {"codigo_externo": tender.codigo_externo}
    return {
        "to": token,
        "title": "Nueva licitación",
        "body": _cut(body or tender.codigo_externo),
        "data": data,
        "sound": "default",
    }


def _cut(text: str, most: int = 240) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _settled(
    delivery: Delivery,
    device: DeviceInstallation,
    answer: Answer,
    known: Known,
    told: set[str],
    at: Attempt,
) -> Outcome:
    settings: TendersSettings = at.settings
    match answer:
        case Accepted(ticket):
            tender = known.tenders[delivery.licitacion_id]
            effects = []
            if tender.status == "registrada" and tender.id not in told:
                told.add(tender.id)
                effects.append(
                    Move(Licitacion, tender.id, "notificada", frm="registrada", notificada=True)
                )
            return To(
                "sent", also=effects, after=settings.ticket_age, attempts=delivery.attempts, sends=delivery.attempts,
                provider_ticket_id=ticket, provider_receipt_id=None, sent_at=at.now,
            )  # fmt: skip
        case Refused(how="gone"):
            return To(
                "invalid", fault=answer.failure, also=[_deactivate(delivery, device.registered_at)]
            )
        case Refused(how="final"):
            return Retry(answer.failure, permanent=True)
        case Refused(how="throttled"):
            return Wait(
                _throttled(answer, delivery.attempts, settings), f"{answer.code}: {answer.message}"
            )
        case Refused(how="stop"):
            at.run.halt(
                "blocked", f"Expo refuses every message: {answer.message}; check EXPO_ACCESS_TOKEN"
            )
            return Wait(settings.minute_seconds, f"{answer.code}: {answer.message}")
        case Refused():
            return Retry(answer.failure)


def _throttled(answer: Refused, attempt: int, settings: TendersSettings) -> float:
    """As long as Expo asks for, else what the ladder says."""
    return answer.after if answer.after is not None else _step(attempt, settings)


def _step(attempt: int, settings: TendersSettings) -> float:
    return settings.ladder.delay(max(1, attempt), Random(0))


def _deactivate(delivery: Delivery, seen: datetime) -> Move:
    """The device is gone, unless it registered again after what was sent to it was sent."""
    id = DeviceInstallation.kind.id_of(delivery.installation_id)
    again = Exists(
        DeviceInstallation, installation_id=delivery.installation_id, registered_at=above(seen)
    )
    return Move(
        DeviceInstallation,
        id,
        "inactive",
        frm="active",
        unless=again,
        reason="DeviceNotRegistered",
        active=False,
    )


# receipt


async def receipt(batch: list[Delivery], at: Attempt) -> list[Outcome]:
    """Ask what became of the tickets. What is not known yet waits; after a day it never will be."""
    tickets = [d.provider_ticket_id for d in batch if d.provider_ticket_id]
    found = await at.context.expo.receipts(tickets) if tickets else {}
    if isinstance(found, Refused) and found.how == "stop":
        at.run.halt(
            "blocked", f"Expo refuses to tell receipts: {found.message}; check EXPO_ACCESS_TOKEN"
        )
    outcomes: list[Outcome] = []
    for delivery in batch:
        answer = found if isinstance(found, Refused) else found.get(delivery.provider_ticket_id)
        if isinstance(found, Refused) or answer is None:
            outcomes.append(_unknown(delivery, answer, at))
        else:
            outcomes.append(_received(delivery, answer, at))
    return outcomes


def _unknown(delivery: Delivery, why: Refused | None, at: Attempt) -> Outcome:
    settings: TendersSettings = at.settings
    sent = delivery.sent_at or delivery.updated_at or at.now
    if at.now >= sent + timedelta(seconds=settings.receipt_life):
        return Retry(
            "no receipt came within a day",
            type="receipt_missing",
            permanent=True,
            attempts=delivery.sends,
        )
    if why is None:
        return Wait(settings.ticket_age, "no receipt yet", attempts=delivery.sends)
    after = why.after if why.after is not None else settings.minute_seconds
    return Wait(after, f"{why.code}: {why.message}", attempts=delivery.sends)


def _received(delivery: Delivery, answer: Answer, at: Attempt) -> Outcome:
    settings: TendersSettings = at.settings
    sends, ticket = delivery.sends, delivery.provider_ticket_id
    match answer:
        case Accepted():
            return To("ok", attempts=sends, provider_receipt_id=ticket)
        case Refused(how="gone"):
            effect = _deactivate(delivery, delivery.sent_at or at.now)
            return To(
                "invalid",
                fault=answer.failure,
                also=[effect],
                attempts=sends,
                provider_receipt_id=ticket,
            )
        case Refused(how="throttled"):
            after = _throttled(answer, sends, settings)
            return To(
                "retryable",
                fault=answer.failure,
                after=after,
                attempts=max(0, sends - 1),
                provider_receipt_id=ticket,
            )
        case Refused(how="transient") if not settings.ladder.spent(sends):
            after = _step(sends, settings)
            return To(
                "retryable",
                fault=answer.failure,
                after=after,
                attempts=sends,
                provider_receipt_id=ticket,
            )
        case Refused():
            return Retry(answer.failure, permanent=True, attempts=sends, provider_receipt_id=ticket)
