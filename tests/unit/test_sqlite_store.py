"""SQLite only: query plans, schema, a file shared by processes, faults of the file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pytest

from esclusa.model.columns import track
from esclusa.model.errors import BadRecord, MigrationError, SchemaError, StoreUnavailable
from esclusa.model.kind import Kind, Ref
from esclusa.model.lifecycle import Lifecycle
from esclusa.model.query import above, not_null, query
from esclusa.model.record import Record
from esclusa.model.settlement import ClaimRequest, Settled, Settlement
from esclusa.model.stage import Stage, make_stage
from esclusa.stores.sqlite import (
    SqliteStore,
    claim_statements,
    queries,
    settlements,
    statements,
    system_tables,
)
from esclusa.stores.sqlite.codec import (
    DECIMAL_COLLATION,
    compare_decimals,
    decode_time,
    encode_time,
    literal,
)
from esclusa.stores.sqlite.transaction import CompiledKind

LIFE = Lifecycle("pending -> working -> done\nworking -> pending | failed")


class Own(Record, table="own", key="name", index=[("place", "-weight")]):
    name: str
    place: str | None = None
    weight: int = 0
    price: Decimal | None = None
    lifecycle = LIFE


class Attached(
    Record,
    table="theirs",
    track=track(prefix="x_"),
    id="pk",
    database_id=True,
    key="name",
    archive=True,
):
    name: str
    place: str | None = None
    lifecycle = LIFE


def a_stage(kind: Kind, name: str = "work", **options: Any) -> Stage:
    defaults: dict[str, Any] = {
        "take": "pending",
        "hold": "working",
        "retry_to": None,
        "exhausted": "failed",
        "where": {"place": not_null},
        "order": (),
        "retry": None,
        "concurrency": 1,
        "batch": None,
        "budget": None,
        "cost": 1,
        "timeout": None,
        "lease": None,
    }
    return make_stage(name, kind, lambda record, at: None, **(defaults | options))


STAGES = (a_stage(Own.kind), a_stage(Attached.kind))
KINDS = (Own.kind, Attached.kind)


def claim_request(stage: Stage, **options: Any) -> ClaimRequest:
    return ClaimRequest(
        stage.kind,
        stage.name,
        stage.take,
        stage.hold,
        stage.where,
        stage.order,
        **({"limit": 10, "worker": "w"} | options),
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "x.db")
    await store.open()
    await store.migrate(KINDS, STAGES, foreign=True)
    yield store
    await store.close()


def plan(store: SqliteStore, statement: str, values: list[Any]) -> str:
    connection = apsw.Connection(str(store.path))
    connection.create_collation(DECIMAL_COLLATION, compare_decimals)
    try:
        return "\n".join(
            row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        )
    finally:
        connection.close()


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.kind.table)
async def test_a_claim_reads_its_index_and_does_not_sort(store: SqliteStore, stage: Stage) -> None:
    name, _ = claim_statements.claim_index(stage.kind, stage.states, stage.where)
    explained = plan(
        store,
        *claim_statements.claim_rows(
            claim_request(stage), encode_time(await store.now()), store._indexes
        ),
    )
    assert f"USING INDEX {name} (" in explained
    assert "TEMP B-TREE" not in explained
    by_id = claim_request(stage, ids=("1", "2"))  # the cost is that of the ids, not of what is due
    explained = plan(
        store,
        *claim_statements.claim_rows(by_id, encode_time(await store.now()), store._indexes),
    )
    own = rf"\((rowid|{stage.kind.id_column})=\?\)"
    assert re.search(f"SEARCH {stage.kind.table} USING .*{own}", explained)
    eager = claim_request(stage, before=await store.now(), eager=True)
    assert f"USING INDEX {name}" in plan(
        store, *claim_statements.claim_rows(eager, encode_time(await store.now()), store._indexes)
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.table)
async def test_counts_and_lists_by_state_use_the_index_on_the_state(
    store: SqliteStore, kind: Kind
) -> None:
    explained = plan(store, *statements.count_by_state(kind, 1000))
    assert "TEMP B-TREE" not in explained
    assert explained.count(f"esclusa_{kind.table}_status_") == 3, explained
    listed = plan(
        store, *statements.find(query(kind, {"status": "done"}, order="-updated_at"), 100, None)
    )
    assert f"INDEX esclusa_{kind.table}_status_" in listed


async def test_a_declared_index_serves_its_order(store: SqliteStore) -> None:
    explained = plan(store, *statements.find(query(Own, {"place": "a"}, order="-weight"), 10, None))
    assert "USING INDEX esclusa_own_place_weight_" in explained


async def test_a_row_is_found_by_its_id(store: SqliteStore) -> None:
    explained = plan(
        store, CompiledKind(Attached.kind).select_states, [statements.text_array(["1"])]
    )
    assert "USING INTEGER PRIMARY KEY" in explained


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.table)
async def test_alike_settlements_find_their_rows_by_id(store: SqliteStore, kind: Kind) -> None:
    statement = settlements.alike_statement(kind, [kind.track["status"]])
    explained = plan(store, statement, ["done", statements.text_array(["1"]), 1, "working"])
    assert re.search(rf"SEARCH {kind.table} USING .*\((rowid|{kind.id_column})=\?\)", explained)
    assert f"SCAN {kind.table}" not in explained


async def test_a_dropped_index_is_reported(store: SqliteStore) -> None:
    name, _ = claim_statements.claim_index(Own.kind, STAGES[0].states, STAGES[0].where)
    program = apsw.Connection(str(store.path))
    program.execute(f'DROP INDEX "{name}"')
    program.close()
    with pytest.raises(SchemaError, match="run: esclusa migrate"):
        await store.claim(claim_request(STAGES[0]))
    await store.migrate(KINDS, STAGES, foreign=True)
    assert await store.claim(claim_request(STAGES[0])) == []


def schema_of(path: Path) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return sorted(
            connection.execute(
                "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
            )
        )
    finally:
        connection.close()


async def test_pending_is_what_migrate_runs(store: SqliteStore, tmp_path: Path) -> None:
    """Running what ``migrate --sql`` prints by hand makes the same schema."""
    other = SqliteStore(tmp_path / "y.db")
    await other.open()
    pending = await other.pending(KINDS, STAGES)
    program = apsw.Connection(str(other.path))
    for step in pending:
        program.execute(step.sql)
    program.close()
    assert schema_of(other.path) == schema_of(store.path)
    assert await other.pending(KINDS, STAGES) == []
    await other.use(KINDS, STAGES)
    await other.close()


async def test_an_edited_or_unknown_migration_is_refused(store: SqliteStore) -> None:
    before = schema_of(store.path)
    program = apsw.Connection(str(store.path))
    program.execute("UPDATE esclusa_migrations SET checksum = 'x' WHERE number = 1")
    with pytest.raises(MigrationError, match=r"0001_engine\.sql was edited"):
        await store.migrate(KINDS, (*STAGES, a_stage(Own.kind, "more", where=None)))
    program.execute("INSERT INTO esclusa_migrations VALUES (9999, '9999_later.sql', 'x', '')")
    with pytest.raises(MigrationError, match="newer than this program"):
        await store.use(KINDS, STAGES)
    program.close()
    assert schema_of(store.path) == before


async def test_a_duplicate_key_is_reported_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "x.db")
    await store.open()
    program = apsw.Connection(str(store.path))
    program.execute(
        """CREATE TABLE theirs (pk INTEGER PRIMARY KEY, name TEXT, place TEXT);
        INSERT INTO theirs (name) VALUES ('a'), ('a')"""
    )
    before = schema_of(store.path)
    with pytest.raises(SchemaError, match=r"the same key \(name\): a in 2 rows"):
        await store.migrate(KINDS, STAGES, foreign=True)
    program.close()
    assert schema_of(store.path) == before
    await store.close()


async def test_times_of_other_programs_are_due(store: SqliteStore) -> None:
    program = apsw.Connection(str(store.path))
    program.execute(
        """INSERT INTO theirs (name, place, x_due_at, x_updated_at) VALUES
        ('a', 'p', NULL, NULL),
        ('b', 'p', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP),
        ('c', 'p', strftime('%Y-%m-%dT%H:%M:%SZ', 'now'), '2020-01-01T00:00:00Z'),
        ('d', 'p', '2999-01-01T00:00:00Z', NULL)"""
    )
    program.close()
    first = await store.find(query(Attached, order="due_at", limit=2))
    second = await store.find(query(Attached, order="due_at", limit=2, after=first.next))
    assert [r.id for r in [*first.items, *second.items]] == ["1", "2", "3", "4"]
    leases = await store.claim(claim_request(STAGES[1]))
    assert {lease.record.name for lease in leases} == {"a", "b", "c"}  # type: ignore[attr-defined]
    assert all(lease.fault is None for lease in leases)
    verdicts = await store.settle(
        [Settlement(x.ref, "done", ("working",), x.fence, who="w") for x in leases]
    )
    assert all(isinstance(v, Settled) for v in verdicts)


async def test_a_new_column_of_another_program_is_archived(store: SqliteStore) -> None:
    program = apsw.Connection(str(store.path))
    program.execute(
        """ALTER TABLE theirs ADD COLUMN note TEXT;
        INSERT INTO theirs (name, note) VALUES ('a', 'keep me')"""
    )
    with pytest.raises(SchemaError, match="note"):
        await store.archive(query(Attached))
    await store.migrate(KINDS, STAGES, foreign=True)
    assert await store.archive(query(Attached)) == 1
    assert list(program.execute("SELECT name, note FROM archive_theirs")) == [("a", "keep me")]
    program.close()


async def test_a_value_that_a_column_cannot_hold_is_a_bad_record(store: SqliteStore) -> None:
    with pytest.raises(BadRecord):
        await store.insert([Own(name="a", weight=2**70)])
    with pytest.raises(BadRecord):
        await store.insert([Own(name="a", status="nowhere")])
    assert await store.count(query(Own)) == (0, True)


async def test_faults_of_the_file_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"nowhere.*does not exist"):
        await SqliteStore(tmp_path / "nowhere" / "x.db").open()
    (tmp_path / "text.db").write_bytes(b"this is no database, not at all. " * 100)
    with pytest.raises(StoreUnavailable, match=r"text\.db is not a SQLite database"):
        await SqliteStore(tmp_path / "text.db").open()
    with pytest.raises(StoreUnavailable, match="not open"):
        await SqliteStore(tmp_path / "x.db").get(Own.kind, ["a"])


async def test_a_lock_that_another_process_keeps_is_transient(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "x.db", busy=0.05)
    await store.open()
    await store.migrate(KINDS, STAGES, foreign=True)
    program = apsw.Connection(str(store.path))
    program.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.insert([Own(name="a")])
    assert await store.count(query(Own)) == (0, True), "reading does not wait"
    program.execute("ROLLBACK")
    program.close()
    await store.insert([Own(name="a")])
    await store.close()


CLAIMER = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from unit.test_sqlite_store import KINDS, STAGES, Settlement, SqliteStore, claim_request

async def main():
    store = SqliteStore({path!r}, busy=60)
    await store.open()
    await store.use(KINDS, STAGES)
    while leases := await store.claim(claim_request(STAGES[0], limit=7, worker={worker!r})):
        print(*(lease.record.id for lease in leases))
        ends = [Settlement(x.ref, "done", ("working",), x.fence, who={worker!r}) for x in leases]
        await store.settle(ends)
    await store.close()

asyncio.run(main())
"""


