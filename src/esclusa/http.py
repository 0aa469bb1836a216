"""HTTP for pipelines: sessions for known services, SSRF-safe downloads of untrusted URLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from esclusa.downloads import ForbiddenAddress, SafeSession, download, retry_after, safe_session
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
