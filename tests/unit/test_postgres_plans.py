"""EXPLAIN: claims, counts, lists and settlements use their indexes among many settled rows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from conformance.helpers import claim_request
from conformance.kinds import stage
from support.postgres import PostgresServer

from esclusa.model.columns import track
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import not_null, query
from esclusa.model.record import Record
from esclusa.model.settlement import FanOut, RecordWithChildren, Settlement
from esclusa.stores.postgres import PostgresStore, claims, moves, queries, statements

STATES = """
    pending -> working -> done | failed
    working -> pending
"""
SETTLED = 50_000


class Own(Record, table="own", key="name"):
    name: str
    url: str | None = "u"
    rank: int = 0
    lifecycle = Lifecycle(STATES)


class Guest(
    Record, table="guest", track=track(prefix="x_", created_at="made", leased_at="locked_at")
):
    """Attached: other programs leave nulls in its tracking, and write times without a zone."""

    url: str | None = "u"
    lifecycle = Lifecycle(STATES)


OWN = stage(
    "own", Own.kind, take="pending", hold="working", exhausted="failed", where={"url": not_null}
)
RANKED = stage(
    "ranked",
    Own.kind,
    take="pending",
    hold="working",
    exhausted="failed",
    where={"url": not_null},
    order="-rank",
)
GUEST = stage("guest", Guest.kind, take="pending", hold="working", exhausted="failed")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(options={"autovacuum": "off"}) as server:
        url = server.create_database("plans")
        server.run_sql(
            "CREATE TABLE guest (id bigserial PRIMARY KEY, url text, made timestamp)", "plans"
        )
        assert url
        yield server


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(server.url("plans"))
    await store.open()
    if await store.migrate((Own.kind, Guest.kind), (OWN, RANKED, GUEST), foreign=True):
        fetch = store._connections.fetch
        await fetch(
            f"""INSERT INTO own (id, name, status, url)
            SELECT 'o' || n, 'o' || n, 'done', 'u' FROM generate_series(1, {SETTLED}) n"""
        )
        await fetch(
            f"""INSERT INTO guest (url, x_status)
            SELECT 'u', 'done' FROM generate_series(1, {SETTLED}) n"""
        )
        await fetch("ANALYZE own")
        await fetch("ANALYZE guest")
        # statistics lag behind a queue: they saw no row in the states that have work now
        await fetch(
            """INSERT INTO own (id, name, url, rank)
            SELECT 'p' || n, 'p' || n, 'u', n FROM generate_series(1, 5000) n"""
        )
        await fetch("INSERT INTO guest (url) SELECT 'u' FROM generate_series(1, 5000) n")
    yield store
    await store.close()


async def nodes(
    store: PostgresStore, text: str, values: Any, *, once: bool = False
) -> list[dict[str, Any]]:
    """Return the nodes of a statement's plan.

    ``once``: of the generic plan that a connection for claims makes.
    """
    if once:
        async with store._connections.connection("claims") as connection:
            await connection.execute(f"PREPARE plan AS {text}")
            try:
                rows = await connection.fetch(
                    f"EXPLAIN (FORMAT JSON) EXECUTE plan({', '.join(['NULL'] * len(values))})"
                )
            finally:
                await connection.execute("DEALLOCATE plan")
    else:
        rows = await store._connections.fetch("EXPLAIN (FORMAT JSON) " + text, *values)
    found: list[dict[str, Any]] = []

    def walk(node: dict[str, Any]) -> None:
        found.append(node)
        for child in node.get("Plans", ()):
            walk(child)

    walk(json.loads(rows[0][0])[0]["Plan"])
    return found


def scans(plan: list[dict[str, Any]], table: str) -> set[str]:
    return {
        n.get("Index Name", n["Node Type"])
        for n in plan
        if n.get("Relation Name") == table and n["Node Type"] != "ModifyTable"
    }


@pytest.mark.parametrize(("work", "purpose"), [(OWN, "claim"), (GUEST, "claim"), (RANKED, "order")])
@pytest.mark.parametrize("limit", [None, 1, 500, 5000])
async def test_a_claim_reads_its_partial_index_in_order(
    store: PostgresStore, work: Any, purpose: str, limit: int | None
) -> None:
    name = work.kind.table
    claim = claims.claim_statement(
        store._table(work.kind), claim_request(work, limit=limit or 1), store._offset
    )
    plan = await nodes(store, *claim, once=limit is None)
    used = scans(plan, name)
    assert len(used) == 2, used
    assert any(u.startswith(f"{name}_{purpose}_") for u in used), used
    assert "Tid Scan" in used, used
    locks = next(n for n in plan if n["Node Type"] == "LockRows")
    assert locks["Plans"][0]["Node Type"] == "Index Scan", (
        "what is due is read in order, not sorted"
    )


async def test_no_statement_is_compiled_by_jit(store: PostgresStore) -> None:
    """Before PostgreSQL 18 a plan that sorts against the settings looks expensive enough for jit.

    Compiling takes 300 ms.
    """
    for shown in (store._connections.fetch("SHOW jit"), store._connections.claim("SHOW jit")):
        assert (await shown)[0][0] == "off"
    pooled = PostgresStore(store._connections._hosts._dsns[0], statement_cache_size=0)
    await pooled.open()
    try:
        assert (await pooled._connections.claim("SELECT current_setting('jit')"))[0][0] == "off"
    finally:
        await pooled.close()


@pytest.mark.parametrize("once", [False, True])
async def test_backlog_reads_the_claims_index(store: PostgresStore, once: bool) -> None:
    for work in (OWN, GUEST):
        name = work.kind.table
        plan = await nodes(
            store,
            *queries.backlog_statement(
                store._table(work.kind), claim_request(work), 10_000, store._offset
            ),
            once=once,
        )
        assert all(u.startswith(f"{name}_claim_") for u in scans(plan, name)), scans(plan, name)


@pytest.mark.parametrize("alike", [True, False], ids=["one fence for all", "a fence each"])
async def test_a_settlement_finds_its_rows_by_id_and_joins_them_once(
    store: PostgresStore, alike: bool
) -> None:
    leases = await store.claim(claim_request(OWN, limit=500))
    rows: list[moves.SettlementRow] = [
        (n, Settlement(x.ref, "done", ("working",), x.fence if alike else n, who="w"), None)
        for n, x in enumerate(leases)
    ]
    seen: list[set[str]] = []
    looped: list[dict[str, Any]] = []

    async def explain(text: str, *values: Any) -> list[Any]:
        plan = await nodes(store, text, values)
        seen.append(scans(plan, "own"))
        inner = [node["Plans"][1] for node in plan if node["Node Type"] == "Nested Loop"]
        looped.extend(
            node for node in inner if node["Node Type"] == "Function Scan"
        )  # reads all settlements again for each record
        return [(0, None)]

    for key, group in moves.grouped(rows).items():
        await moves.move(store._context(explain), key, group, wake=False)
    assert seen == [{"own_pkey"}]
    assert looped == []


async def test_counts_and_lists_by_state_read_the_state_index(store: PostgresStore) -> None:
    for kind in (Own.kind, Guest.kind):
        table = store._table(kind)
        for text, values in (
            statements.count(table, query(kind, {"status": "pending"}), 1000),
            statements.find(table, query(kind, {"status": "failed"}, order="-updated_at"), 101),
        ):
            used = scans(await nodes(store, text, values), kind.table)
            assert all(u.startswith(f"{kind.table}_") and "Seq" not in u for u in used), used


async def test_a_tally_beyond_the_cap_is_an_estimate(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "TALLY_CAP", 10_000)
    for kind in (Own.kind, Guest.kind):
        counts = {c.state: c for c in await store.tally(kind)}
        assert not counts["done"].exact
        assert 10_000 <= counts["done"].count <= SETTLED * 1.2
        assert counts["failed"].exact
        assert counts["pending"].count + counts["working"].count == 5000


async def test_an_undeclared_state_is_counted(store: PostgresStore) -> None:
    await store._connections.fetch("UPDATE guest SET x_status = 'weird' WHERE id <= 3")
    counts = {c.state: c.count for c in await store.tally(Guest.kind)}
    assert counts["weird"] == 3


@pytest.mark.parametrize("fan_out", [False, True])
async def test_checks_of_foreign_keys_are_not_planned_for_each_row(
    store: PostgresStore, fan_out: bool
) -> None:
    """A trigger sees the setting under which the checks of foreign keys run."""
    fetch = store._connections.fetch
    await fetch("CREATE TABLE IF NOT EXISTS seen (setting text)")
    await fetch(
        """CREATE OR REPLACE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO seen VALUES (current_setting('plan_cache_mode')); RETURN NULL; END $$"""
    )
    await fetch(
        "CREATE OR REPLACE TRIGGER see AFTER INSERT ON own FOR EACH ROW EXECUTE FUNCTION see()"
    )
    try:
        if fan_out:
            many = RecordWithChildren(Own(name="f0"), [FanOut(Own(name=""), "name", ["f1", "f2"])])
            assert await store.insert_if_new([many]) == [2]
        else:
            await store.insert([Own(name="n1"), Own(name="n2")])
        assert {row[0] for row in await fetch("SELECT setting FROM seen")} == {"auto"}
        assert (await fetch("SHOW plan_cache_mode"))[0][0] == "force_custom_plan"
    finally:
        await fetch("DROP TRIGGER see ON own")
        await fetch("DROP TABLE seen")
