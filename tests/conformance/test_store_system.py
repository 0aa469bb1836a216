"""Schema, clock, waking, opening and closing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from conformance.databases import Database
from conformance.helpers import (
    NOON,
    advance,
    assert_chain,
    claim,
    claim_one,
    insert_new,
    is_near,
    read,
    set_clock,
    settle_all,
    settlement_of,
)
from conformance.kinds import KINDS, STAGES, STATES, WORK, Job, Note, Post, stage

from esclusa.model.errors import MigrationError, SchemaError
from esclusa.model.kind import Ref
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import above, query
from esclusa.model.record import Record


class First(Record, table="t_growing", key="name"):
    name: str

    lifecycle = Lifecycle(STATES)


class Grown(Record, table="t_growing", key="name", index=[("size",)]):
    name: str
    size: int | None = None
    note: str = "none"

    lifecycle = Lifecycle(STATES)


class Whole(Record, table="t_growing", key="name"):
    """All its fields are required."""

    name: str
    size: int
    note: str
    kinds: list[str]

    lifecycle = Lifecycle(STATES)


class Reserved(
    Record,
    table="order",
    key=("group", "user"),
    archive=True,
    index=[("table", "-limit")],
):
    """Words of SQL as names."""

    group: str
    user: str
    table: str | None = None
    limit: int = 0
    select: dict[str, str] = {}

    lifecycle = Lifecycle("from -> where -> null | from")


# schema


async def test_reserved_words_are_names_like_any_other(bare_store: Any) -> None:
    work = stage(
        "t.order", Reserved.kind, take="from", hold="where", exhausted="null", order=("-limit",)
    )
    store = await bare_store((Reserved.kind,), (work,))
    ids = await insert_new(store, *[Reserved(group="a", user=str(n), limit=n) for n in range(3)])
    lease = await claim_one(store, work, limit=1)
    assert (lease.record.limit, lease.record.status) == (2, "where")
    await settle_all(
        store, settlement_of(lease, "null", fields={"table": "drop", "select": {"union": "all"}})
    )
    await assert_chain(store, Ref(Reserved.kind, ids[2]), [("from", "where"), ("where", "null")])
    done = {"table": "drop", "limit": above(1), "status": "null"}
    [found] = (await store.find(query(Reserved, done, order="-limit"))).items
    assert (found.id, found.select) == (ids[2], {"union": "all"})
    assert await store.archive(query(Reserved, done)) == 1
    assert (await store.count(query(Reserved)))[0] == 2
    assert await store.purge(query(Reserved, {"group": "a"})) == 2


async def test_migrate_is_idempotent_and_reports_its_changes(bare_store: Any) -> None:
    store = await bare_store()
    assert await store.pending(KINDS, STAGES)
    done = await store.migrate(KINDS, STAGES)
    assert done
    assert all(isinstance(line, str) and line for line in done)
    assert await store.pending(KINDS, STAGES) == []
    assert await store.migrate(KINDS, STAGES) == []
    await store.use(KINDS, STAGES)
    assert await insert_new(store, Note(name="n")) == ["n"]
    second = await bare_store()
    assert await second.pending(KINDS, STAGES) == []
    await second.use(KINDS, STAGES)
    assert (await read(second, Note, "n")).name == "n"


async def test_pending_changes_nothing(bare_store: Any) -> None:
    store = await bare_store()
    first = await store.pending(KINDS, STAGES)
    assert await store.pending(KINDS, STAGES) == first
    with pytest.raises(SchemaError):
        await store.use(KINDS, STAGES)


async def test_use_before_migrate_is_a_schema_error(bare_store: Any) -> None:
    store = await bare_store()
    with pytest.raises(SchemaError):
        await store.use(KINDS, STAGES)
    await store.migrate((Note.kind,), ())
    await store.use((Note.kind,), ())
    with pytest.raises(SchemaError) as caught:
        await store.use((Note.kind, Post.kind), ())
    assert "t_posts" in str(caught.value)


async def test_new_fields_of_a_kind_get_columns(bare_store: Any) -> None:
    work, more = (
        stage(n, k, take="pending", hold="working", exhausted="failed")
        for n, k in (("one", First.kind), ("two", Grown.kind))
    )
    store = await bare_store((First.kind,), (work,))
    await insert_new(store, First(name="a"))
    newer = await bare_store()
    with pytest.raises(SchemaError) as caught:
        await newer.use((Grown.kind,), (more,))
    assert "size" in str(caught.value)
    assert await newer.pending((Grown.kind,), (more,))
    assert await newer.migrate((Grown.kind,), (more,))
    assert await newer.migrate((Grown.kind,), (more,)) == []
    await newer.use((Grown.kind,), (more,))
    assert (await read(newer, Grown, "a")).size is None
    await insert_new(newer, Grown(name="b", size=2, note="ñ"))
    assert {x.ref.id for x in await claim(newer, more)} == {"a", "b"}
    await insert_new(store, First(name="c"))  # the older program goes on
    assert (await read(store, First, "b")).name == "b"


async def test_a_dropped_field_does_not_disturb(bare_store: Any) -> None:
    """Its column stays. Programs that dropped the field, or made it nullable, write as before."""
    store = await bare_store((Whole.kind,), ())
    await insert_new(store, Whole(name="a", size=1, note="x", kinds=["k"]))
    newer = await bare_store((First.kind,), ())
    await insert_new(newer, First(name="b"))
    assert {(await read(newer, First, id)).name for id in ("a", "b")} == {"a", "b"}
    looser = await bare_store((Grown.kind,), ())
    await insert_new(looser, Grown(name="c", size=None))
    assert (await read(looser, Grown, "c")).size is None
    assert (await read(store, Whole, "a")).kinds == ["k"]


async def test_an_edited_migration_is_refused(empty_database: Database, bare_store: Any) -> None:
    store = await bare_store(KINDS, STAGES)
    await insert_new(store, Note(name="n"))
    await empty_database.edit_migration()
    newer = await bare_store()
    with pytest.raises(MigrationError):
        await newer.migrate(KINDS, STAGES)
    assert (await read(store, Note, "n")).name == "n"


async def test_two_programs_may_migrate_at_the_same_time(bare_store: Any) -> None:
    stores = [await bare_store() for _ in range(3)]
    await asyncio.gather(*(s.migrate(KINDS, STAGES) for s in stores))
    assert await stores[0].pending(KINDS, STAGES) == []


# opening


async def test_the_url_names_the_database(store: Any) -> None:
    assert isinstance(store.url, str)
    assert store.url


async def test_closing_twice_does_nothing_and_another_store_goes_on(
    store: Any, new_store: Any
) -> None:
    other = await new_store()
    await insert_new(other, Note(name="n"))
    await other.close()
    await other.close()
    assert (await read(store, Note, "n")).name == "n"


@pytest.mark.promise(1)
async def test_inserted_records_are_there_for_the_next_process(
    database: Database, new_store: Any
) -> None:
    first = await new_store()
    await insert_new(first, Job(id="j"), Job(id="k"))
    lease = await claim_one(first, WORK, "j")
    await settle_all(first, settlement_of(lease, "done"))
    await first.close()
    assert database is not None
    second = await new_store()
    assert [(await read(second, Job, i)).status for i in "jk"] == ["done", "pending"]
    await assert_chain(second, lease.ref, [("pending", "working"), ("working", "done")])


async def test_concurrent_calls_on_one_store(store: Any) -> None:
    await asyncio.gather(*(store.insert([Note(name=f"n{k}", url="u")]) for k in range(50)))
    found = await asyncio.gather(*(read(store, Note, f"n{k}") for k in range(50)))
    assert [n.name for n in found] == [f"n{k}" for k in range(50)]


# clock


async def test_the_clock_is_utc_and_close_to_the_real_one(store: Any) -> None:
    now = await store.now()
    assert now.utcoffset() == timedelta(0)
    assert is_near(now, datetime.now(UTC), 60)
    assert await store.now() >= now


async def test_clock_offset_shifts_everything_that_the_store_writes(
    store: Any, new_store: Any
) -> None:
    ahead = await new_store(clock_offset=7200.0)
    real = await store.now()
    assert is_near(await ahead.now(), real + timedelta(hours=2))
    await insert_new(ahead, Job(id="j"))
    job = await read(store, Job, "j")
    for moment in (job.due_at, job.created_at, job.updated_at):
        assert is_near(moment, real + timedelta(hours=2))
    assert await claim(store, WORK) == []  # two hours early by this clock
    lease = await claim_one(ahead, WORK, lease=60)
    assert is_near(lease.until, real + timedelta(hours=2, seconds=60))
    store.clock_offset = 7200.0 + 61
    heir = await claim_one(store, WORK)
    assert heir.fence == 2
    await settle_all(store, settlement_of(heir, "pending", delay=10.0))
    job = await read(store, Job, "j")
    assert is_near(job.due_at, real + timedelta(hours=2, seconds=71))
    assert is_near((await store.history(job.ref))[-1].at, real + timedelta(hours=2, seconds=61))


async def test_the_clock_may_be_shifted_back(store: Any) -> None:
    await set_clock(store, NOON)
    await insert_new(store, Job(id="j"))
    advance(store, seconds=-3600)
    assert await claim(store, WORK) == []
    advance(store, seconds=3601)
    assert len(await claim(store, WORK)) == 1


# waking


class WakeRecorder:
    """Records wakes, so that a test can wait for one instead of sleeping."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self.changed = asyncio.Event()

    def __call__(self, table: str) -> None:
        self.tables.append(table)
        self.changed.set()

    async def wait_for(self, table: str) -> None:
        async with asyncio.timeout(10):
            while table not in self.tables:
                self.changed.clear()
                await self.changed.wait()
        self.tables.clear()