async def test_processes_share_the_file_and_no_record_is_taken_twice(store: SqliteStore) -> None:
    await store.insert([Own(name=f"r{i:03d}", place="p") for i in range(300)])
    tests = str(Path(__file__).parent.parent)
    programs = [CLAIMER.format(tests=tests, path=str(store.path), worker=f"w{i}") for i in range(3)]
    running = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        for text in programs
    ]
    taken = [id for process in running for id in process.communicate(timeout=60)[0].split()]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted(taken) == [f"r{i:03d}" for i in range(300)]
    assert {c.state: c.count for c in await store.tally(Own.kind)}["done"] == 300


@pytest.mark.parametrize(("short", "long"), [(1000, 1000), (40, 1000), (5, 1000), (5, 60), (1, 5)])
@pytest.mark.parametrize("kind", [Own, Attached])
async def test_the_largest_state_is_counted_from_the_size_of_the_table(
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Own] | type[Attached],
    short: int,
    long: int,
) -> None:
    monkeypatch.setattr(queries, "_FIRST_TALLY_CAP", short)
    monkeypatch.setattr(queries, "_LAST_TALLY_CAP", long)
    states = ["pending"] * 7 + ["working"] * 3 + ["done"] * 90 + ["failed"] * 50
    await store.insert([kind(name=f"r{n}", status=state) for n, state in enumerate(states)])
    counts = {c.state: (c.count, c.exact) for c in await store.tally(kind.kind)}
    if long == 5:  # several states exceed it: their counts are unknown
        assert counts == {
            "pending": (5, False),
            "working": (3, True),
            "done": (5, False),
            "failed": (5, False),
        }
    else:
        assert counts == {
            "pending": (7, True),
            "working": (3, True),
            "done": (90, True),
            "failed": (50, True),
        }


