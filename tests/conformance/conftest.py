"""The portable profile of PostgreSQL, and the indexes that queries on Firestore must have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from conformance.databases import PORTABLE, PROVIDERS, DatabaseProvider
from conformance.kinds import KINDS, STAGES, WORK, Job

from esclusa.model.query import Order, above, conditions

OWN = ("claim", "backlog", "tally", "guard", "history", "renew", "settle", "migrate")
NARROW = (
    replace(WORK, order=(Order("rank"),)),
    replace(WORK, order=(Order("rank", descending=True),)),
    replace(WORK, where=conditions(Job.kind, {"lane": "x"})),
    replace(WORK, where=conditions(Job.kind, {"lane": "x", "rank": above(1)})),
)
"""Variations of a stage that the suite claims with."""


@cache
def _file() -> dict[str, Any]:
    from esclusa.stores.firestore import firestore_indexes

    return firestore_indexes(KINDS, (*STAGES, *NARROW))


@pytest.fixture(params=[*PROVIDERS, *(PORTABLE if os.environ.get("ESCLUSA_TEST_PORTABLE") else ())])
def provider(
    request: pytest.FixtureRequest, providers: Callable[[str], DatabaseProvider]
) -> DatabaseProvider:
    return providers(request.param)


@pytest.fixture(autouse=True)
def _indexes_are_enforced() -> Iterator[None]:
    from support.indexes import enforce_indexes

    with enforce_indexes(_file(), OWN, [kind.table for kind in KINDS]):
        yield
