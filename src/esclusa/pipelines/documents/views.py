"""Views and metrics: folders by month, documents that were retried, need a person, or failed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from esclusa import DeadLetter, Gauge, above
from esclusa.pipelines.documents.records import FOLDER_ENDED, Documento, Folio

# The most folders of which months are made, the latest first.
MAX_FOLDERS = 20_000
# The most records that a metric counts.
MAX_COUNTED = 1_000_000
RETRIED = {"attempts": above(1)}
FAILED = {"table_name": Documento.kind.table, "status": "open"}


@dataclass
class Month:
    """The folders of a month: how many by outcome, their documents, and their times in seconds."""

    folders: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FOLDER_ENDED, 0))
    open: int = 0
    documents: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def ended(self) -> int:
        return sum(self.folders.values())

    def add(self, folio: Folio) -> None:
        if folio.status in self.folders:
            self.folders[folio.status] += 1
        else:
            self.open += 1
        self.documents += folio.total_docs or 0
        if isinstance(folio.started_at, datetime) and isinstance(folio.finished_at, datetime):
            self.times.append((folio.finished_at - folio.started_at).total_seconds())

    def share(self, state: str) -> str:
        count = self.folders[state]
        return f"{count} ({count / self.ended:.0%})" if self.ended else "0"

    @property
    def mean_seconds(self) -> float | None:
        return sum(self.times) / len(self.times) if self.times else None


async def _months(records: Any) -> dict[str, Month]:
    months: dict[str, Month] = defaultdict(Month)
    seen = 0
    async for folio in records.each(Folio, {}, order="-created_at"):
        seen += 1
        if seen > MAX_FOLDERS:
            break
        months[f"{folio.created_at:%Y-%m}" if folio.created_at else "?"].add(folio)
    return months


async def folders_by_month(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    """Return a row per month: folders by outcome, their documents and their mean time."""
    months = await _months(records)
    names = sorted((name for name in months if after is None or name < after), reverse=True)
    return {
        "items": [_row(name, months[name]) for name in names[:limit]],
        "next": names[limit - 1] if len(names) > limit else None,
    }


def _row(name: str, month: Month) -> dict[str, Any]:
    seconds = month.mean_seconds
    return {
        "month": name,
        "folders": month.ended + month.open,
        **{state: month.share(state) for state in FOLDER_ENDED},
        "documents": month.documents,
        "mean_minutes": None if seconds is None else round(seconds / 60, 1),
    }


async def figures(records: Any) -> list[Gauge]:
    """Return the metrics of folders by month, of retried documents and of dead letters."""
    found = []
    for name, month in sorted((await _months(records)).items()):
        for state, count in [*month.folders.items(), ("open", month.open)]:
            about = "Folders, by month and state."
            found.append(Gauge("folders", count, about, month=name, status=state))
        if (seconds := month.mean_seconds) is not None:
            about = "Mean time of a folder from its start to its end, by month."
            found.append(Gauge("folder_seconds", seconds, about, month=name))
    retried, _ = await records.count(Documento, RETRIED, cap=MAX_COUNTED)
    failed, _ = await records.count(DeadLetter, FAILED, cap=MAX_COUNTED)
    return [
        *found,
        Gauge("retried", retried, "Documents with more than one attempt."),
        Gauge("dead_letters", failed, "Open dead letters of documents."),
    ]


async def to_review(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    """Return the documents that need a person."""
    page = await records.find(Documento, {"needs_review": True}, limit=limit, after=after)
    return {
        "items": [
            _about(doc) | {"reasons": ", ".join(str(r["code"]) for r in doc.review_reasons)}
            for doc in page.items
        ],
        "next": page.next,
    }


async def retried(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    """Return the documents with more than one attempt."""
    page = await records.find(Documento, RETRIED, limit=limit, after=after)
    return {
        "items": [
            _about(doc) | {"attempts": doc.attempts, "error": doc.error_message}
            for doc in page.items
        ],
        "next": page.next,
    }


def _about(doc: Documento) -> dict[str, Any]:
    return {"id": doc.id, "document": doc.gcs_uri, "class": doc.doc_type, "status": doc.status}


async def dead_letters(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    """Return the open dead letters of documents."""
    page = await records.find(DeadLetter, FAILED, limit=limit, after=after)
    return {
        "items": [
            {
                "id": letter.id,
                "document": letter.payload.get("gcs_uri"),
                "error": letter.error_type,
                "message": letter.error_message,
                "attempts": letter.attempts,
                "since": letter.created_at,
            }
            for letter in page.items
        ],
        "next": page.next,
    }
