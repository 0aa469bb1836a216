"""Commands for dead letters: list them, redrive or discard them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.chosen_records import apply_to_chosen, chosen_records, fields_to_set
from esclusa.cli.completion import kind_names
from esclusa.cli.options import (
    after_option,
    dry_option,
    ids_argument,
    limit_option,
    reason_option,
    set_option,
    where_option,
    yes_option,
)
from esclusa.cli.output import Screen, ago, moment
from esclusa.cli.root import Group
from esclusa.cli.session import Session
from esclusa.cli.zones import zone_name
from esclusa.model.names import nearest
from esclusa.model.query import check_states, parse_filter
from esclusa.model.system_records import DeadLetter

if TYPE_CHECKING:
    from esclusa.runtime import Runtime


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
            [">COUNT", "!KIND", "ERROR", "+MESSAGE", "NEWEST", "=EXAMPLE"],
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
        ["!ID", "!RECORD", "=KIND", "ERROR", "STATUS", f"AT ({zone_name()})", "+MESSAGE"],
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
    _name_errors(session, errors)
    return apply_to_chosen(
        session,
        chosen_records(DeadLetter.kind, ids, _filters(session, table, errors, where)),
        lambda o: partial(o.redrive, fields=fields_to_set(fields)),
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
    _name_errors(session, errors)
    return apply_to_chosen(
        session,
        chosen_records(DeadLetter.kind, ids, _filters(session, table, errors, where)),
        lambda o: o.discard,
        "Discard {}?",
        reason,
        dry_run,
        yes,
        "dead letter",
    )


def _name_errors(session: Session, errors: str | None) -> None:
    """Say which errors exist if open dead letters have none of these: it may be a slip."""
    if not errors:
        return
    groups, _ = session.look(lambda runtime: runtime.read_model.dead_letter_groups())
    known = {group["error_type"] for group in groups}
    for error in errors.split(","):
        if known and error.strip() not in known:
            near = nearest(error, known)
            session.note(
                f"No open dead letter has the error {error.strip()}; there are:"
                f" {', '.join(sorted(known))}.{f' Did you mean {near}?' if near else ''}"
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
