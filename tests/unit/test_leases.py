"""Leases: when they are renewed, and what happens to one that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from conformance.kinds import Job
from support.shifted_time import run_shifted

from esclusa.engine.leases import HeldLease, LeaseRenewer, Periodic
from esclusa.model.errors import StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.settlement import Leased, Renewal

LEASE = 60.0


class FakeStore:
    """Notes when which leases were renewed; ``refused`` ids make their whole call fail."""

    def __init__(self) -> None:
        self.renewed: list[tuple[float, tuple[str, ...]]] = []
        self.lost: set[str] = set()
        self.refused: set[str] = set()
        self.down = False

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        ids = tuple(renewal.ref.id for renewal in renewals)
        if self.down or self.refused & set(ids):
            raise StoreUnavailable("timed out")
        if ids:
            self.renewed.append((round(asyncio.get_running_loop().time(), 3), ids))
        return {renewal.ref for renewal in renewals if renewal.ref.id not in self.lost}

    async def now(self) -> datetime:
        if self.down:
            raise StoreUnavailable("timed out")
        return datetime.now(UTC)


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def event(self, level: str, message: str, **fields: Any) -> None:
        self.seen.append((message, fields))


def leased(id: str, fence: int = 1, attempts: int = 1, group: int = 0) -> Leased:
    job = Job(id=id, status="working", fence=fence, attempts=attempts)
    return Leased(job, "waiting", datetime.now(UTC), group=group)


class World:
    def __init__(self, interval: float = 1.0) -> None:
        self.store, self.events = FakeStore(), Events()
        self.leases = LeaseRenewer(self.store, self.events)  # type: ignore[arg-type]
        self.periodic = Periodic("renewing", interval, self.events, self.leases.renew)  # type: ignore[arg-type]
        self.periodic.start()

    def hold(self, *ids: str) -> list[HeldLease]:
        return self.leases.hold([leased(id) for id in ids], LEASE)


def test_a_lease_is_renewed_after_a_third_of_it() -> None:
    async def main() -> None:
        world = World()
        world.hold("a")
        await asyncio.sleep(5.5)
        world.hold("b")
        await asyncio.sleep(60)
        assert world.store.renewed == [
            (20.0, ("a",)),
            (26.0, ("b",)),
            (40.0, ("a",)),
            (46.0, ("b",)),
            (60.0, ("a",)),
        ]

    run_shifted(main())


def test_renewals_may_fail_for_half_a_lease_before_it_runs_out() -> None:
    """With one try every sixth of the lease, as in the engine."""

    async def main() -> None:
        world = World(interval=LEASE / 6)
        world.hold("a")
        world.store.down = True
        await asyncio.sleep(45)  # the tries at 20, 30 and 40 seconds fail
        world.store.down = False
        await asyncio.sleep(10)
        assert world.store.renewed == [(50.0, ("a",))]

    run_shifted(main())


def test_a_lease_that_is_lost_stops_its_work() -> None:
    async def main() -> None:
        world = World()
        [lost, kept] = world.hold("lost", "kept")
        lost.task = asyncio.create_task(asyncio.sleep(1000))  # type: ignore[assignment]
        world.store.lost = {"lost"}
        await asyncio.sleep(21)
        assert (lost.lost, lost.task.cancelled(), kept.lost) == (True, True, False)
        world.store.renewed.clear()
        await asyncio.sleep(20)
        assert world.store.renewed == [(40.0, ("kept",))]

    run_shifted(main())


def test_one_lease_that_cannot_be_written_does_not_stop_the_others() -> None:
    async def main() -> None:
        world = World()
        held = world.hold(*(f"j{n}" for n in range(100)))
        world.store.refused = {"j42"}
        await asyncio.sleep(21)
        renewed = {id for at, ids in world.store.renewed for id in ids if at == 20.0}
        assert renewed == {f"j{n}" for n in range(100)} - {"j42"}
        assert not any(each.lost for each in held)
        named = [fields for _, fields in world.events.seen if fields]
        assert named == [{"record": str(Ref(Job.kind, "j42"))}]

    run_shifted(main())


def test_a_store_that_is_down_is_not_asked_lease_by_lease() -> None:
    async def main() -> None:
        world = World()
        held = world.hold(*(f"j{n}" for n in range(100)))
        world.store.down = True
        await asyncio.sleep(22.5)
        messages = [message for message, _ in world.events.seen]
        assert messages == ["renewing: timed out; will retry"] * 3
        assert not any(each.lost for each in held)

    run_shifted(main())


def test_a_record_that_this_process_still_holds_goes_on_under_the_new_lease() -> None:
    async def main() -> None:
        world = World()
        [held] = world.hold("mine")
        again, other = leased("mine", fence=2, group=8), leased("other", fence=7, group=8)
        assert world.leases.take_over([again, other]) == [other]
        assert (held.lease.fence, held.lost) == (2, False)

    run_shifted(main())


def test_the_outcome_of_an_earlier_attempt_is_dropped() -> None:
    async def main() -> None:
        world = World()
        [taken, settled] = world.hold("taken by another in between", "settled since")
        leases = [leased(taken.ref.id, fence=3, group=8), leased(settled.ref.id, fence=2)]
        assert world.leases.take_over(leases) == leases
        assert taken.lost
        assert settled.lost

    run_shifted(main())
