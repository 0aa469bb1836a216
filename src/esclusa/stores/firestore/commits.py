"""One commit of several settlements: read what they touch, compute the result, write it.

A guard that is true is proved by one document that must not change. A guard that is false cannot be
proved by documents. The settlement is then repeated inside a transaction, where Firestore itself
keeps the answers of queries from changing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import BadRecord, UndeclaredMove
from esclusa.model.kind import Ref
from esclusa.model.query import Query, matches
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Verdict
from esclusa.stores.firestore import names, queries
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.documents import (
    CallContext,
    DocumentState,
    document_state,
    new_document,
)
from esclusa.stores.firestore.found import FoundDocument
from esclusa.stores.firestore.keys import existing_keys, looked_up
from esclusa.stores.firestore.writes import verify_unchanged


class _EffectRefused(Exception):
    """An effect cannot be applied as declared."""


class TransactionRequired(Exception):
    """A guard is false, or a key is new, and only a transaction keeps it so."""


@dataclass(slots=True)
class SettlementCommit:
    """One commit of several settlements: the documents that were read, and what to write."""

    client: FirestoreClient
    context: CallContext
    rng: Random
    settlements: Sequence[Settlement]
    transaction: bytes | None = None
    documents: dict[str, Any] = field(default_factory=dict)
    docs: dict[str, DocumentState] = field(default_factory=dict)
    guards: dict[Exists, list[FoundDocument]] = field(default_factory=dict)
    # By the name of a new document, the record that has its key.
    keys: dict[str, dict[str, str]] = field(default_factory=dict)
    # Update times, by name, of documents that were read and must stay unchanged.
    proofs: dict[str, Any] = field(default_factory=dict)

    async def run(self, *, in_transaction: bool) -> list[Verdict]:
        """Read, compute and commit; return the verdict of each settlement."""
        if in_transaction:
            self.transaction = await self.client.begin()
        try:
            return await self._run()
        except BaseException:
            if self.transaction is not None:
                await self.client.rollback(self.transaction)
            raise

    async def _run(self) -> list[Verdict]:
        wanted = {
            name
            for s in self.settlements
            for ref in touched(s)
            if (name := self.context.document_name(ref.kind, ref.id)) is not None
        }
        self.documents = await self.client.get(sorted(wanted), "settle", self.transaction)
        rejected: dict[int, str] = {}
        while True:
            self.docs, self.proofs = {}, {}
            verdicts, refused = await self._compute(rejected)
            if not refused:
                break
            # A settlement that failed on the move of another refused settlement may succeed without
            # it. Reject the others first, then compute again.
            refs = {s.ref for i, s in enumerate(self.settlements) if i in refused}
            independent = {
                i: refused[i]
                for i, s in enumerate(self.settlements)
                if i in refused
                and not any(isinstance(e, Move) and Ref(e.kind, e.id) in refs for e in s.effects)
            }
            rejected |= independent or dict(list(refused.items())[:1])
        writes = [
            w
            for doc in self.docs.values()
            for w in doc.writes(self.context, unconditional=self.transaction is not None)
        ]
        if self.transaction is None:
            written = {w.update.name for w in writes}
            writes += [
                verify_unchanged(name, update_time)
                for name, update_time in self.proofs.items()
                if name not in written
            ]
        if writes:
            await self.client.commit(writes, "settle", self.transaction, bounded=True)
        elif self.transaction is not None:
            await self.client.rollback(self.transaction)
        return verdicts

    async def _compute(self, rejected: dict[int, str]) -> tuple[list[Verdict], dict[int, str]]:
        """Apply all settlements to the documents; return verdicts, and refusals with the reason."""
        verdicts: list[Verdict] = []
        refused: dict[int, str] = {}
        for i, s in enumerate(self.settlements):
            doc = self._doc(s.ref)
            if doc is None or not doc.exists or not _may_settle(doc, s):
                verdicts.append(Lost(s.ref))
            elif s.fence is not None and doc.status not in s.transition.held_in:
                verdicts.append(Lost(s.ref, doc.status))
                doc.give_up(self.context, s)
            elif i in rejected:
                verdicts.append(Rejected(s.ref, rejected[i]))
            else:
                verdicts.append(Settled(s.ref))
                try:
                    apply_own_move(self.context, s, doc)
                except BadRecord as error:
                    refused[i] = str(error)
        for i, s in enumerate(self.settlements):
            if isinstance(verdicts[i], Settled):
                try:
                    for effect in s.effects:
                        await self._apply(s, effect)
                except (_EffectRefused, UndeclaredMove, BadRecord) as error:
                    refused[i] = str(error)
        return verdicts, refused

    def _doc(self, ref: Ref) -> DocumentState | None:
        name = self.context.document_name(ref.kind, ref.id)
        if name is None:
            return None
        if name not in self.docs:
            doc = document_state(self.context, ref, self.documents.get(name))
            assert doc is not None
            self.docs[name] = doc
        return self.docs[name]

    async def _apply(self, s: Settlement, effect: Effect) -> None:
        match effect:
            case Create():
                await self._create(new_document(self.context, effect.record))
            case Move():
                await self._move(s, effect)
            case Wake():
                target = self._doc(Ref(effect.kind, effect.id))
                if (
                    target is not None
                    and target.exists
                    and target.get("leased_by") is None
                    and target.get("due_at") is not None
                    and target.get("due_at") > self.context.now
                ):
                    target.set("due_at", self.context.now)
                    target.set("updated_at", target.change_time(self.context.now))
            case Add():
                target = self._doc(Ref(effect.kind, effect.id))
                if target is None or not target.exists:
                    raise _EffectRefused(f"effect Add: there is no {effect.kind.table} {effect.id}")
                for name, amount in effect.amounts.items():
                    target.add(name, amount)
                if not target.changed and not target.is_new:
                    target.set("updated_at", self.context.now)

    async def _create(self, new: DocumentState) -> None:
        known = self.docs.get(new.name)
        if (known is not None and known.exists) or new.name in self.documents:
            return
        if looked_up(self.context, new.kind):
            if self.transaction is None:
                raise TransactionRequired
            if new.name not in self.keys:
                self.keys[new.name] = await existing_keys(
                    self.client, self.context, [new], "settle", self.transaction
                )
            if self.keys[new.name]:
                return
        self.docs[new.name] = new

    async def _move(self, s: Settlement, move: Move) -> None:
        target = self._doc(Ref(move.kind, move.id))
        exists = target is not None and target.exists
        if move.frm and (target is None or not exists or target.status not in move.frm):
            if target is not None and target.update_time is not None:
                self.proofs[target.name] = target.update_time
            return
        if move.unless is not None and await self._holds(move.unless):
            return
        if target is None or not exists:
            raise _EffectRefused(f"effect Move: there is no {move.kind.table} {move.id}")
        if not move.frm:
            move.kind.lifecycle.check(
                target.status, move.to, f"effect Move on {move.kind.table} {move.id}"
            )
        if move.unless is not None and self.transaction is None:
            raise TransactionRequired
        before = target.status
        target.add_step(
            *(before, move.to, self.context.now, s.who, s.run, None, move.reason),
            changes=move.changes,
        )
        for name, value in move.fields.items():
            target.set(name, value)
        target.set("status", move.to)
        target.set("attempts", 0)
        target.set("due_at", self.context.now)
        target.set("fence", (target.get("fence") or 0) + 1)
        target.end_lease(self.context, before, move.to)
        target.set("updated_at", target.change_time(self.context.now))

    async def _holds(self, guard: Exists) -> bool:
        """Whether the guard is true of the stored records with the changes of this commit."""
        mine = {n: doc for n, doc in self.docs.items() if doc.kind == guard.kind}
        for name, doc in mine.items():
            if doc.exists and matches(doc.values(), guard.where):
                if doc.update_time is not None:
                    self.proofs[name] = doc.update_time  # used only if nothing is written to it
                return True
        if guard not in self.guards:
            codec = self.context.codec_of(guard.kind)
            self.guards[guard] = await queries.page(
                self.client,
                codec,
                queries.prepare(codec, Query(guard.kind, guard.where), self.client.root),
                sum(n.split("/")[-2] == guard.kind.table for n in {*mine, *self.documents}) + 2,
                "guard",
                transaction=self.transaction,
            )
        others = [f for f in self.guards[guard] if f.document.name not in mine]
        if others:
            witness = self.rng.choice(others).document
            self.proofs[witness.name] = witness.update_time
        return bool(others)


def touched(s: Settlement) -> list[Ref]:
    """The records that a settlement reads: its own, its effects' targets, those it may create."""
    out = [s.ref]
    for effect in s.effects:
        if isinstance(effect, Create):
            kind = effect.record.kind
            if effect.record.id or kind.key:
                out.append(Ref(kind, names.record_id(kind, effect.record, str)))
        else:
            out.append(Ref(effect.kind, effect.id))
    return out


def _may_settle(doc: DocumentState, s: Settlement) -> bool:
    return doc.status in s.frm if s.fence is None else doc.held_under(s.fence)


def apply_own_move(context: CallContext, s: Settlement, doc: DocumentState) -> None:
    """Move the settled record itself: state, fields, tracking, history."""
    before = doc.status
    doc.add_step(
        *(before, s.to, context.now, s.who, s.run, s.attempt, s.reason),
        error=s.error,
        changes=s.changes,
        log=s.log,
    )
    for name, value in s.fields.items():
        doc.set(name, value)
    doc.set("status", s.to)
    if s.attempts is not None:
        doc.set("attempts", s.attempts)
    doc.set("due_at", context.now + timedelta(seconds=s.delay) if s.until is None else s.until)
    if s.fence is None:
        doc.set("fence", (doc.get("fence") or 0) + 1)
    if s.error is not None or s.clear_error:
        doc.set("last_error", s.error)
        for extra, key in (("error_type", "type"), ("error_message", "message")):
            if extra in doc.kind.extras:
                doc.set(extra, (s.error or {}).get(key))
    doc.end_lease(context, before, s.to)
    doc.set("updated_at", doc.change_time(context.now))
