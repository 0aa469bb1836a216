"""Search for documents without tracking fields, by counting.

Firestore cannot ask for documents that lack a field, but it can count: all documents of a range of
names, and those that have tracking fields. Where the numbers differ, the range is halved until it
is cheaper to read it. A count costs one read per thousand documents, so a search among N documents
costs about N / 500 reads if nothing is found, and twice that for each document that is found in a
place of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from esclusa.model.kind import Kind
from esclusa.model.value import value
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient, StructuredQuery
from esclusa.stores.firestore.codec import SHARD, SHARDS, plain_fields
from esclusa.stores.firestore.queries import NAME

PAGE = 300
# Documents to read, for each one that is wanted, rather than halve the range again; at most a page.
_CHEAP = 16
# How often a range is halved: names may have a long beginning in common.
_MAX_DEPTH = 200
_PARALLEL = 16
# Separates the ids of a nested document's position; it sorts before every character of an id.
_SEP = "\x01"
_FIRST, _LAST = 0x1F, 0x7F
_LESS, _AT_LEAST, _IN, _AND = 1, 4, 8, 1


@value
class NameRange:
    """Documents from ``low`` up to, not including, ``high``: positions, empty or None if open."""

    low: str
    high: str | None
    total: int
    untracked: int
    depth: int = 0

    @property
    def cheap(self) -> bool:
        """Whether reading the range costs less than halving it."""
        mixed = min(PAGE, _CHEAP * self.untracked)
        return self.untracked == self.total or self.total <= mixed or self.depth >= _MAX_DEPTH


@value
class Found:
    """The ranges with documents that have no tracking, and how many there are in all."""

    ranges: list[NameRange]
    total: int
    untracked: int


def is_tracked(document: Any) -> bool:
    """Whether a document has the field that every record's document has."""
    return SHARD in document.fields and document.fields[SHARD].HasField("integer_value")


async def foreign_documents(
    client: FirestoreClient, kind: Kind, parent: str, begins: str, limit: int
) -> list[dict[str, Any]]:
    """Documents without tracking below one parent; see ``Store.foreign_documents``."""
    above = names.path(kind.parent, parent) if kind.parent is not None else None
    if above is None:
        return []
    found: list[dict[str, Any]] = []
    last: str | None = None
    place = f"{client.root}/{above}/{kind.table}/"
    while len(found) < limit:
        query = StructuredQuery(from_=[{"collection_id": kind.table}])
        query.order_by.add(field={"field_path": NAME}, direction=1)
        query.limit.value = PAGE
        start = last or (place + begins if begins else None)
        if start is not None:
            query.start_at.values.add(reference_value=start)
            query.start_at.before = last is None
        page = await client.query(query, "foreign_documents", below=above)
        for document in page:
            own = document.name.rpartition("/")[2]
            if not own.startswith(begins):
                return found
            if not is_tracked(document) and len(found) < limit:
                found.append({"id": names.unsegment(own)} | plain_fields(document.fields))
        if len(page) < PAGE:
            break
        last = page[-1].name
    return found


