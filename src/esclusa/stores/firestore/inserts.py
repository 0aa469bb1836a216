"""Insert: new records, and records with their children that are created together."""

from __future__ import annotations

from collections.abc import Sequence

from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted, RecordWithChildren, drafts_of
from esclusa.stores.firestore.client import FirestoreClient, PreconditionFailed
from esclusa.stores.firestore.documents import CallContext, DocumentState, new_document
from esclusa.stores.firestore.notifications import Notify
from esclusa.stores.firestore.writes import in_commits


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
    results = await client.each([doc.writes(context)[0] for doc in first.values()], "insert")
    created = {name for name, result in zip(first, results, strict=True) if result is not None}
    notify({first[name].kind.table for name in created})
    return [
        Inserted(doc.id) if doc.name in created and first[doc.name] is doc else Duplicate(doc.id)
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
    members = [
        [new_document(context, record) for record in (group.first, *drafts_of(group.rest))]
        for group in groups
    ]
    answers: list[int | None] = []
    for chunk in in_commits(
        [write for doc in group for write in doc.writes(context)] for group in members
    ):
        batch = members[len(answers) : len(answers) + len(chunk)]
        created = await _insert_groups(client, context, batch)
        notify({doc.kind.table for group in created for doc in group})
        answers += [len(group) - 1 if group else None for group in created]
    return answers


async def _insert_groups(
    client: FirestoreClient, context: CallContext, groups: Sequence[Sequence[DocumentState]]
) -> list[list[DocumentState]]:
    """Insert as many groups as one commit takes; return the documents created of each."""
    while True:
        known = set(await client.get(list({d.name for group in groups for d in group}), "insert"))
        new: list[list[DocumentState]] = []
        for group in groups:
            new.append([])
            if group[0].name not in known:
                for doc in group:
                    if doc.name not in known:
                        new[-1].append(doc)
                        known.add(doc.name)
        writes = [write for group in new for doc in group for write in doc.writes(context)]
        try:
            if writes:
                await client.commit(writes, "insert")
        except PreconditionFailed:  # another writer created one of them meanwhile
            continue
        return new
