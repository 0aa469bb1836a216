"""The body that registers a device, validated the same way for HTTP and for files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    field_validator,
    model_validator,
)

from esclusa import Duplicate, Inserted, one_of
from esclusa.pipelines.tenders.records import (
    REGISTERED,
    DeviceInstallation,
    NotificationPreferences,
)
from esclusa.pipelines.tenders.regions import find_region

_TOKEN = re.compile(
    r"(?:ExponentPushToken|ExpoPushToken)\[[^\[\]\s\x00-\x1f\x7f]{1,200}\]\Z"
    r"|[0-9A-Za-z]{8}(?:-[0-9A-Za-z]{4}){3}-[0-9A-Za-z]{12}\Z"
)

# Why an installation ended whose token another one registered.
MOVED_AWAY = "token-moved"

Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200, pattern=r"^[^\x00]*$"),
]
Names = Annotated[list[Name], Field(max_length=500)]
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
    push_token: Annotated[str, StringConstraints(strip_whitespace=True)]
    platform: Literal["android", "ios"] | None = None
    preferences: PreferencesBody = PreferencesBody()

    @field_validator("push_token")
    @classmethod
    def _check_token(cls, value: str) -> str:
        if not _TOKEN.match(value):
            raise ValueError("must be ExponentPushToken[…]")
        return value

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
                platform=self.platform,
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


async def register(
    records: Any, bodies: Sequence[DeviceBody], now: datetime, who: str
) -> list[Inserted | Duplicate]:
    """Put these devices with their preferences; return whether each device is new.

    A token belongs to the installation that registered it last: another one that has it ends.
    """
    owners = {body.push_token: body.installation_id for body in bodies}
    ended = {
        "push_token": None,
        "active": False,
        "invalidated_at": now,
        "invalid_reason": MOVED_AWAY,
    }
    others = records.each(DeviceInstallation, {"push_token": one_of(*owners)}, size=1000)
    async for other in others:
        if other.installation_id != owners[other.push_token]:
            await records.edit(
                DeviceInstallation,
                other.id,
                among=[REGISTERED],
                who=who,
                reason="its token was registered again",
                **ended,
            )
    drafts: list[DeviceInstallation | NotificationPreferences] = []
    for body in bodies:
        device, preferences = body.records(now)
        is_owner = owners[body.push_token] == body.installation_id
        drafts += [device if is_owner else device.but(**ended), preferences]
    answers: list[Inserted | Duplicate] = await records.put(drafts, who=who)
    return answers[::2]
