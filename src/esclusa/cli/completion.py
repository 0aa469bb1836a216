"""Completion of what commands take: kinds, states, fields, cycles, stages, budgets and views.

Nothing is opened: the declarations of the pipelines are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import click

from esclusa.model.errors import EsclusaError
from esclusa.model.system_records import DeadLetter, Run

if TYPE_CHECKING:
    from esclusa.cli.session import Session
    from esclusa.model.kind import Kind

Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[str]]


def _completes(names: Callable[[Session, click.Context], Iterable[str]]) -> Complete:
    """The completion of a parameter by these names."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from esclusa.cli.session import Session

        session = ctx.find_object(Session)
        try:
            found = names(session, ctx) if session is not None else ()
            return [name for name in found if name.startswith(incomplete)]
        except EsclusaError:
            return []

    return complete


def _kind(session: Session, ctx: click.Context) -> Kind:
    """The kind that the command line names so far. Raises NotFound."""
    if ctx.parent is not None and ctx.parent.info_name == "dead-letters":
        return DeadLetter.kind
    # An option without its value ends the parsing before arguments have their names.
    return session.kind(ctx.params.get("table") or next(iter(ctx.args), ""))


def _states(session: Session, ctx: click.Context) -> Iterable[str]:
    return _kind(session, ctx).lifecycle.states


def _fields(session: Session, ctx: click.Context) -> list[str]:
    kind = _kind(session, ctx)
    return [name for name in kind.types if name not in ("fence", "leased_by")]


def _filters(session: Session, ctx: click.Context) -> list[str]:
    fields = _fields(session, ctx)
    errors = ["error_type=", "error_message~"] if "last_error" in fields else []
    states = [f"status={state}" for state in _states(session, ctx)]
    return list(dict.fromkeys([*(f"{name}=" for name in fields), *errors, *states]))


def _columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Fields after the commas of a list of columns."""
    given, comma, last = incomplete.rpartition(",")
    return [f"{given}{comma}{name}" for name in order_names(ctx, param, last)]


column_names: Complete = _columns
kind_names = _completes(lambda session, ctx: session.kinds())
state_names = _completes(_states)
filters = _completes(_filters)
order_names = _completes(_fields)
set_names = _completes(
    lambda session, ctx: [f"{field.name}=" for field in _kind(session, ctx).fields]
)
cycle_names = _completes(
    lambda session, ctx: [c.name for plan in session.settings.plans for c in plan.cycles]
)
stage_names = _completes(
    lambda session, ctx: [s.name for plan in session.settings.plans for s in plan.stages]
)
budget_names = _completes(
    lambda session, ctx: [b.name for plan in session.settings.plans for b in plan.budgets]
)
view_names = _completes(
    lambda session, ctx: [v.name for plan in session.settings.plans for v in plan.app.views]
)
outcome_names = _completes(lambda session, ctx: Run.lifecycle.states)
