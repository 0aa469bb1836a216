"""The store on one SQLite file, which several processes may share."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw

from esclusa.model.budget import Budget, Denied, Granted, WindowUse
from esclusa.model.errors import SchemaBehind
from esclusa.model.query import Page, Query
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
from esclusa.stores.isolate import settle_isolated
from esclusa.stores.sqlite import budgets, moves, schema
from esclusa.stores.sqlite import records as shelf
from esclusa.stores.sqlite.codec import encode_time
from esclusa.stores.sqlite.ids import uuid7
from esclusa.stores.sqlite.line import Line, first
from esclusa.stores.sqlite.moves import Desk
from esclusa.stores.sqlite.statements import Cards, rows

T = TypeVar("T")
Heard = Callable[[str], Awaitable[None] | None]

_LOOK_EVERY = 0.05
_WAKE = "INSERT INTO esclusa_wakes (table_name, count) VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1"
_WAKES = "SELECT json_group_array(json_array(table_name, count)) FROM esclusa_wakes"


class SqliteStore:
    """Records in a SQLite file in WAL mode. One thread writes; another reads, so that a long list delays no claim; a third
    counts to the end, so that a large table delays no list.

    ``busy``: how many seconds to wait for another process that writes before StoreUnavailable.
    """

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
        self.clock_offset = clock_offset
        self._new_id = new_id
        self._busy = busy
        self._writer = Line(self.path, "writer", busy)
        self._reader = Line(self.path, "reader", busy)
        self._counter = Line(self.path, "counter", busy, cache=4)
        self._cards = Cards()
        self._reading = Cards()  # each thread has its own
        self._indexes: frozenset[str] = frozenset()
        self._worked: dict[str, frozenset[str]] = {}
        self._listeners: list[Heard] = []
        self._tasks: set[asyncio.Future[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._writer = Line(self.path, "writer", self._busy)
        self._reader = Line(self.path, "reader", self._busy)
        self._counter = Line(self.path, "counter", self._busy, cache=4)
        try:
            await self._writer.open()
            await self._reader.open()
            await self._counter.open()
        except BaseException:
            await self._close_lines()
            raise

    async def close(self) -> None:
        await self._stop_looking()
        self._listeners.clear()
        await self._close_lines()

    async def _close_lines(self) -> None:
        await self._counter.close()
        await self._reader.close()
        await self._writer.close()

    def _clock(self) -> datetime:
        """The store's clock, which is this machine's: all who share the file run on it."""
        return datetime.now(UTC) + timedelta(seconds=self.clock_offset)

    async def now(self) -> datetime:
        return self._clock()

    # schema

    async def migrate(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        done = await self._writer.write(lambda c: schema.apply(c, schema.plan(c, kinds, stages)))
        await self._know(stages)
        return done

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        changes = await self._reader.call(lambda c: schema.plan(c, kinds, stages, lenient=True))
        return [change.statement for change in changes]

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        changes = await self._reader.call(lambda c: schema.plan(c, kinds, stages))
        if changes:
            raise SchemaBehind(
                f"{self.url} is not up to date; run: esclusa migrate",
                [change.line for change in changes],
            )
        await self._know(stages)

    async def _know(self, stages: Sequence[Stage]) -> None:
        self._indexes = await self._reader.call(schema.indexes)
        for stage in stages:
            self._worked[stage.kind.table] = self._worked.get(stage.kind.table, frozenset()) | set(
                stage.states
            )

    # records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        if not records:
            return []

        def work(desk: Desk) -> list[Inserted | Duplicate]:
            answers = shelf.insert(desk.connection, desk.cards, desk.now, self._new_id, records)
            desk.woken.update(
                r.kind.table
                for r, answer in zip(records, answers, strict=True)
                if isinstance(answer, Inserted)
            )
            return answers

        return await self._write(work)

    async def insert_if_new(self, families: Sequence[RecordWithChildren]) -> list[int | None]:
        def work(desk: Desk) -> list[int | None]:
            def insert(drafts: Sequence[Record]) -> list[bool]:
                answers = shelf.insert(desk.connection, desk.cards, desk.now, self._new_id, drafts)
                desk.woken.update(
                    r.kind.table
                    for r, answer in zip(drafts, answers, strict=True)
                    if isinstance(answer, Inserted)
                )
                return [isinstance(answer, Inserted) for answer in answers]

            led = insert([family.first for family in families])
            rests = [
                list(drafts_of(family.rest)) if new else []
                for family, new in zip(families, led, strict=True)
            ]
            made = iter(insert([draft for rest in rests for draft in rest]))
            return [
                sum(next(made) for _ in rest) if new else None
                for rest, new in zip(rests, led, strict=True)
            ]

        return await self._write(work)

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        return await self._reader.call(lambda c: shelf.get(c, self._reading, kind, ids))

    async def find(self, query: Query) -> Page[Record]:
        return await self._reader.call(lambda c: shelf.find(c, self._reading, query))

    async def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        line = Line(self.path, "scan", self._busy)
        await line.open()
        try:
            await line.call(lambda c: c.execute("BEGIN"))  # one snapshot for all pages
            pages = await line.call(lambda c: shelf.scan(c, Cards(), query, size))
            while page := await line.call(lambda _: next(pages, None)):
                yield page
        finally:
            await line.close()

    async def scan_columns(
        self, query: Query, size: int = 20_000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        line = Line(self.path, "scan", self._busy)
        await line.open()
        try:
            await line.call(lambda c: c.execute("BEGIN"))  # one snapshot for all pages
            pages = await line.call(lambda c: shelf.scan_columns(c, Cards(), query, size))
            while page := await line.call(lambda _: next(pages, None)):
                yield page
        finally:
            await line.close()

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        if cap is not None:
            return await self._reader.call(lambda c: shelf.tally(c, kind, cap))
        return await self._counter.call(lambda c: shelf.whole_tally(c, kind))

    async def summary(self, query: Query, average: str) -> list[StateSummary]:
        return await self._counter.call(lambda c: shelf.summary(c, query, average))

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        return await self._reader.call(lambda c: shelf.count(c, query, cap))

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        return await self._reader.call(lambda c: shelf.history(c, ref, limit, newest))

    async def purge(self, query: Query) -> int:
        return await self._writer.write(lambda c: shelf.purge(c, query))

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        return await self._write(lambda desk: moves.remove(desk, refs))

    async def archive(self, query: Query, export: str | None = None) -> int:
        return await self._writer.write(
            lambda c: shelf.archive(c, query, encode_time(self._clock()), export)
        )

    async def assign(self, query: Query, export: str) -> int:
        return await self._writer.write(lambda c: shelf.assign(c, query, export))

    async def undeclared(self, kind: Kind) -> list[str]:
        return await self._reader.call(lambda c: shelf.undeclared(c, kind))

    # claim and settle

    async def claim(self, ask: ClaimRequest) -> list[Leased]:
        return await self._write(lambda desk: moves.claim(desk, ask)) if ask.limit > 0 else []

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        return await self._write(lambda desk: moves.renew(desk, renewals)) if renewals else set()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        return await settle_isolated(
            settlements, lambda batch: self._write(lambda desk: moves.settle(desk, batch))
        )

    async def backlog(self, ask: ClaimRequest, cap: int = 10_000) -> Backlog:
        return await self._reader.call(
            lambda c: shelf.backlog(c, ask, encode_time(self._clock()), cap, self._indexes)
        )

    # budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1
    ) -> Granted | Denied:
        return await self._writer.write(
            lambda c: budgets.spend(c, budget, units, spender, least, self._clock())
        )

    async def refund(
        self, budget: Budget, units: int, spender: str, at: datetime | None = None
    ) -> None:
        await self._writer.write(
            lambda c: budgets.refund(c, budget, units, spender, at, self._clock())
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
            lambda c: budgets.observe(c, budget, per, used, limit, until, self._clock())
        )

    async def usage(self, budget: Budget) -> list[WindowUse]:
        return await self._reader.call(lambda c: budgets.usage(c, budget, self._clock()))

    # waking

    async def wake(self, kind: Kind) -> None:
        await self._write(lambda desk: desk.woken.add(kind.table))

    async def listen(self, heard: Heard) -> Callable[[], Awaitable[None]]:
        self._listeners.append(heard)
        if self._looking is None:
            seen = await self._writer.call(_look)
            self._looking = asyncio.create_task(self._look_often(*seen))

        async def stop() -> None:
            if heard in self._listeners:
                self._listeners.remove(heard)
            if not self._listeners:
                await self._stop_looking()

        return stop

    async def _look_often(self, version: int, counts: dict[str, int]) -> None:
        """Hear other processes: the data version changes when another connection wrote, the counters say what for."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            try:
                found = await self._writer.call(lambda c: first(c, "PRAGMA data_version"))
                if found == version:
                    continue
                version, latest = await self._writer.call(_look)
            except Exception:  # noqa: BLE001, S112 - listening is best effort; whoever listens polls too and meets the fault there
                continue
            changed = [table for table, count in latest.items() if counts.get(table) != count]
            counts = latest
            self._tell(changed)

    async def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None

    def _tell(self, tables: Iterable[str]) -> None:
        for table in tables:
            for heard in list(self._listeners):
                answer = heard(table)
                if inspect.isawaitable(answer):
                    task = asyncio.ensure_future(answer)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    async def _write(self, work: Callable[[Desk], T]) -> T:
        """One transaction that may leave something due: the counters for other processes rise in it."""
        answer, woken = await self._writer.write(partial(self._at_desk, work))
        self._tell(woken)
        return answer

    def _at_desk(
        self, work: Callable[[Desk], T], connection: apsw.Connection
    ) -> tuple[T, set[str]]:
        # the clock is read once the lock is ours: what waited for it long must not work with an old moment
        desk = Desk(
            connection, self._cards, self._clock(), self._new_id, self._worked, self._indexes
        )
        answer = work(desk)
        for table in desk.woken:
            connection.execute(_WAKE, (table,))
        return answer, desk.woken


def _look(connection: apsw.Connection) -> tuple[int, dict[str, int]]:
    version: int = first(connection, "PRAGMA data_version")
    return version, dict(rows(connection, _WAKES, ()))
