"""PostgreSQL: a lock of another program holds up only the records that need it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import asyncpg
import pytest
from conformance.helpers import advance, claim_request, settlement_of
from conformance.kinds import KINDS, STAGES, WORK, Job, Note, Post
from support.postgres import PostgresServer

from esclusa.model.effects import Add, Create, Move
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import (
    Duplicate,
    Inserted,
    Leased,
    Locked,
    Rejected,
    Renewal,
    Settled,
    Verdict,
)
from esclusa.stores.postgres import PostgresStore, migrate
from esclusa.stores.postgres.names import Installation

numbers = count()

# Much longer than a settlement may wait for a lock, much shorter than the locks of these tests.
SOON = 8.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database(f"db{next(numbers)}")


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, timeout=1.0)
    await store.open()
    await store.migrate(KINDS, STAGES)
    yield store
    await store.close()


@asynccontextmanager
async def other_program(url: str, *statements: str, name: str = "payroll") -> AsyncIterator[Any]:
    """A session of another program, in a transaction that ran these statements."""
    connection: Any = await asyncpg.connect(url, server_settings={"application_name": name})
    try:
        async with connection.transaction():
            for statement in statements:
                await connection.execute(statement)
            yield connection
    finally:
        await connection.close()


async def claimed(store: PostgresStore, jobs: int = 5) -> list[Leased]:
    await store.insert([Job(id=f"j{n}") for n in range(jobs)])
    return await store.claim(claim_request(WORK))


def names(verdicts: list[Verdict]) -> list[str]:
    return [type(verdict).__name__ for verdict in verdicts]


# locks


@pytest.mark.promise(12)
@pytest.mark.parametrize(
    "lock",
    [
        "SELECT 1 FROM t_jobs WHERE id = 'j2' FOR UPDATE",
        "UPDATE t_jobs SET lane = 'b' WHERE id = 'j2'",
    ],
)
async def test_a_locked_record_waits_alone(store: PostgresStore, url: str, lock: str) -> None:
    leases = await claimed(store)
    made = [settlement_of(lease, "done") for lease in leases]
    async with other_program(url, lock):
        async with asyncio.timeout(SOON):
            verdicts = await store.settle(made)
        assert names(verdicts) == ["Settled", "Settled", "Locked", "Settled", "Settled"]
        locked = verdicts[2]
        assert isinstance(locked, Locked)
        assert "t_jobs j2" in locked.why
        assert "payroll" in locked.why
        async with asyncio.timeout(SOON):
            assert names(await store.settle([made[2]])) == ["Locked"]
    assert await store.settle([made[2]]) == [Settled(made[2].ref)]
    assert len(await store.history(made[2].ref)) == 2


@pytest.mark.promise(12)
async def test_only_settlements_that_touch_a_locked_target_wait(
    store: PostgresStore, url: str
) -> None:
    await store.insert([Post(platform="x", post_id=str(n)) for n in range(2)])
    leases = await claimed(store, 6)
    effects: list[tuple[Any, ...]] = [
        (),
        (Add(Post, "x:0", jobs=1),),
        (Add(Post, "x:1", jobs=1),),
        (Move(Post, "x:0", "collecting", frm="waiting"),),
        (Create(Note(name="new")),),
        (Create(Note(name="other")), Add(Post, "x:0", jobs=1)),
    ]
    made = [
        settlement_of(lease, "done", effects=each)
        for lease, each in zip(leases, effects, strict=True)
    ]
    async with other_program(url, "SELECT 1 FROM t_posts WHERE id = 'x:0' FOR UPDATE"):
        async with asyncio.timeout(SOON):
            verdicts = await store.settle(made)
        assert names(verdicts) == ["Settled", "Locked", "Settled", "Locked", "Settled", "Locked"]
    left = [s for s, v in zip(made, verdicts, strict=True) if isinstance(v, Locked)]
    assert names(await store.settle(left)) == ["Settled"] * 3
    [post] = await store.get(Post.kind, ["x:0"])
    assert (post.jobs, post.status) == (2, "collecting")  # type: ignore[union-attr]


async def test_a_lock_on_a_whole_table_holds_up_only_what_writes_it(
    store: PostgresStore, url: str
) -> None:
    await store.insert([Post(platform="x", post_id="0")])
    leases = await claimed(store, 4)
    effects: list[tuple[Any, ...]] = [(), (Add(Post, "x:0", jobs=1),), (Create(Note(name="n")),)]
    made = [
        settlement_of(lease, "done", effects=each)
        for lease, each in zip(leases, [*effects, ()], strict=True)
    ]
    async with other_program(url, "LOCK TABLE t_posts, t_notes IN SHARE MODE"):
        async with asyncio.timeout(SOON):
            verdicts = await store.settle(made)
        assert names(verdicts) == ["Settled", "Locked", "Locked", "Settled"]
    assert names(await store.settle(made[1:3])) == ["Settled"] * 2


@pytest.mark.parametrize("bad", [0, 3, 19])
async def test_a_key_that_another_program_is_inserting_holds_up_only_its_settlement(
    store: PostgresStore, url: str, bad: int
) -> None:
    leases = await claimed(store, 20)
    made = [
        settlement_of(lease, "done", effects=(Create(Note(name=f"n{n}")),))
        for n, lease in enumerate(leases)
    ]
    key = Note.kind.id_of(f"n{bad}")
    insert = f"INSERT INTO t_notes (id, name) VALUES ('{key}', 'n{bad}')"
    async with other_program(url, insert):
        async with asyncio.timeout(SOON):
            verdicts = await store.settle(made)
        assert [n for n, v in enumerate(verdicts) if not isinstance(v, Settled)] == [bad]
        assert isinstance(verdicts[bad], Locked)
    assert names(await store.settle([made[bad]])) == ["Settled"]


async def test_a_lock_that_no_settlement_escapes_ends_a_call_soon(
    store: PostgresStore, url: str
) -> None:
    """A trigger of the table takes a lock that another program holds."""
    leases = await claimed(store, 60)
    async with other_program(url, "SELECT pg_advisory_xact_lock(7)"):
        await run_sql(
            url,
            """CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
            CREATE TRIGGER wait BEFORE UPDATE ON t_jobs FOR EACH ROW EXECUTE FUNCTION wait()""",
        )
        made = [settlement_of(lease, "done") for lease in leases]
        async with asyncio.timeout(SOON):
            verdicts = await store.settle(made)
        assert set(names(verdicts)) == {"Locked"}
    assert set(names(await store.settle(made))) == {"Settled"}


async def test_a_busy_worker_is_waited_for(store: PostgresStore, url: str) -> None:
    await store.insert([Post(platform="x", post_id="0")])
    leases = await claimed(store, 2)
    effects = (Add(Post, "x:0", jobs=1),)
    made = [settlement_of(lease, "done", effects=effects) for lease in leases]
    lock = "SELECT 1 FROM t_posts WHERE id = 'x:0' FOR UPDATE"
    async with other_program(url, lock, name="esclusa") as worker:
        busy = asyncio.create_task(worker.execute("SELECT pg_sleep(0.9)"))
        settling = asyncio.create_task(store.settle(made))
        await busy
        await worker.execute("COMMIT; BEGIN")
        assert names(await settling) == ["Settled", "Settled"]


async def test_a_reference_to_a_record_does_not_hold_it_up(store: PostgresStore, url: str) -> None:
    """A foreign key locks the row that it refers to, only against a change of its key."""
    await store.insert([Post(platform="x", post_id="0")])
    leases = await claimed(store, 1)
    await run_sql(url, "CREATE TABLE pages (post text REFERENCES t_posts (id))")
    async with other_program(url, "INSERT INTO pages VALUES ('x:0')"):
        effects = (Add(Post, "x:0", jobs=1),)
        made = [settlement_of(lease, "done", effects=effects) for lease in leases]
        assert names(await store.settle(made)) == ["Settled"]


# statements that a single settlement makes impossible

SLEEP = """
    CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$;
    CREATE TRIGGER nap BEFORE UPDATE ON t_jobs FOR EACH ROW
    WHEN (NEW.status = 'done' AND NEW.lane = 'slow') EXECUTE FUNCTION nap()
