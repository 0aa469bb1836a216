"""The bodies that register and change a device, validated the same way for HTTP and for files."""

from __future__ import annotations

import re
from datetime import datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    field_validator,
    model_validator,
)

from esclusa.pipelines.tenders.records import DeviceInstallation, NotificationPreferences
from esclusa.pipelines.tenders.regions import find_region

_TOKEN = re.compile(
    r"(?:ExponentPushToken|ExpoPushToken)\[[^\[\]\s\x00-\x1f\x7f]{1,200}\]\Z"
    r"|[0-9A-Za-z]{8}(?:-[0-9A-Za-z]{4}){3}-[0-9A-Za-z]{12}\Z"
)

Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00]*$"),
]
Names = Annotated[list[Name], Field(max_length=500)]


def check_token(value: str) -> str:
    """Return a push token. Raises ValueError if it is none."""
    if not _TOKEN.match(value):
        raise ValueError("must be ExponentPushToken[…]")
    return value


PushToken = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(check_token)]
Amount = Annotated[Decimal, Field(ge=0, max_digits=28, decimal_places=4)]


class StrictBody(BaseModel):
    """A body without unknown members: a misspelt preference would send a device too much."""

    model_config = ConfigDict(extra="forbid")


class QuietHours(StrictBody):
    """Local times between which no message is sent; they may span midnight."""

    start: Annotated[str, Field(examples=["22:00"])]
    end: Annotated[str, Field(examples=["07:00"])]
    timezone: str = "America/Santiago"

    @field_validator("start", "end")
    @classmethod
    def _check_clock(cls, value: str) -> str:
        if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
            raise ValueError("must be HH:MM, from 00:00 to 23:59")
        return value

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError(
                f"{value!r:.60} is not a time zone name such as America/Santiago"
            ) from None
        return value

    @model_validator(mode="after")
    def _check_differ(self) -> Self:
        if time.fromisoformat(self.start) == time.fromisoformat(self.end):
            raise ValueError("start and end must differ")
        return self


class PreferencesBody(StrictBody):
    """The tenders that the device wants.

    An empty or missing list means no limit. Each kind of preference must match; within a kind, one
    of its values is enough.
    """

    enabled: StrictBool = True
    regions: Names = []
    categories: Names = []
    buyers: Names = []
    types: Names = []
    amount_min: Amount | None = None
    amount_max: Amount | None = None
    keywords: Names = []
    quiet_hours: QuietHours | None = None
    events: Annotated[list[Literal["closing_soon", "changed", "awarded"]], Field(max_length=3)] = []
    daily_cap: Annotated[int, Field(ge=1, le=10_000)] | None = None
    digest: (
        Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", examples=["08:00"])] | None
    ) = None

    @field_validator("regions")
    @classmethod
    def _check_regions(cls, names: list[str]) -> list[str]:
        for name in names:
            if find_region(name) is None:
                raise ValueError(f"{name!r:.60} is no region of Chile; give a name or a code, 1-16")
        return names

    @field_validator(
        "regions", "categories", "buyers", "types", "keywords", "events", mode="before"
    )
    @classmethod
    def _default_list(cls, value: Any) -> Any:
        return [] if value is None else value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if (
            self.amount_min is not None
            and self.amount_max is not None
            and self.amount_min > self.amount_max
        ):
            raise ValueError("amount_min must not be more than amount_max")
        return self


class DeviceBody(StrictBody):
    """An installation and its preferences."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "installation_id": "b7f1c2",
                    "push_token": "ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]",
                    "platform": "android",
                    "preferences": {
                        "regions": ["Región del Biobío"],
                        "categories": ["8512"],
                        "keywords": ["hospital"],
                        "amount_min": 1000000,
                        "quiet_hours": {
                            "start": "22:00",
                            "end": "07:00",
                            "timezone": "America/Santiago",
                        },
                    },
                }
            ]
        }
    )

    installation_id: Name
    push_token: PushToken
    platform: Literal["android", "ios"] | None = None
    preferences: PreferencesBody = PreferencesBody()

    @field_validator("preferences", mode="before")
    @classmethod
    def _default_preferences(cls, value: Any) -> Any:
        return {} if value is None else value

    def records(self, now: datetime) -> tuple[DeviceInstallation, NotificationPreferences]:
        """Return the records to put, in one transaction; the device comes first."""
        return (
            DeviceInstallation(
                installation_id=self.installation_id,
                push_token=self.push_token,
                platform=self.platform or "unknown",
                environment="production",
                push_capable=True,
                permission_status="granted",
                active=True,
                last_seen_at=now,
            ),
            NotificationPreferences(
                installation_id=self.installation_id, **self.preferences.model_dump()
            ),
        )


class DevicePatch(StrictBody):
    """What changes of a device: only the members that are given, also within preferences."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "examples": [
                {"push_token": "ExponentPushToken[yyyyyyyyyyyyyyyyyyyyyy]"},
                {"preferences": {"keywords": ["hospital"], "quiet_hours": None}},
            ],
        }
    )

    push_token: PushToken = ""
    platform: Literal["android", "ios"] = "android"
    app_version: Name = "unknown"
    permission_status: Literal["granted", "denied", "undetermined"] = "undetermined"
    active: StrictBool = True
    preferences: PreferencesBody = PreferencesBody()

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"give what changes: {', '.join(type(self).model_fields)}")
        return self

    def device_fields(self) -> dict[str, Any]:
        """Return the given fields of the device."""
        return {n: getattr(self, n) for n in self.model_fields_set if n != "preferences"}

    def preference_fields(self, stored: NotificationPreferences | None) -> dict[str, Any]:
        """Return the given preferences. Raises ValueError if they contradict the stored ones."""
        if "preferences" not in self.model_fields_set:
            return {}
        given = self.preferences.model_dump(include=self.preferences.model_fields_set)
        low = given.get("amount_min", stored and stored.amount_min)
        high = given.get("amount_max", stored and stored.amount_max)
        if low is not None and high is not None and low > high:
            raise ValueError("amount_min must not be more than amount_max")
        return given
