"""Commands that change records, cycles and budgets.

An operation on many records counts them first, asks, and leaves an audit row.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from esclusa.cli.chosen_records import Chosen, apply_to_chosen, chosen_records, fields_to_set
from esclusa.cli.completion import budget_names, cycle_names
from esclusa.cli.options import (
    dry_option,
    ids_argument,
    kind_argument,
    reason_option,
    set_option,
    to_option,
    where_option,
    yes_option,
)
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.model.errors import BadQuery
from esclusa.model.names import no_state
from esclusa.model.texts import text

if TYPE_CHECKING:
    from esclusa.runtime import Runtime


@click.command(cls=Command)
@kind_argument
@ids_argument
@where_option
@reason_option
@dry_option
@yes_option
@click.pass_obj
def retry(
    session: Session,
    table: str,
    ids: tuple[str, ...],
    where: tuple[str, ...],
    reason: str,
    dry_run: bool,
    yes: bool,
) -> int:
    """Retry exhausted records."""
    chosen = chosen_records(session.kind(table), ids, where)
    return apply_to_chosen(
        session,
        chosen,
        lambda o: partial(o.retry, table),
        f"Retry {{}} of {table}?",
        reason,
        dry_run,
        yes,
    )


@click.command(cls=Command)
@kind_argument
@ids_argument
@to_option
@where_option
@set_option
@reason_option
@dry_option
@yes_option
@click.pass_obj
def move(
    session: Session,
    table: str,
    ids: tuple[str, ...],
    to: str,
    where: tuple[str, ...],
    fields: tuple[str, ...],
    reason: str,
    dry_run: bool,
    yes: bool,
) -> int:
    """Move records to a state by a declared move. If one record cannot make it, none is moved."""
    kind = session.kind(table)
    if to not in kind.lifecycle.states:
        raise BadQuery(no_state(table, to, kind.lifecycle.states))
    changed = kind.check_fields(fields_to_set(fields))
    return apply_to_chosen(
        session,
        chosen_records(kind, ids, where),
        lambda o: partial(o.move, table, to, fields=changed),
        f"Move {{}} of {table} to {to}?",
        reason,
        dry_run,
        yes,
    )


@click.command(cls=Command)
@kind_argument
@click.option(
    "--from", "frm", required=True, metavar="STATE", help="The state that is not declared."
)
@to_option
@reason_option
@dry_option
@yes_option
@click.pass_obj
def repair(
    session: Session, table: str, frm: str, to: str, reason: str, dry_run: bool, yes: bool
) -> int:
    """Move all records out of a state that their lifecycle does not have. It needs a reason."""
    kind = session.kind(table)
    if not reason and not dry_run:
        raise BadQuery(text("repair_reason"))
    return apply_to_chosen(
        session,
        Chosen(kind),
        lambda o: partial(o.repair, table, frm, to),
        f"Move {{}} of {table} from {frm} to {to}?",
        reason,
        dry_run,
        yes,
    )


@click.command(cls=Command)
@click.argument("cycle", shell_complete=cycle_names)
@reason_option
@click.pass_obj
def pause(session: Session, cycle: str, reason: str) -> None:
    """Pause a cycle: no worker starts it or claims for it. Running handlers finish."""
    session.look(lambda runtime: runtime.operations(session.who).pause(cycle, reason))
    session.show(
        {"cycle": cycle, "state": "paused"},
        lambda screen: screen.line(f"{cycle} is paused. Resume it with: esclusa resume {cycle}"),
    )


@click.command(cls=Command)
@click.argument("cycle", shell_complete=cycle_names)
@reason_option
@click.pass_obj
def resume(session: Session, cycle: str, reason: str) -> None:
    """Resume a paused cycle."""
    session.look(lambda runtime: runtime.operations(session.who).resume(cycle, reason))
    session.show(
        {"cycle": cycle, "state": "idle"}, lambda screen: screen.line(f"{cycle} is resumed.")
    )


@click.command(cls=Command)
@click.argument("budget", shell_complete=budget_names)
@click.argument("limit", type=click.IntRange(min=0))
@click.option(
    "--per",
    type=click.Choice(["second", "minute", "hour", "day", "month"]),
    help="Which window, if the budget has several.",
)
@reason_option
@click.pass_obj
def limit(session: Session, budget: str, limit: int, per: str | None, reason: str) -> None:
    """Change the limit of a budget's current window, until it resets."""

    async def change(runtime: Runtime) -> str:
        windows = [window.per for window in runtime.read_model.registry.budget(budget).windows]
        if per is None and len(windows) > 1:
            raise click.UsageError(f"Give --per: {budget} has windows per {', '.join(windows)}.")
        window = per or windows[0]
        await runtime.operations(session.who).limit(budget, window, limit, reason)
        return window

    changed = session.look(change)
    session.show(
        {"budget": budget, "per": changed, "limit": limit},
        lambda s: s.line(f"{budget}: {limit:,} per {changed} until the window resets."),
    )
