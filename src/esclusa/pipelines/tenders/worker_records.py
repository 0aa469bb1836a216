"""The tables in which NotiChileC's worker notes its runs and its exported months."""

from __future__ import annotations

from datetime import datetime

from esclusa import Lifecycle, Record, untracked

# The only state of records that no stage takes.
KEPT = "kept"


class WorkerRun(
    Record,
    table="worker_runs",
    database_id=True,
    track=untracked(created_at="created_at"),
    history=False,
    index=[("worker_name", "-started_at")],
    types={"id": "integer"}
    | dict.fromkeys(
        [
            "licitaciones_found",
            "licitaciones_new",
            "notifications_sent",
            "notifications_retryable",
            "notifications_failed",
            "notifications_invalidated",
            "targets_selected",
            "deliveries_created",
            "receipts_processed",
            "archived_licitaciones",
            "archived_deliveries",
        ],
        "integer",
    ),
):
    """A run of a cycle as the team's dashboards show it. Without ``finished_at`` it died."""

    worker_name: str = "sync"
    started_at: datetime
    finished_at: datetime | None = None
    licitaciones_found: int = 0
    licitaciones_new: int = 0
    notifications_sent: int = 0
    notifications_retryable: int = 0
    notifications_failed: int = 0
    notifications_invalidated: int = 0
    targets_selected: int = 0
    deliveries_created: int = 0
    receipts_processed: int = 0
    archived_licitaciones: int = 0
    archived_deliveries: int = 0
    error_message: str | None = None

    lifecycle = Lifecycle(KEPT)


class ArchiveExport(
    Record,
    table="archive_exports",
    key=("entity", "partition_month"),
    database_id=True,
    track=untracked(status="status", created_at="created_at", updated_at="updated_at"),
    columns={"error": "last_error"},
    history=False,
    types={"row_count": "integer"},
):
    """The exported month of a table as the team's tools read it: one row, however many files."""

    entity: str
    partition_month: str
    object_key: str
    row_count: int = 0
    min_created_at: datetime | None = None
    max_created_at: datetime | None = None
    checksum: str
    exported_at: datetime | None = None
    verified_at: datetime | None = None
    drop_eligible_at: datetime | None = None
    dropped_at: datetime | None = None
    error: str | None = None

    lifecycle = Lifecycle(
        """
        pending -> exported -> verified -> dropped
        pending | exported -> failed
        pending | failed | dropped -> verified
        """,
        endless=True,
    )
