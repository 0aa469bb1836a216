"""The Firestore store on Google's emulator: cost, nesting, limits, races, the index file.

The behaviour that all stores share is tested in ``tests/conformance``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from conformance.databases import opened
from conformance.helpers import (
    advance,
    assert_chain,
    claim,
    claim_request,
    find_all,
    insert_new,
    operator_move,
    read,
    retry_transient,
    set_clock,
    settle_all,
    settlement_of,
)
from conformance.kinds import AGE, COLLECT, KINDS, READ, STAGES, WORK, Job, Note, Old, Post, Sample

from esclusa.engine.system_pipeline import KEEP
from esclusa.model.effects import Add, Create, Exists, Move
from esclusa.model.errors import BadRecord, StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import above, below, not_null, one_of, query
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted, Lost, Settled
from esclusa.model.system_records import SYSTEM_RECORDS, DeadLetter
from esclusa.model.texts import text

pytestmark = pytest.mark.parametrize("provider", ["firestore"], indirect=True)


class Folio(Record, table="folios", key="name"):
    name: str
    total: int = 0
    lifecycle = Lifecycle("open -> closed")


class Documento(
    Record, table="documentos", key=("folio_id", "uri"), within="folio_id", parent=Folio
):
    folio_id: str
    uri: str
    pages: int = 0
    lifecycle = Lifecycle("waiting -> working -> done\nworking -> waiting")


class Extraccion(
    Record, table="extracciones", within="documento_id", parent=Documento, history=False
):
    documento_id: str
    value: str = ""
    lifecycle = Lifecycle("kept")


def documents_stage() -> Any:
    from conformance.kinds import stage

    from esclusa.model.retry import Backoff

    return stage("read", Documento.kind, take="waiting", hold="working", retry=Backoff(tries=None))


NESTED = (Folio.kind, Documento.kind, Extraccion.kind)


@pytest.fixture
async def nested(bare_store: Any) -> Any:
    return await bare_store(NESTED, (documents_stage(),))


# Cost


async def test_moved_record_costs_one_read_and_two_writes(store: Any) -> None:
    count = 100
    await insert_new(store, *[Job(id=f"j{n}") for n in range(count)])
    store.reads.clear()
    store.writes.clear()
    leases = await claim(store, WORK, limit=count)
    await settle_all(store, *[settlement_of(lease, "done") for lease in leases])
    reads = store.reads["claim"] + store.reads["settle"]
    writes = store.writes["claim"] + store.writes["settle"]
    assert (reads, writes) == (count, 2 * count)
    await assert_chain(store, Ref(Job.kind, "j7"), [("pending", "working"), ("working", "done")])


async def test_settlement_by_another_process_costs_one_more_read(
    store: Any, new_store: Any
) -> None:
    other = await new_store()
    await insert_new(store, Job(id="j"))
    [lease] = await claim(store, WORK)
    await settle_all(other, settlement_of(lease, "done"))
    assert (other.reads["settle"], other.writes["settle"]) == (1, 1)


async def test_additions_of_one_call_are_one_write(store: Any) -> None:
    await insert_new(store, Post(platform="x", post_id="1"), *[Job(id=f"j{n}") for n in range(20)])
    leases = await claim(store, WORK)
    store.writes.clear()
    await settle_all(
        store, *[settlement_of(x, "done", effects=(Add(Post, "x:1", jobs=1),)) for x in leases]
    )
    assert store.writes["settle"] == 20 + 1
    assert (await read(store, Post, "x:1")).jobs == 20


# Nested records


async def test_nested_records_are_found_across_parents(nested: Any) -> None:
    await insert_new(nested, Folio(name="f1"), Folio(name="f2"))
    ids = await insert_new(
        nested,
        *[Documento(folio_id=f, uri=f"{n}.pdf", pages=n) for f in ("f1", "f2") for n in range(3)],
    )
    [value] = await insert_new(nested, Extraccion(documento_id=ids[0], value="7"))
    assert (await read(nested, Extraccion, value)).documento_id == ids[0]
    assert sorted(d.id for d in await find_all(nested, Documento)) == sorted(ids)
    assert [
        d.pages for d in await find_all(nested, Documento, where={"folio_id": "f2"}, order="-pages")
    ] == [2, 1, 0]
    assert await nested.insert([Documento(folio_id="f1", uri="0.pdf")]) == [Duplicate(ids[0])]
    assert [
        r and r.id for r in await nested.get(Documento.kind, [ids[5], "f1", "f1:none", "nowhere"])
    ] == [ids[5], None, None, None]
    assert await nested.count(query(Documento, {"id": one_of(ids[0], "x")})) == (1, True)
    walked, after = [], None
    while True:
        page = await nested.find(query(Documento, limit=2, after=after))
        walked += [d.id for d in page.items]
        after = page.next
        if after is None:
            break
    assert sorted(walked) == sorted(ids)


async def test_nested_records_are_claimed_and_settled(nested: Any) -> None:
    await insert_new(nested, Folio(name="f"))
    ids = await insert_new(nested, *[Documento(folio_id="f", uri=f"{n}.pdf") for n in range(4)])
    leases = await claim(nested, documents_stage())
    assert sorted(x.ref.id for x in leases) == sorted(ids)
    close = Move(
        Folio,
        "f",
        "closed",
        frm="open",
        unless=Exists(Documento, folio_id="f", status=one_of("waiting", "working")),
    )
    for lease in leases:
        effects = (Create(Extraccion(documento_id=lease.ref.id)), Add(Folio, "f", total=1), close)
        await settle_all(nested, settlement_of(lease, "done", effects=effects))
    folio = await read(nested, Folio, "f")
    assert (folio.status, folio.total) == ("closed", 4)
    assert len(await find_all(nested, Extraccion)) == 4
    await assert_chain(nested, leases[0].ref, [("waiting", "working"), ("working", "done")])
    assert await nested.purge(query(Documento)) == 4


async def test_wrong_nested_id_is_refused_before_any_write(
    nested: Any,
) -> None:
    with pytest.raises(BadRecord, match="begins with its parent's id"):
        await nested.insert(
            [Documento(folio_id="f", uri="ok"), Documento(id="loose", folio_id="f", uri="u")]
        )
    assert await find_all(nested, Documento) == []


# Limits and errors


async def test_unreachable_server_is_reported_at_once(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esclusa.stores.firestore import FirestoreStore

    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    store = FirestoreStore("nowhere")
    with pytest.raises(StoreUnavailable, match="Firestore"):
        await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.insert([Job(id="j")])


async def test_more_values_than_one_query_allows(store: Any) -> None:
    await insert_new(store, *[Sample(name=f"s{n:03}", number=n) for n in range(100)])
    wanted = one_of(*range(0, 200, 2))
    found = await find_all(store, Sample, where={"number": wanted}, order="-number")
    assert [s.number for s in found] == list(range(98, -1, -2))
    assert await store.count(query(Sample, {"number": wanted, "text": None})) == (50, True)
    page = await store.find(query(Sample, {"number": wanted}, order="number", limit=30))
    rest = await store.find(
        query(Sample, {"number": wanted}, order="number", limit=30, after=page.next)
    )
    assert [s.number for s in (*page.items, *rest.items)] == list(range(0, 100, 2))


async def test_long_history_is_complete(store: Any) -> None:
    await set_clock(store)
    await insert_new(store, Job(id="j"))
    for n in range(45):
        [lease] = await claim(store, WORK, lease=1, worker=f"w{n}")
        advance(store, seconds=2)
    await settle_all(store, settlement_of(lease, "done"))
    ref = Ref(Job.kind, "j")
    assert [s.who for s in await store.history(ref)] == [*(f"w{n}" for n in range(45)), "w1"]
    assert [s.who for s in await store.history(ref, limit=2, newest=True)] == ["w44", "w1"]
    assert [s.who for s in await store.history(ref, limit=3)] == ["w0", "w1", "w2"]
    await assert_chain(store, ref)
    await store.purge(query(Job))
    assert await store.history(ref) == []


async def test_concurrent_change_loses_one_settlement_of_a_batch(
    store: Any, new_store: Any
) -> None:
    other = await new_store()
    await insert_new(store, *[Job(id=f"j{n}") for n in range(10)])
    leases = await claim(store, WORK)
    await settle_all(other, operator_move(leases[4].ref, "working", "failed"))
    verdicts = await store.settle([settlement_of(x, "done") for x in leases])
    assert verdicts == [(Lost if n == 4 else Settled)(x.ref) for n, x in enumerate(leases)]


# Races


@pytest.fixture
async def workers(new_store: Any) -> list[Any]:
    return [await new_store() for _ in range(8)]


@pytest.mark.promise(3)
async def test_eight_workers_settle_each_of_500_records_once(workers: list[Any]) -> None:
    await workers[0].insert([Job(id=f"j{n:03}") for n in range(500)])
    ended: Counter[str] = Counter()

    async def work(n: int) -> None:
        mine = workers[n]
        while (await mine.count(query(Job, {"status": ("pending", "working")})))[0]:
            leases = await retry_transient(claim, mine, WORK, limit=20, worker=f"w{n}", lease=300)
            for verdict in await retry_transient(
                mine.settle, [settlement_of(x, "done", who=f"w{n}") for x in leases]
            ):
                ended[f"{type(verdict).__name__} {verdict.ref.id}"] += 1

    await asyncio.gather(*(work(n) for n in range(8)))
    assert ended == Counter({f"Settled j{n:03}": 1 for n in range(500)})
    jobs = await find_all(workers[0], Job)
    assert {(j.status, j.fence, j.attempts) for j in jobs} == {("done", 1, 1)}
    reads = sum(w.reads["claim"] + w.reads["settle"] for w in workers)
    writes = sum(w.writes["claim"] + w.writes["settle"] for w in workers)
    assert reads <= 3 * 500
    assert writes <= 3 * 500
    for n in range(0, 500, 25):
        await assert_chain(
            workers[0], Ref(Job.kind, f"j{n:03}"), [("pending", "working"), ("working", "done")]
        )


@pytest.mark.promise(1)
async def test_records_of_a_vanished_worker_are_claimed_after_the_lease(new_store: Any) -> None:
    dead, successor = await new_store(), await new_store()
    for each in (dead, successor):
        await set_clock(each)
    await insert_new(successor, *[Job(id=f"j{n}") for n in range(10)])
    held = await claim(dead, WORK, limit=6, lease=60, worker="dead")
    await dead.close()
    assert len(await claim(successor, WORK, worker="successor", lease=600)) == 4
    advance(successor, seconds=61)
    taken = await claim(successor, WORK, worker="successor", lease=600)
    assert sorted(x.ref.id for x in taken) == sorted(x.ref.id for x in held)
    assert {(x.fence, x.attempt) for x in taken} == {(2, 1)}
    assert await successor.settle([settlement_of(held[0], "done")]) == [Lost(held[0].ref)]
    await settle_all(successor, *[settlement_of(x, "done") for x in taken])
    steps = await successor.history(held[0].ref)
    assert [s.reason for s in steps] == [None, text("lease_expired", worker="dead").dump(), None]


# The index file


async def test_index_file_covers_every_query_of_the_engine(
    bare_store: Any,
) -> None:
    from esclusa.stores.firestore import firestore_indexes, uncovered

    system = tuple(record.kind for record in SYSTEM_RECORDS)
    kinds = (*KINDS, *NESTED, *system)
    stages = (*STAGES, documents_stage())
    own = [
        query(Sample, {"flag": True, "number": above(1)}, order="-moment"),
        query(Documento, {"pages": not_null}, order="-pages"),
    ]
    file = firestore_indexes(kinds, stages, own)
    store = await bare_store(kinds, stages)
    shapes: dict[Any, str] = {}
    store.watch_queries(lambda op, shape: shapes.setdefault(shape, op))
    start = await store.now()
    for stage in stages:
        for options in ({}, {"before": start, "eager": True}):
            store._claimer.contention[stage.kind.table] = 1.0  # the last claim lost all candidates
            await store.claim(claim_request(stage, **options))
            await store.backlog(claim_request(stage, **options))
    for kind in kinds:
        await store.tally(kind)
        await store.count(query(kind))
        for order in ("due_at", "-updated_at", "-created_at"):
            await store.find(query(kind, {"status": kind.initial}, order=order))
            await store.find(query(kind, order="-updated_at"))
        for fields in kind.indexes:
            *first, last = (name.removeprefix("-") for name in fields)
            where: dict[str, Any] = dict.fromkeys(first)
            await store.find(query(kind, where, order=fields[-1]))
            await store.find(query(kind, {**where, last: None}))
    await store.find(
        query(Old, {"export_id": None, "ended_on": not_null}, order="ended_on", archived=True)
    )
    await store.assign(
        query(Old, {"created_at": above(start)}, order="created_at", archived=True), "e"
    )
    await store.history(Ref(Job.kind, "j"))
    for record, field, _ in KEEP:  # the queries of the system pipeline
        where = {field: below(start)}
        await store.purge(query(record, where))
        await store.purge(query(record, {**where, "status": one_of(*record.kind.lifecycle.states)}))
    await store.find(query(DeadLetter, {"table_name": "t", "record_id": "r"}, order="-created_at"))
    for each in own:
        await store.find(each)
    assert len(shapes) > 40
    assert uncovered(shapes, file) == []
    await store.find(query(Job, {"lane": "a", "rank": above(1)}))
    assert uncovered(shapes, file) == ["collection t_jobs: where lane; order rank ASCENDING"]


async def test_guards_need_no_index(
    store: Any,
) -> None:
    from esclusa.stores.firestore import firestore_indexes, uncovered

    shapes: list[Any] = []
    store.watch_queries(lambda _, shape: shapes.append(shape))
    await insert_new(
        store,
        Post(platform="x", post_id="1"),
        Job(id="j", post="x:1"),
        Note(name="n", url="u"),
        Old(name="o"),
    )
    await claim(store, COLLECT)
    await claim(store, READ)
    await claim(store, AGE)
    [lease] = await claim(store, WORK)
    guard = Exists(Job, post="x:1", status=one_of("pending", "working"))
    await settle_all(
        store,
        settlement_of(
            lease, "done", effects=(Move(Post, "x:1", "done", frm="collecting", unless=guard),)
        ),
    )
    assert uncovered(shapes, firestore_indexes(KINDS, STAGES)) == []


async def test_large_fields_have_no_automatic_index(provider: Any) -> None:
    from esclusa.stores.firestore import firestore_indexes

    file = firestore_indexes((*KINDS, *NESTED), STAGES)
    off = {
        (o["collectionGroup"], o["fieldPath"]) for o in file["fieldOverrides"] if not o["indexes"]
    }
    assert {
        ("t_old", "data"),
        ("archive_t_old", "data"),
        ("t_samples", "blob"),
        ("t_jobs", "_steps"),
        ("esclusa_history", "*"),
    } <= off
    assert all(2 <= len(i["fields"]) <= 100 for i in file["indexes"])
    grouped = {
        o["fieldPath"]
        for o in file["fieldOverrides"]
        if o["collectionGroup"] == "documentos" and o["indexes"]
    }
    assert "status" in grouped


async def test_old_and_new_records_are_found_by_an_added_field(
    empty_database: Any, bare_store: Any
) -> None:
    class First(Record, table="growing", key="name"):
        name: str
        lifecycle = Lifecycle("a -> b")

    class Grown(Record, table="growing", key="name"):
        name: str
        size: int | None = None
        lifecycle = Lifecycle("a -> b")

    store = await bare_store((First.kind,))
    assert await store.insert([First(name="old")]) == [Inserted("old")]
    await store.migrate((Grown.kind,), ())
    newer = await opened(empty_database, (Grown.kind,), ())
    await newer.insert([Grown(name="new", size=1)])
    assert [g.name for g in (await newer.find(query(Grown, order="size"))).items] == ["old", "new"]
    await newer.close()
