"""The Firestore store: the whole protocol on google-cloud-firestore's asynchronous client."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from pydantic_core import to_json

from esclusa.model.budget import Budget, Denied, Granted, WindowUse
from esclusa.model.query import Cond, Page, Query
from esclusa.model.record import Kind, Record, Ref
from esclusa.model.settlement import (
    Backlog,
    ClaimRequest,
    Duplicate,
    Inserted,
    Leased,
    RecordWithChildren,
    Renewal,
    Settlement,
    StateCount,
    StateSummary,
    Step,
    Verdict,
    drafts_of,
)
from esclusa.model.stage import Stage
from esclusa.stores.firestore import asking, indexes, keeping, names, schema
from esclusa.stores.firestore.budgets import Budgets
from esclusa.stores.firestore.claims import Claimer, Leases
from esclusa.stores.firestore.codec import Codec
from esclusa.stores.firestore.settling import Settler
from esclusa.stores.firestore.standing import Desk, Standing, draft
from esclusa.stores.firestore.wakes import Wakes
from esclusa.stores.firestore.wire import Stale, Wire, chunked

_FRESH = 60.0
"""Seconds after which the server is asked the time again, if no other call told it."""


def new_id() -> str:
    """A random id: Firestore wants names that are spread, not counted up."""
    return uuid.uuid4().hex


class FirestoreStore:
    """Records as documents of a Firestore database in Native mode.

    With ``FIRESTORE_EMULATOR_HOST`` set it speaks to the emulator there, else to Google with the application's default
    credentials. ``reads`` and ``writes`` count what was asked of Firestore by operation: that is what it costs.
    """

    def __init__(
        self,
        project: str,
        database: str = "(default)",
        *,
        clock_offset: float = 0.0,
        new_id: Callable[[], str] = new_id,
        client: FirestoreAsyncClient | None = None,
        rng: Random | None = None,
    ) -> None:
        self.url = f"firestore://{project}/{database}"
        self.clock_offset = clock_offset
        self._new_id = new_id
        self._wire = Wire(project, database, client)
        self._rng = rng or Random()
        self._codecs: dict[str, Codec] = {}
        self._worked: dict[str, frozenset[str]] = {}
        self._leases = Leases()
        self._claimer = Claimer(self._wire, self._leases, self._rng, {}, {})
        self._settler = Settler(self._wire, self._leases, self._rng)
        self._budgets = Budgets(self._wire, self._rng)
        self._wakes = Wakes(self._wire, uuid.uuid4().hex)

    @property
    def reads(self) -> Counter[str]:
        """Documents read, by operation."""
        return self._wire.cost.reads

    @property
    def writes(self) -> Counter[str]:
        """Documents written and deleted, by operation."""
        return self._wire.cost.writes

    def watch_queries(self, seen: Callable[[str, indexes.Shape], None] | None) -> None:
        """Have every query's shape told, with the operation that makes it: to check them against the index file."""
        self._wire.seen = (
            None
            if seen is None
            else lambda op, query, average: seen(op, indexes.shape_of(query, average))
        )

    async def open(self) -> None:
        await self._wire.open()

    async def close(self) -> None:
        await self._wakes.close()
        await self._wire.close()

    async def migrate(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        return await schema.migrate(self._wire, kinds)

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        return await schema.pending(self._wire, kinds)

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        await schema.use(self._wire, kinds)
        for kind in kinds:
            self._codecs[kind.table] = Codec(kind)
            self._worked[kind.table] = frozenset(
                state for s in stages if s.kind == kind for state in s.states
            )

    async def now(self) -> datetime:
        if self._wire.clock.age > _FRESH:
            await self._wire.get([f"{self._wire.root}/{names.SCHEMA}/_store"], "clock")
        return self._shifted()

    def _shifted(self) -> datetime:
        return self._wire.clock.now() + timedelta(seconds=self.clock_offset)

    # records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        desk = await self._desk()
        drafts = [draft(desk, record) for record in records]
        first: dict[str, Standing] = {}
        for each in drafts:
            first.setdefault(each.name, each)
        writes = [each.writes(desk)[0] for each in first.values()]
        results = await self._wire.each(writes, "insert") if writes else []
        made = {name for name, result in zip(first, results, strict=True) if result is not None}
        answers: list[Inserted | Duplicate] = []
        for each in drafts:
            new = each.name in made
            made.discard(each.name)
            answers.append(Inserted(each.id) if new else Duplicate(each.id))
        self._wakes.tell(
            {
                each.kind.table
                for each, a in zip(drafts, answers, strict=True)
                if isinstance(a, Inserted)
            }
        )
        return answers

    async def insert_if_new(self, families: Sequence[RecordWithChildren]) -> list[int | None]:
        desk = await self._desk()
        members = [
            [draft(desk, record) for record in (family.first, *drafts_of(family.rest))]
            for family in families
        ]
        answers: list[int | None] = []
        for chunk in chunked(
            [write for each in family for write in each.writes(desk)] for family in members
        ):
            answers += await self._new_families(
                desk, members[len(answers) : len(answers) + len(chunk)]
            )
        return answers

    async def _new_families(
        self, desk: Desk, families: Sequence[Sequence[Standing]]
    ) -> list[int | None]:
        """As many families as one commit takes."""
        while True:
            known = set(
                await self._wire.get(
                    list({each.name for family in families for each in family}), "insert"
                )
            )
            new: list[list[Standing]] = []
            for family in families:
                new.append([])
                if family[0].name not in known:
                    for each in family:
                        if each.name not in known:
                            new[-1].append(each)
                            known.add(each.name)
            writes = [write for family in new for each in family for write in each.writes(desk)]
            try:
                if writes:
                    await self._wire.commit(writes, "insert")
            except Stale:  # somebody else made one of them meanwhile
                continue
            self._wakes.tell({each.kind.table for family in new for each in family})
            return [len(family) - 1 if family else None for family in new]

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        codec = self._codec(kind)
        wanted = {id: names.path(kind, id) for id in ids}
        found = await self._wire.get(
            [f"{self._wire.root}/{p}" for p in wanted.values() if p is not None], "get"
        )
        out: list[Record | None] = []
        for id in ids:
            document = found.get(f"{self._wire.root}/{wanted[id]}")
            out.append(
                None if document is None else codec.record(codec.values(document.fields, id))
            )
        return out

    async def find(self, query: Query) -> Page[Record]:
        codec, prepared = self._prepare(query)
        after = None if query.after is None else asking.read_cursor(prepared)
        found = await asking.page(self._wire, codec, prepared, query.limit + 1, "find", after)
        shown = found[: query.limit]
        more = asking.write_cursor(prepared, shown[-1]) if len(found) > query.limit else None
        return Page([codec.record(f.values) for f in shown], more)

    async def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        codec, prepared = self._prepare(query.but(after=None))
        after = None
        while found := await asking.page(self._wire, codec, prepared, size, "scan", after):
            after = asking.place_of(prepared, found[-1])
            yield [f.values for f in found]
            if len(found) < size:
                return

    async def scan_columns(
        self, query: Query, size: int = 5000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        kinds = query.kind.types
        async for page in self.scan(query, size):
            columns: dict[str, Sequence[Any]] = {
                name: [row.get(name) for row in page] for name in query.kind.columns
            }
            for name in (n for n in columns if kinds[n] == "json"):
                columns[name] = [
                    None if value is None else to_json(value).decode() for value in columns[name]
                ]
            yield columns

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        states, most = kind.lifecycle.states, 2**53 if cap is None else cap
        queries = [self._prepare(Query(kind, (("status", Cond("eq", state)),))) for state in states]
        counts = await asyncio.gather(
            *(asking.count(self._wire, codec, q, most + 1, "tally") for codec, q in queries)
        )
        return [
            StateCount(state, min(count, most), count <= most)
            for state, count in zip(states, counts, strict=True)
        ]

    async def summary(self, query: Query, average: str) -> list[StateSummary]:
        out = []
        for state in sorted(query.kind.lifecycle.states):
            codec, prepared = self._prepare(
                query.but(where=(*query.where, ("status", Cond("eq", state))), order=(), after=None)
            )
            if count := await asking.count(self._wire, codec, prepared, 2**53, "summary"):
                out.append(
                    StateSummary(
                        state,
                        count,
                        await asking.mean(self._wire, codec, prepared, average, "summary"),
                    )
                )
        return out

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        codec, prepared = self._prepare(query)
        found = await asking.count(self._wire, codec, prepared, cap + 1, "count")
        return min(found, cap), found <= cap

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        return await keeping.history(self._wire, ref, limit, newest)

    async def purge(self, query: Query) -> int:
        return await keeping.purge(self._wire, await self._desk(), query)

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        return await keeping.remove(self._wire, refs)

    async def archive(self, query: Query, export: str | None = None) -> int:
        return await keeping.archive(self._wire, await self._desk(), query, export)

    async def assign(self, query: Query, export: str) -> int:
        return await keeping.assign(self._wire, await self._desk(), query, export)

    async def undeclared(self, kind: Kind) -> list[str]:
        return (
            ["whatever its documents hold besides"] if kind.attached else []
        )  # a collection has no list of fields

    # claim and settle

    async def claim(self, ask: ClaimRequest) -> list[Leased]:
        return await self._claimer.claim(await self._desk(), ask)

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        return await self._claimer.renew(await self._desk(), renewals)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        woken: set[str] = set()
        try:
            return await self._settler.settle(await self._desk(), settlements, woken)
        finally:
            self._wakes.tell(woken)

    async def backlog(self, ask: ClaimRequest, cap: int = 10_000) -> Backlog:
        return await self._claimer.backlog(await self._desk(), ask, cap)

    # budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1
    ) -> Granted | Denied:
        return await self._budgets.spend(budget, await self.now(), units, spender, least)

    async def refund(
        self, budget: Budget, units: int, spender: str, at: datetime | None = None
    ) -> None:
        await self._budgets.refund(budget, await self.now(), units, spender, at)

    async def observe(
        self,
        budget: Budget,
        per: str,
        *,
        used: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> None:
        await self._budgets.observe(budget, await self.now(), per, used, limit, until)

    async def usage(self, budget: Budget) -> list[WindowUse]:
        return await self._budgets.usage(budget, await self.now())

    # waking

    async def wake(self, kind: Kind) -> None:
        self._wakes.tell([kind.table])

    async def listen(
        self, heard: Callable[[str], Awaitable[None] | None]
    ) -> Callable[[], Awaitable[None]]:
        return await self._wakes.listen(heard)

    async def _desk(self) -> Desk:
        return Desk(
            self._wire.root,
            self._codec,
            await self.now(),
            self._new_id,
            self._worked,
            self._shifted,
        )

    def _codec(self, kind: Kind) -> Codec:
        if kind.table not in self._codecs:
            self._codecs[kind.table] = Codec(kind)
        return self._codecs[kind.table]

    def _prepare(self, query: Query) -> tuple[Codec, asking.Asking]:
        codec = self._codec(query.kind)
        return codec, asking.prepare(codec, query, self._wire.root)
