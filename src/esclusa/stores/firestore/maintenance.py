"""Purge, remove, archive, assign, restore and history: what happens to records after their work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from esclusa.model.errors import StoreConflict
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import Query, null
from esclusa.model.settlement import Step
from esclusa.model.storable import fits
from esclusa.model.system_records import Export
from esclusa.stores.firestore import names, queries
from esclusa.stores.firestore.client import FirestoreClient, StructuredQuery
from esclusa.stores.firestore.codec import SEQ, STEPS, Document, Value, encode
from esclusa.stores.firestore.documents import CallContext, steps_of
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.writes import (
    MAX_WRITES,
    delete_document,
    in_commits,
    put_document,
    verify_unchanged,
)

_PARALLEL = 16
_MAX_CONFLICTS = 30


async def history(client: FirestoreClient, ref: Ref, limit: int, newest: bool) -> list[Step]:
    """Return the steps of a record: those in history documents, then those in its own document."""
    if not fits(ref.id):
        return []
    [record] = await _fields_of(client, ref.kind, [ref.id])
    return await _steps(client, ref, record, limit, newest=newest)


async def histories(
    client: FirestoreClient, kind: Kind, ids: Sequence[str], each: int
) -> list[list[Step]]:
    """Return the last steps of each record: a read for each, and one for each history document."""
    known = [id for id in dict.fromkeys(ids) if fits(id)]
    records = dict(zip(known, await _fields_of(client, kind, known), strict=True))
    found: dict[str, list[Step]] = {}
    for k in range(0, len(known), _PARALLEL):
        part = known[k : k + _PARALLEL]
        steps = await asyncio.gather(
            *(_steps(client, Ref(kind, id), records[id], each, newest=True) for id in part)
        )
        found |= dict(zip(part, steps, strict=True))
    return [found.get(id, []) for id in ids]


async def _steps(
    client: FirestoreClient, ref: Ref, record: Any, limit: int, *, newest: bool
) -> list[Step]:
    """The steps of a record whose document was read before.

    A step that is moved to a history document in between is read twice and recognized by its
    number.
    """
    total = record[SEQ].integer_value if record is not None and SEQ in record else 0
    inline = (
        list(record[STEPS].array_value.values) if record is not None and STEPS in record else []
    )
    numbered = {total - len(inline) + 1 + i: v for i, v in enumerate(inline)}
    if record is None or total > len(inline):
        first = max(0, total - limit - 40) if newest else 0  # a document holds about twenty steps
        for row in await history_documents(
            client, ref.kind, ref.id, "history", first=first, limit=None if newest else limit
        ):
            values = row.fields["steps"].array_value.values
            numbered |= {row.fields["first"].integer_value + i: v for i, v in enumerate(values)}
    steps = steps_of([numbered[n] for n in sorted(numbered)])
    return steps[-limit:] if newest else steps[:limit]


async def _fields_of(client: FirestoreClient, kind: Kind, ids: Sequence[str]) -> list[Any]:
    """The fields of the document of each record, or of its archived document; None if neither."""
    paths = [
        [names.path(kind, id), names.path(kind, id, archived=True) if kind.archive else None]
        for id in ids
    ]
    wanted = [[f"{client.root}/{p}" for p in each if p is not None] for each in paths]
    found = await client.get([name for each in wanted for name in each], "history")
    return [next((found[n].fields for n in each if n in found), None) for each in wanted]


async def history_documents(
    client: FirestoreClient,
    kind: Kind,
    id: str,
    op: str,
    *,
    first: int = 0,
    limit: int | None = None,
) -> list[Any]:
    """The history documents of a record, found by their names, which needs no index."""
    start, end = (
        Value(reference_value=f"{client.root}/{names.history_path(kind, id, number)}")
        for number in (first, 999_999_999)
    )
    query = StructuredQuery(
        from_=[{"collection_id": names.HISTORY}],
        order_by=[{"field": {"field_path": queries.NAME}, "direction": 1}],
        start_at={"values": [start], "before": True},
        end_at={"values": [end], "before": False},
        limit=None if limit is None else {"value": limit},
    )
    return [
        r
        for r in await client.query(query, op)
        if r.fields["record_id"].string_value == id
        and r.fields["table_name"].string_value == kind.table
    ]


async def prune_history(client: FirestoreClient, before: datetime, limit: int) -> int:
    """Delete history documents whose last step is older than that; return how many steps.

    The last steps of a record are in its own document and stay.
    """
    query = StructuredQuery(
        from_=[{"collection_id": names.HISTORY}],
        where={
            "field_filter": {
                "field": {"field_path": "at"},
                "op": StructuredQuery.FieldFilter.Operator.LESS_THAN,
                "value": encode("time", before),
            }
        },
        limit={"value": max(1, min(400, limit))},
    )
    rows = await client.query(query, "prune")
    if rows:
        await client.commit([delete_document(row.name) for row in rows], "prune")
    return sum(len(row.fields["steps"].array_value.values) for row in rows)


async def purge(client: FirestoreClient, context: CallContext, query: Query) -> int:
    """Delete each record with its history in one commit, unless it was written meanwhile."""
    found = await queries.first(client, context.codec_of(query.kind), query, query.limit, "purge")
    units: list[list[Any]] = []
    for k in range(0, len(found), _PARALLEL):
        units += await asyncio.gather(
            *(_removal(client, query.kind, f.id, f.document) for f in found[k : k + _PARALLEL])
        )
    return await commit_units(client, units, "purge")


async def remove(client: FirestoreClient, refs: Sequence[Ref]) -> list[bool]:
    """Delete records with their history in one commit; return which of them existed.

    If one of them was written meanwhile, all are read again.
    """
    paths = [names.path(ref.kind, ref.id) for ref in refs]
    wanted = [f"{client.root}/{path}" for path in paths if path is not None]
    for _ in range(_MAX_CONFLICTS):
        found = await client.get(wanted, "remove")
        documents = [found.get(f"{client.root}/{path}") for path in paths]
        writes = [
            w
            for ref, document in zip(refs, documents, strict=True)
            if document is not None
            for w in await _removal(client, ref.kind, ref.id, document)
        ]
        try:
            if writes:
                await client.commit(writes, "remove")
        except PreconditionFailed:
            continue
        return [document is not None for document in documents]
    raise StoreConflict(f"{', '.join(map(str, refs))}: other writers kept changing them")


async def _removal(client: FirestoreClient, kind: Kind, id: str, document: Any) -> list[Any]:
    fields = document.fields
    inline = len(fields[STEPS].array_value.values) if STEPS in fields else 0
    rows = []
    if SEQ in fields and fields[SEQ].integer_value > inline:
        rows = await history_documents(client, kind, id, "purge")
    return [
        delete_document(document.name, update_time=document.update_time),
        *(delete_document(r.name) for r in rows),
    ]


async def archive(
    client: FirestoreClient, context: CallContext, query: Query, export: str | None
) -> int:
    """Move each record to the archive in one commit, unless it was written meanwhile.

    Nothing is moved if the export is no longer being filled.
    """
    codec = context.codec_of(query.kind)
    guard = []
    if export is not None:
        name = f"{client.root}/{names.path(Export.kind, export)}"
        filling = (await client.get([name], "archive")).get(name)
        if filling is None or filling.fields["status"].string_value != "filling":
            return 0
        guard = [verify_unchanged(name, filling.update_time)]
    units = []
    for each in await queries.first(client, codec, query, query.limit, "archive"):
        archived = Document(fields=each.document.fields)
        archived.fields["archived_at"].CopyFrom(encode("time", context.now))
        archived.fields["export_id"].CopyFrom(encode("text", export))
        path = names.path(query.kind, each.id, archived=True)
        units.append(
            [
                put_document(f"{client.root}/{path}", archived),
                delete_document(each.document.name, update_time=each.document.update_time),
            ]
        )
    return await commit_units(client, units, "archive", guard)


async def assign(client: FirestoreClient, context: CallContext, query: Query, export: str) -> int:
    """Give archived records that belong to no export to this export."""
    codec = context.codec_of(query.kind)
    unassigned = ("export_id", null)
    where = query.where if unassigned in query.where else (*query.where, unassigned)
    change = Document(fields={"export_id": Value(string_value=export)})
    writes = [
        put_document(
            f.document.name, change, mask=["export_id"], update_time=f.document.update_time
        )
        for f in await queries.first(client, codec, query.but(where=where), query.limit, "assign")
    ]
    return sum(result is not None for result in await client.each(writes, "assign"))


async def restore(
    client: FirestoreClient,
    context: CallContext,
    kind: Kind,
    rows: Sequence[Mapping[str, Any]],
    export: str,
) -> int:
    """Create archived documents, unless they exist; return how many are new."""
    codec = context.codec_of(kind)
    writes = []
    for id, row in {row["id"]: row for row in rows}.items():
        document = codec.document(id, None, row)
        document.fields["archived_at"].CopyFrom(encode("time", context.now))
        document.fields["export_id"].CopyFrom(encode("text", export))
        name = f"{client.root}/{names.path(kind, id, archived=True)}"
        writes.append(put_document(name, document, exists=False))
    return sum(result is not None for result in await client.each(writes, "restore"))


async def commit_units(
    client: FirestoreClient, units: Sequence[list[Any]], op: str, guard: Sequence[Any] = ()
) -> int:
    """Commit units of writes, many at once, and return how many were written.

    Each commit includes the guard. If a precondition fails, the units are committed one by one.
    """
    committed = 0
    for chunk in in_commits(units, MAX_WRITES - len(guard)):
        try:
            await client.commit([*guard, *(w for unit in chunk for w in unit)], op)
            committed += len(chunk)
        except PreconditionFailed:
            for unit in chunk:
                try:
                    await client.commit([*guard, *unit], op)
                    committed += 1
                except PreconditionFailed:
                    continue
    return committed
