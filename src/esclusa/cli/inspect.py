"""Commands that look and change nothing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.output import Screen, ago, as_json, moment, seconds_of, text_of
from esclusa.cli.root import Command, Seconds, cycle_names, kind_names
from esclusa.cli.session import Session
from esclusa.model.query import parse_filter

if TYPE_CHECKING:
    from datetime import datetime

    from esclusa.model.query import Page
    from esclusa.model.record import Record
    from esclusa.runtime import Runtime

TRACKED = ("id", "status", "attempts", "due_at", "last_error", "created_at", "updated_at")

kind_argument = click.argument("table", metavar="KIND", shell_complete=kind_names)
where_option = click.option(
    "--where", "-w", "where", multiple=True, metavar="FILTER",
    help="field=value, field=a,b, field>=value, field=null or field!=null; several must all hold.",
)  # fmt: skip


@click.command(cls=Command)
@click.option("--watch", is_flag=True, help="Go on and show it anew.")
@click.option(
    "--every",
    type=Seconds(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between two looks with --watch.",
)
@click.pass_obj
def status(session: Session, watch: bool, every: float) -> None:
    """The whole house at a glance: counts, backlogs, rates, cycles, budgets, workers."""
    from esclusa.cli.status import draw_status

    if not watch:
        answer = session.look(lambda runtime: runtime.read_model.status())
        session.show(answer, lambda screen: draw_status(screen, answer))
        return
    session.look(lambda runtime: _watch(session, runtime, every))


async def _watch(session: Session, runtime: Runtime, every: float) -> None:
    from esclusa.cli.status import draw_status, live_status

    if session.json or not session.screen.terminal:
        while True:
            answer = await runtime.read_model.status()
            if session.json:
                click.echo(as_json(answer))
            else:
                draw_status(session.screen, answer)
            await asyncio.sleep(every)
    await live_status(session.screen, runtime.read_model.status, every)


@click.command(cls=Command)
@click.option("--system", is_flag=True, help="The house's own kinds too.")
@click.pass_obj
def kinds(session: Session, system: bool) -> None:
    """Every kind of record, with its counts per state."""
    answer = session.look(lambda runtime: runtime.read_model.kinds(system=system))

    def draw(screen: Screen) -> None:
        rows = [
            (k["table"], k["pipeline"], sum(c["count"] for c in k["counts"]), _counts(k))
            for k in answer
        ]
        screen.table(
            ["KIND", "PIPELINE", ">RECORDS", "STATES"],
            rows,
            empty="no kinds; set ESCLUSA_PIPELINES",
        )

    session.show({"items": answer, "next": None}, draw)


def _counts(kind: dict[str, Any]) -> str:
    return (
        ", ".join(
            f"{c['state']} {'' if c['exact'] else '~'}{c['count']:,}"
            for c in kind["counts"]
            if c["count"]
        )
        or "-"
    )


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
    "-o",
    multiple=True,
    metavar="FIELD",
    help="Order by this field; -FIELD for descending.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="At most so many.",
)
@click.option("--after", metavar="CURSOR", help="Go on after the page before: its 'next'.")
@click.option("--archived", is_flag=True, help="Look in the archive.")
@click.pass_obj
def records(
    session: Session, table: str, states: str | None, where: tuple[str, ...], order: tuple[str, ...], limit: int, after: str | None,
    archived: bool,
) -> None:  # fmt: skip
    """List records of a kind."""
    said = [*where, *([f"status={states}"] if states else [])]
    kind = session.kind(table)
    filter = parse_filter(kind, said, archived=archived)
    page = session.look(
        lambda h: h.read_model.records(
            table, filter, order=order, limit=limit, after=after, archived=archived
        )
    )

    def draw(screen: Screen) -> None:
        fields = [f.name for f in kind.fields]
        rows = [
            [r.id, r.status, r.attempts, r.due_at, *(getattr(r, f, None) for f in fields)]
            for r in page.items
        ]
        screen.table(
            ["ID", "STATUS", ">TRIES", "DUE", *(f.upper() for f in fields)],
            rows,
            empty="no records",
        )
        _more(session, page)

    session.show(_list(page), draw)


def _list(page: Page[Record]) -> dict[str, Any]:
    return {"items": [r.kind.as_json(r) for r in page.items], "next": page.next}


def _more(session: Session, page: Page[Any]) -> None:
    if page.next:
        session.note(f"there are more: --after {page.next}")


@click.command(cls=Command)
@kind_argument
@click.argument("id")
@click.pass_obj
def show(session: Session, table: str, id: str) -> None:
    """One record: its fields and its history."""

    async def ask(runtime: Runtime) -> tuple[Record, list[Any], Any]:
        record = await runtime.read_model.record(table, id)
        return (
            record,
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
        rows = [(moment(s.at), s.frm, s.to, s.attempt, s.who, _said(s)) for s in steps]
        screen.table(
            ["AT (UTC)", "FROM", "TO", ">TRY", "BY", "WHY"], rows, empty="it has not moved yet"
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


def _said(step: Any) -> str:
    error = step.error or {}
    return (
        "; ".join(
            x for x in (step.reason, f"{error['type']}: {error['message']}" if error else None) if x
        )
        or "-"
    )


@click.command(cls=Command)
@kind_argument
@click.argument("id")
@click.pass_obj
def why(session: Session, table: str, id: str) -> None:
    """Why a record is not moving, and when it can."""
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
@click.option("--mermaid", is_flag=True, help="As a Mermaid diagram.")
@click.pass_obj
def graph(session: Session, table: str, mermaid: bool) -> None:
    """Draw the lifecycle of a kind."""
    from esclusa.cli.drawing import draw, stage_notes

    kind = session.kind(table)
    life = kind.lifecycle
    stages = [s for plan in session.settings.plans for s in plan.stages]
    answer = {
        "table": table, "initial": life.initial, "states": list(life.states), "terminal": sorted(life.terminal),
        "moves": [[s, t] for s in life.states for t in life.targets(s)], "mermaid": life.mermaid(),
    }  # fmt: skip
    session.show(
        answer,
        lambda screen: screen.line(
            life.mermaid() if mermaid else draw(life, stage_notes(kind, stages))
        ),
    )


@click.command(cls=Command)
@click.pass_obj
def budgets(session: Session) -> None:
    """What is spent and left of each budget, when it resets, and who spent it."""
    answer, now = session.look_now(lambda runtime: runtime.read_model.budgets())

    def draw(screen: Screen) -> None:
        rows = [
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
        ]
        screen.table(
            ["BUDGET", "PER", ">SPENT", ">LIMIT", ">LEFT", "RESETS", "BY"],
            rows,
            empty="no budgets are declared",
        )

    session.show({"items": answer, "next": None}, draw)


def _reset(window: dict[str, Any], now: datetime) -> str:
    barred = window["barred"]
    return f"{ago(barred, now)} (says the provider)" if barred else ago(window["reset"], now)


@click.command(cls=Command)
@click.option("--system", is_flag=True, help="The house's own cycles too.")
@click.pass_obj
def cycles(session: Session, system: bool) -> None:
    """Every cycle: its schedule, its state, its last run and the next."""
    from esclusa.cli.status import CYCLES, cycle_rows

    answer, now = session.look_now(lambda runtime: runtime.read_model.cycles(system=system))
    session.show(
        {"items": answer, "next": None},
        lambda s: s.table(
            CYCLES, cycle_rows(answer, now), empty="no cycles; set ESCLUSA_PIPELINES"
        ),
    )


@click.command(cls=Command)
@click.option(
    "--cycle", metavar="CYCLE", shell_complete=cycle_names, help="Only runs of this cycle."
)
@click.option(
    "--outcome", metavar="OUTCOME", help="Only these: running, ok, blocked, partial, error."
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--after", metavar="CURSOR", help="Go on after the page before: its 'next'.")
@click.pass_obj
def runs(
    session: Session, cycle: str | None, outcome: str | None, limit: int, after: str | None
) -> None:
    """The runs of cycles, the newest first."""
    from esclusa.model.system_records import Run

    said = [*([f"cycle={cycle}"] if cycle else []), *([f"status={outcome}"] if outcome else [])]
    where = parse_filter(Run.kind, said)
    page = session.look(lambda runtime: runtime.read_model.runs(where, limit=limit, after=after))

    def draw(screen: Screen) -> None:
        rows = [
            (
                moment(r.started_at),
                r.cycle,
                r.status,
                _took(r.duration_ms),
                _named(r.counters),
                r.message,
            )
            for r in page.items
            if isinstance(r, Run)
        ]
        screen.table(
            ["STARTED (UTC)", "CYCLE", "OUTCOME", ">TOOK", "COUNTERS", "MESSAGE"],
            rows,
            empty="no runs yet",
        )
        _more(session, page)

    session.show(_list(page), draw)


def _took(milliseconds: int | None) -> str:
    return seconds_of(None if milliseconds is None else milliseconds / 1000)


def _named(counters: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counters.items()) or "-"


@click.command(cls=Command)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="At most so many.",
)
@click.option("--after", metavar="CURSOR", help="Go on after the page before: its 'next'.")
@click.pass_obj
def alerts(session: Session, limit: int, after: str | None) -> None:
    """What a person should look at, the newest first."""
    from esclusa.model.system_records import Alert

    page = session.look(lambda runtime: runtime.read_model.alerts(limit=limit, after=after))

    def draw(screen: Screen) -> None:
        rows = [
            (moment(a.raised_at), a.name, a.subject, a.message)
            for a in page.items
            if isinstance(a, Alert)
        ]
        screen.table(["RAISED (UTC)", "ALERT", "SUBJECT", "MESSAGE"], rows, empty="no alerts")
        _more(session, page)

    session.show(_list(page), draw)


@click.command(cls=Command)
@click.option("--all", "every", is_flag=True, help="Those that stopped or were lost too.")
@click.pass_obj
def workers(session: Session, every: bool) -> None:
    """Worker processes."""
    found, now = session.look_now(lambda runtime: runtime.read_model.workers())
    answer = [w for w in found if every or w["alive"]]

    def draw(screen: Screen) -> None:
        rows = [
            (w["id"], _state(w), w["host"], str(w["pid"]), w["version"], ago(w["started_at"], now))
            for w in answer
        ]
        screen.table(
            ["WORKER", "STATE", "HOST", ">PID", "VERSION", "STARTED"],
            rows,
            empty="no worker is running; start one: esclusa worker",
        )

    session.show({"items": answer, "next": None}, draw)


def _state(worker: dict[str, Any]) -> str:
    return (
        "lost" if worker["status"] == "running" and not worker["alive"] else str(worker["status"])
    )
