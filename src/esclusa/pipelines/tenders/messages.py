"""The message of a delivery: what Expo sends to a device about an event of a tender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from esclusa.pipelines.tenders.rates import PESOS, currency_name
from esclusa.pipelines.tenders.records import (
    AWARDED,
    CHANGED,
    CLOSING_SOON,
    DIGEST,
    NEW_TENDER,
    Delivery,
    DeviceInstallation,
    Licitacion,
)
from esclusa.pipelines.tenders.settings import CHILE, TendersSettings
from esclusa.pipelines.tenders.tender_fields import closing_end, has_closing_time

TITLES = {
    NEW_TENDER: "📋 Nueva Licitación",
    CLOSING_SOON: "⏰ Cierra pronto",
    CHANGED: "✏️ Licitación modificada",
    AWARDED: "🏆 Licitación adjudicada",
}
# Apple and Google accept 4 kB in all, and Apple 64 bytes of a collapse id.
NAME_LENGTH, BUYER_LENGTH, COLLAPSE_LENGTH = 160, 80, 64
# The tenders of a digest that the message names, and those that its data have.
MOST_NAMES, MOST_IDS = 3, 20
# The longest life of a message, in seconds: Google keeps none for longer.
MAX_TTL = 28 * 86_400
# How each currency is written before or after a number.
_BEFORE = {PESOS: "$", "USD": "US$", "EUR": "€"}
_AFTER = {"CLF": "UF"}


@dataclass(frozen=True, slots=True)
class Digest:
    """The tenders of a digest: the names of the first, and the ids of all."""

    names: Sequence[str]
    ids: Sequence[str]

    @property
    def body(self) -> str:
        more = len(self.ids) - len(self.names)
        lines = [_shorten(name, NAME_LENGTH) for name in self.names]
        return "\n".join([*lines, *([f"y {more} más"] if more > 0 else [])])


def build_message(
    delivery: Delivery,
    event: str,
    device: DeviceInstallation,
    tender: Licitacion,
    settings: TendersSettings,
    now: datetime,
    digest: Digest | None = None,
) -> dict[str, Any]:
    """Return the message. A later message of the same event replaces it on the device.

    ``event``: the type of the event. The app opens the tender by ``data.licitacionId``. A digest
    of one tender is the message of that tender.
    """
    if digest is None or len(digest.ids) < 2:
        event = NEW_TENDER if event == DIGEST else event
        digest = None
    name = str(delivery.notification_event_id)[-COLLAPSE_LENGTH:]
    message: dict[str, Any] = {
        "to": device.push_token,
        "title": TITLES.get(event, TITLES[NEW_TENDER]),
        "body": describe(tender, event),
        "sound": "default",
        "priority": "high",
        "collapseId": name,
        "tag": name,
        "data": {
            "licitacionId": tender.id,
            "codigo": tender.codigo_externo,
            "codigo_externo": tender.codigo_externo,
            "type": event,
            "notificationEventId": str(delivery.notification_event_id),
            "notificationDeliveryId": delivery.id,
            "installationId": delivery.installation_id,
            "pushProvider": "expo",
        },
    }
    if settings.expo_channel is not None:
        message["channelId"] = settings.expo_channel
    if digest is not None:
        message["title"] = f"📋 {len(digest.ids)} licitaciones nuevas"
        message["body"] = digest.body
        message["data"]["licitacionIds"] = list(digest.ids[:MOST_IDS])
        return message
    end = closing_end(tender)
    left = (end - now).total_seconds() if end else 0
    if left >= 1:
        message["ttl"] = min(int(left), MAX_TTL)
    return message


def describe(tender: Licitacion, event: str) -> str:
    """Return the body: name, amount, buyer and closing time, or the state after a change.

    Of a closing that no source gave a time of, it names the day alone.
    """
    name = _shorten(tender.nombre or tender.codigo_externo, NAME_LENGTH)
    amount = format_amount(tender.monto_estimado, tender.moneda) or tender.monto_label
    first = " — ".join(filter(None, (name, amount)))
    closing, clock = tender.fecha_cierre, " %H:%M" if has_closing_time(tender) else ""
    ends = f"cierra {closing.astimezone(ZoneInfo(CHILE)):%d-%m-%Y{clock}}" if closing else ""
    last = tender.estado if event in (CHANGED, AWARDED) else ""
    second = " · ".join(filter(None, (_shorten(tender.organismo or "", BUYER_LENGTH), ends, last)))
    return f"{first}\n{second}" if second else first


def format_amount(amount: Decimal | None, currency: str | None) -> str:
    """Return an amount as it is written in Chile: $12.000.000, 500 UTM, 1.234,5 UF."""
    if not amount:
        return ""
    whole, _, fraction = f"{amount:,.2f}".partition(".")
    number = whole.replace(",", ".") + (f",{fraction.rstrip('0')}" if fraction.strip("0") else "")
    name = currency_name(currency)
    if name in _BEFORE:
        return _BEFORE[name] + number
    return f"{number} {_AFTER.get(name, name)}"


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"
