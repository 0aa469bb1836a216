"""Commands that summarise the past: rates, archives, the audit."""

from __future__ import annotations

import click

from esclusa.cli.options import after_option, limit_option
from esclusa.cli.output import moment, seconds_of
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.model.results import RATED
from esclusa.model.system_records import Audit


@click.command(cls=Command)
@click.option(
    "--minutes",
    "-m",
    type=click.IntRange(1, 1440),
    default=60,
    show_default=True,
    help="How many minutes back.",
)
@click.pass_obj
def rates(session: Session, minutes: int) -> None:
    """What each stage did: outcomes and handler times."""
    answer = session.look(lambda runtime: runtime.read_model.rates(minutes))
    times = ("p50", "p90", "p99")
    session.show_list(
        answer,
        ["!STAGE", *(f">{name.upper()}" for name in (*RATED, *times))],
        (
            (s["stage"], *(s["total"][n] for n in RATED), *(seconds_of(s[p]) for p in times))
            for s in answer
        ),
        "No stages.",
    )


@click.command(cls=Command)
@click.pass_obj
def archives(session: Session) -> None:
    """The archive of each kind and its exports."""
    answer = session.look(lambda runtime: runtime.read_model.archives())
    columns = {
        "!KIND": "table",
        ">ARCHIVED": "rows",
        ">NOT EXPORTED": "not_exported",
        ">EXPORTED": "exported_rows",
        ">FILES": "exports",
        ">UNVERIFIED": "unverified",
        ">DROPPED": "dropped",
    }
    session.show_list(
        answer,
        list(columns),
        ([archive[name] for name in columns.values()] for archive in answer),
        "No kind has an archive.",
    )


@click.command(cls=Command)
@limit_option(20)
@after_option
@click.pass_obj
def audit(session: Session, limit: int, after: str | None) -> None:
    """What operators did: who, what, how many records, why. Newest first."""
    page = session.look(
        lambda runtime: runtime.read_model.records(
            Audit.kind.table, {}, order="-done_at", limit=limit, after=after
        )
    )
    session.show_page(
        page,
        ["AT (UTC)", "WHO", "OPERATION", "!ON", ">RECORDS", "+REASON"],
        (
            (moment(a.done_at), a.who, a.verb, a.subject, a.affected, a.reason)
            for a in page.items
            if isinstance(a, Audit)
        ),
        "No operations yet.",
    )
