"""The store on one SQLite file, which several processes may share."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw

from esclusa.model.adoption import ALL, inserted, untouched
from esclusa.model.budget import Budget, Denied, Granted, PastWindow, Window, WindowUse
from esclusa.model.earlier_ids import IdChange
from esclusa.model.errors import BadRecord, SchemaBehind, SchemaRefused
from esclusa.model.kind import Kind, Ref
from esclusa.model.migration import MigrationStep, Progress, refuse_foreign, summaries
from esclusa.model.query import Grouping, Page, Query, Total
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
from esclusa.model.texts import text
from esclusa.ports.store import OnAdopted, OnRefused, StoreFaults
from esclusa.stores.callbacks import Callback
from esclusa.stores.earlier_ids import IdChanger
from esclusa.stores.isolate import ClaimIsolation, RefusedRenames, settle_isolated
from esclusa.stores.sqlite import (
    budgets,
    claims,
    inserts,
    maintenance,
    queries,
    renames,
    schema,
)
from esclusa.stores.sqlite.client import ConnectionThread
from esclusa.stores.sqlite.codec import encode_time
from esclusa.stores.sqlite.notifications import WakeListener, count_wakes
from esclusa.stores.sqlite.settlements import settle
from esclusa.stores.sqlite.transaction import CompiledKinds, Transaction

T = TypeVar("T")

# The path of a database in memory, which ends with its store. For tests: one process, one store.
MEMORY = ":memory:"


def uuid7() -> str:
    """Return a version 7 UUID (RFC 9562): time comes first, so new rows are index neighbours."""
    number = (time.time_ns() // 1_000_000 << 80) | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | (7 << 76)
    return str(UUID(int=number & ~(3 << 62) | (2 << 62)))


class SqliteStore:
    """Records in a SQLite file in WAL mode.

    One thread writes. Another reads, so that a long list does not delay a claim. A third counts to
    the end, so that a large table does not delay a list.

    ``busy``: seconds to wait for another process that writes before StoreUnavailable.
    """

    metered = False

    def __init__(
        self,
        path: str | Path,
        *,
        clock_offset: float = 0.0,
        new_id: Callable[[], str] = uuid7,
        busy: float = 10.0,
    ) -> None:
        self.path = Path(path)
        self.url = f"sqlite:///{self.path}"
        self._in_memory = str(path) == MEMORY
        self.clock_offset = clock_offset
        self._new_id = new_id
        self._busy = busy
        self._make_threads()
        self._written_kinds = CompiledKinds()
        self._read_kinds = CompiledKinds()  # each thread has its own
        self._indexes: frozenset[str] = frozenset()
        self._stage_states: defaultdict[str, set[str]] = defaultdict(set)
        self._refused_renames = defaultdict[str, RefusedRenames](RefusedRenames)
        # By stage with a limit per key: the key whose record was claimed last.
        self._turns: dict[str, Any] = {}
        self._listener = WakeListener()
        self.on_refused: OnRefused | None = None
        self.on_adopted: OnAdopted | None = None
        self._claims = ClaimIsolation(
            self._claim,
            self._candidates,
            lambda ref, why: self.on_refused and self.on_refused(ref, why),
        )

    def _make_threads(self) -> None:
        self._writer = ConnectionThread(self.path, "writer", self._busy)
        if self._in_memory:  # only one connection sees the database
            self._reader = self._counter = self._writer
            return
        self._reader = ConnectionThread(self.path, "reader", self._busy)
        self._counter = ConnectionThread(self.path, "counter", self._busy, cache=4)

    async def open(self) -> None:
        self._make_threads()
        try:
            for thread in dict.fromkeys((self._writer, self._reader, self._counter)):
                await thread.open()
        except BaseException:
            await self._close_threads()
            raise

    async def close(self) -> None:
        await self._listener.close()
        await self._close_threads()

    async def _close_threads(self) -> None:
        for thread in (self._counter, self._reader, self._writer):
            await thread.close()

    def _now(self) -> datetime:
        """Return this machine's time: all processes that share the file run on it."""
        return datetime.now(UTC) + timedelta(seconds=self.clock_offset)

    async def now(self) -> datetime:
        return self._now()

    async def check(self, seconds: float) -> StoreFaults:
        threads = (self._writer, self._reader, self._counter)
        met = dict.fromkeys(each.damage for each in threads if each.damage)
        faults = [text("store_damaged", store=self.path, why=why) for why in met]
        if self._writer.read_only:
            faults.append(text("store_read_only", store=self.path))
        if not seconds or self._in_memory:
            return StoreFaults(tuple(faults), complete=self._in_memory)
        thread = ConnectionThread(self.path, "check", self._busy, cache=4)
        await thread.open()
        try:
            found, complete = await thread.call(lambda c: maintenance.quick_check(c, seconds))
        finally:
            await thread.close()
        faults += [text("store_damaged", store=self.path, why=why) for why in found]
        return StoreFaults(tuple(dict.fromkeys(faults)), complete)

    # schema

    async def migrate(
        self,
        kinds: Sequence[Kind],
        stages: Sequence[Stage],
        *,
        foreign: bool = False,
        progress: Progress | None = None,
    ) -> list[str]:
        def run(connection: apsw.Connection) -> list[str]:
            plan = schema.plan(connection, kinds, stages)
            if not foreign:
                refuse_foreign(plan.steps)
            # workers of the version before may still use what is obsolete since this migration
            steps = plan.steps or (plan.obsolete if foreign and not added else [])
            added.extend(plan.steps)
            earlier[:] = plan.earlier_ids
            return schema.apply(connection, steps) if steps else []

        done: list[str] = []
        added: list[MigrationStep] = []
        earlier: list[Kind] = []
        while lines := await self._writer.write(run):
            done += lines
            if progress is not None:
                progress("; ".join(lines))
        await self._remember(kinds, stages)
        return done + await IdChanger(self, kinds).run(earlier, progress or (lambda line: None))

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[MigrationStep]:
        plan = await self._reader.call(lambda c: schema.plan(c, kinds, stages))
        return plan.all_steps or plan.obsolete

    async def notes(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        return (await self._reader.call(lambda c: schema.plan(c, kinds, stages))).notes

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        plan = await self._reader.call(lambda c: schema.plan(c, kinds, stages, rows=False))
        if plan.all_steps:
            raise SchemaBehind(
                f"{self.url} is not up to date; run: esclusa migrate", summaries(plan.all_steps)
            )
        await self._remember(kinds, stages)

    async def _remember(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        self._written_kinds, self._read_kinds = CompiledKinds(), CompiledKinds()
        if any(kind.foreign_keys for kind in kinds):
            await self._writer.call(lambda c: c.pragma("foreign_keys", True))
        self._indexes = await self._reader.call(schema.indexes)
        for stage in stages:
            self._stage_states[stage.kind.table] |= set(stage.states)

    # records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        return await self._write(lambda t: inserts.insert(t, records)) if records else []

    async def insert_if_new(self, groups: Sequence[RecordWithChildren]) -> list[int | None]:
        return await self._write(lambda t: inserts.insert_if_new(t, groups))

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        return await self._reader.call(lambda c: queries.get(c, self._read_kinds, kind, ids))

    async def find(self, query: Query) -> Page[Record]:
        return await self._reader.call(lambda c: queries.find(c, self._read_kinds, query))

    def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        return self._pages(lambda c: queries.scan(c, CompiledKinds(), query, size))

    def scan_columns(
        self, query: Query, size: int = 20_000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        return self._pages(lambda c: queries.scan_columns(c, query, size))

    async def _pages(self, scan: Callable[[apsw.Connection], Iterator[T]]) -> AsyncIterator[T]:
        """Yield pages from one snapshot, on a connection of their own."""
        if self._in_memory:  # there is no other connection, so the snapshot is read at once
            for whole in await self._reader.call(lambda c: list(scan(c))):
                yield whole
            return
        thread = ConnectionThread(self.path, "scan", self._busy)
        await thread.open()
        try:
            await thread.call(lambda c: c.execute("BEGIN"))
            pages = await thread.call(scan)
            while page := await thread.call(lambda _: next(pages, None)):
                yield page
        finally:
            await thread.close()

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        if cap is not None:
            return await self._reader.call(lambda c: queries.tally(c, kind, cap))
        return await self._counter.call(lambda c: queries.full_tally(c, kind))

    async def totals(self, query: Query, grouping: Grouping) -> list[Total]:
        return await self._counter.call(lambda c: queries.totals(c, query, grouping))

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        return await self._reader.call(lambda c: queries.count(c, query, cap))

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        return await self._reader.call(lambda c: maintenance.history(c, ref, limit, newest))

    async def histories(self, kind: Kind, ids: Sequence[str], each: int = 1000) -> list[list[Step]]:
        return await self._reader.call(lambda c: maintenance.histories(c, kind, ids, each))

    async def prune_history(self, before: datetime, limit: int) -> int:
        return await self._writer.write(lambda c: maintenance.prune_history(c, before, limit))

    async def partition_history(self) -> list[str]:
        raise SchemaRefused(
            "the history cannot be divided by month", ["only PostgreSQL has partitions"]
        )

    async def purge(self, query: Query) -> int:
        return await self._writer.write(lambda c: maintenance.purge(c, query))

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        return await self._write(lambda t: maintenance.remove(t, refs))

    async def archive(self, query: Query, export: str | None = None) -> int:
        return await self._writer.write(
            lambda c: maintenance.archive(c, query, encode_time(self._now()), export)
        )

    async def assign(self, query: Query, export: str) -> int:
        return await self._writer.write(lambda c: maintenance.assign(c, query, export))

    async def restore(self, kind: Kind, rows: Sequence[Mapping[str, Any]], export: str) -> int:
        return await self._writer.write(
            lambda c: maintenance.restore(c, kind, rows, encode_time(self._now()), export)
        )

    async def make_partitions(self, kind: Kind) -> None:
        return  # there are none

    async def undeclared(self, kind: Kind) -> list[str]:
        return await self._reader.call(lambda c: maintenance.undeclared(c, kind))

    async def states(self, kind: Kind) -> list[str]:
        return await self._reader.call(lambda c: renames.states(c, kind))

    async def rename_states(self, kind: Kind, limit: int = 1000, who: str = "migrate") -> int:
        if not kind.lifecycle.renamed:
            return 0
        refused = self._refused_renames[kind.table]

        async def rename(ids: Sequence[str] | None = None) -> int:
            return await self._write(
                lambda t: renames.rename_states(t, kind, limit, who, refused.ids, ids)
            )

        try:
            moved = await rename()
        except BadRecord:  # a constraint or trigger of another program's table
            ids = await self._reader.call(
                lambda c: renames.renamed_ids(c, kind, limit, refused.ids)
            )
            moved = await refused.divide(ids, rename, (BadRecord,))
        refused.check(moved, kind.table)
        return moved

    async def change_ids(self, kind: Kind, changes: Sequence[IdChange], archived: bool) -> int:
        return await self._writer.write(lambda c: renames.change_ids(c, kind, changes, archived))

    async def ids_changed(self, kind: Kind) -> None:
        await self._writer.write(lambda c: renames.ids_changed(c, kind))

    async def adopt(self, kinds: Sequence[Kind], before: datetime) -> dict[str, int]:
        return {}  # null tracking means a new record

    async def adopted(self, kind: Kind) -> int:
        if not kind.attached:
            return 0
        if (own := inserted(kind)) is None:
            return (await self.count(untouched(kind), ALL))[0]
        return (await self.count(Query(kind), ALL))[0] - (await self.count(own, ALL))[0]

    async def unadopted(self, kind: Kind) -> None:
        return None

    async def foreign_documents(
        self, kind: Kind, parent: str, begins: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        return []

    # claim and settle

    async def claim(self, request: ClaimRequest) -> list[Leased]:
        return await self._claims.claim(request) if request.limit > 0 else []

    async def _claim(self, request: ClaimRequest) -> list[Leased]:
        return await self._write(lambda t: claims.claim(t, request, self._turns))

    async def _candidates(self, request: ClaimRequest) -> list[str]:
        now, indexes = encode_time(self._now()), self._indexes
        return await self._reader.call(lambda c: claims.candidate_ids(c, request, now, indexes))

    async def foreign_locks(self, kind: Kind, ids: Sequence[str]) -> dict[str, datetime]:
        now = self._now()
        return await self._reader.call(lambda c: claims.foreign_locks(c, kind, ids, now))

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        return await self._write(lambda t: claims.renew(t, renewals)) if renewals else set()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        return await settle_isolated(settlements, lambda s: self._write(lambda t: settle(t, s)))

    async def backlog(self, request: ClaimRequest, cap: int = 10_000) -> Backlog:
        return await self._reader.call(
            lambda c: queries.backlog(c, request, encode_time(self._now()), cap, self._indexes)
        )

    # budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1, ahead: float = 0.0
    ) -> Granted | Denied:
        return await self._writer.write(
            lambda c: budgets.spend(c, budget, units, spender, least, ahead, self._now())
        )

    async def refund(
        self, budget: Budget, units: int, spender: str, at: datetime | None = None
    ) -> None:
        await self._writer.write(
            lambda c: budgets.refund(c, budget, units, spender, at, self._now())
        )

    async def observe(
        self,
        budget: Budget,
        per: str,
        *,
        used: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> None:
        await self._writer.write(
            lambda c: budgets.observe(c, budget, per, used, limit, until, self._now())
        )

    async def usage(self, budget: Budget) -> list[WindowUse]:
        return await self._reader.call(lambda c: budgets.usage(c, budget, self._now()))

    async def past_usage(
        self, budget: Budget, window: Window, starts: Sequence[datetime]
    ) -> list[PastWindow]:
        return await self._reader.call(lambda c: budgets.past_usage(c, budget, window, starts))

    # waking

    async def wake(self, kind: Kind) -> None:
        await self._write(lambda t: t.woken.add(kind.table))

    async def listen(self, callback: Callback) -> Callable[[], Awaitable[None]]:
        return await self._listener.add(self._writer, callback)

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` in a transaction; wake the listeners of the tables that it names."""

        def run(connection: apsw.Connection) -> tuple[T, set[str]]:
            transaction = Transaction(
                connection,
                self._written_kinds,
                self._now(),  # read under the lock: a call that waited must not use an old time
                self._new_id,
                self._stage_states,
                self._indexes,
            )
            answer = work(transaction)
            count_wakes(connection, transaction.woken)
            return answer, transaction.woken

        answer, woken = await self._writer.write(run)
        self._listener.notify(woken)
        return answer
