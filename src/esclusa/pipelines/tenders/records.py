"""The tables of NotiChileC: tenders, events, devices, deliveries, runs and exports.

A new installation makes them as that team has them. In its own database they are taken as they are:
columns that a generation lacks are optional, and ours are added beside its own.
"""

from __future__ import annotations

from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from pydantic import field_validator

from esclusa import Lifecycle, Record, track, untracked
from esclusa.pipelines.tenders.rates import CurrencyRate
from esclusa.pipelines.tenders.worker_records import KEPT, ArchiveExport, WorkerRun

# The types of events. All but the first are off by default.
NEW_TENDER, CLOSING_SOON, CHANGED, AWARDED = (
    "new_licitacion",
    "closing_soon",
    "changed",
    "awarded",
)
EXTRA_EVENTS = (CLOSING_SOON, CHANGED, AWARDED)
# All new tenders of a day in one message, to devices that want that instead.
DIGEST = "digest"
# Codes of states.
PUBLISHED, CLOSED, IS_AWARDED = 5, 6, 8
OPEN = ("pending", "retryable", "sent")
# The only state of devices and tenders, which no stage takes.
REGISTERED = "registered"
# What to do about the tables of version 0.1.0.
EARLIER = (
    "it is a table of version 0.1.0 of tenders, which is not carried over; use a new database, "
    "import the devices with `esclusa tenders devices import`, and run `esclusa tenders baseline`, "
    "so that nothing is announced twice (see docs/pipelines/tenders.md, From version 0.1.0)"
)
# What to do about the team's first database, which has neither a registry nor deliveries.
MARCH_2026 = "the database is of March 2026; let the team's own program bring it up to date first"
# What a column of an amount holds: whole numbers of up to 14 digits.
AMOUNT, AMOUNT_LIMIT = "numeric(14, 0)", Decimal(10) ** 14


class RegistryEntry(
    Record,
    table="licitacion_registry",
    id="codigo_externo",
    key="codigo_externo",
    track=untracked(created_at="created_at", updated_at="updated_at"),
    insert=True,
    history=False,
    unique=[("licitacion_id",)],
    refused={"claimed_by": EARLIER},
):
    """A claimed code. It is never deleted, so that no tender is announced twice."""

    codigo_externo: str
    licitacion_id: str

    lifecycle = Lifecycle(KEPT)


class Licitacion(
    Record,
    table="licitaciones",
    columns={"organismo": "organismo_nombre"},
    track=untracked(created_at="created_at", updated_at="updated_at"),
    insert=True,
    archive=True,
    index=[("codigo_externo",), ("fecha_publicacion",), ("codigo_estado", "fecha_cierre")],
    optional=["source_rank"],
    added=[
        "descripcion",
        "codigo_estado",
        "codigo_organismo",
        "unidad",
        "comuna",
        "categorias",
        "items",
        "detalle",
    ],
    partitions="ensure_licitaciones_monthly_partitions(12, 2)",
    types={"monto_estimado": AMOUNT, "source_rank": "integer", "codigo_estado": "integer"},
):
    """A tender, merged from all sources. Its id is its code.

    The table may be partitioned and then keeps neither unique: the registry does.
    """

    codigo_externo: str
    nombre: str = "Sin nombre"
    organismo: str | None = None
    tipo: str | None = None
    monto_estimado: Decimal | None = None
    # The amount in words, where it is no number.
    monto_label: str | None = None
    moneda: str | None = "CLP"
    # When it was published; if no source has the date, when it was first seen.
    fecha_publicacion: datetime | None = None
    fecha_cierre: datetime | None = None
    estado: str | None = "Publicada"
    url: str | None = None
    region: str | None = None
    categoria: str | None = "General"
    rubro_code: str | None = None
    source_rank: int | None = None
    notificada: bool = False
    descripcion: str | None = None
    codigo_estado: int | None = None
    codigo_organismo: str | None = None
    unidad: str | None = None
    comuna: str | None = None
    categorias: list[str] = []
    items: list[dict[str, Any]] = []
    # The detail as the source sent it.
    detalle: dict[str, Any] = {}

    lifecycle = Lifecycle(REGISTERED)

    @field_validator("monto_estimado")
    @classmethod
    def _fit_amount(cls, amount: Decimal | None) -> Decimal | None:
        """Round an amount as its column does; one that does not fit is unknown."""
        if amount is None or not amount.is_finite():
            return None
        whole = amount.to_integral_value(ROUND_HALF_UP)
        return whole if abs(whole) < AMOUNT_LIMIT else None


class NotificationEvent(
    Record,
    table="notification_events",
    key=("type", "licitacion_id"),
    database_id=True,
    track=untracked(created_at="created_at"),
    history=False,
    index=[("licitacion_id",)],
    refs={"licitacion_id": Licitacion},
    added=["licitaciones"],
):
    """An event of a tender that devices are notified of.

    ``licitaciones``: all tenders of a digest, the newest first.
    """

    type: str
    licitacion_id: str
    licitaciones: list[str] = []

    lifecycle = Lifecycle(KEPT)


