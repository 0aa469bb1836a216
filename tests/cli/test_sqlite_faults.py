"""A SQLite file that cannot be written, or that is damaged."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.processes import Esclusa, get
from support.read_only import read_only

FRUIT = """
from esclusa import App, Attempt, Backoff, Lifecycle, Record, RunContext, To

class Apple(Record, table="apples", key="name"):
    name: str
    lifecycle = Lifecycle("new -> done")

app = App("fruit")

@app.stage(Apple, take="new", retry=Backoff(tries=None))
async def pick(apple: Apple, at: Attempt) -> To:
    return To("done")

@app.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Apple(name=f"apple-{n:05}") for n in range(3000)])
"""
READS = [
    ("status",),
    ("kinds",),
    ("records", "apples", "--limit", "5"),
    ("why", "apples", "apple-00001"),
    ("show", "apples", "apple-00001"),
    ("runs",),
    ("cycles",),
    ("budgets",),
    ("workers",),
    ("leases",),
    ("alerts",),
    ("rates",),
    ("audit",),
]


@pytest.fixture
def esclusa(tmp_path: Path) -> Esclusa:
    """The pipeline, on a store in a folder of its own with 3000 records."""
    (tmp_path / "fruit.py").write_text(FRUIT)
    (tmp_path / "data").mkdir()
    made = Esclusa(
        tmp_path,
        ESCLUSA_STORE=f"sqlite:///{tmp_path / 'data' / 'esclusa.db'}",
        ESCLUSA_PIPELINES="fruit.py:app",
    )
    filled = made.call("run", "fruit.fill")
    assert filled.returncode == 0, filled.stderr
    return made


def leave(esclusa: Esclusa, *, shared: bool) -> None:
    """Leave the files as a killed process does: some of the data is only in the WAL."""
    data = esclusa.folder / "data"
    with closing(sqlite3.connect(data / "esclusa.db")) as open_file:
        open_file.execute("SELECT count(*) FROM apples").fetchall()  # keeps the WAL from its end
        assert esclusa.call("run", "fruit.pick", "--limit", "10").returncode == 0
        shutil.copytree(data, esclusa.folder / "copy")
    shutil.rmtree(data)
    (esclusa.folder / "copy").rename(data)
    assert (data / "esclusa.db-wal").stat().st_size
    if not shared:
        (data / "esclusa.db-shm").unlink()


@pytest.mark.parametrize("files", ["closed", "wal and shm", "wal"])
def test_a_read_only_store_can_be_read(esclusa: Esclusa, files: str) -> None:
    if files == "closed":
        assert esclusa.call("run", "fruit.pick", "--limit", "10").returncode == 0
    else:
        leave(esclusa, shared=files == "wal and shm")
    with read_only(esclusa.folder / "data"):
        for command in READS:
            done = esclusa.call(*command)
            assert done.returncode == 0, (command, done.stderr)
        assert esclusa.states("apples") == {"done": 10, "new": 2990}


@pytest.mark.parametrize("files", ["closed", "wal and shm"])
def test_commands_that_write_say_that_the_store_is_read_only(esclusa: Esclusa, files: str) -> None:
    if files != "closed":
        leave(esclusa, shared=True)
    with read_only(esclusa.folder / "data"):
        for command in (
            ("run", "fruit.pick"),
            ("worker",),
            ("serve", "--port", "0", "--worker"),
            ("pause", "fruit.fill"),
            ("move", "apples", "apple-00001", "--to", "done", "--yes"),
        ):
            done = esclusa.call(*command)
            assert done.returncode == 4, (command, done.stdout, done.stderr)
            assert "esclusa.db is read-only" in done.stderr, command
            assert "Traceback" not in done.stderr, command
        done = esclusa.call("doctor")
        assert done.returncode == 4
        assert "fail  data: " in done.stdout
        assert "esclusa.db is read-only" in done.stdout
        assert "ok    schema: up to date" in done.stdout


def test_a_server_on_a_read_only_store_answers_reads_and_is_not_ready(esclusa: Esclusa) -> None:
    with read_only(esclusa.folder / "data"), esclusa.start("serve", "--port", "0") as server:
        address = server.address()
        assert get(f"{address}/api/records/apples?limit=5")[0] == 200
        status, answer = get(f"{address}/readyz")
        assert status == 503
        assert {c["name"] for c in answer["checks"] if c["verdict"] == "fail"} == {"data"}
        assert server.stop() == 0


def damage(esclusa: Esclusa) -> None:
    """Overwrite the pages with one record in the middle of its table and index."""
    path = esclusa.folder / "data" / "esclusa.db"
    body, size = bytearray(path.read_bytes()), 4096
    pages = {
        at // size for at in range(0, len(body), size) if b"apple-01500" in body[at : at + size]
    }
    assert pages
    for page in pages:
        body[page * size : page * size + 64] = b"\xff" * 64
    path.write_bytes(body)


@pytest.mark.promise(1)
def test_the_doctor_finds_a_damaged_page(esclusa: Esclusa) -> None:
    assert "ok    data: no fault was found" in esclusa.call("doctor").stdout
    damage(esclusa)
    done = esclusa.call("doctor")
    assert done.returncode == 4, done.stdout
    assert "fail  data: " in done.stdout
    assert "esclusa.db is damaged" in done.stdout


def test_a_server_that_met_the_damage_is_not_ready(esclusa: Esclusa) -> None:
    damage(esclusa)
    with esclusa.start("serve", "--port", "0") as server:
        address = server.address()
        assert get(f"{address}/api/records/apples/apple-01500")[0] >= 500
        status, answer = get(f"{address}/readyz")
        assert status == 503
        assert {c["name"]: c["text"] for c in answer["checks"] if c["verdict"] == "fail"} == {
            "data": "it has faults"
        }
        assert server.stop() == 0
