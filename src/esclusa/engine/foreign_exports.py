"""Files that another program exported: their rows are not exported a second time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from esclusa.model.kind import Kind
from esclusa.model.query import Query, at_least, below, null, query
from esclusa.model.settlement import Inserted
from esclusa.model.system_records import Export
from esclusa.ports.store import Store

_BATCH = 10_000


async def take_over(
    store: Store, kind: Kind, by: str, file: Export, zones: Sequence[str]
) -> int | None:
    """Assign the archived rows that are in a verified file of another program to an export of it.

    ``file`` has its month, path, checksum, number of rows and times. The month begins in one of
    ``zones``: the one in which the archive has as many rows as the file, else the first. Returns
    the number of rows; None if the file is taken over already, or if the archive has more rows of
    the month than the file, so that nobody knows which of them are in it.
    """
    known = query(Export, {"table_name": kind.table, "path": file.path}, limit=1)
    if (await store.find(known)).items:
        return None
    counts = [
        (await store.count(_free(kind, by, file.month, zone), file.row_count + 1))[0]
        for zone in zones
    ]
    zone = zones[counts.index(file.row_count) if file.row_count in counts else 0]
    if counts[zones.index(zone)] > file.row_count:
        return None
    [answer] = await store.insert([file.but(table_name=kind.table, part=0, status="verified")])
    if not isinstance(answer, Inserted):
        return None
    taken = 0
    while given := await store.assign(_free(kind, by, file.month, zone), answer.id):
        taken += given
    return taken


def _free(kind: Kind, by: str, month: str, zone: str) -> Query:
    """Return the archived rows of a month that are in no export."""
    first = datetime.fromisoformat(f"{month}-01").replace(tzinfo=ZoneInfo(zone))
    following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    during = (at_least(first.astimezone(UTC)), below(following.astimezone(UTC)))
    return query(kind, {"export_id": null, by: during}, limit=_BATCH, archived=True)
