"""Writes samples for charts: each minute the backlogs, rolled up with the rates.

Each minute one row has the backlogs of all stages. Rows of a quarter of an hour and of an hour also
have the rates, so that two weeks are read in a few hundred rows on every store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from random import Random

from esclusa.engine.clock import StoreClock
from esclusa.engine.records import Records
from esclusa.engine.registry import SYSTEM, Registry
from esclusa.engine.tally import HOUR, LATE, MINUTE, QUARTER, ROLLED, Tally, floor
from esclusa.engine.threads import end_tasks
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.query import at_least, below
from esclusa.model.settlement import Inserted
from esclusa.model.system_records import RateRecord, StageSample
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# Seconds between two samples, and where every read is paid for.
EVERY, EVERY_METERED = 60, 300
# Records of a stage are counted up to here, and where every read is paid for.
CAP, CAP_METERED = 100_000, 10_000
# How far back samples that are missing are made up.
LOOK_BACK = timedelta(hours=24)
# Seconds after the minute at which the process that wrote the last sample writes the next. Others
# follow at some time between these, and write it if it is missing.
FIRST, OTHERS = 1.0, (5.0, 25.0)


class Sampler:
    """Writes samples in every process that works or serves; the first to come writes each."""

    def __init__(
        self,
        store: Store,
        records: Records,
        registry: Registry,
        clock: StoreClock,
        telemetry: Telemetry,
        rng: Random,
    ) -> None:
        self._store = store
        self._records = records
        self._registry = registry
        self._clock = clock
        self._telemetry = telemetry
        self._rng = rng
        self._every = EVERY_METERED if store.metered else EVERY
        self._cap = CAP_METERED if store.metered else CAP
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name="samples")

    async def stop(self) -> None:
        if self._task is not None:
            await end_tasks(self._task)

    async def _loop(self) -> None:
        wrote, failed = False, False
        while True:
            await asyncio.sleep(self._pause(FIRST if wrote else self._rng.uniform(*OTHERS)))
            try:
                wrote = await self.sample()
                # After an outage, other workers still write what they counted meanwhile.
                if not failed:
                    await self.roll_up()
                failed = False
            except (StoreUnavailable, StoreConflict) as error:
                failed = True
                self._telemetry.event("debug", f"no samples are written: {error}")
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                failed = True
                self._telemetry.event(
                    "error", f"writing samples: {type(error).__name__}: {error}", exc_info=error
                )

    def _pause(self, after: float) -> float:
        """Seconds until ``after`` seconds of the next span that a sample belongs to."""
        return self._every - self._clock.now().timestamp() % self._every + after

    async def once(self) -> None:
        """Write what is missing now, in a process that lives only for a moment."""
        try:
            await self.sample()
            await self.roll_up()
        except (StoreUnavailable, StoreConflict) as error:
            self._telemetry.event("debug", f"no samples are written: {error}")

    async def sample(self) -> bool:
        """Write the backlogs of this minute, unless they are; return whether this call did."""
        now = self._clock.now()
        start = floor(now, self._every)
        if start in await self._known(MINUTE, [start]):
            return False
        stages = {}
        for stage in self._registry.all_stages:
            if not stage.name.startswith(SYSTEM):
                tally = stages[stage.name] = Tally()
                found = await self._store.backlog(self._registry.request(stage), self._cap)
                tally.add_backlog(found, now)
        return await self._write(MINUTE, start, stages)

    async def roll_up(self) -> None:
        """Write the samples of the quarters and hours that have passed, where they are missing."""
        past = self._clock.now() - LATE
        if (newest := floor(past, QUARTER) - timedelta(seconds=QUARTER)) in await self._known(
            QUARTER, [newest]
        ):
            return
        for span in ROLLED:
            length = timedelta(seconds=span)
            end = floor(past, span)
            starts = [end - length * n for n in range(int(LOOK_BACK / length), 0, -1)]
            known = await self._known(span, starts)
            for start in starts:
                if start not in known:
                    await self._write(span, start, await self._rolled(span, start, start + length))

    async def _known(self, span: int, starts: Iterable[datetime]) -> set[datetime]:
        """Those of the starts that have a sample."""
        ids = {StageSample.kind.id_of(span, start): start for start in starts}
        found = await self._records.get_many(StageSample, list(ids))
        return {ids[sample.id] for sample in found if sample is not None}

    async def _write(self, span: int, start: datetime, stages: Mapping[str, Tally]) -> bool:
        stored = {name: entry for name, tally in stages.items() if (entry := tally.dump())}
        [answer] = await self._store.insert([StageSample(span=span, start=start, stages=stored)])
        return isinstance(answer, Inserted)

    async def _rolled(self, span: int, start: datetime, end: datetime) -> dict[str, Tally]:
        """What the parts of a span come to, by stage."""
        stages: dict[str, Tally] = {}
        within = (at_least(start), below(end))
        if span == QUARTER:
            async for row in self._records.each(RateRecord, {"minute": within}):
                stages.setdefault(row.stage, Tally()).add_row(row)
        part = {QUARTER: MINUTE, HOUR: QUARTER}[span]
        async for sample in self._records.each(StageSample, {"span": part, "start": within}):
            for name, stored in sample.stages.items():
                stages.setdefault(name, Tally()).add(Tally.load(stored))
        return stages
