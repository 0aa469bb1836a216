"""Commands that read and change nothing: of records here, of the engine in ``inspect_engine``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.completion import column_names, order_names, state_names, view_names
from esclusa.cli.export import format_option, output_option, write_records
from esclusa.cli.inspect_engine import alerts, budgets, cycles, leases, runs, workers
from esclusa.cli.options import (
    DASHED_ID,
    Seconds,
    after_option,
    kind_argument,
    limit_option,
    system_option,
    where_option,
)
from esclusa.cli.output import Screen, ago, approximate, moment, sentence, text_of
from esclusa.cli.root import Command, filter_hint
from esclusa.cli.session import Session
from esclusa.cli.zones import zone_name
from esclusa.model.errors import BadQuery
from esclusa.model.query import beginning, check_states, parse_filter
from esclusa.model.texts import text

if TYPE_CHECKING:
    from pathlib import Path

    from esclusa.exports import Format
    from esclusa.model.kind import Kind
    from esclusa.model.query import Page
    from esclusa.model.record import Record
    from esclusa.runtime import Runtime

__all__ = [
    "alerts",
    "budgets",
    "cycles",
    "graph",
    "kinds",
    "leases",
    "records",
    "related",
    "runs",
    "search",
    "show",
    "status",
    "views",
    "why",
    "workers",
]

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
        ["!KIND", "PIPELINE", ">RECORDS", "+STATES"],
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
    shell_complete=state_names,
    help="Only records in these states, separated by commas.",
)
@where_option
@click.option(
    "--order",
    multiple=True,
    metavar="FIELD",
    shell_complete=order_names,
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
@click.option(
    "--columns",
    metavar="FIELDS",
    shell_complete=column_names,
    help="Only these columns, separated by commas; also of a file.",
)
@click.option("--filter", "saved", metavar="NAME", help="Use this saved filter, too.")
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
    columns: str | None,
    saved: str | None,
    form: Format | None,
    output: Path | None,
) -> None:
    """List records of a kind, or write the whole list as a file."""
    kind = session.kind(table)
    chosen = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    where = (*where, *([f"status={states}"] if states else []))
    if saved is not None:
        found = session.look(lambda runtime: runtime.read_model.saved_filter(table, saved))
        where, chosen = (*found.filters, *where), chosen or tuple(found.columns)
        order = order or tuple(each for each in found.order.split(",") if each)
    filter = parse_filter(kind, where, archived=archived)
    if saved is not None and found.begins:
        filter["id"] = beginning(found.begins)
    if form or output:
        if after:
            raise BadQuery(text("export_after"))
        write_records(session, kind, filter, order, limit, archived, form, output, chosen)
        return
    page = session.look(
        lambda runtime: runtime.read_model.records(
            table, filter, order=order, limit=limit or 50, after=after, archived=archived
        )
    )
    if not page.items and "status" in filter:
        check_states(kind, filter, session.look(lambda runtime: runtime.read_model.states(table)))
    if chosen:
        _show_chosen(session, kind, page, chosen)
        return
    session.show_page(
        page,
        ["!ID", "STATUS", ">ATTEMPTS", "DUE", *(f.name.upper() for f in kind.fields)],
        (
            [r.id, r.status, r.attempts, r.due_at, *(getattr(r, f.name, None) for f in kind.fields)]
            for r in page.items
        ),
        "No records.",
    )


def _show_chosen(session: Session, kind: Kind, page: Page[Record], chosen: tuple[str, ...]) -> None:
    """Print one page of records with the chosen columns only."""
    from esclusa.exports import record_columns, record_row

    columns = record_columns(kind, chosen)
    rows = [record_row(record, columns) for record in page.items]
    session.show_table(
        {"items": rows, "next": page.next},
        ["!ID" if c.name == "id" else c.name.upper() for c in columns],
        (list(row.values()) for row in rows),
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
        error = values.get("last_error") or {}
        traceback = error.pop("traceback", None)
        times = {n: at for n in values if isinstance(at := getattr(record, n, None), datetime)}
        screen.pairs(
            (name, times.get(name, values[name]))
            for name in ["id", "status", *(n for n in values if n not in TRACKED), *TRACKED[2:]]
        )
        screen.line()
        screen.table(
            [f"AT ({zone_name()})", "FROM", "TO", ">ATTEMPT", "BY", "+REASON"],
            ((moment(s.at), s.frm, s.to, s.attempt, s.who, _cause(s)) for s in steps),
            empty="It has not moved yet.",
        )
        for line in str(traceback or "").splitlines():
            screen.line(text_of(line))
        if lines := _log_lines(steps):
            screen.table([f"LOGGED AT ({zone_name()})", ">ATTEMPT", "LEVEL", "+MESSAGE"], lines)
        screen.line("; ".join(text_of(each.text) for each in reason.reasons), "bold")

    session.show(
        {
            "record": record.kind.as_json(record),
            "history": [asdict(s) for s in steps],
            "why": reason.answer(),
        },
        draw,
    )


def _log_lines(steps: Sequence[Any]) -> list[tuple[object, ...]]:
    """What handlers logged in these attempts."""
    return [
        (
            moment(datetime.fromisoformat(line["at"])),
            step.attempt,
            line["level"],
            " ".join([line["message"], *(f"{n}={v}" for n, v in line.get("fields", {}).items())]),
        )
        for step in steps
        for line in (step.log or {"lines": ()})["lines"]
    ]


def _cause(step: Any) -> str:
    error = f"{step.error['type']}: {step.error['message']}" if step.error else None
    changes = [
        f"{name}: {text_of(old)} → {text_of(new)}"
        for name, (old, new) in (step.changes or {}).items()
    ]
    reason = sentence(step.reason) if step.reason else None
    return "; ".join(filter(None, (reason, error, *changes))) or "-"


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
            screen.line(
                f"It can move {ago(answer.next, now)}, at {moment(answer.next)} {zone_name()}."
            )

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


@click.command(cls=Command, context_settings=DASHED_ID)
@kind_argument
@click.argument("id")
@click.pass_obj
def related(session: Session, table: str, id: str) -> None:
    """Records that a record refers to, and records that refer to it."""
    answer = session.look(lambda runtime: runtime.read_model.related(table, id))
    session.show_list(
        answer,
        ["DIRECTION", "FIELD", "=KIND", "!ID", "STATUS", "TITLE"],
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
        ["=KIND", "!ID", "STATUS", "TITLE"],
        ((k["table"], i["id"], i["status"], i["title"]) for k in answer for i in k["items"]),
        f"No id begins with {text}."
        + (f" To filter: esclusa records KIND -w {text}" if filter_hint(text) else ""),
    )


async def _view_page(runtime: Runtime, name: str, limit: int, after: str | None) -> dict[str, Any]:
    """One page of a view. The artifact store is opened only if the view reads files."""
    views = {view.name: view for plan in runtime.read_model.pipelines() for view in plan.app.views}
    async with AsyncExitStack() as stack:
        if name in views and "artifacts" in views[name].asks:
            await runtime.artifacts.open()
            stack.push_async_callback(runtime.artifacts.close)
        return await runtime.read_model.view(name, limit=limit, after=after)


@click.command(cls=Command)
@click.argument("name", metavar="[VIEW]", required=False, shell_complete=view_names)
@limit_option(50, 1000)
@after_option
@click.pass_obj
def views(session: Session, name: str | None, limit: int, after: str | None) -> None:
    """The views of the pipelines with their number of records, or one page of VIEW."""
    if name is None:
        found = session.look(lambda runtime: runtime.read_model.views())
        session.show_list(
            found,
            ["!VIEW", ">RECORDS", "+TITLE"],
            (
                (v["view"], None if v["count"] is None else approximate(v), v["title"]["en"])
                for v in found
            ),
            "No pipeline declares a view.",
        )
        return
    page = session.look(lambda runtime: _view_page(runtime, name, limit, after))
    session.show_table(
        page,
        ["!ID" if c == "id" else c.upper() for c in page["columns"]],
        ([item.get(c) for c in page["columns"]] for item in page["items"]),
        "Empty.",
    )
