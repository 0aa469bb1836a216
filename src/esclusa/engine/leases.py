"""The heartbeat: keeps every lease of this process alive, and stops work whose lease is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from esclusa.model.decide import Result
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import Leased, Renewal

if TYPE_CHECKING:
    from esclusa.engine.attempt import Attempt
    from esclusa.engine.engine import Engine


class HeldLease:
    """A lease that this process holds, and the task that works on it (None while it waits its turn).

    ``spent_at`` is when its share of the stage's budget was granted (None: it has none)."""

    __slots__ = (
        "attempt",
        "ending",
        "lease",
        "lost",
        "ref",
        "seconds",
        "since",
        "spent_at",
        "task",
        "took",
    )

    def __init__(
        self, lease: Leased, seconds: float, since: float, spent_at: datetime | None
    ) -> None:
        self.lease = lease
        self.ref = lease.ref
        self.seconds = seconds
        self.since = since
        self.spent_at = spent_at
        self.task: asyncio.Task[None] | None = None
        self.attempt: Attempt | None = None
        self.ending: Result | None = None
        self.took = 0.0
        self.lost = False

    def lose(self) -> None:
        """Another worker has it, or an operator moved it: stop."""
        self.lost = True
        if self.attempt is not None:
            self.attempt.lost = True
        if self.task is not None:
            self.task.cancel("lease lost")


class LeaseRenewer:
    """Renews in one call whatever has used a third of its lease. A store that does not answer is asked again;
    until it does, work goes on: the fence decides at the settlement."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: set[HeldLease] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name="heartbeat")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def hold(
        self, leases: list[Leased], seconds: float, spent_at: datetime | None = None
    ) -> list[HeldLease]:
        now = asyncio.get_running_loop().time()
        held_leases = [HeldLease(lease, seconds, now, spent_at) for lease in leases]
        self._held.update(held_leases)
        return held_leases

    def release(self, held_leases: Iterable[HeldLease]) -> None:
        self._held.difference_update(held_leases)

    async def _loop(self) -> None:
        engine = self._engine
        beat = min(
            *(engine.lease_of(stage) / 6 for stage in engine.all_stages),
            engine.options.lease / 6,
            10.0,
        )
        while True:
            await asyncio.sleep(beat)
            try:
                await engine.clock.sync()
                await self._renew()
                await engine.beat()
            except (StoreUnavailable, StoreConflict) as error:
                engine.telemetry.event("warning", f"heartbeat: {error}; will be tried again")
            except Exception as error:  # noqa: BLE001 - without a heartbeat every lease would be lost
                engine.telemetry.event("error", f"heartbeat: {type(error).__name__}: {error}")

    async def _renew(self) -> None:
        now = asyncio.get_running_loop().time()
        ripe = [h for h in self._held if now - h.since >= h.seconds / 3]
        renewals = [
            Renewal(h.ref, h.lease.fence, h.seconds) for h in ripe
        ] + self._engine.own_renewals()
        for start in range(0, len(renewals), 1000):
            part = renewals[start : start + 1000]
            renewed = await self._engine.store.renew(part)
            for held in ripe[start : start + 1000]:
                if held.ref in renewed:
                    held.since = now
                elif held in self._held:
                    self._engine.telemetry.event(
                        "warning", "lease lost; its work is stopped", record=str(held.ref)
                    )
                    self.release([held])
                    held.lose()