async def test_decimals_are_compared_as_numbers(store: SqliteStore) -> None:
    prices = [
        "9",
        "10",
        "1.50",
        "-3",
        "123456789012345678901234567890.1",
        "123456789012345678901234567890.2",
    ]
    await store.insert([Own(name=p, price=Decimal(p)) for p in prices])
    page = await store.find(query(Own, order="price"))
    assert [r.price for r in page.items] == sorted(map(Decimal, prices))  # type: ignore[attr-defined]
    assert (await store.find(query(Own, {"price": Decimal("1.5")}))).items[0].id == "1.50"
    assert await store.count(
        query(Own, {"price": above(Decimal("123456789012345678901234567890.1"))})
    ) == (1, True)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02 03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02 03:04:05.000006+00:00", datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        ("2026-01-02T00:04:05-03:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        ("soon", "soon"),
    ],
)
def test_decode_time(text: Any, moment: Any) -> None:
    assert decode_time(text) == moment


def test_literals_are_escaped() -> None:
    connection = apsw.Connection(":memory:")
    for type, value in [
        ("text", "a'); DROP TABLE x; --"),
        ("int", -5),
        ("float", 1e300),
        ("bool", True),
        ("bytes", b"\0'"),
    ]:
        assert list(connection.execute(f"SELECT {literal(type, value)}")) == [(value,)]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null character"):  # SQLite would end the statement there
        literal("text", "\0'")


