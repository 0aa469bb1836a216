"""A store that version 0.1.0 made and used is carried over, and work goes on.

The dumps beside this file were made by ``make_dump.py``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from conformance.databases import PROVIDERS, Database, DatabaseProvider

from esclusa.app import open_runtime, open_store
from esclusa.model.errors import SchemaBehind, SchemaRefused
from esclusa.model.kind import Ref
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate
from esclusa.model.system_records import (
    Alert,
    Audit,
    CycleRecord,
    DeadLetter,
    Export,
    IdempotentCall,
    Run,
)
from esclusa.runtime import Runtime
from esclusa.settings import load
from esclusa.stores import earlier_ids
from esclusa.stores.sqlite import SqliteStore
from upgrade.parcels import PLACES, POST, ROUTES, Parcel, Remark, Route, Stop, Visit

HERE = Path(__file__).parent
USED_AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
# The states of each table, as version 0.1.0 left them.
STATES: dict[type[Record], list[str]] = {
    Parcel: ["failed"] * 3 + ["sent"] * 4 + ["waiting"] * 2,
    DeadLetter: ["open"] * 6 + ["redriven"],
    Run: ["error", "ok", "ok", "partial", "partial", "partial"],
    Alert: ["raised"],
    Audit: ["kept"] * 31,
    Export: ["filling", "filling"],
    Route: ["open"] * 4,
    Stop: ["failed"] * 3 + ["sent"] * 9,
    Visit: ["planned"] * 12,
    Remark: ["noted"] * 14,
}


async def load_dump(database: Any, store: str) -> None:
    """Fill a database with what version 0.1.0 left."""
    if store == "firestore":
        await _load_documents(database.project)
    elif store == "sqlite":
        database._run((HERE / "0.1.0.sqlite.sql").read_text())
    else:
        connection: Any = await asyncpg.connect(database.url)
        await connection.execute((HERE / "0.1.0.postgres.sql").read_text())
        await connection.close()


async def _load_documents(project: str) -> None:
    from google.protobuf.json_format import ParseDict

    from esclusa.stores.firestore.client import FirestoreClient
    from esclusa.stores.firestore.codec import Document
    from esclusa.stores.firestore.writes import put_document

    client = FirestoreClient(project, "(default)", None)
    await client.open()
    documents = json.loads((HERE / "0.1.0.firestore.json").read_text())
    writes = [
        put_document(f"{client.root}/{path}", ParseDict({"fields": fields}, Document()))
        for path, fields in documents.items()
    ]
    await client.commit(writes, "test")
    await client.close()


@pytest.fixture(params=PROVIDERS)
async def old(
    request: pytest.FixtureRequest, providers: Callable[[str], DatabaseProvider]
) -> AsyncIterator[Database]:
    database = await providers(request.param).database(empty=True)
    await load_dump(database, request.param)
    yield database
    await database.remove()


def environ_of(database: Database, folder: Path, **settings: str) -> dict[str, str]:
    # the budget's window is that of the dump
    offset = (USED_AT - datetime.now(UTC)).total_seconds()
    return {
        "ESCLUSA_STORE": database.url,
        "ESCLUSA_PIPELINES": f"{HERE / 'parcels.py'}:app",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_CLOCK_OFFSET_SECONDS": str(offset),
        **settings,
    }


@asynccontextmanager
async def upgraded(database: Database, folder: Path) -> AsyncIterator[Runtime]:
    """A runtime after ``esclusa migrate``, which adds an index to the table of another program.

    A second call drops the index that workers of the version before may have used until then.
    """
    settings = load(environ=environ_of(database, folder))
    for _ in range(2):
        async with open_store(settings) as runtime:
            await runtime.migrate(foreign=True)
    async with open_runtime(settings, migrate=True) as runtime:
        yield runtime


async def states(runtime: Runtime, record: type[Record]) -> list[str]:
    page = await runtime.engine.records.find(record, {}, limit=100)
    return sorted(found.status for found in page.items)


async def test_nothing_of_an_earlier_version_is_lost(old: Database, tmp_path: Path) -> None:
    async with upgraded(old, tmp_path) as runtime:
        assert await runtime.migrate() == []
        for record, expected in STATES.items():
            assert await states(runtime, record) == expected, record
        [window] = await runtime.store.usage(POST)
        assert (window.used, window.limit) == (9, 20)
        history = await runtime.store.history(Ref(Parcel.kind, "8"))
        assert [step.to for step in history][-2:] == ["sending", "failed"]
        [redriven] = (await runtime.read_model.dead_letters({"status": "redriven"}, limit=2)).items
        steps = await runtime.store.history(redriven.ref)
        assert [(step.frm, step.to) for step in steps] == [("open", "redriven")]
        [moved] = (await runtime.read_model.dead_letters({"record_id": "7"}, limit=2)).items
        steps = await runtime.store.history(moved.ref)
        assert [step.to for step in steps] == ["redriven", "open"] * 12
        archived = await runtime.read_model.records("parcels", {}, archived=True)
        assert [parcel.id for parcel in archived.items] == ["1"]


async def test_work_goes_on_after_the_upgrade(old: Database, tmp_path: Path) -> None:
    async with upgraded(old, tmp_path) as runtime:
        operations = runtime.operations("ana")
        async with runtime.engine.running(register=True):
            run = await operations.run("post.deliver")
            assert run.counters["taken"] == 2
            await operations.redrive(where={"record_id": "6"}, fields={"weight": 1}, reason="light")
            assert (await operations.run("post.deliver")).counters["taken"] == 1
            await runtime.engine.records.insert([Parcel(number=2), Parcel(number=11)])
        [window] = await runtime.store.usage(POST)
        assert window.used == 12
        assert await states(runtime, Parcel) == ["failed"] * 2 + ["sent"] * 7 + ["waiting"]
        assert await states(runtime, DeadLetter) == ["open"] * 5 + ["redriven"] * 2
        assert len(await states(runtime, CycleRecord)) >= 6


# ids that version 0.1.0 escaped in another way


def stops() -> list[Stop]:
    """The stops, with the ids of their routes as this version makes them."""
    return [
        Stop(route_id=Route.kind.id_of(name), place=place)
        for name in ROUTES[:3]
        for place in PLACES
    ]


async def check_ids(runtime: Runtime, *, refused: bool = False) -> None:
    """Every key has one record, with its present id, its history, and all that refers to it.

    ``refused``: a process could not start before; its alert has ended.
    """
    records, store = runtime.engine.records, runtime.store
    visits = [
        Visit(stop_id=Stop.kind.id_of(s.route_id, s.place), day="2026-11-18 12:30") for s in stops()
    ]
    routes = [Route(name=name) for name in ROUTES[:4]]
    call = IdempotentCall(who="ana", key="order 7/8", fingerprint="f", called_at=USED_AT, code=200)
    again = await records.insert([*routes, *stops(), *visits, call])
    assert [type(each) for each in again] == [Duplicate] * len(again)
    ended = {Alert: ["ended"]} if refused else {}
    for record, expected in STATES.items():
        assert await states(runtime, record) == ended.get(record, []) + expected, record
    for kind, ids in (
        (Route.kind, [Route.kind.id_of(name) for name in ROUTES[:4]]),
        (Stop.kind, [Stop.kind.id_of(s.route_id, s.place) for s in stops()]),
        (Visit.kind, [Visit.kind.id_of(v.stop_id, v.day) for v in visits]),
    ):
        assert not any("%" in id for id in ids)
        assert [r and r.id for r in await store.get(kind, ids)] == ids
    for stop in stops():
        ref = Ref(Stop.kind, Stop.kind.id_of(stop.route_id, stop.place))
        end = "failed" if stop.place == "a=b" else "sent"
        assert [s.to for s in await store.history(ref)][:2] == ["sending", end], ref
    letters = await runtime.read_model.dead_letters({"table_name": "stops"}, limit=9)
    assert sorted(letter.record_id for letter in letters.items) == sorted(
        Stop.kind.id_of(Route.kind.id_of(name), "a=b") for name in ROUTES[:3]
    )
    remarks = (await records.find(Remark, {}, limit=100)).items
    about = {r.about for r in remarks if r.about}
    assert about == {Stop.kind.id_of(s.route_id, s.place) for s in stops()}
    assert {r.route_id for r in remarks} == {None, *(Route.kind.id_of(n) for n in ROUTES[:4])}
    archived = await runtime.read_model.records("routes", {}, archived=True)
    assert [route.id for route in archived.items] == [Route.kind.id_of(ROUTES[4])]


async def test_a_key_of_an_earlier_version_is_not_inserted_again(
    old: Database, tmp_path: Path
) -> None:
    async with upgraded(old, tmp_path) as runtime:
        await check_ids(runtime)
        assert await runtime.pending() == []
        operations = runtime.operations("ana")
        async with runtime.engine.running(register=True):
            await operations.redrive(
                where={"table_name": "stops"}, fields={"weight": 1}, reason="light"
            )
            assert (await operations.run("post.travel")).counters["taken"] == 3
        assert await states(runtime, Stop) == ["sent"] * 12


class InterruptedChanges:
    """Changes ids some times, and then no more."""

    def __init__(self, store: Any, calls: int) -> None:
        self._change, self._left = store.change_ids, calls

    async def change_ids(self, *given: Any) -> int:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return int(await self._change(*given))


async def test_a_change_of_ids_that_was_interrupted_goes_on(
    old: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call may be the last; nobody works before all are done."""
    settings, interrupted = load(environ=environ_of(old, tmp_path)), 0
    monkeypatch.setattr(earlier_ids, "PAGE", 3)
    for calls in range(1, 200, 3):
        async with open_store(settings) as runtime:
            store = InterruptedChanges(runtime.store, calls)
            monkeypatch.setattr(runtime.store, "change_ids", store.change_ids)
            try:
                await runtime.migrate(foreign=True)
            except KeyboardInterrupt:
                interrupted += 1
            else:
                break
            assert any("ids" in step.summary for step in await runtime.pending())
        with pytest.raises(SchemaBehind):
            async with open_runtime(settings, migrate=False):
                pass
    assert interrupted > 2
    async with open_runtime(settings, migrate=True) as runtime:
        await check_ids(runtime, refused=True)


