"""The engine: composes the parts that run pipelines on a store."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from random import Random
from typing import Any

from pydantic_core import to_jsonable_python

from esclusa.engine.alert_judge import AlertJudge
from esclusa.engine.alert_rules import READ, READ_METERED, AlertRules
from esclusa.engine.alerts import AlertLog, AlertSink
from esclusa.engine.archiver import Archiver
from esclusa.engine.attempt import StageTools
from esclusa.engine.audited import Masked
from esclusa.engine.claimer import BudgetReservation, Claimer
from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.cycles import CycleRunner
from esclusa.engine.dead_letters import DeadLetterCloser, DeadLetters
from esclusa.engine.idempotency import Idempotency
from esclusa.engine.leases import LeaseRenewer, Periodic
from esclusa.engine.lifecycles import Lifecycles, StragglerRenamer
from esclusa.engine.lifespans import Lifespans
from esclusa.engine.operations import Operations
from esclusa.engine.options import Options
from esclusa.engine.pauses import StagePauses
from esclusa.engine.rates import Rates
from esclusa.engine.read_model import ReadModel
from esclusa.engine.read_shapes import Titles
from esclusa.engine.record_spans import RecordSpans
from esclusa.engine.records import Records
from esclusa.engine.registration import WorkerRegistration
from esclusa.engine.registry import Registry
from esclusa.engine.runs import RunContext, RunLog, RunTools
from esclusa.engine.samples import Sampler
from esclusa.engine.scheduler import Scheduler
from esclusa.engine.settler import Settler
from esclusa.engine.stage_settler import StageSettler
from esclusa.engine.stage_worker import StageWorker
from esclusa.engine.startup import Startup
from esclusa.engine.suspects import Suspects
from esclusa.engine.system_pipeline import system_pipeline
from esclusa.engine.tick import Tick, Ticked
from esclusa.engine.watchdog import SpareStore, Watchdog
from esclusa.model.adoption import Adopted
from esclusa.model.kind import Ref
from esclusa.model.plan import NoSettings, Plan
from esclusa.model.query import Where, conditions
from esclusa.model.stage import Stage
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.publisher import Publisher
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Silent, Telemetry

# Seconds that the store has to write what is given back when the handlers are stopped.
ABORT = 2.0
# Seconds between two reads of the stages' pauses, and where reads are paid for. Other processes
# notify this one, so a read only replaces a notification that was lost.
PAUSES_READ, PAUSES_READ_METERED = 1.0, 60.0


class Engine:
    """The parts of a process that runs pipelines, each made with the parts that it uses.

    ``async with engine.running():`` opens what handlers need. Then a scheduler, a tick or a caller
    runs cycles.
    """

    def __init__(
        self,
        store: Store,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        *,
        telemetry: Telemetry | None = None,
        options: Options | None = None,
        alert_sink: AlertSink | None = None,
        spare_store: SpareStore | None = None,
        publisher: Publisher | None = None,
        worker: str | None = None,
        rng: Random | None = None,
    ) -> None:
        self.store = store
        store.on_refused = self._report_refused
        store.on_adopted = self._report_adopted
        self.artifacts = artifacts
        self.publisher = publisher
        self.telemetry = telemetry = telemetry or Silent()
        self.options = options = options or Options()
        self.worker = worker = (
            worker or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        )
        self.startup = Startup(telemetry, options.store_wait)
        self.clock = clock = StoreClock(store)
        self._record_spans = RecordSpans(store, telemetry)
        self.records = records = Records(store, self._record_spans)
        self.alert_rules = AlertRules(records, clock, options)
        muted = self.alert_rules.muted
        self.alerts = AlertLog(store, records, clock, telemetry, worker, alert_sink, muted=muted)
        system = system_pipeline(
            publisher,
            self.alerts,
            options,
            close_dead_letters=self._close_dead_letters,
            prune_history=store.prune_history,
        )
        self.registry = registry = Registry((*plans, system.bind(NoSettings())))
        self._record_spans.tables = frozenset(s.kind.table for p in plans for s in p.stages)
        self._dead_letters = DeadLetters(store, registry)
        self._closer = DeadLetterCloser(self._dead_letters, worker)
        records.on_moved = self._closer.close
        self.lifecycles = Lifecycles(registry, store, clock)
        self._renamer = StragglerRenamer(registry, store, clock, telemetry, worker)
        self.settler = Settler(
            store, artifacts, telemetry, batch=options.settle_batch, lease=options.lease
        )
        self.leases = LeaseRenewer(store, telemetry)
        self._suspects = Suspects(store, self.leases, telemetry, worker)
        self._watchdog = Watchdog(
            self.leases,
            self.alerts,
            telemetry,
            worker,
            lease=min(options.lease, *map(self._lease_of, registry.all_stages)),
            spare_store=spare_store,
        )
        self.rates = Rates(store, clock, worker)
        self.lifespans = Lifespans(registry.plans, telemetry, self.alerts, seconds=options.lifespan)
        self.cycle_records = CycleRecords(store, records, self.settler, clock, options, worker)
        self.idempotency = Idempotency(store, self.settler, self.leases, clock, options, worker)
        self.pauses = StagePauses(
            store,
            records,
            clock,
            self.alerts,
            telemetry,
            options,
            worker,
            registry.all_stages,
        )
        self.judge = AlertJudge(
            self.alerts,
            registry,
            store,
            records,
            self.cycle_records,
            self.rates,
            clock,
            telemetry,
            options,
            worker,
            active=self.under_way,
            pauses=self.pauses,
            rules=self.alert_rules,
        )
        self._rng = rng or Random()
        self.sampler = Sampler(store, records, registry, clock, telemetry, self._rng)
        self.registration = WorkerRegistration(
            store, records, self.settler, clock, telemetry, options, worker
        )
        self._runs = RunLog(store, self.settler, clock, telemetry, options, worker)
        self.runner = CycleRunner(
            registry,
            self.cycle_records,
            self._runs,
            self.alerts,
            clock,
            telemetry,
            options,
            worker,
            run_finished=self.judge.run_finished,
            require=self.lifespans.require,
            run_tools=self._run_tools,
            stage_worker=self._stage_worker,
            pauses=self.pauses,
            adopt=store.adopt,
        )
        interval = min(10.0, *(self._lease_of(stage) / 6 for stage in registry.all_stages))
        self._periodic = (
            Periodic("renewing leases", interval, telemetry, self._renew),
            Periodic("syncing the clock", interval, telemetry, clock.sync),
            Periodic(
                "reading pauses",
                PAUSES_READ_METERED if store.metered else PAUSES_READ,
                telemetry,
                self.runner.refresh_pauses,
            ),
            Periodic(
                "reading alert rules",
                READ_METERED if store.metered else READ,
                telemetry,
                self.alert_rules.refresh,
            ),
            Periodic(
                "writing rates and reading cycles",
                interval,
                telemetry,
                self.rates.flush,
                self.cycle_records.refresh,
            ),
        )

        # What other packages use, without knowing the parts.
        self.plans, self.cycles, self.stages = registry.plans, registry.cycles, registry.stages
        self.all_kinds, self.all_stages = registry.all_kinds, registry.all_stages
        self.kind, self.cycle, self.plan_of = registry.kind, registry.cycle, registry.plan_of
        self.run_cycle, self.inflight = self.runner.run, self.runner.inflight
        self.paused = self.cycle_records.paused

    async def _close_dead_letters(self) -> int:
        return await self._dead_letters.close_all(self.worker)

    def under_way(self, cycle: str) -> RunContext | None:
        """The run of this cycle that is under way in this process."""
        return self.runner.active(cycle)

    @property
    def stopping(self) -> bool:
        """Whether the process was asked to stop."""
        return self.runner.stopping

    @property
    def contexts(self) -> dict[str, Any]:
        """What the lifespans of the pipelines yielded, by name; only of those that are ready."""
        return self.lifespans.contexts

    @asynccontextmanager
    async def running(
        self,
        *,
        register: bool | Iterable[str] = False,
        judge: bool = False,
        pipelines: Iterable[str] | None = None,
    ) -> AsyncIterator[Engine]:
        """Open what handlers need: the clock, the settler, the leases, the pipelines' lifespans.

        ``register``: this is a worker process, and the list of workers shows it with its cycles,
        all or these. ``judge``: it also judges what should raise an alert, and writes the samples
        of charts; servers and workers do. ``pipelines``: open the lifespans of these; by default
        all. Others are opened when they are needed.
        """
        async with AsyncExitStack() as stack:
            await self.startup.call(self.clock.sync)
            refuse = bool(register) or not judge
            await self.startup.call(partial(self.registration.check_offset, refuse=refuse))
            self.settler.start()
            stack.push_async_callback(self._closer.stop)
            stack.push_async_callback(self.settler.stop)
            stack.push_async_callback(self.alerts.close)
            stack.push_async_callback(self.pauses.close)
            stack.push_async_callback(self._suspects.stop)
            self._watchdog.start()
            stack.push_async_callback(self._watchdog.stop)
            for periodic in self._periodic:
                periodic.start()
                stack.push_async_callback(periodic.stop)
            self._renamer.start()
            stack.push_async_callback(self._renamer.stop)
            stack.push_async_callback(self.lifespans.close)
            await self.lifespans.start(pipelines)
            await self.startup.call(
                partial(self.cycle_records.write, list(self.registry.cycles.values()))
            )
            await self.startup.call(self.cycle_records.refresh)
            await self.startup.call(self.alert_rules.refresh)
            if register:
                names = self.registry.cycles if register is True else register
                cycles = [self.registry.cycle(name) for name in names]
                await self.startup.call(partial(self.registration.register, cycles))
                stack.push_async_callback(self.registration.leave)
            if judge:
                self.judge.start()
                stack.push_async_callback(self.judge.stop)
                self.sampler.start()
                stack.push_async_callback(self.sampler.stop)
            stack.push_async_callback(self.rates.flush, all=True)
            try:
                yield self
            finally:
                self.settler.give_up_in(self.options.grace)

    def stop(self, by: str | None = None) -> None:
        """Claim nothing more; runs under way come to their end. ``by``: such as a signal."""
        self.runner.stop(by)

    def abort(self) -> None:
        """Stop the handlers too; their records go back at once.

        A store that does not answer is waited for only a short time.
        """
        self.settler.give_up_in(ABORT)
        self.runner.abort()

    # parts for callers

    def scheduler(self) -> Scheduler:
        return Scheduler(
            self.registry,
            self.runner,
            self.cycle_records,
            self.lifespans,
            self.store,
            self.clock,
            self.telemetry,
            grace=self.options.grace,
            abort=self.abort,
        )

    async def tick(self, seconds: float) -> Ticked:
        """Run what is due within this time; see ``esclusa.engine.tick``."""
        return await Tick(
            self.registry,
            self.runner,
            self.cycle_records,
            self.store,
            self.clock,
            self.telemetry,
            self._after_tick,
            seconds=seconds,
            poll=self.options.poll,
        ).run()

    async def _after_tick(self) -> None:
        await self.judge.judge()
        await self.sampler.once()

    def operations(self, who: str, masked: Masked = to_jsonable_python) -> Operations:
        """The operator's verbs, on behalf of ``who``; ``masked`` hides secrets in the history."""
        return Operations(
            who,
            self.registry,
            self.runner,
            self.cycle_records,
            self.store,
            self.clock,
            self._dead_letters,
            masked,
            self.alert_rules,
            self.records,
            self.artifacts,
        )

    def read_model(self, titles: Titles | None = None, store: Store | None = None) -> ReadModel:
        """What readers see; ``titles`` hides what must not be shown. ``store``: to be read."""
        return ReadModel(
            self.registry,
            store or self.store,
            self.records,
            self.clock,
            self.options,
            titles or Titles(),
            self.artifacts,
            self.alert_rules,
        )

    def archiver(self) -> Archiver:
        return Archiver(
            self.store,
            self.records,
            self.clock,
            self.artifacts,
            self.worker,
            lambda: self.runner.stopping,
        )

    # how the parts are made

    def _run_tools(self, plan: Plan) -> RunTools:
        return RunTools(
            self.store,
            self.records,
            self.clock,
            self.artifacts,
            self.telemetry,
            self.alerts,
            self.worker,
            plan.settings,
            self.contexts.get(plan.name),
            self.runner.drain,
            lambda: self.runner.stopping,
        )

    def _stage_worker(
        self,
        stage: Stage,
        run: RunContext,
        *,
        forever: bool = False,
        where: Where | None = None,
        before: datetime | None = None,
        eager: bool = False,
    ) -> StageWorker:
        request = self.registry.request(
            stage,
            where=stage.where + conditions(stage.kind, where or {}),
            lease=self._lease_of(stage),
            worker=self.worker,
            before=before,
            eager=eager,
            tries=stage.retry.tries,
        )
        plan = self.registry.plan_of(stage.name)
        queue = self.settler.queue(stage.name, self._lease_of(stage))
        tools = StageTools(
            stage,
            run,
            queue,
            plan.settings,
            self.lifespans.context(plan.name),
            self._lease_of(stage),
            asyncio.get_running_loop(),
        )
        stage_settler = partial(
            StageSettler,
            stage,
            run,
            queue=queue,
            leases=self.leases,
            rates=self.rates,
            telemetry=self.telemetry,
            alerts=self.alerts,
            clock=self.clock,
            rng=self._rng,
            worker=self.worker,
            closer=self._closer,
        )
        return StageWorker(
            stage,
            run,
            tools=tools,
            claimer=Claimer(
                request,
                run,
                self.store,
                BudgetReservation(stage, self.store, self.telemetry),
                self.telemetry,
            ),
            leases=self.leases,
            stage_settler=stage_settler,
            clock=self.clock,
            telemetry=self.telemetry,
            record_spans=self._record_spans,
            options=self.options,
            suspects=self._suspects,
            gate=self.pauses.gate(stage),
            paused=partial(self.cycle_records.paused, run.cycle.name),
            forever=forever,
        )

    def _report_refused(self, ref: Ref, why: str) -> None:
        self.runner.claim_refused(ref, why)
        self.telemetry.event(
            "warning", f"claim: {why}; it is left out for some minutes", record=str(ref)
        )

    def _report_adopted(self, adopted: Adopted) -> None:
        if adopted.count:
            self.telemetry.event(
                "info",
                f"{adopted.table}: documents of other programs adopted",
                table=adopted.table,
                adopted=adopted.count,
                documents=adopted.documents,
                reads_per_hour=adopted.reads_per_hour,
            )
        for why in adopted.refused.values():
            self.telemetry.event("warning", f"not adopted: {why}", table=adopted.table)

    def _lease_of(self, stage: Stage) -> float:
        return stage.lease or self.options.lease

    async def _renew(self) -> None:
        """Renew the records under work, and the leases of this process itself."""
        own = [*self._runs.renewals(), *self.runner.renewals(), *self.registration.renewals()]
        own += self.pauses.renewals(self.options.lease)
        if lost := {renewal.ref for renewal in own} - await self.leases.renew(own):
            self.pauses.lost(lost)
            await self.registration.restore(lost)
            await self.runner.restore(lost)
