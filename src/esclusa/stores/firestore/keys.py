"""Records by their key, where the id is not made of it: other programs give their own ids.

An id that is made of the key is unique by itself. For a collection to which other programs write,
the key is looked up by its fields, inside the transaction that creates the record. So a record is
not created if a document with its key was there before. Firestore has no unique constraint: it
cannot keep another program from adding a second document later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from esclusa.model.kind import Kind
from esclusa.model.query import Cond
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.codec import Codec, Value
from esclusa.stores.firestore.documents import CallContext, DocumentState
from esclusa.stores.firestore.found import Conditions
from esclusa.stores.firestore.queries import any_of, as_stored

# Firestore allows this many alternatives in a query; each value of a list is one.
_MAX_ALTERNATIVES = 30


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
        conditions = [
            tuple(
                (name, as_stored(codec, name, _equal(by_name[first].get(name))))
                for name in kind.key
            )
            for first, *_ in wanted.values()
        ]
        for alternatives in _batches(conditions):
            found = await client.query(any_of(codec, alternatives, client.root), op, transaction)
            found.sort(key=lambda d: (d.create_time.seconds, d.create_time.nanos, d.name))
            for document in found:
                id = names.own_id(kind, document.name[len(client.root) + 1 :])
                for name in wanted.get(_key(codec, document.fields), ()):
                    if id is not None:
                        out.setdefault(name, id)
    return out


def _batches(conditions: Iterable[Conditions]) -> Iterator[list[Conditions]]:
    """The conditions in parts that one query can ask for."""
    batch: list[Conditions] = []
    room = _MAX_ALTERNATIVES
    for each in conditions:
        size = prod(len(cond.value) for _, cond in each if cond.op == "in")
        if batch and size > room:
            yield batch
            batch, room = [], _MAX_ALTERNATIVES
        batch.append(each)
        room -= size
    if batch:
        yield batch


def _equal(value: Any) -> Cond:
    return Cond("null") if value is None else Cond("eq", value)


def _key(codec: Codec, fields: Any) -> tuple[Any, ...]:
    """The values of a key; a whole number is as its text."""
    columns = (codec.column(name) for name in codec.kind.key)
    return tuple(_text_of(fields[c]) if c in fields else b"" for c in columns)


def _text_of(value: Any) -> Any:
    if value.HasField("integer_value"):
        value = Value(string_value=str(value.integer_value))
    return value.SerializeToString()
