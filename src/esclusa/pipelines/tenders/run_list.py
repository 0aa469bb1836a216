"""The list of runs: the rows of ``worker_runs``, each with its outcome."""

from __future__ import annotations

from typing import Any

from esclusa import NotFound, Runtime, one_of
from esclusa.pipelines.tenders.worker_records import WorkerRun
from esclusa.pipelines.tenders.worker_runs import COLUMNS
from esclusa.web import record_json


def worker_names(worker: str | None) -> list[str]:
    """Return the names in the table for a cycle's name, short or full; all without one.

    Raises NotFound for an unknown one. ``sync`` is that of rows before the cycles had names.
    """
    known = [*COLUMNS, "sync"]
    if worker is None:
        return known
    name = worker.removeprefix("tenders.").replace("-", "_")
    name = {"receipts": "receipt"}.get(name, name)
    if name not in known:
        shown = ", ".join(each.replace("_", "-") for each in known)
        raise NotFound(f"there is no cycle {worker!r:.100}; there are: {shown}")
    return [name]


async def list_runs(
    runtime: Runtime, names: list[str], limit: int, after: str | None
) -> dict[str, Any]:
    """Return a page of runs, the newest first, each with its outcome, counters and duration."""
    page = await runtime.records.find(
        WorkerRun,
        {"worker_name": names[0] if len(names) == 1 else one_of(*names)},
        order="-started_at",
        limit=limit,
        after=after,
    )
    if not page.items:
        return {"items": [], "next": None}
    started = one_of(*{row.started_at for row in page.items})
    own = await runtime.read_model.runs({"started_at": started}, limit=10_000)
    # A row is ours if a run of the same cycle began at the same time.
    outcomes = {
        (getattr(run, "cycle", ""), getattr(run, "started_at", None)): run.status
        for run in own.items
    }
    return {"items": [_run_json(row, outcomes) for row in page.items], "next": page.next}


def _run_json(row: WorkerRun, outcomes: dict[tuple[str, Any], str]) -> dict[str, Any]:
    cycle = f"tenders.{row.worker_name.replace('_', '-')}"
    outcome: str | None = outcomes.get((cycle, row.started_at))
    if row.finished_at is None:
        outcome = None if outcome == "running" else "died"
    elif outcome in (None, "running"):
        outcome = "error" if row.error_message else "ok"
    took = None if row.finished_at is None else row.finished_at - row.started_at
    columns = COLUMNS.get(row.worker_name, {})
    return record_json(row) | {
        "cycle": cycle,
        "outcome": outcome,
        "counters": {name: getattr(row, column) for name, column in columns.items()},
        "duration_ms": None if took is None else round(took.total_seconds() * 1000),
    }
