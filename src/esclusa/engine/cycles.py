"""Runs of cycles, once or for as long as a process serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from esclusa.engine.alerts import AlertLog
from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.options import Options
from esclusa.engine.pauses import StagePauses
from esclusa.engine.registry import Registry
from esclusa.engine.runs import RunContext, RunLog, RunTools, own_slot
from esclusa.engine.stage_worker import StageWorker
from esclusa.model.errors import AlreadyRunning, EsclusaError, SettingsError
from esclusa.model.kind import Kind, Ref
from esclusa.model.plan import Plan
from esclusa.model.query import Where
from esclusa.model.schedule import Always
from esclusa.model.settlement import Renewal
from esclusa.model.stage import Cycle, Stage
from esclusa.model.system_records import StagePause
from esclusa.model.texts import text
from esclusa.ports.telemetry import Telemetry

# Seconds that a run which is cancelled while it begins waits for the store's last answer.
LAST_ANSWER = 2.0


class NewStageWorker(Protocol):
    """Makes the worker of one stage in one run."""

    def __call__(
        self,
        stage: Stage,
        run: RunContext,
        *,
        forever: bool = False,
        where: Where | None = None,
        before: datetime | None = None,
        eager: bool = False,
    ) -> StageWorker: ...


class CycleRunner:
    """Runs cycles of this process; a cycle never overlaps itself."""

    def __init__(
        self,
        registry: Registry,
        records: CycleRecords,
        runs: RunLog,
        alerts: AlertLog,
        clock: StoreClock,
        telemetry: Telemetry,
        options: Options,
        worker: str,
        *,
        run_finished: Callable[[RunContext], Awaitable[None]],
        require: Callable[[str], Awaitable[None]],
        run_tools: Callable[[Plan], RunTools],
        stage_worker: NewStageWorker,
        pauses: StagePauses,
        adopt: Callable[[Sequence[Kind], datetime], Awaitable[Mapping[str, int]]],
    ) -> None:
        self._registry = registry
        self._records = records
        self._runs = runs
        self._alerts = alerts
        self._clock = clock
        self._telemetry = telemetry
        self._options = options
        self._worker = worker
        self._run_finished = run_finished
        self._require = require
        self._run_tools = run_tools
        self._stage_worker = stage_worker
        self._pauses = pauses
        self._adopt = adopt
        self._active: dict[str, RunContext] = {}
        self._workers: set[StageWorker] = set()
        self.stopping = False

    # run

    async def run(
        self,
        name: str,
        *,
        person: bool = True,
        limit: int | None = None,
        slot: str | None = None,
        params: dict[str, Any] | None = None,
    ) -> RunContext:
        """Run a cycle once, to the end.

        ``person``: somebody started it, so an eager cycle takes what is not due yet; otherwise the
        schedule did. Raises AlreadyRunning, Paused, NotFound, SettingsError (a setting is missing)
        and PipelineNotReady.
        """
        cycle = self._registry.cycle(name)
        await self._require(self._registry.plan_of(name).name)
        now = await self._clock.sync()
        if name in self._active:  # nothing is awaited between this and the entry below
            self._telemetry.event("warning", "worker_already_running", cycle=name)
            raise AlreadyRunning(text("running_here", cycle=name))
        self._refuse_missing_settings(name)
        run = self.new_run(cycle, now, slot=slot)
        run.eager, run.limit, run.params = person and cycle.eager, limit, params or {}
        self._active[name] = run
        try:
            await self._begin(run, person)
            await self._run(run)
        finally:
            if run.lock is not None:
                await self._records.unlock(run.lock, cycle, run.started)
            del self._active[name]
        return run

    async def _begin(self, run: RunContext, person: bool) -> None:
        """Lock the cycle and write the run. If cancelled, first hear what was written, and end it.

        Raises AlreadyRunning, Paused.
        """
        begin = asyncio.create_task(self._write_begin(run, person), name=f"begin {run.cycle.name}")
        try:
            await asyncio.shield(begin)
        except asyncio.CancelledError:
            await asyncio.wait([begin], timeout=LAST_ANSWER)
            begin.cancel()
            await asyncio.gather(begin, return_exceptions=True)
            if run.id:
                run.end("error", text("run_cancelled"))
                await asyncio.shield(self._finish(run))
            raise

    async def _write_begin(self, run: RunContext, person: bool) -> None:
        if run.cycle.singleton:
            run.lock = await self._records.lock(run.cycle, run.started, early=person)
        elif person:
            await self._records.refuse_paused(run.cycle.name)
        if not await self._runs.start(run):
            raise AlreadyRunning(text("slot_done", cycle=run.cycle.name, slot=run.slot))

    def _refuse_missing_settings(self, cycle: str) -> None:
        if missing := self._registry.plan_of(cycle).missing_settings():
            raise SettingsError(f"{cycle} cannot run:", missing)

    async def not_started(self, cycle: Cycle, error: Exception) -> None:
        """Report that a cycle could not start by itself; the alert ends when it does."""
        why = str(error) if isinstance(error, EsclusaError) else f"{type(error).__name__}: {error}"
        message = text("cycle_not_started", cycle=cycle.name, why=why)
        await self._alerts.begin("cycle_not_started", cycle.name, message)

    def new_run(self, cycle: Cycle, now: datetime, *, slot: str | None = None) -> RunContext:
        """A run that is not written yet; without a slot it gets one of its own."""
        tools = self._run_tools(self._registry.plan_of(cycle.name))
        return RunContext(tools, cycle, "", slot or own_slot(now, self._worker), now)

    def claim_refused(self, ref: Ref, why: str) -> None:
        """A table refused the claim of a record: runs that wanted it end as errors."""
        for run in self._active.values():
            if not isinstance(run.cycle.schedule, Always) and any(
                stage.kind == ref.kind for stage in run.cycle.stages
            ):
                run.end("error", f"BadRecord: {why}")

    async def _run(self, run: RunContext) -> None:
        await self._alerts.end("cycle_not_started", run.cycle.name)
        await self._note(run, ended=False)
        try:
            kinds = self._registry.plan_of(run.cycle.name).kinds
            run.newly_adopted = await self._adopt(kinds, run.started)
            if run.cycle.function is not None:
                await run.cycle.function(run)
            else:
                for stage in run.cycle.stages:
                    await self.drain(run, stage.name)
        except asyncio.CancelledError:
            run.end("error", text("run_cancelled"))
            await asyncio.shield(self._finish(run))
            raise
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - even sys.exit() in a cycle is an outcome
            run.end("error", f"{type(error).__name__}: {error}")
            message = text("cycle_failed", cycle=run.cycle.name, why=run.message)
            self._telemetry.event(
                "error", message, cycle=run.cycle.name, run=run.id, exc_info=error
            )
        else:
            run.note_cut()
        await self._finish(run)

    async def _note(self, run: RunContext, *, ended: bool) -> None:
        """Call the function of the pipeline that notes its runs."""
        note = self._registry.plan_of(run.cycle.name).app.on_run_
        if note is None:
            return
        try:
            await note(run, ended)
        except Exception as error:  # noqa: BLE001 - the work of the run does not depend on it
            why = f"{type(error).__name__}: {error}"
            message = text("run_not_noted", cycle=run.cycle.name, why=why)
            self._telemetry.event("warning", message, cycle=run.cycle.name, run=run.id)

    async def _finish(self, run: RunContext) -> None:
        await self._note(run, ended=True)
        await self._runs.finish(run)
        await self._run_finished(run)

    async def drain(
        self,
        run: RunContext,
        stage: str,
        *,
        limit: int | None = None,
        where: Where | None = None,
        before: datetime | None = None,
        eager: bool | None = None,
    ) -> None:
        """Handle what is due now for the stage, as part of a run; after a stop, claim nothing."""
        moment = before or await self._clock.sync()
        if self.stopping:
            return
        found = self._registry.stage(stage, pipeline=run.cycle.name.split(".")[0])
        await self._require(self._registry.plan_of(found.name).name)
        worker = self._stage_worker(
            found,
            run,
            where=where,
            before=moment,
            eager=run.eager if eager is None else eager,
        )
        self._workers.add(worker)
        try:
            await worker.serve(limit=limit)
        finally:
            self._workers.discard(worker)

    async def handle(self, stage: str, id: str) -> None:
        """Handle one record of the stage now, due or not, unless a worker holds it.

        It is not part of a run. Raises PipelineNotReady.
        """
        found = self._registry.stages[stage]
        cycle = self._registry.cycle_of(found)
        assert cycle is not None
        run = self.new_run(cycle, await self._clock.sync())
        await self.drain(run, stage, limit=1, where={"id": id}, eager=True)

    async def serve(self, cycle: Cycle, wait: Callable[[], Awaitable[None]]) -> None:
        """Serve an ``always`` cycle while ``wait`` lasts: its stages claim when something is due.

        Raises PipelineNotReady.
        """
        self._refuse_missing_settings(cycle.name)
        run = self.new_run(cycle, await self._clock.sync())
        self._active[cycle.name] = run
        workers: list[StageWorker] = []
        try:
            await self._runs.start(run)
            await self._alerts.end("cycle_not_started", cycle.name)
            workers += [self._stage_worker(stage, run, forever=True) for stage in cycle.stages]
            self._workers |= set(workers)
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(worker.serve(), name=worker.stage.name)
                await wait()
                for worker in workers:
                    worker.stop()
        except Exception as error:
            run.end("error", f"{type(error).__name__}: {error}")
            raise
        finally:
            self._workers -= set(workers)
            del self._active[cycle.name]
            if run.id:
                await asyncio.shield(self._runs.finish(run))

    async def restore(self, lost: Collection[Ref]) -> None:
        """Continue the runs that another worker has ended because it took this one for dead."""
        for run in await self._runs.restore(lost):
            run.log(text("run_goes_on", former=run.continues, run=run.id), level="warning")

    # look

    def active(self, cycle: str) -> RunContext | None:
        """The run of this cycle that is under way in this process."""
        return self._active.get(cycle)

    def inflight(self, stage: str) -> int:
        """How many records of the stage this process holds."""
        return sum(worker.inflight for worker in self._workers if worker.stage.name == stage)

    def renewals(self) -> list[Renewal]:
        """The locks of the cycles that run now."""
        locks = [run.lock for run in self._active.values() if run.lock is not None]
        return [Renewal(ref, fence, self._options.lease) for ref, fence in locks]

    # wake and stop

    def wake(self, table: str) -> None:
        """Claim now: the store reports that a record of this table (``*``: of any) may be due."""
        if table in ("*", StagePause.kind.table) and self._workers:
            self._pauses.refresh_soon(self._wake_all)
        for worker in self._workers:
            if table in ("*", worker.stage.kind.table):
                worker.wake()

    def _wake_all(self) -> None:
        for worker in self._workers:
            worker.wake()

    async def refresh_pauses(self) -> None:
        """Read which stages are paused, if any stage is being worked for."""
        if self._workers:
            await self._pauses.refresh()

    def stop(self, by: str | None = None) -> None:
        """Claim nothing more; runs under way come to their end, and their messages say why."""
        self.stopping = True
        for run in self._active.values():
            run.cut_by = run.cut_by or by or text("by_stop")
        for worker in list(self._workers):
            worker.stop()

    def stop_run(self, run: RunContext, by: str, *, abort: bool = False) -> None:
        """Claim nothing more for this run; with ``abort``, stop its handlers too."""
        run.halted = True
        run.cut_by = run.cut_by or by
        for worker in [w for w in self._workers if w.run is run]:
            worker.abort() if abort else worker.stop()

    def abort(self) -> None:
        """Stop the handlers too; their records go back at once."""
        for worker in list(self._workers):
            worker.abort()
