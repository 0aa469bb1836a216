"""Databases for the stores under test. Another store adds its classes here and to PROVIDERS.

A *provider* lives for the test session and creates databases. Any number of stores can be opened on
one database. Tests know only the Database protocol.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from conformance.firestore_database import FirestoreProvider
from conformance.kinds import KINDS, STAGES

from esclusa.model.columns import ColumnType
from esclusa.model.kind import Kind
from esclusa.model.stage import Stage
from esclusa.ports.store import Store


class Database(Protocol):
    """One database, or what a store has in its place."""

    @property
    def url(self) -> str:
        """The URL, as in the setting."""

    def store(self, **options: Any) -> Store:
        """Return a store on it, not open yet."""

    async def make_table(
        self,
        name: str,
        columns: Mapping[str, ColumnType],
        key: str,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Create and fill a table, as another program would."""

    async def rows(self, name: str, order: str) -> list[dict[str, Any]]:
        """Return the rows of a table, read without the store."""

    async def write(self, name: str, key: str, id: Any, **values: Any) -> None:
        """Change a row, as another program would."""

    def locks_rows(self) -> bool:
        """Whether another program can lock a row, and no others."""

    def locked(self, name: str, key: str, id: str) -> AbstractAsyncContextManager[None]:
        """Lock a row, as a transaction of another program does."""

    async def refuse(self, name: str, key: str, ids: Sequence[str]) -> None:
        """Let a trigger refuse any change of these rows, as another program would."""

    async def allow(self, name: str) -> None:
        """Remove that trigger."""

    async def edit_migration(self) -> None:
        """Simulate a migration that was edited after it ran."""

    async def remove(self) -> None:
        """Drop the data."""


class DatabaseProvider(Protocol):
    async def database(self, *, empty: bool = False) -> Database:
        """Return a new database, with the schema of the conformance kinds unless ``empty``."""

    def stop(self) -> None:
        """Stop the server."""


async def opened(
    database: Database,
    kinds: Sequence[Kind] = KINDS,
    stages: Sequence[Stage] = STAGES,
    **options: Any,
) -> Any:
    """Return an open store, on a database that has the schema."""
    store = database.store(**options)
    await store.open()
    await store.use(kinds, stages)
    return store


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# SQLite


class SqliteProvider:
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="esclusa-sqlite-"))
        self.template: Path | None = None
        self.numbers = itertools.count()

    async def database(self, *, empty: bool = False) -> Database:
        database = SqliteDatabase(self.folder / f"{next(self.numbers)}.db")
        if not empty:
            if self.template is None:
                await _migrated(SqliteDatabase(self.folder / "template.db"))
                self.template = self.folder / "template.db"
            for left in self.folder.glob("template.db*"):
                shutil.copy(left, str(database.path) + left.name.removeprefix("template.db"))
        return database

    def stop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class SqliteDatabase:
    TYPES = {
        "text": "TEXT",
        "int": "INTEGER",
        "float": "REAL",
        "bool": "INTEGER",
        "time": "TEXT",
        "date": "TEXT",
        "decimal": "TEXT",
        "json": "TEXT",
        "bytes": "BLOB",
    }

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def store(self, **options: Any) -> Store:
        from esclusa.stores.sqlite.store import SqliteStore

        return SqliteStore(str(self.path), **options)

    async def make_table(
        self,
        name: str,
        columns: Mapping[str, ColumnType],
        key: str,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        body = ", ".join(
            f"{quoted(c)} {self.TYPES[t]}{' PRIMARY KEY' if c == key else ''}"
            for c, t in columns.items()
        )
        self._run(f"CREATE TABLE {quoted(name)} ({body})")
        for row in rows:
            names, marks = ", ".join(map(quoted, row)), ", ".join("?" * len(row))
            self._run(
                f"INSERT INTO {quoted(name)} ({names}) VALUES ({marks})",
                *map(_sqlite_value, row.values()),
            )

    async def rows(self, name: str, order: str) -> list[dict[str, Any]]:
        return self._run(f"SELECT * FROM {quoted(name)} ORDER BY {quoted(order)}")

    async def write(self, name: str, key: str, id: Any, **values: Any) -> None:
        sets = ", ".join(f"{quoted(c)} = ?" for c in values)
        self._run(
            f"UPDATE {quoted(name)} SET {sets} WHERE {quoted(key)} = ?",
            *map(_sqlite_value, values.values()),
            id,
        )

    def locks_rows(self) -> bool:
        return False

    def locked(self, name: str, key: str, id: str) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError("SQLite locks the whole database")

    async def refuse(self, name: str, key: str, ids: Sequence[str]) -> None:
        listed = ", ".join(f"'{id}'" for id in ids)
        self._run(
            f"""CREATE TRIGGER refuse BEFORE UPDATE ON {quoted(name)}
            WHEN NEW.{quoted(key)} IN ({listed})
            BEGIN SELECT RAISE(ABORT, 'not allowed'); END"""
        )

    async def allow(self, name: str) -> None:
        self._run("DROP TRIGGER refuse")

    async def edit_migration(self) -> None:
        found = self._run(
            """SELECT m.name AS name FROM sqlite_master m, pragma_table_info(m.name) c
            WHERE m.type = 'table' AND c.name = 'checksum'"""
        )
        assert len(found) == 1
        self._run(f"UPDATE {quoted(found[0]['name'])} SET checksum = 'edited'")

    async def remove(self) -> None:
        for left in self.path.parent.glob(self.path.name + "*"):
            left.unlink()

    def _run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        import apsw

        connection = apsw.Connection(str(self.path))
        try:
            connection.set_busy_timeout(10_000)
            cursor = connection.execute(statement, values)
            return [
                dict(zip((d[0] for d in cursor.get_description()), row, strict=True))
                for row in cursor
            ]
        finally:
            connection.close()


def _sqlite_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, dict | list) else value


