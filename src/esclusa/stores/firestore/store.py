"""The Firestore store: the store protocol on google-cloud-firestore's asynchronous client."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from pydantic_core import to_json

from esclusa.model.adoption import Unadopted
from esclusa.model.budget import Budget, Denied, Granted, PastWindow, Window, WindowUse
from esclusa.model.earlier_ids import IdChange
from esclusa.model.errors import SchemaRefused
from esclusa.model.kind import Kind, Ref
from esclusa.model.migration import MigrationStep, Progress
from esclusa.model.query import Cond, Grouping, Page, Query, Total
from esclusa.model.record import Record
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
    Step,
    Verdict,
)
from esclusa.model.stage import Stage
from esclusa.ports.store import OnAdopted, OnRefused
from esclusa.stores.callbacks import Callback
from esclusa.stores.earlier_ids import IdChanger
from esclusa.stores.firestore import (
    cursors,
    indexes,
    inserts,
    maintenance,
    names,
    queries,
    renames,
    schema,
    totals,
    untracked,
)
from esclusa.stores.firestore.adoption import Adopter
from esclusa.stores.firestore.budgets import BudgetDocuments
from esclusa.stores.firestore.claims import DocumentClaimer
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.codec import Codec
from esclusa.stores.firestore.documents import CallContext
from esclusa.stores.firestore.found import PreparedQuery
from esclusa.stores.firestore.leases import KeptLeases, LeaseCache, LeaseRenewals
from esclusa.stores.firestore.notifications import WakeNotifier
from esclusa.stores.firestore.settlements import DocumentSettler
from esclusa.stores.isolate import ClaimIsolation, RefusedRenames

# Seconds after which the server's time is measured again, if no other call measured it.
_MAX_CLOCK_AGE = 60.0


def new_id() -> str:
    """A random id: Firestore writes fastest to names that are far apart, not counted up."""
    return uuid.uuid4().hex


class FirestoreStore:
    """Records as documents of a Firestore database in Native mode.

    With ``FIRESTORE_EMULATOR_HOST`` set it uses the emulator at that address, otherwise Google with
    the application's default credentials. ``reads`` and ``writes`` count documents by operation,
    which is what Firestore charges for.
    """

    metered = True

    def __init__(
        self,
        project: str,
        database: str = "(default)",
        *,
        clock_offset: float = 0.0,
        new_id: Callable[[], str] = new_id,
        client: FirestoreAsyncClient | None = None,
        rng: Random | None = None,
        adopt_every: float = 60.0,
    ) -> None:
        self.url = f"firestore://{project}/{database}"
        self.clock_offset = clock_offset
        self._new_id = new_id
        self._client = FirestoreClient(project, database, client)
        self.reads, self.writes = self._client.reads, self._client.writes
        rng = rng or Random()
        self._codecs: dict[str, Codec] = {}
        self._refused_renames = defaultdict[str, RefusedRenames](RefusedRenames)
        self._staged_states: dict[str, frozenset[str]] = {}
        self._held_states: dict[str, dict[str, float | None]] = {}
        leases, kept = LeaseCache(), KeptLeases(self._client)
        self._claimer = DocumentClaimer(self._client, leases, kept, rng)
        self._renewals = LeaseRenewals(self._client, leases, kept)
        self.on_refused: OnRefused | None = None
        self._claims = ClaimIsolation(
            self._claim,
            self._candidates,
            lambda ref, why: self.on_refused and self.on_refused(ref, why),
        )
        self._budgets = BudgetDocuments(self._client, rng)
        self._notifier = WakeNotifier(self._client, uuid.uuid4().hex)
        self.on_adopted: OnAdopted | None = None
        self._adopter = Adopter(
            self._client,
            adopt_every,
            self._notifier.notify,
            lambda adopted: self.on_adopted and self.on_adopted(adopted),
            self._held_states,
        )
        self._settler = DocumentSettler(self._client, leases, rng, self._notifier.notify)

    def watch_queries(self, observer: Callable[[str, indexes.QueryShape], None] | None) -> None:
        """Call ``observer`` with the operation and shape of every query; None ends it.

        Tests use it to check queries against the index file.
        """
        self._client.on_query = (
            None
            if observer is None
            else lambda op, query, summed: observer(op, indexes.shape_of(query, summed))
        )

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._notifier.close()
        await self._client.close()

    async def check(self, seconds: float) -> None:
        return None

    async def migrate(
        self,
        kinds: Sequence[Kind],
        stages: Sequence[Stage],
        *,
        foreign: bool = False,
        progress: Progress | None = None,
    ) -> list[str]:
        self._learn_stages(kinds, stages)
        done, earlier = await schema.migrate(
            self._client, await self._context(), kinds, self._adopter, foreign=foreign
        )
        return done + await IdChanger(self, kinds).run(earlier, progress or (lambda line: None))

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[MigrationStep]:
        return await schema.pending(self._client, kinds, self._adopter)

    async def notes(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        return []

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        foreign = await schema.use(self._client, kinds)
        self._learn_stages(kinds, stages)
        for kind in kinds:
            kind.found_without(frozenset())
            codec = self._codecs[kind.table] = Codec(kind)
            codec.foreign = self._adopter.watch(kind).foreign = kind in foreign

    def _learn_stages(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        for kind in kinds:
            own = [s for s in stages if s.kind == kind]
            self._staged_states[kind.table] = frozenset(state for s in own for state in s.states)
            held = {s.hold: s.abandoned_after for s in own if s.hold is not None}
            self._held_states[kind.table] = held

    async def now(self) -> datetime:
        if self._client.clock.age > _MAX_CLOCK_AGE:
            await self._client.get([f"{self._client.root}/{names.SCHEMA}/_store"], "clock")
        return self._shifted()

    def _shifted(self) -> datetime:
        return self._client.clock.now() + timedelta(seconds=self.clock_offset)

    # Records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        return await inserts.insert(
            self._client, await self._context(), records, self._notifier.notify
        )

    async def insert_if_new(self, groups: Sequence[RecordWithChildren]) -> list[int | None]:
        return await inserts.insert_if_new(
            self._client, await self._context(), groups, self._notifier.notify
        )

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        codec = self._codec(kind)
        root, paths = self._client.root, [names.path(kind, id) for id in ids]
        found = await self._client.get([f"{root}/{p}" for p in paths if p is not None], "get")
        return [
            codec.checked_record(codec.values(document.fields, id))[0]
            if (document := found.get(f"{root}/{path}")) is not None
            else None
            for id, path in zip(ids, paths, strict=True)
        ]

    async def find(self, query: Query) -> Page[Record]:
        codec, prepared = self._prepare(query)
        after = None if query.after is None else cursors.read_cursor(prepared)
        found = await queries.page(self._client, codec, prepared, query.limit + 1, "find", after)
        shown = found[: query.limit]
        more = cursors.write_cursor(prepared, shown[-1]) if len(found) > query.limit else None
        return Page([codec.checked_record(f.values)[0] for f in shown], more)

    async def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        codec, prepared = self._prepare(query.but(after=None))
        after = None
        while found := await queries.page(self._client, codec, prepared, size, "scan", after):
            after = queries.position_of(prepared, found[-1])
            yield [f.values for f in found]
            if len(found) < size:
                return

    async def scan_columns(
        self, query: Query, size: int = 5000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        types = query.kind.types
        async for page in self.scan(query, size):
            columns: dict[str, Sequence[Any]] = {
                name: [row.get(name) for row in page] for name in query.kind.types
            }
            for name in (n for n in columns if types[n] == "json"):
                columns[name] = [
                    None if value is None else to_json(value).decode() for value in columns[name]
                ]
            yield columns

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        most = 2**53 if cap is None else cap
        states = list(dict.fromkeys([*kind.lifecycle.states, *await self.states(kind)]))
        prepared = [self._prepare(Query(kind, (("status", Cond("eq", s)),))) for s in states]
        counts = await asyncio.gather(
            *(queries.count(self._client, codec, q, most + 1, "tally") for codec, q in prepared)
        )
        return [
            StateCount(state, min(count, most), count <= most)
            for state, count in zip(states, counts, strict=True)
        ]

    async def totals(self, query: Query, grouping: Grouping) -> list[Total]:
        return await totals.totals(
            self._client, self._codec(query.kind), query, grouping, self.states
        )

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        codec, prepared = self._prepare(query)
        found = await queries.count(self._client, codec, prepared, cap + 1, "count")
        return min(found, cap), found <= cap

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        return await maintenance.history(self._client, ref, limit, newest)

    async def histories(self, kind: Kind, ids: Sequence[str], each: int = 1000) -> list[list[Step]]:
        return await maintenance.histories(self._client, kind, ids, each)

    async def prune_history(self, before: datetime, limit: int) -> int:
        return await maintenance.prune_history(self._client, before, limit)

    async def partition_history(self) -> list[str]:
        raise SchemaRefused(
            "the history cannot be divided by month", ["only PostgreSQL has partitions"]
        )

    async def purge(self, query: Query) -> int:
        return await maintenance.purge(self._client, await self._context(), query)

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        return await maintenance.remove(self._client, refs)

    async def archive(self, query: Query, export: str | None = None) -> int:
        return await maintenance.archive(self._client, await self._context(), query, export)

    async def assign(self, query: Query, export: str) -> int:
        return await maintenance.assign(self._client, await self._context(), query, export)

    async def restore(self, kind: Kind, rows: Sequence[Mapping[str, Any]], export: str) -> int:
        return await maintenance.restore(self._client, await self._context(), kind, rows, export)

    async def make_partitions(self, kind: Kind) -> None:
        return  # there are none

    async def undeclared(self, kind: Kind) -> list[str]:
        # A collection has no list of its fields.
        return ["any other fields of its documents"] if kind.attached else []

    async def states(self, kind: Kind) -> list[str]:
        return await renames.states(self._client, self._codec(kind))

    async def rename_states(self, kind: Kind, limit: int = 1000, who: str = "migrate") -> int:
        context = await self._context()
        refused = self._refused_renames[kind.table]
        moved = await renames.rename_states(self._client, context, kind, limit, who, refused)
        refused.check(moved, kind.table)
        if moved:
            self._notifier.notify([kind.table])
        return moved

    async def change_ids(self, kind: Kind, changes: Sequence[IdChange], archived: bool) -> int:
        return await renames.change_ids(self._client, kind, changes, archived)

    async def ids_changed(self, kind: Kind) -> None:
        await schema.ids_changed(self._client, kind)

    async def adopt(self, kinds: Sequence[Kind], before: datetime) -> dict[str, int]:
        context = await self._context()
        return {k.table: await self._adopter.before_run(context, k, before) for k in kinds}

    async def adopted(self, kind: Kind) -> int:
        return await self._adopter.adopted(kind)

    async def unadopted(self, kind: Kind) -> Unadopted | None:
        return await self._adopter.unadopted(kind)

    async def foreign_documents(
        self, kind: Kind, parent: str, begins: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        return await untracked.foreign_documents(self._client, kind, parent, begins, limit)

    # Claims and settlements

    async def claim(self, request: ClaimRequest) -> list[Leased]:
        return await self._claims.claim(request) if request.limit > 0 else []

    async def _claim(self, request: ClaimRequest) -> list[Leased]:
        context = await self._context()
        await self._adopter.before_claim(context, request)
        return await self._claimer.claim(context, request)

    async def _candidates(self, request: ClaimRequest) -> list[str]:
        return await self._claimer.candidate_ids(await self._context(), request)

    async def foreign_locks(self, kind: Kind, ids: Sequence[str]) -> dict[str, datetime]:
        holds = self._held_states.get(kind.table, {})
        return await self._claimer.foreign_locks(await self._context(), kind, ids, holds)

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        return await self._renewals.renew(await self._context(), renewals)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        return await self._settler.settle(await self._context(), settlements)

    async def backlog(self, request: ClaimRequest, cap: int = 10_000) -> Backlog:
        return await self._claimer.backlog(await self._context(), request, cap)

    # Budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1, ahead: float = 0.0
    ) -> Granted | Denied:
        return await self._budgets.spend(budget, await self.now(), units, spender, least, ahead)

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

    async def past_usage(
        self, budget: Budget, window: Window, starts: Sequence[datetime]
    ) -> list[PastWindow]:
        return await self._budgets.past_usage(budget, window, starts)

    # Notifications

    async def wake(self, kind: Kind) -> None:
        self._notifier.notify([kind.table])

    async def listen(self, callback: Callback) -> Callable[[], Awaitable[None]]:
        return await self._notifier.add(callback)

    async def _context(self) -> CallContext:
        return CallContext(
            self._client.root,
            self._codec,
            await self.now(),
            self._new_id,
            self._staged_states,
            self._shifted,
        )

    def _codec(self, kind: Kind) -> Codec:
        if kind.table not in self._codecs:
            self._codecs[kind.table] = Codec(kind)
        return self._codecs[kind.table]

    def _prepare(self, query: Query) -> tuple[Codec, PreparedQuery]:
        codec = self._codec(query.kind)
        return codec, queries.prepare(codec, query, self._client.root)
