"""HTTP for pipelines: sessions for known services, SSRF-safe downloads of untrusted URLs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from esclusa.downloads import ForbiddenAddress, SafeSession, download, retry_after, safe_session
from esclusa.model import duration
from esclusa.model.errors import Failure, Permanent, Throttled
from esclusa.response_body import BadResponse, Download, TooLarge
from esclusa.ssrf import AllowedHosts

if TYPE_CHECKING:
    import aiohttp


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


def raise_for_status(
    response: Any,
    *,
    pause: str | float | timedelta = "1m",
    permanent: Collection[int] = (),
) -> None:
    """Raise what a response means for the record; nothing below 400.

    429, and 503 with ``Retry-After``: Throttled, so that the whole stage waits as long as the
    header says, or for ``pause``. A status in ``permanent``: Permanent. Any other: a Failure of the
    type ``http_error``, which is retried. response: of aiohttp, httpx or requests.
    """
    status: int = getattr(response, "status", None) or response.status_code
    if status < 400:
        return
    message = f"HTTP {status} from {urlsplit(str(response.url)).hostname}"
    after = retry_after(response.headers, time.time())
    if status == 429 or (status == 503 and after is not None):
        raise Throttled(message, after=duration.seconds(pause) if after is None else after)
    raise (Permanent if status in permanent else Failure)(message, type="http_error")


__all__ = [
    "AllowedHosts",
    "BadResponse",
    "Download",
    "ForbiddenAddress",
    "SafeSession",
    "TooLarge",
    "download",
    "raise_for_status",
    "retry_after",
    "safe_session",
    "session",
]