# PostgreSQL


class PostgresProvider:
    """One server for the session, started when the first test needs it.

    Databases are emptied and reused: creating one takes far longer.
    """

    # Options of every store.
    OPTIONS: Mapping[str, Any] = {}

    def __init__(self) -> None:
        from support.postgres import PostgresServer

        self.server = PostgresServer(options=self.server_options())
        self.started = False
        self.free: list[PostgresDatabase] = []
        self.empty: list[PostgresDatabase] = []
        self.numbers = itertools.count()

    def server_options(self) -> dict[str, str]:
        return {}

    def removed(self) -> None:
        """Called when a test has ended with its database."""

    async def database(self, *, empty: bool = False) -> Database:
        if not self.started:
            self.server.start()
            self.started = True
        if kept := self.empty if empty else self.free:
            return kept.pop()
        database = PostgresDatabase(self, f"esclusa_{next(self.numbers)}", empty=empty)
        await self.run("postgres", f"CREATE DATABASE {quoted(database.name)} TEMPLATE template0")
        if not empty:
            await _migrated(database)
        return database

    def stop(self) -> None:
        if self.started:
            self.server.stop()

    async def run(self, database: str, statement: str, *values: Any) -> list[dict[str, Any]]:
        import asyncpg

        connection = await asyncpg.connect(self.server.url(database))
        try:
            return [dict(row) for row in await connection.fetch(statement, *values)]
        finally:
            await connection.close()


_BEYOND_SCHEMAS = """SELECT (SELECT count(*) FROM pg_extension WHERE extname <> 'plpgsql')
    + (SELECT count(*) FROM pg_event_trigger)
    + (SELECT count(*) FROM pg_publication)
    + (SELECT count(*) FROM pg_default_acl)
    + (SELECT count(*) FROM pg_largeobject_metadata)
    + (SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
        WHERE d.datname = current_database())
    + (SELECT count(*) FROM pg_database WHERE datname = current_database() AND datacl IS NOT NULL)
    AS beyond"""
_REMOVE_SCHEMAS = """DO $$ DECLARE name text; BEGIN
    PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
    FOR name IN SELECT nspname FROM pg_namespace
        WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
    LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public AUTHORIZATION pg_database_owner;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
    COMMENT ON SCHEMA public IS 'standard public schema';
END $$"""


