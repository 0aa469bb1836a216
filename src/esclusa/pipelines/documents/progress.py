"""Progress from the log stream alone: how far each folder is, whatever order, copies or scraps the lines come in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

CLOSED = frozenset({"DONE", "DONE_WITH_ERRORS", "ERROR"})
_ENDED = {"DOC_EXTRACTION_DONE": "DONE", "DOC_ERROR": "ERROR"}
_FOLDER = CLOSED | {"INIT", "LISTING", "PROCESSING_START", "PROCESSING_IN_PROGRESS", "FINALIZING"}
_WHOLE = re.compile(r"[0-9]{1,18}")


@dataclass
class Execution:
    """What the lines of one execution of one folder said so far. It only ever moves forward."""

    id: str
    since: str
    total: int | None = None
    base: int = 0
    told: int = 0
    documents: set[tuple[str, str]] = field(default_factory=set)
    closed: str | None = None
    shown: int = 0

    @property
    def processed(self) -> int:
        seen = max(self.told, self.base + len(self.documents))
        return seen if self.total is None else min(seen, self.total)

    @property
    def percent(self) -> int:
        """0 to 99 while it goes on, 100 once it is closed; never less than it was."""
        if self.closed is not None:
            return 100
        if self.total:
            self.shown = max(self.shown, min(99, 100 * self.processed // self.total))
        return self.shown


class Progress:
    """Reads log lines; ``folders`` is what they say."""

    def __init__(self) -> None:
        self._now: dict[str, Execution] = {}
        self._past: set[tuple[str, str]] = set()

    def read(self, line: str) -> dict[str, Any] | None:
        """Take one line in. What changed, as ``folders`` would show it; None if nothing did, or if it is no line of ours."""
        said = _parsed(line)
        if said is None:
            return None
        execution = self._execution(said)
        if execution is None:
            return None
        before = self._shown(said["folio_id"])
        self._take(execution, said)
        after = self._shown(said["folio_id"])
        return after if after != before else None

    @property
    def folders(self) -> list[dict[str, Any]]:
        return [self._shown(folio_id) for folio_id in self._now]

    def _execution(self, said: dict[str, Any]) -> Execution | None:
        folio_id, id, time = (
            said["folio_id"],
            str(said.get("execution_id") or ""),
            str(said.get("time") or ""),
        )
        now = self._now.get(folio_id)
        if now is not None and now.id == id:
            return now
        if (folio_id, id) in self._past:
            return None  # a late line of an execution that another one followed
        if now is not None:
            if time and now.since and time < now.since:
                self._past.add((folio_id, id))
                return None
            self._past.add((folio_id, now.id))
        self._now[folio_id] = Execution(id, time)
        return self._now[folio_id]

    @staticmethod
    def _take(execution: Execution, said: dict[str, Any]) -> None:
        stage, total, processed = (
            said["stage"],
            _number(said.get("total_docs")),
            _number(said.get("processed_docs")),
        )
        if stage in _ENDED:
            if said.get("doc_status", _ENDED[stage]) == _ENDED[stage]:
                execution.documents.add((str(said.get("gcs_uri")), str(said.get("generation"))))
            return
        if stage.startswith("DOC_"):
            return
        if execution.closed is None or stage in CLOSED:
            if total is not None and stage not in ("INIT", "LISTING"):
                execution.total = total if stage in CLOSED else max(total, execution.total or 0)
            if stage == "PROCESSING_START" and processed is not None:
                execution.base = max(execution.base, processed)
            if processed is not None and stage not in ("INIT", "LISTING"):
                execution.told = max(execution.told, processed)
        if stage in CLOSED:
            execution.closed = stage

    def _shown(self, folio_id: str) -> dict[str, Any]:
        now = self._now[folio_id]
        return {
            "folio_id": folio_id, "progress_pct": now.percent, "total_docs": now.total, "processed_docs": now.processed,
            "execution_id": now.id, "closed": now.closed,
        }  # fmt: skip


def follow(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Each change as it is read."""
    progress = Progress()
    for line in lines:
        changed = progress.read(line)
        if changed is not None:
            yield changed


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(said, dict) and isinstance(
        said.get("jsonPayload"), dict
    ):  # a line as Cloud Logging exports it
        said = {"time": said.get("timestamp"), **said["jsonPayload"]}
    if (
        not isinstance(said, dict)
        or not isinstance(said.get("folio_id"), str)
        or not isinstance(said.get("stage"), str)
    ):
        return None
    return said if said["stage"] in _FOLDER or said["stage"].startswith("DOC_") else None


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else None
