"""Reading and adding records, for handlers, cycles and routes: typed, checked, in batches."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar, cast

from esclusa.engine.record_spans import RecordSpans
from esclusa.model.errors import BadRecord, StoreConflict, UndeclaredMove
from esclusa.model.kind import Ref
from esclusa.model.query import Page, Total, Where, grouping, null, query
from esclusa.model.record import Record
from esclusa.model.settlement import (
    Duplicate,
    Inserted,
    Locked,
    RecordWithChildren,
    Rejected,
    Settled,
    Settlement,
)
from esclusa.model.texts import text
from esclusa.ports.store import Store

R = TypeVar("R", bound=Record)

# Parts of a load that are written at a time: the store works on one while the other is encoded.
_WRITING = 2
# How often records are put again that are removed meanwhile.
_MAX_PUTS = 20


class Records:
    """The store as pipelines see it: read, add, replace, delete. Only settlements move records."""

    def __init__(self, store: Store, spans: RecordSpans | None = None) -> None:
        self._store = store
        self._spans = spans
        # Called with records that ``put`` has moved.
        self.on_moved: Callable[[Sequence[Ref]], Awaitable[None]] | None = None
        self._written: Counter[str] = Counter()

    def counted(self, written: Counter[str]) -> Records:
        """The same, but what is created and removed is counted there."""
        records = Records(self._store, self._spans)
        records.on_moved, records._written = self.on_moved, written
        return records

    async def get(self, kind: type[R], *key: Any) -> R | None:
        """The record with this id, or with this key when several parts are given."""
        if len(key) > 1:
            return await self.by_key(kind, *key)
        [found] = await self.get_many(kind, [str(key[0])])
        return found

    async def by_key(self, kind: type[R], *key: Any) -> R | None:
        """The record with this key. Its id is made of the key unless another program gave it."""
        [found] = await self.get_many(kind, [kind.kind.id_of(*key)])
        if found is not None:
            return found
        parts = {n: null if v is None else v for n, v in zip(kind.kind.key, key, strict=True)}
        return await self.first(kind, parts)

    async def get_many(self, kind: type[R], ids: Sequence[str]) -> list[R | None]:
        return cast("list[R | None]", await self._store.get(kind.kind, ids))

    async def foreign_documents(
        self, kind: type[Record], parent: str, *, begins: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        """What other programs keep beside the records of a nested kind, below one parent.

        Firestore documents that are no records, because the kind has ``adopt=False``: their fields
        as plain values, and their own id. ``begins``: only ids that begin so. A table has none.
        """
        return await self._store.foreign_documents(kind.kind, parent, begins, limit)

    async def find(
        self,
        kind: type[R],
        where: Where | None = None,
        *,
        order: str | tuple[str, ...] = (),
        limit: int = 100,
        after: str | None = None,
        archived: bool = False,
    ) -> Page[R]:
        """One page; ``next`` continues it."""
        asked = query(kind, where, order=order, limit=limit, after=after, archived=archived)
        return cast("Page[R]", await self._store.find(asked))

    async def first(
        self, kind: type[R], where: Where | None = None, *, order: str | tuple[str, ...] = ()
    ) -> R | None:
        page = await self.find(kind, where, order=order, limit=1)
        return page.items[0] if page.items else None

    async def each(
        self,
        kind: type[R],
        where: Where | None = None,
        *,
        order: str | tuple[str, ...] = (),
        size: int = 500,
        archived: bool = False,
    ) -> AsyncIterator[R]:
        """Every record that matches, page by page: bounded memory."""
        after: str | None = None
        while True:
            page = await self.find(
                kind, where, order=order, limit=size, after=after, archived=archived
            )
            for record in page.items:
                yield record
            after = page.next
            if after is None:
                return

    async def count(
        self, kind: type[Record], where: Where | None = None, *, cap: int = 100_000
    ) -> tuple[int, bool]:
        """How many, counted up to ``cap``, and whether that is all."""
        return await self._store.count(query(kind, where), cap)

    async def totals(
        self,
        kind: type[Record],
        by: Sequence[str],
        *,
        sums: Sequence[str] = (),
        where: Where | None = None,
    ) -> list[Total]:
        """How many records match, by the values of the fields ``by``, and the sums of others.

        ``totals(Post, ["country", "status"], sums=["replies_count"])``. Every record that matches
        is read. A missing number adds nothing to a sum.
        """
        return await self._store.totals(query(kind, where), grouping(kind.kind, by, sums))

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        """Add records in one transaction; a known key is left as it is."""
        answers = await (self._spans or self._store).insert(records)
        if created := sum(isinstance(answer, Inserted) for answer in answers):
            self._written["created"] += created
        return answers

    async def load(
        self, records: Iterable[Record], *, size: int = 2500
    ) -> AsyncIterator[list[Inserted | Duplicate]]:
        """Add very many records, ``size`` to a transaction; yield each part's answers in order.

        Of records with the same key the first is stored. The next part is produced while others
        are written, so ``records`` may be a generator and memory stays bounded: at most two parts
        are written at a time. That is so for records of one kind with a key that the store keeps
        unique, if the parts have no key in common; other parts are written one after the other.

        An error ends the load at the part that cannot be stored. The parts before it are stored and
        answered. With two at a time the part behind it may be stored, too; the keys make it
        harmless to load all of them again. This also holds if the load is cancelled: when it ends,
        nothing is being written.
        """
        writing: deque[_PartInFlight] = deque()
        source = iter(records)
        try:
            while part := await _part(source, size):
                keys = _keys(part)
                while writing and not (
                    len(writing) < _WRITING and all(each.is_apart(part, keys) for each in writing)
                ):
                    yield await writing.popleft().answers
                before = writing[-1].answers if writing else None
                task = asyncio.create_task(self._write(part, before))
                writing.append(_PartInFlight(task, type(part[0]), keys))
            while writing:
                yield await writing.popleft().answers
        finally:
            await asyncio.gather(*(each.answers for each in writing), return_exceptions=True)

    async def _write(
        self, part: list[Record], before: asyncio.Task[Any] | None
    ) -> list[Inserted | Duplicate]:
        """Insert a part, again if it needs a record of the one before, as for a foreign key."""
        try:
            return await self.insert(part)
        except BadRecord:
            if before is None:
                raise
        await asyncio.wait([before])
        return await self.insert(part)

    async def insert_if_new(self, families: Sequence[RecordWithChildren]) -> list[int | None]:
        """Add records, each with its children in one transaction.

        Returns None for a duplicate, of which nothing is written, else the number of new children.
        Raises BadRecord if the store cannot hold one; add them one by one to find it.
        """
        answers = await self._store.insert_if_new(families)
        if created := sum(1 + children for children in answers if children is not None):
            self._written["created"] += created
        return answers

    async def put(self, records: Sequence[Record], *, who: str) -> list[Inserted | Duplicate]:
        """Add records. A record whose key exists gets these fields and moves to this state.

        A record without a state moves to the initial one. Raises UndeclaredMove if it cannot, and
        StoreConflict while another program has it locked or another record has a value that is
        unique in the table. If one is removed meanwhile, all are put again, so that what belongs
        together is stored together.
        """
        for _ in range(_MAX_PUTS):
            answers = await self.insert(records)
            settlements = [
                _put(record, answer.id, who)
                for record, answer in zip(records, answers, strict=True)
                if isinstance(answer, Duplicate)
            ]
            verdicts = await self._store.settle(settlements) if settlements else []
            for verdict in verdicts:
                if isinstance(verdict, Rejected):
                    raise BadRecord(verdict.why)
                if isinstance(verdict, Locked):
                    raise StoreConflict(verdict.why)
            lost = [
                s
                for s, verdict in zip(settlements, verdicts, strict=True)
                if not isinstance(verdict, Settled)
            ]
            if not lost:
                if self.on_moved is not None and settlements:
                    await self.on_moved([settlement.ref for settlement in settlements])
                return answers
            for settlement in lost:
                [present] = await self._store.get(settlement.ref.kind, [settlement.ref.id])
                if present is not None and present.status not in settlement.frm:
                    raise UndeclaredMove(
                        str(settlement.ref), present.status, settlement.to, settlement.frm
                    )
        raise StoreConflict(text("put_refused", table=records[0].kind.table))

    async def edit(
        self,
        kind: type[Record],
        id: str,
        *,
        among: Sequence[str],
        who: str,
        reason: str,
        to: str | None = None,
        attempts: int | None = None,
        **fields: Any,
    ) -> bool:
        """Change fields of a record in one of the states ``among``; return whether it was.

        ``to``: move it there; by default it stays in its state. ``attempts``: set the count. A
        lease on it ends and it is due at once, because its handler read the old fields. Raises
        BadRecord if the table cannot hold the values, and StoreConflict while another program has
        the record locked.
        """
        ref, checked = Ref(kind.kind, id), kind.kind.check_fields(fields)
        verdicts = await self._store.settle(
            [
                Settlement(
                    ref, to or state, (state,), None, checked, attempts, who=who, reason=reason
                )
                for state in among
            ]
        )
        for verdict in verdicts:
            if isinstance(verdict, Rejected):
                raise BadRecord(f"{kind.kind.table}: it holds what the table cannot: {verdict.why}")
            if isinstance(verdict, Locked):
                raise StoreConflict(verdict.why)
        return any(isinstance(verdict, Settled) for verdict in verdicts)

    async def remove(self, id: str, *kinds: type[Record]) -> list[bool]:
        """Delete the records with this id and their history, in one transaction; say which were."""
        answers = await self._store.remove([Ref(kind.kind, id) for kind in kinds])
        if removed := sum(answers):
            self._written["removed"] += removed
        return answers

    async def make_partitions(self, kind: type[Record]) -> None:
        """Let the function that the kind names make the partitions of its table, where it exists.

        Raises StoreConflict if it fails.
        """
        await self._store.make_partitions(kind.kind)

    async def purge(self, kind: type[Record], where: Where) -> int:
        """Delete what matches, with its history, page by page; return how many."""
        removed = 0
        while count := await self._store.purge(query(kind, where, limit=1000)):
            removed += count
            self._written["removed"] += count
        return removed


def _put(record: Record, id: str, who: str) -> Settlement:
    kind, to = record.kind, record.status or record.kind.initial
    fields = {f.name: getattr(record, f.name) for f in kind.fields if f.name not in kind.key}
    return Settlement(
        Ref(kind, id),
        to,
        (*kind.lifecycle.with_earlier([to]), *kind.lifecycle.sources(to)),
        None,
        kind.check_fields(fields),
        who=who,
        reason="put",
    )


@dataclass(frozen=True)
class _PartInFlight:
    """A part of a load that is being written, and the keys of its records."""

    answers: asyncio.Task[list[Inserted | Duplicate]]
    type: type[Record]
    keys: set[Any] | None

    def is_apart(self, part: Sequence[Record], keys: set[Any] | None) -> bool:
        """Whether another part can be written at the same time."""
        if keys is None or self.keys is None or type(part[0]) is not self.type:
            return False
        return keys.isdisjoint(self.keys)


def _keys(part: Sequence[Record]) -> set[Any] | None:
    """The keys of records, and the ids that were given to them.

    None if they are of several kinds, or if two transactions could both insert one of them.
    """
    kind = part[0].kind
    kept_unique = kind.unique_key if kind.known_by_key else bool(kind.key)
    if not kept_unique or kind.unique or len(set(map(type, part))) > 1:
        return None
    given = [record.__dict__ for record in part]
    try:
        keys = set(map(itemgetter(*kind.key), given))
    except TypeError:  # a value that cannot be hashed
        return None
    return keys.union(("id", id) for id in set(map(itemgetter("id"), given)) if id)


async def _part(source: Iterator[Record], size: int) -> list[Record]:
    """The next so many, made in small steps so that others have their turn."""
    part: list[Record] = []
    while step := list(islice(source, min(250, size - len(part)))):
        part += step
        await asyncio.sleep(0)
    return part
