"""The registry: the plans of this process and everything that they declare, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from inspect import unwrap
from typing import Any

from esclusa.model.action import Action
from esclusa.model.budget import Budget
from esclusa.model.errors import NotFound
from esclusa.model.kind import Kind
from esclusa.model.names import suggest, unknown
from esclusa.model.plan import Plan
from esclusa.model.settlement import ClaimRequest
from esclusa.model.stage import Cycle, Stage
from esclusa.model.system_records import SYSTEM_RECORDS
from esclusa.model.texts import Text, text

# The prefix of the cycles and stages of the system pipeline.
SYSTEM = "esclusa."


class Registry:
    """Look-ups of what is declared, by name. A name that is not declared raises NotFound."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans = tuple(plans)
        self.cycles: dict[str, Cycle] = {c.name: c for plan in plans for c in plan.cycles}
        self.stages: dict[str, Stage] = {s.name: s for plan in plans for s in plan.stages}
        self.kinds: dict[str, Kind] = {k.table: k for plan in plans for k in plan.kinds}
        self.kinds |= {record.kind.table: record.kind for record in SYSTEM_RECORDS}
        self.actions: dict[str, Action] = {a.name: a for plan in plans for a in plan.actions}
        self.all_stages = tuple(self.stages.values())
        self.all_kinds = tuple(self.kinds.values())
        # From when on stages take records, as `migrate --from-now` stored it.
        self.starts: dict[str, datetime] = {}
        self._plans = {plan.name: plan for plan in plans}

    def start_of(self, stage: Stage) -> datetime | None:
        """The time from which on the stage takes records; None: it takes all."""
        times = [t for t in (stage.since, self.starts.get(stage.name)) if t is not None]
        return max(times, default=None)

    def request(self, stage: Stage, **options: Any) -> ClaimRequest:
        """The claim of a stage; ``options`` are those of ClaimRequest."""
        given = {
            "where": stage.where,
            "order": stage.order,
            "since": self.start_of(stage),
            "abandoned_after": stage.abandoned_after,
            "per": stage.key_limit,
        }
        return ClaimRequest(stage.kind, stage.name, stage.take, stage.hold, **(given | options))

    def plan_of(self, name: str) -> Plan:
        """The plan that a cycle or stage belongs to."""
        return self._plans[name.split(".", 1)[0]]

    def cycle(self, name: str) -> Cycle:
        if name in self.cycles:
            return self.cycles[name]
        known = [c for c in self.cycles if not c.startswith(SYSTEM)]
        if not known:
            raise NotFound(text("no_cycles", name=name))
        raise NotFound(unknown("cycle_not_found", name, known, name=name))

    def kind(self, table: str) -> Kind:
        if table in self.kinds:
            return self.kinds[table]
        known = [kind.table for kind in self.all_kinds if not kind.system]
        listed = text("kind_not_found", table=table, known=", ".join(sorted(known)))
        raise NotFound(suggest(listed, table, self.kinds))

    def stage(self, name: str, *, pipeline: str) -> Stage:
        """The stage of this name, or of this name in the pipeline."""
        if callable(name):
            raise TypeError(self._not_a_name(name))
        found = self.stages.get(name) or self.stages.get(f"{pipeline}.{name}")
        if found is not None:
            return found
        raise NotFound(unknown("stage_not_found", name, self.own_stages, name=name))

    def _not_a_name(self, given: Callable[..., Any]) -> str:
        """What is wrong with a function in the place of a stage's name."""
        names = [stage.name for stage in self.all_stages if unwrap(stage.handler) is given]
        what = getattr(given, "__name__", repr(given))
        if names:
            return f"a stage is drained by its name: write {names[0]!r}, not the function {what}"
        known = ", ".join(sorted(self.own_stages)) or "-"
        return f"a stage is drained by its name, and {what} is no stage; there are: {known}"

    @property
    def own_stages(self) -> list[str]:
        """The names of the stages of the pipelines, without those of the system."""
        return [name for name in self.stages if not name.startswith(SYSTEM)]

    def budget(self, name: str) -> Budget:
        budgets = {budget.name: budget for plan in self.plans for budget in plan.budgets}
        if name in budgets:
            return budgets[name]
        raise NotFound(unknown("budget_not_found", name, budgets, budget=name))

    def action(self, name: str) -> Action:
        """The action of this name, ``pipeline.verb``."""
        if name in self.actions:
            return self.actions[name]
        raise NotFound(unknown("action_not_found", name, self.actions, action=name))

    def refusals(self, kind: Kind, who: str | None = None) -> dict[str, Text]:
        """The states out of which this caller may move no record, each with a text: who may.

        Without a caller, all states about which only certain people decide.
        """
        return {
            state: each.refusal(state)
            for plan in self.plans
            for each in plan.decisions
            if each.kind == kind and each.by is not None and (who is None or not each.allows(who))
            for state in each.states
        }

    def cycle_of(self, stage: Stage) -> Cycle | None:
        """The first cycle that drains the stage."""
        return next((c for c in self.cycles.values() if stage in c.stages), None)

    def pipeline_of(self, kind: Kind) -> str:
        """The name of the pipeline that declares the kind; ``esclusa`` for system records."""
        return next((plan.name for plan in self.plans if kind in plan.kinds), "esclusa")
