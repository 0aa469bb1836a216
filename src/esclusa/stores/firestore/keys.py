"""Records by their key, where the id is not made of it: other programs give their own ids.

An id that is made of the key is unique by itself. For a collection to which other programs write,
the key is looked up by its fields, inside the transaction that creates the record. So a record is
not created if a document with its key was there before. Firestore has no unique constraint: it
cannot keep another program from adding a second document later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from esclusa.model.kind import Kind
from esclusa.model.query import Cond
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.documents import CallContext, DocumentState
from esclusa.stores.firestore.queries import any_of

# Firestore allows this many alternatives in a query.
_MAX_KEYS = 30


def looked_up(context: CallContext, kind: Kind) -> bool:
    """Whether the key of a new record of this kind must be looked up by its fields."""
    return bool(kind.key) and context.codec_of(kind).foreign


async def existing_keys(
    client: FirestoreClient,
    context: CallContext,
    docs: Sequence[DocumentState],
    op: str,
    transaction: bytes | None = None,
) -> dict[str, str]:
    """Of new documents, by name: the id of the record that has the same key already.

    If several have it, the one that was created first.
    """
    by_kind: dict[Kind, dict[Any, list[str]]] = {}
    for doc in docs:
        if looked_up(context, doc.kind):
            by_kind.setdefault(doc.kind, {}).setdefault(_key(doc.codec, doc.fields), []).append(
                doc.name
            )
    out: dict[str, str] = {}
    for kind, wanted in by_kind.items():
        codec = context.codec_of(kind)
        by_name = {doc.name: doc for doc in docs}
        keys = list(wanted)
        for k in range(0, len(keys), _MAX_KEYS):
            alternatives = [
                tuple((name, _equal(by_name[wanted[key][0]].get(name))) for name in kind.key)
                for key in keys[k : k + _MAX_KEYS]
            ]
            found = await client.query(any_of(codec, alternatives, client.root), op, transaction)
            found.sort(key=lambda d: (d.create_time.seconds, d.create_time.nanos, d.name))
            for document in found:
                id = names.own_id(kind, document.name[len(client.root) + 1 :])
                for name in wanted.get(_key(codec, document.fields), ()):
                    if id is not None:
                        out.setdefault(name, id)
    return out


def _equal(value: Any) -> Cond:
    return Cond("null") if value is None else Cond("eq", value)


def _key(codec: Any, fields: Any) -> tuple[bytes, ...]:
    columns = (codec.column(name) for name in codec.kind.key)
    return tuple(fields[c].SerializeToString() if c in fields else b"" for c in columns)
