"""A queue of settlements: its pace, and what happens to a settlement that cannot be written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from conformance.kinds import Job
from support.shifted_time import run_shifted

from esclusa.engine.settlement_queue import SettlementQueue
from esclusa.engine.settler import Settler
from esclusa.model.errors import StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.settlement import Locked, Rejected, Renewal, Settled, Settlement, Verdict
from esclusa.ports.artifacts import KeptArtifact


class FakeStore:
    """Writes everything at once, except what a test names.

    ``locked``: ids of rows that another program has locked. ``poison``: ids that make their whole
    call fail. ``frozen``: ids whose lease cannot be renewed. ``down``: nothing is written.
    """

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.poison: set[str] = set()
        self.frozen: set[str] = set()
        self.down = False
        self.takes = 0.0
        self.calls: list[tuple[float, int]] = []
        self.sent: Counter[str] = Counter()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        ids = [settlement.ref.id for settlement in settlements]
        self.calls.append((asyncio.get_running_loop().time(), len(ids)))
        self.sent.update(ids)
        await asyncio.sleep(self.takes)
        if self.down or self.poison & set(ids):
            raise StoreUnavailable("timed out")
        return [
            Locked(s.ref, f"{s.ref} is locked") if s.ref.id in self.locked else Settled(s.ref)
            for s in settlements
        ]

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        if self.down or self.frozen & {renewal.ref.id for renewal in renewals}:
            raise StoreUnavailable("timed out")
        return {renewal.ref for renewal in renewals}


class Files:
    async def sync(self, kept: Sequence[KeptArtifact]) -> None: ...


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, dict[str, Any]]] = []

    def event(self, level: str, message: str, **fields: Any) -> None:
        self.seen.append((level, message, fields))


class Verdicts:
    """A receiver that notes when each verdict came."""

    def __init__(self) -> None:
        self.by_id: dict[str, tuple[type[Verdict], float]] = {}
        self.times_aside = 0

    def written(self, verdicts: list[tuple[Any, Settlement, Verdict]]) -> None:
        now = asyncio.get_running_loop().time()
        for _, settlement, verdict in verdicts:
            assert settlement.ref.id not in self.by_id
            self.by_id[settlement.ref.id] = type(verdict), now

    def put_aside(self) -> None:
        self.times_aside += 1

    def of(self, verdict: type[Verdict]) -> set[str]:
        return {id for id, (type, _) in self.by_id.items() if type is verdict}


def settlement(id: str) -> Settlement:
    return Settlement(Ref(Job.kind, id), "done", ("working",), 1)


class World:
    """One queue on a fake store; its clock starts at 0."""

    def __init__(self, batch: int = 500) -> None:
        self.store, self.events, self.verdicts = FakeStore(), Events(), Verdicts()
        self.settler = Settler(
            self.store,  # type: ignore[arg-type]
            Files(),  # type: ignore[arg-type]
            self.events,  # type: ignore[arg-type]
            batch=batch,
            lease=60,
        )
        self.settler.start()
        self.queue: SettlementQueue = self.settler.queue("jobs.work")
        self._start = asyncio.get_running_loop().time()

    def add(self, *ids: str, kept: Sequence[KeptArtifact] = ()) -> None:
        for id in ids:
            self.queue.add(settlement(id), self.verdicts, None, kept)

    @property
    def calls(self) -> list[tuple[float, int]]:
        return [(round(at - self._start, 4), count) for at, count in self.store.calls]

    def seconds_of(self, id: str) -> float:
        return self.verdicts.by_id[id][1] - self._start


def names(count: int, prefix: str = "j") -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


# pace


@pytest.mark.parametrize(
    ("first", "files", "next_at"),
    [(7, False, 0.001), (8, False, 0.02), (50, False, 0.02), (7, True, 0.001), (8, True, 0.1)],
)
def test_the_batch_after_a_large_one_waits_for_more(
    first: int, files: bool, next_at: float
) -> None:
    """Up to 7 settlements: the next batch is written at once. More: 20 ms after, with files 100."""

    async def main() -> None:
        world = World()
        world.store.takes = 0.001
        world.add(*names(first), kept=[KeptArtifact("memory:a")] if files else [])
        await asyncio.sleep(0.0005)
        world.add("a")
        await asyncio.sleep(0.0115)
        world.add("b")
        await asyncio.sleep(1)
        if next_at == 0.001:
            assert world.calls == [(0.0, first), (0.001, 1), (0.012, 1)]
        else:
            assert world.calls == [(0.0, first), (next_at, 2)]
        await world.settler.stop()

    run_shifted(main())


def test_a_caller_that_waits_is_not_kept_waiting() -> None:
    async def main() -> None:
        world = World()
        world.add(*names(20))
        await asyncio.sleep(0.001)
        world.add("a")
        world.queue.hurry()
        await asyncio.sleep(1)
        assert world.calls == [(0.0, 20), (0.001, 1)]

    run_shifted(main())


def test_a_full_batch_is_written_without_waiting() -> None:
    async def main() -> None:
        world = World(batch=10)
        world.add(*names(25))
        await asyncio.sleep(1)
        assert world.calls == [(0.0, 10), (0.0, 10), (0.0, 5)]

    run_shifted(main())


def test_a_store_that_is_down_is_asked_with_growing_pauses_and_nothing_is_lost() -> None:
    async def main() -> None:
        world = World()
        world.store.down = True
        world.add(*names(30))
        await asyncio.sleep(60)
        pauses = [round(b - a, 3) for (a, _), (b, _) in zip(world.calls, world.calls[1:])]  # noqa: B905
        assert pauses[:8] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
        assert set(pauses[8:]) == {5.0}
        assert {count for _, count in world.calls} == {30}  # no reason to take it apart
        world.store.down = False
        await asyncio.sleep(6)
        assert world.verdicts.of(Settled) == set(names(30))

    run_shifted(main())


# what cannot be written


def test_a_locked_row_waits_alone_and_is_written_when_the_lock_goes() -> None:
    async def main() -> None:
        world = World()
        world.store.locked = {"j3"}
        world.add(*names(8))
        await asyncio.sleep(0.1)
        assert world.verdicts.of(Settled) == set(names(8)) - {"j3"}
        assert (world.queue.aside(world.verdicts), world.queue.unwritten) == (1, 1)
        assert world.verdicts.times_aside == 1
        world.add(*names(8, "later"))
        await asyncio.sleep(0.1)
        assert set(names(8, "later")) <= world.verdicts.of(Settled)
        await world.queue.flush()  # does not wait for the lock
        await asyncio.sleep(78)
        world.store.locked.clear()
        await asyncio.sleep(2)
        assert world.verdicts.of(Settled) == {*names(8), *names(8, "later")}
        assert (world.queue.aside(world.verdicts), world.queue.unwritten) == (0, 0)
        named = [
            (level, message)
            for level, message, fields in world.events.seen
            if fields.get("record") == str(Ref(Job.kind, "j3"))
        ]
        assert [level for level, _ in named] == ["warning"] * 3 + ["info"]  # at 0, 30 and 60 s
        assert "j3 is locked" in named[0][1]

    run_shifted(main())


def test_many_locked_rows_are_reported_together() -> None:
    async def main() -> None:
        world = World()
        world.store.locked = {*names(500)}
        world.add(*names(500))
        await asyncio.sleep(1)
        world.store.locked.clear()
        await asyncio.sleep(2)
        assert world.verdicts.of(Settled) == {*names(500)}
        for level in ("warning", "info"):
            lines = [fields for each, _, fields in world.events.seen if each == level]
            assert [fields.get("records", 1) for fields in lines] == [*[1] * 9, 491]
            assert len({fields["record"] for fields in lines}) == 10

    run_shifted(main())


def test_a_lock_is_looked_for_every_two_seconds_at_most() -> None:
    async def main() -> None:
        world = World()
        world.store.locked = {"j0"}
        world.add("j0")
        await asyncio.sleep(10)
        assert [at for at, _ in world.calls] == [0.0, 0.25, 0.75, 1.75, 3.75, 5.75, 7.75, 9.75]

    run_shifted(main())


def test_one_settlement_that_fails_its_batch_is_found_and_rejected() -> None:
    async def main() -> None:
        world = World()
        world.store.poison = {"j77"}
        world.add(*names(100))
        await asyncio.sleep(0)
        world.add(*names(20, "later"))
        await asyncio.sleep(30)
        assert world.verdicts.of(Rejected) == {"j77"}
        assert world.verdicts.of(Settled) == {*names(100), *names(20, "later")} - {"j77"}
        assert world.seconds_of("later0") < 0.2  # it did not wait for the search
        assert len(world.calls) < 30

    run_shifted(main())


def test_several_settlements_that_cannot_be_written_are_found() -> None:
    async def main() -> None:
        world = World()
        world.store.poison = {"j0", "j1", "j250", "j499"}
        world.add(*names(500))
        await asyncio.sleep(60)
        assert world.verdicts.of(Rejected) == world.store.poison
        assert world.verdicts.of(Settled) == set(names(500)) - world.store.poison

    run_shifted(main())


def test_what_cannot_even_be_renewed_waits_and_is_not_rejected() -> None:
    """Then nothing shows that the settlement is at fault: it may be the row, or the store."""

    async def main() -> None:
        world = World()
        world.store.poison = world.store.frozen = {"j1"}
        world.add(*names(10))
        await asyncio.sleep(300)
        assert world.verdicts.of(Settled) == set(names(10)) - {"j1"}
        assert world.queue.aside(world.verdicts) == 1
        world.store.poison, world.store.frozen = set(), set()
        await asyncio.sleep(6)
        assert world.verdicts.of(Settled) == set(names(10))

    run_shifted(main())


def test_queues_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        world = World()
        world.store.takes = 1000.0
        world.add("stuck")
        await asyncio.sleep(0.1)
        world.store.takes = 0.0
        verdict = await world.settler.settle(settlement("other"))
        assert isinstance(verdict, Settled)
        assert world.verdicts.by_id == {}
        assert asyncio.get_running_loop().time() - world._start < 1

    run_shifted(main())


def test_stopping_waits_for_what_was_put_aside_until_it_gives_up() -> None:
    async def main() -> None:
        world = World()
        world.store.locked = {"j0"}
        world.add("j0", "j1")
        await asyncio.sleep(1)
        world.settler.give_up_in(30)
        await world.settler.stop()
        assert world.seconds_of("j0") == pytest.approx(31, abs=0.01)
        assert world.verdicts.of(Settled) == {"j1"}
        assert "stopped before the store wrote every outcome" in world.events.seen[-1][1]

    run_shifted(main())
