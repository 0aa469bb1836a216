"""Ingest: tenders are written while others are read, each as a whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import asyncpg
import pytest
from pipelines.tenders.conftest import TendersTrial

from esclusa.engine.runs import RunContext
from esclusa.model.errors import StoreUnavailable
from esclusa.pipelines.tenders.overlap import AT_ONCE, overlapping_writes

API = "/servicios/v1/publico/licitaciones.json"


class SlowStore:
    """A store whose writes of tenders wait until they are let through, or fail."""

    def __init__(self, store: Any) -> None:
        self._insert = store.insert_if_new
        self._open = asyncio.Event()
        self._refused: set[str] = set()
        # The codes whose writes have begun and not ended, and the most that there were.
        self.writing: set[str] = set()
        self.most = 0
        store.insert_if_new = self.insert_if_new

    def open(self) -> None:
        self._open.set()

    def refuse(self, *codes: str) -> None:
        """Let the writes of these codes fail at once."""
        self._refused |= set(codes)

    async def insert_if_new(self, groups: Any) -> Any:
        code = getattr(groups[0].first, "codigo_externo", None)
        if code is None:
            return await self._insert(groups)
        if code in self._refused:
            raise StoreUnavailable(f"{code} is refused")
        self.writing.add(code)
        self.most = max(self.most, len(self.writing))
        try:
            await self._open.wait()
            return await self._insert(groups)
        finally:
            self.writing.discard(code)


@pytest.fixture
def slow(trial: TendersTrial) -> SlowStore:
    return SlowStore(trial.runtime.store)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def requested(trial: TendersTrial) -> list[str]:
    """Return the codes whose details were requested, in order."""
    return [call["query"]["codigo"] for call in trial.chile.calls if "codigo" in call["query"]]


async def written(trial: TendersTrial, place: Any, devices: int) -> set[str]:
    """Return the codes in the registry; each has a tender, an event and all deliveries."""
    registry = await place.rows("licitacion_registry", "codigo_externo")
    codes = {row["codigo_externo"] for row in registry}
    assert {row["codigo_externo"] for row in await place.rows("licitaciones", "id")} == codes
    events = await place.rows("notification_events", "id")
    assert {row["licitacion_id"] for row in events} == codes
    found = [(d.notification_event_id, d.installation_id) for d in await trial.deliveries()]
    assert len(found) == len(set(found)) == devices * len(codes)
    return codes


async def devices(trial: TendersTrial, names: Iterable[str] = "ab") -> None:
    for name in names:
        await trial.device(name)


async def test_the_next_details_are_read_while_tenders_are_written(
    trial: TendersTrial, slow: SlowStore, place: Any
) -> None:
    """As many writes as may be are under way, and one tender more is read."""
    await devices(trial)
    codes = await trial.publish(6)
    running = asyncio.create_task(trial.run("ingest"))
    await until(lambda: len(requested(trial)) == AT_ONCE + 1)
    await asyncio.sleep(0.1)
    assert requested(trial) == codes[: AT_ONCE + 1]
    assert slow.writing == set(codes[:AT_ONCE])
    assert await written(trial, place, 2) == set()
    slow.open()
    run = await running
    assert (run.outcome, run.message) == ("ok", None)
    assert run.named_counters == {"found": 6, "known": 0, "new": 6, "deliveries": 12, "left": 0}
    assert requested(trial) == codes
    assert slow.most == AT_ONCE
    assert await written(trial, place, 2) == set(codes)
    again = await trial.run("ingest")
    assert again.named_counters == {"found": 6, "known": 6, "new": 0, "deliveries": 0, "left": 0}
    assert await written(trial, place, 2) == set(codes)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_tender_that_waits_for_a_lock_does_not_stop_the_others(
    trial: TendersTrial, place: Any
) -> None:
    """Another program claims its code, and then does not keep it."""
    await devices(trial)
    first, *others = await trial.publish(5)
    other_program = await asyncpg.connect(place.url)
    transaction = other_program.transaction()
    await transaction.start()
    await other_program.execute(
        "INSERT INTO licitacion_registry (codigo_externo, licitacion_id) VALUES ($1, 'x')", first
    )
    running = asyncio.create_task(trial.run("ingest"))
    async with asyncio.timeout(20):
        while len(await place.rows("licitacion_registry", "codigo_externo")) < len(others):
            await asyncio.sleep(0.01)
    assert not running.done()
    assert await written(trial, place, 2) == set(others)
    await transaction.rollback()
    run = await running
    await other_program.close()
    assert (run.outcome, run.counters["new"], run.counters["deliveries"]) == ("ok", 5, 10)
    assert await written(trial, place, 2) == {first, *others}


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_device_that_another_program_renames_meanwhile_gets_nothing(
    trial: TendersTrial, place: Any
) -> None:
    """Its old id is no target any more when the foreign keys of the tender are checked."""
    await devices(trial, "abc")
    codes = await trial.publish(3)
    other_program = await asyncpg.connect(place.url)
    transaction = other_program.transaction()
    await transaction.start()
    await other_program.execute(
        "UPDATE device_installations SET installation_id = 'n' WHERE installation_id = 'b'"
    )
    running = asyncio.create_task(trial.run("ingest"))
    while not await place._run("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
        assert not running.done()
        await asyncio.sleep(0.01)
    await transaction.commit()
    await other_program.close()
    run = await running
    assert (run.outcome, run.counters["new"], run.counters["deliveries"]) == ("ok", 3, 6)
    assert await written(trial, place, 2) == set(codes)
    assert {d.installation_id for d in await trial.deliveries()} == {"a", "c"}


async def test_a_write_that_fails_ends_the_run_and_no_other_write(
    trial: TendersTrial, slow: SlowStore, place: Any
) -> None:
    await devices(trial)
    codes = await trial.publish(6)
    slow.refuse(codes[1])
    running = asyncio.create_task(trial.run("ingest"))
    await until(lambda: len(requested(trial)) >= AT_ONCE + 1)
    await asyncio.sleep(0.1)
    assert not running.done()  # it waits for the write that is under way
    slow.open()
    run = await running
    assert (run.outcome, run.message) == ("error", f"StoreUnavailable: {codes[1]} is refused")
    assert await written(trial, place, 2) == {codes[0]}
    assert (run.counters["new"], run.counters["deliveries"]) == (1, 2)
    assert len(requested(trial)) == AT_ONCE + 1
    slow._refused.clear()
    assert (await trial.run("ingest")).counters["new"] == 5
    assert await written(trial, place, 2) == set(codes)


async def test_a_write_that_fails_last_is_reported_too(
    trial: TendersTrial, slow: SlowStore, place: Any
) -> None:
    codes = await trial.publish(3)
    slow.open()
    slow.refuse(codes[2])
    run = await trial.run("ingest")
    assert (run.outcome, run.message) == ("error", f"StoreUnavailable: {codes[2]} is refused")
    assert run.counters["new"] == 2


async def test_what_was_read_is_written_when_the_quota_is_used_up(
    trial: TendersTrial, slow: SlowStore, place: Any
) -> None:
    await devices(trial)
    codes = await trial.publish(4)
    trial.chile.quota = 3
    running = asyncio.create_task(trial.run("ingest"))
    await until(lambda: len(requested(trial)) == 3)
    assert len(slow.writing) == 2
    slow.open()
    run = await running
    assert (run.outcome, run.counters["new"]) == ("blocked", 2)
    assert await written(trial, place, 2) == set(codes[:2])


async def test_a_stop_waits_for_the_writes_under_way(
    trial: TendersTrial, slow: SlowStore, place: Any
) -> None:
    """What was not written is left: the next run reads yesterday's list again."""
    await devices(trial)
    slow.open()
    assert (await trial.run("ingest")).counters["found"] == 0
    codes = await trial.publish(6)
    await trial.later(86400)
    slow._open.clear()
    running = asyncio.create_task(trial.run("ingest"))
    await until(lambda: len(requested(trial)) == AT_ONCE + 1)
    current: RunContext = trial.runtime.engine.runner.active("tenders.ingest")
    trial.runtime.engine.runner.stop_run(current, "test")
    await asyncio.sleep(0.05)
    assert not running.done()
    slow.open()
    run = await running
    done = codes[: AT_ONCE + 1]  # the last of them was read before the stop
    assert run.counters["new"] == len(done)
    assert await written(trial, place, 2) == set(done)
    assert "caught_up" not in run.counters
    run = await trial.run("ingest")
    assert (run.counters["new"], run.counters["caught_up"]) == (6 - len(done), 1)
    assert await written(trial, place, 2) == set(codes)


