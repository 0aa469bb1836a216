"""Every pipeline: on Firestore it runs only queries that its generated index file serves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest


@cache
def _file() -> dict[str, Any]:
    from support.indexes import built_in_indexes

    return built_in_indexes()


@pytest.fixture(autouse=True)
def _indexes_are_enforced() -> Iterator[None]:
    from support.indexes import enforce_indexes

    with enforce_indexes(_file()):
        yield
