"""The record of this worker process: held under its own lease, so that its death is seen."""

from __future__ import annotations

import os
import socket

from esclusa.engine.clock import StoreClock
from esclusa.engine.options import Options
from esclusa.engine.settler import Settler
from esclusa.model.settlement import Renewal, Settlement
from esclusa.model.system_records import WorkerRecord
from esclusa.ports.store import Store
from esclusa.version import __version__


class WorkerRegistration:
    """Registers a worker process, and removes it when it stops."""

    def __init__(
        self, store: Store, settler: Settler, clock: StoreClock, options: Options, worker: str
    ) -> None:
        self._store = store
        self._settler = settler
        self._clock = clock
        self._options = options
        self._worker = worker
        self._record: WorkerRecord | None = None

    async def register(self, stages: list[str]) -> None:
        now = self._clock.now()
        record = WorkerRecord(
            id=self._worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            stages=stages,
            started_at=now,
            leased_by=self._worker,
            due_at=now + self._options.lease_time,
        )
        await self._store.insert([record])
        self._record = record

    async def leave(self) -> None:
        if self._record is not None:
            await self._settler.settle(
                Settlement(self._record.ref, "stopped", ("running",), 0, who=self._worker)
            )
            self._record = None

    def renewals(self) -> list[Renewal]:
        if self._record is None:
            return []
        return [Renewal(self._record.ref, 0, self._options.lease)]
