"""Records of cycles: when each is due next, whether it is paused, and the lock of a singleton."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from esclusa.engine.clock import StoreClock
from esclusa.engine.options import Options
from esclusa.engine.records import Records
from esclusa.engine.settler import Settler
from esclusa.model.errors import AlreadyRunning, Paused
from esclusa.model.kind import Ref
from esclusa.model.schedule import Every
from esclusa.model.settlement import ClaimRequest, Settlement
from esclusa.model.stage import Cycle
from esclusa.model.system_records import CycleRecord, Run
from esclusa.model.texts import text
from esclusa.ports.store import Store

# How far ahead a cycle is due that has no next slot.
NEVER = timedelta(days=36500)


class CycleRecords:
    """One record per cycle, due at its next slot; a singleton cycle runs under its claim."""

    def __init__(
        self,
        store: Store,
        records: Records,
        settler: Settler,
        clock: StoreClock,
        options: Options,
        worker: str,
    ) -> None:
        self._store = store
        self._records = records
        self._settler = settler
        self._clock = clock
        self._options = options
        self._worker = worker
        self._paused: frozenset[str] = frozenset()

    async def write(self, cycles: Iterable[Cycle]) -> None:
        """Add what is missing, due at its first slot; a changed schedule moves the due time."""
        now = self._clock.now()
        by_name = {cycle.name: cycle for cycle in cycles}
        await self._store.insert(
            [
                CycleRecord(cycle=c.name, schedule=str(c.schedule), due_at=_first_slot(c, now))
                for c in by_name.values()
            ]
        )
        ids = [CycleRecord.kind.id_of(name) for name in by_name]
        changed = [
            (record.ref, by_name[record.cycle])
            for record in await self._records.get_many(CycleRecord, ids)
            if record is not None
            and record.status == "idle"
            and record.schedule != str(by_name[record.cycle].schedule)
        ]
        for ref, cycle in changed:
            move = Settlement(
                ref,
                "idle",
                ("idle",),
                None,
                {"schedule": str(cycle.schedule)},
                until=_first_slot(cycle, now),
                who=self._worker,
            )
            await self._store.settle([move])

    async def get(self, cycle: str) -> CycleRecord | None:
        return await self._records.get(CycleRecord, CycleRecord.kind.id_of(cycle))

    async def last_run(self, cycle: str) -> Run | None:
        return await self._records.first(Run, {"cycle": cycle}, order="-started_at")

    async def next_slot(self, cycle: Cycle) -> datetime | None:
        """The first slot that the cycle has not run in; missed slots count as one."""
        record = await self.get(cycle.name)
        if cycle.singleton:
            return None if record is None or record.status == "paused" else record.due_at
        latest = await self.last_run(cycle.name)
        now = self._clock.now()
        if latest is not None:
            since = latest.started_at
        elif isinstance(cycle.schedule, Every):
            since = now - timedelta(seconds=cycle.schedule.seconds)
        else:
            since = (record.created_at if record is not None else None) or now
        return cycle.schedule.next_after(since)

    async def refresh(self) -> None:
        """Read which cycles are paused."""
        page = await self._records.find(CycleRecord, {"status": "paused"}, limit=1000)
        self._paused = frozenset(record.cycle for record in page.items)

    def paused(self, cycle: str) -> bool:
        """Whether the cycle was paused at the last refresh."""
        return cycle in self._paused

    async def refuse_paused(self, cycle: str) -> None:
        """Raise Paused if the cycle is paused now."""
        record = await self.get(cycle)
        if record is not None and record.status == "paused":
            raise Paused(text("paused", cycle=cycle))

    async def lock(self, cycle: Cycle, now: datetime, *, early: bool) -> tuple[Ref, int]:
        """Claim the record of a singleton cycle. Raises Paused, AlreadyRunning.

        ``early``: also before its slot.
        """
        taken = await self._store.claim(
            ClaimRequest(
                CycleRecord.kind,
                cycle.name,
                ("idle",),
                "running",
                ids=(CycleRecord.kind.id_of(cycle.name),),
                lease=self._options.lease,
                worker=self._worker,
                before=now,
                eager=early,
            )
        )
        if taken:
            return taken[0].ref, taken[0].fence
        await self.refuse_paused(cycle.name)
        raise AlreadyRunning(text("running_elsewhere", cycle=cycle.name))

    async def unlock(self, lock: tuple[Ref, int], cycle: Cycle, started: datetime) -> None:
        """End the claim; the cycle is due at the next slot after now."""
        now = self._clock.now()
        until = cycle.schedule.next_after(max(now, started)) or now + NEVER
        ref, fence = lock
        await self._settler.settle(
            Settlement(ref, "idle", ("running",), fence, until=until, attempts=0, who=self._worker)
        )


def _first_slot(cycle: Cycle, now: datetime) -> datetime:
    if isinstance(cycle.schedule, Every):
        return now
    return cycle.schedule.next_after(now) or now + NEVER
