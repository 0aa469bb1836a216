"""What the pages of runs and alerts show: folded lists, moves, and where each alert leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from esclusa.engine import run_folds
from esclusa.model.errors import NotFound
from esclusa.model.system_records import Alert, Run
from esclusa.web.console import render, translate
from esclusa.web.console.catalog import gettext as _

if TYPE_CHECKING:
    from esclusa.web.console.context import ConsoleContext


def folded(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A list of runs, newest first, in which runs that did nothing are one item each time.

    Such an item has them in ``fold``, and the times of the first and the last.
    """
    return [
        each
        if isinstance(each, dict)
        else {"fold": each, "since": each[-1]["started_at"], "until": each[0]["started_at"]}
        for each in run_folds.folded(runs, _did_nothing)
    ]


def _did_nothing(run: dict[str, Any]) -> bool:
    return run["status"] == "ok" and not any(run["counters"].values())


def was_idle(console: ConsoleContext, cycle: str, counters: Mapping[str, int] | None) -> bool:
    """Whether nothing was due in a run. A function does what it does without saying so."""
    found = console.read_model.registry.cycles.get(cycle)
    return found is not None and found.function is None and not any((counters or {}).values())


def run_moves(console: ConsoleContext, run: Run) -> list[dict[str, Any]]:
    """What a run did with records, by table and states, with links to its newest records."""
    out = []
    for move in run.moves or []:
        try:
            roles = dict(console.read_model.roles(console.read_model.lookup(move["table"])))
        except NotFound:  # of a pipeline that is not loaded any more
            roles = {}
        out.append(
            move
            | {
                "from_role": roles.get(move["from"], "resting"),
                "to_role": roles.get(move["to"], "resting"),
                "result_name": _result(move["result"]),
                "records": [
                    {"id": id, "href": render.url("console", "records", move["table"], id)}
                    for id in move["ids"]
                ],
            }
        )
    return out


def _result(name: str) -> str:
    return {
        "moved": _("moved"),
        "retried": _("failed, will retry"),
        "waited": _("waits"),
        "exhausted": _("failed for good"),
    }.get(name, name)


def alert_data(console: ConsoleContext, alert: Alert) -> dict[str, Any]:
    """An alert in words, with secrets masked, and links to what it is about."""
    return alert.model_dump() | {
        "details": render.masked(alert.details or {}),
        "message": translate.stored(alert.message),
        "links": _links(console, alert),
    }


def _links(console: ConsoleContext, alert: Alert) -> list[tuple[str, str]]:
    """The pages on which an operator goes on: label and address."""
    registry, links = console.read_model.registry, []
    if run := (alert.details or {}).get("run"):
        links.append((_("Run"), render.url("console", "runs", str(run))))
    if alert.name == "budget_early":
        links.append((_("Budgets"), render.url("console", "budgets")))
    elif alert.name in ("no_worker", "loop_blocked"):
        links.append((_("Workers"), render.url("console", "workers")))
    if alert.subject in registry.cycles:
        cycle = alert.subject
        links.append((_("View runs"), render.url("console", "runs", cycle=cycle)))
    for table, state in _states_of(console, alert):
        links.append((_("Records"), render.url("console", "records", table, status=state)))
    return links


def _states_of(console: ConsoleContext, alert: Alert) -> list[tuple[str, str]]:
    """The tables and states with the records of an alert about a stage, or a cycle of stages."""
    registry = console.read_model.registry
    stages = [stage for stage in registry.all_stages if stage.name == alert.subject]
    if not stages and alert.name == "error_rate" and alert.subject in registry.cycles:
        stages = [s for s in registry.cycles[alert.subject].stages if s.exhausted]
    backlog = alert.name == "backlog"
    found = [(s.kind.table, s.take[0] if backlog else s.exhausted or s.take[0]) for s in stages]
    return list(dict.fromkeys(found))
