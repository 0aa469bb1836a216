"""The store on PostgreSQL, through asyncpg."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from asyncpg.exceptions import UniqueViolationError

from esclusa.model.adoption import ALL, inserted, untouched
from esclusa.model.budget import Budget, Denied, Granted, PastWindow, Window, WindowUse
from esclusa.model.earlier_ids import IdChange
from esclusa.model.errors import SchemaBehind, SchemaError
from esclusa.model.kind import Kind, Ref
from esclusa.model.migration import MigrationStep, Progress, summaries
from esclusa.model.query import Grouping, Page, Query, Total
from esclusa.model.record import Record
from esclusa.model.settlement import (
    Backlog,
    ClaimRequest,
    Duplicate,
    FanOut,
    Inserted,
    Leased,
    RecordWithChildren,
    Renewal,
    Settlement,
    StateCount,
    Step,
    Verdict,
    drafts_of,
)
from esclusa.model.stage import Stage
from esclusa.ports.store import OnAdopted, OnRefused
from esclusa.stores.callbacks import Callback
from esclusa.stores.earlier_ids import IdChanger
from esclusa.stores.isolate import ClaimIsolation, RefusedRenames, StatementTimeout
from esclusa.stores.postgres import (
    claims,
    history_months,
    inserts,
    leases,
    maintenance,
    migrate,
    partitions,
    queries,
    renames,
    schema,
)
from esclusa.stores.postgres.budgets import BudgetTable
from esclusa.stores.postgres.client import ROW_CONFLICTS, VALUE_ERRORS, ConnectionPools, Fetch
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.history_pruning import HistoryPruner
from esclusa.stores.postgres.isolation import SettlementIsolation
from esclusa.stores.postgres.key_limits import KeyLimitedClaims, KeyTurns
from esclusa.stores.postgres.limits import LONG_LIMITS, StatementLimits, part_limits
from esclusa.stores.postgres.names import SCHEMA, Installation
from esclusa.stores.postgres.notifications import NotificationListener
from esclusa.stores.postgres.settlements import settle, woken_tables
from esclusa.stores.postgres.statements import WriteContext
from esclusa.stores.postgres.wakes import WakeTable


class PostgresStore:
    """Records in PostgreSQL, in tables that the connection's search path finds.

    ``schema`` has Esclusa's own tables. Installations with different schemas share nothing.
    ``statement_cache_size=0`` is for a pooler such as PgBouncer; notifications from other processes
    then need a session-mode pool, and polling remains. ``clock_offset`` may change at any time.
    ``portable``: do without what other databases with PostgreSQL's protocol lack; see ``names``.
    ``timeout``: seconds after which a claim, renewal or settlement that does not end is given up;
    well below the shortest lease.
    """

    metered = False

    def __init__(
        self,
        dsn: str,
        *,
        clock_offset: float = 0.0,
        new_id: Callable[[], str] = lambda: str(uuid4()),
        pool_size: int = 8,
        statement_cache_size: int = 512,
        timeout: float = 10.0,
        schema: str = SCHEMA,
        portable: bool = False,
    ) -> None:
        self._installation = Installation(schema, portable)
        self._connections = ConnectionPools(
            dsn, pool_size, statement_cache_size, timeout, self._installation
        )
        self._budgets = BudgetTable(self._installation)
        listener = WakeTable if portable else NotificationListener
        self._listener: WakeTable | NotificationListener = listener(self._connections)
        self._tables: dict[str, Table] = {}
        self._stages: dict[str, dict[str, Stage]] = defaultdict(dict)
        self._refused_renames = defaultdict[str, RefusedRenames](RefusedRenames)
        self._new_id = new_id
        self.on_refused: OnRefused | None = None
        self.on_adopted: OnAdopted | None = None
        self._claims = ClaimIsolation(
            self._claim,
            self._candidates,
            lambda ref, why: self.on_refused and self.on_refused(ref, why),
            claim_part=partial(self._claim, limits=part_limits(self._connections.limits)),
            check_writes=partial(leases.check_writes, self._connections),
        )
        self._key_limits = KeyLimitedClaims(self._connections)
        self._history_pruner = HistoryPruner(self._connections)
        self.clock_offset = clock_offset
        self.url = self._connections.url

    @property
    def _offset(self) -> timedelta:
        return timedelta(seconds=self.clock_offset)

    def _table(self, kind: Kind) -> Table:
        found = self._tables.get(kind.table)
        if found is None:
            if kind.attached:
                raise SchemaError(
                    f"table {kind.table}",
                    ["the store does not know it yet; call use() or migrate() with its kind"],
                )
            stages = tuple(self._stages[kind.table].values())
            found = Table(kind, stages, installation=self._installation)
            self._tables[kind.table] = found
        return found

    def _context(self, fetch: Fetch) -> WriteContext:
        return WriteContext(
            fetch,
            self._table,
            self._offset,
            self._new_id,
            self._installation.channel,
            self._installation.portable,
        )

    def _long_context(self, connection: Any) -> WriteContext:
        return self._context(partial(connection.fetch, timeout=LONG_LIMITS.client))

    def replica(self, dsn: str) -> PostgresStore:
        """Return a store on a replica of this one, to be read."""
        store = PostgresStore(dsn, pool_size=3, schema=self._installation.schema)
        store._tables, store._stages = self._tables, self._stages
        return store

    async def wal_position(self) -> int:
        """How far the log was written; on a replica, how far it was applied."""
        rows = await self._connections.read(
            """SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                ELSE pg_current_wal_lsn() END - '0/0')::bigint"""
        )
        return int(rows[0][0] or 0)

    async def open(self) -> None:
        await self._connections.open()

    async def close(self) -> None:
        await self._listener.close()
        await self._connections.close()

    async def check(self, seconds: float) -> None:
        return None

    # schema

    def _all_stages(self, stages: Sequence[Stage]) -> list[Stage]:
        """Return these stages and earlier ones: several pipelines may share a kind."""
        for stage in stages:
            self._stages[stage.kind.table][stage.name] = stage
        return [stage for by_name in self._stages.values() for stage in by_name.values()]

    async def migrate(
        self,
        kinds: Sequence[Kind],
        stages: Sequence[Stage],
        *,
        foreign: bool = False,
        progress: Progress | None = None,
    ) -> list[str]:
        report = progress or (lambda line: None)
        done, earlier = await migrate.migrate(
            self._connections,
            kinds,
            self._all_stages(stages),
            self._tables,
            foreign=foreign,
            progress=report,
        )
        return done + await IdChanger(self, kinds).run(earlier, report)

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[MigrationStep]:
        plan = await self._plan(kinds, stages)
        return plan.all_steps if plan.is_behind else plan.obsolete

    async def notes(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        return (await self._plan(kinds, stages)).notes

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        plan = await self._plan(kinds, self._all_stages(stages), rows=False)
        self._tables |= plan.tables  # also if it is behind: `states` reads what there is
        if plan.is_behind:
            raise SchemaBehind(
                "the schema is not up to date; run: esclusa migrate", summaries(plan.all_steps)
            )

    async def _plan(
        self, kinds: Sequence[Kind], stages: Sequence[Stage], rows: bool = True
    ) -> schema.SchemaPlan:
        async with self._connections.connection("reads") as connection:
            return await schema.plan(connection, self._installation, kinds, stages, rows=rows)

    async def now(self) -> datetime:
        rows = await self._connections.fetch("SELECT now() + $1::interval", self._offset)
        moment: datetime = rows[0][0]
        return moment

    # records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        one_statement = (
            len(records) <= inserts.ONE_STATEMENT
            and len({record.kind.table for record in records}) <= 1
            and not (records and records[0].kind.database_id)
        )
        try:
            try:
                answers = await self._insert(records, one_statement, len(records) >= inserts.MANY)
            except UniqueViolationError:  # another transaction inserted one of them meanwhile
                answers = await self._insert(records, one_statement, False)
            except StatementTimeout:
                if not one_statement:
                    raise
                answers = await self._insert(records, False, False)
        except VALUE_ERRORS as error:
            raise inserts.bad_record(records, error) from error
        if self._installation.portable:
            self._listener.written({record.kind.table for record in records})
        return answers

    async def _insert(
        self, records: Sequence[Record], one_statement: bool, expects_new: bool
    ) -> list[Inserted | Duplicate]:
        """Insert records, in a transaction unless it is one statement."""
        if one_statement:
            context = self._context(self._connections.fetch)
            return await inserts.insert_all(replace(context, expects_new=expects_new), records)

        async def body(connection: Any) -> list[Inserted | Duplicate]:
            context = self._long_context(connection)
            return await inserts.insert_all(replace(context, expects_new=expects_new), records)

        return await self._connections.transaction(body, limits=LONG_LIMITS)

    async def insert_if_new(self, groups: Sequence[RecordWithChildren]) -> list[int | None]:
        try:
            try:
                answers = await self._insert_if_new(groups, trust_new_ids=True)
            except ROW_CONFLICTS:
                answers = await self._insert_if_new(groups, trust_new_ids=False)
        except VALUE_ERRORS as error:
            drafts = [draft for g in groups for draft in (g.first, *drafts_of(g.rest))]
            raise inserts.bad_record(drafts, error) from error
        if self._installation.portable:
            self._listener.written(set(_tables_of(groups)))
        return answers

    async def _insert_if_new(
        self, groups: Sequence[RecordWithChildren], *, trust_new_ids: bool
    ) -> list[int | None]:
        async def insert(connection: Any) -> list[int | None]:
            context = self._long_context(connection)
            return await inserts.insert_if_new(context, groups, trust_new_ids=trust_new_ids)

        return await self._connections.transaction(insert, limits=LONG_LIMITS)

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        return await queries.get(self._connections, self._table(kind), ids)

    async def find(self, query: Query) -> Page[Record]:
        return await queries.find(self._connections, self._table(query.kind), query)

    async def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        table = self._table(query.kind)
        async for rows in queries.pages(self._connections, table, query, size):
            yield [table.values(row) for row in rows]

    async def scan_columns(
        self, query: Query, size: int = 20_000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        table, ordered = self._table(query.kind), bool(query.order)
        async for rows in queries.pages(self._connections, table, query, size, ordered=ordered):
            yield dict(zip(table.names, zip(*rows, strict=True), strict=True))

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        return await queries.tally(
            self._connections, self._table(kind), queries.TALLY_CAP if cap is None else cap
        )

    async def totals(self, query: Query, grouping: Grouping) -> list[Total]:
        return await queries.totals(self._connections, self._table(query.kind), query, grouping)

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        return await queries.count(self._connections, self._table(query.kind), query, cap)

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        return await maintenance.history(self._connections, ref, limit, newest)

    async def histories(self, kind: Kind, ids: Sequence[str], each: int = 1000) -> list[list[Step]]:
        return await maintenance.histories(self._connections, kind, ids, each)

    async def prune_history(self, before: datetime, limit: int) -> int:
        return await self._history_pruner.prune(before, limit)

    async def partition_history(self) -> list[str]:
        return await history_months.divide(self._connections, await self.now())

    async def purge(self, query: Query) -> int:
        return await maintenance.purge(self._connections, self._table(query.kind), query)

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        return await maintenance.remove(self._connections, self._table, refs)

    async def archive(self, query: Query, export: str | None = None) -> int:
        return await maintenance.archive(
            self._connections, self._table(query.kind), query, self._offset, export
        )

    async def assign(self, query: Query, export: str) -> int:
        return await maintenance.assign(self._connections, self._table(query.kind), query, export)

    async def restore(self, kind: Kind, rows: Sequence[Mapping[str, Any]], export: str) -> int:
        return await maintenance.restore(
            self._connections, self._table(kind), rows, self._offset, export
        )

    async def make_partitions(self, kind: Kind) -> None:
        if kind.partitions:
            await partitions.make_partitions(self._connections, self._table(kind))

    async def undeclared(self, kind: Kind) -> list[str]:
        return await maintenance.undeclared(self._connections, self._table(kind))

    async def states(self, kind: Kind) -> list[str]:
        return await renames.states(self._connections, self._table(kind))

    async def rename_states(self, kind: Kind, limit: int = 1000, who: str = "migrate") -> int:
        table = self._table(kind)
        refused = self._refused_renames[kind.table]
        moved = await renames.rename_states(
            self._connections, table, limit, who, self._offset, refused
        )
        refused.check(moved, kind.table)
        return moved

    async def change_ids(self, kind: Kind, changes: Sequence[IdChange], archived: bool) -> int:
        return await renames.change_ids(self._connections, self._table(kind), changes, archived)

    async def ids_changed(self, kind: Kind) -> None:
        await renames.ids_changed(self._connections, self._table(kind))

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

    async def _claim(
        self, request: ClaimRequest, limits: StatementLimits | None = None
    ) -> list[Leased]:
        table = self._table(request.kind)

        async def claim(request: ClaimRequest, turns: KeyTurns | None = None) -> list[Leased]:
            call = claims.claim(self._connections, table, request, self._offset, limits, turns)
            return await call

        if request.per is None:
            return await claim(request)
        return await self._key_limits.claim(table, request, request.per, self._offset, claim)

    async def _candidates(self, request: ClaimRequest) -> list[str]:
        table = self._table(request.kind)
        return await claims.candidate_ids(self._connections, table, request, self._offset)

    async def backlog(self, request: ClaimRequest, cap: int = 10_000) -> Backlog:
        return await queries.backlog(
            self._connections, self._table(request.kind), request, cap, self._offset
        )

    async def foreign_locks(self, kind: Kind, ids: Sequence[str]) -> dict[str, datetime]:
        table = self._table(kind)
        return await leases.foreign_locks(self._connections, table, ids, self._offset)

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        groups: dict[tuple[Kind, tuple[str, ...], bool], list[Renewal]] = defaultdict(list)
        for renewal in renewals:
            names, marked = tuple(sorted(renewal.fields)), renewal.holder is not None
            groups[(renewal.ref.kind, names, marked)].append(renewal)

        context = self._context(partial(self._connections.fetch, retry_locks=False))
        held: set[Ref] = set()
        for (kind, names, marked), group in groups.items():
            table = self._table(kind)
            if names:
                ids = await claims.save(context, table, names, marked, group)
            else:
                ids = await leases.renew(context, table, marked, group)
            held |= {Ref(kind, id) for id in ids}
        return held

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        if not settlements:
            return []
        try:
            verdicts = await settle(self._connections, self._context, settlements)
        except Exception as error:  # noqa: BLE001 - whatever the fault is, the others are written
            isolation = SettlementIsolation(self._connections, self._context, settlements)
            verdicts = await isolation.run(error)
        if self._installation.portable:
            self._listener.written(woken_tables(self._table, settlements))
        return verdicts

    # budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1, ahead: float = 0.0
    ) -> Granted | Denied:
        return await self._connections.transaction(
            lambda c: self._budgets.spend(c, self._offset, budget, units, spender, least, ahead)
        )

    async def refund(
        self, budget: Budget, units: int, spender: str, at: datetime | None = None
    ) -> None:
        await self._connections.transaction(
            lambda c: self._budgets.refund(c, self._offset, budget, units, spender, at)
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
        await self._connections.transaction(
            lambda c: self._budgets.observe(c, self._offset, budget, per, used, limit, until)
        )

    async def usage(self, budget: Budget) -> list[WindowUse]:
        return await self._connections.transaction(
            lambda c: self._budgets.usage(c, self._offset, budget)
        )

    async def past_usage(
        self, budget: Budget, window: Window, starts: Sequence[datetime]
    ) -> list[PastWindow]:
        return await self._budgets.past_usage(self._connections.fetch, budget, window, starts)

    # waking

    async def wake(self, kind: Kind) -> None:
        await self._listener.wake([kind.table])

    async def listen(self, callback: Callback) -> Callable[[], Awaitable[None]]:
        return await self._listener.add(callback)


def _tables_of(records: Sequence[Record | FanOut | RecordWithChildren]) -> Iterator[str]:
    for each in records:
        if isinstance(each, RecordWithChildren):
            yield each.first.kind.table
            yield from _tables_of(each.rest)
        else:
            yield (each.record if isinstance(each, FanOut) else each).kind.table