def test_migration_files_are_numbered_without_a_gap() -> None:
    assert [number for number, _, _ in system_tables.migrations()] == list(
        range(1, len(system_tables.migrations()) + 1)
    )


class Outside(Record, table="outside", track=track(prefix="x_"), id="code"):
    """A table of another program, with text ids."""

    place: str | None = None
    note: str | None = None
    lifecycle = LIFE


async def test_null_characters_of_other_programs_are_read_filtered_and_settled(
    tmp_path: Path,
) -> None:
    """No store writes such text, but another program may have written it."""
    path = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(path))
    theirs.execute("CREATE TABLE outside (code TEXT PRIMARY KEY, place TEXT, note TEXT)")
    rows = [(f"c{n}'", f"p\0{n}'", "n\0'") for n in range(5)]
    theirs.executemany("INSERT INTO outside VALUES (?, ?, ?)", rows)
    store = SqliteStore(str(path))
    await store.open()
    stage = a_stage(Outside.kind)
    await store.migrate([Outside.kind], [stage], foreign=True)
    await store.use([Outside.kind], [stage])
    try:
        for order in ((), "place", "-place", ("note", "-place")):
            found, after = [], None
            while True:
                page = await store.find(
                    query(
                        Outside,
                        {"place": not_null, "note": above("n")},
                        order=order,
                        limit=2,
                        after=after,
                    )
                )
                found += [(r.id, r.place, r.note) for r in page.items]  # type: ignore[attr-defined]
                after = page.next
                if after is None:
                    break
            assert sorted(found) == rows
        assert [
            r.place
            for r in await store.get(Outside.kind, [id for id, _, _ in rows])
            if r is not None
        ] == [p for _, p, _ in rows]  # type: ignore[attr-defined]
        leases = await store.claim(claim_request(stage))
        assert {(lease.record.id, lease.record.place) for lease in leases} == {
            (id, place) for id, place, _ in rows
        }  # type: ignore[attr-defined]
        verdicts = await store.settle(
            [Settlement(x.ref, "done", ("working",), x.fence, {"note": "seen"}) for x in leases]
        )
        assert verdicts == [Settled(x.ref) for x in leases]
        assert {(await store.history(x.ref))[-1].to for x in leases} == {"done"}
        assert list(theirs.execute("SELECT code, place, note FROM outside ORDER BY code")) == [
            (c, p, "seen") for c, p, _ in rows
        ]
        assert await store.purge(query(Outside, limit=10)) == 5
    finally:
        await store.close()


