"""Leases: what this process holds, their renewal, and those whose documents cannot be written.

Another client may have locked a document. Its lease is then kept in a document of its own, and a
claim takes no record whose lease is kept there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from esclusa.model.errors import StoreConflict
from esclusa.model.kind import Ref
from esclusa.model.settlement import Renewal
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import LOCKED, FirestoreClient, StructuredQuery
from esclusa.stores.firestore.codec import SEQ, STEPS, Document, decode, encode
from esclusa.stores.firestore.documents import CallContext, DocumentState, document_state
from esclusa.stores.firestore.writes import delete_document, put_document

# Seconds that a document which another client has locked is left out of claims and renewals.
LEFT_OUT = 10.0
# Seconds after which nothing is known of a locked document whose lease was not renewed again.
_UNKNOWN_AFTER = 60.0
# How many leases that ended are removed when one is written.
_FORGOTTEN = 100
_TRACKING = ("status", "attempts", "due_at", "fence", "leased_by", "updated_at")


class LeaseCache:
    """The documents that this process holds, as it last wrote them.

    A settlement of a cached record needs no read. The cache is bounded; a missing entry costs a
    read.
    """

    def __init__(self, max_entries: int = 20_000) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[tuple[str, str, int], tuple[Any, Any, int]] = OrderedDict()

    def remember(self, doc: DocumentState, fence: int, update_time: Any) -> None:
        """Store the document as it was written under this fence."""
        columns = [*(doc.codec.column(n) for n in _TRACKING), SEQ, STEPS]
        tracking = Document(fields={c: doc.fields[c] for c in columns if c in doc.fields})
        self._entries[doc.kind.table, doc.id, fence] = (update_time, tracking, doc.size)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def pop(self, context: CallContext, ref: Ref, fence: int | None) -> DocumentState | None:
        """Return an entry once: the write that follows makes it outdated."""
        entry = None if fence is None else self._entries.pop((ref.kind.table, ref.id, fence), None)
        name = context.document_name(ref.kind, ref.id)
        if entry is None or name is None:
            return None
        update_time, tracking, size = entry
        codec = context.codec_of(ref.kind)
        return DocumentState(ref.kind, ref.id, name, codec, update_time, tracking.fields, size=size)


@dataclass(slots=True)
class KeptLeases:
    """The leases that are kept apart from their records."""

    client: FirestoreClient

    async def keep(self, context: CallContext, renewals: Sequence[Renewal]) -> None:
        """Keep these leases, and remove those that ended."""
        writes = []
        for renewal in renewals:
            until = context.now + timedelta(seconds=renewal.seconds)
            fields = {"fence": encode("int", renewal.fence), "until": encode("time", until)}
            writes.append(put_document(self._name(renewal.ref), Document(fields=fields)))
        ended = StructuredQuery(
            from_=[{"collection_id": names.LEASES}],
            where={
                "field_filter": {
                    "field": {"field_path": "until"},
                    "op": 1,  # less than
                    "value": encode("time", context.now - timedelta(minutes=1)),
                }
            },
            limit={"value": _FORGOTTEN},
        )
        known = {write.update.name for write in writes}
        writes += [
            delete_document(document.name, update_time=document.update_time)
            for document in await self.client.query(ended, "renew")
            if document.name not in known
        ]
        await self.client.each(writes, "renew")

    async def held(self, context: CallContext, orphans: Sequence[DocumentState]) -> set[str]:
        """The ids of the orphans, all of one kind, whose lease is kept and has not ended."""
        if not orphans:
            return set()
        by_name = {self._name(Ref(doc.kind, doc.id)): doc for doc in orphans}
        found = await self.client.get(list(by_name), "claim")
        return {
            by_name[name].id
            for name, document in found.items()
            if decode("int", document.fields["fence"]) == (by_name[name].get("fence") or 0)
            and decode("time", document.fields["until"]) > context.now
        }

    def _name(self, ref: Ref) -> str:
        last = names.segment(f"{ref.kind.table}:{ref.id}")
        return f"{self.client.root}/{names.LEASES}/{last}"


@dataclass(slots=True)
class LeaseRenewals:
    """Extends leases."""

    client: FirestoreClient
    leases: LeaseCache
    kept: KeptLeases
    # By record whose document is locked, when a renewal tries to write it again.
    unwritable: dict[Ref, float] = field(default_factory=dict)

    async def renew(self, context: CallContext, renewals: Sequence[Renewal]) -> set[Ref]:
        now = self.client.clock.ticks()
        known = [r for r in renewals if not r.fields and r.ref in self.unwritable]
        kept = await self._keep(context, known)  # first: to try to write them takes long
        left_out = {r.ref for r in known if self.unwritable[r.ref] > now}
        return kept | await self._renew(context, [r for r in renewals if r.ref not in left_out])

    async def _renew(self, context: CallContext, renewals: Sequence[Renewal]) -> set[Ref]:
        held: set[Ref] = set()
        pairs = [
            (r, doc)
            for r in renewals
            if (doc := self.leases.pop(context, r.ref, r.fence)) is not None
        ]
        cached = {(r.ref, r.fence) for r, _ in pairs}
        unread = [r for r in renewals if (r.ref, r.fence) not in cached]
        locked: list[Renewal] = []
        for _ in range(5):
            for renewal, result in await self._extend(context.refreshed(), pairs):
                if result is LOCKED:
                    locked.append(renewal)
                elif result is not None:
                    held.add(renewal.ref)
                else:
                    unread.append(renewal)
            pairs, unread = await self._read_held(context, unread), []
            if not pairs:
                break
        # what is left is still held, but other clients change it all the time
        locked += [renewal for renewal, _ in pairs]
        self._mark_unwritable(held, locked)
        return held | await self._keep(context, locked)

    def _mark_unwritable(self, written: set[Ref], locked: Sequence[Renewal]) -> None:
        if not self.unwritable and not locked:
            return
        now = self.client.clock.ticks()
        self.unwritable = {
            ref: again
            for ref, again in self.unwritable.items()
            if ref not in written and now - again < _UNKNOWN_AFTER
        }
        self.unwritable |= {renewal.ref: now + LEFT_OUT for renewal in locked}

    async def _read_held(
        self, context: CallContext, renewals: Sequence[Renewal]
    ) -> list[tuple[Renewal, DocumentState]]:
        """Read the documents of these leases; return those that are still held."""
        if not renewals:
            return []
        names = {r.ref: context.document_name(r.ref.kind, r.ref.id) for r in renewals}
        documents = await self.client.get([n for n in names.values() if n is not None], "renew")
        read = (
            (r, document_state(context, r.ref, documents.get(names[r.ref] or ""))) for r in renewals
        )
        return [
            (r, doc)
            for r, doc in read
            if doc is not None and doc.exists and doc.held_under(r.fence)
        ]

    async def _extend(
        self, context: CallContext, pairs: Sequence[tuple[Renewal, DocumentState]]
    ) -> list[tuple[Renewal, Any | None]]:
        for renewal, doc in pairs:
            doc.set("due_at", context.now + timedelta(seconds=renewal.seconds))
            if renewal.holder is not None:
                doc.set("leased_by", renewal.holder)
            for name, value in renewal.fields.items():
                doc.set(name, value)
            if renewal.fields:
                doc.set("updated_at", doc.change_time(context.now))
        results = await self.client.each(
            [doc.writes(context)[0] for _, doc in pairs], "renew", skip_locked=True
        )
        for (renewal, doc), result in zip(pairs, results, strict=True):
            if result is not None and result is not LOCKED:
                self.leases.remember(doc, renewal.fence, result.update_time)
        return [(renewal, result) for (renewal, _), result in zip(pairs, results, strict=True)]

    async def _keep(self, context: CallContext, locked: Sequence[Renewal]) -> set[Ref]:
        """Keep the leases of locked documents apart from them; return those still held."""
        if not locked:
            return set()
        if any(renewal.fields for renewal in locked):
            raise StoreConflict("Firestore: another client has locked the record")
        held = [renewal for renewal, _ in await self._read_held(context, locked)]
        await self.kept.keep(context.refreshed(), held)
        return {renewal.ref for renewal in held}
