"""Records in renamed and undeclared states."""

from __future__ import annotations

from esclusa.model.query import Cond, Order, Query
from esclusa.model.record import Kind, Ref
from esclusa.model.texts import text
from esclusa.stores.firestore import queries
from esclusa.stores.firestore.client import FirestoreClient, PreconditionFailed
from esclusa.stores.firestore.codec import Codec
from esclusa.stores.firestore.documents import CallContext, DocumentState, document_state

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
    client: FirestoreClient, context: CallContext, kind: Kind, limit: int, who: str
) -> int:
    """Give records in renamed states their present state; return how many.

    Lease, attempts and times of a record stay. A document that was written meanwhile is left for
    the next call.
    """
    if not kind.lifecycle.renamed:
        return 0
    asked = Query(kind, (("status", Cond("in", tuple(kind.lifecycle.renamed))),))
    found = await queries.first(client, context.codec_of(kind), asked, limit, "rename")
    moved = 0
    single = []
    for each in found:
        doc = document_state(context, Ref(kind, each.id), each.document)
        assert doc is not None
        writes = _renamed(context, doc, who)
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


def _renamed(context: CallContext, doc: DocumentState, who: str) -> list[object]:
    old = doc.status
    new = doc.kind.lifecycle.current(old)
    reason = text("state_renamed", old=old, new=new).dump()
    doc.add_step(old, new, context.now, who, None, None, reason)
    doc.set("status", new)
    return doc.writes(context)