async def test_a_cancelled_run_leaves_nothing_half_written(
    trial: TendersTrial, slow: SlowStore, place: Any
) -> None:
    await devices(trial)
    codes = await trial.publish(4)
    running = asyncio.create_task(trial.run("ingest"))
    await until(lambda: len(slow.writing) == AT_ONCE)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert slow.writing == set()
    assert await written(trial, place, 2) == set()
    slow.open()
    assert (await trial.run("ingest")).counters["new"] == 4
    assert await written(trial, place, 2) == set(codes)


# the writes alone


async def fail() -> None:
    raise StoreUnavailable("down")


async def run_block(*functions: Any, error: Exception | None = None) -> None:
    """Start these writes, each before the next begins, then raise the error."""
    async with overlapping_writes() as writes:
        for write in functions:
            await writes.start(write)
            await asyncio.sleep(0)
        if error is not None:
            raise error


async def test_the_error_of_a_write_comes_before_that_of_the_block() -> None:
    """It happened first: the write was begun before the block went on."""
    with pytest.raises(StoreUnavailable, match="down"):
        await run_block(fail, error=ValueError("of the block"))
    with pytest.raises(ValueError, match="of the block"):
        await run_block(error=ValueError("of the block"))


async def test_no_write_is_begun_after_one_has_failed() -> None:
    begun: list[str] = []

    async def note() -> None:
        begun.append("late")

    with pytest.raises(StoreUnavailable, match="down"):
        await run_block(fail, note)
    assert begun == []
