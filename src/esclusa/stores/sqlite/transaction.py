"""What a write works with: the open transaction, compiled kinds, and the state of rows."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

import apsw

from esclusa.model.kind import Kind, Ref
from esclusa.stores.sqlite.client import fetch_json
from esclusa.stores.sqlite.codec import ENCODE, Decoder, encode_field, encode_json, encode_time
from esclusa.stores.sqlite.statements import (
    batches,
    expr,
    json_expr,
    locator,
    locator_array,
    placeholders,
    quote,
    select_json,
    selection,
    table_of,
    text_array,
)

INSERT_HISTORY = (
    "INSERT INTO esclusa_history (table_name, record_id, from_state, to_state,"
    " at, who, run, attempt, reason, error)"
)

# The tracking that every move writes; one that keeps fence and attempts writes the rest.
MOVE_COLUMNS = ("status", "due_at", "leased_by", "updated_at", "attempts", "fence")
SETTLE_COLUMNS = MOVE_COLUMNS[:4]

# From so many rows on that get the same values, a statement of their own writes them.
SHARED = 8

# History rows by all values but the id: table, from, to, at, who, run, attempt, reason, error.
Steps: TypeAlias = dict[tuple[Any, ...], list[str]]


class CompiledKind:
    """What is composed once for a kind and used by every call."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.decoder = Decoder(kind)
        self.encoders = [
            (name, ENCODE[kind.types[name]], kind.types[name] == "text") for name in kind.columns
        ]
        self.error_columns = [
            name for name in ("last_error", "error_type", "error_message") if name in kind.track
        ]
        # an alias, because carray has columns (value, count, …) that the table may have too
        by_id = (
            "(SELECT value AS esclusa_wanted FROM carray(?))"
            f" CROSS JOIN {table_of(kind)} ON {quote(kind.id_column)} = esclusa_wanted"
        )
        state = [locator(kind), json_expr(kind, "id")]
        state += [expr(kind, name) for name in ("status", "fence", "attempts", "leased_by")]
        # The `RowState` of the rows with some ids.
        self.select_states = select_json(", ".join(state), by_id)
        self.selection = selection(kind)
        # The rows with some ids.
        self.select_rows = select_json(", ".join(self.selection), by_id)


class CompiledKinds:
    """Compiled kinds by table. A kind may be declared again in the same process."""

    def __init__(self) -> None:
        self._by_table: dict[str, CompiledKind] = {}

    def __getitem__(self, kind: Kind) -> CompiledKind:
        compiled = self._by_table.get(kind.table)
        if compiled is None or compiled.kind is not kind:
            compiled = self._by_table[kind.table] = CompiledKind(kind)
        return compiled


@dataclass(slots=True)
class RowState:
    """A row's tracking as it is in the transaction."""

    locator: Any
    id: str
    status: str
    fence: int
    attempts: int
    holder: str | None
    # Whether an update of it waits in `RowUpdates`.
    written: bool = False


