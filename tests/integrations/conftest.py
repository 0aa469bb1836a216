"""An empty PostgreSQL database for each test, and an empty folder to run in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest


@pytest.fixture
async def postgres(providers: Callable[[str], Any]) -> AsyncIterator[str]:
    """The URL of an empty PostgreSQL database."""
    database = await providers("postgres").database(empty=True)
    yield database.url
    await database.remove()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Run in an empty folder, so that no settings file is found."""
    monkeypatch.chdir(tmp_path)
