"""Progress of each folder from log lines alone, in any order, with duplicate or broken lines."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

CLOSED = frozenset({"DONE", "DONE_WITH_ERRORS", "ERROR"})
_FINAL_STATUS = {"DOC_EXTRACTION_DONE": "DONE", "DOC_ERROR": "ERROR"}
_FOLDER_STAGES = CLOSED | {
    "INIT",
    "LISTING",
    "PROCESSING_START",
    "PROCESSING_IN_PROGRESS",
    "FINALIZING",
}
_DIGITS = re.compile(r"[0-9]{1,18}")


@dataclass
class Execution:
    """What the log lines of one execution of a folder state so far; it only moves forward."""

    id: str
    since: str
    total: int | None = None
    base: int = 0
    reported: int = 0
    documents: set[tuple[str, str]] = field(default_factory=set)
    closed: str | None = None
    highest: int = 0

    @property
    def processed(self) -> int:
        seen = max(self.reported, self.base + len(self.documents))
        return seen if self.total is None else min(seen, self.total)

    @property
    def percent(self) -> int:
        """0 to 99 while the folder is open, 100 once it is closed; never decreases."""
        if self.closed is not None:
            return 100
        if self.total:
            self.highest = max(self.highest, min(99, 100 * self.processed // self.total))
        return self.highest


class Progress:
    """Reads log lines; ``folders`` is the progress they state."""

    def __init__(self) -> None:
        self._current: dict[str, Execution] = {}
        self._earlier: set[tuple[str, str]] = set()

    def read(self, line: str) -> dict[str, Any] | None:
        """Read one line and return the folder's progress if it changed, else None."""
        line_fields = _parsed(line)
        if line_fields is None:
            return None
        execution = self._execution(line_fields)
        if execution is None:
            return None
        before = self._summary(line_fields["folio_id"])
        self._apply(execution, line_fields)
        after = self._summary(line_fields["folio_id"])
        return after if after != before else None

    @property
    def folders(self) -> list[dict[str, Any]]:
        return [self._summary(folio_id) for folio_id in self._current]

    def _execution(self, line_fields: dict[str, Any]) -> Execution | None:
        folio_id, id, time = (
            line_fields["folio_id"],
            str(line_fields.get("execution_id") or ""),
            str(line_fields.get("time") or ""),
        )
        current = self._current.get(folio_id)
        if current is not None and current.id == id:
            return current
        if (folio_id, id) in self._earlier:
            return None  # a late line of an earlier execution
        if current is not None:
            if time and current.since and time < current.since:
                self._earlier.add((folio_id, id))
                return None
            self._earlier.add((folio_id, current.id))
        self._current[folio_id] = Execution(id, time)
        return self._current[folio_id]

    @staticmethod
    def _apply(execution: Execution, line_fields: dict[str, Any]) -> None:
        stage, total, processed = (
            line_fields["stage"],
            _number(line_fields.get("total_docs")),
            _number(line_fields.get("processed_docs")),
        )
        if stage in _FINAL_STATUS:
            if line_fields.get("doc_status", _FINAL_STATUS[stage]) == _FINAL_STATUS[stage]:
                execution.documents.add(
                    (str(line_fields.get("gcs_uri")), str(line_fields.get("generation")))
                )
            return
        if stage.startswith("DOC_"):
            return
        if execution.closed is None or stage in CLOSED:
            if total is not None and stage not in ("INIT", "LISTING"):
                execution.total = total if stage in CLOSED else max(total, execution.total or 0)
            if stage == "PROCESSING_START" and processed is not None:
                execution.base = max(execution.base, processed)
            if processed is not None and stage not in ("INIT", "LISTING"):
                execution.reported = max(execution.reported, processed)
        if stage in CLOSED:
            execution.closed = stage

    def _summary(self, folio_id: str) -> dict[str, Any]:
        current = self._current[folio_id]
        return {
            "folio_id": folio_id,
            "progress_pct": current.percent,
            "total_docs": current.total,
            "processed_docs": current.processed,
            "execution_id": current.id,
            "closed": current.closed,
        }


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        line_fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    # A line as exported by Cloud Logging.
    if isinstance(line_fields, dict) and isinstance(line_fields.get("jsonPayload"), dict):
        line_fields = {"time": line_fields.get("timestamp"), **line_fields["jsonPayload"]}
    if (
        not isinstance(line_fields, dict)
        or not isinstance(line_fields.get("folio_id"), str)
        or not isinstance(line_fields.get("stage"), str)
    ):
        return None
    return (
        line_fields
        if line_fields["stage"] in _FOLDER_STAGES or line_fields["stage"].startswith("DOC_")
        else None
    )


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else None
