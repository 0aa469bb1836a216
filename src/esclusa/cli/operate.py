"""Commands that change records, cycles and budgets.

An operation on many records counts them first, asks, and leaves an audit row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.completion import budget_names, cycle_names, kind_names
from esclusa.cli.options import (
    after_option,
    dry_option,
    ids_argument,
    kind_argument,
    limit_option,
    reason_option,
    set_option,
    to_option,
    where_option,
    yes_option,
)
from esclusa.cli.output import Screen, ago, moment, text_of
from esclusa.cli.root import Command, Group, filter_hint
from esclusa.cli.session import Session
from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind
from esclusa.model.names import no_state
from esclusa.model.query import Where, check_states, parse_filter
from esclusa.model.system_records import DeadLetter
from esclusa.model.texts import text
from esclusa.model.value import value

if TYPE_CHECKING:
    from esclusa.engine.audited import Acted
    from esclusa.engine.operations import Operations
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
    chosen = _chosen(session.kind(table), ids, where)
    return _apply(
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
    changed = kind.check_fields(_fields(fields))
    return _apply(
        session,
        _chosen(kind, ids, where),
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
    return _apply(
        session,
        Chosen(kind),
        lambda o: partial(o.repair, table, frm, to),
        f"Move {{}} of {table} from {frm} to {to}?",
        reason,
        dry_run,
        yes,
    )


@click.group(cls=Group, name="dead-letters", invoke_without_command=True)
@click.pass_context
def dead_letters(ctx: click.Context) -> None:
    """Dead letters: list them by error, redrive or discard them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(groups)


@dead_letters.command("groups")
@click.pass_obj
def groups(session: Session) -> None:
    """Open dead letters, grouped by error."""

    async def ask(runtime: Runtime) -> Any:
        return *await runtime.read_model.dead_letter_groups(), runtime.engine.clock.now()

    found, whole, now = session.look(ask)

    def draw(screen: Screen) -> None:
        screen.table(
            [">COUNT", "KIND", "ERROR", "MESSAGE", "NEWEST", "!EXAMPLE"],
            (
                (
                    g["count"],
                    g["table"],
                    g["error_type"],
                    g["message"],
                    ago(g["newest"], now),
                    g["example"],
                )
                for g in found
            ),
            empty="No dead letters.",
        )
        if found:
            session.note(
                "Retry their records with: esclusa dead-letters redrive --error TYPE"
                + ("" if whole else " (older dead letters are not counted)")
            )

    session.show({"items": found, "next": None, "exact": whole}, draw)


_table_option = click.option(
    "--table",
    "table",
    metavar="KIND",
    shell_complete=kind_names,
    help="Only dead letters of this kind.",
)
_error_option = click.option(
    "--error",
    "errors",
    metavar="TYPE",
    help="Only dead letters with these errors, separated by commas.",
)


@dead_letters.command("list")
@_table_option
@_error_option
@where_option
@click.option("--all", "closed", is_flag=True, help="Include redriven and discarded ones.")
@limit_option(50)
@after_option
@click.pass_obj
def list_dead_letters(
    session: Session,
    table: str | None,
    errors: str | None,
    where: tuple[str, ...],
    closed: bool,
    limit: int,
    after: str | None,
) -> None:
    """Dead letters, newest first."""
    given = _filters(session, table, errors, where)
    filter = parse_filter(DeadLetter.kind, given if closed else [*given, "status=open"])
    check_states(DeadLetter.kind, filter)
    page = session.look(
        lambda runtime: runtime.read_model.dead_letters(filter, limit=limit, after=after)
    )
    session.show_page(
        page,
        ["!ID", "!RECORD", "KIND", "ERROR", "STATUS", "AT (UTC)", "MESSAGE"],
        (
            (
                x.id,
                x.record_id,
                x.table_name,
                x.error_type,
                x.status,
                moment(x.created_at),
                x.error_message,
            )
            for x in page.items
            if isinstance(x, DeadLetter)
        ),
        "No dead letters.",
    )


@dead_letters.command("redrive")
@ids_argument
@_table_option
@_error_option
@where_option
@set_option
@reason_option
@dry_option
@yes_option
@click.pass_obj
def redrive(
    session: Session,
    ids: tuple[str, ...],
    table: str | None,
    errors: str | None,
    where: tuple[str, ...],
    fields: tuple[str, ...],
    reason: str,
    dry_run: bool,
    yes: bool,
) -> int:
    """Retry the records of dead letters. --set changes a field first."""
    return _apply(
        session,
        _chosen(DeadLetter.kind, ids, _filters(session, table, errors, where)),
        lambda o: partial(o.redrive, fields=_fields(fields)),
        "Redrive {}?",
        reason,
        dry_run,
        yes,
        "dead letter",
    )


