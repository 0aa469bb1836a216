"""Budgets: one document per window start, and one for the provider's bar. A spend is one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, TypeVar

from esclusa.model.budget import Budget, Denied, Granted, PastWindow, Window, WindowUse
from esclusa.model.budget_state import (
    OpenRate,
    OpenWindow,
    give_back,
    open_windows,
    reserve,
)
from esclusa.model.errors import StoreConflict
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.codec import Document, decode, encode
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.writes import put_document, verify_unchanged

T = TypeVar("T")


@dataclass(slots=True)
class BudgetDocument:
    """One document of a budget as it was read. Without an update time it does not exist yet."""

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    update_time: Any = None

    def put(self, values: Iterable[tuple[str, Any, Any]]) -> Any:
        """Replace the document, unless it was written since it was read."""
        document = Document(fields={key: encode(type, value) for key, type, value in values})
        return put_document(self.name, document, update_time=self.update_time, exists=False)


@dataclass(slots=True)
class BudgetState:
    """A budget now: its open windows with their documents, and until when the provider bars it."""

    windows: list[OpenWindow | OpenRate]
    documents: list[BudgetDocument]
    bar: BudgetDocument
    barred: datetime | None

    def writes(
        self, budget: str, before: list[OpenWindow | OpenRate], barred: datetime | None
    ) -> list[Any]:
        """The writes that lead from ``before`` and ``barred`` to this state; empty if none.

        The decision also depended on the documents that stay as they are, so the commit verifies
        that those are unchanged.
        """
        writes = [
            document.put(_values(budget, window))
            for window, old, document in zip(self.windows, before, self.documents, strict=True)
            if window != old
        ]
        if self.barred != barred:
            writes.append(
                self.bar.put([("budget", "text", budget), ("until", "time", self.barred)])
            )
        if not writes:
            return []
        written = {write.update.name for write in writes}
        return writes + [
            verify_unchanged(each.name, each.update_time)
            for each in (*self.documents, self.bar)
            if each.name not in written and each.update_time is not None
        ]


def _values(budget: str, open: OpenWindow | OpenRate) -> list[tuple[str, Any, Any]]:
    return [
        ("budget", "text", budget),
        ("per", "text", open.window.per),
        ("start", "time", open.start),
        ("used", "int", open.used),
        ("limit_seen", "int", open.limit_seen),
        ("spenders", "json", open.kept),
    ]


@dataclass(slots=True)
class BudgetDocuments:
    """Spends, refunds and observations of budgets."""

    client: FirestoreClient
    rng: Random
    locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def spend(
        self,
        budget: Budget,
        now: datetime,
        units: int,
        spender: str,
        least: int,
        ahead: float = 0.0,
    ) -> Granted | Denied:
        return await self._change(
            budget,
            now,
            lambda s: reserve(
                s.windows, units, spender, least, now=now, barred=s.barred, ahead=ahead
            ),
        )

    async def refund(
        self, budget: Budget, now: datetime, units: int, spender: str, at: datetime | None
    ) -> None:
        await self._change(budget, now, lambda state: give_back(state.windows, units, spender, at))

    async def observe(
        self,
        budget: Budget,
        now: datetime,
        per: str,
        used: int | None,
        limit: int | None,
        until: datetime | None,
    ) -> None:
        def change(state: BudgetState) -> None:
            window = next((w for w in state.windows if w.window.per == per), None)
            if window is None:
                raise budget.no_window(per)
            window.learn(used, limit, now)
            state.barred = until or state.barred

        await self._change(budget, now, change)

    async def usage(self, budget: Budget, now: datetime) -> list[WindowUse]:
        state = await self._read(budget, now)
        return [w.use(budget.name, now, state.barred) for w in state.windows]

    async def past_usage(
        self, budget: Budget, window: Window, starts: Sequence[datetime]
    ) -> list[PastWindow]:
        """The documents of these windows: a read for each."""
        names = {
            start: self._document(f"{budget.name}:{window.per}:{start.isoformat()}").name
            for start in sorted(starts)
        }
        found = await self.client.get(list(names.values()), "budget")
        past = []
        for start, name in names.items():
            if (stored := found.get(name)) is None:
                continue
            seen = decode("int", stored.fields["limit_seen"])
            past.append(
                PastWindow(
                    start,
                    stored.fields["used"].integer_value,
                    window.limit if seen is None else seen,
                    decode("json", stored.fields["spenders"]) or {},
                )
            )
        return past

    async def _change(self, budget: Budget, now: datetime, change: Callable[[BudgetState], T]) -> T:
        """Read, change and write; start again if another process wrote in between.

        A lock per budget keeps this process from competing with itself.
        """
        async with self.locks.setdefault(budget.name, asyncio.Lock()):
            for conflicts in range(12):
                state = await self._read(budget, now)
                before, barred = deepcopy(state.windows), state.barred
                answer = change(state)
                try:
                    if writes := state.writes(budget.name, before, barred):
                        await self.client.commit(writes, "budget")
                    return answer
                except (PreconditionFailed, StoreConflict):
                    await asyncio.sleep(self.rng.uniform(0, min(0.5, 0.01 * 2**conflicts)))
        raise StoreConflict(
            f"Firestore: too many processes spend from the budget {budget.name} at once"
        )

    async def _read(self, budget: Budget, now: datetime) -> BudgetState:
        windows = open_windows(budget.windows, now)
        documents = [
            self._document(f"{budget.name}:{w.window.per}:{w.start.isoformat()}") for w in windows
        ]
        bar = self._document(budget.name)
        found = await self.client.get([bar.name, *(d.name for d in documents)], "budget")
        for document in (bar, *documents):
            if (stored := found.get(document.name)) is not None:
                document.fields, document.update_time = stored.fields, stored.update_time
        for window, document in zip(windows, documents, strict=True):
            if document.update_time is not None:
                window.load(
                    document.fields["used"].integer_value,
                    decode("int", document.fields["limit_seen"]),
                    decode("json", document.fields["spenders"]) or {},
                )
        barred = decode("time", bar.fields["until"]) if bar.update_time is not None else None
        return BudgetState(windows, documents, bar, barred)

    def _document(self, id: str) -> BudgetDocument:
        return BudgetDocument(f"{self.client.root}/{names.BUDGETS}/{names.segment(id)}")
