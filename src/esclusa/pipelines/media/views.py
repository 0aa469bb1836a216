"""The three monitoring views: the seed's own questions, asked through the store."""

from __future__ import annotations

from typing import Any

from esclusa import above, not_null
from esclusa.pipelines.media.records import Publication

WITH_MEDIA = {"imagen_url": not_null}
FAILED = {"status": "error"}
RETRIED = {"status": "pending", "attempts": above(0), **WITH_MEDIA}


async def summary(records: Any, limit: int = 100, after: str | None = None) -> dict[str, Any]:
    """Publications with media by state: how many, and how often they were tried on average. There is one page of it."""
    found = await records.summary(Publication, "attempts", WITH_MEDIA)
    return {
        "items": [
            {"media_status": s.state, "total": s.count, "avg_intentos": s.average} for s in found
        ],
        "next": None,
    }


async def errors(records: Any, limit: int, after: str | None = None) -> dict[str, Any]:
    """Publications that ended in an error, the newest first."""
    page = await records.find(Publication, FAILED, order="-updated_at", limit=limit, after=after)
    items = [
        {
            "id": p.id, "post_id": p.post_id, "tipo_item": p.tipo_item, "media_attempts": p.attempts, "error_msg": _error(p, "message"),
            "error_type": _error(p, "type"), "media_updated_at": p.updated_at,
        }
        for p in page.items
    ]  # fmt: skip
    return {"items": items, "next": page.next}


async def retries(records: Any, limit: int, after: str | None = None) -> dict[str, Any]:
    """Publications that failed and will be tried again, the most tried first."""
    page = await records.find(
        Publication, RETRIED, order=("-attempts", "updated_at"), limit=limit, after=after
    )
    items = [
        {
            "id": p.id, "post_id": p.post_id, "tipo_item": p.tipo_item, "media_attempts": p.attempts, "ultimo_error": _error(p, "message"),
            "media_updated_at": p.updated_at,
        }
        for p in page.items
    ]  # fmt: skip
    return {"items": items, "next": page.next}


def _error(pub: Publication, name: str) -> Any:
    return (pub.last_error or {}).get(name)
