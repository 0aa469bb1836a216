"""Commands by which an operator acts. A bulk act counts first, asks, and leaves an audit row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.inspect import kind_argument, where_option
from esclusa.cli.output import Screen, ago, moment, text_of
from esclusa.cli.root import Command, Group, cycle_names
from esclusa.cli.session import Session
from esclusa.model.errors import BadQuery
from esclusa.model.query import parse_filter
from esclusa.model.record import Kind

if TYPE_CHECKING:
    from esclusa.engine.operations import Acted, Operations
    from esclusa.runtime import Runtime

ids_argument = click.argument("ids", nargs=-1, metavar="[ID]...")
reason_option = click.option(
    "--reason", default="", metavar="TEXT", help="Why; it is kept in the history and the audit."
)
dry_option = click.option("--dry-run", is_flag=True, help="Only say how many it would be.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
set_option = click.option(
    "--set", "fields", multiple=True, metavar="FIELD=VALUE", help="Change this field too."
)

Act = Callable[..., Awaitable["Acted"]]


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
    """Give records whose tries are used up a new one."""
    chosen = _chosen(session.kind(table), ids, where)
    return _act(
        session,
        lambda o: lambda **how: o.retry(table, **chosen, **how),
        f"Retry {{}} of {table}?",
        reason,
        dry_run,
        yes,
    )


@click.command(cls=Command)
@kind_argument
@ids_argument
@click.option("--to", required=True, metavar="STATE", help="The state to move them to.")
@where_option
@set_option
@reason_option
@dry_option
@yes_option
@click.pass_obj
def move(
    session: Session, table: str, ids: tuple[str, ...], to: str, where: tuple[str, ...], fields: tuple[str, ...], reason: str,
    dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Move records to a state, if their lifecycle has that move. If one of them cannot, none is moved."""
    kind = session.kind(table)
    chosen = _chosen(kind, ids, where) | {"fields": _fields(fields)}
    kind.check_fields(chosen["fields"])
    return _act(
        session,
        lambda o: lambda **how: o.move(table, to, **chosen, **how),
        f"Move {{}} of {table} to {to}?",
        reason,
        dry_run,
        yes,
    )


