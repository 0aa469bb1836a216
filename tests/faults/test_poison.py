"""Handlers that end their process: the poison records end, and no other record does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import poison_worker
from faults.poison_worker import TRIES, Image, Page, Row

from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.model.record import Record
from esclusa.model.system_records import DeadLetter

TESTS = Path(__file__).parents[1]
KINDS: tuple[type[Record], ...] = (Image, Page, Row)

pytestmark = pytest.mark.promise(7)


class PoisonHarness:
    """A store with records, and worker processes that are started again when they end."""

    def __init__(self, store: Any, url: str, folder: Path, **environment: str) -> None:
        self.store, self.url = store, url
        self.environment = environment
        self.calls = folder / "calls.txt"
        self.calls.touch()
        self.log = folder / "workers.log"
        self.ended: list[int] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.engine = Engine(
            store, [poison_worker.app.bind(poison_worker.app.settings())], LocalArtifacts(folder)
        )
        self.records = self.engine.records

    async def fill(self, records: Sequence[Record]) -> None:
        await self.store.migrate(self.engine.all_kinds, self.engine.all_stages)
        await self.store.use(self.engine.all_kinds, self.engine.all_stages)
        await self.store.insert(records)

    def start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(TESTS / "faults" / "poison_worker.py"), self.url],
                env=os.environ | {"CALLS": str(self.calls), "PYTHONPATH": path} | self.environment,
                stdout=log,
                stderr=log,
            )

    async def drain(self, *, workers: int = 1, crashes: int, seconds: float = 400) -> None:
        """Keep so many workers running until all records are done or failed."""
        self.processes = [self.start() for _ in range(workers)]
        try:
            async with asyncio.timeout(seconds):
                while await self.left():
                    for n, process in enumerate(self.processes):
                        if (code := process.poll()) is not None:
                            self.ended.append(code)
                            self.processes[n] = self.start()
                    assert len(self.ended) <= crashes, self.report()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{await self.left()} are left; {self.report()}") from None
        for process in self.processes:
            process.terminate()
            code = await asyncio.to_thread(process.wait, 30)
            assert code in (0, -signal.SIGTERM), self.report()  # it may have just started

    def report(self) -> str:
        return (
            f"the workers ended with {self.ended}; their calls:\n{self.calls.read_text()[-6000:]}"
            f"\nand their log:\n{self.log.read_text()[-3000:]}"
        )

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    async def left(self) -> int:
        counts = [
            (await self.records.count(kind, {"status": state}))[0]
            for kind in KINDS
            for state in ("new", "working")
        ]
        return sum(counts)

    def count_calls(self) -> Counter[str]:
        """How often a handler began with each record; a later attempt must have been alone.

        Only a crash alone counts, and the poison records do nothing but crash.
        """
        calls: Counter[str] = Counter()
        running: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for line in self.calls.read_text().splitlines():
            event, name, number, process = line.split()
            if event == "end":
                del running[process][name]
                continue
            calls[name] += 1
            running[process][name] = int(number)
            alone = all(number == 1 for number in running[process].values())
            assert alone or len(running[process]) == 1, self.report()
        return calls

    async def check(self, poison: Sequence[str]) -> None:
        """Check that the poison records ended with honest attempts, and the others are done."""
        calls = self.count_calls()
        letters = (await self.records.find(DeadLetter)).items
        assert sorted(letter.payload["name"] for letter in letters) == sorted(poison)
        assert {(letter.error_type, letter.attempts) for letter in letters} == {("crash", TRIES)}
        for kind in KINDS:
            async for record in self.records.each(kind):
                found = (record.name, record.status, record.attempts, record.leased_by)
                if record.name in poison:
                    assert found == (record.name, "failed", TRIES, None), self.report()
                    assert record.last_error is not None
                    assert record.last_error["type"] == "crash"
                    # Alone for each attempt, and at most twice more before it was found.
                    assert TRIES <= calls[record.name] <= TRIES + 2, self.report()
                else:
                    assert found == (record.name, "done", 1, None), self.report()
                    # New, in a small group, alone.
                    assert 1 <= calls[record.name] <= 3, self.report()


@asynccontextmanager
async def poison_harness(
    database: Any, folder: Path, records: Sequence[Record], **environment: str
) -> AsyncIterator[PoisonHarness]:
    store = database.store()
    await store.open()
    harness = PoisonHarness(store, database.url, folder, **environment)
    try:
        await harness.fill(records)
        yield harness
    finally:
        harness.end()
        await store.close()


def most_crashes(poison: Sequence[str]) -> int:
    return len(poison) * (TRIES + 2)


sqlite_only = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


async def test_one_record_of_thirty_kills_its_process(empty_database: Any, tmp_path: Path) -> None:
    await one_of_thirty(empty_database, tmp_path, "kill", -signal.SIGKILL)


@sqlite_only
@pytest.mark.parametrize(("crash", "code"), [("exit", 3), ("segfault", -signal.SIGSEGV)])
async def test_one_record_of_thirty_ends_its_process(
    empty_database: Any, tmp_path: Path, crash: str, code: int
) -> None:
    await one_of_thirty(empty_database, tmp_path, crash, code)


async def one_of_thirty(database: Any, folder: Path, crash: str, code: int) -> None:
    records, poison = [Image(name=f"i{n:02}") for n in range(30)], ["i07"]
    environment = {"POISON": " ".join(poison), "CRASH": crash}
    async with poison_harness(database, folder, records, **environment) as harness:
        await harness.drain(crashes=most_crashes(poison))
        assert set(harness.ended) == {code}
        await harness.check(poison)


@pytest.mark.parametrize("provider", ["sqlite", "postgres"], indirect=True)
async def test_five_records_of_sixty_kill_their_process(
    empty_database: Any, tmp_path: Path
) -> None:
    records = [Image(name=f"i{n:02}") for n in range(60)]
    poison = ["i03", "i04", "i17", "i31", "i59"]
    environment = {"POISON": " ".join(poison), "CRASH": "kill"}
    async with poison_harness(empty_database, tmp_path, records, **environment) as harness:
        await harness.drain(crashes=most_crashes(poison))
        await harness.check(poison)


@sqlite_only
async def test_poison_in_one_stage_ends_no_record_of_another(
    empty_database: Any, tmp_path: Path
) -> None:
    records: list[Record] = [Image(name=f"i{n:02}") for n in range(40)]
    records += [Page(name=f"p{n:02}") for n in range(40)]
    poison = ["p05", "p21"]
    async with poison_harness(
        empty_database, tmp_path, records, POISON=" ".join(poison)
    ) as harness:
        await harness.drain(crashes=most_crashes(poison))
        await harness.check(poison)


@sqlite_only
async def test_poison_in_a_batch_ends_no_other_record_of_it(
    empty_database: Any, tmp_path: Path
) -> None:
    records, poison = [Row(name=f"r{n:02}") for n in range(60)], ["r02", "r33"]
    async with poison_harness(
        empty_database, tmp_path, records, POISON=" ".join(poison)
    ) as harness:
        await harness.drain(crashes=most_crashes(poison))
        await harness.check(poison)


@pytest.mark.parametrize("provider", ["postgres"], indirect=True)
async def test_poison_in_all_stages_of_two_workers(empty_database: Any, tmp_path: Path) -> None:
    records: list[Record] = []
    for n in range(30):
        records += [Image(name=f"i{n:02}"), Page(name=f"p{n:02}"), Row(name=f"r{n:02}")]
    poison = ["i11", "p04", "r25"]
    environment = {"POISON": " ".join(poison), "CRASH": "kill"}
    async with poison_harness(empty_database, tmp_path, records, **environment) as harness:
        await harness.drain(workers=2, crashes=most_crashes(poison))
        await harness.check(poison)
