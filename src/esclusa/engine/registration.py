"""The record of this worker process, held under its own lease: its death is seen."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable
from datetime import timedelta

from esclusa.engine.clock import StoreClock
from esclusa.engine.options import Options
from esclusa.engine.records import Records
from esclusa.engine.settler import Settler
from esclusa.model.errors import SettingsError
from esclusa.model.kind import Ref
from esclusa.model.settlement import ClaimRequest, Renewal, Settlement
from esclusa.model.stage import Cycle
from esclusa.model.system_records import WorkerRecord
from esclusa.model.texts import text
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry
from esclusa.version import __version__

# The most workers that are compared.
MOST = 1000


class WorkerRegistration:
    """Registers this worker, and refuses to work beside workers with another clock."""

    def __init__(
        self,
        store: Store,
        records: Records,
        settler: Settler,
        clock: StoreClock,
        telemetry: Telemetry,
        options: Options,
        worker: str,
    ) -> None:
        self._store = store
        self._records = records
        self._settler = settler
        self._clock = clock
        self._telemetry = telemetry
        self._options = options
        self._worker = worker
        self._host, self._pid = socket.gethostname(), os.getpid()
        self._record: WorkerRecord | None = None

    async def check_offset(self, *, refuse: bool) -> None:
        """Refuse to handle records if a live worker shifts its clock by another offset, or warn.

        Raises SettingsError.
        """
        if faults := await self.offset_faults():
            if refuse:
                help = text("set_offset")
                raise SettingsError("settings", [f"{fault}; {help}" for fault in faults])
            for fault in faults:
                self._telemetry.event("warning", fault)

    async def offset_faults(self) -> list[str]:
        """The live workers that shift their clocks by another offset.

        Each would take the other's leases for expired. A worker of the same host and process id is
        not compared: it belongs to this process, or to one that has ended.
        """
        own, faults = self._store.clock_offset, list[str]()
        page = await self._records.find(WorkerRecord, {"status": "running"}, limit=MOST)
        now = await self._clock.sync() - timedelta(seconds=own)
        for other in page.items:
            offset = other.clock_offset
            if offset is None or offset == own or other.due_at is None:
                continue
            alive = other.due_at - timedelta(seconds=offset) > now
            if alive and (other.host, other.pid) != (self._host, self._pid):
                faults.append(text("other_offset", own=own, worker=other.id, offset=offset))
        return faults

    async def register(self, cycles: Iterable[Cycle]) -> None:
        """Add this worker to the list of workers. Raises SettingsError as ``check_offset`` does."""
        now, cycles = self._clock.now(), list(cycles)
        record = WorkerRecord(
            id=self._worker,
            host=self._host,
            pid=self._pid,
            version=__version__,
            clock_offset=self._store.clock_offset,
            cycles=sorted(cycle.name for cycle in cycles),
            stages=sorted({stage.name for cycle in cycles for stage in cycle.stages}),
            started_at=now,
            leased_by=self._worker,
        )
        await self._insert(record)
        try:
            await self.check_offset(refuse=True)  # two workers that start together see each other
        except SettingsError:
            await self.leave()
            raise

    async def leave(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            await self._settler.settle(
                Settlement(record.ref, "stopped", ("running",), record.fence, who=self._worker)
            )

    def renewals(self) -> list[Renewal]:
        record = self._record
        return [] if record is None else [Renewal(record.ref, record.fence, self._options.lease)]

    async def restore(self, lost: Collection[Ref]) -> None:
        """Register again if the lease was lost: the worker did not run, and was taken for dead."""
        record = self._record
        if record is None or record.ref not in lost:
            return
        again = Settlement(record.ref, "running", ("lost",), None, who=self._worker)
        await self._store.settle([again])
        claim = ClaimRequest(
            WorkerRecord.kind,
            "registration",
            ("running",),
            ids=(record.id,),
            lease=self._options.lease,
            worker=self._worker,
        )
        if leased := await self._store.claim(claim):
            self._record = record.but(fence=leased[0].fence)
        elif await self._records.get(WorkerRecord, record.id) is None:  # it was pruned
            await self._insert(record)
        else:
            return  # another worker is about to mark it as lost: try again later
        self._telemetry.event("warning", text("registered_again"), worker=self._worker)

    async def _insert(self, record: WorkerRecord) -> None:
        due = self._clock.now() + timedelta(seconds=self._options.lease)
        self._record = record.but(due_at=due, fence=0)
        await self._store.insert([self._record])
