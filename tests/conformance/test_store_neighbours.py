"""Tables that the worker of another program works on too: its due times and its locks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from conformance.databases import Database
from conformance.helpers import assert_chain, claim, claim_request, settle_all, settlement_of
from conformance.kinds import stage

from esclusa.model.columns import track
from esclusa.model.effects import Move
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.record import Record
from esclusa.model.settlement import Lost, Settled
from esclusa.model.texts import load

COLUMNS: dict[str, Any] = {
    "id": "int",
    "installation_id": "text",
    "status": "text",
    "next_attempt_at": "time",
    "locked_at": "time",
    "locked_by": "text",
    "completed_at": "time",
    "attempt_count": "int",
    "active": "bool",
    "created_at": "time",
    "updated_at": "time",
}


class Push(
    Record,
    table="pushes",
    track=track(
        attempts="attempt_count",
        due_at="next_attempt_at",
        leased_by="locked_by",
        leased_at="locked_at",
        finished_at="completed_at",
        abandoned_after=900,
    ),
):
    """A delivery in the columns of NotiChileC's worker."""

    installation_id: str
    active: bool | None = None

    lifecycle = Lifecycle("pending -> sent | failed")


SEND = stage("send", Push.kind, take="pending", exhausted="failed")
ACTIVE = stage("active", Push.kind, take="pending", exhausted="failed", where={"active": True})


def row(id: int, now: datetime, **values: Any) -> dict[str, Any]:
    made = dict.fromkeys(COLUMNS) | {"id": id, "installation_id": f"phone-{id}", "active": True}
    return made | {"created_at": now - timedelta(days=1), "updated_at": now} | values


async def opened(database: Database, bare_store: Any, *rows: dict[str, Any]) -> Any:
    await database.make_table("pushes", COLUMNS, "id", rows)
    return await bare_store((Push.kind,), (SEND, ACTIVE))


@pytest.fixture
def now() -> datetime:
    return datetime.now(UTC)


async def test_a_row_without_a_due_time_is_due_since_its_creation(
    empty_database: Database, bare_store: Any, now: datetime
) -> None:
    ago = [now - timedelta(hours=hours) for hours in range(5)]
    store = await opened(
        empty_database,
        bare_store,
        row(1, now, created_at=ago[2]),
        row(2, now, created_at=ago[4], next_attempt_at=ago[1]),
        row(3, now, created_at=ago[3]),
        row(4, now, created_at=None),
        row(5, now, created_at=ago[4], next_attempt_at=now + timedelta(hours=1)),
    )
    taken = await claim(store, SEND)
    ids = [lease.ref.id for lease in taken]
    assert [id for id in ids if id != "4"] == ["3", "1", "2"]
    assert "4" in ids  # nothing is known of its creation: where it comes is up to the store
    assert {lease.taken for lease in taken} == {"pending"}


async def test_the_lock_of_another_program_is_respected_up_to_its_age(
    empty_database: Database, bare_store: Any, now: datetime
) -> None:
    young, old = now - timedelta(minutes=5), now - timedelta(minutes=16)
    held: dict[str, Any] = {"locked_by": "dispatch:host:42", "attempt_count": 0}
    store = await opened(
        empty_database,
        bare_store,
        row(1, now, locked_at=young, status="pending", **held),
        row(2, now, locked_at=old, status="pending", **held),
        row(3, now, locked_at=young, next_attempt_at=young, status="pending", **held),
        row(4, now, locked_at=old, next_attempt_at=old, status="pending", **held),
    )
    assert (await store.backlog(claim_request(SEND))).due == 2
    locks = await store.foreign_locks(Push.kind, ["1", "2", "3", "4", "5"])
    assert locks == {"1": young, "3": young}
    first, second = await claim(store, SEND)
    assert [first.ref.id, second.ref.id] == ["2", "4"]
    await settle_all(store, settlement_of(first, "sent"), settlement_of(second, "sent"))
    rows = {r["id"]: r for r in await empty_database.rows("pushes", "id")}
    assert [rows[n]["locked_by"] for n in (1, 2, 3, 4)] == [
        "dispatch:host:42",
        None,
        "dispatch:host:42",
        None,
    ]
    assert [rows[n]["locked_at"] is None for n in (1, 2, 3, 4)] == [False, True, False, True]
    await assert_chain(store, first.ref)
    store.clock_offset += 700
    assert await store.foreign_locks(Push.kind, ["1", "3"]) == {}
    assert sorted(lease.ref.id for lease in await claim(store, SEND)) == ["1", "3"]
    assert await store.foreign_locks(Push.kind, ["1", "3"]) == {}  # our lease is no such lock


