"""Insert: new records, and records with their children that are created together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count
from random import uniform

from esclusa.model.errors import StoreConflict
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted, RecordWithChildren, drafts_of
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.documents import CallContext, DocumentState, new_document
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.keys import existing_keys, looked_up
from esclusa.stores.firestore.notifications import Notify
from esclusa.stores.firestore.writes import in_commits

_MAX_CONFLICTS = 8


async def insert(
    client: FirestoreClient, context: CallContext, records: Sequence[Record], notify: Notify
) -> list[Inserted | Duplicate]:
    """Insert records, and wake the tables of the new ones.

    Each commit of up to 500 records is atomic, not the whole call.
    """
    docs = [new_document(context, record) for record in records]
    first: dict[str, DocumentState] = {}
    for doc in docs:
        first.setdefault(doc.name, doc)
    own = [doc for doc in first.values() if not looked_up(context, doc.kind)]
    results = await client.each([doc.writes(context)[0] for doc in own], "insert")
    created = {doc.name for doc, result in zip(own, results, strict=True) if result is not None}
    shared = [[doc] for doc in first.values() if looked_up(context, doc.kind)]
    existing: dict[str, str] = {}
    for chunk in _in_commits(context, shared):
        new, known = await _insert_groups(client, context, chunk)
        created |= {doc.name for group in new for doc in group}
        existing |= known
    notify({first[name].kind.table for name in created})
    return [
        Inserted(doc.id)
        if doc.name in created and first[doc.name] is doc
        else Duplicate(existing.get(doc.name, doc.id))
        for doc in docs
    ]


async def insert_if_new(
    client: FirestoreClient,
    context: CallContext,
    groups: Sequence[RecordWithChildren],
    notify: Notify,
) -> list[int | None]:
    """Insert each record with its children if the record is new, in one commit.

    Return the number of children inserted, or None if the record existed.
    """
    members = [_documents(context, group) for group in groups]
    answers: list[int | None] = []
    for batch in _in_commits(context, members):
        created, _ = await _insert_groups(client, context, batch)
        notify({doc.kind.table for group in created for doc in group})
        answers += [len(group) - 1 if group else None for group in created]
    return answers


def _documents(context: CallContext, group: RecordWithChildren) -> list[DocumentState]:
    """Return the documents of a record and its children."""
    docs = [new_document(context, group.first)]
    for child in group.children(docs[0].id):
        if isinstance(child, RecordWithChildren):
            docs += _documents(context, child)
        else:
            docs += [new_document(context, record) for record in drafts_of([child])]
    return docs


def _in_commits(
    context: CallContext, groups: Sequence[Sequence[DocumentState]]
) -> Iterator[Sequence[Sequence[DocumentState]]]:
    done = 0
    for chunk in in_commits([w for doc in group for w in doc.writes(context)] for group in groups):
        yield groups[done : done + len(chunk)]
        done += len(chunk)


async def _insert_groups(
    client: FirestoreClient, context: CallContext, groups: Sequence[Sequence[DocumentState]]
) -> tuple[list[list[DocumentState]], dict[str, str]]:
    """Insert as many groups as one commit takes.

    Return the documents created of each, and by name the ids of records that have the same key. A
    collection to which other programs write needs a transaction: the key of a new record must not
    appear before the commit.
    """
    docs = [doc for group in groups for doc in group]
    existing = await existing_keys(client, context, docs, "insert")
    if all(group[0].name in existing for group in groups):
        return [[] for _ in groups], existing
    for conflicts in count(1):
        transaction = None
        if any(looked_up(context, doc.kind) for doc in docs):
            transaction = await client.begin()
        try:
            existing = await existing_keys(client, context, docs, "insert", transaction)
            stored = await client.get(sorted({d.name for d in docs}), "insert", transaction)
            new = _new_of(groups, {*stored, *existing})
            writes = [write for group in new for doc in group for write in doc.writes(context)]
            if writes:
                await client.commit(writes, "insert", transaction, bounded=True)
            elif transaction is not None:
                await client.rollback(transaction)
        except (PreconditionFailed, StoreConflict) as error:  # another writer was first
            if transaction is not None:
                await client.rollback(transaction)
            if isinstance(error, StoreConflict) and conflicts >= _MAX_CONFLICTS:
                raise
            await asyncio.sleep(uniform(0, min(1.0, 0.02 * 2**conflicts)))
        else:
            return new, existing
    raise AssertionError("the loop returns or raises")


def _new_of(
    groups: Sequence[Sequence[DocumentState]], known: set[str]
) -> list[list[DocumentState]]:
    """Of each group whose first document is not known, the documents that are not."""
    new: list[list[DocumentState]] = []
    for group in groups:
        new.append([])
        if group[0].name not in known:
            for doc in group:
                if doc.name not in known:
                    new[-1].append(doc)
                    known.add(doc.name)
    return new
