"""Workers with different clock offsets take each other's leases: the second one is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.processes import Esclusa

EXAMPLE = Path(__file__).parents[2] / "examples" / "hello.py"


@pytest.fixture
def esclusa(tmp_path: Path) -> Esclusa:
    made = Esclusa(tmp_path, ESCLUSA_PIPELINES=f"{EXAMPLE}:app", ESCLUSA_LEASE_SECONDS="5")
    assert made.call("migrate").returncode == 0
    return made


@pytest.mark.promise(3)
@pytest.mark.parametrize("offset", ["3600", "-3600"])
def test_what_would_handle_records_by_another_clock_is_refused(
    esclusa: Esclusa, offset: str
) -> None:
    with esclusa.start("worker") as worker:
        worker.until_logged("runs 1 cycles")
        for command in (["worker"], ["run", "hello.greet"], ["tick"], ["serve", "--worker"]):
            refused = esclusa.call(*command, ESCLUSA_CLOCK_OFFSET_SECONDS=offset, ESCLUSA_PORT="0")
            assert refused.returncode == 3, (command, refused.stderr)
            assert f"ESCLUSA_CLOCK_OFFSET_SECONDS is {offset}, but worker" in refused.stderr
            assert "Traceback" not in refused.stderr
        [alive] = [w for w in esclusa.json("workers")["items"] if w["alive"]]
        assert alive["pid"] == worker.pid
        # Reading and operating is not handling records.
        assert esclusa.call("status", ESCLUSA_CLOCK_OFFSET_SECONDS=offset).returncode == 0
        doctor = esclusa.call("doctor", ESCLUSA_CLOCK_OFFSET_SECONDS=offset)
        assert doctor.returncode != 0
        assert f"ESCLUSA_CLOCK_OFFSET_SECONDS is {offset}, but worker" in doctor.stdout
        with esclusa.start("serve", "--port", "0", ESCLUSA_CLOCK_OFFSET_SECONDS=offset) as server:
            server.address()
            assert server.events(f"ESCLUSA_CLOCK_OFFSET_SECONDS is {offset}, but worker")
            assert server.stop() == 0
        assert worker.stop() == 0


def test_workers_with_the_same_offset_work_side_by_side(esclusa: Esclusa) -> None:
    with (
        esclusa.start("worker", ESCLUSA_CLOCK_OFFSET_SECONDS="60") as first,
        esclusa.start("worker", ESCLUSA_CLOCK_OFFSET_SECONDS="60") as second,
    ):
        first.until_logged("runs 1 cycles")
        second.until_logged("runs 1 cycles")
        assert first.stop() == 0
        assert second.stop() == 0
    # A worker that has ended is not compared.
    with esclusa.start("worker") as third:
        third.until_logged("runs 1 cycles")
        assert third.stop() == 0


def test_workers_of_a_version_that_wrote_no_offset_are_not_compared(
    esclusa: Esclusa, tmp_path: Path
) -> None:
    with esclusa.start("worker") as older:
        older.until_logged("runs 1 cycles")
        [store] = tmp_path.rglob("*.db")
        with closing(sqlite3.connect(store)) as database:
            database.execute("ALTER TABLE esclusa_workers DROP COLUMN clock_offset")
            database.commit()
        with esclusa.start("worker", ESCLUSA_CLOCK_OFFSET_SECONDS="60") as newer:
            newer.until_logged("runs 1 cycles")
            assert newer.stop() == 0
        assert older.stop() == 0
    assert len(esclusa.json("workers", "--all")["items"]) == 2
