"""The store protocol: verbs, not SQL. One meaning on every store; tests/conformance holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

from esclusa.model.budget import Budget, Denied, Granted, WindowUse
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
)
from esclusa.model.stage import Stage


class Store(Protocol):
    """Where records live. Every call is a batch and one transaction unless it says otherwise.

    Transient faults raise StoreUnavailable or StoreConflict: the same call may be made again, and a settle that
    is made again after it went through answers Lost, never twice.
    """

    # Where it is, without secrets: for messages.
    url: str

    async def open(self) -> None:
        """Connect. Raises StoreUnavailable with the reason if it does not answer."""

    async def close(self) -> None:
        """Disconnect; waits for calls under way."""

    async def migrate(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        """Bring the schema up to date, additively; return what was done, one line each, empty if nothing was.

        Raises MigrationError (a migration was edited after it ran), SchemaError (a table cannot be attached).
        """

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        """The statements that ``migrate`` would run now, in order, as the store would be given them."""

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        """Prepare for these kinds without changing the schema. Raises SchemaBehind if ``migrate`` is needed, SchemaError if it
        could not mend it."""

    async def now(self) -> datetime:
        """The store's clock: leases and due times are judged by it alone. Shifted by ``clock_offset``."""

    # records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        """Insert drafts, answers in order. A key that is there already, in the store or earlier in the batch, is
        Known and left as it is. ``status`` (default: initial), ``due_at``, ``created_at`` (default: now),
        ``attempts`` and ``leased_by`` of a draft are kept."""

    async def insert_if_new(self, families: Sequence[RecordWithChildren]) -> list[int | None]:
        """Of each family insert the first and, only if its key is new, in the store and among those before it, the rest: each
        family in one transaction, or nothing of it. Return for each how many of the rest are new, or None if its first was known.
        A Spread is one statement where the store has sets. If a record of any cannot be held, BadRecord; try them one by one."""

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        """The records with these ids, in order; None where there is none."""

    async def find(self, query: Query) -> Page[Record]:
        """One page. Nulls come first in ascending order and last in descending order."""

    def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        """All rows that match, as plain values by field name, in pages of ``size``; ``limit`` and ``after`` do
        not count. One consistent view where the store has one; bounded memory always."""

    def scan_columns(
        self, query: Query, size: int = 20_000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        """The same for files: each page as one sequence per field, JSON as its text; in any order if the query has none."""

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        """How many records are in each declared state (and any other that an outsider wrote). With ``cap`` none is counted
        further than that: the answer comes at once, however large the table is."""

    async def summary(self, query: Query, average: str) -> list[StateSummary]:
        """What matches, by state: how many, and the mean of a number field. States without any are left out. Exact, so it
        reads every record that matches; order, limit and cursor do not count."""

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        """How many match, counted up to ``cap``; the flag says whether that is all of them."""

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        """The moves of a record, oldest first; with ``newest`` the last ``limit`` of them, still oldest first."""

    async def purge(self, query: Query) -> int:
        """Delete up to ``query.limit`` records that match, with their history; return how many."""

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        """Delete these records, of whatever kinds, with their history, all in one transaction; whether each was there. A few at a
        time: what belongs together."""

    async def archive(self, query: Query, export: str | None = None) -> int:
        """Move up to ``query.limit`` records that match to the kind's archive; return how many.
        Their history stays. ``query.archived`` queries then find them. With ``export`` they belong to that one from the
        start, and none is moved if it is not filling any more."""

    async def assign(self, query: Query, export: str) -> int:
        """Give up to ``query.limit`` archived rows that match and belong to no export to this one (their
        ``export_id``); return how many."""

    async def undeclared(self, kind: Kind) -> list[str]:
        """What its archive holds besides the kind's fields: columns of an outsider, which no scan tells."""

    # claim and settle

    async def claim(self, ask: ClaimRequest) -> list[Leased]:
        """Take up to ``ask.limit`` records that are due and hold them: fence and attempts rise by one, the due time
        becomes the lease's end. No record is ever taken twice, by anyone, while its lease lasts."""

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        """Extend leases; return those still held. Absence means lost: stop that work. Fields are written with it."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        """Apply each settlement whole or not at all, answers in order: move, fields, history row, effects.

        A fenced settlement ends its lease; a stale fence is Lost. One that is not fenced is an operator's move: it
        ends any lease by raising the fence, and is Lost if the record is not in one of ``frm``.

        A settlement that cannot be written as it is (a value does not fit, an effect cannot be
        applied, the table refuses it) is Rejected: nothing of it is written, and the others are.
        It never raises; only StoreUnavailable and StoreConflict do."""

    async def backlog(self, ask: ClaimRequest, cap: int = 10_000) -> Backlog:
        """What this claim could take now; ``next`` is when the next one will be due if none is."""

    # budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1
    ) -> Granted | Denied:
        """Reserve up to ``units`` in every window together, at least ``least`` or nothing. Never overspends."""

    async def refund(
        self, budget: Budget, units: int, spender: str, at: datetime | None = None
    ) -> None:
        """Give back what was reserved and not used. ``at`` is when it was granted: a window that began since never had it.
        No window gives back more than this spender took from it."""

    async def observe(
        self,
        budget: Budget,
        per: str,
        *,
        used: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> None:
        """Learn from the provider about the open window: at least ``used`` was used, its limit is ``limit``, or
        nothing is to be had before ``until``."""

    async def usage(self, budget: Budget) -> list[WindowUse]:
        """What is used and left in each window now, and who spent it."""

    # waking

    async def wake(self, kind: Kind) -> None:
        """Tell listeners, here and in other processes, that something of this kind may be due."""

    async def listen(
        self, heard: Callable[[str], Awaitable[None] | None]
    ) -> Callable[[], Awaitable[None]]:
        """Call ``heard(table)`` when something may have become due; return a function that ends it. Best effort:
        whoever listens polls too."""
