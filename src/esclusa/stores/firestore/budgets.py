"""Budgets: one document per budget, window length and window start, and one for the provider's bar; a spend is one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, TypeVar

from esclusa.model.budget import Budget, Denied, Granted, OpenWindow, WindowUse, give_back, reserve
from esclusa.model.errors import StoreConflict
from esclusa.stores.firestore import names, wire
from esclusa.stores.firestore.codec import Document, decode, encode
from esclusa.stores.firestore.wire import Stale, Wire

T = TypeVar("T")


@dataclass(slots=True)
class Book:
    """One document of a budget as it was read: its name, its fields, and when it was written (None: it is not there yet)."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    at: Any = None

    def put(self, values: Iterable[tuple[str, Any, Any]]) -> Any:
        document = Document()
        for key, type, value in values:
            document.fields[key].CopyFrom(encode(type, value))
        return wire.put(
            self.name, document, at=self.at, exists=None if self.at is not None else False
        )


@dataclass(slots=True)
class Open:
    """What is known of a budget now: its open windows, each with its document, and until when the provider bars it."""

    windows: list[OpenWindow]
    books: list[Book]
    bar: Book
    barred: datetime | None

    def writes(self, budget: str, before: list[OpenWindow], barred: datetime | None) -> list[Any]:
        """What has to be written to get from ``before`` to this. What did not change mattered too: its proof is in the commit."""
        writes = []
        for window, old, book in zip(self.windows, before, self.books, strict=True):
            if window != old:
                writes.append(book.put(_values(budget, window)))
        if self.barred != barred:
            writes.append(
                self.bar.put([("budget", "text", budget), ("until", "time", self.barred)])
            )
        if not writes:
            return []
        touched = {write.update.name for write in writes}
        same = [b for b in (*self.books, self.bar) if b.name not in touched and b.at is not None]
        return writes + [wire.verify(b.name, b.at) for b in same]


def _values(budget: str, open: OpenWindow) -> list[tuple[str, Any, Any]]:
    return [
        ("budget", "text", budget), ("per", "text", open.window.per), ("start", "time", open.start), ("used", "int", open.used),
        ("limit_seen", "int", open.limit_seen), ("spenders", "json", open.spenders),
    ]  # fmt: skip


@dataclass(slots=True)
class Budgets:
    link: Wire
    rng: Random
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def spend(
        self, budget: Budget, now: datetime, units: int, spender: str, least: int
    ) -> Granted | Denied:
        def change(open: Open) -> Granted | Denied:
            return reserve(open.windows, units, spender, least, now=now, barred=open.barred)

        return await self._change(budget, now, change)

    async def refund(
        self, budget: Budget, now: datetime, units: int, spender: str, at: datetime | None
    ) -> None:
        await self._change(budget, now, lambda known: give_back(known.windows, units, spender, at))

    async def observe(
        self,
        budget: Budget,
        now: datetime,
        per: str,
        used: int | None,
        limit: int | None,
        until: datetime | None,
    ) -> None:
        def change(open: Open) -> None:
            window = next((w for w in open.windows if w.window.per == per), None)
            if window is None:
                raise budget.no_window(per)
            window.learn(used, limit)
            open.barred = until or open.barred

        await self._change(budget, now, change)

    async def usage(self, budget: Budget, now: datetime) -> list[WindowUse]:
        open = await self._read(budget, now)
        return [w.use(budget.name, now, open.barred) for w in open.windows]

    async def _change(self, budget: Budget, now: datetime, change: Callable[[Open], T]) -> T:
        """Read, change, write if nobody wrote meanwhile; else again. In a process one at a time."""
        async with self.locks.setdefault(budget.name, asyncio.Lock()):
            for tries in range(12):
                open = await self._read(budget, now)
                before, barred = deepcopy(open.windows), open.barred
                answer = change(open)
                writes = open.writes(budget.name, before, barred)
                if not writes:
                    return answer
                try:
                    await self.link.commit(writes, "budget")
                    return answer
                except (Stale, StoreConflict):
                    await asyncio.sleep(self.rng.uniform(0, min(0.5, 0.01 * 2**tries)))
        raise StoreConflict(f"Firestore: too many spend from the budget {budget.name} at once")

    async def _read(self, budget: Budget, now: datetime) -> Open:
        windows = [OpenWindow(window, window.start(now)) for window in budget.windows]
        books = [self._book(f"{budget.name}:{w.window.per}:{w.start.isoformat()}") for w in windows]
        bar = self._book(budget.name)
        found = await self.link.get([bar.name, *(b.name for b in books)], "budget")
        for book in (bar, *books):
            if (document := found.get(book.name)) is not None:
                book.fields, book.at = document.fields, document.update_time
        for window, book in zip(windows, books, strict=True):
            if book.at is not None:
                window.used = book.fields["used"].integer_value
                window.limit_seen = decode("int", book.fields["limit_seen"])
                window.spenders = decode("json", book.fields["spenders"]) or {}
        return Open(
            windows, books, bar, decode("time", bar.fields["until"]) if bar.at is not None else None
        )

    def _book(self, id: str) -> Book:
        return Book(f"{self.link.root}/{names.BUDGETS}/{names.segment(id)}")
