"""Whose tables they are: other programs, other installations, and roles with few rights."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from conformance.helpers import claim_one
from conformance.kinds import KINDS, STAGES, WORK, Job, Old
from support.postgres import PostgresServer

from esclusa.model.budget import Budget, Granted, Window
from esclusa.model.errors import SchemaRefused
from esclusa.model.query import query
from esclusa.model.system_records import SYSTEM_RECORDS, CycleRecord, DeadLetter, Run
from esclusa.stores.postgres import PostgresStore

SYSTEM = tuple(record.kind for record in SYSTEM_RECORDS)
POST = Budget("post", Window("day", 10))
numbers = iter(range(1000))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    name = f"shared_{next(numbers)}"
    yield server.create_database(name)
    server.drop_database(name)


async def sql(url: str, statements: str) -> list[Any]:
    connection: Any = await asyncpg.connect(url)
    try:
        *first, last = [s for s in statements.split(";\n") if s.strip()]
        for statement in first:
            await connection.execute(statement)
        rows: list[Any] = await connection.fetch(last)
        return rows
    finally:
        await connection.close()


async def migrated(url: str, **options: Any) -> PostgresStore:
    store = PostgresStore(url, **options)
    await store.open()
    try:
        await store.migrate((*KINDS, *SYSTEM), STAGES)
    except BaseException:
        await store.close()
        raise
    return store


def esclusa(url: str, folder: Path, *command: str, **settings: str) -> Any:
    """Run the command as a user does."""
    example = Path(__file__).parents[2] / "examples" / "hello.py"
    environ = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
        "ESCLUSA_STORE": url,
        "ESCLUSA_PIPELINES": f"{example}:app",
        **settings,
    }
    return subprocess.run(
        [sys.executable, "-m", "esclusa", *command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


# tables of other programs


async def test_tables_of_other_programs_keep_rows_and_definition(url: str, tmp_path: Path) -> None:
    """The application has tables with the names of our system records."""
    names = [kind.table.removeprefix("esclusa_") for kind in SYSTEM]
    names += ["worker_runs", "archive_exports", "history", "budgets", "leases", "migrations"]
    names += ["key_turns"]
    for name in names:
        await sql(
            url,
            f"""CREATE TABLE {name} (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), queue text);
            INSERT INTO {name} (queue) SELECT 'q' || g FROM generate_series(1, 9) g;
            SELECT 1""".replace(";\n            ", ";\n"),
        )

    async def picture() -> list[Any]:
        found = await sql(
            url,
            """SELECT table_name, column_name, data_type, is_nullable, column_default
            FROM information_schema.columns WHERE table_schema = 'public'
                AND table_name <> 'greetings' ORDER BY 1, ordinal_position""",
        )
        for name in names:
            rows = f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM public.{name} t"
            found += await sql(url, rows)
        return [tuple(row) for row in found]

    before = await picture()
    ran = esclusa(url, tmp_path, "run", "hello.greet")
    assert ran.returncode == 5, ran.stderr  # grace has moved away
    assert esclusa(url, tmp_path, "doctor").returncode in (0, 4)
    assert await picture() == before
    assert [r[0] for r in await sql(url, "SELECT count(*) FROM esclusa.dead_letters")] == [1]


@pytest.mark.parametrize("table", ["runs", "history", "migrations", "leases"])
async def test_a_system_table_that_another_program_made_is_refused(
    url: str, tmp_path: Path, table: str
) -> None:
    await sql(url, f"CREATE SCHEMA esclusa;\nCREATE TABLE esclusa.{table} (id int);\nSELECT 1")
    done = esclusa(url, tmp_path, "migrate")
    assert done.returncode == 3
    assert f"table esclusa.{table} exists, and Esclusa did not make it" in done.stderr
    assert "ESCLUSA_POSTGRES_SCHEMA" in done.stderr
    assert await sql(url, "SELECT relname FROM pg_class WHERE relname = 'greetings'") == []
    assert esclusa(url, tmp_path, "migrate", ESCLUSA_POSTGRES_SCHEMA="locks").returncode == 0


async def test_a_business_table_that_another_program_made_is_refused(
    url: str, tmp_path: Path
) -> None:
    await sql(url, "CREATE TABLE greetings (id text PRIMARY KEY, title text);\nSELECT 1")
    done = esclusa(url, tmp_path, "migrate")
    assert done.returncode == 3
    assert "table greetings exists, and Esclusa did not make it" in done.stderr
    assert "track=track(" in done.stderr
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'greetings'"
    assert {row[0] for row in await sql(url, columns)} == {"id", "title"}


# rights


async def test_a_role_without_rights_gets_the_statement_for_its_dba(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    await sql(url, 'CREATE ROLE "Worker 1" LOGIN;\nGRANT ALL ON SCHEMA public TO "Worker 1"')
    theirs = url.replace("postgres@", "Worker%201@")
    try:
        done = esclusa(theirs, tmp_path, "migrate")
        assert done.returncode == 3
        statement = 'CREATE SCHEMA esclusa AUTHORIZATION "Worker 1";'
        assert statement in done.stderr
        await sql(url, statement)
        again = esclusa(theirs, tmp_path, "migrate")
        assert again.returncode == 0, again.stderr
        assert esclusa(theirs, tmp_path, "run", "hello.greet").returncode == 5
    finally:
        await sql(url, 'DROP OWNED BY "Worker 1" CASCADE;\nDROP ROLE "Worker 1"')


async def test_rows_that_row_level_security_hides_are_reported(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """Without a policy for the role, every statement succeeds and finds nothing."""
    assert esclusa(url, tmp_path, "migrate").returncode == 0
    await sql(
        url,
        """CREATE ROLE worker LOGIN;
