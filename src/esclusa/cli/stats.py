"""Commands that summarise the past: rates, archives, the audit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from esclusa.cli.completion import stage_names
from esclusa.cli.options import after_option, limit_option
from esclusa.cli.output import moment, seconds_of, share
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.cli.zones import zone_name
from esclusa.engine.series import Over
from esclusa.model.results import RATED
from esclusa.model.system_records import Audit


@click.command(cls=Command)
@click.option(
    "--minutes",
    "-m",
    type=click.IntRange(1, 1440),
    help="How many minutes back, instead of --over. (60)",
)
@click.option(
    "--over",
    type=click.Choice(["hour", "day", "week", "fortnight"]),
    help="The span that ends now, with backlogs; --json has every step.",
)
@click.option(
    "--stage",
    metavar="STAGE",
    shell_complete=stage_names,
    help="Only this stage, step by step.",
)
@click.option("--compare", is_flag=True, help="With the span before.")
@click.pass_obj
def rates(
    session: Session, minutes: int | None, over: Over | None, stage: str | None, compare: bool
) -> None:
    """What each stage did: outcomes and handler times."""
    if over is None and (stage is not None or compare):
        over = "hour"
    if over is not None and minutes is not None:
        raise click.UsageError("Give --minutes alone, or --over with --stage and --compare.")
    if over is None:
        _rates(session, minutes or 60)
        return
    span: Over = over
    answer = session.look(
        lambda runtime: runtime.read_model.series(span, stage=stage, compare=compare)
    )
    if stage is not None:
        _steps(session, answer, compare=compare)
    else:
        _totals(session, answer, compare=compare)
    if compare and span == "fortnight":
        session.note("Rates are kept for a fortnight: there is nothing to compare it with.")


def _rates(session: Session, minutes: int) -> None:
    answer = session.look(lambda runtime: runtime.read_model.rates(minutes))
    counts, times = [name for name in RATED if name != "lost"], ("p50", "p90", "p99")
    session.show_list(
        answer,
        ["!STAGE", *(f">{name.upper()}" for name in (*counts, *times)), ">LOST"],
        (
            (
                *(s["stage"], *(s["total"][n] for n in counts)),
                *(*(seconds_of(s[p]) for p in times), s["total"]["lost"]),
            )
            for s in answer
        ),
        "No stages.",
    )


def _totals(session: Session, answer: list[dict[str, Any]], *, compare: bool) -> None:
    """Print a line for each stage; with ``compare``, also the numbers of the span before."""
    columns = ["!STAGE", ">MOVED", ">FAILED", ">LARGEST BACKLOG", ">OLDEST", ">P50", ">P90", ">P99"]
    if compare:
        columns[2:2] = [">BEFORE"]
        columns[4:4] = [">BEFORE"]
    rows = []
    for series in answer:
        total = series["total"]
        before = (series.get("previous") or {}).get("total")
        moved = [total["moved"], *([before and before["moved"]] if compare else [])]
        failed = [share(total["error_share"])]
        failed += [share(before and before["error_share"])] if compare else []
        times = [seconds_of(total["oldest"] or None)]  # 0: nothing was due
        times += [seconds_of(total[name]) for name in ("p50", "p90", "p99")]
        rows.append((series["stage"], *moved, *failed, total["due"], *times))
    session.show_list(answer, columns, rows, "No stages.")


def _steps(session: Session, answer: list[dict[str, Any]], *, compare: bool) -> None:
    """Print a line for each step of the only series."""
    [series] = answer
    before = series.get("previous")
    columns = [f"!FROM ({zone_name()})", ">MOVED"]
    columns += [">BEFORE"] if compare else []
    columns += [">RETRIED", ">EXHAUSTED", ">DUE", ">OLDEST", ">P50", ">P90", ">P99", ">WAITED"]
    rows = []
    for place in range(series["points"]):
        at = series["first"] + timedelta(seconds=series["step"] * place)
        counts = [series["moved"][place]]
        counts += [before and before["moved"][place]] if compare else []
        counts += [series[name][place] for name in ("retried", "exhausted", "due")]
        oldest = series["oldest"][place] or None  # 0: nothing was due
        times = [seconds_of(series[name][place]) for name in ("p50", "p90", "p99")]
        rows.append((moment(at), *counts, seconds_of(oldest), *times, series["waited"][place]))
    session.show_list(answer, columns, rows, "No steps.")


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
        [f"AT ({zone_name()})", "WHO", "OPERATION", "!ON", "+REASON", ">RECORDS"],
        (
            (moment(a.done_at), a.who, a.verb, a.subject, a.reason, a.affected)
            for a in page.items
            if isinstance(a, Audit)
        ),
        "No operations yet.",
    )
