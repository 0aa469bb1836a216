"""How the store lays out its documents, and the move from an earlier layout.

The layout is recorded in ``esclusa_schema/_store``. In layout 1, three collections of system
records had names without the prefix ``esclusa_``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from google.cloud.firestore_v1 import types

from esclusa.model.errors import MigrationError, SchemaRefused
from esclusa.model.system_records import SYSTEM_RECORDS
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient, StructuredQuery
from esclusa.stores.firestore.codec import Document, Value
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.queries import NAME
from esclusa.stores.firestore.writes import delete_document, in_commits, put_document

# What a store lacks: everything, or the move from an earlier layout.
Lack: TypeAlias = Literal["everything", "move"]

VERSION = 2
# Each changes only with a new number.
_LAYOUTS = {
    1: "1: documents by table, history by name with steps, budgets by window, wakes by table",
    2: "2: as 1, and every collection of system records begins with esclusa_",
}
_CHECKSUMS = {n: hashlib.sha256(layout.encode()).hexdigest() for n, layout in _LAYOUTS.items()}
_RENAMED = {
    "dead_letters": "esclusa_dead_letters",
    "worker_runs": "esclusa_runs",
    "archive_exports": "esclusa_exports",
}
# Set while documents are moved: an interrupted move goes on.
_MOVING = "moving"
# Set in the schema document of a kind whose ids version 0.1.0 made, which are not changed yet.
EARLIER_IDS = "earlier_ids"
# Documents of a page; each is at most 1 MiB.
_PAGE = 100
# Fields of every document of a system record.
_TRACKING = ("status", "attempts", "due_at", "fence", "leased_by")

_TRUE = Value(boolean_value=True)
Cursor: Any = type(types.Cursor.pb(types.Cursor()))


def store_path(client: FirestoreClient) -> str:
    """The document with the layout."""
    return f"{client.root}/{names.SCHEMA}/_store"


def lack(document: Any | None) -> Lack | None:
    """Return what a store with this document lacks. Raises MigrationError for a newer layout."""
    if document is None:
        return "everything"
    version = document.fields["version"].integer_value
    if version > VERSION:
        raise MigrationError(
            f"the store's layout {version} is newer than this program's ({VERSION});"
            " use a newer Esclusa"
        )
    if document.fields["checksum"].string_value != _CHECKSUMS.get(version):
        raise MigrationError(
            f"the store's layout {version} differs from the layout of that number in this program"
        )
    return "move" if version < VERSION or _MOVING in document.fields else None


async def migrate(client: FirestoreClient, lacks: Lack) -> list[str]:
    """Record the layout; before that, move the documents of an earlier layout."""
    moved = []
    if lacks == "everything":
        await _refuse_others(client, [r.kind.table for r in SYSTEM_RECORDS])
    else:
        # earlier programs end when they find a newer layout
        await _record(client, moving=True)
        await _mark_earlier_ids(client)
        moved = await _move_all(client)
    await _record(client, moving=False)
    return [*moved, f"layout {VERSION} recorded"]


async def _mark_earlier_ids(client: FirestoreClient) -> None:
    """Write down that version 0.1.0 made the ids of every kind."""
    query, marked = _documents(names.SCHEMA), Document(fields={EARLIER_IDS: _TRUE})
    while page := await client.query(query, "migrate"):
        found = [each.name for each in page if each.name != store_path(client)]
        writes = [put_document(name, marked, mask=[EARLIER_IDS], exists=True) for name in found]
        await client.commit(writes, "migrate")
        query.start_at.CopyFrom(_cursor(page[-1].name, before=False))


async def _record(client: FirestoreClient, *, moving: bool) -> None:
    fields = {
        "version": Value(integer_value=VERSION),
        "checksum": Value(string_value=_CHECKSUMS[VERSION]),
    }
    if moving:
        fields[_MOVING] = _TRUE
    await client.commit([put_document(store_path(client), Document(fields=fields))], "schema")


async def _refuse_others(client: FirestoreClient, collections: Sequence[str]) -> None:
    """Raise SchemaRefused if another program wrote documents to a system collection.

    Documents of an Esclusa that migrates at the same time are not such: it records the layout
    before everything else.
    """
    system = (
        names.HISTORY,
        names.BUDGETS,
        names.LEASES,
        names.KEY_TURNS,
        names.WAKES,
        names.SCHEMA,
        names.ADOPTION,
    )
    faults = [
        f"collection {collection} has documents, and Esclusa did not write them; rename it,"
        " or use another Firestore database"
        for collection in (*collections, *system)
        if await client.query(_documents(collection, limit=1), "migrate")
    ]
    if faults and not await client.get([store_path(client)], "migrate"):
        raise SchemaRefused("the names of system collections are not free", faults)


async def _move_all(client: FirestoreClient) -> list[str]:
    """Move the documents of layout 1, with their history, in bounded commits."""
    done = []
    for old, new in _RENAMED.items():
        count = await _move(client, _documents(old), partial(_renamed_record, old, new))
        await _move(client, _history(client, old), partial(_renamed_history, old, new))
        schema = f"{client.root}/{names.SCHEMA}"
        found = await client.get([f"{schema}/{old}"], "migrate")
        writes = [put_document(f"{schema}/{new}", each) for each in found.values()]
        old_names = [f"{schema}/{old}", f"{client.root}/{names.WAKES}/{old}"]
        await client.commit([*writes, *map(delete_document, old_names)], "migrate")
        done.append(f"{count} documents moved from {old} to {new}")
    return done


async def _move(
    client: FirestoreClient, query: Any, renamed: Callable[[Any], tuple[str, Any] | None]
) -> int:
    """Move what a query finds, by name and in pages, to the name that ``renamed`` returns."""
    count = 0
    while page := await client.query(query, "migrate"):
        units = []
        for document in page:
            if target := renamed(document):
                old = delete_document(document.name, update_time=document.update_time)
                units.append([put_document(*target), old])
        try:
            for chunk in in_commits(units):
                await client.commit([write for unit in chunk for write in unit], "migrate")
                count += len(chunk)
        except PreconditionFailed:  # a program of the earlier version wrote one meanwhile
            continue
        query.start_at.CopyFrom(_cursor(page[-1].name, before=False))
    return count


def _documents(collection: str, limit: int = _PAGE) -> Any:
    """A query for the documents of a collection, by name, which needs no index."""
    return StructuredQuery(
        from_=[{"collection_id": collection}],
        order_by=[{"field": {"field_path": NAME}, "direction": 1}],
        limit={"value": limit},
    )


def _history(client: FirestoreClient, table: str) -> Any:
    """A query for the history documents of a table."""
    query, start = _documents(names.HISTORY), f"{client.root}/{names.HISTORY}/{table}"
    query.start_at.CopyFrom(_cursor(f"{start}:", before=True))
    query.end_at.CopyFrom(_cursor(f"{start};", before=True))
    return query


def _cursor(name: str, *, before: bool) -> Any:
    return Cursor(values=[Value(reference_value=name)], before=before)


def _renamed_record(old: str, new: str, document: Any) -> tuple[str, Any] | None:
    """The document in its new collection; None if another program wrote it."""
    if any(name not in document.fields for name in _TRACKING):
        return None
    above, _, last = document.name.rpartition("/")
    return f"{above.removesuffix(old)}{new}/{last}", Document(fields=document.fields)


def _renamed_history(old: str, new: str, document: Any) -> tuple[str, Any] | None:
    if document.fields["table_name"].string_value != old:
        return None
    above, _, last = document.name.rpartition("/")
    moved = Document(fields=document.fields)
    moved.fields["table_name"].string_value = new
    return f"{above}/{new}{last.removeprefix(old)}", moved
