# ruff: noqa: S608 - statements are composed from declared names alone, quoted; values are bound
"""The PostgreSQL store: the store protocol over asyncpg. Statements live beside it, one module per concern."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from pydantic_core import from_json

from esclusa.model.budget import Budget, Denied, Granted, WindowUse
from esclusa.model.effects import Create
from esclusa.model.errors import BadQuery, BadRecord, SchemaBehind, SchemaError
from esclusa.model.query import Page, Query, encode_cursor
from esclusa.model.record import Kind, Record, Ref
from esclusa.model.settlement import (
    Backlog,
    ClaimRequest,
    Duplicate,
    FanOut,
    Inserted,
    Leased,
    Lost,
    RecordWithChildren,
    Rejected,
    Renewal,
    Settled,
    Settlement,
    StateCount,
    StateSummary,
    Step,
    Verdict,
    drafts_of,
)  # fmt: skip
from esclusa.model.stage import Stage
from esclusa.model.storable import fits, misfit
from esclusa.stores.isolate import describe, settle_isolated
from esclusa.stores.postgres import budgets, effects, keep, schema, statements
from esclusa.stores.postgres import insert as inserting
from esclusa.stores.postgres import settle as settling
from esclusa.stores.postgres.connection import REFUSED, UNFIT, Connections, said
from esclusa.stores.postgres.listen import Heard, Listener
from esclusa.stores.postgres.table import Table

T = TypeVar("T")


class PostgresStore:
    """Records in PostgreSQL, in the schema that the connection's search path names first.

    ``statement_cache_size=0`` for a pooler such as PgBouncer in between (wakes from other processes then need a
    session-mode pool; polling remains). ``clock_offset`` may be changed at any time.
    """

    def __init__(
        self,
        dsn: str,
        *,
        clock_offset: float = 0.0,
        new_id: Callable[[], str] = lambda: str(uuid4()),
        pool_size: int = 8,
        statement_cache_size: int = 512,
    ) -> None:
        self._connections = Connections(dsn, pool_size, statement_cache_size)
        self._listener = Listener(self._connections)
        self._tables: dict[str, Table] = {}
        self._stages: dict[str, dict[str, Stage]] = defaultdict(dict)
        self._new_id = new_id
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
                    ["it is not known to the store yet; call use() or migrate() with its kind"],
                )
            found = self._tables[kind.table] = Table(kind, tuple(self._stages[kind.table].values()))
        return found

    async def open(self) -> None:
        await self._connections.open()

    async def close(self) -> None:
        await self._listener.close()
        await self._connections.close()

    # schema

    def _known(self, stages: Sequence[Stage]) -> list[Stage]:
        """These stages and those named before, for several pipelines may share a kind."""
        for stage in stages:
            self._stages[stage.kind.table][stage.name] = stage
        return [stage for by_name in self._stages.values() for stage in by_name.values()]

    async def migrate(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        return await keep.migrate(self._connections, kinds, self._known(stages), self._tables)

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        try:
            async with self._connections.connection() as connection:
                plan = await schema.plan(connection, kinds, stages)
        except (
            SchemaError
        ) as error:  # no statement can mend it: say so where the statements would stand
            return [f"-- {fault}" for fault in error.faults]
        return [step.sql for step in plan.steps]

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        async with self._connections.connection() as connection:
            plan = await schema.plan(connection, kinds, self._known(stages))
        if plan.steps:
            missing = [step.what for step in plan.steps if step.what]
            raise SchemaBehind("the schema is not up to date; run: esclusa migrate", missing)
        self._tables |= plan.tables

    async def now(self) -> datetime:
        rows = await self._connections.fetch("SELECT now() + $1::interval", self._offset)
        moment: datetime = rows[0][0]
        return moment

    # records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        def run(fetch: inserting.Fetch) -> Awaitable[list[Inserted | Duplicate]]:
            return self._table_by_table(records, partial(inserting.insert, fetch))

        alike = len({record.kind.table for record in records}) <= 1
        try:
            if (
                alike
                and len(records) <= inserting.CHUNK
                and not (records and records[0].kind.database_id)
            ):
                return await run(self._connections.fetch)
            return await self._connections.transaction(lambda connection: run(connection.fetch))
        except UNFIT as error:
            raise _unfit(records, error) from error

    async def insert_if_new(self, families: Sequence[RecordWithChildren]) -> list[int | None]:
        async def run(connection: Any) -> list[int | None]:
            add = partial(inserting.add, connection.fetch)
            led = await self._table_by_table([family.first for family in families], add)
            made: Counter[int] = Counter()
            plain: list[tuple[int, Record]] = []
            for n, each in [
                (n, each) for n, family in enumerate(families) if led[n] for each in family.rest
            ]:
                if isinstance(each, FanOut):
                    made[n] += await inserting.spread(
                        connection.fetch,
                        self._table(each.record.kind),
                        each,
                        self._offset,
                        self._new_id,
                    )
                else:
                    plain.append((n, each))
            added = await self._table_by_table([record for _, record in plain], add)
            made.update(n for (n, _), new in zip(plain, added, strict=True) if new)
            return [made[n] if new else None for n, new in enumerate(led)]

        try:
            return await self._connections.transaction(run)
        except UNFIT as error:
            raise _unfit(
                [draft for family in families for draft in (family.first, *drafts_of(family.rest))],
                error,
            ) from error

    async def _table_by_table(
        self, drafts: Sequence[Record], insert: Callable[..., Awaitable[list[T]]]
    ) -> list[T]:
        """What it answers for each of them. The tables come in one order for all who insert: no deadlock between them."""
        places: dict[str, list[int]] = defaultdict(list)
        for n, each in enumerate(drafts):
            places[each.kind.table].append(n)
        if len(places) == 1:
            return await insert(self._table(drafts[0].kind), drafts, self._offset, self._new_id)
        answers: dict[int, T] = {}
        for name in sorted(places):
            theirs = [drafts[n] for n in places[name]]
            answers |= zip(
                places[name],
                await insert(self._table(theirs[0].kind), theirs, self._offset, self._new_id),
                strict=True,
            )
        return [answers[n] for n in range(len(drafts))]

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        table = self._table(kind)
        wanted = table.ids(list(dict.fromkeys(ids)))
        if not wanted:
            return [None] * len(ids)
        binder = statements.Binder()
        text = f"SELECT {table.selection} FROM {table.ident} t WHERE t.{table.id.ident} = ANY({binder.ids(table, wanted)})"
        found = {
            row[0]: table.build(row)[0]
            for row in await self._connections.fetch(text, *binder.values)
        }
        return [found.get(id) for id in ids]

    async def _read(self, text: str, values: Sequence[Any], *, by_index: bool = False) -> list[Any]:
        ask = self._connections.fetch if by_index else self._connections.read
        try:
            return await ask(text, *values)
        except UNFIT as error:
            raise BadQuery(f"a value in the filter does not fit its column: {error}") from error

    async def find(self, query: Query) -> Page[Record]:
        table = self._table(query.kind)
        rows = await self._read(*statements.find(table, query, query.limit + 1))
        items = [table.build(row)[0] for row in rows[: query.limit]]
        if len(rows) <= query.limit:
            return Page(items, None)
        last = table.values(rows[query.limit - 1])
        return Page(
            items, encode_cursor(query, [last[o.field] for o in query.order] + [last["id"]])
        )

    async def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        table = self._table(query.kind)
        async for rows in self._pages(table, query, size):
            yield [table.values(row) for row in rows]

    async def scan_columns(
        self, query: Query, size: int = 20_000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        table = self._table(query.kind)
        async for rows in self._pages(table, query, size, ordered=bool(query.order)):
            yield dict(zip(table.names, zip(*rows, strict=True), strict=True))

    async def _pages(
        self, table: Table, query: Query, size: int, *, ordered: bool = True
    ) -> AsyncIterator[list[Any]]:
        """The rows that match, page by page, in one snapshot."""
        text, values = statements.find(table, query, None, ordered=ordered)
        async with (
            self._connections.connection("reads") as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            cursor = await connection.cursor(text, *values)
            while rows := await cursor.fetch(size):
                yield rows

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        return await keep.tally(
            self._connections, self._table(kind), keep.TALLY_CAP if cap is None else cap
        )

    async def summary(self, query: Query, average: str) -> list[StateSummary]:
        return await keep.summary(self._connections, self._table(query.kind), query, average)

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        rows = await self._read(
            *statements.count(self._table(query.kind), query, cap), by_index=True
        )
        found = int(rows[0][0])
        return min(found, cap), found <= cap

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        if not fits(ref.id):
            return []
        rows = await self._connections.fetch(
            "SELECT from_state, to_state, at, who, run, attempt, reason, error FROM esclusa_history "
            f"WHERE table_name = $1 AND record_id = $2 ORDER BY seq {'DESC' if newest else 'ASC'} LIMIT $3",
            ref.kind.table,
            ref.id,
            limit,
        )
        steps = [
            Step(a, b, at, who, run, n, why, None if e is None else from_json(e))
            for a, b, at, who, run, n, why, e in rows
        ]
        return steps[::-1] if newest else steps

    async def purge(self, query: Query) -> int:
        return await keep.purge(self._connections, self._table(query.kind), query)

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        return await keep.remove(self._connections, self._table, refs)

    async def archive(self, query: Query, export: str | None = None) -> int:
        return await keep.archive(
            self._connections, self._table(query.kind), query, self._offset, export
        )

    async def assign(self, query: Query, export: str) -> int:
        return await keep.assign(self._connections, self._table(query.kind), query, export)

    async def undeclared(self, kind: Kind) -> list[str]:
        return await keep.undeclared(self._connections, self._table(kind))

    # claim and settle

    async def claim(self, ask: ClaimRequest) -> list[Leased]:
        if ask.limit < 1:
            return []
        table = self._table(ask.kind)
        text, values = statements.claim(table, ask, self._offset)
        leases = []
        try:
            rows = await self._connections.claim(text, *values)
        except (
            REFUSED
        ) as error:  # its rows are an outsider's, and so are its constraints and triggers
            raise BadRecord(
                f"table {table.name} does not let its records be taken: {said(error)}"
            ) from None
        for row in rows:
            record, fault = table.build(row)
            over, was = row[-2], row[-1]
            assert record.due_at is not None
            leases.append(
                Leased(record, ask.take[0] if was == ask.hold else was, record.due_at, fault, over)
            )
        return leases

    async def backlog(self, ask: ClaimRequest, cap: int = 10_000) -> Backlog:
        rows = await self._connections.claim(
            *_spread(statements.backlog(self._table(ask.kind), ask, cap, self._offset))
        )
        due, oldest, following = rows[0]
        return Backlog(min(due, cap), due <= cap, oldest, None if due else following)

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        groups: dict[tuple[Kind, tuple[str, ...]], list[Renewal]] = defaultdict(list)
        for renewal in renewals:
            groups[(renewal.ref.kind, tuple(sorted(renewal.fields)))].append(renewal)

        async def run(fetch: inserting.Fetch) -> set[Ref]:
            held: set[Ref] = set()
            for (kind, names), group in groups.items():
                held |= {
                    Ref(kind, id)
                    for id in await settling.renew(
                        fetch, self._table(kind), names, group, self._offset
                    )
                }
            return held

        if len(groups) == 1:
            return await run(self._connections.fetch)
        return (
            await self._connections.transaction(lambda connection: run(connection.fetch))
            if groups
            else set()
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        return await settle_isolated(settlements, self._settle, _why)

    async def _settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        """Settle in one transaction, made again without the settlements that it rejects."""
        numbered = list(enumerate(settlements))
        rejected: dict[int, str] = {}
        done: set[int] = set()
        while numbered:
            try:
                done = await self._attempt(numbered)
                break
            except effects.Rejection as rejection:
                rejected |= rejection.faults
                numbered = [(n, s) for n, s in numbered if n not in rejected]
        return [
            Rejected(s.ref, rejected[n])
            if n in rejected
            else Settled(s.ref)
            if n in done
            else Lost(s.ref)
            for n, s in enumerate(settlements)
        ]

    async def _attempt(self, numbered: list[tuple[int, Settlement]]) -> set[int]:
        """One transaction; the numbers of those that went through. Without effects and of one shape: one statement."""
        rows = [settling.Row(n, s) for n, s in numbered]
        rounds = settling.rounds(rows)
        groups = settling.grouped(rounds[0])
        if len(rounds) == 1 and len(groups) == 1 and not any(s.effects for _, s in numbered):
            ((key, group),) = groups.items()
            table = self._table(group[0].settlement.ref.kind)
            notify = settling.wakes(table, (s for _, s in numbered))
            return await settling.move(
                self._connections.fetch, self._table, key, group, self._offset, notify
            )
        return await self._connections.transaction(
            lambda connection: self._whole(connection, numbered, rounds)
        )

    async def _whole(
        self,
        connection: Any,
        numbered: list[tuple[int, Settlement]],
        rounds: list[list[settling.Row]],
    ) -> set[int]:
        fetch, offset = connection.fetch, self._offset
        every = [s for _, s in numbered]
        if effects.locks(every):
            await effects.lock(fetch, self._table, effects.targets(every))
        done: set[int] = set()
        for rows in rounds:
            for key, group in settling.grouped(rows).items():
                done |= await settling.move(fetch, self._table, key, group, offset, notify=False)
        through = [(n, s) for n, s in numbered if n in done]
        woken = {
            s.ref.kind.table for _, s in through if settling.wakes(self._table(s.ref.kind), [s])
        }
        woken |= await effects.apply(
            fetch, self._table, [(n, s) for n, s in through if s.effects], offset, self._new_id
        )
        if woken:
            await keep.notify(fetch, sorted(woken))
        return done

    # budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1
    ) -> Granted | Denied:
        return await self._connections.transaction(
            lambda c: budgets.spend(c, self._offset, budget, units, spender, least)
        )

    async def refund(
        self, budget: Budget, units: int, spender: str, at: datetime | None = None
    ) -> None:
        await self._connections.transaction(
            lambda c: budgets.refund(c, self._offset, budget, units, spender, at)
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
            lambda c: budgets.observe(c, self._offset, budget, per, used, limit, until)
        )

    async def usage(self, budget: Budget) -> list[WindowUse]:
        return await self._connections.transaction(lambda c: budgets.usage(c, self._offset, budget))

    # waking

    async def wake(self, kind: Kind) -> None:
        await keep.notify(self._connections.fetch, [kind.table])

    async def listen(self, heard: Heard) -> Callable[[], Awaitable[None]]:
        return await self._listener.add(heard)


def _spread(pair: tuple[str, list[Any]]) -> list[Any]:
    return [pair[0], *pair[1]]


def _unfit(drafts: Sequence[Record], error: Exception) -> BadRecord:
    """Which of the drafts was not taken; what PostgreSQL said, if that does not show."""
    tables = ", ".join(sorted({draft.kind.table for draft in drafts}))
    found = next(
        (fault for draft in drafts if (fault := misfit(draft.kind, draft.__dict__)) is not None),
        None,
    )
    return found or BadRecord(f"{tables}: a draft holds what the table cannot: {said(error)}")


def _why(settlement: Settlement, error: Exception) -> str:
    """Return why a settlement was not written; the value at fault, if one is."""
    if not isinstance(error, UNFIT):
        return describe(settlement, error)
    made = [
        (effect.record.kind, effect.record.__dict__)
        for effect in settlement.effects
        if isinstance(effect, Create)
    ]
    values = [(settlement.ref.kind, settlement.fields), *made]
    found = next((fault for kind, fields in values if (fault := misfit(kind, fields))), None)
    return f"a value does not fit: {said(error)}" if found is None else str(found)