async def test_the_settings_of_a_connection_take_effect(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db")
    await store.open()
    try:
        found = [
            await store._writer.call(lambda c, name=name: c.execute(f"PRAGMA {name}").fetchall())
            for name in ("journal_mode", "synchronous", "wal_autocheckpoint", "temp_store")
        ]
    finally:
        await store.close()
    assert found == [[("wal",)], [(2,)], [(4000,)], [(2,)]]


async def test_equal_and_different_moves_of_one_call_are_all_written_in_order(
    store: SqliteStore,
) -> None:
    """Equal moves share a statement; the history of a record that moves twice keeps its order."""
    refs = [Ref(Own.kind, f"r{n:02}") for n in range(20)]
    await store.insert([Own(name=ref.id) for ref in refs])

    def moved(ref: Ref, to: str, frm: str, **fields: Any) -> Settlement:
        return Settlement(ref, to=to, frm=(frm,), fence=None, who="op", fields=fields)

    first = [moved(ref, "working", "pending", weight=n // 10) for n, ref in enumerate(refs)]
    then = [moved(ref, "done", "working", place=f"p{n}") for n, ref in enumerate(refs[:10])]
    await store.settle(first[:1])
    verdicts = await store.settle([then[0], *first[1:], *then[1:]])
    assert all(isinstance(verdict, Settled) for verdict in verdicts)
    records = await store.get(Own.kind, [ref.id for ref in refs])
    assert [r and (r.status, r.weight, r.fence) for r in records] == [
        ("done" if n < 10 else "working", n // 10, 2 if n < 10 else 1) for n in range(20)
    ]
    for ref, steps in zip(refs, await store.histories(Own.kind, [r.id for r in refs]), strict=True):
        expected = [("pending", "working"), ("working", "done")]
        assert [(s.frm, s.to) for s in steps] == expected[: 2 if ref in refs[:10] else 1]


def test_migrations_have_different_numbers() -> None:
    numbers = [number for number, _, _ in system_tables.migrations()]
    assert numbers == sorted(set(numbers))
