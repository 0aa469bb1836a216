"""What the decorators of an App declare, and the plan that it becomes with the settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from esclusa.model.budget import Budget
from esclusa.model.decision import Decision
from esclusa.model.declaration import Adopt, adoption
from esclusa.model.declared_deadline import DeclaredDeadline, add_deadlines, deadline_cycles
from esclusa.model.errors import BadQuery, DeclarationError
from esclusa.model.from_settings import resolve, resolved
from esclusa.model.plan import DeclaredQuery, Plan
from esclusa.model.query import Where, conditions
from esclusa.model.record import Record
from esclusa.model.stage import Cycle, Stage, make_cycle, make_stage

if TYPE_CHECKING:
    from esclusa.model.pipeline import App


@dataclass(slots=True)
class Declarations:
    """The declarations of one pipeline, in their order; options may be functions of the settings.

    ``stages``: name, record, handler, options. ``cycles``: name, what it drains or calls, options.
    ``parts``: the stage and the filter with which runs drain it.
    """

    stages: list[tuple[str, type[Record], Any, dict[str, Any]]] = field(default_factory=list)
    cycles: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    parts: list[tuple[str, Where]] = field(default_factory=list)
    adopt: list[tuple[type[Record], Callable[[Any], Adopt]]] = field(default_factory=list)
    queries: list[DeclaredQuery] = field(default_factory=list)
    deadlines: list[DeclaredDeadline] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def bind(self, app: App, settings: BaseModel) -> Plan:
        """Apply the settings. Raises DeclarationError with every fault."""
        for record, states in self.adopt:
            found = adoption(record.kind, states(settings))
            record.kind.become(replace(record.kind, adopt=found))
        faults: list[str] = []
        stages = self._stages(app.name, settings, faults)
        cycles = self._cycles(app.name, settings, stages, faults)
        tables = Counter(record.kind.table.lower() for record in dict.fromkeys(app.records))
        faults += [
            f"two records have the table {table}" for table, count in tables.items() if count > 1
        ]
        parts = self._parts(stages, faults)
        if faults:
            raise DeclarationError(f"pipeline {app.name}", faults)
        return Plan(
            name=app.name,
            kinds=tuple(dict.fromkeys(record.kind for record in app.records)),
            stages=tuple(stages.values()),
            cycles=tuple(cycles.values()),
            budgets=_budgets(app, settings, stages.values()),
            settings=settings,
            app=app,
            parts=tuple(parts),
            queries=tuple(self.queries),
            actions=tuple(app.actions),
            decisions=tuple(each.bound(settings, app.name) for each in self.decisions),
        )

    def _stages(self, pipeline: str, settings: BaseModel, faults: list[str]) -> dict[str, Stage]:
        """The stages by name, those of deadlines included; what is wrong is added to the faults."""
        stages: dict[str, Stage] = {}
        for slug, record, handler, options in self.stages:
            name = f"{pipeline}.{slug}"
            if slug in stages:
                faults.append(f"two stages are called {slug}")
            try:
                given = resolved(options, settings, f"stage {name}")
                stages[slug] = make_stage(name, record.kind, handler, **given)
            except DeclarationError as error:
                faults += [f"{error.what}: {fault}" for fault in error.faults]
        faults += add_deadlines(self.deadlines, stages, pipeline, settings)
        return {
            slug: replace(stage, resets=_resets(stage, stages.values()))
            for slug, stage in stages.items()
        }

    def _cycles(
        self, pipeline: str, settings: BaseModel, stages: dict[str, Stage], faults: list[str]
    ) -> dict[str, Cycle]:
        cycles = deadline_cycles(stages)
        for slug, own, options in self.cycles:
            try:
                given = resolved(options, settings, slug)
                cycles[slug] = make_cycle(f"{pipeline}.{slug}", given, stages=stages, **own)
            except DeclarationError as error:
                faults += [f"cycle {slug}: {fault}" for fault in error.faults]
        return cycles

    def _parts(self, stages: dict[str, Stage], faults: list[str]) -> list[Stage]:
        parts: list[Stage] = []
        for slug, where in self.parts:
            if slug not in stages:
                faults.append(f"parts: there is no stage {slug}")
                continue
            try:
                narrow = stages[slug].where + conditions(stages[slug].kind, where)
                parts.append(replace(stages[slug], where=narrow))
            except BadQuery as error:
                faults.append(f"parts of {slug}: {error}")
        return parts


def _budgets(app: App, settings: BaseModel, stages: Collection[Stage]) -> tuple[Budget, ...]:
    """The budgets of pipeline and stages. One without a limit in the settings is left out."""
    named = [resolve(b, settings, f"pipeline {app.name}", "a budget") for b in app.budgets]
    found = {budget.name: budget for budget in named if budget is not None}
    found |= {s.budget.name: s.budget for s in stages if s.budget is not None}
    return tuple(found.values())


def _resets(stage: Stage, stages: Collection[Stage]) -> frozenset[str]:
    """The states that other stages take: a record that comes there has new attempts."""
    return frozenset(
        state
        for other in stages
        if other.kind == stage.kind and other.name != stage.name and other.deadline is None
        for state in other.take
    )
