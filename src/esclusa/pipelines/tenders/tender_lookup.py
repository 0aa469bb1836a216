"""Finding one tender by its id or its code."""

from __future__ import annotations

from typing import Any

from esclusa.pipelines.tenders.records import Licitacion


async def find_tender(records: Any, name: str) -> Licitacion | None:
    """Return the tender with this id or code, archived or not."""
    found: Licitacion | None = await records.get(Licitacion, name)
    for field, archived in (("codigo_externo", False), ("id", True), ("codigo_externo", True)):
        if found is None:
            page = await records.find(Licitacion, {field: name}, limit=1, archived=archived)
            found = page.items[0] if page.items else None
    return found
