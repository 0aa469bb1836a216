"""What the team's app sends and reads: its bodies, its answers, its cursor."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StrictBool, model_validator

from esclusa.pipelines.tenders.devices import Name, PushToken
from esclusa.pipelines.tenders.messages import format_amount
from esclusa.pipelines.tenders.records import (
    AMOUNT_LIMIT,
    DeviceInstallation,
    Licitacion,
    NotificationPreferences,
)

Amount = Annotated[Decimal, Field(ge=0, lt=AMOUNT_LIMIT)]


class SyncBody(BaseModel):
    """An installation as the app reports it at each start."""

    pushToken: PushToken | None  # noqa: N815 - the app's name
    platform: Literal["ios", "android"]
    environment: Literal["expo-go", "development", "production"]
    appVersion: Name  # noqa: N815 - the app's name
    pushCapable: StrictBool  # noqa: N815 - the app's name
    permissionStatus: Literal["granted", "denied", "undetermined"]  # noqa: N815 - the app's name

    def invalid_reason(self) -> str | None:
        """Return why the installation gets no messages; None if it does."""
        if self.environment == "expo-go":
            return "expo-go"
        if not self.pushCapable:
            return "push-capable-false"
        if self.permissionStatus != "granted":
            return f"permission-{self.permissionStatus}"
        return None if self.pushToken else "missing-token"

    def fields(self, now: datetime) -> dict[str, Any]:
        """Return the fields of the installation."""
        reason = self.invalid_reason()
        return {
            "push_token": self.pushToken,
            "platform": self.platform,
            "environment": self.environment,
            "app_version": self.appVersion,
            "push_capable": self.pushCapable,
            "permission_status": self.permissionStatus,
            "active": reason is None,
            "invalidated_at": None if reason is None else now,
            "invalid_reason": reason,
            "last_seen_at": now,
        }


class TokenBody(BaseModel):
    """A token of an early version of the app, which has no installation id."""

    expoPushToken: Annotated[PushToken, Field(pattern=r"^ExponentPushToken\[")]  # noqa: N815
    platform: Literal["ios", "android"] | None = None

    @property
    def installation_id(self) -> str:
        """The id that such an installation gets."""
        encoded = base64.urlsafe_b64encode(self.expoPushToken.encode()).decode()
        return f"legacy:{encoded.rstrip('=')}"


class AppPreferences(BaseModel):
    """The filters of the app. All members are required; null is no limit."""

    enabled: StrictBool
    rubro: Name | None
    tipo: Name | None
    region: Name | None
    montoMin: Amount | None  # noqa: N815 - the app's name
    montoMax: Amount | None  # noqa: N815 - the app's name

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        low, high = self.montoMin, self.montoMax
        if low is not None and high is not None and low > high:
            raise ValueError("montoMin must not be more than montoMax")
        return self

    def fields(self) -> dict[str, Any]:
        """Return the fields of the preferences."""
        return {
            "enabled": self.enabled,
            "rubro": self.rubro,
            "tipo": self.tipo,
            "region": self.region,
            "monto_min": self.montoMin,
            "monto_max": self.montoMax,
        }


def installation_json(device: DeviceInstallation) -> dict[str, Any]:
    """Return an installation as the app reads it."""
    return {
        "installationId": device.installation_id,
        "pushToken": device.push_token,
        "platform": device.platform,
        "environment": device.environment,
        "appVersion": device.app_version,
        "pushCapable": device.push_capable,
        "permissionStatus": device.permission_status,
        "active": device.active,
        "invalidatedAt": _time(device.invalidated_at),
        "invalidReason": device.invalid_reason,
        "lastSeenAt": _time(device.last_seen_at),
        "createdAt": _time(device.created_at),
        "updatedAt": _time(device.updated_at),
    }


def app_preferences_json(preferences: NotificationPreferences) -> dict[str, Any]:
    """Return preferences as the app reads them."""
    return {
        "enabled": preferences.enabled,
        "rubro": preferences.rubro,
        "tipo": preferences.tipo,
        "region": preferences.region,
        "montoMin": _number(preferences.monto_min),
        "montoMax": _number(preferences.monto_max),
        "updatedAt": _time(preferences.updated_at),
    }


def tender_json(tender: Licitacion) -> dict[str, Any]:
    """Return a tender as the app reads it."""
    amount = format_amount(tender.monto_estimado, tender.moneda)
    return {
        "id": tender.id,
        "codigoExterno": tender.codigo_externo,
        "nombre": tender.nombre,
        "organismoNombre": tender.organismo,
        "tipo": tender.tipo,
        "montoEstimado": _number(tender.monto_estimado),
        "montoLabel": amount or tender.monto_label,
        "moneda": tender.moneda,
        "fechaPublicacion": _time(tender.fecha_publicacion),
        "fechaCierre": _time(tender.fecha_cierre),
        "estado": tender.estado,
        "url": tender.url,
        "region": tender.region,
        "categoria": tender.categoria,
        "createdAt": _time(tender.created_at),
    }


def _time(moment: datetime | None) -> str | None:
    """Return a time as JavaScript writes it."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _number(amount: Decimal | None) -> int | float | None:
    if amount is None:
        return None
    return int(amount) if amount == amount.to_integral_value() else float(amount)


def write_cursor(name: str, moment: datetime, id: str) -> str:
    """Return the cursor behind a tender in a list that is ordered by this time."""
    text = json.dumps({name: moment.astimezone(UTC).isoformat(), "id": id})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, name: str) -> tuple[datetime, str]:
    """Return time and id in a cursor. Raises ValueError if it is none of such a list."""
    try:
        given = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return datetime.fromisoformat(given[name]).astimezone(UTC), str(given["id"])
    except (ValueError, TypeError, KeyError, OverflowError):
        raise ValueError("the cursor is not of this list; leave it out to begin anew") from None
