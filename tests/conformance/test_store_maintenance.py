"""Purge, remove and archive."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any

import pytest
from conformance.helpers import (
    advance,
    assert_chain,
    claim,
    find_all,
    insert_new,
    operator_move,
    read,
    set_clock,
    settle_all,
    settlement_of,
)
from conformance.kinds import AGE, KINDS, STAGES, WORK, Job, Note, Old

from esclusa.engine.records import Records
from esclusa.model.kind import Ref
from esclusa.model.query import above, below, not_null, null, query
from esclusa.model.system_records import Export


async def test_purge_deletes_what_matches_up_to_the_limit_with_its_history(store: Any) -> None:
    await insert_new(store, *[Job(id=f"j{n}", rank=n) for n in range(6)])
    await settle_all(store, *[settlement_of(x, "done") for x in await claim(store, WORK, limit=4)])
    assert await store.purge(query(Job, {"status": "done", "rank": above(0)}, limit=2)) == 2
    assert await store.purge(query(Job, {"status": "done", "rank": above(0)}, limit=2)) == 1
    assert await store.purge(query(Job, {"status": "done", "rank": above(0)}, limit=2)) == 0
    assert [j.id for j in await find_all(store, Job, order="id")] == ["j0", "j4", "j5"]
    assert [len(await store.history(Ref(Job.kind, f"j{n}"))) for n in range(6)] == [
        2,
        0,
        0,
        0,
        0,
        0,
    ]


async def test_purge_follows_the_order_of_the_query(store: Any) -> None:
    await insert_new(store, Job(id="a", rank=3), Job(id="b", rank=1), Job(id="c", rank=2))
    assert await store.purge(query(Job, order="rank", limit=2)) == 2
    assert [j.id for j in await find_all(store, Job)] == ["a"]


async def test_a_purged_key_can_be_inserted_again(store: Any) -> None:
    await insert_new(store, Job(id="a"))
    await store.purge(query(Job))
    await insert_new(store, Job(id="a"))
    assert await store.history(Ref(Job.kind, "a")) == []


@pytest.mark.promise(1)
async def test_archive_moves_records_and_keeps_their_history(store: Any) -> None:
    await insert_new(
        store,
        *[
            Old(name=f"o{n}", size=n, data={"ñ": [n]}, ended_on=date(2026, 1, n + 1))
            for n in range(5)
        ],
    )
    await settle_all(
        store,
        *[
            settlement_of(x, "failed", error={"message": "m", "type": "t"})
            for x in await claim(store, AGE, limit=3)
        ],
    )
    was = {o.id: o for o in await find_all(store, Old)}
    done = query(Old, {"status": "failed"}, limit=2)
    assert await store.archive(done) == 2
    assert await store.archive(done) == 1
    assert await store.archive(done) == 0
    assert sorted(o.id for o in await find_all(store, Old)) == ["o3", "o4"]
    kept = await find_all(store, Old, archived=True, order="name")
    assert kept == [was[f"o{n}"] for n in range(3)]
    assert await store.get(Old.kind, ["o1"]) == [None]
    assert [(s.frm, s.to) for s in await store.history(Ref(Old.kind, "o1"))] == [
        ("pending", "working"),
        ("working", "failed"),
    ]
    assert {c.state: c.count for c in await store.tally(Old.kind)} == {
        "pending": 2,
        "working": 0,
        "done": 0,
        "failed": 0,
    }


async def test_archived_records_are_found_by_their_own_queries(store: Any) -> None:
    await insert_new(store, *[Old(name=f"o{n}", size=n) for n in range(7)])
    assert await store.archive(query(Old, {"size": above(1)})) == 5
    page = await store.find(query(Old, {"size": above(2)}, order="-size", limit=3, archived=True))
    assert [o.id for o in page.items] == ["o6", "o5", "o4"]
    rest = await store.find(
        query(Old, {"size": above(2)}, order="-size", limit=3, archived=True, after=page.next)
    )
    assert [o.id for o in rest.items] == ["o3"]
    assert await store.count(query(Old, archived=True)) == (5, True)
    assert await store.count(query(Old)) == (2, True)
    rows = [r async for p in store.scan(query(Old, order="name", archived=True), size=2) for r in p]
    assert [r["id"] for r in rows] == ["o2", "o3", "o4", "o5", "o6"]
    assert await store.purge(query(Old, {"size": 6}, archived=True)) == 1
    assert await store.count(query(Old, archived=True)) == (4, True)


async def test_the_archive_records_the_time_and_the_export(store: Any) -> None:
    now = await set_clock(store)
    await insert_new(store, *[Old(name=f"o{n}", size=n) for n in range(6)])
    assert await store.archive(query(Old, {"size": below(3)})) == 3
    advance(store, seconds=3600)
    assert await store.archive(query(Old)) == 3
    early = query(
        Old, {"archived_at": below(now + timedelta(minutes=30))}, order="name", archived=True
    )
    assert [o.id for o in (await store.find(early)).items] == ["o0", "o1", "o2"]
    assert (
        await store.assign(
            query(Old, {"size": below(5)}, order="name", limit=2, archived=True), "e1"
        )
        == 2
    )
    assert (
        await store.assign(
            query(Old, {"size": below(5)}, order="name", limit=2, archived=True), "e2"
        )
        == 2
    )
    assert (
        await store.assign(query(Old, {"size": below(5)}, order="name", archived=True), "e3") == 1
    )
    assert await store.assign(query(Old, {"size": below(5)}, archived=True), "e4") == 0

    async def of(export: Any) -> list[str]:
        return [
            o.id
            for o in await find_all(
                store, Old, where={"export_id": export}, archived=True, order="name"
            )
        ]

    assert [await of(e) for e in ("e1", "e2", "e3", "e4", null)] == [
        ["o0", "o1"],
        ["o2", "o3"],
        ["o4"],
        [],
        ["o5"],
    ]
    rows = [
        r
        async for page in store.scan(query(Old, {"export_id": "e2"}, order="name", archived=True))
        for r in page
    ]
    assert [r["id"] for r in rows] == ["o2", "o3"]
    assert await store.count(query(Old, {"export_id": not_null}, archived=True)) == (5, True)
    assert await store.purge(query(Old, {"export_id": "e1"}, archived=True)) == 2
    assert await of("e1") == []


async def test_rows_are_assigned_to_an_export_while_it_is_filling(store: Any) -> None:
    await store.migrate([*KINDS, Export.kind], STAGES)
    await insert_new(
        store,
        Export(
            id="e1", table_name="old", month="2026-01", part=1, path="p", row_count=0, checksum=""
        ),
    )
    await insert_new(store, *[Old(name=f"o{n}", size=n) for n in range(4)])
    assert await store.archive(query(Old, {"size": below(2)}), "e1") == 2
    await settle_all(store, operator_move(Ref(Export.kind, "e1"), "filling", "written"))
    assert await store.archive(query(Old), "e1") == 0
    assert await store.archive(query(Old), "none such") == 0
    assert await store.count(query(Old)) == (2, True)
    assert await store.count(query(Old, {"export_id": "e1"}, archived=True)) == (2, True)
    assert await store.archive(query(Old)) == 2
    assert await store.count(query(Old, {"export_id": null}, archived=True)) == (2, True)
    assert await store.undeclared(Old.kind) == []


@pytest.mark.promise(1)
async def test_purged_rows_of_the_archive_are_restored_once(store: Any) -> None:
    """With all of their values and tracking; what is in the archive stays as it is."""
    await insert_new(
        store,
        *[
            Old(name=f"o{n}", size=n, data={"ñ": [n, 1.5, None]}, ended_on=date(2026, 1, n + 1))
            for n in range(4)
        ],
    )
    await settle_all(
        store,
        *[
            settlement_of(x, "failed", error={"message": "m", "type": "t"})
            for x in await claim(store, AGE, limit=2)
        ],
    )
    await store.archive(query(Old))
    was = await find_all(store, Old, archived=True, order="name")
    asked = query(Old, order="name", archived=True)
    rows = [row async for page in store.scan(asked) for row in page]
    assert await store.purge(query(Old, {"size": below(3)}, archived=True)) == 3
    assert await store.restore(Old.kind, rows[:2], "e7") == 2
    assert await store.restore(Old.kind, [*rows, rows[2]], "e8") == 1
    assert await store.restore(Old.kind, rows, "e9") == 0
    assert await find_all(store, Old, archived=True, order="name") == was
    for export, count in (("e7", 2), ("e8", 1), ("e9", 0), (null, 1)):
        found = await store.count(query(Old, {"export_id": export}, archived=True))
        assert found == (count, True), export
    assert await find_all(store, Old) == []


async def test_archived_records_are_neither_claimed_nor_moved(store: Any) -> None:
    await insert_new(store, Old(name="o"), Old(name="p"))
    await store.archive(query(Old, {"name": "o"}))
    assert [x.ref.id for x in await claim(store, AGE)] == ["p"]
    verdicts = await store.settle([operator_move(Ref(Old.kind, "o"), "pending", "working")])
    assert type(verdicts[0]).__name__ == "Lost"
    await assert_chain(store, Ref(Old.kind, "p"))
    assert (await read(store, Old, "p")).status == "working"


async def test_remove_deletes_records_with_their_history(store: Any) -> None:
    await insert_new(store, Job(id="a"), Job(id="b"), Note(name="a"), Note(name="b"))
    await settle_all(store, *[settlement_of(x, "done") for x in await claim(store, WORK, limit=2)])
    assert await store.remove(
        [Ref(Job.kind, "a"), Ref(Note.kind, "a"), Ref(Note.kind, "x"), Ref(Job.kind, "\0")]
    ) == [
        True,
        True,
        False,
        False,
    ]
    assert (
        [j.id for j in await find_all(store, Job)]
        == [n.id for n in await find_all(store, Note)]
        == ["b"]
    )
    assert [len(await store.history(Ref(Job.kind, id))) for id in "ab"] == [0, 2]
    assert await store.remove([Ref(Job.kind, "a"), Ref(Note.kind, "a")]) == [False, False]
    assert await store.remove([]) == []


@pytest.mark.promise(4)
async def test_records_removed_together_are_never_seen_apart(store: Any) -> None:
    """Concurrent inserts and removals of a pair leave both records or none."""
    records = Records(store)
    for _ in range(6):
        calls = [
            f()
            for _ in range(3)
            for f in (
                lambda: records.put([Note(name="a"), Job(id="a")], who="me"),
                lambda: records.remove("a", Job, Note),
            )
        ]
        removed = [answer for answer in await asyncio.gather(*calls) if isinstance(answer[0], bool)]
        assert removed
        assert len(await find_all(store, Job)) == len(await find_all(store, Note))


async def test_old_history_is_pruned_in_parts(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    ref = Ref(Job.kind, "j")
    moves = [(("pending",), "working"), (("working",), "pending")]
    for n in range(60):
        await settle_all(store, operator_move(ref, *moves[n % 2], reason=f"{n} {'x' * 600}"))
    before = await store.history(ref)
    assert await store.prune_history(before[0].at, 1000) == 0
    advance(store, seconds=100)
    await settle_all(store, operator_move(ref, *moves[0], reason="new"))
    now, removed = await store.now(), 0
    while part := await store.prune_history(now - timedelta(seconds=50), 20):
        removed += part
    left = await store.history(ref)
    assert removed > 0
    assert len(left) == 61 - removed
    assert [step.reason for step in left] == [*[step.reason for step in before][removed:], "new"]
    await settle_all(store, operator_move(ref, *moves[1], reason="newest"))
    assert (await store.history(ref))[-1].reason == "newest"
