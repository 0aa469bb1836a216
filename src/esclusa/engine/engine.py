"""The engine: what a process needs to run pipelines on a store."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any

from esclusa.engine.clock import StoreClock
from esclusa.engine.leases import LeaseRenewer
from esclusa.engine.rates import Rates
from esclusa.engine.records import Records
from esclusa.engine.runs import RunBook, RunContext
from esclusa.engine.settler import Settler
from esclusa.engine.stage_runner import StageRunner
from esclusa.engine.system_pipeline import system_pipeline
from esclusa.model.errors import AlreadyRunning, NotFound, Paused, SettingsError
from esclusa.model.pipeline import NoSettings, Plan
from esclusa.model.record import Kind, Ref
from esclusa.model.schedule import Always, Every
from esclusa.model.settlement import ClaimRequest, Renewal, Settlement
from esclusa.model.stage import Cycle, Stage
from esclusa.model.system_records import SYSTEM_RECORDS, Alert, CycleRecord, WorkerRecord
from esclusa.model.texts import text
from esclusa.model.value import value
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.publisher import Publisher
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Silent, Telemetry
from esclusa.version import __version__

AlertSink = Callable[[Alert], Awaitable[None]]

LAST = 2.0
"""Seconds that the store has to take what is given back when the handlers are stopped."""


@value
class Options:
    """How the engine works, whatever it runs."""

    lease: float = 60.0
    poll: float = 1.0
    grace: float = 20.0
    prefetch: int = 4000
    settle_batch: int = 2000

    @property
    def lease_time(self) -> timedelta:
        return timedelta(seconds=self.lease)


class Engine:
    """Runs cycles. ``async with engine.running():`` opens what handlers need; the scheduler or a caller does the rest."""

    def __init__(
        self,
        store: Store,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        *,
        telemetry: Telemetry | None = None,
        options: Options | None = None,
        alert_sink: AlertSink | None = None,
        publisher: Publisher | None = None,
        worker: str | None = None,
        rng: Random | None = None,
    ) -> None:
        self.store = store
        self.artifacts = artifacts
        self.telemetry: Telemetry = telemetry or Silent()
        self.options = options or Options()
        self.worker = worker or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self.rng = rng or Random()
        self.publisher = publisher
        self.plans = (*plans, system_pipeline(publisher).bind(NoSettings()))
        self._plans = {plan.name: plan for plan in self.plans}
        self.cycles: dict[str, Cycle] = {c.name: c for plan in self.plans for c in plan.cycles}
        self.stages: dict[str, Stage] = {s.name: s for plan in self.plans for s in plan.stages}
        self.kinds: dict[str, Kind] = {k.table: k for plan in self.plans for k in plan.kinds}
        self.kinds |= {book.kind.table: book.kind for book in SYSTEM_RECORDS}
        self.clock = StoreClock(store)
        self.records = Records(store)
        self.settler = Settler(store, artifacts, self.telemetry, batch=self.options.settle_batch)
        self.leases = LeaseRenewer(self)
        self.rates = Rates(self)
        self.runs = RunBook(self)
        self.contexts: dict[str, Any] = {}
        self._alert_sink = alert_sink
        self._card: WorkerRecord | None = None
        self._paused: frozenset[str] = frozenset()
        self._active: dict[str, RunContext] = {}
        self._runners: set[StageRunner] = set()
        self.stopping = False
        self.loop: asyncio.AbstractEventLoop

    # life

    @asynccontextmanager
    async def running(self, *, card: bool = False) -> AsyncIterator[Engine]:
        """Everything that handlers need, from the clock to the pipelines' own contexts. ``card``: this is a worker
        process, and the cluster should see it."""
        async with AsyncExitStack() as stack:
            self.loop = asyncio.get_running_loop()
            await self.clock.sync()
            self.settler.start()
            stack.push_async_callback(self.settler.stop)
            self.leases.start()
            stack.push_async_callback(self.leases.stop)
            for plan in self.plans:
                opened = plan.app.lifespan_
                self.contexts[plan.name] = (
                    await stack.enter_async_context(opened(plan.settings)) if opened else None
                )
            await self._write_cards()
            await self.refresh()
            if card:
                await self._present()
                stack.push_async_callback(self._leave)
            stack.push_async_callback(self._last_rates)
            try:
                yield self
            finally:
                self.settler.give_up_in(self.options.grace)

    async def _last_rates(self) -> None:
        await self.rates.flush(all=True)

    async def beat(self) -> None:
        """What the heartbeat does besides renewing: write finished minutes, learn what is paused."""
        await self.rates.flush()
        await self.refresh()
        for run in list(self._active.values()):
            if (
                isinstance(run.cycle.schedule, Always)
                and run.counters["taken"] - run.judged["taken"] >= 100
            ):
                await self._judge(run)

    def own_renewals(self) -> list[Renewal]:
        """Leases that are not records under work: the runs under way, the cycles they lock, this worker's card."""
        lease = self.options.lease
        own = [
            Renewal(run.lock[0], run.lock[1], lease)
            for run in self._active.values()
            if run.lock is not None
        ]
        if self._card is not None:
            own.append(Renewal(self._card.ref, 0, lease))
        return self.runs.renewals() + own

    async def refresh(self) -> None:
        """Learn which cycles are paused."""
        page = await self.records.find(CycleRecord, {"status": "paused"}, limit=1000)
        self._paused = frozenset(card.cycle for card in page.items)

    def paused(self, cycle: str) -> bool:
        return cycle in self._paused

    def under_way(self, cycle: str) -> RunContext | None:
        """The run of this cycle that this process is busy with, if any: its counters so far."""
        return self._active.get(cycle)

    def inflight(self, stage: str) -> int:
        """How many records of the stage this process holds."""
        return sum(runner.inflight for runner in self._runners if runner.stage.name == stage)

    async def _present(self) -> None:
        card = WorkerRecord(
            id=self.worker, host=socket.gethostname(), pid=os.getpid(), version=__version__, stages=sorted(self.stages),
            started_at=self.clock.now(), leased_by=self.worker, due_at=self.clock.now() + self.options.lease_time,
        )  # fmt: skip
        await self.store.insert([card])
        self._card = card

    async def _leave(self) -> None:
        if self._card is not None:
            await self.settler.settle(
                Settlement(self._card.ref, "stopped", ("running",), 0, who=self.worker)
            )
            self._card = None

    async def _write_cards(self) -> None:
        """One card per cycle, due at its first slot; a changed schedule makes it due by the new one."""
        now = self.clock.now()
        cards = [
            CycleRecord(cycle=c.name, schedule=str(c.schedule), due_at=self._first_slot(c, now))
            for c in self.cycles.values()
        ]
        await self.store.insert(cards)
        for card, cycle in zip(
            await self.records.get_many(CycleRecord, [c.kind.id_of(c.cycle) for c in cards]),
            self.cycles.values(),
            strict=True,
        ):
            if card is not None and card.schedule != str(cycle.schedule) and card.status == "idle":
                fields = {"schedule": str(cycle.schedule)}
                move = Settlement(
                    card.ref,
                    "idle",
                    ("idle",),
                    None,
                    fields,
                    until=self._first_slot(cycle, now),
                    who=self.worker,
                )
                await self.store.settle([move])

    @staticmethod
    def _first_slot(cycle: Cycle, now: datetime) -> datetime:
        return (
            now
            if isinstance(cycle.schedule, Every)
            else cycle.schedule.next_after(now) or now + timedelta(days=36500)
        )

    # look-ups

    def plan_of(self, name: str) -> Plan:
        """The plan that a cycle or stage belongs to."""
        return self._plans[name.split(".", 1)[0]]

    def lease_of(self, stage: Stage) -> float:
        return stage.lease or self.options.lease

    def cycle(self, name: str) -> Cycle:
        if name not in self.cycles:
            known = ", ".join(sorted(n for n in self.cycles if not n.startswith("esclusa.")))
            if not known:
                raise NotFound(text("no_cycles", name=name))
            raise NotFound(text("cycle_not_found", name=name, known=known))
        return self.cycles[name]

    def kind(self, table: str) -> Kind:
        if table not in self.kinds:
            known = ", ".join(sorted(self.kinds))
            raise NotFound(text("kind_not_found", table=table, known=known))
        return self.kinds[table]

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        return tuple(self.stages.values())

    @property
    def all_kinds(self) -> tuple[Kind, ...]:
        return tuple(self.kinds.values())

    # running cycles

    async def run_cycle(
        self,
        name: str,
        *,
        person: bool = True,
        limit: int | None = None,
        slot: str | None = None,
        params: dict[str, Any] | None = None,
    ) -> RunContext:
        """Run a cycle once, to its end. Raises AlreadyRunning, Paused, NotFound, SettingsError (its pipeline lacks a setting).

        ``person``: somebody asked for it now (and an eager cycle takes what is not due yet); otherwise the schedule did.
        """
        cycle = self.cycle(name)
        now = await self.clock.sync()
        if name in self._active:  # nothing is awaited between this and its entry below
            self.telemetry.event("warning", "worker_already_running", cycle=name)
            raise AlreadyRunning(text("running_here", cycle=name))
        plan = self.plan_of(name)
        missing = list(plan.app.needs_(plan.settings)) if plan.app.needs_ is not None else []
        if missing:
            raise SettingsError(f"{name} cannot run:", missing)
        run = RunContext(
            self,
            cycle,
            "",
            slot or "",
            now,
            eager=person and cycle.eager,
            limit=limit,
            params=params or {},
        )
        self._active[name] = run
        try:
            if cycle.singleton:
                run.lock = await self._lock(cycle, now, person=person)
            elif person:
                await self._refuse_paused(name)
            run.slot = slot or f"{now:%Y%m%dT%H%M%S.%fZ}-{self.worker}"
            if not await self.runs.start(run):
                raise AlreadyRunning(text("slot_done", cycle=name, slot=run.slot))
            await self._run(run)
        finally:
            await self._unlock(run)
            del self._active[name]
        return run

    async def _run(self, run: RunContext) -> None:
        try:
            if run.cycle.function is not None:
                await run.cycle.function(run)
            else:
                for stage in run.cycle.stages:
                    await self.drain(run, stage.name, limit=run.limit)
        except asyncio.CancelledError:
            run.end("error", "stopped before it ended")
            await asyncio.shield(self.runs.finish(run))
            raise
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - a cycle that breaks is an outcome, and an alert, even by sys.exit()
            run.end("error", f"{type(error).__name__}: {error}")
            self.telemetry.event(
                "error",
                f"{run.cycle.name} broke: {run.message}",
                cycle=run.cycle.name,
                run=run.id,
                exc_info=error,
            )
            await self.alert(
                "cycle_broke", run.cycle.name, f"{run.cycle.name} broke: {run.message}", run=run.id
            )
        await self.runs.finish(run)
        await self._judge(run)

    async def drain(
        self,
        run: RunContext,
        stage: str,
        *,
        limit: int | None = None,
        where: dict[str, Any] | None = None,
        before: datetime | None = None,
        eager: bool | None = None,
    ) -> None:
        """Handle what is due now for the stage, to its end, as part of a run. Once the engine stops, nothing is claimed."""
        if self.stopping:
            return
        found = self.stages.get(stage) or self.stages.get(f"{run.cycle.name.split('.')[0]}.{stage}")
        if found is None:
            known = ", ".join(
                sorted(name for name in self.stages if not name.startswith("esclusa."))
            )
            raise NotFound(text("stage_not_found", name=stage, known=known or "-"))
        runner = StageRunner(self, found, run)
        self._runners.add(runner)
        try:
            moment = before or await self.clock.sync()
            await runner.serve(
                limit=limit, where=where, before=moment, eager=run.eager if eager is None else eager
            )
        finally:
            self._runners.discard(runner)

    async def serve(self, cycle: Cycle, stopping: asyncio.Event) -> None:
        """Serve an ``always`` cycle until ``stopping``: its stages claim whenever something is due."""
        now = await self.clock.sync()
        run = RunContext(self, cycle, "", f"{now:%Y%m%dT%H%M%S.%fZ}-{self.worker}", now)
        self._active[cycle.name] = run
        await self.runs.start(run)
        runners = [StageRunner(self, stage, run, forever=True) for stage in cycle.stages]
        self._runners |= set(runners)
        try:
            async with asyncio.TaskGroup() as group:
                for runner in runners:
                    group.create_task(runner.serve(), name=runner.stage.name)
                await stopping.wait()
                for runner in runners:
                    runner.stop()
        finally:
            self._runners -= set(runners)
            del self._active[cycle.name]
            await asyncio.shield(self.runs.finish(run))

    def heard(self, table: str) -> None:
        """The store says that something of this table may be due."""
        for runner in self._runners:
            if table in ("*", runner.stage.kind.table):
                runner.wake()

    def stop(self) -> None:
        """Claim nothing more; runs under way come to their end."""
        self.stopping = True
        for runner in list(self._runners):
            runner.stop()

    def stop_run(self, run: RunContext, *, abort: bool = False) -> None:
        """Claim nothing more for this run; with ``abort`` its handlers stop too. It ends once all is settled."""
        run.halted = True
        for runner in [r for r in self._runners if r.run is run]:
            runner.abort() if abort else runner.stop()

    def abort(self) -> None:
        """Stop the handlers too; their records go back at once. A store that is away is not waited for much longer."""
        self.settler.give_up_in(LAST)
        for runner in list(self._runners):
            runner.abort()

    # the lock of a cycle that runs alone: its card, claimed

    async def _lock(self, cycle: Cycle, now: datetime, *, person: bool) -> tuple[Ref, int]:
        id = CycleRecord.kind.id_of(cycle.name)
        ask = ClaimRequest(
            CycleRecord.kind, cycle.name, ("idle",), "running", ids=(id,), lease=self.options.lease, worker=self.worker,
            before=now, eager=person,
        )  # fmt: skip
        taken = await self.store.claim(ask)
        if taken:
            return taken[0].ref, taken[0].fence
        await self._refuse_paused(cycle.name)
        raise AlreadyRunning(text("running_elsewhere", cycle=cycle.name))

    async def _refuse_paused(self, name: str) -> None:
        card = await self.records.get(CycleRecord, CycleRecord.kind.id_of(name))
        if card is not None and card.status == "paused":
            raise Paused(text("paused", cycle=name))

    async def _unlock(self, run: RunContext) -> None:
        if run.lock is not None:
            now = self.clock.now()
            after = run.cycle.schedule.next_after(max(now, run.started)) or now + timedelta(
                days=36500
            )
            ref, fence = run.lock
            await self.settler.settle(
                Settlement(
                    ref, "idle", ("running",), fence, until=after, attempts=0, who=self.worker
                )
            )

    # alerts

    async def _judge(self, run: RunContext) -> None:
        """Raise an alert if too many of the records failed that the run took since it was last judged."""
        cycle, fresh = run.cycle, run.counters - run.judged
        run.judged = run.counters.copy()
        taken, failed = (
            fresh["taken"],
            fresh["retried"]
            + sum(fresh[state] for state in {s.exhausted for s in cycle.stages if s.exhausted}),
        )
        if (
            cycle.alert_rate is None
            or taken < cycle.alert_min
            or failed <= cycle.alert_rate * taken
        ):
            return
        share = f"{failed} of {taken} records failed ({failed / taken:.0%}, more than {cycle.alert_rate:.0%})"
        await self.alert(
            "error_rate",
            cycle.name,
            f"{cycle.name}: {share}",
            run=run.id,
            taken=taken,
            failed=failed,
        )

    async def alert(self, name: str, subject: str, message: str, **details: Any) -> None:
        """Tell people: the log, the list of alerts, and the sink (a webhook). Never raises."""
        row = Alert(
            name=name, subject=subject, message=message, raised_at=self.clock.now(), details=details
        )
        self.telemetry.event("error", message, alert=name, subject=subject, **details)
        try:
            await self.store.insert([row])
            if self._alert_sink is not None:
                await self._alert_sink(row)
        except Exception as error:  # noqa: BLE001 - telling must not break what it tells about
            self.telemetry.event("warning", f"alert {name} could not be delivered: {error}")
