"""`esclusa migrate` on a table of another program, as an operator and a DBA use it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from support.command import CommandResult

from esclusa.app import open_runtime, open_store
from esclusa.cli import code_of

CUSTOMERS = Path(__file__).parents[2] / "examples" / "existing_table.py"
TABLE = "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, email TEXT, country TEXT)"


class Place:
    """A store with somebody else's table, and the command on it."""

    def __init__(self, database: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self.database, self._capsys = database, capsys

    async def sql(self, statement: str) -> list[Any]:
        run = self.database._run(statement)
        return list(run if isinstance(run, list) else await run)

    def __call__(self, *argv: str) -> CommandResult:
        self._capsys.readouterr()
        code = code_of(argv, open_runtime=open_runtime, open_store=open_store)
        captured = self._capsys.readouterr()
        return CommandResult(code, captured.out, captured.err)


@pytest.fixture(params=["sqlite", "postgres"])
def place(
    request: pytest.FixtureRequest,
    providers: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ESCLUSA_PIPELINES", f"{CUSTOMERS}:app")
    monkeypatch.setenv("ESCLUSA_LOG_LEVEL", "error")
    database = asyncio.run(providers(request.param).database(empty=True))
    monkeypatch.setenv("ESCLUSA_STORE", database.url)
    place = Place(database, capsys)
    asyncio.run(place.sql(TABLE))
    asyncio.run(place.sql("INSERT INTO customers VALUES (1, 'ana@example.com', 'CL')"))
    return place


def columns(place: Place) -> list[str]:
    [row] = asyncio.run(place.sql("SELECT * FROM customers"))
    return list(row)


def added_columns(output: str) -> set[str]:
    """The lines or parts of lines that say which columns were added."""
    parts = [part for line in output.splitlines() for part in line.split("; ")]
    return {part for part in parts if part.startswith("add column")}


@pytest.mark.parametrize(
    "command", [("run", "customers.check"), ("worker",), ("tick",), ("serve", "--port", "0")]
)
def test_work_refuses_to_change_a_table_of_another_program(
    place: Place, command: tuple[str, ...]
) -> None:
    refused = place(*command)
    assert refused.code == 3
    assert "customers: add column" in refused.err
    assert "run: esclusa migrate" in refused.err
    assert columns(place) == ["customer_id", "email", "country"]
    assert "run 'esclusa migrate'" in place("doctor").out


def test_a_dry_run_says_what_would_happen_to_each_table(place: Place) -> None:
    dry = place("migrate", "--dry-run")
    assert dry.code == 0
    assert "customers (a table of another program)\n  add column" in dry.out
    answer = place("migrate", "--dry-run", "--json").json
    foreign = {each["table"] for each in answer["tables"] if each["foreign"]}
    assert foreign == {"customers"}
    assert columns(place) == ["customer_id", "email", "country"]


def test_without_a_terminal_a_table_of_another_program_needs_yes(place: Place) -> None:
    refused = place("migrate")
    assert refused.code == 3
    assert "customers" in refused.err
    assert "--yes" in refused.err
    assert columns(place) == ["customer_id", "email", "country"]
    migrated = place("migrate", "--yes")
    assert migrated.code == 0
    assert (migrated.out + migrated.err).count("add column") == len(added_columns(migrated.out))
    assert (migrated.out + migrated.err).count("create index customers_claim") <= 1
    assert "check_status" in columns(place)
    assert place("migrate").out == "Already up to date.\n"
    assert place("migrate", "--check").code == 0
    assert place("run", "customers.check").code == 0


def test_at_a_terminal_it_asks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return len(asked) > 1

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "confirm", confirm)
    assert place("migrate").code == 1
    assert columns(place) == ["customer_id", "email", "country"]
    assert place("migrate").code == 0
    assert asked == ["Change customers?"] * 2
    assert "check_status" in columns(place)


def test_every_fault_is_shown(place: Place) -> None:
    for name in ("status", "attempts", "due_at", "fence", "leased_by", "last_error"):
        statement = f"ALTER TABLE customers ADD COLUMN check_{name} TEXT DEFAULT 'x'"
        asyncio.run(place.sql(statement))
    if place.database.url.startswith("sqlite"):
        return
    refused = place("migrate", "--yes")
    assert refused.code == 4
    for column in ("check_status", "check_attempts", "check_due_at", "check_fence"):
        assert f"column customers.{column}" in refused.err
    assert place("migrate", "--dry-run").code == 4


def test_a_dba_runs_the_printed_statements(place: Place, tmp_path: Path) -> None:
    script = place("migrate", "--sql").out
    if place.database.url.startswith("sqlite"):
        with sqlite3.connect(place.database.path) as base:
            base.executescript(script)
        base.close()
    else:
        assert "CREATE INDEX CONCURRENTLY" in script
        (tmp_path / "migrate.sql").write_text(script)
        psql = place.database.provider.server._programs / "psql"
        done = subprocess.run(
            [psql, "-X", "-v", "ON_ERROR_STOP=1", "-f", "migrate.sql", place.database.url],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert place("migrate", "--check").code == 0
    assert place("run", "customers.check").code == 0


def test_a_killed_migration_is_continued(place: Place) -> None:
    """The process is killed at different moments, until one migration comes to its end."""
    many = "INSERT INTO customers SELECT n, 'a@b', 'CL' FROM {} WHERE n > 1"
    series = "generate_series(2, 100000) n"
    if place.database.url.startswith("sqlite"):
        series = """(WITH RECURSIVE s(n) AS (
            SELECT 2 UNION ALL SELECT n + 1 FROM s WHERE n < 100000) SELECT n FROM s)"""
    asyncio.run(place.sql(many.format(series)))
    killed = 0
    for wait in range(40):
        with subprocess.Popen(
            [sys.executable, "-m", "esclusa", "migrate", "--yes"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ,
        ) as migrating:
            assert migrating.stderr is not None
            migrating.stderr.readline()  # it has begun with its first step
            time.sleep(0.05 * wait)
            if migrating.poll() is None:
                migrating.send_signal(signal.SIGKILL)
                killed += 1
        if migrating.returncode == 0:
            break
    assert killed
    assert place("migrate", "--yes").code == 0
    assert place("migrate", "--check").code == 0
    assert place("doctor", "--json").json["checks"]


def test_settings_map_a_pipeline_onto_another_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a table with other names to a record that is done, without editing the pipeline."""
    for statement in (
        "CREATE TABLE clientes (nr INTEGER PRIMARY KEY, correo TEXT, pais TEXT)",
        "INSERT INTO clientes VALUES (7, 'eva@example.com', 'AR')",
    ):
        asyncio.run(place.sql(statement))
    mapped = {
        "table": "clientes",
        "id": "nr",
        "columns": {"email": "correo", "country": "pais"},
        "track": {"prefix": "cola_", "attempts": "intentos"},
    }
    monkeypatch.setenv("ESCLUSA_TABLES", json.dumps({"customers": mapped}))
    assert place("run", "customers.check").code == 3
    assert place("migrate", "--yes").code == 0
    assert place("doctor").code == 0
    assert place("run", "customers.check").code == 0
    [row] = asyncio.run(place.sql("SELECT * FROM clientes"))
    assert (row["nr"], row["correo"], row["intentos"]) == (7, "eva@example.com", 1)
    shown = json.loads(place("show", "clientes", "7", "--json").out)
    assert row["cola_status"] in json.dumps(shown)
    assert columns(place) == ["customer_id", "email", "country"]
    monkeypatch.setenv("ESCLUSA_TABLES", json.dumps({"costumers": mapped}))
    refused = place("status")
    assert refused.code == 3
    assert "did you mean customers?" in refused.err


# Firestore: a collection of another program

COLLECTION = Path(__file__).parents[2] / "examples" / "existing_collection.py"


class Collection:
    """A collection that another program filled, and the command on it."""

    def __init__(self, database: Any, call: Callable[..., CommandResult]) -> None:
        self.database, self.call = database, call

    def fields(self) -> list[list[str]]:
        """The names of the fields of each document."""

        async def read() -> list[list[str]]:
            async with self.database.google() as client:
                found = [each async for each in client.collection("customers").stream()]
                return [sorted(each.to_dict() or {}) for each in found]

        return asyncio.run(read())

    def add(self, **fields: Any) -> None:
        async def write() -> None:
            async with self.database.google() as client:
                await client.collection("customers").add(fields)

        asyncio.run(write())


@pytest.fixture
def collection(
    providers: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Collection:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ESCLUSA_PIPELINES", f"{COLLECTION}:app")
    monkeypatch.setenv("ESCLUSA_LOG_LEVEL", "error")
    database = asyncio.run(providers("firestore").database(empty=True))
    monkeypatch.setenv("ESCLUSA_STORE", database.url)
    found = Collection(database, Place(database, capsys))
    for email in ("ana@example.com", "eva@example.com"):
        found.add(email=email, country="CL")
    return found


@pytest.mark.parametrize(
    "command", [("run", "customers.check"), ("worker",), ("tick",), ("serve", "--port", "0")]
)
def test_work_refuses_to_change_a_collection_of_another_program(
    collection: Collection, command: tuple[str, ...]
) -> None:
    refused = collection.call(*command)
    assert refused.code == 3
    assert "customers: update 2 documents of customers without tracking" in refused.err
    assert "run: esclusa migrate" in refused.err
    assert collection.fields() == [["country", "email"]] * 2


def test_without_a_terminal_a_collection_of_another_program_needs_yes(
    collection: Collection,
) -> None:
    dry = collection.call("migrate", "--dry-run")
    assert "customers (a table of another program)\n" in dry.out
    assert "  update 2 documents of customers without tracking" in dry.out
    refused = collection.call("migrate")
    assert refused.code == 3
    assert "These tables of other programs would be changed: customers." in refused.err
    assert collection.fields() == [["country", "email"]] * 2
    assert collection.call("migrate", "--yes").code == 0
    assert all("check_status" in fields for fields in collection.fields())
    assert collection.call("migrate").out == "Already up to date.\n"
    # what the other program adds later needs no consent: that was given
    collection.add(email="leo@example.com")
    assert collection.call("run", "customers.check").code == 0
    assert all("check_status" in fields for fields in collection.fields())


def test_a_new_field_of_a_collection_of_another_program_needs_yes(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert collection.call("migrate", "--yes").code == 0
    later = tmp_path / "later.py"
    declared = '    country: str = "unknown"'
    later.write_text(COLLECTION.read_text().replace(declared, f"    score: int = 0\n{declared}", 1))
    monkeypatch.setenv("ESCLUSA_PIPELINES", f"{later}:app")
    refused = collection.call("run", "customers.check")
    assert refused.code == 3
    assert "customers: add score to the documents of customers that lack them" in refused.err
    assert not any("score" in fields for fields in collection.fields())
    assert collection.call("migrate", "--yes").code == 0
    assert all("score" in fields for fields in collection.fields())