GRANT USAGE ON SCHEMA public, esclusa TO worker;
GRANT ALL ON ALL TABLES IN SCHEMA public, esclusa TO worker;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public, esclusa TO worker;
ALTER TABLE greetings ENABLE ROW LEVEL SECURITY""",
    )
    theirs = url.replace("postgres@", "worker@")
    try:
        hidden = "row level security hides every row of greetings from this role"
        for command in (("doctor",), ("run", "hello.greet"), ("status",)):
            found = esclusa(theirs, tmp_path, *command)
            assert found.returncode == 4
            assert hidden in found.stdout + found.stderr
        policy = found.stderr.partition("owner: ")[2].splitlines()[0].replace("…", "worker")
        await sql(url, policy)
        assert esclusa(theirs, tmp_path, "run", "hello.greet").returncode == 5
        assert hidden not in esclusa(theirs, tmp_path, "doctor").stdout
    finally:
        await sql(url, "DROP OWNED BY worker CASCADE;\nDROP ROLE worker")


async def test_roles_of_supabase_reach_no_system_table(url: str, server: PostgresServer) -> None:
    """Supabase grants everything in ``public`` to these roles, and could grant more."""
    await sql(
        url,
        """CREATE ROLE anon;
CREATE ROLE authenticated;
GRANT USAGE ON SCHEMA public TO anon, authenticated;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO anon, authenticated;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO anon, authenticated;
CREATE TABLE public.theirs (n int)""",
    )
    try:
        store = await migrated(url)
        await store.close()
        tables = [
            row[0]
            for row in await sql(
                url, "SELECT tablename FROM pg_tables WHERE schemaname = 'esclusa' ORDER BY 1"
            )
        ]
        assert len(tables) == len(SYSTEM) + 6
        connection: Any = await asyncpg.connect(url)
        for role in ("anon", "authenticated"):
            await connection.execute(f"SET ROLE {role}")
            for table in tables:
                for statement in (
                    f"SELECT * FROM esclusa.{table}",
                    f"DELETE FROM esclusa.{table}",
                    f"INSERT INTO esclusa.{table} DEFAULT VALUES",
                ):
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await connection.execute(statement)
            await connection.execute("SELECT * FROM public.theirs")  # the test can fail
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("SELECT * FROM public.t_jobs")
            await connection.execute("RESET ROLE")
        await connection.close()
    finally:
        await sql(url, "DROP OWNED BY anon, authenticated;\nDROP ROLE anon, authenticated")


async def test_a_role_named_as_the_schema_keeps_business_tables_apart(
    url: str, tmp_path: Path
) -> None:
    """Its search path begins with the schema of its own name."""
    await sql(url, "CREATE ROLE esclusa LOGIN SUPERUSER;\nSELECT 1")
    theirs = url.replace("postgres@", "esclusa@")
    try:
        for _ in range(2):
            done = esclusa(theirs, tmp_path, "run", "hello.greet")
            assert done.returncode in (0, 5), done.stderr
        places = "SELECT schemaname FROM pg_tables WHERE tablename = 'greetings'"
        assert [row[0] for row in await sql(url, places)] == ["public"]
    finally:
        await sql(url, "DROP OWNED BY esclusa CASCADE;\nDROP ROLE esclusa")


# installations


@pytest.fixture
async def pair(url: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two installations with the same records in one database."""
    await sql(url, "CREATE SCHEMA other;\nSELECT 1")
    one = await migrated(url)
    two = await migrated(url + "?options=-csearch_path%3Dother", schema="second")
    yield one, two
    await one.close()
    await two.close()


