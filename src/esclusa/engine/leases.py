"""The leases of this process: renewed in time, lost work stopped; and the loop that does so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from esclusa.model.decide import Result
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.settlement import Leased, Renewal
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

if TYPE_CHECKING:
    from esclusa.engine.attempt import Attempt

# The share of a lease after which it is renewed: two renewals may fail before it expires.
RENEW_AFTER = 1 / 3
# The most leases that one call renews.
BATCH = 1000
# A batch that cannot be renewed is renewed in this many parts.
PARTS = 8


class HeldLease:
    """A lease that this process holds, and the task that works on it (None while it waits).

    ``renewed`` is when it was last claimed or renewed, by the loop's clock. ``spent_at`` is when
    its part of the stage's budget was granted (None: the stage has no budget). ``result`` is how
    the attempt ended (None: it has not).
    """

    # Set on the class, because there is one for every record.
    task: asyncio.Task[None] | None = None
    attempt: Attempt | None = None
    result: Result | None = None
    took = 0.0
    lost = False

    def __init__(
        self, lease: Leased, seconds: float, renewed: float, spent_at: datetime | None
    ) -> None:
        self.lease = lease
        self.ref = lease.ref
        self.seconds = seconds
        self.renewed = renewed
        self.spent_at = spent_at

    def take_over(self, lease: Leased) -> None:
        """Continue under a newer lease of the same record."""
        self.lease.record.fence = lease.record.fence
        self.lease.record.attempts = lease.record.attempts

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

    def take_over(self, leases: Iterable[Leased]) -> list[Leased]:
        """Continue the work of this process on records that it claimed again.

        Their leases ran out while they were handled or settled. The handler is not called again.
        Return the leases of the other records. Work on a record that another worker had in between,
        or that was settled since, is stopped: its outcome is out of date.
        """
        now = asyncio.get_running_loop().time()
        by_ref = {held.ref: held for held in self._held}
        others = []
        for lease in leases:
            held = by_ref.get(lease.ref)
            if held is None or not lease.group or lease.fence != held.lease.fence + 1:
                others.append(lease)
                if held is not None:
                    self.release([held])
                    held.lose()
                continue
            held.take_over(lease)
            held.renewed = now
            self._telemetry.event(
                "warning", "lease ran out and was taken again; work goes on", record=str(held.ref)
            )
        return others

    def held_by(self, task: asyncio.Task[Any]) -> list[HeldLease]:
        """The leases that this task works on. May be called from any thread."""
        return [held for held in list(self._held) if held.task is task]

    def release(self, held_leases: Iterable[HeldLease]) -> None:
        self._held.difference_update(held_leases)

    async def renew(self, others: Sequence[Renewal] = ()) -> set[Ref]:
        """Renew what is held and ``others``; stop the work whose lease is lost.

        Return what was renewed.
        """
        now = asyncio.get_running_loop().time()
        aged = [held for held in self._held if now - held.renewed >= held.seconds * RENEW_AFTER]
        renewals = [Renewal(held.ref, held.lease.fence, held.seconds) for held in aged]
        renewals += others
        all_renewed: set[Ref] = set()
        for start in range(0, len(renewals), BATCH):
            batch = renewals[start : start + BATCH]
            renewed = await self._renew(batch)
            all_renewed |= renewed
            for held, sent in zip(aged[start : start + BATCH], batch, strict=False):
                if held.ref in renewed:
                    held.renewed = now
                elif held in self._held and held.lease.fence == sent.fence:
                    self._telemetry.event(
                        "warning", "lease lost; its work is stopped", record=str(held.ref)
                    )
                    self.release([held])
                    held.lose()
        return all_renewed

    async def _renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        """Renew them; a record whose lease cannot be written does not stop the others.

        Its work goes on, like that of the others while the store does not answer.
        """
        try:
            return await self._store.renew(renewals)
        except Exception as error:  # noqa: BLE001 - a trigger of the table may raise anything
            await self._store.now()  # raises while the store does not answer
            if len(renewals) == 1:
                ref = renewals[0].ref
                self._telemetry.event(
                    "warning", f"lease not renewed: {error}; work goes on", record=str(ref)
                )
                return {ref}
        size = -(-len(renewals) // PARTS)
        parts = [renewals[n : n + size] for n in range(0, len(renewals), size)]
        return set().union(*[await self._renew(part) for part in parts])


class Periodic:
    """A loop that runs all its steps, one after the other, every ``interval`` seconds.

    A step that raises ends this round, not the loop. ``name`` says in the log what it does.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        telemetry: Telemetry,
        *steps: Callable[[], Awaitable[object]],
    ) -> None:
        self._name = name
        self._interval = interval
        self._telemetry = telemetry
        self._steps = steps
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name=self._name)

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
                self._telemetry.event("warning", f"{self._name}: {error}; will retry")
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                self._telemetry.event("error", f"{self._name}: {type(error).__name__}: {error}")
