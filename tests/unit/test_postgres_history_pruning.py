"""The history is pruned in sweeps: each goes through the table once, in parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from conformance.kinds import KINDS, STAGES
from support.postgres import PostgresServer

from esclusa.stores.postgres import PostgresStore

numbers = count()
# Moves of which each needs about a sixtieth of a block: several parts of a sweep.
MOVES = 40_000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.create_database(f"db{next(numbers)}"))
    await store.open()
    await store.migrate(KINDS, STAGES)
    yield store
    await store.close()


async def add_moves(store: PostgresStore, at: datetime, moves: int = MOVES) -> None:
    await store._connections.fetch(
        """INSERT INTO esclusa.history (table_name, record_id, from_state, to_state, at, who)
        SELECT 't_jobs', 'j' || n, 'pending', 'done', $1, 'w' FROM generate_series(1, $2::int) n""",
        at,
        moves,
    )


async def moves_left(store: PostgresStore) -> int:
    rows: list[Any] = await store._connections.read("SELECT count(*) FROM esclusa.history")
    return int(rows[0][0])


async def test_a_sweep_in_parts_deletes_what_is_old_and_nothing_else(store: PostgresStore) -> None:
    now = await store.now()
    old, before = now - timedelta(days=2), now - timedelta(days=1)
    await add_moves(store, old)
    await add_moves(store, now)
    parts = []
    while part := await store.prune_history(before, 7000):
        parts.append(part)
    assert sum(parts) == MOVES
    assert max(parts) <= 7000
    assert await moves_left(store) == MOVES


async def test_space_that_is_used_again_is_found_in_the_next_sweep(store: PostgresStore) -> None:
    now = await store.now()
    await add_moves(store, now - timedelta(days=3))
    assert await store.prune_history(now - timedelta(days=2), 10 * MOVES) == MOVES
    await store._connections.fetch("VACUUM esclusa.history")
    await add_moves(store, now - timedelta(days=1), 100)  # at the begin of the table again
    assert await store.prune_history(now - timedelta(days=2), 10 * MOVES) == 0
    assert await store.prune_history(now, 10 * MOVES) == 100
    assert await moves_left(store) == 0


async def test_a_table_that_was_swept_is_not_read_again_for_the_same_time(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await store.now()
    await add_moves(store, now - timedelta(days=2), 10)
    assert await store.prune_history(now, 1000) == 10
    sent: list[str] = []
    fetch = store._connections.fetch

    async def watched(statement: str, *values: Any, **options: Any) -> list[Any]:
        sent.append(statement)
        return await fetch(statement, *values, **options)

    monkeypatch.setattr(store._connections, "fetch", watched)
    assert await store.prune_history(now, 1000) == 0
    assert not any("DELETE" in statement for statement in sent)


async def test_the_history_and_its_months_are_vacuumed_early(store: PostgresStore) -> None:
    async def settings() -> dict[str, bool]:
        rows = await store._connections.read(
            """SELECT relname, 'autovacuum_vacuum_cost_limit=2000' = ANY(reloptions)
            FROM pg_class WHERE relname LIKE 'history%' AND relkind = 'r'"""
        )
        return {row[0]: row[1] for row in rows}

    assert await settings() == {"history": True}
    await store.partition_history()
    divided = await settings()
    assert {"history_before", "history_rest"} < divided.keys()
    assert all(divided.values()), divided