"""


async def run_sql(url: str, statement: str) -> None:
    async with other_program(url, statement):
        pass


@pytest.mark.promise(12)
@pytest.mark.parametrize("jobs", [1, 30])
async def test_a_settlement_that_never_ends_is_rejected_alone(
    store: PostgresStore, url: str, jobs: int
) -> None:
    await store.insert([Job(id=f"j{n:02}", lane="slow" if not n else "a") for n in range(jobs)])
    leases = await store.claim(claim_request(WORK))
    await run_sql(url, SLEEP)
    verdicts = await store.settle([settlement_of(lease, "done") for lease in leases])
    assert names(verdicts) == ["Rejected", *["Settled"] * (jobs - 1)]
    assert isinstance(verdicts[0], Rejected)
    assert "within 1 s" in verdicts[0].why
    assert await store.settle([settlement_of(leases[0], "failed")]) == [Settled(leases[0].ref)]


async def test_a_store_that_writes_nothing_in_time_rejects_nothing(
    store: PostgresStore, url: str
) -> None:
    leases = await claimed(store, 3)
    await run_sql(
        url,
        """CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$;
        CREATE TRIGGER nap BEFORE UPDATE ON t_jobs FOR EACH ROW EXECUTE FUNCTION nap();
        CREATE TRIGGER nap BEFORE INSERT ON esclusa.leases FOR EACH ROW EXECUTE FUNCTION nap()""",
    )
    made = [settlement_of(lease, "done") for lease in leases]
    with pytest.raises(StoreUnavailable):
        await store.settle(made)
    await run_sql(url, "DROP TRIGGER nap ON t_jobs; DROP TRIGGER nap ON esclusa.leases")
    assert set(names(await store.settle(made))) == {"Settled"}


# leases


@pytest.mark.promise(3)
async def test_the_lease_of_a_locked_record_is_renewed(store: PostgresStore, url: str) -> None:
    a, b = await claimed(store, 2)
    async with other_program(url, "SELECT 1 FROM t_jobs WHERE id = 'j0' FOR UPDATE"):
        async with asyncio.timeout(SOON):
            assert await store.renew([Renewal(a.ref, a.fence, 500)]) == {a.ref}
            renewals = [Renewal(x.ref, x.fence, 500) for x in (a, b)]
            assert await store.renew(renewals) == {a.ref, b.ref}
    advance(store, seconds=300)  # its row was not written: by that alone it would be due
    assert await store.claim(claim_request(WORK)) == []
    assert (await store.backlog(claim_request(WORK))).due == 0
    advance(store, seconds=300)
    orphans = await store.claim(claim_request(WORK))
    assert {x.ref for x in orphans} == {a.ref, b.ref}
    await store.settle([settlement_of(x, "pending") for x in orphans])
    again = await store.claim(claim_request(WORK))
    assert {x.ref for x in again} == {a.ref, b.ref}


@pytest.mark.promise(7)
async def test_the_mark_of_a_locked_suspect_is_not_written_and_its_lease_goes_on(
    store: PostgresStore, url: str
) -> None:
    """It is handled without the mark: a crash then does not count."""
    a, b = await claimed(store, 2)
    async with other_program(url, "SELECT 1 FROM t_jobs WHERE id = 'j0' FOR UPDATE"):
        async with asyncio.timeout(SOON):
            marks = [Renewal(x.ref, x.fence, 500, holder="w/1") for x in (a, b)]
            assert await store.renew(marks) == {a.ref, b.ref}
    holders = [found and found.leased_by for found in await store.get(Job.kind, ["j0", "j1"])]
    assert holders == [a.record.leased_by, "w/1"]


async def test_a_kept_lease_does_not_hold_a_record_that_was_settled(
    store: PostgresStore, url: str
) -> None:
    [lease] = await claimed(store, 1)
    async with other_program(url, "SELECT 1 FROM t_jobs WHERE id = 'j0' FOR UPDATE"):
        await store.renew([Renewal(lease.ref, lease.fence, 500)])
    await store.settle([settlement_of(lease, "pending")])
    [again] = await store.claim(claim_request(WORK, lease=60))
    advance(store, seconds=70)  # the lease that is kept apart was of an older fence
    [orphan] = await store.claim(claim_request(WORK))
    assert orphan.fence == again.fence + 1


async def test_a_lost_lease_of_a_locked_record_is_not_renewed(
    store: PostgresStore, url: str
) -> None:
    [lease] = await claimed(store, 1)
    async with other_program(url, "SELECT 1 FROM t_jobs WHERE id = 'j0' FOR UPDATE"):
        assert await store.renew([Renewal(lease.ref, lease.fence - 1, 500)]) == set()
    await store.settle([settlement_of(lease, "done")])
    async with other_program(url, "SELECT 1 FROM t_jobs WHERE id = 'j0' FOR UPDATE"):
        assert await store.renew([Renewal(lease.ref, lease.fence, 500)]) == set()


async def test_fields_of_a_locked_record_are_refused_soon(store: PostgresStore, url: str) -> None:
    [lease] = await claimed(store, 1)
    save = Renewal(lease.ref, lease.fence, 60, {"result": "half"})
    async with other_program(url, "SELECT 1 FROM t_jobs WHERE id = 'j0' FOR UPDATE"):
        with pytest.raises(StoreConflict):
            async with asyncio.timeout(SOON):
                await store.renew([save])
    assert await store.renew([save]) == {lease.ref}


@pytest.mark.promise(12)
@pytest.mark.parametrize("fault", ["PERFORM pg_sleep(30)", "RAISE 'not allowed'"])
async def test_a_row_that_cannot_be_written_does_not_stop_the_renewal_of_others(
    store: PostgresStore, url: str, fault: str
) -> None:
    leases = await claimed(store, 5)
    await run_sql(
        url,
        f"""CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN {fault}; RETURN NEW; END $$;
        CREATE TRIGGER fail BEFORE UPDATE ON t_jobs FOR EACH ROW
        WHEN (NEW.id = 'j2') EXECUTE FUNCTION fail()""",
    )
    async with asyncio.timeout(SOON):
        held = await store.renew([Renewal(x.ref, x.fence, 500) for x in leases])
    assert held == {x.ref for x in leases}
    advance(store, seconds=300)
    assert await store.claim(claim_request(WORK)) == []


async def test_leases_that_ended_are_removed(store: PostgresStore, url: str) -> None:
    leases = await claimed(store, 3)
    for lease in leases:
        lock = f"SELECT 1 FROM t_jobs WHERE id = '{lease.ref.id}' FOR UPDATE"
        async with other_program(url, lock):
            await store.renew([Renewal(lease.ref, lease.fence, 60)])
        advance(store, seconds=200)
    async with other_program(url) as session:
        rows = await session.fetch("SELECT record_id FROM esclusa.leases")
    assert [row[0] for row in rows] == [leases[-1].ref.id]


async def test_a_row_that_another_program_writes_all_the_time_keeps_its_lease(
    store: PostgresStore, url: str
) -> None:
    leases = await claimed(store, 3)
    ended = asyncio.Event()

    async def write() -> None:
        connection: Any = await asyncpg.connect(url)
        n = 0
        while not ended.is_set():
            n += 1
            await connection.execute("UPDATE t_jobs SET lane = $1", str(n))
        await connection.close()

    writing = asyncio.create_task(write())
    for _ in range(100):
        held = await store.renew([Renewal(x.ref, x.fence, 60) for x in leases])
        assert held == {x.ref for x in leases}
    ended.set()
    await writing


# claims


@pytest.mark.promise(12)
async def test_a_record_whose_claim_never_ends_does_not_stop_the_others(
    store: PostgresStore, url: str
) -> None:
    reports: list[str] = []
    store.on_refused = lambda ref, why: reports.append(f"{ref}: {why}")
    await store.insert([Job(id=f"j{n:02}") for n in range(20)])
    await run_sql(url, SLEEP.replace("NEW.status = 'done' AND NEW.lane = 'slow'", "NEW.id = 'j07'"))
    claimed: set[str] = set()
    async with asyncio.timeout(60):
        while len(claimed) < 19:
            claimed |= {x.ref.id for x in await store.claim(claim_request(WORK))}
    assert "j07" not in claimed
    async with asyncio.timeout(60):
        while not reports:
            assert await store.claim(claim_request(WORK)) == []
    assert len(reports) == 1
    assert reports[0].startswith("t_jobs j07: ")
    async with asyncio.timeout(1):
        assert await store.claim(claim_request(WORK)) == []


async def test_no_record_is_left_out_while_the_store_writes_nothing(
    store: PostgresStore, url: str
) -> None:
    await store.insert([Job(id="a"), Job(id="b")])
    await run_sql(
        url,
        """CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$;
        CREATE TRIGGER nap BEFORE UPDATE ON t_jobs FOR EACH ROW EXECUTE FUNCTION nap();
        CREATE TRIGGER nap BEFORE INSERT ON esclusa.leases FOR EACH ROW EXECUTE FUNCTION nap()""",
    )
    with pytest.raises(StoreUnavailable):
        await store.claim(claim_request(WORK))
    await run_sql(url, "DROP TRIGGER nap ON t_jobs; DROP TRIGGER nap ON esclusa.leases")
    assert len(await store.claim(claim_request(WORK))) == 2


# migrations


async def test_a_migration_names_who_locks_the_table(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_ATTEMPTS", 3)
    await run_sql(url, "ALTER TABLE t_jobs DROP COLUMN rank")
    async with other_program(url, "SELECT 1 FROM t_jobs"):
        with pytest.raises(StoreConflict, match=r"add column t_jobs\.rank.*payroll") as caught:
            async with asyncio.timeout(30):
                await store.migrate(KINDS, STAGES)
    assert "idle in transaction" in str(caught.value)
    assert "add column t_jobs.rank" in await store.migrate(KINDS, STAGES)


async def test_a_migration_waits_for_another_one(store: PostgresStore, url: str) -> None:
    await run_sql(url, "ALTER TABLE t_jobs DROP COLUMN rank")
    async with other_program(url, f"SELECT pg_advisory_xact_lock({Installation().migration_lock})"):
        migrating = asyncio.create_task(store.migrate(KINDS, STAGES))
        await asyncio.sleep(1)
        assert not migrating.done()
    assert "add column t_jobs.rank" in await migrating


# many records at once


@pytest.mark.promise(5)
async def test_many_records_of_which_another_program_inserts_one_meanwhile(
    store: PostgresStore, url: str
) -> None:
    async with other_program(url, "INSERT INTO t_notes (id, name) VALUES ('n7', 'n7')"):
        insert = asyncio.create_task(store.insert([Note(name=f"n{n}") for n in range(600)]))
        await asyncio.sleep(0.3)
        assert not insert.done()
    answers = await insert
    assert [answer.id for answer in answers if isinstance(answer, Duplicate)] == ["n7"]
    assert len(answers) == 600


async def test_many_records_that_a_table_takes_slowly(store: PostgresStore, url: str) -> None:
    slow = """CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$"""
    trigger = "CREATE TRIGGER slow BEFORE INSERT ON t_notes FOR EACH ROW EXECUTE FUNCTION slow()"
    async with other_program(url, slow, trigger):
        pass
    answers = await store.insert([Note(name=f"n{n}") for n in range(900)])
    assert answers == [Inserted(f"n{n}") for n in range(900)]
