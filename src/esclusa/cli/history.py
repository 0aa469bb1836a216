"""Commands about the histories of many records: times in states, and the event log."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli import zones
from esclusa.cli.completion import kind_names
from esclusa.cli.export import output_option
from esclusa.cli.options import kind_argument
from esclusa.cli.output import moment, seconds_of
from esclusa.cli.root import Command
from esclusa.cli.session import Session

if TYPE_CHECKING:
    from esclusa.runtime import Runtime

FORMATS = ("csv", "ocel", "ndjson", "parquet")


class Moment(click.ParamType[datetime]):
    """A time such as ``2026-11-18`` or ``2026-11-18T12:30``; without a zone, that of the system."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2026-11-18T12:30.", param, ctx)
        return found if found.tzinfo else found.replace(tzinfo=zones.zone()).astimezone()


@click.command(cls=Command)
@kind_argument
@click.option("--state", metavar="STATE", help="The slowest records of this state.")
@click.pass_obj
def times(session: Session, table: str, state: str | None) -> None:
    """How long records stay in each state: median, 95th percentile, slowest records."""
    kind = session.kind(table)
    if state is not None and state not in kind.lifecycle.states:
        known = ", ".join(kind.lifecycle.states)
        raise click.UsageError(f"{table} has no state {state!r}; it has {known}.")
    answer = session.look(lambda runtime: runtime.read_model.time_in_state(table))
    if state is None:
        session.show_list(
            answer["states"] if not session.json else [answer],
            ["!STATE", ">MEDIAN", ">P95", ">ENDED", ">PRESENT", ">SLOWEST", "!RECORD"],
            (
                (
                    s["state"],
                    *(seconds_of(s[name]) for name in ("median", "p95")),
                    s["ended"],
                    s["present"],
                    *(_slowest(s["slowest"])),
                )
                for s in answer["states"]
            ),
            "No states.",
        )
    else:
        found = next(s for s in answer["states"] if s["state"] == state)
        session.show_list(
            found["slowest"],
            ["!RECORD", ">TIME", f"SINCE ({zones.zone_name()})", f"UNTIL ({zones.zone_name()})"],
            (
                (s["id"], seconds_of(round(s["seconds"])), moment(s["since"]), moment(s["until"]))
                for s in found["slowest"]
            ),
            "No records.",
        )
    if not answer["exact"]:
        session.note(
            f"A sample: the latest moves of {answer['records']:,} records, those of each state"
            " that were updated last and those that are due for longest."
        )


def _slowest(slowest: list[dict[str, Any]]) -> tuple[str, str]:
    if not slowest:
        return "-", "-"
    return seconds_of(round(slowest[0]["seconds"])), slowest[0]["id"]


@click.command(cls=Command)
@click.argument("tables", nargs=-1, metavar="[KIND]...", shell_complete=kind_names)
@click.option("--since", type=Moment(), help="Only events from this time on.")
@click.option("--until", type=Moment(), help="Only events before this time.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="By default, by the name.")
@output_option
@click.pass_obj
def history(
    session: Session,
    tables: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    form: str | None,
    output: Path | None,
) -> None:
    """Export every creation and move of records as an event log for process mining.

    CSV has a row for each event. OCEL 2.0 (JSON) also has the records as objects, with their
    fields and relations. By default, all kinds.
    """
    from esclusa.cli.export import format_for, write_output, write_rows
    from esclusa.event_log import COLUMNS, Ocel, event_rows

    kinds = [session.kind(table) for table in tables]
    if form is None and output is None:
        raise click.UsageError("Name a file with --output, or give --format.")
    is_ocel = form == "ocel" or (
        form is None and output is not None and output.suffix in (".json", ".jsonocel")
    )

    async def write(runtime: Runtime) -> int:
        found = runtime.read_model.histories(tables, since=since, until=until)
        if not is_ocel:
            rows = event_rows(found, since, until)
            return await write_rows(list(COLUMNS), rows, format_for(form, output), output)  # type: ignore[arg-type]
        shown = kinds or [k for k in runtime.read_model.declared() if k.history]
        log = Ocel(shown, found, since, until)
        await write_output(log, output)
        return log.events

    if not is_ocel:
        form = format_for(form, output)  # type: ignore[arg-type]
    count = session.look(write)
    if output is not None:
        session.note(f"{count:,} event{'' if count == 1 else 's'} written to {output}")
