"""Tenders and their registry, events, devices with their preferences, and deliveries."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from esclusa import Lifecycle, Record, track

# The types of events. All but the first are off by default.
NEW_TENDER, CLOSING_SOON, CHANGED, AWARDED = (
    "new_licitacion",
    "closing_soon",
    "changed",
    "awarded",
)
EXTRA_EVENTS = (CLOSING_SOON, CHANGED, AWARDED)
# Codes of states.
PUBLISHED, CLOSED, IS_AWARDED = 5, 6, 8
OPEN = ("pending", "retryable", "sent")


class RegistryEntry(Record, table="licitacion_registry", key="codigo_externo", history=False):
    """A claimed code. It is never deleted, so that no tender is announced twice."""

    codigo_externo: str
    claimed_by: str
    claimed_at: datetime

    lifecycle = Lifecycle("claimed")


class Licitacion(
    Record,
    table="licitaciones",
    key="codigo_externo",
    archive=True,
    index=[("fecha_publicacion",), ("codigo_estado", "fecha_cierre")],
):
    """A tender, merged from all sources."""

    codigo_externo: str
    nombre: str = ""
    descripcion: str | None = None
    codigo_estado: int | None = None
    estado: str | None = None
    tipo: str | None = None
    moneda: str | None = None
    monto_estimado: Decimal | None = None
    # The amount in words, where it is no number.
    monto_label: str | None = None
    codigo_organismo: str | None = None
    organismo: str | None = None
    unidad: str | None = None
    region: str | None = None
    comuna: str | None = None
    categorias: list[str] = []
    items: list[dict[str, Any]] = []
    # When it was published; if no source has the date, when it was first seen.
    fecha_publicacion: datetime
    fecha_cierre: datetime | None = None
    url: str | None = None
    # The detail as the source sent it.
    detalle: dict[str, Any] = {}
    notificada: bool = False

    lifecycle = Lifecycle("registrada -> notificada")


class NotificationEvent(
    Record,
    table="notification_events",
    key=("type", "licitacion_id"),
    history=False,
    index=[("licitacion_id",)],
    refs={"licitacion_id": Licitacion},
):
    """An event of a tender that devices are notified of."""

    type: str
    licitacion_id: str

    lifecycle = Lifecycle("created")


def event_type(stored: str) -> str:
    """Return the type of an event: ``changed`` of ``changed:…``, of which there may be several."""
    return stored.partition(":")[0]


class DeviceInstallation(Record, table="device_installations", key="installation_id"):
    """An installation of the app on a device."""

    installation_id: str
    push_token: str
    platform: Literal["android", "ios"] | None = None
    active: bool = True
    registered_at: datetime

    lifecycle = Lifecycle("active -> inactive -> active", endless=True)


class NotificationPreferences(
    Record,
    table="notification_preferences",
    key="installation_id",
    history=False,
    refs={"installation_id": DeviceInstallation},
):
    """The tenders that a device wants. An empty list means no limit."""

    installation_id: str
    enabled: bool = True
    regions: list[str] = []
    categories: list[str] = []
    buyers: list[str] = []
    types: list[str] = []
    keywords: list[str] = []
    amount_min: Decimal | None = None
    amount_max: Decimal | None = None
    quiet_hours: dict[str, str] | None = None
    # The events beside new tenders that the device wants.
    events: list[str] = []
    # The most messages in a day of the device's time zone; None: no limit.
    daily_cap: int | None = None
    # The single values of the team's own app; they count beside the lists.
    rubro: str | None = None
    tipo: str | None = None
    region: str | None = None
    monto_min: Decimal | None = None
    monto_max: Decimal | None = None

    lifecycle = Lifecycle("kept")


class Delivery(
    Record,
    table="notification_deliveries",
    key=("notification_event_id", "installation_id"),
    track=track(
        attempts="attempt_count",
        due_at="next_attempt_at",
        leased_by="locked_by",
        leased_at="locked_at",
        finished_at="completed_at",
        error_type="last_error_code",
        error_message="last_error_message",
    ),
    attach=False,
    archive=True,
    index=[("licitacion_id", "status"), ("completed_at",)],
    refs={
        "notification_event_id": NotificationEvent,
        "installation_id": DeviceInstallation,
        "licitacion_id": Licitacion,
    },
):
    """One event for one device; unique, so that no device is notified twice of an event.

    Every time that a decision about the delivery depends on is in its own row.
    """

    notification_event_id: str
    installation_id: str
    licitacion_id: str
    provider: str = "expo"
    provider_ticket_id: str | None = None
    provider_receipt_id: str | None = None
    sent_at: datetime | None = None
    # Attempts up to the last send; retries continue from there if its receipt is an error.
    sends: int = 0
    locked_at: datetime | None = None
    completed_at: datetime | None = None
    last_error_code: str | None = None
    last_error_message: str | None = None

    lifecycle = Lifecycle(
        """
        pending -> sent | retryable | failed | invalid
        retryable -> sent | failed | invalid
        sent -> ok | retryable | failed | invalid
        failed -> pending
        """,
        failed=["invalid"],
    )


RECORDS: list[type[Record]] = [
    RegistryEntry,
    Licitacion,
    NotificationEvent,
    DeviceInstallation,
    NotificationPreferences,
    Delivery,
]
