"""Lists and counts are read from a replica; from the primary when it is late or away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from conformance.kinds import KINDS, STAGES, Job
from support.processes import Esclusa
from support.replication import ReplicatedPostgres

from esclusa.model.query import query
from esclusa.model.texts import Text
from esclusa.stores.postgres import PostgresStore
from esclusa.stores.postgres.replica import ReplicaReads

JOBS = query(Job)


@pytest.fixture(scope="module")
def servers() -> Iterator[ReplicatedPostgres]:
    with ReplicatedPostgres() as started:
        started.create_database("shop")
        yield started


@pytest.fixture
async def primary(servers: ReplicatedPostgres) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(servers.primary.url("shop"))
    await store.open()
    await store.migrate(KINDS, STAGES)
    yield store
    await store.close()


async def until(reads: ReplicaReads, *, used: bool) -> None:
    async with asyncio.timeout(30):
        while (reads.why_not is None) is not used:
            await reads.compare()
            await asyncio.sleep(0.05)


async def jobs(store: ReplicaReads | PostgresStore) -> int:
    count, _ = await store.count(JOBS)
    assert len((await store.find(JOBS)).items) == count
    return count


async def test_a_replica_is_read_unless_it_is_late_or_away(
    servers: ReplicatedPostgres, primary: PostgresStore
) -> None:
    messages: list[Text] = []
    replica = primary.replica(servers.standby.url("shop"))
    reads = ReplicaReads(primary, replica, 1.0, messages.append)
    await reads.open()
    try:
        await primary.insert([Job(id="a")])
        await until(reads, used=True)
        servers.standby.run_sql("SELECT pg_wal_replay_pause()")
        await primary.insert([Job(id="b")])
        assert (await jobs(reads), await jobs(primary)) == (1, 2)  # it is the replica that answers
        assert [r and r.id for r in await reads.get(Job.kind, ["b"])] == ["b"]  # the primary
        await until(reads, used=False)
        assert "behind" in str(reads.why_not)
        assert await jobs(reads) == 2
        servers.standby.run_sql("SELECT pg_wal_replay_resume()")
        await until(reads, used=True)
        assert await jobs(reads) == 2
        servers.primary.run_sql("ALTER SYSTEM SET synchronous_standby_names = ''")
        servers.primary.run_sql("SELECT pg_reload_conf()")
        servers.standby.crash()
        assert await jobs(reads) == 2  # the call itself falls back
        assert "away" in str(reads.why_not)
        servers.standby.recover()
        await until(reads, used=True)
        used, late, away = messages[0], messages[1], messages[3]
        assert (used.code, late.code, away.code) == (
            "replica_used",
            "replica_behind",
            "replica_away",
        )
    finally:
        await reads.close()


def test_doctor_names_a_replica_that_is_away(servers: ReplicatedPostgres, tmp_path: Path) -> None:
    command = Esclusa(
        tmp_path,
        ESCLUSA_PIPELINES="replies",
        ESCLUSA_STORE=servers.primary.url("shop"),
        ESCLUSA_READ_STORE="postgresql://reader:secret@127.0.0.1:1/shop",
    )
    assert command.call("migrate", "--yes").returncode == 0
    answer = command.call("doctor")
    assert "the replica is away" in answer.stdout, answer.stdout + answer.stderr
    assert "secret" not in answer.stdout + answer.stderr
    assert command.call("kinds").returncode == 0
    refused = command.call("kinds", ESCLUSA_STORE="sqlite:///a.db")
    assert refused.returncode == 3
    assert "ESCLUSA_READ_STORE" in refused.stderr
