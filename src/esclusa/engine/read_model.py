"""The read model: what the command line, the API and the console show. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from esclusa.engine.engine import Engine
from esclusa.engine.operations import retry_targets
from esclusa.engine.rates import merge
from esclusa.engine.why import Why, why
from esclusa.model.pipeline import Plan
from esclusa.model.query import Page, Where, at_least, query
from esclusa.model.record import Kind, Record, Ref
from esclusa.model.schedule import Always
from esclusa.model.settlement import Backlog, ClaimRequest, StateCount, Step
from esclusa.model.stage import Cycle, Role, Stage, roles
from esclusa.model.system_records import (
    Alert,
    CycleRecord,
    DeadLetter,
    Export,
    Rate,
    Run,
    WorkerRecord,
)
from esclusa.model.texts import load


class ReadModel:
    """Answers in plain data, ready for JSON."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # kinds and records

    def declared(self, *, system: bool = False) -> list[Kind]:
        """The kinds of the pipelines; with ``books`` the house's own too."""
        own = {k.table for plan in self._engine.plans if plan.name != "esclusa" for k in plan.kinds}
        return [k for k in self._engine.all_kinds if system or k.table in own]

    async def kinds(self, *, system: bool = False) -> list[dict[str, Any]]:
        """Every kind with its lifecycle and counts per state."""
        return [await self.kind(k.table) for k in self.declared(system=system)]

    async def kind(self, table: str) -> dict[str, Any]:
        kind = self._engine.kind(table)
        return self.described(kind, await self._engine.store.tally(kind))

    def described(self, kind: Kind, counts: Sequence[StateCount]) -> dict[str, Any]:
        """A kind, its lifecycle, and these counts."""
        life = kind.lifecycle
        return {
            "table": kind.table, "kind": kind.name, "pipeline": self._pipeline(kind), "key": list(kind.key),
            "fields": {name: type for name, type in kind.types.items() if name not in ("fence", "leased_by")},
            "lifecycle": {
                "initial": life.initial, "states": list(life.states), "terminal": sorted(life.terminal),
                "roles": roles(kind, self._engine.all_stages),
                "moves": [list(m) for m in sorted(life.moves, key=lambda m: (life.states.index(m[0]), life.states.index(m[1])))],
            },
            "counts": [asdict(c) for c in counts],
        }  # fmt: skip

    async def records(
        self,
        table: str,
        where: Where,
        *,
        order: str | tuple[str, ...] = (),
        limit: int = 100,
        after: str | None = None,
        archived: bool = False,
    ) -> Page[Record]:
        return await self._engine.store.find(
            query(
                self._engine.kind(table),
                where,
                order=order,
                limit=limit,
                after=after,
                archived=archived,
            )
        )

    async def record(self, table: str, id: str) -> Record:
        kind = self._engine.kind(table)
        found = (await self._engine.store.get(kind, [id]))[0]
        if found is None:
            raise kind.absent(id)
        return found

    async def history(self, table: str, id: str, limit: int = 1000) -> list[Step]:
        """The newest ``limit`` moves of the record, oldest first; reasons that Esclusa gave are texts."""
        steps = await self._engine.store.history(
            Ref(self._engine.kind(table), id), limit, newest=True
        )
        return [replace(step, reason=load(step.reason)) if step.reason else step for step in steps]

    async def why(self, table: str, id: str) -> Why:
        """Why the record is not moving, and when it can."""
        record = await self.record(table, id)
        engine, kind = self._engine, record.kind
        stages = [s for s in engine.all_stages if s.kind == kind]
        cycles = {s.name: self._cycle_of(s) for s in stages}
        cards = {c.cycle: c async for c in engine.records.each(CycleRecord)}
        budgets = {
            s.budget.name: await engine.store.usage(s.budget)
            for s in stages
            if s.budget is not None
        }
        workers = await self.workers()
        alive = any(w["alive"] for w in workers)
        steps = await engine.store.history(record.ref, 1, newest=True)
        said = load(steps[-1].reason or "") if steps and steps[-1].to == record.status else None
        return why(
            record,
            stages,
            cycles,
            cards,
            budgets,
            now=await engine.clock.sync(),
            workers_alive=alive,
            said=said,
        )

    # stages, cycles, runs

    async def stages(self, *, system: bool = False) -> list[dict[str, Any]]:
        """Every stage: what is due, since when, and how it went in the last five minutes."""
        rates = await self.rates(timedelta(minutes=5))
        now = self._engine.clock.now()
        out = []
        for stage in self._engine.all_stages:
            if stage.name.startswith("esclusa.") and not system:
                continue
            backlog = await self.backlog(stage)
            rate = rates.get(stage.name, {})
            moved = sum(rate.get(k, 0) for k in ("moved", "retried", "exhausted"))
            failed = rate.get("retried", 0) + rate.get("exhausted", 0)
            out.append({
                "stage": stage.name, "table": stage.kind.table, "take": list(stage.take), "hold": stage.hold, "due": backlog.due,
                "due_exact": backlog.exact, "oldest_due_at": backlog.oldest, "next_due_at": backlog.next,
                "oldest_due_seconds": max(0.0, (now - backlog.oldest).total_seconds()) if backlog.oldest else None,
                "per_minute": round(moved / 5, 2), "error_share": round(failed / moved, 4) if moved else None,
                "p50": rate.get("p50"), "p99": rate.get("p99"),
                "drain_seconds": round(backlog.due / (moved / 300), 1) if moved and backlog.due else None,
            })  # fmt: skip
        return out

    async def backlog(self, stage: Stage) -> Backlog:
        return await self._engine.store.backlog(
            ClaimRequest(stage.kind, stage.name, stage.take, stage.hold, stage.where, stage.order)
        )

    async def rates(self, span: timedelta) -> dict[str, dict[str, float]]:
        since = self._engine.clock.now() - span
        rows = [
            r
            async for r in self._engine.records.each(
                Rate, {"minute": at_least(since.replace(second=0, microsecond=0))}
            )
        ]
        return merge(rows)

    async def cycles(self, *, system: bool = False) -> list[dict[str, Any]]:
        """Every cycle: its schedule, whether it is paused or running, its last run and the next."""
        cards = {c.cycle: c async for c in self._engine.records.each(CycleRecord)}
        out = []
        for cycle in self._engine.cycles.values():
            if cycle.name.startswith("esclusa.") and not system:
                continue
            last = await self._engine.records.first(Run, {"cycle": cycle.name}, order="-started_at")
            card = cards.get(cycle.name)
            running = last is not None and last.status == "running"
            out.append({
                "cycle": cycle.name, "schedule": str(cycle.schedule), "singleton": cycle.singleton,
                "state": "paused" if card and card.status == "paused" else "running" if running else "idle",
                "next": self._next(cycle, card), "last": last.kind.as_json(last) if last else None,
            })  # fmt: skip
        return out

    def _next(self, cycle: Cycle, card: CycleRecord | None) -> Any:
        now = self._engine.clock.now()
        if isinstance(cycle.schedule, Always):
            return now
        if cycle.singleton and card is not None and card.due_at is not None and card.due_at > now:
            return card.due_at if card.due_at.year < now.year + 50 else None
        return cycle.schedule.next_after(now)

    async def runs(
        self, where: Mapping[str, Any], *, limit: int = 50, after: str | None = None
    ) -> Page[Record]:
        return await self.records(
            Run.kind.table, where, order="-started_at", limit=limit, after=after
        )

    # budgets, dead letters, alerts, workers

    async def budgets(self) -> list[dict[str, Any]]:
        out = []
        for plan in self._engine.plans:
            for budget in plan.budgets:
                now = self._engine.clock.now()
                windows = [
                    asdict(w)
                    | {
                        "left": w.left,
                        "projected": w.projected(now),
                        "runs_out_at": w.runs_out_at(now),
                    }
                    for w in await self._engine.store.usage(budget)
                ]
                out.append({"budget": budget.name, "pipeline": plan.name, "windows": windows})
        return out

    async def dead_letters(
        self, where: Where, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]:
        return await self.records(
            DeadLetter.kind.table, where, order="-created_at", limit=limit, after=after
        )

    async def dead_letter_groups(
        self, where: Where | None = None, *, cap: int = 10_000
    ) -> tuple[list[dict[str, Any]], bool]:
        """Open dead letters (or those that ``where`` says) by table and error, the largest group first; the newest ``cap`` of
        them, and whether that is all."""
        groups: dict[tuple[str, str], dict[str, Any]] = {}
        seen, after = 0, None
        while seen < cap:
            page = await self.dead_letters(
                {"status": "open", **(where or {})}, limit=min(1000, cap - seen), after=after
            )
            for letter in page.items:
                assert isinstance(letter, DeadLetter)
                newest = {
                    "table": letter.table_name, "error_type": letter.error_type, "count": 0, "message": letter.error_message,
                    "newest": letter.created_at, "oldest": letter.created_at, "example": letter.record_id,
                }  # fmt: skip
                group = groups.setdefault((letter.table_name, letter.error_type), newest)
                group["count"] += 1
                group["oldest"] = letter.created_at
            seen, after = seen + len(page.items), page.next
            if after is None:
                break
        return sorted(groups.values(), key=lambda g: -g["count"]), after is None

    async def alerts(
        self, where: Where | None = None, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]:
        return await self.records(
            Alert.kind.table, where or {}, order="-raised_at", limit=limit, after=after
        )

    async def workers(self) -> list[dict[str, Any]]:
        """Worker processes, the newest first; alive while their own lease lasts."""
        now = self._engine.clock.now()
        page = await self._engine.records.find(WorkerRecord, order="-started_at", limit=100)
        return [
            w.kind.as_json(w)
            | {"alive": w.status == "running" and w.due_at is not None and w.due_at > now}
            for w in page.items
        ]

    async def status(self) -> dict[str, Any]:
        """The whole house at a glance."""
        await self._engine.clock.sync()
        return {
            "now": self._engine.clock.now(), "store": self._engine.store.url, "kinds": await self.kinds(), "stages": await self.stages(),
            "cycles": await self.cycles(), "budgets": await self.budgets(), "workers": [w for w in await self.workers() if w["alive"]],
            "dead_letters": (await self._engine.store.count(query(DeadLetter, {"status": "open"})))[0],
        }  # fmt: skip

    # declarations and counts, for pages

    def pipelines(self) -> list[Plan]:
        """The pipelines with their settings, without the system pipeline."""
        return [plan for plan in self._engine.plans if plan.name != "esclusa"]

    def lookup(self, table: str) -> Kind:
        """The kind of this table; NotFound if there is none."""
        return self._engine.kind(table)

    def roles(self, kind: Kind) -> dict[str, Role]:
        """The role of each state of the kind."""
        return roles(kind, self._engine.all_stages)

    def worked(self, kind: Kind) -> bool:
        """Whether a stage takes records of this kind."""
        return any(stage.kind == kind for stage in self._engine.all_stages)

    def retry_targets(self, kind: Kind) -> dict[str, str]:
        """For each exhausted state of the kind, the state to which a retry moves a record."""
        return retry_targets(kind, self._engine.all_stages)

    async def count(
        self, table: str, where: Where, *, cap: int, archived: bool = False
    ) -> tuple[int, bool]:
        """How many records match, counted up to ``cap``, and whether that is all."""
        return await self._engine.store.count(
            query(self.lookup(table), where, archived=archived), cap
        )

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        """Records per state, each state counted up to ``cap``."""
        return await self._engine.store.tally(kind, cap)

    async def exports(self, *, limit: int = 50) -> list[Export]:
        """Exports of archives, newest first."""
        page = await self._engine.records.find(Export, order="-created_at", limit=limit)
        return list(page.items)

    # how

    def _cycle_of(self, stage: Stage) -> Cycle | None:
        return next((c for c in self._engine.cycles.values() if stage in c.stages), None)

    def _pipeline(self, kind: Kind) -> str:
        return next((plan.name for plan in self._engine.plans if kind in plan.kinds), "esclusa")
