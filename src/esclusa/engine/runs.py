"""Runs: one execution of a cycle, its counters and its outcome."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from esclusa.engine.alerts import AlertLog
from esclusa.engine.archiver import Archiver
from esclusa.engine.clock import StoreClock
from esclusa.engine.options import Options
from esclusa.engine.records import Records
from esclusa.engine.run_files import RunFiles
from esclusa.engine.run_moves import RunMoves
from esclusa.engine.settler import Settler
from esclusa.model.budget import Budget, BudgetEmpty, Denied, Per, WindowUse
from esclusa.model.kind import Ref
from esclusa.model.outcome import To
from esclusa.model.query import at_least, below
from esclusa.model.record import Record
from esclusa.model.results import RUN_OUTCOMES, RunOutcome
from esclusa.model.settlement import Inserted, Renewal, Settled, Settlement
from esclusa.model.stage import Cycle
from esclusa.model.storable import storable_text
from esclusa.model.system_records import Run
from esclusa.model.texts import Text, dump, text
from esclusa.model.value import value
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry


@value
class RunTools:
    """What a run works with: the settings and context of its pipeline, and parts of the engine.

    ``drain`` handles what is due for a stage, with the arguments of ``RunContext.drain``.
    """

    store: Store
    records: Records
    clock: StoreClock
    artifacts: Artifacts
    telemetry: Telemetry
    alerts: AlertLog
    worker: str
    settings: Any
    context: Any
    drain: Callable[..., Awaitable[None]]
    stopping: Callable[[], bool]


@dataclass
class RunContext:
    """The run that a cycle's function or a handler is part of.

    ``shared`` belongs to the pipeline: a cycle's function sets it, handlers read ``at.run.shared``.
    ``continues`` is the former id of a run that another worker had ended, and that went on.
    ``files`` are the artifacts that it wrote with ``lines``. ``limit``: the most records that its
    stages take together. ``written``: how many records its function created and removed.
    """

    tools: RunTools
    cycle: Cycle
    id: str
    slot: str
    started: datetime
    eager: bool = False
    limit: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    moves: RunMoves = field(default_factory=RunMoves)
    outcome: RunOutcome = "ok"
    message: str | None = None
    halted: bool = False
    cut_by: str | None = None
    continues: str | None = None
    files: list[str] = field(default_factory=list)
    newly_adopted: Mapping[str, int] = field(default_factory=dict)
    lock: tuple[Ref, int] | None = None
    # How many attempts failed of records that had failed before.
    failed_again: int = 0
    shared: Any = None
    _begun: float = field(default_factory=time.monotonic)
    _reserved: int = 0

    @cached_property
    def records(self) -> Records:
        return self.tools.records.counted(self.written)

    @property
    def artifacts(self) -> Artifacts:
        return self.tools.artifacts

    @property
    def settings(self) -> Any:
        """The settings of the pipeline."""
        return self.tools.settings

    @property
    def context(self) -> Any:
        """What the pipeline's lifespan yielded."""
        return self.tools.context

    @property
    def worker(self) -> str:
        """The name of this worker process."""
        return self.tools.worker

    @property
    def now(self) -> datetime:
        """The store's time."""
        return self.tools.clock.now()

    @property
    def seconds(self) -> float:
        """How long the run has lasted."""
        return time.monotonic() - self._begun

    @property
    def stopping(self) -> bool:
        """Whether a function that drains in a loop should end.

        The process was asked to stop, the run was halted, or it has taken as many as it may.
        """
        return self.tools.stopping() or self.halted or self.is_full

    @property
    def is_full(self) -> bool:
        """Whether the run has taken as many records as it may."""
        return self.limit is not None and self._reserved >= self.limit

    def reserve(self, records: int) -> int:
        """How many of these the run may still take; they are reserved for the caller."""
        if self.limit is not None:
            records = max(0, min(records, self.limit - self._reserved))
        self._reserved += records
        return records

    def release(self, records: int) -> None:
        """Give back what was reserved and not taken."""
        self._reserved -= records

    @property
    def archiver(self) -> Archiver:
        """Archives old records, exports them, and drops those whose export is verified."""
        tools = self.tools
        return Archiver(
            tools.store, tools.records, tools.clock, tools.artifacts, tools.worker, tools.stopping
        )

    @property
    def named_counters(self) -> dict[str, int]:
        """The counters under the cycle's own names; declared names are always present.

        A function that counts nothing itself has the counters ``created`` and ``removed``.
        """
        names = self.cycle.counters
        named = dict.fromkeys(names.values(), 0)
        for name, count in (self.counters or ({} if names else self.written)).items():
            own = names.get(name, name)
            named[own] = named.get(own, 0) + count
        return named

    def answer(self) -> dict[str, Any]:
        """The run as HTTP and ``--json`` show it."""
        return {
            "run": self.id,
            "cycle": self.cycle.name,
            "outcome": self.outcome,
            "counters": self.named_counters,
            "message": self.message,
            "files": list(self.files),
        }

    @property
    def folder(self) -> str:
        """The folder of the run's files in the artifact store: by cycle and day."""
        return f"logs/{self.cycle.name.replace('.', '/')}/{self.started:%Y-%m-%d}"

    def lines(self, *names: str) -> RunFiles:
        """Files of this run, by name, to which lines of JSON are added while it goes on."""
        return RunFiles(self, names)

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def end(self, outcome: RunOutcome, message: str | None = None) -> None:
        """Set the outcome and the message, unless a worse outcome is set already."""
        if RUN_OUTCOMES.index(outcome) >= RUN_OUTCOMES.index(self.outcome):
            self.outcome = outcome
            if message:
                self.message = message if isinstance(message, Text) else storable_text(message)

    def halt(self, outcome: RunOutcome, message: str) -> None:
        """Stop the run: nothing more is claimed, and what was not begun is given back."""
        self.end(outcome, message)
        self.halted = True

    def note_cut(self) -> None:
        """Say that a stop or a time limit came before the end of the run: it is not ``ok``."""
        if self.cut_by is not None:
            cut = text("run_cut", by=self.cut_by)
            self.message = text("run_cut_too", why=self.message, cut=cut) if self.message else cut
            self.end("partial")

    async def drain(
        self,
        stage: str,
        *,
        limit: int | None = None,
        where: dict[str, Any] | None = None,
        before: datetime | None = None,
        eager: bool | None = None,
    ) -> None:
        """Handle what is due now for the stage; return when all of it is settled.

        ``before``: only what was due at that time, so that drains which share it take no record
        twice. ``eager``: also what is not due yet (by default as the run is).
        """
        await self.tools.drain(self, stage, limit=limit, where=where, before=before, eager=eager)

    async def move(self, record: Record, to: To) -> bool:
        """Move a record, with the fields and effects of ``to``; whether it was still in its state.

        For records that no stage takes. A lease on the record ends.
        """
        kind = record.kind
        kind.lifecycle.check(record.status, to.state, str(record.ref))
        settlement = Settlement(
            record.ref,
            to.state,
            (record.status,),
            None,
            kind.check_fields(to.fields),
            to.attempts or 0,
            to.after,
            effects=to.also,
            who=self.tools.worker,
            run=self.id,
            reason=to.reason and dump(to.reason),
        )
        [verdict] = await self.tools.store.settle([settlement])
        return isinstance(verdict, Settled)

    async def adopted(self, kind: type[Record]) -> int:
        """How many records of other programs this run found.

        The first run of a cycle counts all that the store knows: a migration may have found them.
        """
        _, is_first = await self.records.count(Run, {"cycle": self.cycle.name}, cap=1)
        if is_first:
            return await self.tools.store.adopted(kind.kind)
        return self.newly_adopted.get(kind.kind.table, 0)

    async def spend(self, budget: Budget, units: int = 1) -> None:
        """Reserve units before a metered call. Raises BudgetEmpty with the time of the reset."""
        answer = await self.tools.store.spend(budget, units, self.cycle.name, least=units)
        if isinstance(answer, Denied):
            raise BudgetEmpty(budget.name, answer.until, answer.reason(budget.name))

    async def observe(
        self,
        budget: Budget,
        per: Per = "day",
        *,
        used: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> WindowUse:
        """Record what the provider reports of the open window, and return the window as known now.

        At least ``used`` is used; the limit is ``limit``; nothing is available before ``until``.
        """
        store = self.tools.store
        await store.observe(budget, per, used=used, limit=limit, until=until)
        return next(window for window in await store.usage(budget) if window.per == per)

    async def earlier(self, *, since: datetime | None = None) -> AsyncIterator[Run]:
        """The runs of this cycle before this one that are still stored, oldest first.

        ``since``: only those that began then or later.
        """
        began = (below(self.started),) if since is None else (below(self.started), at_least(since))
        async for run in self.records.each(
            Run, {"cycle": self.cycle.name, "started_at": began}, order="started_at"
        ):
            yield run

    async def alert(self, name: str, message: str, **details: Any) -> None:
        """Begin an alert of this cycle, unless it is open. It ends with ``end_alert``."""
        await self.tools.alerts.begin(name, self.cycle.name, message, run=self.id, **details)

    async def end_alert(self, name: str) -> None:
        """End an alert of this cycle, if it is open."""
        await self.tools.alerts.end(name, self.cycle.name)

    def log(self, message: str, /, *, level: str = "info", **fields: Any) -> None:
        """Write a structured log line that names the run."""
        own = {"cycle": self.cycle.name, "run": self.id}
        self.tools.telemetry.event(level, message, **log_fields(fields, own))


def log_fields(given: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a line: a given one that is called as one of Esclusa's gets a ``_``."""
    return {f"{name}_" if name in own else name: value for name, value in given.items()} | {**own}


def own_slot(now: datetime, worker: str) -> str:
    """The slot of a run that no schedule started."""
    return f"{now:%Y%m%dT%H%M%S.%fZ}-{worker}"


class RunLog:
    """Writes runs: a row at the start, a renewal while it lasts, its outcome at the end."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        clock: StoreClock,
        telemetry: Telemetry,
        options: Options,
        worker: str,
    ) -> None:
        self._store = store
        self._settler = settler
        self._clock = clock
        self._telemetry = telemetry
        self._options = options
        self._worker = worker
        self._open: dict[str, RunContext] = {}

    async def start(self, run: RunContext) -> bool:
        """Write its row, held under a lease; False if this cycle has already run for this slot."""
        return await self._insert(run, run.slot, run.started)

    async def restore(self, lost: Collection[Ref]) -> list[RunContext]:
        """Give each run that goes on although another worker has ended its row a new row.

        This process did not run, and was taken for dead. Return these runs.
        """
        restored = []
        for id, run in list(self._open.items()):
            if Ref(Run.kind, id) not in lost:
                continue
            [row] = await self._store.get(Run.kind, [id])
            if (row is not None and row.status == "running") or id not in self._open:
                continue  # another worker is about to end it, or it has come to its end
            now = self._clock.now()
            if not await self._insert(run, own_slot(now, self._worker), now):
                continue
            run.continues = id
            run.message = run.message or text("run_continued", run=id)
            if self._open.pop(id, None) is None:  # it came to its end meanwhile
                await self._end(run)
            restored.append(run)
        return restored

    async def _insert(self, run: RunContext, slot: str, started: datetime) -> bool:
        row = Run(
            id=Run.kind.id_of(run.cycle.name, slot),
            cycle=run.cycle.name,
            slot=slot,
            worker=self._worker,
            started_at=started,
            leased_by=self._worker,
            due_at=self._clock.now() + timedelta(seconds=self._options.lease),
        )
        [answer] = await self._store.insert([row])
        if not isinstance(answer, Inserted):
            return False
        run.id = answer.id
        self._open[run.id] = run
        return True

    def renewals(self) -> list[Renewal]:
        """The leases of the runs under way, with their counters so far."""
        return [
            Renewal(
                Ref(Run.kind, r.id),
                0,
                self._options.lease,
                {
                    "counters": r.named_counters,
                    "moves": r.moves.as_json(),
                    "files": list(r.files),
                },
            )
            for r in self._open.values()
        ]

    async def finish(self, run: RunContext) -> None:
        """Write its outcome."""
        counters, seconds = run.named_counters, run.seconds
        await self._end(run)
        self._telemetry.run_finished(run.cycle.name, run.outcome, seconds, counters, run.message)

    async def _end(self, run: RunContext) -> None:
        self._open.pop(run.id, None)
        fields = {
            "counters": run.named_counters,
            "moves": run.moves.as_json(),
            "message": run.message and dump(run.message),
            "files": list(run.files),
            "finished_at": self._clock.now(),
            "duration_ms": round(run.seconds * 1000),
        }
        await self._settler.settle(
            Settlement(
                Ref(Run.kind, run.id), run.outcome, ("running",), 0, fields, who=self._worker
            )
        )