async def test_a_lease_of_ours_ends_with_its_lease_and_not_with_that_age(
    empty_database: Database, bare_store: Any, now: datetime
) -> None:
    store = await opened(empty_database, bare_store, row(1, now))
    [lease] = await claim(store, SEND, lease=30.0)
    store.clock_offset += 29
    assert await claim(store, SEND) == []
    store.clock_offset += 2
    [again] = await claim(store, SEND)
    assert (again.ref.id, again.fence) == (lease.ref.id, lease.fence + 1)


async def test_a_flag_of_another_program_is_judged_at_the_claim(
    empty_database: Database, bare_store: Any, now: datetime
) -> None:
    store = await opened(empty_database, bare_store, row(1, now), row(2, now, active=False))
    assert [lease.ref.id for lease in await claim(store, ACTIVE, limit=1)] == ["1"]
    await empty_database.write("pushes", "id", 2, active=True)
    [lease] = await claim(store, ACTIVE)
    await empty_database.write("pushes", "id", 2, active=False)
    await settle_all(store, settlement_of(lease, "sent"))
    rows = {r["id"]: r for r in await empty_database.rows("pushes", "id")}
    assert (rows[2]["status"], bool(rows[2]["active"])) == ("sent", False)


@pytest.mark.promise(12)
async def test_a_record_that_another_program_moves_while_it_is_held_stays_there(
    empty_database: Database, bare_store: Any, now: datetime
) -> None:
    """The outcome is lost with its effects, the lease ends, and the history has that move."""
    rows = [row(id, now) for id in range(1, 6)]
    store = await opened(empty_database, bare_store, *rows)
    leases = {lease.ref.id: lease for lease in await claim(store, SEND)}
    moved = {1: "failed", 2: "cancelled", 3: "sent"}
    for id, state in moved.items():
        await empty_database.write("pushes", "id", id, status=state)
    await empty_database.write("pushes", "id", 4, status="failed")
    await empty_database.write("pushes", "id", 4, status="pending")
    waker = Move(Push.kind, "5", "failed", frm="pending")
    verdicts = await store.settle(
        [
            settlement_of(leases["1"], "sent", fields={"active": False}, effects=(waker,)),
            settlement_of(leases["2"], "pending"),
            settlement_of(leases["3"], "sent"),
            settlement_of(leases["4"], "sent"),
        ]
    )
    refs = [leases[str(n)].ref for n in range(1, 5)]
    assert verdicts == [
        Lost(refs[0], "failed"),
        Lost(refs[1], "cancelled"),
        Settled(refs[2]),
        Settled(refs[3]),
    ]
    stored = {r["id"]: r for r in await empty_database.rows("pushes", "id")}
    assert [stored[n]["status"] for n in (1, 2, 3, 4)] == ["failed", "cancelled", "sent", "sent"]
    assert [stored[n]["locked_by"] for n in (1, 2, 3, 4)] == [None] * 4
    assert [stored[n]["locked_at"] for n in (1, 2, 3, 4)] == [None] * 4
    assert bool(stored[1]["active"])
    assert stored[5]["locked_by"] is not None  # the effect of a lost settlement
    [step] = await store.history(refs[0])
    assert (step.frm, step.to, step.who) == ("pending", "failed", "")
    assert "another program" in load(step.reason)
    assert await store.settle([settlement_of(leases["1"], "sent")]) == [Lost(refs[0])]
