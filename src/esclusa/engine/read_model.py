"""The read model: everything that the command line, the API and the console show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from esclusa.engine import read_shapes as shapes
from esclusa.engine.alert_rules import mute_shape
from esclusa.engine.forecast import Conditions, waits_for
from esclusa.engine.pauses import open_pauses
from esclusa.engine.rates import merge
from esclusa.engine.read_time import TimeReader
from esclusa.engine.registry import SYSTEM
from esclusa.model.budget import Budget
from esclusa.model.kind import Kind
from esclusa.model.plan import Plan
from esclusa.model.query import Page, Where, above, at_least, at_most, one_of, query
from esclusa.model.record import Record
from esclusa.model.settlement import Backlog
from esclusa.model.stage import Stage
from esclusa.model.system_records import (
    Alert,
    CycleRecord,
    DeadLetter,
    Export,
    RateRecord,
    Run,
)

# The most runs of a cycle that are read at a time for its usual duration.
USUAL_RUNS = 100
# The most related records of one relation.
RELATED = 20
# The most leases of one stage.
LEASES = 100
# Records that are read at a time for a whole list.
EACH = 500
# The records of a view are counted up to here.
COUNTED = 10_000
# The rows of an archive are counted up to here.
ARCHIVED = 100_000


class ReadModel(TimeReader):
    """Answers in plain data, ready for JSON. It changes nothing.

    Sentences that Esclusa stored as codes are ``Text`` here: English strings with their code.
    ``registry`` holds what is declared.
    """

    # stages, leases and rates

    def _stages(self, *, system: bool) -> list[Stage]:
        return [s for s in self.registry.all_stages if system or not s.name.startswith(SYSTEM)]

    async def stages(self, *, system: bool = False) -> list[dict[str, Any]]:
        """Every stage: what is due, since when, and its rates of the last five minutes."""
        rates = merge(await self._rates(self._minute() - shapes.STAGE_RATES))
        stages = self._stages(system=system)
        backlogs = {stage.name: await self.backlog(stage) for stage in stages}
        under = await self._conditions(stages, backlogs)
        return [
            shapes.stage_shape(
                stage,
                backlogs[stage.name],
                rates.get(stage.name, {}),
                under[stage.name],
                self.now(),
            )
            for stage in stages
        ]

    async def _conditions(
        self, stages: Sequence[Stage], backlogs: Mapping[str, Backlog]
    ) -> dict[str, Conditions]:
        """What each stage works under, by name."""
        now = self.now()
        pauses = await open_pauses(self._records, now)
        records = {c.cycle: c async for c in self._records.each(CycleRecord)}
        alive = [worker for worker in await self.workers() if worker["alive"]]
        waiting = [s for s in stages if s.budget is not None and backlogs[s.name].due]
        demand: Counter[str] = Counter()
        for stage in waiting:
            if stage.budget is not None:
                demand[stage.budget.name] += backlogs[stage.name].due * stage.cost
        windows = {s.budget.name: await self._store.usage(s.budget) for s in waiting if s.budget}
        found = {}
        for stage in stages:
            cycle = self.registry.cycle_of(stage)
            record = None if cycle is None else records.get(cycle.name)
            budget = "" if stage.budget is None or not stage.cost else stage.budget.name
            found[stage.name] = Conditions(
                cycle,
                paused=record is not None and record.status == "paused",
                served=any(
                    cycle is None or not w["cycles"] or cycle.name in w["cycles"] for w in alive
                ),
                next_run=None if cycle is None else shapes.next_slot(cycle, record, now),
                pause=pauses.get(stage.name),
                windows=windows.get(budget, ()),
                demand=demand[budget],
            )
        return found

    async def backlog(self, stage: Stage) -> Backlog:
        return await self._store.backlog(self.registry.request(stage))

    async def rates(self, minutes: int = 60, *, system: bool = False) -> list[dict[str, Any]]:
        """What each stage did, minute by minute; the current minute is not in it yet."""
        first = self._minute() - timedelta(minutes=minutes)
        by_stage: dict[str, list[RateRecord]] = {}
        for row in await self._rates(first):
            by_stage.setdefault(row.stage, []).append(row)
        return [
            shapes.rate_series(stage.name, by_stage.get(stage.name, []), first, minutes)
            for stage in self._stages(system=system)
        ]

    async def _rates(self, since: datetime) -> list[RateRecord]:
        return [row async for row in self._records.each(RateRecord, {"minute": at_least(since)})]

    def _minute(self) -> datetime:
        return self.now().replace(second=0, microsecond=0)

    async def leases(self, *, system: bool = False) -> list[dict[str, Any]]:
        """The records that are held now: by which worker, until when."""
        held = [(s, r) for s in self._stages(system=system) for r in await self._held(s)]
        return [shapes.lease_shape(stage, record, self.now()) for stage, record in held]

    async def _held(self, stage: Stage) -> list[Record]:
        where: dict[str, Any] = {"status": stage.hold}
        if stage.hold is None:
            # Held in the take state: a lease ends soon, so only what is due soon can be held.
            now = self.now()
            lease = timedelta(seconds=stage.lease or self._options.lease)
            where = {"status": one_of(*stage.take), "due_at": (above(now), at_most(now + lease))}
        page = await self._store.find(query(stage.kind, where, order="due_at", limit=LEASES))
        held = [record for record in page.items if record.leased_by is not None]
        others = await self._store.foreign_locks(stage.kind, [record.id for record in held])
        return [record for record in held if record.id not in others]

    # cycles and runs

    async def cycles(self, *, system: bool = False) -> list[dict[str, Any]]:
        """Every cycle: its schedule, whether it is paused or running, its last run and the next."""
        records = {c.cycle: c async for c in self._records.each(CycleRecord)}
        return [
            shapes.cycle_shape(
                cycle,
                records.get(cycle.name),
                await self._records.first(Run, {"cycle": cycle.name}, order="-started_at"),
                self.now(),
            )
            for cycle in self.registry.cycles.values()
            if system or not cycle.name.startswith(SYSTEM)
        ]

    async def runs(
        self, where: Mapping[str, Any], *, limit: int = 50, after: str | None = None
    ) -> Page[Record]:
        return await self.records(
            Run.kind.table, where, order="-started_at", limit=limit, after=after
        )

    async def usual_seconds(self, run: Run) -> float | None:
        """The median duration of runs of the cycle that ended ok and had work, beside this one.

        The runs just before it count; where fewer than three had work, the latest count, too. None
        if that is too few still.
        """
        times: list[float] = []
        for near in (at_most(run.started_at), at_least(run.started_at)):
            where = {"cycle": run.cycle, "started_at": near}
            page = await self._records.find(Run, where, order="-started_at", limit=USUAL_RUNS)
            times += [
                other.duration_ms / 1000
                for other in page.items
                if other.id != run.id
                and other.status == "ok"
                and other.duration_ms is not None
                and any((other.counters or {}).values())
            ]
            if len(times) >= 3:
                return round(median(times), 3)
        return None

    async def alerts_of_run(self, run: Run) -> list[Alert]:
        """The alerts, of the newest hundred, that name the run as their cause."""
        page = await self.alerts(limit=100)
        return [
            alert
            for alert in page.items
            if isinstance(alert, Alert) and (alert.details or {}).get("run") == run.id
        ]

    # budgets, dead letters, alerts, workers, archives

    async def budgets(self) -> list[dict[str, Any]]:
        """Every budget with the use of its windows, and whether something waits for it."""
        cycles = [c async for c in self._records.each(CycleRecord)]
        paused = {cycle.cycle for cycle in cycles if cycle.status == "paused"}
        return [
            await self._budget(plan, budget, paused.__contains__)
            for plan in self.registry.plans
            for budget in plan.budgets
        ]

    async def _budget(
        self, plan: Plan, budget: Budget, paused: Callable[[str], bool]
    ) -> dict[str, Any]:
        windows = await self._store.usage(budget)
        waits = await waits_for(self.registry, self._store, budget, windows, paused)
        return {
            "budget": budget.name,
            "pipeline": plan.name,
            "windows": [shapes.window_shape(w, self.now(), waits=waits) for w in windows],
        }

    async def dead_letter_groups(
        self, where: Where | None = None, *, cap: int = 10_000
    ) -> tuple[list[dict[str, Any]], bool]:
        """Open dead letters (or those of ``where``) by table and error, the largest group first.

        Only the newest ``cap`` are counted; the flag is whether that is all.
        """
        letters: list[DeadLetter] = []
        async for letter in self._records.each(
            DeadLetter, {"status": "open", **(where or {})}, order="-created_at", size=1000
        ):
            if len(letters) == cap:
                return shapes.dead_letter_groups(letters), False
            letters.append(letter)
        return shapes.dead_letter_groups(letters), True

    async def alerts(
        self, where: Where | None = None, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]:
        return await self.records(
            Alert.kind.table, where or {}, order="-begun_at", limit=limit, after=after
        )

    async def alert_rules(self) -> dict[str, Any]:
        """The rules for alerts with the thresholds that count now, and everything that is muted."""
        await self._alert_rules.refresh()
        return {
            "items": list(self._alert_rules.listed(self.registry)),
            "mutes": [mute_shape(row, self.now()) for row in self._alert_rules.mutes()],
        }

    async def mutes(self, alerts: Sequence[Alert]) -> list[dict[str, Any] | None]:
        """For each alert, until when, by whom and why it is muted; None if it is not."""
        await self._alert_rules.refresh()
        found = [self._alert_rules.mute(alert.name, alert.subject) for alert in alerts]
        return [mute_shape(row, self.now()) for row in found]

    async def archives(self) -> list[dict[str, Any]]:
        """Each kind with an archive: its rows, and what was exported, verified and dropped."""
        return [await self._archive(kind) for kind in self.registry.all_kinds if kind.archive]

    async def _archive(self, kind: Kind) -> dict[str, Any]:
        begun = [e async for e in self._records.each(Export, {"table_name": kind.table})]
        unverified = [e.id for e in begun if e.status in ("filling", "written")]
        owners = [None, one_of(*unverified)] if unverified else [None]
        waiting = [query(kind, {"export_id": owner}, archived=True) for owner in owners]
        return shapes.archive_shape(
            kind,
            await self._store.count(query(kind, archived=True), ARCHIVED),
            [await self._store.count(asked, ARCHIVED) for asked in waiting],
            [e for e in begun if e.status != "filling"],
        )

    async def exports(self, *, limit: int = 50) -> list[Export]:
        """The exports of archived rows, newest first."""
        return (await self._records.find(Export, order="-created_at", limit=limit)).items

    async def status(self) -> dict[str, Any]:
        """The whole system in one answer."""
        await self._clock.sync()
        return {
            "now": self.now(),
            "store": self.store_url,
            "kinds": await self.kinds(),
            "unadopted": await self._unadopted(),
            "stages": await self.stages(),
            "cycles": await self.cycles(),
            "budgets": await self.budgets(),
            "workers": [worker for worker in await self.workers() if worker["alive"]],
            "dead_letters": (await self._store.count(query(DeadLetter, {"status": "open"})))[0],
        }
