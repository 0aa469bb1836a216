"""Judges what should raise an alert: runs, error shares, backlogs, budgets, missing workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TypeGuard, TypeVar

from esclusa.engine.alert_rules import AlertRules
from esclusa.engine.alerts import AlertLog
from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.forecast import waits_for
from esclusa.engine.options import Options
from esclusa.engine.pauses import StagePauses
from esclusa.engine.rates import Minute, Rates, latest, minute_of
from esclusa.engine.record_alerts import RecordAlerts
from esclusa.engine.records import Records
from esclusa.engine.registry import SYSTEM, Registry
from esclusa.engine.runs import RunContext
from esclusa.engine.threads import end_tasks
from esclusa.engine.watchdog import LOOP_BLOCKED
from esclusa.model import duration
from esclusa.model.budget import Budget, WindowUse
from esclusa.model.deadline import ALERT as DEADLINE
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.query import at_least
from esclusa.model.schedule import Always, Manual, Schedule
from esclusa.model.stage import Cycle, Stage
from esclusa.model.stage_options import FromSetting
from esclusa.model.system_records import Alert, RateRecord, WorkerRecord
from esclusa.model.texts import text
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

T = TypeVar("T")

# The latest attempts of which an error share is taken: at least so many, not older than this.
ATTEMPTS = 20
OLDEST = timedelta(hours=1)
# Where nothing shows that an alert is over, it is over if it is not confirmed for so long.
QUIET = timedelta(minutes=10)
# Windows that are long enough for a person to act before they reset.
LONG_WINDOWS = ("hour", "day", "month")
# The longest interval, in seconds, between two judgements that read much from the store.
SLOW = 60.0
# The subject of the alert that no worker lives.
NOBODY = "esclusa"
# Seconds after which work is late for `esclusa doctor`, if that alert is switched off.
NO_WORKER = 300.0


class AlertJudge:
    """Begins and ends alerts by what it finds, in every process that works or serves.

    All processes come to the same verdicts, because these depend on the store, and the alert log
    writes each only once. Only the error shares of always-on stages are those of this process.
    """

    def __init__(
        self,
        alerts: AlertLog,
        registry: Registry,
        store: Store,
        records: Records,
        cycle_records: CycleRecords,
        rates: Rates,
        clock: StoreClock,
        telemetry: Telemetry,
        options: Options,
        worker: str,
        *,
        active: Callable[[str], RunContext | None],
        pauses: StagePauses,
        rules: AlertRules,
    ) -> None:
        self._alerts = alerts
        self._registry = registry
        self._store = store
        self._records = records
        self._cycle_records = cycle_records
        self._rates = rates
        self._clock = clock
        self._telemetry = telemetry
        self._options = options
        self._worker = worker
        self._active = active
        self._pauses = pauses
        self._tripped = pauses.tripped
        self._rules = rules
        self._record_alerts = RecordAlerts(
            alerts, registry, store, records, cycle_records, clock, rules
        )
        self._changed = asyncio.Event()
        rules.on_change = self._changed.set
        self._task: asyncio.Task[None] | None = None
        self._looked: dict[str, float] = {}

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name="alerts")

    async def stop(self) -> None:
        if self._task is not None:
            await end_tasks(self._task)

    async def _loop(self) -> None:
        last = time.monotonic()
        while True:
            slow = min(SLOW, (self._rules.shortest_wait(self._registry.all_stages) or SLOW) / 4)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._options.judge, max(0.5, slow))):
                    await self._changed.wait()
            await self._try(self._alerts.retry, self._error_shares)
            if self._changed.is_set() or time.monotonic() - last >= slow:
                self._changed.clear()
                await self.judge()
                last = time.monotonic()

    async def judge(self) -> None:
        """Judge everything that does not belong to the end of a run."""
        await self._try(
            self._pauses.refresh,
            self._pauses.end_alerts,
            self._error_shares,
            self._finished_runs,
            self._blocked_loops,
            self._deadlines,
            self._backlogs,
            self._workers,
            self._budgets,
            self._rates_off,
            self._record_alerts.silences,
            self._record_alerts.dead_letters,
        )

    async def _try(self, *rules: Callable[[], Awaitable[None]]) -> None:
        """Apply the rules; one that fails does not keep the others from being applied."""
        for rule in rules:
            try:
                await rule()
            except (StoreUnavailable, StoreConflict) as error:
                self._telemetry.event("debug", f"alerts are not judged: {error}")
                return
            except Exception as error:  # noqa: BLE001 - the next judgement may succeed
                self._telemetry.event(
                    "error", f"judging alerts: {type(error).__name__}: {error}", exc_info=error
                )

    # runs

    async def run_finished(self, run: RunContext) -> None:
        """Judge a run that has ended: its outcome, and the share of failed attempts."""
        name, why = run.cycle.name, run.message or ""
        if run.outcome == "error":
            message = text("cycle_failed", cycle=name, why=why)
            await self._alerts.begin("cycle_failed", name, message, run=run.id)
        else:
            await self._alerts.end("cycle_failed", name)
        if run.outcome == "blocked" and not any(map(self._tripped, run.cycle.stages)):
            message = text("cycle_blocked", cycle=name, why=why)
            await self._alerts.begin("cycle_blocked", name, message, run=run.id)
        elif not _idle(run.cycle, run.counters):
            await self._alerts.end("cycle_blocked", name)
        await self._run_share(run)

    async def _run_share(self, run: RunContext) -> None:
        """An alert begins with a run in which too many failed, and ends when few enough do.

        A record that fails again was reported when it failed first: it does not count. The end is
        judged like an always-on stage: a run of one record does not end it.
        """
        cycle, fresh = run.cycle, run.counters
        exhausted = {stage.exhausted for stage in cycle.stages if stage.exhausted}
        failed = fresh["retried"] + sum(fresh[state] for state in exhausted) - run.failed_again
        taken = fresh["taken"] - run.failed_again
        if any(map(self._tripped, cycle.stages)):
            return  # the alert of the breaker says so
        bad = self._too_many(cycle, failed, taken)
        if bad:
            await self._begin_share(cycle, cycle.name, failed, taken, run=run.id)
        elif self._too_many(cycle, *self._recent(cycle, cycle.stages)) is False:
            await self._alerts.end("error_rate", cycle.name)

    async def _finished_runs(self) -> None:
        """End the alert of a cycle that has run well since, in whatever process."""
        for (name, subject), alert in list((await self._alerts.open()).items()):
            cycle = self._registry.cycles.get(subject)
            if name not in ("cycle_failed", "cycle_blocked") or cycle is None:
                continue
            if isinstance(cycle.schedule, Always):
                run, failed = self._active(subject), (alert.details or {}).get("run")
                over = run is not None and (self._quiet(alert) or run.continues == failed)
            else:
                last = await self._cycle_records.last_run(subject)
                over = (
                    last is not None
                    and last.status in ("ok", "partial")
                    and not (name == "cycle_blocked" and _idle(cycle, last.counters or {}))
                    and (alert.begun_at is None or last.started_at > alert.begun_at)
                )
            if over:
                await self._alerts.end(name, subject)

    async def _blocked_loops(self) -> None:
        """End the alert of a process that ended while its event loop was blocked."""
        for (name, subject), alert in list((await self._alerts.open()).items()):
            if name == LOOP_BLOCKED and self._quiet(alert):
                await self._alerts.end(name, subject)

    async def _deadlines(self) -> None:
        """End the alert of a deadline when no record is left in the state that it leads to.

        In a terminal state records stay; there it ends a while after the last one.
        """
        for (name, subject), alert in list((await self._alerts.open()).items()):
            cycle = self._registry.cycles.get(subject)
            stage = cycle.stages[0] if cycle is not None and cycle.stages else None
            if name != DEADLINE or stage is None or stage.deadline is None:
                continue
            to = stage.deadline.to
            if to in stage.kind.lifecycle.terminal:
                over = self._quiet(alert)
            else:
                over = not (
                    await self._records.find(stage.kind.model, {"status": to}, limit=1)
                ).items
            if over:
                await self._alerts.end(name, subject)

    def _quiet(self, alert: Alert) -> bool:
        """Whether nobody has confirmed the alert for long."""
        confirmed = alert.confirmed_at
        return confirmed is None or self._clock.now() - confirmed > QUIET

    # error shares

    async def _error_shares(self) -> None:
        for cycle in self._registry.cycles.values():
            if isinstance(cycle.schedule, Always) and self._active(cycle.name) is not None:
                for stage in cycle.stages:
                    await self._error_share(cycle, stage)

    async def _error_share(self, cycle: Cycle, stage: Stage) -> None:
        failed, taken = self._recent(cycle, [stage])
        verdict = self._too_many(cycle, failed, taken)
        if self._tripped(stage):
            return  # the alert of the breaker says so
        if verdict is None and self._look(cycle, stage, failed):
            since = self._clock.now() - OLDEST
            rows = self._records.each(RateRecord, {"stage": stage.name, "minute": at_least(since)})
            others = [minute_of(row) async for row in rows if row.worker != self._worker]
            failed, taken = self._recent(cycle, [stage], others)
            verdict = self._too_many(cycle, failed, taken)
        if verdict:
            await self._begin_share(cycle, stage.name, failed, taken)
        elif verdict is False:
            await self._alerts.end("error_rate", stage.name)

    def _look(self, cycle: Cycle, stage: Stage, failed: int) -> bool:
        """Whether to read what the other workers counted: this one has failures, but too few."""
        now = time.monotonic()
        if not failed or now - self._looked.get(stage.name, float("-inf")) < SLOW:
            return False
        self._looked[stage.name] = now
        return True

    def _recent(
        self, cycle: Cycle, stages: Iterable[Stage], others: Iterable[Minute] = ()
    ) -> tuple[int, int]:
        """How many of the latest attempts failed, and how many there were."""
        minutes = [each for stage in stages for each in self._rates.minutes(stage.name)]
        least = max(ATTEMPTS, _given(cycle.alert_min, self._options.alert_min))
        return latest([*minutes, *others], least, self._clock.now() - OLDEST)

    def _too_many(self, cycle: Cycle, failed: int, taken: int) -> bool | None:
        """Whether too many attempts failed. None: there are too few, or no alert is wanted."""
        rate = self._rules.error_rate(cycle)
        if rate is None or taken < max(1, _given(cycle.alert_min, self._options.alert_min)):
            return None
        return failed > rate * taken

    async def _rates_off(self) -> None:
        """End the alerts of error shares that an operator switched off."""
        for name, subject in list(await self._alerts.open()):
            stage = self._registry.stages.get(subject)
            cycle = self._registry.cycles.get(subject) or (stage and self._registry.cycle_of(stage))
            if name == "error_rate" and cycle and self._rules.error_rate(cycle) is None:
                await self._alerts.end(name, subject)

    async def _begin_share(
        self, cycle: Cycle, subject: str, failed: int, taken: int, **details: str
    ) -> None:
        rate = self._rules.error_rate(cycle) or 0.0
        message = text(
            "error_rate",
            cycle=subject,
            failed=failed,
            taken=taken,
            share=f"{failed / taken:.0%}",
            limit=f"{rate:.0%}",
        )
        await self._alerts.begin(
            "error_rate", subject, message, taken=taken, failed=failed, **details
        )

    # backlogs and workers

    async def _backlogs(self) -> None:
        for stage in self._registry.all_stages:
            limit = self._rules.backlog(stage)
            cycles = [c for c in self._registry.cycles.values() if stage in c.stages]
            cycles = [cycle for cycle in cycles if self._scheduled(cycle)]
            if not limit or not cycles:
                if not limit:
                    await self._alerts.end("backlog", stage.name)
                continue
            oldest = await self._oldest(stage)
            since = _first(_chance(cycle.schedule, oldest) for cycle in cycles)
            if not self._longer(since, limit):
                await self._alerts.end("backlog", stage.name)
            elif not self._tripped(stage) and not await self._denied(stage):
                message = text(
                    "backlog", stage=stage.name, since=since, limit=duration.words(limit)
                )
                await self._alerts.begin("backlog", stage.name, message)

    async def _workers(self) -> None:
        is_on = self._rules.no_worker() is not None
        alive, late = await self.unserved() if is_on else (True, {})
        if not alive and late:
            message = text("no_worker", since=min(late.values()))
            await self._alerts.begin("no_worker", NOBODY, message)
        else:
            await self._alerts.end("no_worker", NOBODY)
        for cycle in self._registry.cycles:
            if alive and cycle in late:
                message = text("no_worker_for", cycle=cycle, since=late[cycle])
                await self._alerts.begin("no_worker", cycle, message)
            else:
                await self._alerts.end("no_worker", cycle)

    async def unserved(self) -> tuple[bool, dict[str, datetime]]:
        """Whether a worker lives, and the cycles that none runs although their work is late.

        Each with the time since when. A cycle that was run a moment ago, by a tick or by hand, is
        not among them.
        """
        now, limit = self._clock.now(), self._rules.no_worker() or NO_WORKER
        running = self._records.each(WorkerRecord, {"status": "running"})
        workers = [w async for w in running if w.due_at is not None and w.due_at > now]
        late = {}
        for name, cycle in self._registry.cycles.items():
            served = any(not worker.cycles or name in worker.cycles for worker in workers)
            if served or name.startswith(SYSTEM) or not self._scheduled(cycle):
                continue
            moments = [await self._oldest(stage) for stage in cycle.stages]
            since = _first(_chance(cycle.schedule, moment) for moment in moments)
            if cycle.function is not None and not isinstance(cycle.schedule, Always):
                since = _first([since, await self._cycle_records.next_slot(cycle)])
            if self._longer(since, limit):
                last = await self._cycle_records.last_run(name)
                if last is None or self._longer(last.finished_at or last.started_at, limit):
                    late[name] = since
        return bool(workers), late

    def _scheduled(self, cycle: Cycle) -> bool:
        """Whether the cycle should run by itself."""
        return not isinstance(cycle.schedule, Manual) and not self._cycle_records.paused(cycle.name)

    def _longer(self, since: datetime | None, seconds: float) -> TypeGuard[datetime]:
        return since is not None and (self._clock.now() - since).total_seconds() > seconds

    async def _oldest(self, stage: Stage) -> datetime | None:
        """Since when a record of the stage is due."""
        return (await self._store.backlog(self._registry.request(stage), cap=1)).oldest

    async def _denied(self, stage: Stage) -> bool:
        """Whether its records wait for the budget; then the budget's own alert says so."""
        if stage.budget is None:
            return False
        windows = await self._store.usage(stage.budget)
        return any(use.left < max(1, stage.cost) or use.barred for use in windows)

    # budgets

    async def _budgets(self) -> None:
        for budget in {b.name: b for plan in self._registry.plans for b in plan.budgets}.values():
            share = self._rules.budget(budget, self._registry.all_stages)
            windows = await self._store.usage(budget)
            for use in (use for use in windows if use.per in LONG_WINDOWS):
                await self._budget(budget, use, share)

    async def _budget(self, budget: Budget, use: WindowUse, share: float | None) -> None:
        subject, empty = f"{use.budget}/{use.per}", use.runs_out_at(self._clock.now())
        enough = share is not None and use.used > 0 and use.used >= share * use.limit
        is_early = empty is not None and enough
        paused = self._cycle_records.paused
        if not is_early or not await waits_for(self._registry, self._store, budget, [use], paused):
            await self._alerts.end("budget_early", subject)
            return
        message = text(
            "budget_early",
            budget=use.budget,
            used=use.used,
            limit=use.limit,
            per=use.per,
            at=empty,
            reset=use.reset,
        )
        await self._alerts.begin("budget_early", subject, message)


def _given(threshold: T | FromSetting, setting: T) -> T:
    """The threshold of a stage or cycle, or the system's if it has none of its own."""
    return setting if threshold == "setting" else threshold


def _chance(schedule: Schedule, due: datetime | None) -> datetime | None:
    """When a record that became due could be taken first."""
    return due if due is None or isinstance(schedule, Always) else schedule.next_after(due)


def _first(moments: Iterable[datetime | None]) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _idle(cycle: Cycle, counters: Mapping[str, int]) -> bool:
    """Whether a run of stages alone found no record: it shows nothing about what blocked it."""
    return cycle.function is None and not counters.get("taken", 0)
