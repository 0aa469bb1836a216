"""The time zone in which the command prints times: the system's, or UTC with ``--utc``."""

from __future__ import annotations

import os
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

# Whether times are printed in UTC.
utc: ContextVar[bool] = ContextVar("utc", default=False)

_LOCALTIME: Final = Path("/etc/localtime")


def zone() -> tzinfo | None:
    """The zone of the times that are printed; None: the system's, which has no name."""
    return UTC if utc.get() else _system(os.environ.get("TZ", ""))


def zone_name() -> str:
    """The name of that zone, such as America/Santiago."""
    return str(zone() or datetime.now().astimezone().tzname())


def local(moment: datetime) -> datetime:
    """The time in that zone; one without a zone stays as it is."""
    return moment if moment.tzinfo is None else moment.astimezone(zone())


@lru_cache(maxsize=4)
def _system(given: str) -> tzinfo | None:
    """The zone that ``TZ`` names, or that the system is set to."""
    target = str(_LOCALTIME.resolve()) if not given and _LOCALTIME.exists() else given
    name = target.removeprefix(":").rpartition("zoneinfo/")[2]
    if name in ("UTC", "Etc/UTC"):
        return UTC
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None