@dead_letters.command("discard")
@ids_argument
@_table_option
@_error_option
@where_option
@reason_option
@dry_option
@yes_option
@click.pass_obj
def discard(
    session: Session,
    ids: tuple[str, ...],
    table: str | None,
    errors: str | None,
    where: tuple[str, ...],
    reason: str,
    dry_run: bool,
    yes: bool,
) -> int:
    """Close dead letters without retrying their records."""
    return _apply(
        session,
        _chosen(DeadLetter.kind, ids, _filters(session, table, errors, where)),
        lambda o: o.discard,
        "Discard {}?",
        reason,
        dry_run,
        yes,
        "dead letter",
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
    required=True,
    type=click.Choice(["second", "minute", "hour", "day", "month"]),
    help="Which window.",
)
@reason_option
@click.pass_obj
def limit(session: Session, budget: str, limit: int, per: str, reason: str) -> None:
    """Change the limit of a budget's current window, until it resets."""
    session.look(lambda runtime: runtime.operations(session.who).limit(budget, per, limit, reason))
    session.show(
        {"budget": budget, "per": per, "limit": limit},
        lambda s: s.line(f"{budget}: {limit:,} per {per} until the window resets."),
    )


def _filters(
    session: Session, table: str | None, error: str | None, where: tuple[str, ...]
) -> tuple[str, ...]:
    """The filters of dead letters. Raises NotFound for an unknown kind."""
    if table:
        session.kind(table)
    return (
        *where,
        *([f"table_name={table}"] if table else []),
        *([f"error_type={error}"] if error else []),
    )


@value
class Chosen:
    """The records that a command acts on: by id, or by a filter; neither: the command knows."""

    kind: Kind
    ids: tuple[str, ...] | None = None
    where: Where | None = None

    def options(self) -> dict[str, Any]:
        """The arguments of the operation."""
        given = {"ids": self.ids, "where": self.where}
        return {name: value for name, value in given.items() if value is not None}

    def explain_no_match(self) -> None:
        """Refuse what can match nothing: an undeclared state, a filter in the place of an id.

        Raises BadQuery and UsageError.
        """
        if not self.kind.attached:  # in which other programs may write states of their own
            check_states(self.kind, self.where or {})
        for id in self.ids or ():
            if hint := filter_hint(id, self.kind):
                raise click.UsageError(hint)


def _chosen(kind: Kind, ids: tuple[str, ...], where: tuple[str, ...]) -> Chosen:
    if bool(ids) == bool(where):
        raise BadQuery(
            f"name the records of {kind.table} by id or by a filter "
            f"(--where status={kind.lifecycle.states[-1]}), not both"
        )
    return Chosen(kind, ids) if ids else Chosen(kind, None, parse_filter(kind, where))


def _fields(given: tuple[str, ...]) -> dict[str, Any]:
    """The values of ``--set``. The kind converts them to its own types."""
    fields: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise BadQuery(f"--set {each!r}: write FIELD=VALUE, or FIELD=null to empty it")
        fields[name.strip()] = None if value == "null" else value
    return fields


def _apply(
    session: Session,
    chosen: Chosen,
    verb: Callable[[Operations], Callable[..., Awaitable[Acted]]],
    question: str,
    reason: str,
    dry_run: bool,
    yes: bool,
    thing: str = "record",
) -> int:
    """Count the records, ask, apply the operation, print the result; return the exit code."""

    def act(**how: Any) -> Acted:
        return session.look(
            lambda runtime: verb(runtime.operations(session.who))(
                reason=reason, **chosen.options(), **how
            )
        )

    would = act(dry_run=True)
    number = f"{'' if would.exact else 'more than '}{would.matched:,}"
    many = f"{number} {thing}{'' if would.matched == 1 else 's'}"
    if would.matched == 0:
        chosen.explain_no_match()
    if dry_run or would.matched == 0:
        session.show(
            would.answer() | {"dry_run": dry_run},
            lambda screen: screen.line(f"{many} match{'es' if would.matched == 1 else ''}"),
        )
        return 0 if dry_run else 1
    session.confirm(question.format(many), yes=yes)
    done = act(seen=None if yes or not would.exact else would.matched, dry_run=False)
    if done.dry_run:
        raise BadQuery(
            f"{done.matched:,} match now, {would.matched:,} matched when you were asked;"
            " nothing was changed. Run the command again."
        )

    def draw(screen: Screen) -> None:
        screen.line(f"{done.moved:,} of {done.matched:,} done")
        for passed in done.passed[:20]:
            screen.line(f"  skipped {text_of(passed['id'])}: {text_of(passed['why'])}")
        if len(done.passed) > 20:
            screen.line("  … and more")

    session.show(done.answer(), draw)
    return 0 if done.moved else 1
