"""Commands that read and change nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.export import format_option, output_option, write_records
from esclusa.cli.options import (
    DASHED_ID,
    Seconds,
    after_option,
    kind_argument,
    limit_option,
    system_option,
    where_option,
)
from esclusa.cli.output import Screen, ago, approximate, moment, seconds_of, text_of
from esclusa.cli.root import Command, cycle_names
from esclusa.cli.session import Session
from esclusa.model.errors import BadQuery
from esclusa.model.query import parse_filter
from esclusa.model.system_records import Alert, Run
from esclusa.model.texts import text

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from esclusa.exports import Format
    from esclusa.model.record import Record
    from esclusa.runtime import Runtime

TRACKED = ("id", "status", "attempts", "due_at", "last_error", "created_at", "updated_at")


@click.command(cls=Command)
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--every",
    type=Seconds(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between refreshes with --watch.",
)
@click.pass_obj
def status(session: Session, watch: bool, every: float) -> None:
    """Counts, backlogs, rates, cycles, budgets and workers."""
    from esclusa.cli.status import draw_status, watch_status

    if watch:
        session.look(
            lambda runtime: watch_status(
                session.screen, runtime.read_model.status, every, json=session.json
            )
        )
    else:
        answer = session.look(lambda runtime: runtime.read_model.status())
        session.show(answer, lambda screen: draw_status(screen, answer))


@click.command(cls=Command)
@system_option
@click.pass_obj
def kinds(session: Session, system: bool) -> None:
    """Every kind of record, with counts per state."""
    answer = session.look(lambda runtime: runtime.read_model.kinds(system=system))
    session.show_list(
        answer,
        ["KIND", "PIPELINE", ">RECORDS", "STATES"],
        (
            (k["table"], k["pipeline"], sum(c["count"] for c in k["counts"]), _counts(k))
            for k in answer
        ),
        "No kinds.",
    )


def _counts(kind: dict[str, Any]) -> str:
    counts = (f"{c['state']} {approximate(c)}" for c in kind["counts"] if c["count"])
    return ", ".join(counts) or "-"


@click.command(cls=Command)
@kind_argument
@click.option(
    "--status",
    "-s",
    "states",
    metavar="STATES",
    help="Only records in these states, separated by commas.",
)
@where_option
@click.option(
    "--order",
    multiple=True,
    metavar="FIELD",
    help="Order by this field; -FIELD for descending order.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 1_000_000_000),
    help="Show at most this many. Default: 50; with --format or --output all.",
)
@after_option
@click.option("--archived", is_flag=True, help="Read the archive.")
@format_option
@output_option
@click.pass_obj
def records(
    session: Session,
    table: str,
    states: str | None,
    where: tuple[str, ...],
    order: tuple[str, ...],
    limit: int | None,
    after: str | None,
    archived: bool,
    form: Format | None,
    output: Path | None,
) -> None:
    """List records of a kind, or write the whole list as a file."""
    kind = session.kind(table)
    filter = parse_filter(
        kind, [*where, *([f"status={states}"] if states else [])], archived=archived
    )
    if form or output:
        if after:
            raise BadQuery(text("export_after"))
        write_records(session, kind, filter, order, limit, archived, form, output)
        return
    page = session.look(
        lambda runtime: runtime.read_model.records(
            table, filter, order=order, limit=limit or 50, after=after, archived=archived
        )
    )
    session.show_page(
        page,
        ["ID", "STATUS", ">ATTEMPTS", "DUE", *(f.name.upper() for f in kind.fields)],
        (
            [r.id, r.status, r.attempts, r.due_at, *(getattr(r, f.name, None) for f in kind.fields)]
            for r in page.items
        ),
        "No records.",
    )


@click.command(cls=Command, context_settings=DASHED_ID)
@kind_argument
@click.argument("id")
@click.pass_obj
def show(session: Session, table: str, id: str) -> None:
    """One record: its fields, its history, and why it is not moving."""

    async def ask(runtime: Runtime) -> tuple[Record, list[Any], Any]:
        return (
            await runtime.read_model.record(table, id),
            await runtime.read_model.history(table, id),
            await runtime.read_model.why(table, id),
        )

    record, steps, reason = session.look(ask)

    def draw(screen: Screen) -> None:
        values = record.kind.as_json(record)
        screen.pairs(
            (name, values[name])
            for name in ["id", "status", *(n for n in values if n not in TRACKED), *TRACKED[2:]]
        )
        screen.line()
        screen.table(
            ["AT (UTC)", "FROM", "TO", ">ATTEMPT", "BY", "REASON"],
            ((moment(s.at), s.frm, s.to, s.attempt, s.who, _cause(s)) for s in steps),
            empty="It has not moved yet.",
        )
        screen.line(text_of(reason.text), "bold")

    session.show(
        {
            "record": record.kind.as_json(record),
            "history": [asdict(s) for s in steps],
            "why": reason.answer(),
        },
        draw,
    )


def _cause(step: Any) -> str:
    error = f"{step.error['type']}: {step.error['message']}" if step.error else None
    changes = [f"{name}: {old} → {new}" for name, (old, new) in (step.changes or {}).items()]
    return "; ".join(filter(None, (step.reason, error, *changes))) or "-"


@click.command(cls=Command, context_settings=DASHED_ID)
@kind_argument
@click.argument("id")
@click.pass_obj
def why(session: Session, table: str, id: str) -> None:
    """Why a record is not moving, and when it can move next."""
    answer, now = session.look_now(lambda runtime: runtime.read_model.why(table, id))

    def draw(screen: Screen) -> None:
        screen.line(f"{table} {id} is {answer.state}.", "bold")
        for reason in answer.reasons:
            screen.line(f"  - {text_of(reason.text)}")
        if answer.next:
            screen.line(f"It can move {ago(answer.next, now)}, at {moment(answer.next)} UTC.")

    session.show(answer.answer(), draw)


@click.command(cls=Command)
@kind_argument
@click.option("--mermaid", is_flag=True, help="Print a Mermaid diagram.")
@click.pass_obj
def graph(session: Session, table: str, mermaid: bool) -> None:
    """Draw the lifecycle of a kind."""
    from esclusa.cli.drawing import draw, stage_notes

    kind = session.kind(table)
    life = kind.lifecycle
    stages = [s for plan in session.settings.plans for s in plan.stages]
    session.show(
        {
            "table": table,
            "initial": life.initial,
            "states": list(life.states),
            "terminal": sorted(life.terminal),
            "moves": [[s, t] for s in life.states for t in life.targets(s)],
            "mermaid": life.mermaid(),
        },
        lambda screen: screen.line(
            life.mermaid() if mermaid else draw(life, stage_notes(kind, stages))
        ),
    )


@click.command(cls=Command)
@click.pass_obj
def budgets(session: Session) -> None:
    """Each budget: spent, left, next reset, and who spent it."""
    answer, now = session.look_now(lambda runtime: runtime.read_model.budgets())
    session.show_list(
        answer,
        ["BUDGET", "PER", ">SPENT", ">LIMIT", ">LEFT", "RESETS", "BY"],
        (
            (
                b["budget"],
                w["per"],
                w["used"],
                w["limit"],
                0 if w["barred"] else w["left"],
                _reset(w, now),
                _named(w["spenders"]),
            )
            for b in answer
            for w in b["windows"]
        ),
        "No budgets are declared.",
    )


def _reset(window: dict[str, Any], now: datetime) -> str:
    barred = window["barred"]
    return f"{ago(barred, now)} (reported by the provider)" if barred else ago(window["reset"], now)


@click.command(cls=Command)
@system_option
@click.pass_obj
def cycles(session: Session, system: bool) -> None:
    """Every cycle: schedule, state, last run and next run."""
    from esclusa.cli.status import CYCLES, cycle_rows

    answer, now = session.look_now(lambda runtime: runtime.read_model.cycles(system=system))
    session.show_list(answer, CYCLES, cycle_rows(answer, now), "No cycles.")


@click.command(cls=Command)
@click.option(
    "--cycle", metavar="CYCLE", shell_complete=cycle_names, help="Only runs of this cycle."
)
@click.option(
    "--outcome", metavar="OUTCOME", help=f"Only these: {', '.join(Run.lifecycle.states)}."
)
@limit_option(20)
@after_option
@click.pass_obj
def runs(
    session: Session, cycle: str | None, outcome: str | None, limit: int, after: str | None
) -> None:
    """Runs of cycles, newest first."""
    given = {"cycle": cycle, "status": outcome}
    where = parse_filter(Run.kind, [f"{name}={value}" for name, value in given.items() if value])
    page = session.look(lambda runtime: runtime.read_model.runs(where, limit=limit, after=after))
    session.show_page(
        page,
        ["STARTED (UTC)", "CYCLE", "OUTCOME", ">TOOK", "COUNTERS", "MESSAGE"],
        (
            (
                moment(r.started_at),
                r.cycle,
                r.status,
                seconds_of(None if r.duration_ms is None else r.duration_ms / 1000),
                _named(r.counters),
                r.message,
            )
            for r in page.items
            if isinstance(r, Run)
        ),
        "No runs yet.",
    )


def _named(counters: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counters.items()) or "-"


@click.command(cls=Command)
@limit_option(20)
@after_option
@click.pass_obj
def alerts(session: Session, limit: int, after: str | None) -> None:
    """Alerts, newest first."""
    page = session.look(lambda runtime: runtime.read_model.alerts(limit=limit, after=after))
    session.show_page(
        page,
        ["BEGUN (UTC)", "ENDED", "ALERT", "SUBJECT", "MESSAGE"],
        (
            (moment(a.begun_at), _ended(a), a.name, a.subject, a.message)
            for a in page.items
            if isinstance(a, Alert)
        ),
        "No alerts.",
    )


def _ended(alert: Alert) -> str:
    return "-" if alert.ended_at is None else moment(alert.ended_at)


@click.command(cls=Command)
@click.option("--all", "every", is_flag=True, help="Include workers that stopped or were lost.")
@click.pass_obj
def workers(session: Session, every: bool) -> None:
    """Worker processes."""
    found, now = session.look_now(lambda runtime: runtime.read_model.workers())
    answer = [w for w in found if every or w["alive"]]
    session.show_list(
        answer,
        ["WORKER", "STATE", "HOST", ">PID", "VERSION", "STARTED"],
        (
            (w["id"], _state(w), w["host"], str(w["pid"]), w["version"], ago(w["started_at"], now))
            for w in answer
        ),
        "No worker is running. Start one with: esclusa worker",
    )


def _state(worker: dict[str, Any]) -> str:
    return (
        "lost" if worker["status"] == "running" and not worker["alive"] else str(worker["status"])
    )


@click.command(cls=Command)
@click.pass_obj
def leases(session: Session) -> None:
    """Records that are held now: by which worker, until when."""
    answer, now = session.look_now(lambda runtime: runtime.read_model.leases())
    session.show_list(
        answer,
        ["STAGE", "RECORD", "WORKER", ">ATTEMPT", "UNTIL", ""],
        (
            (
                x["stage"],
                x["id"],
                x["worker"],
                x["attempt"],
                ago(x["until"], now),
                "orphan" if x["orphan"] else "",
            )
            for x in answer
        ),
        "No record is held now.",
    )


@click.command(cls=Command, context_settings=DASHED_ID)
@kind_argument
@click.argument("id")
@click.pass_obj
def related(session: Session, table: str, id: str) -> None:
    """Records that a record refers to, and records that refer to it."""
    answer = session.look(lambda runtime: runtime.read_model.related(table, id))
    session.show_list(
        answer,
        ["DIRECTION", "FIELD", "KIND", "ID", "STATUS", "TITLE"],
        (
            (r["way"], r["field"], r["table"], i["id"], i["status"], i["title"])
            for r in answer
            for i in r["items"]
        ),
        "No references are declared, or all are empty.",
    )


@click.command(cls=Command)
@click.argument("text")
@click.pass_obj
def search(session: Session, text: str) -> None:
    """Records of every kind whose id equals or begins with TEXT."""
    answer = session.look(lambda runtime: runtime.read_model.search(text.strip()))
    session.show_list(
        answer,
        ["KIND", "ID", "STATUS", "TITLE"],
        ((k["table"], i["id"], i["status"], i["title"]) for k in answer for i in k["items"]),
        f"No id begins with {text}.",
    )


@click.command(cls=Command)
@click.argument("name", metavar="[VIEW]", required=False)
@limit_option(50, 1000)
@after_option
@click.pass_obj
def views(session: Session, name: str | None, limit: int, after: str | None) -> None:
    """The views of the pipelines with their number of records, or one page of VIEW."""
    if name is None:
        found = session.look(lambda runtime: runtime.read_model.views())
        session.show_list(
            found,
            ["VIEW", ">RECORDS", "TITLE"],
            (
                (v["view"], None if v["count"] is None else approximate(v), v["title"]["en"])
                for v in found
            ),
            "No pipeline declares a view.",
        )
        return
    page = session.look(lambda runtime: runtime.read_model.view(name, limit=limit, after=after))
    session.show_table(
        page,
        [c.upper() for c in page["columns"]],
        ([item.get(c) for c in page["columns"]] for item in page["items"]),
        "Empty.",
    )
