"""The three monitoring views: summary by state, errors and retries."""

from __future__ import annotations

from typing import Any

from esclusa import above, not_null
from esclusa.pipelines.media.records import Publication

WITH_MEDIA = {"imagen_url": not_null}
FAILED = {"status": "error"}
RETRIED = {"status": "pending", "attempts": above(0), **WITH_MEDIA}


async def summary(records: Any, limit: int = 100, after: str | None = None) -> dict[str, Any]:
    """Return the number and the average attempts of publications with media, by state; one page."""
    return {
        "items": [
            {
                "media_status": total.values["status"],
                "total": total.count,
                "avg_intentos": total.sums["attempts"] / total.count,
            }
            for total in await records.totals(
                Publication, ["status"], sums=["attempts"], where=WITH_MEDIA
            )
        ],
        "next": None,
    }


async def errors(records: Any, limit: int, after: str | None = None) -> dict[str, Any]:
    """Return the publications in ``error``, newest first."""
    page = await records.find(Publication, FAILED, order="-updated_at", limit=limit, after=after)
    items = [
        {
            "id": p.id,
            "post_id": p.post_id,
            "tipo_item": p.tipo_item,
            "media_attempts": p.attempts,
            "error_msg": _error(p, "message"),
            "error_type": _error(p, "type"),
            "media_updated_at": p.updated_at,
        }
        for p in page.items
    ]
    return {"items": items, "next": page.next}


async def retries(records: Any, limit: int, after: str | None = None) -> dict[str, Any]:
    """Return the failed publications that will be retried, most attempts first."""
    page = await records.find(
        Publication, RETRIED, order=("-attempts", "updated_at"), limit=limit, after=after
    )
    items = [
        {
            "id": p.id,
            "post_id": p.post_id,
            "tipo_item": p.tipo_item,
            "media_attempts": p.attempts,
            "ultimo_error": _error(p, "message"),
            "media_updated_at": p.updated_at,
        }
        for p in page.items
    ]
    return {"items": items, "next": page.next}


def _error(publication: Publication, name: str) -> Any:
    return (publication.last_error or {}).get(name)