@dataclass(slots=True)
class Transaction:
    """A write transaction, which excludes other writers."""

    connection: apsw.Connection
    kinds: CompiledKinds
    now: datetime
    new_id: Callable[[], str]
    # By table: the states that some stage takes or holds.
    stage_states: Mapping[str, set[str]]
    indexes: frozenset[str] = frozenset()
    # Tables with records that became due.
    woken: set[str] = field(default_factory=set)
    # `now` as it is stored.
    stamp: str = field(init=False)

    def __post_init__(self) -> None:
        self.stamp = encode_time(self.now)

    def lease_end(self, kind: Kind, before: str, to: str) -> dict[str, Any]:
        """Return the extras (values for readers of the table) that a move writes."""
        extras: dict[str, Any] = {"leased_at": None} if "leased_at" in kind.extras else {}
        if "finished_at" in kind.extras and before != to:
            in_stage = to in self.stage_states.get(kind.table, ())
            extras["finished_at"] = None if in_stage else self.stamp
        return extras

    def row_states(self, refs: Sequence[Ref]) -> dict[str, dict[str, RowState]]:
        """Return the rows of these records, by table and id; absent records are left out."""
        ids: dict[Kind, list[str]] = {}
        for ref in refs:
            ids.setdefault(ref.kind, []).append(ref.id)
        return {
            kind.table: {
                row[1]: RowState(*row)
                for row in fetch_json(
                    self.connection, self.kinds[kind].select_states, (text_array(wanted),)
                )
            }
            for kind, wanted in ids.items()
        }

    def row_state(self, kind: Kind, id: str) -> RowState | None:
        return self.row_states([Ref(kind, id)])[kind.table].get(id)

    def add_history(self, steps: Steps) -> None:
        """Write history rows, and forget them. A record is among them once."""
        others: list[Sequence[Any]] = []
        for (table, *move), ids in steps.items():
            if len(ids) < SHARED:
                others += [(table, id, *move) for id in ids]
                continue
            self.connection.execute(
                f"{INSERT_HISTORY} SELECT ?, value, ?, ?, ?, ?, ?, ?, ?, ? FROM carray(?)",
                (table, *move, text_array(ids)),
            )
        for count, values in batches(others):
            self.connection.execute(f"{INSERT_HISTORY} VALUES {placeholders(10, count)}", values)
        steps.clear()

    def add_details(
        self,
        kind: Kind,
        id: str,
        *,
        changes: Mapping[str, Any] | None,
        log: Mapping[str, Any] | None = None,
    ) -> None:
        """Add what an operator changed, or a handler logged, to the last history row."""
        if changes is None and log is None:
            return
        values = [None if each is None else encode_json(each) for each in (changes, log)]
        self.connection.execute(
            """UPDATE esclusa_history SET changes = ?, log = ? WHERE seq =
            (SELECT max(seq) FROM esclusa_history WHERE table_name = ? AND record_id = ?)""",
            (*values, kind.table, id),
        )


class RowUpdates:
    """Updates of single rows, collected by the columns that they write.

    One statement updates all rows that get the same values, another hundreds with values of their
    own.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._connection = transaction.connection
        # By table, tracking and fields: the locators, by the values that are written.
        self._groups: dict[
            tuple[str, tuple[str, ...], tuple[str, ...]],
            tuple[Kind, dict[tuple[Any, ...], list[Any]]],
        ] = {}

    def add(
        self,
        kind: Kind,
        locator: Any,
        tracking: tuple[str, ...],
        values: tuple[Any, ...],
        fields: Mapping[str, Any],
    ) -> None:
        """Add an update of the row with this locator.

        ``values``: the stored values of ``tracking``, which names tracking values and extras.
        ``fields``: Python values of business fields.
        """
        key = (kind.table, tracking, tuple(fields))
        if fields:
            encoded = [encode_field(kind, name, value) for name, value in fields.items()]
            values = (*values, *encoded)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = (kind, {})
        group[1].setdefault(values, []).append(locator)

    def flush(self) -> None:
        for (_, tracking, fields), (kind, located) in self._groups.items():
            columns = {kind.track[n]: i for i, n in enumerate(tracking) if n in kind.track}
            for i, name in enumerate(fields, len(tracking)):
                if name in kind.columns:
                    # tracking wins over a business field that reads the same column
                    columns.setdefault(kind.columns[name], i)
            if columns:
                self._write(kind, columns, located)
        self._groups.clear()

    def _write(
        self, kind: Kind, columns: Mapping[str, int], located: Mapping[tuple[Any, ...], list[Any]]
    ) -> None:
        """Update rows. ``columns``: the position of each column's value."""
        table, others = table_of(kind), list[Sequence[Any]]()
        for values, locators in located.items():
            if len(locators) < SHARED:
                others += [(place, *values) for place in locators]
                continue
            sets = ", ".join(f"{quote(column)} = ?" for column in columns)
            self._connection.execute(
                f"""UPDATE {table} SET {sets}
                WHERE {locator(kind)} IN (SELECT value FROM carray(?))""",
                (*(values[i] for i in columns.values()), locator_array(locators)),
            )
        if not others:
            return
        width = len(others[0])
        names = ", ".join(f"v{i}" for i in range(width - 1))
        sets = ", ".join(f"{quote(column)} = esclusa_new.v{i}" for column, i in columns.items())
        for count, flat in batches(others):
            self._connection.execute(
                f"""WITH esclusa_new(locator, {names}) AS (VALUES {placeholders(width, count)})
                UPDATE {table} SET {sets} FROM esclusa_new
                WHERE {table}.{locator(kind)} = esclusa_new.locator""",
                flat,
            )