async def test_two_installations_do_not_see_each_other(
    url: str, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    one, two = pair
    await one.insert([Job(id="a"), Old(name="x"), CycleRecord(cycle="c", schedule="")])
    await one.insert([_letter("j"), _run("r")])
    lease = await claim_one(one, WORK)
    assert isinstance(await one.spend(POST, 4, "a"), Granted)
    await one.archive(query(Old, {}))
    for kind in (*KINDS, *SYSTEM):
        assert (await two.count(query(kind, {})))[0] == 0
    assert await two.history(lease.ref) == []
    assert (await two.usage(POST))[0].used == 0
    assert (await two.count(query(Old, {}).but(archived=True)))[0] == 0
    assert (await one.count(query(Old, {}).but(archived=True)))[0] == 1
    await two.purge(query(Old, {}).but(archived=True))
    assert (await one.count(query(Old, {}).but(archived=True)))[0] == 1
    schemas = "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname !~ '^(pg_|info)'"
    assert {row[0] for row in await sql(url, schemas)} == {
        "public",
        "other",
        "esclusa",
        "second",
        "archive",
        "second_archive",
    }


async def test_installations_are_notified_apart(pair: tuple[PostgresStore, PostgresStore]) -> None:
    one, two = pair
    mine: list[str] = []
    theirs: list[str] = []
    ends = [await one.listen(mine.append), await two.listen(theirs.append)]
    await two.wake(Job.kind)
    await one.insert([Job(id="a")])
    await one.wake(Job.kind)
    async with asyncio.timeout(10):
        while len(mine) < 2 or not theirs:
            await asyncio.sleep(0.01)
    assert theirs == ["t_jobs"]
    for end in ends:
        await end()


async def test_installations_migrate_at_the_same_time(
    url: str, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    one, two = pair
    connection: Any = await asyncpg.connect(url)
    lock = one._connections.installation.migration_lock
    assert lock != two._connections.installation.migration_lock
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", lock)
        assert await two.migrate((*KINDS, *SYSTEM), STAGES) == []
    await connection.close()


async def test_tables_of_another_installation_are_refused(
    url: str, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    with pytest.raises(
        SchemaRefused, match="t_jobs belongs to the installation of the schema esclusa"
    ):
        await migrated(url, schema="third")


async def test_a_second_installation_without_a_schema_of_its_own_is_refused(
    url: str, pair: tuple[PostgresStore, PostgresStore]
) -> None:
    await sql(url, "CREATE SCHEMA more;\nSELECT 1")
    with pytest.raises(SchemaRefused, match=r"public\.t_jobs .*ESCLUSA_POSTGRES_SCHEMA"):
        await migrated(url + "?options=-csearch_path%3Dmore")


def _letter(id: str) -> DeadLetter:
    return DeadLetter(table_name="t_jobs", record_id=id, state_before="x", error_type="y")


def _run(id: str) -> Run:
    return Run(cycle="c", slot=id, worker="w", started_at=datetime.now(UTC))
