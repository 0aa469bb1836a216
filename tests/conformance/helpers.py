"""Helpers of the conformance suite: claim, settle, read, and check a history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, TypeVar

from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import query
from esclusa.model.record import Record
from esclusa.model.settlement import ClaimRequest, Leased, Lost, Settled, Settlement, Verdict
from esclusa.model.stage import Stage
from esclusa.ports.store import Store

T = TypeVar("T")
R = TypeVar("R", bound=Record)

NOON = datetime(2030, 6, 12, 12, 0, 30, tzinfo=UTC)
"""A time after which no window of a budget ends soon."""


def claim_request(stage: Stage, **options: Any) -> ClaimRequest:
    """Return the claim that the engine makes for this stage."""
    given = {
        "take": stage.take,
        "hold": stage.hold,
        "where": stage.where,
        "order": stage.order,
        "per": stage.key_limit,
        "limit": 100,
        "worker": "w1",
    } | options
    return ClaimRequest(kind=stage.kind, stage=stage.name, **given)


async def claim(store: Store, stage: Stage, **options: Any) -> list[Leased]:
    return await store.claim(claim_request(stage, **options))


async def claim_one(store: Store, stage: Stage, id: str | None = None, **options: Any) -> Leased:
    leases = await claim(store, stage, **({} if id is None else {"ids": (id,)}), **options)
    assert len(leases) == 1, f"one record was expected to be due, not {leases}"
    return leases[0]


def settlement_of(lease: Leased, to: str, **options: Any) -> Settlement:
    """Return the settlement that ends a lease."""
    return Settlement(
        ref=lease.ref,
        to=to,
        frm=(lease.record.status,),
        fence=lease.fence,
        **({"who": "w1", "attempt": lease.attempt} | options),
    )


def operator_move(ref: Ref, frm: str | tuple[str, ...], to: str, **options: Any) -> Settlement:
    """Return the settlement of an operator's move."""
    return Settlement(
        ref=ref,
        to=to,
        frm=(frm,) if isinstance(frm, str) else frm,
        fence=None,
        **({"who": "operator"} | options),
    )


async def settle(store: Store, *settlements: Settlement) -> list[Verdict]:
    return await store.settle(settlements)


async def settle_all(store: Store, *settlements: Settlement) -> None:
    """Settle; every verdict must be Settled."""
    assert await store.settle(settlements) == [Settled(s.ref) for s in settlements]


async def settle_lost(store: Store, *settlements: Settlement) -> None:
    """Settle; every verdict must be Lost."""
    assert await store.settle(settlements) == [Lost(s.ref) for s in settlements]


async def insert_new(store: Store, *records: Record) -> list[str]:
    """Insert records, which must be new; return their ids."""
    answers = await store.insert(records)
    assert [type(a).__name__ for a in answers] == ["Inserted"] * len(records)
    return [a.id for a in answers]


async def read(store: Store, kind: Kind | type[R], id: str) -> Any:
    """Return the record, which must exist."""
    found = await store.get(kind if isinstance(kind, Kind) else kind.kind, [id])
    assert found[0] is not None, f"there is no record {id}"
    return found[0]


async def is_absent(store: Store, kind: type[Record], id: str) -> bool:
    return await store.get(kind.kind, [id]) == [None]


async def find_all(store: Store, kind: Kind | type[Record], **options: Any) -> list[Any]:
    return (await store.find(query(kind, limit=10_000, **options))).items


async def snapshot(store: Store, *refs: Ref) -> list[Any]:
    """Return everything that a settlement could change, to check that nothing was written."""
    return [(await store.get(r.kind, [r.id]), await store.history(r)) for r in refs]


async def assert_chain(store: Store, ref: Ref, moves: list[tuple[str, str]] | None = None) -> None:
    """Check that a history has no gap, ends in the record's state and has only declared moves."""
    record = await read(store, ref.kind, ref.id)
    steps = await store.history(ref)
    for before, after in pairwise(steps):
        assert before.to == after.frm, f"the history of {ref} has a gap: {steps}"
        assert before.at <= after.at, f"the history of {ref} goes back in time: {steps}"
    for step in steps:
        assert step.frm == step.to or ref.kind.lifecycle.allows(step.frm, step.to), (
            f"{step} is not declared"
        )
        assert step.at.tzinfo is not None
    if steps:
        assert steps[-1].to == record.status
    if moves is not None:
        assert [(s.frm, s.to) for s in steps] == moves


async def set_clock(store: Any, moment: datetime = NOON) -> datetime:
    """Shift the store's clock to this time; return its time."""
    store.clock_offset += (moment - await store.now()).total_seconds()
    return await store.now()


def advance(*stores: Any, seconds: float) -> None:
    for store in stores:
        store.clock_offset += seconds


def is_near(moment: datetime | None, expected: datetime, within: float = 5.0) -> bool:
    """Whether a time that the store wrote is the expected one, give or take the calls' time."""
    return moment is not None and abs(moment - expected) <= timedelta(seconds=within)


async def retry_transient(call: Callable[..., Awaitable[T]], *values: Any, **options: Any) -> T:
    """Make a call, and again after a transient fault, as the engine does."""
    for n in range(50):
        try:
            return await call(*values, **options)
        except (StoreConflict, StoreUnavailable):
            await asyncio.sleep(0.01 * (n + 1))
    return await call(*values, **options)
