"""docs/adopt.md: its files and commands work as the page shows them, on a PostgreSQL server."""

from __future__ import annotations

import os
import re
import runpy
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.cloud import firestore
from support.firestore import FirestoreEmulator
from support.postgres import PostgresServer, find_programs

PAGE = (Path(__file__).parents[1] / "docs" / "adopt.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:--|#) (\w+\.\w+)\n")
DESCRIBE = """
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
    SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull) AS line
    FROM pg_attribute WHERE attrelid = 'invoices'::regclass AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT indexdef FROM pg_indexes WHERE tablename = 'invoices'
    UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = 'invoices'::regclass
    UNION ALL SELECT tgname FROM pg_trigger WHERE tgrelid = 'invoices'::regclass
    UNION ALL SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'
) AS lines"""


def page_files() -> dict[str, str]:
    """The blocks whose first line is a comment with the name of a file."""
    bodies = [body for _, body in _BLOCK.findall(PAGE)]
    return {found[1]: body for body in bodies if (found := _FILE.match(body))}


def page_commands() -> list[tuple[str, list[str]]]:
    """Each command of the blocks ``console``, with the lines of output that the page shows."""
    commands: list[tuple[str, list[str]]] = []
    for language, body in _BLOCK.findall(PAGE):
        for line in body.splitlines() if language == "console" else ():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            else:
                commands[-1][1].append(line)
    return commands


def pattern(lines: list[str]) -> str:
    """The output that the lines stand for: ``…`` is any text, also of several lines."""
    return "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\s*\n"
        for line in lines
    )


