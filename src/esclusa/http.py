"""HTTP for pipelines: sessions for known services, SSRF-safe downloads of untrusted URLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from esclusa.downloads import (
    BadResponse,
    Download,
    ForbiddenAddress,
    SafeSession,
    TooLarge,
    download,
    safe_session,
)
from esclusa.ssrf import AllowedHosts

if TYPE_CHECKING:
    import aiohttp

# The longest delay, in seconds, that a `Retry-After` header can ask for.
MAX_RETRY_AFTER = 86_400.0


@asynccontextmanager
async def session(
    *,
    total: float | None = 60.0,
    connect: float | None = 10.0,
    connections: int = 100,
    **options: Any,
) -> AsyncIterator[aiohttp.ClientSession]:
    """An aiohttp session with time limits that ignores proxies in the environment."""
    import aiohttp  # noqa: PLC0415 - slow to import, needed only for calls

    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=total, connect=connect),
        connector=aiohttp.TCPConnector(limit=connections),
        trust_env=False,
        **options,
    ) as opened:
        yield opened


def retry_after(headers: Any, now: float) -> float | None:
    """The seconds of a ``Retry-After`` header, given as a number or a date; at most one day.

    None if the header is missing or cannot be read.
    """
    given = headers.get("Retry-After")
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(given).timestamp() - now)
        except (TypeError, ValueError, OverflowError):
            return None
    return min(seconds, MAX_RETRY_AFTER) if seconds >= 0 else None  # refuses nan too


__all__ = [
    "AllowedHosts",
    "BadResponse",
    "Download",
    "ForbiddenAddress",
    "SafeSession",
    "TooLarge",
    "download",
    "retry_after",
    "safe_session",
    "session",
]