def event_type(stored: str) -> str:
    """Return the type of an event: ``changed`` of ``changed:…``, of which there may be several."""
    return stored.partition(":")[0]


class DeviceInstallation(
    Record,
    table="device_installations",
    id="installation_id",
    key="installation_id",
    track=untracked(created_at="created_at", updated_at="updated_at"),
    insert=True,
    unique=[("push_token",)],
    index=[("credential_hash",)],
    added=["credential_hash"],
):
    """An installation of the app on a device."""

    installation_id: str
    push_token: str | None = None
    platform: str | None = "unknown"
    environment: str = "development"
    app_version: str = "unknown"
    push_capable: bool = False
    permission_status: str = "undetermined"
    active: bool = False
    invalidated_at: datetime | None = None
    invalid_reason: str | None = None
    last_seen_at: datetime | None = None
    # The SHA-256 of the credential that the device was given.
    credential_hash: str | None = None

    lifecycle = Lifecycle(REGISTERED)

    @property
    def is_reachable(self) -> bool:
        """Whether a message may be sent to it."""
        return (
            self.active
            and self.push_capable
            and self.permission_status == "granted"
            and self.invalidated_at is None
            and bool(self.push_token)
        )


class DeviceToken(
    Record,
    table="device_tokens",
    key="expo_push_token",
    database_id=True,
    track=untracked(created_at="created_at"),
    history=False,
    index=[("installation_id",)],
    types={"id": "integer"},
    refused={"installation_id": MARCH_2026},
):
    """The app's earlier list of tokens. A device that is invalid is inactive there, too."""

    expo_push_token: str
    installation_id: str | None = None
    platform: str = "unknown"
    active: bool = True
    last_seen_at: datetime | None = None

    lifecycle = Lifecycle(KEPT)


class NotificationPreferences(
    Record,
    table="notification_preferences",
    id="installation_id",
    key="installation_id",
    track=untracked(updated_at="updated_at"),
    insert=True,
    history=False,
    refs={"installation_id": DeviceInstallation},
    foreign_keys=["installation_id"],
    added=[
        "regions",
        "categories",
        "buyers",
        "types",
        "keywords",
        "amount_min",
        "amount_max",
        "quiet_hours",
        "events",
        "daily_cap",
        "digest",
    ],
    types={"monto_min": AMOUNT, "monto_max": AMOUNT, "daily_cap": "integer"},
):
    """The tenders that a device wants. An empty list means no limit."""

    installation_id: str
    enabled: bool = True
    # The single values of the team's own app; they count beside the lists.
    rubro: str | None = None
    tipo: str | None = None
    region: str | None = None
    monto_min: Decimal | None = None
    monto_max: Decimal | None = None
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
    # When the device gets the new tenders of the day before as one message: 08:00, in Chile.
    digest: str | None = None

    lifecycle = Lifecycle(KEPT)


class Rubro(
    Record,
    table="rubros_chilecompra",
    id="code",
    key="code",
    track=untracked(),
    insert=True,
    history=False,
):
    """A category in the team's own list."""

    code: str
    name: str
    parent_code: str | None = None

    lifecycle = Lifecycle(KEPT)


class Delivery(
    Record,
    table="notification_deliveries",
    key=("notification_event_id", "installation_id"),
    database_id=True,
    track=track(
        attempts="attempt_count",
        due_at="next_attempt_at",
        leased_by="locked_by",
        leased_at="locked_at",
        finished_at="completed_at",
        error_type="last_error_code",
        error_message="last_error_message",
    ),
    archive=True,
    index=[("completed_at",), ("installation_id", "sent_at")],
    refs={"notification_event_id": NotificationEvent, "installation_id": DeviceInstallation},
    foreign_keys=["notification_event_id", "installation_id"],
    added=["sends", "sent_at"],
    types={"notification_event_id": "bigint", "attempt_count": "integer", "sends": "integer"},
):
    """One event for one device; unique, so that no device is notified twice of an event.

    Every time that a decision about the delivery depends on is in its own row. A delivery with
    ``completed_at`` is final in any state. One with a ticket was pushed.
    """

    notification_event_id: str
    installation_id: str
    provider: str = "expo"
    last_attempt_at: datetime | None = None
    provider_ticket_id: str | None = None
    provider_receipt_id: str | None = None
    # Attempts up to the last send; retries continue from there if its receipt is an error.
    sends: int = 0
    sent_at: datetime | None = None
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

    @property
    def pushed_at(self) -> datetime | None:
        """When it was sent last, by us or by the team's own worker."""
        return self.sent_at or self.last_attempt_at


RECORDS: list[type[Record]] = [
    RegistryEntry,
    Licitacion,
    NotificationEvent,
    DeviceInstallation,
    DeviceToken,
    NotificationPreferences,
    Rubro,
    Delivery,
    WorkerRun,
    ArchiveExport,
    CurrencyRate,
]