class PostgresDatabase:
    TYPES = {
        "text": "text",
        "int": "bigint",
        "float": "double precision",
        "bool": "boolean",
        "time": "timestamptz",
        "date": "date",
        "decimal": "numeric",
        "json": "jsonb",
        "bytes": "bytea",
    }

    def __init__(self, provider: PostgresProvider, name: str, *, empty: bool) -> None:
        self.provider, self.name, self.empty = provider, name, empty

    @property
    def url(self) -> str:
        return self.provider.server.url(self.name)

    def store(self, **options: Any) -> Store:
        from esclusa.stores.postgres.store import PostgresStore

        return PostgresStore(
            self.provider.server.url(self.name), **{**self.provider.OPTIONS, **options}
        )

    async def make_table(
        self,
        name: str,
        columns: Mapping[str, ColumnType],
        key: str,
        rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        body = ", ".join(
            f"{quoted(c)} {self.TYPES[t]}{' PRIMARY KEY' if c == key else ''}"
            for c, t in columns.items()
        )
        await self._run(f"CREATE TABLE {quoted(name)} ({body})")
        for row in rows:
            names, marks = (
                ", ".join(map(quoted, row)),
                ", ".join(f"${n}" for n in range(1, len(row) + 1)),
            )
            await self._run(
                f"INSERT INTO {quoted(name)} ({names}) VALUES ({marks})",
                *map(_postgres_value, row.values()),
            )

    async def rows(self, name: str, order: str) -> list[dict[str, Any]]:
        return await self._run(f"SELECT * FROM {quoted(name)} ORDER BY {quoted(order)}")

    async def write(self, name: str, key: str, id: Any, **values: Any) -> None:
        sets = ", ".join(f"{quoted(c)} = ${n}" for n, c in enumerate(values, 2))
        await self._run(
            f"UPDATE {quoted(name)} SET {sets} WHERE {quoted(key)} = $1",
            id,
            *map(_postgres_value, values.values()),
        )

    def locks_rows(self) -> bool:
        return True

    @asynccontextmanager
    async def locked(self, name: str, key: str, id: str) -> AsyncIterator[None]:
        import asyncpg

        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                await connection.execute(
                    f"SELECT 1 FROM {quoted(name)} WHERE {quoted(key)} = $1 FOR UPDATE", id
                )
                yield
        finally:
            await connection.close()

    async def refuse(self, name: str, key: str, ids: Sequence[str]) -> None:
        listed = ", ".join(f"'{id}'" for id in ids)
        await self._run(
            """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE 'not allowed'; END $$"""
        )
        await self._run(
            f"""CREATE TRIGGER refuse BEFORE UPDATE ON {quoted(name)} FOR EACH ROW
            WHEN (NEW.{quoted(key)} IN ({listed})) EXECUTE FUNCTION refuse()"""
        )

    async def allow(self, name: str) -> None:
        await self._run(f"DROP TRIGGER refuse ON {quoted(name)}")

    async def edit_migration(self) -> None:
        found = await self._run(
            """SELECT table_schema, table_name FROM information_schema.columns
            WHERE column_name = 'checksum' AND table_name = 'migrations'"""
        )
        assert len(found) == 1
        table = f"{quoted(found[0]['table_schema'])}.{quoted(found[0]['table_name'])}"
        await self._run(f"UPDATE {table} SET checksum = 'edited'")

    async def remove(self) -> None:
        if self.empty:
            await self._remove_schemas()
            self.provider.removed()
            return
        tables = await self._run(
            """SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) AS name
            FROM pg_tables
            WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
                AND tablename NOT IN ('migrations', 'migration_locks')"""
        )
        await self._run(
            "DO $$ BEGIN " + "".join(f"DELETE FROM {t['name']}; " for t in tables) + "END $$"
        )
        self.provider.free.append(self)
        self.provider.removed()

    async def _remove_schemas(self) -> None:
        """Make the database as new; drop it if it has more than what belongs to schemas."""
        [found] = await self._run(_BEYOND_SCHEMAS)
        if found["beyond"]:
            await self.provider.run("postgres", f"DROP DATABASE {quoted(self.name)} WITH (FORCE)")
            return
        await self._run(_REMOVE_SCHEMAS)
        self.provider.empty.append(self)

    async def _run(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        return await self.provider.run(self.name, statement, *values)


class PortableProvider(PostgresProvider):
    """PostgreSQL with the portable profile; fails a test whose store used what that leaves out."""

    OPTIONS: Mapping[str, Any] = {"portable": True}

    def __init__(self) -> None:
        from support.statement_log import StatementLog

        super().__init__()
        self.log = StatementLog(self.server, "esclusa")

    def server_options(self) -> dict[str, str]:
        from support.statement_log import SERVER_OPTIONS

        return SERVER_OPTIONS

    def removed(self) -> None:
        assert not (found := self.log.not_portable()), "\n".join(found)


def _postgres_value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


async def _migrated(database: Database) -> None:
    store = database.store()
    await store.open()
    try:
        await store.migrate(KINDS, STAGES)
    finally:
        await store.close()


PROVIDERS: dict[str, type[DatabaseProvider]] = {
    "sqlite": SqliteProvider,
    "postgres": PostgresProvider,
    "firestore": FirestoreProvider,
}
"""The stores that the conformance and property suites run on."""

PORTABLE: dict[str, type[DatabaseProvider]] = {"postgres-portable": PortableProvider}
"""Run by the conformance suite alone, if ESCLUSA_TEST_PORTABLE is set, as in CI."""

SQL = ["sqlite", "postgres"]
"""The stores with tables, whose columns have types, and with triggers."""
