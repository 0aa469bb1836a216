"""The store protocol. Every store gives each call the same meaning; tests/conformance checks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias

from esclusa.model.adoption import Adopted, Unadopted
from esclusa.model.budget import Budget, Denied, Granted, PastWindow, Window, WindowUse
from esclusa.model.kind import Kind, Ref
from esclusa.model.migration import MigrationStep, Progress
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
from esclusa.model.value import value

OnRefused: TypeAlias = Callable[[Ref, str], None]
OnAdopted: TypeAlias = Callable[[Adopted], None]


@value
class StoreFaults:
    """What is wrong with the data of a store. ``complete``: all of it was read."""

    faults: tuple[str, ...]
    complete: bool


class Store(Protocol):
    """Keeps records. Every call is a batch and one transaction, unless it says otherwise.

    Transient faults raise StoreUnavailable or StoreConflict: make the same call again. A settlement
    that was written and is sent again answers Lost; it is never applied twice.
    """

    # The address of the store without secrets, for messages.
    url: str
    # How many seconds its clock is shifted, for tests.
    clock_offset: float
    # Whether every read is paid for. The engine then reads seldom what it is notified of anyway.
    metered: bool

    # Called with a record that cannot be claimed, and why; see ``claim``.
    on_refused: OnRefused | None

    # Called when records that other programs wrote without tracking fields were adopted.
    on_adopted: OnAdopted | None

    async def open(self) -> None:
        """Connect. Raises StoreUnavailable with the reason if the store does not answer.

        Raises StoreNotReady if it probably will: then ``open`` may be called again.
        """

    async def close(self) -> None:
        """Wait for the calls under way, then disconnect."""

    async def check(self, seconds: float) -> StoreFaults | None:
        """The faults that calls have met, and those that reading for ``seconds`` finds.

        None if the store's server checks its data itself.
        """

    async def migrate(
        self,
        kinds: Sequence[Kind],
        stages: Sequence[Stage],
        *,
        foreign: bool = False,
        progress: Progress | None = None,
    ) -> list[str]:
        """Bring the schema up to date by adding to it; return one line for each change.

        Everything is checked before anything is changed. Raises SchemaError with every fault of the
        tables, MigrationError if a migration was edited after it ran, and ForeignTables if a table
        of another program must be changed and ``foreign`` is false. StoreConflict: a lock was not
        released in time. A migration that ended early, whatever the reason, is continued by the
        next. Migrations of the same schema wait for each other.
        """

    async def pending(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[MigrationStep]:
        """The steps that ``migrate`` would run now, in order. Raises the same errors.

        Foreign tables are included.
        """

    async def notes(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[str]:
        """What an operator should know of the tables, though work is possible; a line each."""

    async def use(self, kinds: Sequence[Kind], stages: Sequence[Stage]) -> None:
        """Prepare for these kinds without changing the schema.

        Raises SchemaBehind if ``migrate`` is needed, and SchemaError if it would not be enough.
        """

    async def now(self) -> datetime:
        """The store's clock, shifted by ``clock_offset``. Leases and due times follow it alone."""

    # records

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        """Insert new records; answers in order.

        A record whose key exists already, in the store or earlier in the batch, is a Duplicate and
        is left as it is. ``status`` (default: initial), ``due_at``, ``created_at`` (default: now),
        ``attempts`` and ``leased_by`` of a new record are kept.
        """

    async def insert_if_new(self, groups: Sequence[RecordWithChildren]) -> list[int | None]:
        """Insert each record with its children, unless the record's key exists already.

        Each group is one transaction, all or nothing. Return for each group how many children are
        new, or None if the record exists, in the store or earlier in the batch. A store that can
        inserts a FanOut in one statement. Raises BadRecord if a record of any group cannot be
        stored; insert the groups one by one to find it.
        """

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        """The records with these ids, in order; None for an id without a record."""

    async def find(self, query: Query) -> Page[Record]:
        """One page. Nulls come first in ascending order and last in descending order."""

    def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        """All rows that match, as plain values by field name, in pages of ``size``.

        ``limit`` and ``after`` of the query are ignored. Memory is bounded. The pages are one
        consistent snapshot if the store supports that.
        """

    def scan_columns(
        self, query: Query, size: int = 20_000
    ) -> AsyncIterator[dict[str, Sequence[Any]]]:
        """The same as ``scan``, for files: each page has one sequence per field, JSON as text.

        The order is undefined if the query has none.
        """

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        """How many records are in each declared state, and in any other that occurs.

        With ``cap`` no state is counted further than that, so the answer is fast for any table.
        """

    async def totals(self, query: Query, grouping: Grouping) -> list[Total]:
        """How many records match, by the values of some fields, and the sums of number fields.

        Ordered by these values, missing ones first. A missing number adds nothing. The numbers are
        exact: every record that matches is read, by one scan on SQL stores. On Firestore, totals by
        state alone cost a read for each 1,000 records; others stream the named fields of all that
        match, a read for each. Order, limit and cursor of the query are ignored. Raises BadQuery if
        there are more groups than ``grouping.cap``.
        """

    async def count(self, query: Query, cap: int = 100_000) -> tuple[int, bool]:
        """How many records match, counted up to ``cap``, and whether that is all of them."""

    async def history(self, ref: Ref, limit: int = 1000, newest: bool = False) -> list[Step]:
        """The moves of a record, oldest first: the first ``limit``, or with ``newest`` the last."""

    async def histories(self, kind: Kind, ids: Sequence[str], each: int = 1000) -> list[list[Step]]:
        """The last ``each`` moves of every record with these ids, in order; each oldest first.

        Meant for some hundred records at a time.
        """

    async def prune_history(self, before: datetime, limit: int) -> int:
        """Delete up to ``limit`` moves older than that; return how many.

        A store may keep the last moves of a record whatever their age, and one that divides the
        history by month keeps a month until all of it is older.
        """

    async def partition_history(self) -> list[str]:
        """Divide the history by month, so that ``prune_history`` drops months; say what was done.

        Called again, it prepares the months to come. Raises SchemaRefused if the store has no
        partitions.
        """

    async def purge(self, query: Query) -> int:
        """Delete up to ``query.limit`` records that match, with their history; return how many."""

    async def remove(self, refs: Sequence[Ref]) -> list[bool]:
        """Delete these records with their history in one transaction; return which ones existed.

        The records may be of several kinds. Meant for a few at a time.
        """

    async def archive(self, query: Query, export: str | None = None) -> int:
        """Move up to ``query.limit`` records that match to the kind's archive; return how many.

        Their history stays. Queries with ``archived`` find them. With ``export`` they are assigned
        to that export at once; nothing is moved if the export is not filling any more.
        """

    async def assign(self, query: Query, export: str) -> int:
        """Assign up to ``query.limit`` archived rows that have no export; return how many.

        Sets ``export_id`` of the rows that match.
        """

    async def restore(self, kind: Kind, rows: Sequence[Mapping[str, Any]], export: str) -> int:
        """Put rows that were purged from the kind's archive back into it; return how many are new.

        Each row has all values by field name, as ``scan`` yields them. A row whose id, or another
        unique value, is in the archive already is left as it is. The others belong to ``export``.
        """

    async def make_partitions(self, kind: Kind) -> None:
        """Call the function that ``kind.partitions`` names, where it exists; see ``Record``."""

    async def undeclared(self, kind: Kind) -> list[str]:
        """Columns of the archive that are not fields of the kind; ``scan`` does not read them."""

    async def states(self, kind: Kind) -> list[str]:
        """The states that records are in, declared or not; at most 50 undeclared ones.

        Fast for any table: an index is read once for each state. Works before ``migrate``: a table
        that does not exist has no states.
        """

    async def rename_states(self, kind: Kind, limit: int = 1000, who: str = "migrate") -> int:
        """Give up to ``limit`` records in renamed states their present state; return how many.

        Each gets a history row. Everything else stays: a lease under the earlier name goes on, and
        its settlement is applied. A record that another program has locked is left for a later
        call. A record that the table refuses in its new state holds up no other one. Raises
        BadRecord that names them when nothing else is left to rename.
        """

    async def adopt(self, kinds: Sequence[Kind], before: datetime) -> dict[str, int]:
        """Give tracking fields to the records that other programs wrote without them before then.

        Return how many this call found, by table. Claims adopt such records as well, but only now
        and then. Only documents can lack fields: on SQL stores, null tracking means a new record.
        """

    async def adopted(self, kind: Kind) -> int:
        """How many records other programs wrote, as far as that shows.

        Documents that ever got their tracking fields here; rows that Esclusa has not written yet.
        """

    async def unadopted(self, kind: Kind) -> Unadopted | None:
        """The records that no claim can find, because they have no tracking fields yet."""

    async def foreign_documents(
        self, kind: Kind, parent: str, begins: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        """What other programs keep beside the records of a nested kind, below one parent.

        Documents that are no records, because the kind has ``adopt=False``: their fields as plain
        values, and their own id, in its order. ``begins``: only ids that begin so. A table holds
        only records, so SQL stores find none.
        """

    # claim and settle

    async def claim(self, request: ClaimRequest) -> list[Leased]:
        """Lease up to ``request.limit`` records that are due.

        The fence rises by one; the due time becomes the end of the lease. While a lease lasts, no
        other claim gets the record. The attempts rise by one, too, unless the record was held: a
        crash counts only for a record that was handled alone (model/suspects.py).

        A record that cannot be claimed, because a constraint or a trigger of another program's
        table refuses it, is left out for some minutes and reported by ``on_refused``. Raises
        BadRecord if many cannot be claimed, and no other can.
        """

    async def foreign_locks(self, kind: Kind, ids: Sequence[str]) -> dict[str, datetime]:
        """Which of these records a worker of another program has, by its lock, and since when.

        Claims leave them out. A lock older than ``abandoned_after`` of the kind counts no more.
        """

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        """Extend leases and write their fields and holders; return those still held.

        Absence means lost: stop that work.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        """Apply each settlement whole or not at all: move, fields, history row, effects.

        Answers in order. A settlement with a fence ends its lease; a stale fence is Lost. Without a
        fence it is an operator's move: it ends any lease by raising the fence, and is Lost if the
        record is not in one of the states ``frm``.

        A settlement that cannot be written is Rejected, and the others are written: a value does
        not fit, an effect cannot be applied, the table refuses it. A settlement that touches a row
        which another program has locked is Locked, and the others are written: send it again later.
        Raises only StoreUnavailable and StoreConflict.
        """

    async def backlog(self, request: ClaimRequest, cap: int = 10_000) -> Backlog:
        """What this claim could take now. ``next``: when a record becomes due, if none is."""

    # budgets

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1, ahead: float = 0.0
    ) -> Granted | Denied:
        """Reserve up to ``units`` in all windows, or nothing if less than ``least`` is left.

        ``ahead``: units of a rate may be reserved so many seconds before they may be used.
        """

    async def refund(
        self, budget: Budget, units: int, spender: str, at: datetime | None = None
    ) -> None:
        """Give back units that were reserved and not used.

        ``at`` is when they were granted: a window that began later is not changed. No window gives
        back more than this spender took from it.
        """

    async def observe(
        self,
        budget: Budget,
        per: str,
        *,
        used: int | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> None:
        """Record what the provider reported about the current window.

        At least ``used`` units are used, the limit is ``limit``, or no call succeeds before
        ``until``.
        """

    async def usage(self, budget: Budget) -> list[WindowUse]:
        """The use of each window now, by spender."""

    async def past_usage(
        self, budget: Budget, window: Window, starts: Sequence[datetime]
    ) -> list[PastWindow]:
        """Those of the windows with these starts that were used and are kept, in order of time.

        Windows of an hour are kept for 35 days, longer ones for more than a year.
        """

    # waking

    async def wake(self, kind: Kind) -> None:
        """Notify listeners, in this and other processes, that records of this kind may be due."""

    async def listen(
        self, notify: Callable[[str], Awaitable[None] | None]
    ) -> Callable[[], Awaitable[None]]:
        """Call ``notify(table)`` when records may be due; return a function that ends this.

        Notifications may be lost, so listeners also poll.
        """