class Shop:
    """A folder with the files of the page, and a database with its table."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.folder, self.server = folder, server
        for name, body in page_files().items():
            (folder / name).write_text(body, encoding="utf-8")
        command = folder / "bin" / "esclusa"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m esclusa "$@"\n')
        command.chmod(0o755)
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("ESCLUSA_", "PG"))}
        path = f"{command.parent}:{find_programs()}:{clean['PATH']}"
        self.environ = {**clean, "PATH": path, "ESCLUSA_PIPELINES": "invoices.py:app"}
        self.environ["ESCLUSA_STORE"] = server.create_database("shop")
        self.run("psql -X -q -v ON_ERROR_STOP=1 $ESCLUSA_STORE -f invoices.sql")

    def run(self, command: str, codes: tuple[int, ...] = (0,), **environ: str) -> str:
        """Run a command line in the folder; return its output and its errors."""
        done = subprocess.run(
            ["/bin/sh", "-c", f"{command} 2>&1"],
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in codes, f"{command}: {done.returncode}\n{done.stdout}"
        assert "Traceback" not in done.stdout
        return done.stdout

    def sql(self, statement: str) -> str:
        return self.server.run_sql(statement, "shop")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with PostgresServer() as server:
        yield Shop(tmp_path, server)


def test_the_way_from_a_table_to_a_worker_and_back(shop: Shop) -> None:
    before, rows = shop.sql(DESCRIBE), "SELECT email, amount, created_at FROM invoices ORDER BY 1"
    business = shop.sql(rows)
    commands = page_commands()
    assert commands[-1][0].endswith("-f roll_back.sql")
    for command, shown in commands[:-1]:
        output = shop.run(command, codes=(0, 3, 5))
        assert re.search(pattern(shown), output), f"{command}\n{output}"

    # A worker finds a row that another program inserts, and stops in order.
    with subprocess.Popen(
        ["esclusa", "worker"], cwd=shop.folder, env=shop.environ, stderr=subprocess.DEVNULL
    ) as worker:
        shop.run("psql -X -q $ESCLUSA_STORE -f insert.sql")
        deadline = time.monotonic() + 30
        sent = "SELECT status FROM invoices WHERE email = 'sol@example.com'"
        while shop.sql(sent) != "sent" and time.monotonic() < deadline:
            time.sleep(0.05)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert shop.sql(sent) == "sent"
    shop.sql("DELETE FROM invoices WHERE email = 'sol@example.com'")
    # A worker that was killed holds a row; another program's row is left to it.
    shop.sql("UPDATE invoices SET status = 'sending', esclusa_leased_by = 'w' WHERE invoice_no = 5")

    command, shown = commands[-1]
    assert re.search(pattern(shown), shop.run(command))
    assert shop.sql(DESCRIBE) == before
    assert shop.sql(rows) == business
    states = shop.sql("SELECT string_agg(status, ' ' ORDER BY invoice_no) FROM invoices")
    assert states == "sent sent failed draft pending sending"


def test_the_trigger_of_notify_comes_and_goes(shop: Shop) -> None:
    path, before = shop.folder / "invoices.py", shop.sql(DESCRIBE)
    path.write_text(path.read_text().replace("track(\n", "track(\n        notify=True,\n"))
    assert "create trigger esclusa_notify\n" in shop.run("esclusa migrate --yes")
    shop.sql("CREATE ROLE writer")
    shop.sql("GRANT INSERT ON invoices TO writer")
    shop.sql("SET ROLE writer; INSERT INTO invoices (email, amount) VALUES ('sol@example.com', 1)")
    shop.run(page_commands()[-1][0])
    assert shop.sql(DESCRIBE) == before


def test_a_role_with_few_rights_works_and_others_get_nothing(shop: Shop) -> None:
    for role in ("anon", "authenticated"):
        shop.sql(f"CREATE ROLE {role}")
        shop.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        shop.sql(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {role}")
        shop.sql(f"ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO {role}")
    shop.sql("ALTER TABLE invoices ENABLE ROW LEVEL SECURITY")
    shop.run("esclusa migrate --yes")
    shop.run("psql -X -q -v ON_ERROR_STOP=1 $ESCLUSA_STORE -f role.sql")
    worker = shop.environ["ESCLUSA_STORE"].replace("postgres@", "esclusa_worker:change-me@")
    ran = shop.run("esclusa run invoices.send", codes=(5,), ESCLUSA_STORE=worker)
    assert "invoices.send: partial (taken 3, sent 2, failed 1)" in ran
    shop.run("esclusa doctor", ESCLUSA_STORE=worker)
    assert shop.run("psql -X -q -A -t $ESCLUSA_STORE -f exposed.sql") == ""


def test_a_pipeline_is_mapped_by_settings(shop: Shop) -> None:
    shop.sql(
        """CREATE TABLE publicaciones (nr uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            post_id text, tipo text, foto_url text, foto_local text)"""
    )
    command = "esclusa --config media.toml --pipelines media migrate --dry-run"
    assert "publicaciones (a table of another program)\n" in shop.run(command)


@pytest.mark.parametrize("id_type", ["INTEGER PRIMARY KEY", "INTEGER"])
def test_roll_back_on_sqlite(shop: Shop, id_type: str) -> None:
    path = shop.folder / "shop.db"
    with sqlite3.connect(path) as base:
        base.execute(
            f"""CREATE TABLE invoices (invoice_no {id_type}, email TEXT NOT NULL,
                amount TEXT NOT NULL, status TEXT, attempt_count INTEGER, next_attempt_at TEXT,
                locked_at TEXT, created_at TEXT)"""
        )
        row = "INSERT INTO invoices (invoice_no, email, amount) VALUES (1, 'eva@example.com', '80')"
        base.execute(row)
        before = base.execute("SELECT name, sql FROM sqlite_master").fetchall()
    base.close()
    store = f"sqlite:///{path}"
    shop.run("esclusa migrate --yes", ESCLUSA_STORE=store)
    shop.run("esclusa run invoices.send", ESCLUSA_STORE=store)
    with sqlite3.connect(path) as base:
        query = page_files()["roll_back_sqlite.sql"]
        for (statement,) in base.execute(query).fetchall():
            base.execute(statement)
        for column in ("fence", "leased_by", "last_error", "updated_at"):
            base.execute(f"ALTER TABLE invoices DROP COLUMN esclusa_{column}")
        after = base.execute("SELECT name, sql FROM sqlite_master").fetchall()
        assert [name for name, _ in after] == [name for name, _ in before] == ["invoices"]
        assert "esclusa" not in after[0][1]
        assert base.execute("SELECT status FROM invoices").fetchall() == [("sent",)]
    base.close()


def test_alembic_leaves_alone_what_esclusa_added(shop: Shop) -> None:
    """``include_object`` refuses every column and index that the table has now and had not."""
    names = """SELECT string_agg(kind || ':' || name, ' ') FROM (
        SELECT 'column' AS kind, attname AS name FROM pg_attribute
        WHERE attrelid = 'invoices'::regclass AND attnum > 0
        UNION ALL SELECT 'index', indexname FROM pg_indexes WHERE tablename = 'invoices'
    ) AS found"""
    before = set(shop.sql(names).split())
    shop.run("esclusa migrate --yes")
    include = runpy.run_path(str(shop.folder / "alembic_env.py"))["include_object"]
    after = set(shop.sql(names).split())
    assert len(after - before) == 6
    for found in after:
        kind, name = found.split(":")
        assert include(None, name, kind, True, None) is (found in before), found
        assert include(None, name, kind, True, object())  # declared in a model


@pytest.mark.skipif(
    FirestoreEmulator.missing() is not None, reason=FirestoreEmulator.missing() or ""
)
def test_roll_back_on_firestore(tmp_path: Path) -> None:
    example = Path(__file__).parents[1] / "examples" / "existing_collection.py"
    script = tmp_path / "roll_back_firestore.py"
    script.write_text(page_files()[script.name], encoding="utf-8")
    clean = {n: v for n, v in os.environ.items() if not n.startswith("ESCLUSA_")}
    with FirestoreEmulator() as emulator:
        environ = clean | {
            "FIRESTORE_EMULATOR_HOST": emulator.host,
            "GOOGLE_CLOUD_PROJECT": "shop",
            "ESCLUSA_STORE": "firestore://shop",
            "ESCLUSA_PIPELINES": f"{example}:app",
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FIRESTORE_EMULATOR_HOST", emulator.host)
            client = firestore.Client(project="shop")
        customers = client.collection("customers")
        given = {"email": "ana@example.com", "country": "CL", "vip": True}
        id = customers.add(given)[1].id
        commands = [["-m", "esclusa", "migrate", "--yes"]]
        commands += [["-m", "esclusa", "run", "customers.check"], [str(script)]]
        for command in commands:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=tmp_path,
                env=environ,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        assert customers.document(id).get().to_dict() == given
        assert [collection.id for collection in client.collections()] == ["customers"]
