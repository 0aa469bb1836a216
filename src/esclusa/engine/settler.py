"""The settler: a queue of settlements for each stage and for each system table."""

from __future__ import annotations

import asyncio
import time

from esclusa.engine.settlement_queue import SettlementQueue
from esclusa.model.settlement import Settlement, Verdict
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry


class Settler:
    """Makes the queues and stops them together.

    The queues are written independently: a stage whose outcomes cannot be written holds up no other
    stage. ``batch`` is the most settlements in one call of the store.
    """

    def __init__(
        self, store: Store, artifacts: Artifacts, telemetry: Telemetry, *, batch: int, lease: float
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._telemetry = telemetry
        self._batch = batch
        self._lease = lease
        self._queues: dict[str, SettlementQueue] = {}
        self._end: asyncio.TimerHandle | None = None
        self._over = False

    def start(self) -> None:
        self._queues, self._over = {}, False

    def queue(self, name: str, lease: float | None = None) -> SettlementQueue:
        """The queue of this name; ``lease`` is how long the leases of its records last."""
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = SettlementQueue(
                name,
                self._store,
                self._artifacts,
                self._telemetry,
                batch=self._batch,
                lease=lease or self._lease,
            )
            if self._over:
                found.give_up()
        return found

    def add(self, settlement: Settlement) -> None:
        """Queue a settlement of a system record; nobody waits for its verdict."""
        self.queue(settlement.ref.kind.table).add(settlement)

    async def settle(self, settlement: Settlement) -> Verdict:
        """Queue a settlement of a system record and wait for its verdict."""
        return await self.queue(settlement.ref.kind.table).settle(settlement)

    @property
    def stalled(self) -> float:
        """Seconds for which outcomes have waited while the store wrote nothing; 0 if none waits."""
        queues = self._queues.values()
        waiting = [q.waiting_since for q in queues if q.waiting_since is not None]
        if not waiting:
            return 0.0
        return time.monotonic() - max(min(waiting), *(queue.answered_at for queue in queues))

    def give_up_in(self, seconds: float) -> None:
        """Wait at most this long for a store that does not answer: the process ends.

        What is not written by then, and what comes later, is Lost. Its lease expires, and the
        record is handled again.
        """
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._over = True
        if left := sum(queue.give_up() for queue in self._queues.values()):
            self._telemetry.event(
                "error",
                "stopped before the store wrote every outcome; those records are handled again",
                outcomes=left,
            )

    async def stop(self) -> None:
        """Write what is left, then end. What comes later is Lost."""
        while any(queue.unwritten for queue in self._queues.values()):
            # a rejected settlement is settled again, as an error
            await asyncio.gather(*(queue.finish() for queue in self._queues.values()))
        if self._end is not None:
            self._end.cancel()
        self._over = True
        await asyncio.gather(*(queue.stop() for queue in self._queues.values()))
