"""The examples and the demo work as a new user runs them: the command on a SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.cloud import firestore
from support.firestore import FirestoreEmulator

ROOT = Path(__file__).parents[1]


def esclusa(
    folder: Path, example: str, *argv: str, codes: tuple[int, ...] = (0,), **environ: str
) -> Any:
    """Run the command in the folder; return its JSON output."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ESCLUSA_") and name != "PORT"
    }
    done = subprocess.run(
        [sys.executable, "-m", "esclusa", *argv, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**clean, "ESCLUSA_PIPELINES": f"{ROOT / 'examples' / example}:app", **environ},
    )
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout) if done.stdout else None


def states(folder: Path, example: str, kind: str) -> dict[str, str]:
    return {r["id"]: r["status"] for r in esclusa(folder, example, "records", kind)["items"]}


def test_hello(tmp_path: Path) -> None:
    first = esclusa(tmp_path, "hello.py", "run", "hello.greet", codes=(5,))
    assert first["counters"] == {"taken": 5, "greeted": 3, "retried": 1, "failed": 1}
    why = esclusa(tmp_path, "hello.py", "why", "greetings", "alan")["answer"]
    assert "attempt 1 of 3 failed (timeout: alan did not answer)" in why
    for seconds in ("60", "120"):  # shift the store's clock instead of waiting for the backoff
        esclusa(tmp_path, "hello.py", "run", "hello.greet", ESCLUSA_CLOCK_OFFSET_SECONDS=seconds)
    assert states(tmp_path, "hello.py", "greetings") == {
        "ada": "greeted",
        "alan": "greeted",
        "edsger": "greeted",
        "grace": "failed",
        "katherine": "greeted",
    }
    history = esclusa(tmp_path, "hello.py", "show", "greetings", "alan")["history"]
    moves = [*("greeting", "waiting") * 2, "greeting", "greeted"]
    assert [step["to"] for step in history] == moves
    assert esclusa(tmp_path, "hello.py", "dead-letters")["items"][0]["error_type"] == "moved_away"


def test_existing_table_in_30_lines(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "existing_table.py").read_text()
    assert len(text.splitlines()) <= 30
    rows = [(1, "ana@example.com", "CL"), (2, "not an address", "CL"), (3, None, "PE")]
    with sqlite3.connect(tmp_path / "esclusa.db") as base:
        base.execute(
            "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, email TEXT, country TEXT)"
        )
        base.executemany("INSERT INTO customers VALUES (?, ?, ?)", rows)
    base.close()

    # Only `esclusa migrate` changes a table of another program.
    refused = esclusa(tmp_path, "existing_table.py", "run", "customers.check", codes=(3,))
    assert refused is None
    esclusa(tmp_path, "existing_table.py", "migrate", "--yes")
    ran = esclusa(tmp_path, "existing_table.py", "run", "customers.check", codes=(5,))
    assert ran["counters"] == {"taken": 2, "valid": 1, "invalid": 1}
    assert states(tmp_path, "existing_table.py", "customers") == {
        "1": "valid",
        "2": "invalid",
        "3": "new",
    }
    why = esclusa(tmp_path, "existing_table.py", "why", "customers", "3")["answer"]
    assert "takes only records whose email is not null" in why
    with sqlite3.connect(tmp_path / "esclusa.db") as base:
        found = base.execute("SELECT customer_id, email, country FROM customers ORDER BY 1")
        assert found.fetchall() == rows
        # The other program inserts as before.
        base.execute("INSERT INTO customers (email) VALUES ('eva@example.com')")
    base.close()
    ran = esclusa(tmp_path, "existing_table.py", "run", "customers.check")
    assert ran["counters"] == {"taken": 1, "valid": 1}


@pytest.fixture
def emulator() -> Iterator[FirestoreEmulator]:
    if reason := FirestoreEmulator.missing():
        pytest.skip(reason)
    emulator = FirestoreEmulator()
    emulator.start()
    yield emulator
    emulator.stop()


def test_existing_collection_in_30_lines(tmp_path: Path, emulator: FirestoreEmulator) -> None:
    text = (ROOT / "examples" / "existing_collection.py").read_text()
    assert len(text.splitlines()) <= 30
    store = {"ESCLUSA_STORE": "firestore://examples", "FIRESTORE_EMULATOR_HOST": emulator.host}

    def call(*argv: str, codes: tuple[int, ...] = (0,)) -> Any:
        return esclusa(tmp_path, "existing_collection.py", *argv, codes=codes, **store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRESTORE_EMULATOR_HOST", emulator.host)
        customers = firestore.Client(project="examples").collection("customers")
    fields = [{"email": "ana@example.com", "vip": True}, {"email": "not an address"}]
    ids = [customers.add(each)[1].id for each in fields]
    call("migrate", "--yes")
    ran = call("run", "customers.check", codes=(5,))
    assert ran["counters"] == {"taken": 2, "valid": 1, "invalid": 1}
    ana = customers.document(ids[0]).get().to_dict()
    assert (ana["email"], ana["vip"], ana["check_status"]) == ("ana@example.com", True, "valid")
    # The other program adds documents as before.
    later = customers.add({"email": "eva@example.com"})[1].id
    left = call("status")["unadopted"]
    assert left == [{"table": "customers", "count": 1, "examples": [f"customers/{later}"]}]
    found = [check for check in call("doctor")["checks"] if check["name"] == "adoption"]
    assert [(check["verdict"], later in check["text"]) for check in found] == [("warn", True)]
    assert call("run", "customers.check")["counters"] == {"taken": 1, "valid": 1}
    assert call("status")["unadopted"] == []


def test_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "esclusa", "demo", "--exit", "--port", "0"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    for pipeline in ("replies", "tenders", "media", "documents"):
        assert f"\n{pipeline}\n" in done.stderr
    assert "Traceback" not in done.stderr
