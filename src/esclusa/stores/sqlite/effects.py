"""Effects of settlements, applied one after another inside the settlement's transaction."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import UndeclaredMove
from esclusa.model.record import Record
from esclusa.model.settlement import Settlement
from esclusa.stores.sqlite import inserts
from esclusa.stores.sqlite.client import fetch_value
from esclusa.stores.sqlite.statements import conditions, quote, table_of, time_expr, where_clause
from esclusa.stores.sqlite.transaction import MOVE_COLUMNS, RowState, RowUpdates, Transaction


class EffectRefused(Exception):
    """An effect cannot be applied as declared."""


def apply_all(
    transaction: Transaction, numbered: Sequence[tuple[int, Settlement]]
) -> dict[int, str]:
    """Apply the effects in order; return why settlements must be rejected, by their number."""
    faults: dict[int, str] = {}
    drafts: list[Record] = []  # inserted together, before the first effect that could see them
    for number, settlement in numbered:
        if all(isinstance(effect, Create) for effect in settlement.effects):
            drafts += [e.record for e in settlement.effects if isinstance(e, Create)]
            continue
        _create(transaction, drafts)
        transaction.connection.execute("SAVEPOINT effects")
        try:
            for effect in settlement.effects:
                _apply(transaction, settlement, effect)
        except EffectRefused as error:
            faults[number] = str(error)
            transaction.connection.execute("ROLLBACK TO effects")
        transaction.connection.execute("RELEASE effects")
    _create(transaction, drafts)
    return faults


def _create(transaction: Transaction, drafts: list[Record]) -> None:
    if drafts:
        inserts.insert(transaction, drafts)
        drafts.clear()


def _apply(transaction: Transaction, settlement: Settlement, effect: Effect) -> None:
    match effect:
        case Create():
            _create(transaction, [effect.record])
        case Move():
            _move(transaction, settlement, effect)
        case Wake():
            _wake(transaction, effect)
        case Add():
            _add(transaction, effect)
        case _:
            assert_never(effect)


def _move(transaction: Transaction, settlement: Settlement, move: Move) -> None:
    row = _row_to_move(transaction, move)
    if row is None:
        return
    kind, updates = move.kind, RowUpdates(transaction)
    stamp = transaction.stamp
    extras = transaction.lease_end(kind, row.status, move.to)
    values = [row.locator, move.to, 0, stamp, row.fence + 1, None, stamp, *extras.values()]
    updates.add(kind, values, (*MOVE_COLUMNS, *extras), move.fields)
    updates.flush()
    if kind.history:
        step = (row.status, move.to, stamp, settlement.who, settlement.run, None, move.reason, None)
        transaction.add_history([(kind.table, row.id, *step)])
    transaction.woken.add(kind.table)


def _row_to_move(transaction: Transaction, move: Move) -> RowState | None:
    """Return the row to move; None if the move's conditions are not met."""
    row = transaction.row_state(move.kind, move.id)
    if move.frm and (row is None or row.status not in move.frm):
        return None
    if move.unless is not None and _exists(transaction, move.unless):
        return None
    if row is None:
        raise EffectRefused(f"effect Move: there is no {move.kind.table} {move.id}")
    if not move.frm:
        where = f"effect Move on {move.kind.table} {move.id}"
        try:
            move.kind.lifecycle.check(row.status, move.to, where)
        except UndeclaredMove as error:
            raise EffectRefused(str(error)) from None
    return row


def _exists(transaction: Transaction, guard: Exists) -> bool:
    values: list[Any] = []
    where = where_clause(conditions(guard.kind, guard.where, values))
    statement = f"SELECT EXISTS (SELECT 1 FROM {table_of(guard.kind)}{where})"
    return bool(fetch_value(transaction.connection, statement, values))


def _wake(transaction: Transaction, wake: Wake) -> None:
    kind, stamp = wake.kind, transaction.stamp
    due, updated = quote(kind.track["due_at"]), quote(kind.track["updated_at"])
    transaction.connection.execute(
        f"""UPDATE {table_of(kind)} SET {due} = ?, {updated} = ?
        WHERE {quote(kind.id_column)} = ? AND {quote(kind.track["leased_by"])} IS NULL
            AND {time_expr(kind, "due_at")} > ?""",
        (stamp, stamp, wake.id, stamp),
    )
    transaction.woken.add(kind.table)


def _add(transaction: Transaction, add: Add) -> None:
    kind = add.kind
    columns = [quote(kind.columns[name]) for name in add.amounts]
    sets = [f"{c} = COALESCE({c}, 0) + ?" for c in columns]
    sets.append(f"{quote(kind.track['updated_at'])} = ?")
    # past 64 bits SQLite continues with an inexact number
    overflow = " OR ".join(f"{c} NOT BETWEEN {-(2**63)} AND {2**63 - 1}" for c in columns) or "0"
    rows = transaction.connection.execute(
        f"""UPDATE {table_of(kind)} SET {", ".join(sets)}
        WHERE {quote(kind.id_column)} = ? RETURNING {overflow}""",
        [*add.amounts.values(), transaction.stamp, add.id],
    ).fetchall()
    if not rows:
        raise EffectRefused(f"effect Add: there is no {kind.table} {add.id}")
    if rows[0][0]:
        raise EffectRefused(f"effect Add: the number is too large for {kind.table} {add.id}")
