"""The switch-over: the command on the database of NotiChileC, with rows in every state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apsw
import asyncpg
import pytest
from pipelines.tenders import origin
from pipelines.tenders.origin_combinations import CLOSED, FOUND, LOST, combinations
from support.pgbouncer import PgBouncer
from support.postgres import PostgresServer
from support.processes import Esclusa

from esclusa.simulators.chilecompra import ChileCompraSimulator, sample_tender
from esclusa.simulators.expo import ExpoSimulator

POOLED = pytest.param(
    "a-pooled",
    marks=pytest.mark.skipif(PgBouncer.missing() is not None, reason=PgBouncer.missing() or ""),
)
# Without `source_rank` behind PgBouncer, with it without.
GENERATIONS = ("a-ranked", "b", POOLED, "sqlite")
CODE = "1-1-LE26"
KEYS = {
    "licitaciones": "codigo_externo",
    "licitacion_registry": "codigo_externo",
    "notification_events": "id",
    "device_installations": "installation_id",
    "notification_preferences": "installation_id",
    "notification_deliveries": "id",
    "device_tokens": "id",
    "worker_runs": "id",
    "archive_exports": "id",
}
# Deliveries that must be pushed once, and the states of the others after dispatch and receipt.
PUSHED = {
    "pending-null",
    "pending-past",
    "pending-orphan",
    "pending-archived-tender",
    "retry-plain",
    "retry-last",
    "retry-beyond",
}
OTHERS = {
    "pending-future": "pending",
    "pending-held": "pending",
    "pending-lost-tender": "failed",
    "pending-inactive": "invalid",
    "retry-ticket": "ok",
    "retry-ticket-old": "failed",
    "sent-open": "ok",
    "sent-open-old": "failed",
    "sent-no-ticket": "failed",
    "sent-done": "sent",
    "failed-done": "failed",
    "invalid-done": "invalid",
    "odd-state": "paused",
}
FINAL = ("sent-done", "failed-done", "invalid-done", "odd-state", "pending-future", "pending-held")


class Origin:
    """The team's database, and the command that takes it over."""

    def __init__(self, folder: Path, name: str, url: str, direct: str, **settings: str) -> None:
        self.name, self.direct = name, direct
        self.chile, self.expo = ChileCompraSimulator(), ExpoSimulator()
        self.folder, self.url, self.settings = folder, url, settings
        self.columns: dict[str, list[str]] = {}

    async def start(self) -> None:
        chile, expo = await self.chile.start(), await self.expo.start()
        self.command = Esclusa(
            self.folder,
            ESCLUSA_STORE=self.url,
            ESCLUSA_ARTIFACTS=str(self.folder / "artifacts"),
            ESCLUSA_PIPELINES="tenders",
            ESCLUSA_LOG_LEVEL="error",
            CHILECOMPRA_TICKET="F8537A18-6766-4DEF-9E59-426B4FEE2844",
            CHILECOMPRA_API_URL=chile,
            CHILECOMPRA_SITE_URL=chile,
            CHILECOMPRA_PACE_SECONDS="0",
            EXPO_API_URL=expo,
            **self.settings,
        )

    async def stop(self) -> None:
        await self.chile.stop()
        await self.expo.stop()

    async def call(self, *argv: str, **more: str) -> Any:
        return await asyncio.to_thread(self.command.call, *argv, **more)

    async def migrate(self) -> str:
        done = await self.call("migrate", "--yes", ESCLUSA_STORE=self.direct)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    async def run(self, cycle: str, **more: str) -> dict[str, Any]:
        done = await self.call("run", f"tenders.{cycle}", "--json", **more)
        assert done.returncode in (0, 5), done.stderr
        return dict(json.loads(done.stdout))

    async def sql(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        if self.name == "sqlite":
            return self._sqlite(statement, *values)
        connection = await asyncpg.connect(self.direct)
        try:
            if values or statement.lstrip().upper().startswith("SELECT"):
                return [dict(row) for row in await connection.fetch(statement, *values)]
            await connection.execute(statement)
            return []
        finally:
            await connection.close()

    def _sqlite(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        connection = apsw.Connection(self.direct.removeprefix("sqlite:///"))
        connection.set_busy_timeout(10_000)
        connection.pragma("foreign_keys", True)
        given = [v.isoformat(" ") if isinstance(v, datetime) else v for v in values]
        cursor = connection.execute(statement, given)
        try:
            return [
                dict(zip((d[0] for d in cursor.get_description()), row, strict=True))
                for row in cursor
            ]
        finally:
            connection.close()

    async def insert(self, table: str, row: dict[str, Any]) -> None:
        names = ", ".join(row)
        marks = ["?" if self.name == "sqlite" else f"${n}" for n in range(1, len(row) + 1)]
        await self.sql(
            f"INSERT INTO {table} ({names}) VALUES ({', '.join(marks)})",
            *row.values(),
        )

    async def insert_many(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Insert rows with the same columns."""
        names, values = list(rows[0]), [tuple(row.values()) for row in rows]
        if self.name != "sqlite":
            connection = await asyncpg.connect(self.direct)
            await connection.copy_records_to_table(table, records=values, columns=names)
            await connection.close()
            return
        marks = ", ".join("?" * len(names))
        file = apsw.Connection(self.direct.removeprefix("sqlite:///"))
        with file:
            file.executemany(
                f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})",
                [[v.isoformat(" ") if isinstance(v, datetime) else v for v in r] for r in values],
            )
        file.close()

    async def snapshot(self, *tables: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of the tables with the columns that they had at first."""
        found = {}
        for table in tables or KEYS:
            rows = await self.sql(f"SELECT * FROM {table} ORDER BY {KEYS[table]}")
            columns = self.columns.setdefault(table, list(rows[0]) if rows else [])
            found[table] = [{name: row[name] for name in columns} for row in rows]
        return found

    async def fill(self, now: datetime) -> None:
        """Write rows in every state, as the team's worker leaves them."""
        hour = timedelta(hours=1)
        await self.insert("licitaciones", origin.tender(CODE, now))
        demo = origin.tender("DEMO-2026-001", now, id="demo-licitacion-001", notificada=True)
        await self.insert("licitaciones", demo)
        archived = origin.tender("9-9-LE25", now, created_at=now - timedelta(days=500))
        archive = "archive_licitaciones" if self.name == "sqlite" else "archive.licitaciones"
        if self.name != "sqlite":
            await self.insert(archive, archived)
        for code in (CODE, "9-9-LE25", "0-0-LE20"):
            entry = {"codigo_externo": code, "licitacion_id": code, "created_at": now - hour}
            await self.insert("licitacion_registry", entry)
        ids = {}
        for n, code in enumerate((CODE, "9-9-LE25", "0-0-LE20"), 41):
            event = {"id": n, "type": "new_licitacion", "licitacion_id": code}
            await self.insert("notification_events", event)
            ids[code] = n
        for n, (name, values) in enumerate(origin.deliveries(now).items(), 101):
            active = name != "pending-inactive"
            await self.insert("device_installations", origin.device(name, now, active=active))
            row = {k: v for k, v in values.items() if k != "event"}
            row |= {"id": n, "installation_id": name, "created_at": now - 3 * hour}
            row["notification_event_id"] = ids[values.get("event", CODE)]
            await self.insert("notification_deliveries", row)
        await self.insert("notification_preferences", {"installation_id": "pending-null"})
        await self.insert(
            "device_tokens", {"expo_push_token": "ExponentPushToken[legacy]", "platform": "ios"}
        )
        await self.insert("worker_runs", {"worker_name": "dispatch", "started_at": now - hour})
        if self.name != "sqlite":
            for table, last in (("notification_events", 43), ("notification_deliveries", 200)):
                await self.sql(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {last})")
        for ticket in ("t-young", "t-open", "t-done", "t-old", "t-open-old"):
            self.expo.sent[ticket] = (f"ExponentPushToken[{ticket}]", 0.0)

    async def states(self) -> dict[str, str]:
        rows = await self.sql("SELECT installation_id, status FROM notification_deliveries")
        return {row["installation_id"]: row["status"] for row in rows}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
async def taken(
    request: pytest.FixtureRequest, tmp_path: Path, server: PostgresServer
) -> AsyncIterator[Origin]:
    """The database of one generation, filled, before Esclusa is in it."""
    name: str = request.param
    pooler = None
    if name == "sqlite":
        url = f"sqlite:///{tmp_path / 'origin.db'}"
        made = Origin(tmp_path, name, url, url)
        for statement in filter(str.strip, origin.SQLITE.split(";\n")):
            made._sqlite(statement)
    else:
        database = f"origin-{name}-{request.node.name.partition('[')[0]}"[:60]
        direct = url = server.create_database(database)
        settings = {}
        if name == "a-pooled":
            pooler = PgBouncer(server, pool_size=4)
            pooler.start()
            url = pooler.url(database)
            settings = {"ESCLUSA_POSTGRES_STATEMENT_CACHE_SIZE": "0"}
        made = Origin(tmp_path, name, url, direct, **settings)
        await made.sql("; ".join(origin.schema("a" if name == "a-pooled" else name)))
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        if pooler is not None:
            pooler.stop()
        if name != "sqlite":
            server.drop_database(database)


of_every_generation: Callable[..., Any] = pytest.mark.parametrize(
    "taken", GENERATIONS, indirect=True
)


@of_every_generation
async def test_nothing_is_pushed_twice_and_nothing_is_lost(taken: Origin) -> None:
    now = datetime.now(UTC)
    await taken.fill(now)
    before = await taken.snapshot()
    refused = await taken.call("run", "tenders.dispatch")
    assert "esclusa migrate" in refused.stderr
    assert await taken.snapshot() == before
    await taken.migrate()
    assert await taken.snapshot() == before
    doctor = await taken.call("doctor")
    assert "paused" in doctor.stdout, doctor.stdout  # the state that nobody declares is reported

    await taken.run("dispatch")
    pushed = set(taken.expo.messages)
    wanted = PUSHED - ({"pending-archived-tender"} if taken.name == "sqlite" else set())
    assert {key.partition("]")[0].partition("[")[2] for key in pushed} == wanted
    assert set(taken.expo.messages.values()) == {1}
    await taken.run("receipt")
    await taken.run("dispatch")
    states, others = await taken.states(), dict(OTHERS)
    if taken.name == "sqlite":
        others["pending-archived-tender"] = "failed"
    assert {name: states[name] for name in others} == others
    assert {states[name] for name in wanted} == {"sent"}
    assert set(taken.expo.messages.values()) == {1}

    after = await taken.snapshot()
    same = {name for name in KEYS if name not in ("notification_deliveries", "worker_runs")}
    for table in same - {"licitaciones"}:
        assert after[table] == before[table], table
    rows = {row["installation_id"]: row for row in after["notification_deliveries"]}
    old = {row["installation_id"]: row for row in before["notification_deliveries"]}
    assert {name: rows[name] for name in FINAL} == {name: old[name] for name in FINAL}
    assert all(rows[name]["locked_at"] is None for name in rows if name != "pending-held")
    assert all(rows[name]["completed_at"] for name, state in others.items() if state == "ok")
    notified = {row["id"]: bool(row["notificada"]) for row in after["licitaciones"]}
    assert notified == {CODE: True, "demo-licitacion-001": True}
    assert after["worker_runs"][0] == before["worker_runs"][0]
    assert [row["worker_name"] for row in after["worker_runs"][1:]] == [
        "dispatch",
        "receipt",
        "dispatch",
    ]
    assert after["worker_runs"][1]["notifications_sent"] == len(wanted) + 1  # one asks a receipt
    assert all(row["finished_at"] for row in after["worker_runs"][1:])


@pytest.mark.parametrize("taken", [POOLED, "b", "sqlite"], indirect=True)
async def test_deliveries_in_every_combination_of_their_columns(taken: Origin) -> None:
    now, events = datetime.now(UTC), dict[str, int]()
    every, fields = list(combinations()), {"region": "Región del Biobío", "tipo": "LE"}
    for n, code in enumerate((FOUND, CLOSED, LOST), 1):
        events[code] = n
        event = {"id": n, "type": "new_licitacion", "licitacion_id": code}
        await taken.insert("notification_events", event)
    for code, closing in ((FOUND, now + timedelta(days=9)), (CLOSED, now - timedelta(days=7))):
        amount = {"monto_estimado": 5_000_000, "rubro_code": "72103300", "fecha_cierre": closing}
        await taken.insert("licitaciones", origin.tender(code, now, **fields, **amount))
    await taken.insert_many("device_installations", [each.device(now) for each in every])
    empty = dict.fromkeys(("rubro", "tipo", "region", "monto_min")) | {"enabled": True}
    wanted = [
        {"installation_id": each.name} | empty | each.preferences
        for each in every
        if each.preferences is not None
    ]
    await taken.insert_many("notification_preferences", wanted)
    rows = [each.delivery(now, events) for each in every]
    await taken.insert_many("notification_deliveries", rows)
    for each in every:
        taken.expo.sent[f"ticket-{each.number}"] = (each.token, 0.0)
    before = (await taken.snapshot("notification_deliveries"))["notification_deliveries"]
    await taken.migrate()
    for cycle in ("dispatch", "receipt", "dispatch", "receipt"):
        await taken.run(cycle, EXPO_RATE_PER_SECOND="10000")
    pushed = {token.partition(" ")[0]: n for token, n in taken.expo.messages.items()}
    assert pushed == {each.token: 1 for each in every if each.is_pushed}
    after = (await taken.snapshot("notification_deliveries"))["notification_deliveries"]
    assert [
        each for each, row in zip(every, after, strict=True) if row["status"] != each.ends
    ] == []
    kept = [each for each in every if each.ends == each.state]
    assert [k for k in kept if before[k.number - 1] != after[k.number - 1]] == []


def chile_day(moment: datetime) -> str:
    """The day in Chile, by which the API lists tenders."""
    return f"{moment.astimezone(ZoneInfo('America/Santiago')):%Y-%m-%d}"


@of_every_generation
async def test_the_other_programs_go_on(taken: Origin) -> None:
    """The statements of the team's API work, and what it writes is seen at once."""
    now = datetime.now(UTC)
    await taken.fill(now)
    await taken.migrate()
    for statement, values in origin.API_STATEMENTS:
        await taken.sql(statement, *values)
    tender = sample_tender(0, chile_day(now))
    taken.chile.add(tender, site=False)
    assert (await taken.run("ingest"))["counters"]["new"] == 1
    code = tender["CodigoExterno"]
    [row] = await taken.sql(f"SELECT * FROM licitaciones WHERE codigo_externo = '{code}'")
    assert row["id"] == code
    states = await taken.states()
    assert states["api-2"] == "pending"
    await taken.sql(
        "UPDATE device_installations SET active = false WHERE installation_id = 'api-2'"
    )
    await taken.run("dispatch")
    assert (await taken.states())["api-2"] == "invalid"
    ids = await taken.sql(
        "SELECT id, notification_event_id FROM notification_deliveries WHERE id > 119"
    )
    assert ids, "new rows continue the sequence"
    if taken.name.startswith("a"):
        [[moved]] = [
            list(row.values())
            for row in await taken.sql("SELECT archive_old_notification_deliveries(0)")
        ]
        assert moved
        partitions = await taken.sql("SELECT count(*) AS n FROM licitaciones_default")
        assert partitions == [{"n": 0}]


@pytest.mark.parametrize("taken", ["a", "sqlite"], indirect=True)
async def test_baseline_registers_without_announcing(taken: Origin) -> None:
    now = datetime.now(UTC)
    await taken.fill(now)
    await taken.migrate()
    before = await taken.snapshot("notification_events", "notification_deliveries", "licitaciones")
    for n in range(3):
        taken.chile.add(sample_tender(n, chile_day(now)), site=False)
    done = await taken.call("tenders", "baseline")
    assert done.returncode == 0, done.stderr
    assert len(await taken.sql("SELECT * FROM licitacion_registry")) == 6
    assert (await taken.run("ingest"))["counters"]["new"] == 0
    after = await taken.snapshot("notification_events", "notification_deliveries", "licitaciones")
    assert after == before
    taken.chile.add(sample_tender(3, chile_day(now)), site=False)
    assert (await taken.run("ingest", TENDERS_BASELINE="true"))["counters"]["new"] == 1
    events = await taken.snapshot("notification_events")
    assert events["notification_events"] == before["notification_events"]


@pytest.mark.parametrize("taken", ["a-ranked", "b"], indirect=True)
async def test_months_that_the_team_exported_are_not_exported_again(taken: Origin) -> None:
    now = datetime.now(UTC)
    then = datetime(2025, 3, 10, tzinfo=UTC)
    for n in range(3):
        tender = origin.tender(f"{n}-3-LE25", now, created_at=then, fecha_publicacion=then)
        await taken.insert("archive.licitaciones", tender)
    manifest = {
        "entity": "licitaciones",
        "partition_month": "2025-03",
        "object_key": "notichilec/archive/licitaciones/2025/03/2025-03-0123456789abcdef.parquet",
        "row_count": 3,
        "checksum": "c" * 64,
        "status": "verified",
        "verified_at": now,
        "drop_eligible_at": now + timedelta(days=30),
    }
    dropped = manifest | {"partition_month": "2025-01", "status": "dropped", "row_count": 9}
    await taken.insert("archive_exports", manifest)
    await taken.insert("archive_exports", dropped | {"verified_at": None, "dropped_at": now})
    before = await taken.snapshot("archive_exports")
    await taken.migrate()
    assert (await taken.run("archive-export"))["counters"]["files"] == 0
    assert await taken.snapshot("archive_exports") == before
    late = origin.tender("9-3-LE25", now, created_at=then, fecha_publicacion=then)
    await taken.insert("archive.licitaciones", late)
    answer = await taken.run("archive-export")
    assert (answer["counters"]["files"], answer["counters"]["rows"]) == (1, 1)
    assert await taken.snapshot("archive_exports") == before
    await taken.sql("UPDATE archive.licitaciones SET created_at = created_at")
    assert (await taken.run("archive-export"))["counters"]["files"] == 0


@pytest.mark.parametrize("taken", ["a"], indirect=True)
async def test_two_rows_of_one_code_do_not_break_the_archive(taken: Origin) -> None:
    now = datetime.now(UTC)
    then = now - timedelta(days=500)
    for hours in (0, 1):
        old = then + timedelta(hours=hours)
        row = origin.tender("7-7-LE24", now, created_at=old, fecha_publicacion=then)
        await taken.insert("licitaciones", row)
    await taken.migrate()
    assert (await taken.run("cleanup"))["counters"]["licitaciones"] == 2
    assert await taken.sql("SELECT count(*) AS n FROM archive.licitaciones") == [{"n": 1}]
    assert await taken.sql("SELECT count(*) AS n FROM licitaciones") == [{"n": 0}]


# The team's database of March 2026: no registry, events or deliveries.
MARCH_2026 = """
CREATE TABLE licitaciones (
    id text PRIMARY KEY, codigo_externo text NOT NULL UNIQUE, nombre text NOT NULL,
    tipo text CHECK (tipo IN ('L1', 'LE', 'LP', 'LQ', 'LR')), created_at {time});
CREATE TABLE device_tokens (
    id integer PRIMARY KEY, expo_push_token text NOT NULL UNIQUE, active boolean);
CREATE TABLE worker_runs (
    id integer PRIMARY KEY, started_at {time} NOT NULL, finished_at {time},
    licitaciones_found integer, licitaciones_new integer, notifications_sent integer);
INSERT INTO licitaciones (id, codigo_externo, nombre) VALUES ('1-1-LE26', '1-1-LE26', 'x')
"""
# The registry of version 0.1.0 of this pipeline.
VERSION_0_1_0 = """
CREATE TABLE licitacion_registry (
    id text PRIMARY KEY, codigo_externo text NOT NULL, claimed_by text NOT NULL,
    claimed_at {time} NOT NULL, status text NOT NULL, attempts bigint NOT NULL,
    due_at {time} NOT NULL, leased_by text, fence bigint NOT NULL, last_error text,
    created_at {time} NOT NULL, updated_at {time} NOT NULL)
"""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (MARCH_2026, "the database is of March 2026"),
        (VERSION_0_1_0, "it is a table of version 0.1.0 of tenders, which is not carried over"),
    ],
)
async def test_databases_that_are_too_old_are_refused_and_stay_as_they_are(
    store: str, schema: str, word: str, tmp_path: Path, server: PostgresServer
) -> None:
    if store == "sqlite":
        url = f"sqlite:///{tmp_path / 'old.db'}"
        tables = "SELECT sql AS line FROM sqlite_schema ORDER BY name"
    else:
        url = server.create_database(f"old-{'march' if 'tokens' in schema else 'first'}")
        tables = (
            "SELECT table_schema || table_name || column_name AS line"
            " FROM information_schema.columns WHERE table_schema IN ('public', 'esclusa')"
            " ORDER BY 1"
        )
    old = Origin(tmp_path, store, url, url)
    await old.start()
    try:
        time = "text" if store == "sqlite" else "timestamptz"
        for statement in schema.format(time=time).split(";\n"):
            await old.sql(statement)
        before = await old.sql(tables)
        done = await old.call("migrate", "--yes")
        assert done.returncode == 3, done.stderr
        assert word in done.stderr
        assert await old.sql(tables) == before
    finally:
        await old.stop()
