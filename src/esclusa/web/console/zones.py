"""The time zone of the reader: chosen on the page, found by the browser, or UTC."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

# The cookie with the name of the zone, which the visitor or the script of the page sets.
COOKIE: Final = "esclusa_zone"
# The cookie that says to show UTC all the same.
UTC_COOKIE: Final = "esclusa_utc"

_UTC: Final = ZoneInfo("UTC")
# The zone of the page that is being made.
current: ContextVar[ZoneInfo] = ContextVar("zone", default=_UTC)


def of_cookies(cookies: Mapping[str, str]) -> ZoneInfo:
    """The zone that the visitor has chosen; UTC if none, or if it is unknown."""
    if cookies.get(UTC_COOKIE):
        return _UTC
    return find(unquote(cookies.get(COOKIE, ""))) or _UTC


@lru_cache(maxsize=64)
def find(name: str) -> ZoneInfo | None:
    """The zone of this name; None if there is none."""
    return ZoneInfo(name) if name in names() else None


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The names of all zones that a place has, in order, after UTC."""
    other = ("Etc/", "SystemV/", "US/", "posix/", "right/")
    places = (n for n in available_timezones() if "/" in n and not n.startswith(other))
    return ("UTC", *sorted(places))


def name() -> str:
    """The name of the zone of the page."""
    return current.get().key


def local(moment: datetime) -> datetime:
    """The time in the zone of the page; one without a zone is in UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(current.get())