@dataclass(slots=True)
class UntrackedSearch:
    """One search in one collection, in one snapshot. ``known`` are names to leave out."""

    client: FirestoreClient
    kind: Kind
    op: str
    known: Collection[str] = ()
    transaction: bytes | None = None

    async def run(self, limit: int) -> Found:
        """Find ranges with at least ``limit`` documents without tracking, or with all of them."""
        self.transaction = await self.client.begin(read_only=True)
        try:
            return await self._run(limit)
        finally:
            await self.client.rollback(self.transaction)

    async def _run(self, limit: int) -> Found:
        root = await self._counted("", None, 0)
        todo, done = [root], list[NameRange]()
        while todo := _enough([r for r in todo if r.untracked > 0], limit):
            done += [r for r in todo if r.cheap or self._middle(r) is None]
            todo = [r for r in todo if r not in done]
            halves: list[NameRange] = []
            for k in range(0, len(todo), _PARALLEL):
                for pair in await asyncio.gather(*map(self._halved, todo[k : k + _PARALLEL])):
                    halves += pair
            todo = halves
        return Found(sorted(done, key=lambda r: r.low), root.total, root.untracked)

    async def _halved(self, whole: NameRange) -> tuple[NameRange, NameRange]:
        middle = self._middle(whole)
        assert middle is not None
        right = await self._counted(middle, whole.high, whole.depth + 1)
        left = NameRange(
            whole.low,
            middle,
            whole.total - right.total,
            whole.untracked - right.untracked,
            whole.depth + 1,
        )
        return left, right

    async def _counted(self, low: str, high: str | None, depth: int) -> NameRange:
        total, tracked = await asyncio.gather(
            *(
                self.client.count(
                    self._query(low, high, tracked=tracked), 2**53, self.op, self.transaction
                )
                for tracked in (False, True)
            )
        )
        untracked = total - tracked - sum(self._inside(low, high, name) for name in self.known)
        return NameRange(low, high, total, untracked, depth)

    def _inside(self, low: str, high: str | None, name: str) -> bool:
        parts = self._parts(name)
        after = not low or parts >= self._parts(self._name(low))
        return after and (high is None or parts < self._parts(self._name(high)))

    def _middle(self, whole: NameRange) -> str | None:
        return middle(whole.low, whole.high, len(names.collections(self.kind)))

    async def read(self, found: NameRange) -> AsyncIterator[list[Any]]:
        """Read a range in pages; yield the documents without tracking."""
        last: str | None = None
        while True:
            query = self._query(found.low, found.high)
            if last is not None:
                query.start_at.values.add(reference_value=last)
                query.start_at.before = False
            query.order_by.add(field={"field_path": NAME}, direction=1)
            query.limit.value = PAGE
            page = await self.client.query(query, self.op)
            yield [d for d in page if not is_tracked(d) and d.name not in self.known]
            if len(page) < PAGE:
                return
            last = page[-1].name

    def _query(self, low: str, high: str | None, *, tracked: bool = False) -> Any:
        filters: list[dict[str, Any]] = []
        for op, position in ((_AT_LEAST, low), (_LESS, high)):
            if position:
                name = {"reference_value": self._name(position)}
                filters.append({"field": {"field_path": NAME}, "op": op, "value": name})
        if tracked:
            shards = [{"integer_value": shard} for shard in range(SHARDS)]
            filters.append(
                {
                    "field": {"field_path": SHARD},
                    "op": _IN,
                    "value": {"array_value": {"values": shards}},
                }
            )
        query = StructuredQuery(
            from_=[
                {
                    "collection_id": self.kind.table,
                    "all_descendants": self.kind.within is not None,
                }
            ]
        )
        if len(filters) == 1:
            query.where.field_filter.CopyFrom(type(query.where.field_filter)(**filters[0]))
        elif filters:
            query.where.composite_filter.op = _AND
            for each in filters:
                query.where.composite_filter.filters.add(field_filter=each)
        return query

    def _name(self, position: str) -> str:
        """The document name at a position: the ids on the path to it, without the collections."""
        ids = position.split(_SEP)
        parts = zip(names.collections(self.kind), ids, strict=False)
        return "/".join([self.client.root, *(f"{table}/{id}" for table, id in parts)])

    def _parts(self, name: str) -> list[str]:
        return name[len(self.client.root) + 1 :].split("/")


def _enough(ranges: list[NameRange], limit: int) -> list[NameRange]:
    """The first ranges that together have ``limit`` documents without tracking."""
    ranges = sorted(ranges, key=lambda r: r.low)
    sums = accumulate((r.untracked for r in ranges), initial=0)
    return [r for r, before in zip(ranges, sums, strict=False) if before < limit]


def middle(low: str, high: str | None, depth: int = 1) -> str | None:
    """A position between two, None if there is none to split at. ``depth``: ids in a position."""
    i = 0
    while high is not None and i < len(low) and low[i] == high[i]:
        i += 1
    prefix, rest = low[:i], low[i:]
    a = max(_FIRST, ord(rest[0])) if rest else _FIRST
    b = ord(high[i]) if high is not None else _LAST
    if high is None and a >= _LAST - 1:
        b = 0x10FFFF
    if letter := _between(a, b):
        found = prefix + letter
        last = found.rpartition(_SEP)[2]
        reserved = last in (".", "..") or (last.startswith("__") and last.endswith("__"))
        return found + "0" if reserved else found
    if rest:
        deeper = middle(rest[1:], None, depth - (prefix + rest[0]).count(_SEP))
        return None if deeper is None else prefix + rest[0] + deeper
    if prefix.count(_SEP) < depth - 1:
        return f"{prefix}{_SEP}{chr((_FIRST + _LAST) // 2)}"
    return None


def _between(a: int, b: int) -> str | None:
    """A character between two codes that may be in an id."""
    code = (a + b) // 2
    if code == ord("/"):
        code += 1 if code + 1 < b else -1
    if 0xD800 <= code < 0xE000:  # not characters
        code = 0xE000
    return chr(code) if a < code < b else None