@pytest.mark.parametrize("old", ["postgres", "sqlite"], indirect=True)
async def test_an_id_that_another_record_has_is_not_taken(old: Any, tmp_path: Path) -> None:
    """A record that got its id by hand keeps it; the other one is reported and keeps its own."""
    taken = Route.kind.id_of(ROUTES[1])
    done = old._run(f"UPDATE routes SET id = '{taken}' WHERE id = 'norte'")
    if not isinstance(done, list):
        await done
    async with open_store(load(environ=environ_of(old, tmp_path))) as runtime:
        lines = await runtime.migrate(foreign=True)
        assert "routes: 1 records keep an earlier id; others have theirs" in lines
        found = (await runtime.engine.records.find(Route, {}, limit=9)).items
        assert {r.name: r.id for r in found if r.name in ROUTES[:2]} == {
            "norte": taken,
            "sur: 1/2": "sur%3A%201%2F2",
        }
        await runtime.migrate(foreign=True)
        assert await runtime.pending() == []


async def _fetch(database: Database, statement: str) -> list[Any]:
    connection: Any = await asyncpg.connect(database.url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


@pytest.mark.parametrize("old", ["postgres"], indirect=True)
async def test_an_earlier_program_does_not_make_its_tables_again(
    old: Database, tmp_path: Path
) -> None:
    """It reads the migrations and ends at the first one that it does not know."""
    async with open_runtime(load(environ=environ_of(old, tmp_path)), migrate=True):
        pass
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    business = ["customers", "parcels", "remarks", "routes", "stops", "visits"]
    assert await _fetch(old, tables) == [(table,) for table in business]
    [(number, name)] = await _fetch(old, "SELECT number, name FROM esclusa_migrations")
    assert (number, name) == (9999, "system tables are in the schema esclusa now")


@pytest.mark.parametrize("old", ["postgres"], indirect=True)
async def test_the_rights_of_others_end_with_the_move(old: Database, tmp_path: Path) -> None:
    await _fetch(old, "CREATE ROLE reader")
    try:
        await _fetch(old, "GRANT ALL ON ALL TABLES IN SCHEMA public TO reader, PUBLIC")
        async with open_runtime(load(environ=environ_of(old, tmp_path)), migrate=True):
            pass
        rights = """SELECT relname FROM pg_class c, aclexplode(c.relacl) g
            WHERE c.relnamespace = 'esclusa'::regnamespace AND g.grantee <> c.relowner"""
        assert await _fetch(old, rights) == []
        schema = "SELECT has_schema_privilege('reader', 'esclusa', 'USAGE')"
        assert await _fetch(old, schema) == [(False,)]
    finally:
        await _fetch(old, "DROP OWNED BY reader")
        await _fetch(old, "DROP ROLE reader")


@pytest.mark.parametrize("old", ["postgres"], indirect=True)
async def test_an_application_keeps_a_table_that_0_1_0_only_altered(
    old: Database, tmp_path: Path
) -> None:
    """Version 0.1.0 added its columns to a table of the application; it is not moved."""
    await _fetch(old, "DROP TABLE dead_letters")
    await _fetch(old, "CREATE TABLE dead_letters (id uuid PRIMARY KEY, queue text, status text)")
    await _fetch(old, "INSERT INTO dead_letters VALUES (gen_random_uuid(), 'q', 'new')")
    before = await _fetch(old, "SELECT * FROM public.dead_letters")
    async with open_runtime(load(environ=environ_of(old, tmp_path)), migrate=True) as runtime:
        assert await states(runtime, DeadLetter) == []
    assert await _fetch(old, "SELECT * FROM public.dead_letters") == before


@pytest.mark.parametrize("old", ["postgres"], indirect=True)
async def test_an_earlier_installation_becomes_one_of_another_name(
    old: Database, tmp_path: Path
) -> None:
    settings = environ_of(old, tmp_path, ESCLUSA_POSTGRES_SCHEMA="post")
    async with open_runtime(load(environ=settings), migrate=True) as runtime:
        assert await states(runtime, DeadLetter) == STATES[DeadLetter]
        archived = await runtime.read_model.records("parcels", {}, archived=True)
        assert [parcel.id for parcel in archived.items] == ["1"]
    tables = "SELECT schemaname FROM pg_tables WHERE tablename = 'parcels' ORDER BY 1"
    assert await _fetch(old, tables) == [("post_archive",), ("public",)]


@pytest.mark.parametrize("old", ["postgres"], indirect=True)
async def test_two_earlier_installations_need_two_names(old: Database, tmp_path: Path) -> None:
    """The second one in the same database does not take the tables of the first."""
    async with open_runtime(load(environ=environ_of(old, tmp_path)), migrate=True):
        pass
    await _fetch(old, "CREATE SCHEMA second")
    await _fetch(
        old,
        """CREATE TABLE second.esclusa_migrations AS
        SELECT 1::bigint AS number, '0001_engine.sql'::text AS name, now() AS applied_at,
            'ea064604e4ec7f22520fc94edd936eba485988b6e113c4ccc3df960c622d35be'::text AS checksum""",
    )
    url = f"{old.url}?options=-csearch_path%3Dsecond"
    with pytest.raises(SchemaRefused, match="set another ESCLUSA_POSTGRES_SCHEMA"):
        async with open_runtime(
            load(environ=environ_of(old, tmp_path, ESCLUSA_STORE=url)), migrate=True
        ):
            pass


# tables of other programs, where system tables have a prefix


async def test_a_system_table_of_another_program_is_refused_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    program = apsw.Connection(str(path))
    for table in ("esclusa_runs", "esclusa_history"):
        program.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, speed TEXT)")
        program.execute(f"INSERT INTO {table} VALUES (1, 'fast')")
        store = SqliteStore(str(path))
        await store.open()
        with pytest.raises(SchemaRefused, match=f"table {table} exists, and Esclusa did not"):
            await store.migrate([Run.kind, Parcel.kind], [])
        await store.close()
        assert program.execute(f"SELECT * FROM {table}").fetchall() == [(1, "fast")]
        program.execute(f"DROP TABLE {table}")
    program.execute("CREATE TABLE parcels (id TEXT PRIMARY KEY, weight INTEGER)")
    store = SqliteStore(str(path))
    await store.open()
    with pytest.raises(SchemaRefused, match="table parcels exists, and Esclusa did not make it"):
        await store.migrate([Run.kind, Parcel.kind], [])
    await store.close()
    assert len(program.execute("SELECT * FROM pragma_table_info('parcels')").fetchall()) == 2
    program.close()


