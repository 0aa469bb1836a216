"""Purge, archive, assign, history: what is done with records that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from esclusa.model.errors import StoreConflict
from esclusa.model.query import Query, null
from esclusa.model.record import Kind, Ref
from esclusa.model.settlement import Step
from esclusa.model.storable import fits
from esclusa.model.system_records import Export
from esclusa.stores.firestore import asking, names, wire
from esclusa.stores.firestore.codec import SEQ, STEPS, Document, Value, encode
from esclusa.stores.firestore.standing import Desk, steps_of
from esclusa.stores.firestore.wire import Stale, StructuredQuery, Wire, chunked

_ABREAST = 16
_TRIES = 30


async def history(link: Wire, ref: Ref, limit: int, newest: bool) -> list[Step]:
    """The steps in documents of their own, then those that the record still carries. The record is read first: a step that
    moves in between is seen twice, and its number says so."""
    if not fits(ref.id):
        return []
    record = await _carrier(link, ref)
    total = record[SEQ].integer_value if record is not None and SEQ in record else 0
    kept = list(record[STEPS].array_value.values) if record is not None and STEPS in record else []
    numbered = {total - len(kept) + 1 + i: v for i, v in enumerate(kept)}
    first = max(0, total - limit - 40) if newest else 0  # a document holds up to some twenty steps
    for row in await _rows(
        link, ref.kind, ref.id, "history", first=first, limit=None if newest else limit
    ):
        values = row.fields["steps"].array_value.values
        numbered |= {row.fields["first"].integer_value + i: v for i, v in enumerate(values)}
    steps = steps_of([numbered[n] for n in sorted(numbered)])
    return steps[-limit:] if newest else steps[:limit]


async def _carrier(link: Wire, ref: Ref) -> Any:
    paths = [
        names.path(ref.kind, ref.id),
        names.path(ref.kind, ref.id, archived=True) if ref.kind.archive else None,
    ]
    wanted = [f"{link.root}/{p}" for p in paths if p is not None]
    found = await link.get(wanted, "history") if wanted else {}
    return next((found[name].fields for name in wanted if name in found), None)


async def _rows(
    link: Wire, kind: Kind, id: str, op: str, *, first: int = 0, limit: int | None = None
) -> list[Any]:
    """The history documents of a record, by their names alone: no index is needed."""
    query = StructuredQuery()
    query.from_.add().collection_id = names.HISTORY
    query.order_by.add(direction=1).field.field_path = asking.NAME
    for end, number in (("start_at", first), ("end_at", 999_999_999)):
        place = getattr(query, end)
        place.values.append(
            Value(reference_value=f"{link.root}/{names.history_path(kind, id, number)}")
        )
        place.before = end == "start_at"
    if limit is not None:
        query.limit.value = limit
    rows = await link.query(query, op)
    return [
        r
        for r in rows
        if r.fields["record_id"].string_value == id
        and r.fields["table_name"].string_value == kind.table
    ]


async def purge(link: Wire, desk: Desk, query: Query) -> int:
    """Delete each record with its history in one commit, unless it was written meanwhile."""
    codec = desk.codecs(query.kind)
    found = await asking.page(
        link, codec, asking.prepare(codec, query, link.root), query.limit, "purge"
    )
    units: list[list[Any]] = []
    for k in range(0, len(found), _ABREAST):
        units += await asyncio.gather(
            *(_removal(link, query.kind, f.id, f.document) for f in found[k : k + _ABREAST])
        )
    return await _all(link, units, "purge")


async def remove(link: Wire, refs: Sequence[Ref]) -> list[bool]:
    """Delete records with their history in one commit: as they were found at one moment, or found again."""
    paths = [names.path(ref.kind, ref.id) for ref in refs]
    for _ in range(_TRIES):
        found = (
            await link.get([f"{link.root}/{path}" for path in paths if path is not None], "remove")
            if any(paths)
            else {}
        )
        there = [found.get(f"{link.root}/{path}") for path in paths]
        writes = [
            w
            for ref, doc in zip(refs, there, strict=True)
            if doc is not None
            for w in await _removal(link, ref.kind, ref.id, doc)
        ]
        try:
            if writes:
                await link.commit(writes, "remove")
        except Stale:
            continue
        return [document is not None for document in there]
    raise StoreConflict(f"{', '.join(map(str, refs))}: others write to them all the time")


async def _removal(link: Wire, kind: Kind, id: str, document: Any) -> list[Any]:
    fields = document.fields
    kept = len(fields[STEPS].array_value.values) if STEPS in fields else 0
    rows = (
        await _rows(link, kind, id, "purge")
        if SEQ in fields and fields[SEQ].integer_value > kept
        else []
    )
    return [
        wire.delete(document.name, at=document.update_time),
        *(wire.delete(r.name) for r in rows),
    ]


async def archive(link: Wire, desk: Desk, query: Query, export: str | None) -> int:
    """Move each record to the archive in one commit, unless it was written meanwhile, or the export is not filling any more."""
    codec = desk.codecs(query.kind)
    guard = []
    if export is not None:
        name = f"{link.root}/{names.path(Export.kind, export)}"
        filling = (await link.get([name], "archive")).get(name)
        if filling is None or filling.fields["status"].string_value != "filling":
            return 0
        guard = [wire.verify(name, filling.update_time)]
    found = await asking.page(
        link, codec, asking.prepare(codec, query, link.root), query.limit, "archive"
    )
    units = []
    for each in found:
        kept = Document(fields=each.document.fields)
        kept.fields["archived_at"].CopyFrom(encode("time", desk.now))
        kept.fields["export_id"].CopyFrom(encode("text", export))
        where = names.path(query.kind, each.id, archived=True)
        units.append(
            [
                wire.put(f"{link.root}/{where}", kept),
                wire.delete(each.document.name, at=each.document.update_time),
            ]
        )
    return await _all(link, units, "archive", guard)


async def assign(link: Wire, desk: Desk, query: Query, export: str) -> int:
    """Give archived records that belong to no export to this one."""
    codec = desk.codecs(query.kind)
    free = (
        query
        if ("export_id", null) in query.where
        else query.but(where=(*query.where, ("export_id", null)))
    )
    found = await asking.page(
        link, codec, asking.prepare(codec, free, link.root), query.limit, "assign"
    )
    mark = Document()
    mark.fields["export_id"].string_value = export
    writes = [
        wire.put(f.document.name, mark, mask=["export_id"], at=f.document.update_time)
        for f in found
    ]
    return sum(done is not None for done in await link.each(writes, "assign")) if writes else 0


async def _all(link: Wire, units: Sequence[list[Any]], op: str, guard: Sequence[Any] = ()) -> int:
    """Commit units of writes, many at once, each commit with the guard; where one is stale, each for itself. Return how
    many went through."""
    done = 0
    for chunk in chunked(units, wire.MOST_WRITES - len(guard)):
        try:
            await link.commit([*guard, *(w for unit in chunk for w in unit)], op)
            done += len(chunk)
        except Stale:
            for unit in chunk:
                try:
                    await link.commit([*guard, *unit], op)
                    done += 1
                except Stale:
                    continue
    return done