async def test_listeners_are_woken_by_every_store(store: Any, new_store: Any) -> None:
    other = await new_store()
    here, there = WakeRecorder(), WakeRecorder()
    end_here, end_there = await store.listen(here), await other.listen(there)
    try:
        for call in (
            lambda: store.wake(Job.kind),
            lambda: other.wake(Job.kind),
            lambda: store.insert([Job(id="j")]),
            lambda: other.insert([Job(id="k")]),
        ):
            await call()
            await here.wait_for("t_jobs")
            await there.wait_for("t_jobs")
    finally:
        await end_here()
        await end_there()


async def test_a_settlement_wakes_listeners(store: Any, new_store: Any) -> None:
    from esclusa.model.effects import Create, Move

    other = await new_store()
    await insert_new(store, Job(id="j"), Job(id="k"), Post(platform="x", post_id="1"))
    one, two = await claim(store, WORK)
    recorder = WakeRecorder()
    end = await other.listen(recorder)
    try:
        await settle_all(store, settlement_of(one, "pending"))
        await recorder.wait_for("t_jobs")
        await settle_all(
            store,
            settlement_of(
                two, "done", effects=(Create(Note(name="n")), Move(Post, "x:1", "collecting"))
            ),
        )
        await recorder.wait_for("t_notes")
        await settle_all(
            store,
            settlement_of(
                await claim_one(store, WORK), "done", effects=(Move(Post, "x:1", "waiting"),)
            ),
        )
        await recorder.wait_for("t_posts")
    finally:
        await end()


async def test_a_listener_may_be_async_and_can_be_removed(store: Any) -> None:
    woken: list[str] = []
    recorder = WakeRecorder()

    async def listener(table: str) -> None:
        woken.append(table)

    end = await store.listen(listener)
    end_recorder = await store.listen(recorder)
    await store.wake(Note.kind)
    await recorder.wait_for("t_notes")
    async with asyncio.timeout(10):
        while not woken:
            await asyncio.sleep(0)
    await end()
    woken.clear()
    await store.wake(Note.kind)
    await recorder.wait_for("t_notes")
    assert woken == []
    await end_recorder()
