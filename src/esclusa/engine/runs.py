"""Runs: one time a cycle ran, its counters, and how it ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from esclusa.model.budget import Budget, BudgetEmpty, Denied, Per, WindowUse
from esclusa.model.query import at_least, below
from esclusa.model.record import Ref
from esclusa.model.settlement import Inserted, Renewal, Settlement
from esclusa.model.stage import Cycle
from esclusa.model.storable import words
from esclusa.model.system_records import Run
from esclusa.ports.artifacts import Artifacts

if TYPE_CHECKING:
    from esclusa.engine.archiver import Archiver
    from esclusa.engine.engine import Engine
    from esclusa.engine.records import Records

RunOutcome = Literal["ok", "blocked", "partial", "error"]
_WORSE: tuple[RunOutcome, ...] = ("ok", "partial", "blocked", "error")


@dataclass
class RunContext:
    """The run that a cycle's function or a handler is part of.

    ``shared`` belongs to the pipeline: a cycle's function sets it, handlers read ``at.run.shared``.
    """

    engine: Engine
    cycle: Cycle
    id: str
    slot: str
    started: datetime
    eager: bool = False
    limit: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    outcome: RunOutcome = "ok"
    message: str | None = None
    halted: bool = False
    lock: tuple[Ref, int] | None = None
    judged: Counter[str] = field(default_factory=Counter)
    shared: Any = None
    _begun: float = field(default_factory=time.monotonic)

    @property
    def records(self) -> Records:
        return self.engine.records

    @property
    def settings(self) -> Any:
        return self.engine.plan_of(self.cycle.name).settings

    @property
    def context(self) -> Any:
        """What the pipeline's lifespan yielded."""
        return self.engine.contexts[self.cycle.name.split(".")[0]]

    @property
    def stopping(self) -> bool:
        """Whether the process was asked to stop: a function that drains in a loop ends it."""
        return self.engine.stopping or self.halted

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def end(self, outcome: RunOutcome, message: str | None = None) -> None:
        """Say how it went; a worse word said before stands."""
        if _WORSE.index(outcome) >= _WORSE.index(self.outcome):
            self.outcome = outcome
            self.message = words(message) if message else self.message

    def halt(self, outcome: RunOutcome, message: str) -> None:
        """Stop the run: nothing more is claimed, what is claimed and not begun goes back untouched."""
        self.end(outcome, message)
        self.halted = True

    async def drain(
        self,
        stage: str,
        *,
        limit: int | None = None,
        where: dict[str, Any] | None = None,
        before: datetime | None = None,
        eager: bool | None = None,
    ) -> None:
        """Handle what is due now for the stage, to its end. ``before``: only what was due at that moment, so that drains which
        share it take no record twice. ``eager``: also what is not due yet (by default as the run is)."""
        await self.engine.drain(self, stage, limit=limit, where=where, before=before, eager=eager)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def told(self) -> dict[str, int]:
        """The counters as the cycle calls them; those that it names itself are there even when they are 0."""
        names = self.cycle.counters
        told = dict.fromkeys(names.values(), 0)
        for name, count in self.counters.items():
            called = names.get(name, name)
            told[called] = told.get(called, 0) + count
        return told

    def answer(self) -> dict[str, Any]:
        """The run as HTTP and ``--json`` answer it."""
        return {
            "run": self.id,
            "cycle": self.cycle.name,
            "outcome": self.outcome,
            "counters": self.told,
            "message": self.message,
        }

    async def spend(self, budget: Budget, units: int = 1) -> None:
        """Reserve before a metered call. Raises BudgetEmpty, which says until when."""
        answer = await self.engine.store.spend(budget, units, self.cycle.name, least=units)
        if isinstance(answer, Denied):
            raise BudgetEmpty(budget.name, answer.until)

    async def observe(
        self,
        budget: Budget,
        per: Per = "day",
        *,
        used: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> WindowUse:
        """Tell the budget what the provider says of its open window: at least ``used`` is used, its limit is ``limit``, nothing is
        to be had before ``until``. Returns what is known of the window now."""
        store = self.engine.store
        await store.observe(budget, per, used=used, limit=limit, until=until)
        return next(window for window in await store.usage(budget) if window.per == per)

    async def earlier(self, *, since: datetime | None = None) -> AsyncIterator[Run]:
        """The runs of this cycle before this one, the oldest that the books still hold first; ``since``: those that began then or later."""
        began = (below(self.started),) if since is None else (below(self.started), at_least(since))
        async for run in self.records.each(
            Run, {"cycle": self.cycle.name, "started_at": began}, order="started_at"
        ):
            yield run

    @property
    def now(self) -> datetime:
        """The store's time."""
        return self.engine.clock.now()

    @property
    def artifacts(self) -> Artifacts:
        return self.engine.artifacts

    @property
    def archiver(self) -> Archiver:
        """Moves old records out of the way, exports them, and drops what is proved to be kept elsewhere."""
        from esclusa.engine.archiver import Archiver  # noqa: PLC0415 - it stands on the engine, which stands on this

        return Archiver(self.engine)

    def log(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """A structured log line that says which run it is about."""
        self.engine.telemetry.event(level, message, cycle=self.cycle.name, run=self.id, **fields)


class RunBook:
    """Writes runs: a row when one starts, a renewal while it lasts, its end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: dict[str, RunContext] = {}

    async def start(self, run: RunContext) -> bool:
        """Write its row, held under a lease; False if this cycle and slot ran already."""
        engine = self._engine
        row = Run(
            id=run.id, cycle=run.cycle.name, slot=run.slot, worker=engine.worker, started_at=run.started,
            leased_by=engine.worker, due_at=engine.clock.now() + engine.options.lease_time,
        )  # fmt: skip
        row.id = row.kind.id_of(run.cycle.name, run.slot)
        answer = await engine.store.insert([row])
        if not isinstance(answer[0], Inserted):
            return False
        run.id = answer[0].id
        self._open[run.id] = run
        return True

    def renewals(self) -> list[Renewal]:
        """Leases of the runs under way, with their counters so far."""
        lease = self._engine.options.lease
        return [
            Renewal(Ref(Run.kind, r.id), 0, lease, {"counters": r.told})
            for r in self._open.values()
        ]

    async def finish(self, run: RunContext) -> None:
        """Write how it ended."""
        now = self._engine.clock.now()
        settlement = Settlement(
            ref=Ref(Run.kind, run.id), to=run.outcome, frm=("running",), fence=0, who=self._engine.worker,
            fields={
                "counters": run.told, "message": run.message, "finished_at": now, "duration_ms": round(run.seconds * 1000),
            },
        )  # fmt: skip
        self._open.pop(run.id, None)
        await self._engine.settler.settle(settlement)
        self._engine.telemetry.run_finished(run.cycle.name, run.outcome, run.seconds, run.told)
