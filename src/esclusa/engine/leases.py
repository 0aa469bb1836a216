"""The leases of this process: renewed in time, lost work stopped; and the loop that does so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from esclusa.model.decide import Result
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import Leased, Renewal
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

if TYPE_CHECKING:
    from esclusa.engine.attempt import Attempt

# The share of a lease after which it is renewed: two renewals may fail before it expires.
RENEW_AFTER = 1 / 3
# The most leases that one call renews.
BATCH = 1000


class HeldLease:
    """A lease that this process holds, and the task that works on it (None while it waits).

    ``renewed`` is when it was last claimed or renewed, by the loop's clock. ``spent_at`` is when
    its part of the stage's budget was granted (None: the stage has no budget).
    """

    __slots__ = (
        "attempt",
        "lease",
        "lost",
        "ref",
        "renewed",
        "result_type",
        "seconds",
        "spent_at",
        "task",
        "took",
    )

    def __init__(
        self, lease: Leased, seconds: float, renewed: float, spent_at: datetime | None
    ) -> None:
        self.lease = lease
        self.ref = lease.ref
        self.seconds = seconds
        self.renewed = renewed
        self.spent_at = spent_at
        self.task: asyncio.Task[None] | None = None
        self.attempt: Attempt | None = None
        self.result_type: type[Result] | None = None
        self.took = 0.0
        self.lost = False

    def lose(self) -> None:
        """Stop the work: another worker holds the record, or an operator moved it."""
        self.lost = True
        if self.attempt is not None:
            self.attempt.lost = True
        if self.task is not None:
            self.task.cancel("lease lost")


class LeaseRenewer:
    """Renews in one call every lease of which a third has passed.

    While the store does not answer, work goes on: the fence decides at the settlement.
    """

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._held: set[HeldLease] = set()

    def hold(
        self, leases: list[Leased], seconds: float, spent_at: datetime | None = None
    ) -> list[HeldLease]:
        """Renew these from now on, until they are released."""
        now = asyncio.get_running_loop().time()
        held_leases = [HeldLease(lease, seconds, now, spent_at) for lease in leases]
        self._held.update(held_leases)
        return held_leases

    def release(self, held_leases: Iterable[HeldLease]) -> None:
        self._held.difference_update(held_leases)

    async def renew(self, others: Sequence[Renewal] = ()) -> None:
        """Renew what is held and ``others``; stop the work whose lease is lost."""
        now = asyncio.get_running_loop().time()
        aged = [held for held in self._held if now - held.renewed >= held.seconds * RENEW_AFTER]
        renewals = [Renewal(held.ref, held.lease.fence, held.seconds) for held in aged]
        renewals += others
        for start in range(0, len(renewals), BATCH):
            renewed = await self._store.renew(renewals[start : start + BATCH])
            for held in aged[start : start + BATCH]:
                if held.ref in renewed:
                    held.renewed = now
                elif held in self._held:
                    self._telemetry.event(
                        "warning", "lease lost; its work is stopped", record=str(held.ref)
                    )
                    self.release([held])
                    held.lose()


class Periodic:
    """The loop that renews leases, syncs the clock, writes rates: all steps, every ``interval``.

    A step that raises ends this round, not the loop: without it every lease would be lost.
    """

    def __init__(
        self, interval: float, telemetry: Telemetry, *steps: Callable[[], Awaitable[object]]
    ) -> None:
        self._interval = interval
        self._telemetry = telemetry
        self._steps = steps
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name="periodic")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                for step in self._steps:
                    await step()
            except (StoreUnavailable, StoreConflict) as error:
                self._telemetry.event("warning", f"renewing leases: {error}; will retry")
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                self._telemetry.event("error", f"renewing leases: {type(error).__name__}: {error}")
