"""What a write works with: the open transaction, compiled kinds, and the state of rows."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import apsw

from esclusa.model.kind import Kind, Ref
from esclusa.stores.sqlite.client import fetch_json
from esclusa.stores.sqlite.codec import ENCODE, Decoder, encode_field, encode_json, encode_time
from esclusa.stores.sqlite.statements import (
    batches,
    expr,
    json_expr,
    locator,
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

# The tracking that every move writes.
MOVE_COLUMNS = ("status", "attempts", "due_at", "fence", "leased_by", "updated_at")


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

    def add_history(self, steps: Iterable[Sequence[Any]]) -> None:
        """Write history rows: table, id, from, to, at, who, run, attempt, reason, error."""
        for count, values in batches(list(steps)):
            self.connection.execute(f"{INSERT_HISTORY} VALUES {placeholders(10, count)}", values)

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

    One statement then updates hundreds of rows.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._connection = transaction.connection
        self._groups: dict[
            tuple[str, tuple[str, ...], tuple[str, ...]], tuple[Kind, list[list[Any]]]
        ] = {}

    def add(
        self, kind: Kind, row: list[Any], tracking: tuple[str, ...], fields: Mapping[str, Any]
    ) -> None:
        """Add an update.

        ``row``: the locator and the stored values of ``tracking``, which names tracking values and
        extras. ``fields``: Python values of business fields.
        """
        key = (kind.table, tracking, tuple(fields))
        row += [encode_field(kind, name, value) for name, value in fields.items()]
        self._groups.setdefault(key, (kind, []))[1].append(row)

    def flush(self) -> None:
        for (_, tracking, fields), (kind, rows) in self._groups.items():
            columns = {
                kind.track[name]: f"v{i}" for i, name in enumerate(tracking) if name in kind.track
            }
            for i, name in enumerate(fields, len(tracking)):
                if name in kind.columns:
                    # tracking wins over a business field that reads the same column
                    columns.setdefault(kind.columns[name], f"v{i}")
            if not columns:
                continue
            width = len(tracking) + len(fields)
            names = ", ".join(f"v{i}" for i in range(width))
            sets = ", ".join(f"{quote(c)} = esclusa_new.{value}" for c, value in columns.items())
            table = table_of(kind)
            for count, values in batches(rows):
                self._connection.execute(
                    f"""WITH esclusa_new(locator, {names})
                        AS (VALUES {placeholders(width + 1, count)})
                    UPDATE {table} SET {sets} FROM esclusa_new
                    WHERE {table}.{locator(kind)} = esclusa_new.locator""",
                    values,
                )
        self._groups.clear()
