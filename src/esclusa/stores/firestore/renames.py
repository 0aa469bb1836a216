"""Records in renamed and undeclared states, and with ids of version 0.1.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from esclusa.model.earlier_ids import IdChange
from esclusa.model.errors import BadRecord
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import Cond, Order, Query
from esclusa.model.texts import text
from esclusa.stores.firestore import maintenance, names, queries
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.codec import SHARD, Codec, Document, encode, shard_of
from esclusa.stores.firestore.documents import CallContext, DocumentState, document_state
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.writes import delete_document, put_document
from esclusa.stores.isolate import RefusedRenames

# How many undeclared states are reported at most.
_MAX_UNDECLARED_STATES = 50


async def states(client: FirestoreClient, codec: Codec) -> list[str]:
    """Return the states that occur, by asking for the next one: one read for each, and one more."""
    kind, found = codec.kind, list[str]()
    beyond = Cond("ge", "")
    while len(found) < len(kind.lifecycle.states) + _MAX_UNDECLARED_STATES:
        asked = Query(kind, (("status", beyond),), (Order("status"),))
        page = await queries.first(client, codec, asked, 1, "states")
        if not page or not isinstance(page[0].values["status"], str):
            break
        found.append(page[0].values["status"])
        beyond = Cond("gt", found[-1])
    return found


async def rename_states(
    client: FirestoreClient,
    context: CallContext,
    kind: Kind,
    limit: int,
    who: str,
    refused: RefusedRenames,
) -> int:
    """Give records in renamed states their present state; return how many.

    Attempts and times of a record stay. A document that a worker holds, or that was written
    meanwhile, is left for a later call. ``refused``: what cannot be written with one more step in
    its history.
    """
    if not kind.lifecycle.renamed:
        return 0
    asked = Query(kind, (("status", Cond("in", tuple(kind.lifecycle.renamed))),))
    most = limit + len(refused.ids)
    found = await queries.first(client, context.codec_of(kind), asked, most, "rename")
    moved = 0
    single = []
    for each in [f for f in found if f.id not in refused.ids][:limit]:
        doc = document_state(context, Ref(kind, each.id), each.document)
        assert doc is not None
        if _is_held(context, doc):
            continue
        try:
            writes = _renamed(context, doc, who)
        except BadRecord as error:
            refused.ids[each.id] = str(error)
            continue
        if len(writes) == 1:
            single.append(writes[0])
            continue
        try:  # with a history document: both or none
            await client.commit(writes, "rename")
            moved += 1
        except PreconditionFailed:
            continue
    written = await client.each(single, "rename")
    return moved + sum(result is not None for result in written)


def _is_held(context: CallContext, doc: DocumentState) -> bool:
    until = doc.get("due_at")
    return doc.get("leased_by") is not None and until is not None and until > context.now


def _renamed(context: CallContext, doc: DocumentState, who: str) -> list[object]:
    old = doc.status
    new = doc.kind.lifecycle.current(old)
    reason = text("state_renamed", old=old, new=new).dump()
    doc.add_step(old, new, context.now, who, None, None, reason)
    doc.set("status", new)
    return doc.writes(context)


async def change_ids(
    client: FirestoreClient, kind: Kind, changes: Sequence[IdChange], archived: bool
) -> int:
    """Give records other ids; their history follows. Return how many were changed.

    A document gets another id by being written anew. The path of a nested one may stay the same.
    """
    paths = [names.path(kind, change.id, archived=archived) for change in changes]
    found = await client.get([f"{client.root}/{p}" for p in paths if p is not None], "migrate")
    units = []
    for change, path in zip(changes, paths, strict=True):
        if (document := found.get(f"{client.root}/{path}")) is not None:
            units.append(await _changed(client, kind, change, document, archived))
    return await maintenance.commit_units(client, units, "migrate")


async def _changed(
    client: FirestoreClient, kind: Kind, change: IdChange, document: Any, archived: bool
) -> list[Any]:
    """The writes that give one record another id."""
    new = Document(fields=document.fields)
    if SHARD in new.fields:
        new.fields[SHARD].CopyFrom(encode("int", shard_of(change.new)))
    for field, value in change.fields.items():
        new.fields[kind.columns[field]].CopyFrom(encode("text", value))
    name = f"{client.root}/{names.path(kind, change.new, archived=archived)}"
    if name == document.name:
        writes = [put_document(name, new, update_time=document.update_time)]
    else:
        writes = [
            put_document(name, new, exists=False),
            delete_document(document.name, update_time=document.update_time),
        ]
    if change.earlier == change.new:
        return writes
    for row in await maintenance.history_documents(client, kind, change.earlier, "migrate"):
        moved = Document(fields=row.fields)
        moved.fields["record_id"].string_value = change.new
        path = names.history_path(kind, change.new, row.fields["first"].integer_value)
        writes += [put_document(f"{client.root}/{path}", moved), delete_document(row.name)]
    return writes