async def test_a_dead_letter_table_of_another_program_is_left_alone_on_sqlite(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shop.db"
    program = apsw.Connection(str(path))
    program.execute("CREATE TABLE dead_letters (id BLOB PRIMARY KEY, queue TEXT)")
    program.execute("INSERT INTO dead_letters VALUES (randomblob(16), 'q')")
    picture = "SELECT sql, (SELECT group_concat(hex(id) || queue) FROM dead_letters) FROM"
    picture += " sqlite_schema WHERE name = 'dead_letters'"
    before = program.execute(picture).fetchall()
    store = SqliteStore(str(path))
    await store.open()
    await store.migrate([r.kind for r in (DeadLetter, Run, Export, Parcel)], [])
    await store.insert([Parcel(number=1)])
    await store.close()
    assert program.execute(picture).fetchall() == before
    program.close()


async def test_a_system_collection_of_another_program_is_refused(
    providers: Callable[[str], DatabaseProvider],
) -> None:
    from esclusa.stores.firestore.client import FirestoreClient
    from esclusa.stores.firestore.codec import Document, Value
    from esclusa.stores.firestore.writes import put_document

    database: Any = await providers("firestore").database(empty=True)
    client = FirestoreClient(database.project, "(default)", None)
    await client.open()
    document = Document(fields={"speed": Value(string_value="fast")})
    await client.commit([put_document(f"{client.root}/esclusa_runs/1", document)], "test")
    store = database.store()
    await store.open()
    with pytest.raises(SchemaRefused, match="collection esclusa_runs has documents"):
        await store.migrate([Run.kind, Parcel.kind], [])
    assert await client.get([f"{client.root}/esclusa_schema/_store"], "test") == {}
    await store.close()
    await client.close()
