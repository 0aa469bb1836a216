"""The table ``worker_runs``: the runs of the cycles as the team's dashboards read them."""

from __future__ import annotations

from typing import Any

from esclusa import RunContext
from esclusa.pipelines.tenders.worker_records import KEPT, WorkerRun

# The counters of each cycle, and the columns that show them.
COLUMNS: dict[str, dict[str, str]] = {
    "ingest": {
        "found": "licitaciones_found",
        "new": "licitaciones_new",
        "deliveries": "deliveries_created",
    },
    "dispatch": {
        "sent": "notifications_sent",
        "retryable": "notifications_retryable",
        "failed": "notifications_failed",
        "invalidated": "notifications_invalidated",
    },
    "receipt": {
        "taken": "receipts_processed",
        "retryable": "notifications_retryable",
        "failed": "notifications_failed",
        "invalidated": "notifications_invalidated",
    },
    "cleanup": {"licitaciones": "archived_licitaciones", "deliveries": "archived_deliveries"},
    "archive_export": {},
}


async def note_run(run: RunContext, ended: bool) -> None:
    """Insert the row of a run when it begins, and complete it when it ends."""
    name = run.cycle.name.partition(".")[2].replace("-", "_")
    rows: dict[str, str] = run.context.run_rows
    if name not in COLUMNS:
        return
    if not ended:
        new = WorkerRun(worker_name=name, started_at=run.started)
        [answer] = await run.records.insert([new])
        rows[run.id] = answer.id
    elif (id := rows.pop(run.id, None)) is not None:
        counters = run.named_counters
        fields: dict[str, Any] = {
            column: counters.get(counter, 0) for counter, column in COLUMNS[name].items()
        }
        if name == "ingest":
            fields["targets_selected"] = fields["deliveries_created"]
        fields["error_message"] = None if run.outcome == "ok" else str(run.message or run.outcome)
        fields["finished_at"] = run.now
        await run.records.edit(
            WorkerRun, id, among=[KEPT], who=run.worker, reason="ended", **fields
        )
