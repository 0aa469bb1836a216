"""Views of folders by month, and of documents that need a person."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from esclusa.pipelines.documents.records import Documento, Folio

# The most folders of which months are made, the latest first.
MAX_FOLDERS = 20_000


async def folders_by_month(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    """Return a row per month: folders by outcome, their documents and their mean time."""
    months: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"DONE": 0, "DONE_WITH_ERRORS": 0, "ERROR": 0, "open": 0, "docs": 0, "times": []}
    )
    seen = 0
    async for folio in records.each(Folio, {}):
        seen += 1
        if seen > MAX_FOLDERS:
            break
        month = months[f"{folio.created_at:%Y-%m}" if folio.created_at else "?"]
        month[folio.status if folio.status in month else "open"] += 1
        month["docs"] += folio.total_docs or 0
        if isinstance(folio.started_at, datetime) and isinstance(folio.finished_at, datetime):
            month["times"].append((folio.finished_at - folio.started_at).total_seconds())
    names = sorted((name for name in months if after is None or name < after), reverse=True)
    return {
        "items": [_month(name, months[name]) for name in names[:limit]],
        "next": names[limit - 1] if len(names) > limit else None,
    }


def _month(name: str, found: dict[str, Any]) -> dict[str, Any]:
    ended = found["DONE"] + found["DONE_WITH_ERRORS"] + found["ERROR"]
    times = found["times"]
    return {
        "month": name,
        "folders": ended + found["open"],
        "DONE": _share(found["DONE"], ended),
        "DONE_WITH_ERRORS": _share(found["DONE_WITH_ERRORS"], ended),
        "ERROR": _share(found["ERROR"], ended),
        "documents": found["docs"],
        "mean_minutes": round(sum(times) / len(times) / 60, 1) if times else None,
    }


def _share(count: int, ended: int) -> str:
    return f"{count} ({count / ended:.0%})" if ended else "0"


async def to_review(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    """Return the documents that need a person."""
    page = await records.find(Documento, {"needs_review": True}, limit=limit, after=after)
    return {
        "items": [
            {
                "id": doc.id,
                "document": doc.gcs_uri,
                "class": doc.doc_type,
                "status": doc.status,
                "reasons": ", ".join(str(reason["code"]) for reason in doc.review_reasons),
            }
            for doc in page.items
        ],
        "next": page.next,
    }
