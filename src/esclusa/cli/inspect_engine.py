"""Commands that show the engine: budgets, cycles, runs, alerts, workers, leases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from esclusa.cli.completion import cycle_names, outcome_names
from esclusa.cli.options import (
    after_option,
    limit_option,
    system_option,
)
from esclusa.cli.output import ago, moment, seconds_of
from esclusa.cli.root import Command
from esclusa.cli.session import Session
from esclusa.cli.zones import zone_name
from esclusa.engine.run_folds import folded
from esclusa.model.query import Page, check_states, parse_filter
from esclusa.model.system_records import Alert, Run

if TYPE_CHECKING:
    from datetime import datetime

    from esclusa.model.record import Record
    from esclusa.runtime import Runtime


@click.command(cls=Command)
@click.pass_obj
def budgets(session: Session) -> None:
    """Each budget: spent, left, next reset, and who spent it."""
    answer, now = session.look_now(lambda runtime: runtime.read_model.budgets())
    session.show_list(
        answer,
        ["!BUDGET", "PER", ">SPENT", ">LIMIT", ">LEFT", "RESETS", "BY"],
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
    "--outcome",
    metavar="OUTCOME",
    shell_complete=outcome_names,
    help=f"Only these: {', '.join(Run.lifecycle.states)}.",
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
    check_states(Run.kind, where)

    async def ask(runtime: Runtime) -> Page[Record]:
        page = await runtime.read_model.runs(where, limit=limit, after=after)
        if cycle and not page.items:
            runtime.engine.cycle(cycle)  # raises NotFound for one that never existed
        return page

    page = session.look(ask)
    session.show_page(
        page,
        ["!RUN", "OUTCOME", ">TOOK", "+MESSAGE", f"STARTED ({zone_name()})", "COUNTERS"],
        _run_rows([r for r in page.items if isinstance(r, Run)], fold=session.screen.cuts),
        "No runs yet.",
    )


def _run_rows(runs: list[Run], *, fold: bool) -> list[tuple[Any, ...]]:
    """A row for each run; on a terminal one for several without work, one after another."""
    rows: list[tuple[Any, ...]] = []
    for each in folded(runs, _is_idle) if fold else runs:
        if isinstance(each, list):
            since = moment(each[-1].started_at)
            rows.append((f"{len(each)} runs without work (--wide)", "ok", "-", None, since, "-"))
            continue
        took = seconds_of(None if each.duration_ms is None else each.duration_ms / 1000)
        started = moment(each.started_at)
        rows.append((each.id, each.status, took, each.message, started, _named(each.counters)))
    return rows


def _is_idle(run: Run) -> bool:
    return run.status == "ok" and not any((run.counters or {}).values())


def _named(counters: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counters.items()) or "-"


@click.command(cls=Command)
@limit_option(20)
@after_option
@click.pass_obj
def alerts(session: Session, limit: int, after: str | None) -> None:
    """Alerts, newest first."""

    async def ask(runtime: Runtime) -> tuple[Page[Record], list[dict[str, Any] | None]]:
        page = await runtime.read_model.alerts(limit=limit, after=after)
        found = [alert for alert in page.items if isinstance(alert, Alert)]
        return page, await runtime.read_model.mutes(found)

    page, mutes = session.look(ask)
    session.show_page(
        page,
        [
            *("ALERT", "!SUBJECT", "STATE", "+MESSAGE", f"BEGUN ({zone_name()})"),
            *(f"ENDED ({zone_name()})", f"MUTED UNTIL ({zone_name()})"),
        ],
        (
            (
                *(a.name, a.subject, _alert_state(a, mute), a.message),
                *(moment(a.begun_at), moment(a.ended_at), _muted(mute)),
            )
            for a, mute in zip(page.items, mutes, strict=True)
            if isinstance(a, Alert)
        ),
        "No alerts.",
    )


def _muted(mute: dict[str, Any] | None) -> str:
    return "-" if mute is None else f"{moment(mute['until'])} by {mute['by']}"


def _alert_state(alert: Alert, mute: dict[str, Any] | None) -> str:
    if alert.ended_at is not None:
        return "ended"
    return "open" if mute is None else "muted"


@click.command(cls=Command)
@click.option("--all", "every", is_flag=True, help="Include workers that stopped or were lost.")
@click.pass_obj
def workers(session: Session, every: bool) -> None:
    """Worker processes."""
    found, now = session.look_now(lambda runtime: runtime.read_model.workers())
    answer = [w for w in found if every or w["alive"]]
    session.show_list(
        answer,
        ["!WORKER", "STATE", "HOST", ">PID", "VERSION", "STARTED"],
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
        ["!RECORD", "STAGE", ">ATTEMPT", "UNTIL", "STATE", "WORKER"],
        (
            (
                x["id"],
                x["stage"],
                x["attempt"],
                ago(x["until"], now),
                "expired" if x["orphan"] else "held",
                x["worker"],
            )
            for x in answer
        ),
        "No record is held now.",
    )
