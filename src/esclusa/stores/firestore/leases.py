"""Leases of records whose documents another client has locked, kept in documents of their own.

A claim takes no record whose lease is kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from esclusa.model.record import Ref
from esclusa.model.settlement import Renewal
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient, StructuredQuery
from esclusa.stores.firestore.codec import Document, decode, encode
from esclusa.stores.firestore.documents import CallContext, DocumentState
from esclusa.stores.firestore.writes import delete_document, put_document

# How many leases that ended are removed when one is written.
_FORGOTTEN = 100


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
