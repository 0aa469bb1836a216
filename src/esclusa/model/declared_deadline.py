"""Deadlines as a pipeline declares them, and the stages that they become by its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from esclusa.model import duration
from esclusa.model.deadline import Deadline, pass_deadline
from esclusa.model.errors import DeclarationError
from esclusa.model.from_settings import resolve
from esclusa.model.kind import Kind
from esclusa.model.retry import Backoff
from esclusa.model.stage import Cycle, Stage, make_cycle, make_stage
from esclusa.model.value import value


@value
class DeclaredDeadline:
    """A deadline as ``App.deadline`` declares it; ``after`` may be a function of the settings."""

    slug: str
    kind: Kind
    state: str
    to: str
    after: str | float | timedelta | Callable[[Any], str | float | timedelta | None]

    def faults(self, stages: Iterable[Stage] = ()) -> list[str]:
        """What is wrong with it, beside these stages."""
        life, what = self.kind.lifecycle, f"deadline of {self.state}"
        if self.state not in life.states:
            states = ", ".join(life.states)
            return [f"{what}: that is not a state of {self.kind.table} ({states})"]
        found = [
            f"{what}: the stage {stage.name} takes this state; its handler can answer To(…) in time"
            for stage in stages
            if stage.kind == self.kind and self.state in stage.states
        ]
        if not life.allows(self.state, self.to):
            found.append(f"{what}: the move {self.state} -> {self.to} is not declared")
        if not self.kind.history:
            found.append(f"{what}: {self.kind.table} needs a history, which shows since when")
        return found

    def stage(self, pipeline: str, settings: Any) -> Stage | None:
        """The stage of this deadline; None if the settings leave it out."""
        after = resolve(self.after, settings, f"deadline of {self.state}", "after")
        if after is None:
            return None
        try:
            deadline = Deadline(duration.seconds(after), self.to)
        except ValueError as error:
            raise DeclarationError(f"deadline of {self.state}", [str(error)]) from None
        name, retry = f"{pipeline}.{self.slug}", Backoff(tries=None)
        stage = make_stage(name, self.kind, pass_deadline, take=self.state, retry=retry)
        return replace(stage, deadline=deadline)


def add_deadlines(
    deadlines: Iterable[DeclaredDeadline], stages: dict[str, Stage], pipeline: str, settings: Any
) -> list[str]:
    """Add the stages of the deadlines to the others; return the faults."""
    faults: list[str] = []
    for declared in deadlines:
        faults += declared.faults(stages.values())
        try:
            stage = declared.stage(pipeline, settings)
        except DeclarationError as error:
            faults += error.faults
            continue
        if stage is not None:
            stages[declared.slug] = stage
    return faults


def deadline_cycles(stages: dict[str, Stage]) -> dict[str, Cycle]:
    """A cycle for each stage that is a deadline: it runs whenever a record is due."""
    return {
        slug: make_cycle(stage.name, {}, stages=stages, drains=(slug,))
        for slug, stage in stages.items()
        if stage.deadline is not None
    }
