"""A server over the shop pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from web.shop import Client, served


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Client]:
    """A server without tokens, which serves this machine only."""
    async with served(tmp_path) as client:
        yield client