@click.group(cls=Group, name="dead-letters", invoke_without_command=True)
@click.pass_context
def dead_letters(ctx: click.Context) -> None:
    """Records that ended in their exhausted state: grouped by error, redriven or discarded."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(groups)


@dead_letters.command("groups")
@click.pass_obj
def groups(session: Session) -> None:
    """Open dead letters, grouped by their error."""

    async def ask(runtime: Runtime) -> Any:
        return *await runtime.read_model.dead_letter_groups(), runtime.engine.clock.now()

    found, whole, now = session.look(ask)

    def draw(screen: Screen) -> None:
        rows = [
            (
                g["count"],
                g["table"],
                g["error_type"],
                g["message"],
                ago(g["newest"], now),
                g["example"],
            )
            for g in found
        ]
        screen.table(
            [">COUNT", "KIND", "ERROR", "MESSAGE", "NEWEST", "EXAMPLE"],
            rows,
            empty="no dead letters",
        )
        if found:
            session.note(
                "send them back: esclusa dead-letters redrive --error TYPE"
                + ("" if whole else " (older ones are not counted here)")
            )

    session.show({"items": found, "next": None, "exact": whole}, draw)


_table_option = click.option("--table", "tables", metavar="KIND", help="Only letters of this kind.")
_error_option = click.option(
    "--error", "errors", metavar="TYPE", help="Only letters with this error; several with commas."
)


@dead_letters.command("list")
@_table_option
@_error_option
@where_option
@click.option("--all", "closed", is_flag=True, help="Those that were redriven or discarded too.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option("--after", metavar="CURSOR", help="Go on after the page before: its 'next'.")
@click.pass_obj
def list_letters(
    session: Session,
    tables: str | None,
    errors: str | None,
    where: tuple[str, ...],
    closed: bool,
    limit: int,
    after: str | None,
) -> None:
    """Dead letters one by one, the newest first."""
    from esclusa.model.system_records import DeadLetter

    filter = parse_filter(
        DeadLetter.kind, [*_letters(tables, errors, where), *([] if closed else ["status=open"])]
    )
    page = session.look(
        lambda runtime: runtime.read_model.dead_letters(filter, limit=limit, after=after)
    )

    def draw(screen: Screen) -> None:
        rows = [
            (
                moment(x.created_at),
                x.id,
                x.status,
                x.table_name,
                x.record_id,
                x.error_type,
                x.error_message,
            )
            for x in page.items
            if isinstance(x, DeadLetter)
        ]
        screen.table(
            ["AT (UTC)", "LETTER", "STATUS", "KIND", "RECORD", "ERROR", "MESSAGE"],
            rows,
            empty="no dead letters",
        )
        if page.next:
            session.note(f"there are more: --after {page.next}")

    session.show({"items": [r.kind.as_json(r) for r in page.items], "next": page.next}, draw)


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
    session: Session, ids: tuple[str, ...], tables: str | None, errors: str | None, where: tuple[str, ...], fields: tuple[str, ...],
    reason: str, dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Send the records of dead letters back to where their stage takes them; --set mends a field on the way."""
    from esclusa.model.system_records import DeadLetter

    chosen = _chosen(DeadLetter.kind, ids, _letters(tables, errors, where)) | {
        "fields": _fields(fields)
    }
    return _act(
        session,
        lambda o: lambda **how: o.redrive(**chosen, **how),
        "Send {} back?",
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
    session: Session, ids: tuple[str, ...], tables: str | None, errors: str | None, where: tuple[str, ...], reason: str,
    dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Close dead letters without sending their records back."""
    from esclusa.model.system_records import DeadLetter

    chosen = _chosen(DeadLetter.kind, ids, _letters(tables, errors, where))
    return _act(
        session,
        lambda o: lambda **how: o.discard(**chosen, **how),
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
    """No worker starts the cycle, or claims for it, until it is resumed. What is under way goes on."""
    session.look(lambda runtime: runtime.operations(session.who).pause(cycle, reason))
    session.show(
        {"cycle": cycle, "state": "paused"},
        lambda screen: screen.line(f"{cycle} is paused; esclusa resume {cycle} lets it go on"),
    )


@click.command(cls=Command)
@click.argument("cycle", shell_complete=cycle_names)
@reason_option
@click.pass_obj
def resume(session: Session, cycle: str, reason: str) -> None:
    """Let a paused cycle go on."""
    session.look(lambda runtime: runtime.operations(session.who).resume(cycle, reason))
    session.show({"cycle": cycle, "state": "idle"}, lambda screen: screen.line(f"{cycle} goes on"))


def _letters(table: str | None, error: str | None, where: tuple[str, ...]) -> tuple[str, ...]:
    return (
        *where,
        *([f"table_name={table}"] if table else []),
        *([f"error_type={error}"] if error else []),
    )


def _chosen(kind: Kind, ids: tuple[str, ...], where: tuple[str, ...]) -> dict[str, Any]:
    if bool(ids) == bool(where):
        example = f"--where status={kind.lifecycle.states[-1]}"
        raise BadQuery(
            f"say which records of {kind.table}: by their ids, or by a filter ({example}), not both"
        )
    return {"ids": ids, "where": None} if ids else {"ids": None, "where": parse_filter(kind, where)}


def _fields(said: tuple[str, ...]) -> dict[str, Any]:
    """``--set`` as values; the kind's own types convert them."""
    fields: dict[str, Any] = {}
    for text in said:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadQuery(f"--set {text!r}: write FIELD=VALUE; FIELD=null empties it")
        fields[name.strip()] = None if value == "null" else value
    return fields


def _act(
    session: Session, verb: Callable[[Operations], Act], question: str, reason: str, dry_run: bool, yes: bool, thing: str = "record"
) -> int:  # fmt: skip
    """Count, ask, act, tell."""

    async def count(runtime: Runtime) -> Acted:
        return await verb(runtime.operations(session.who))(reason=reason, dry_run=True)

    async def act(runtime: Runtime) -> Acted:
        return await verb(runtime.operations(session.who))(
            reason=reason, seen=None if yes or not would.exact else would.matched, dry_run=False
        )

    would = session.look(count)
    many = f"{'' if would.exact else 'more than '}{would.matched:,} {thing}{'' if would.matched == 1 else 's'}"
    if dry_run or would.matched == 0:
        session.show(
            would.answer() | {"dry_run": dry_run},
            lambda screen: screen.line(f"{many} match{'es' if would.matched == 1 else ''}"),
        )
        return 0 if dry_run else 1
    session.confirm(question.format(many), yes=yes)
    done = session.look(act)
    if done.dry_run:
        raise BadQuery(
            f"{done.matched:,} match by now, {would.matched:,} did when you were asked: nothing was done; say it again"
        )

    def draw(screen: Screen) -> None:
        screen.line(f"{done.moved:,} of {done.matched:,} done")
        for passed in done.passed[:20]:
            screen.line(f"  passed over {text_of(passed['id'])}: {text_of(passed['why'])}")
        if len(done.passed) > 20:
            screen.line("  … and others")

    session.show(done.answer(), draw)
    return 0 if done.moved else 1
