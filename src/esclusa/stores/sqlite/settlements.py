"""Settle, called inside one write transaction: the records' own moves first, then the effects."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, assert_never

from esclusa.model.effects import Add, Create, Effect, Exists, Move, Wake
from esclusa.model.errors import UndeclaredMove
from esclusa.model.kind import Kind, Ref
from esclusa.model.record import Record
from esclusa.model.settlement import (
    Lost,
    Rejected,
    Settled,
    Settlement,
    Transition,
    Verdict,
)
from esclusa.stores.sqlite import inserts
from esclusa.stores.sqlite.client import fetch_value
from esclusa.stores.sqlite.codec import encode_json, encode_time
from esclusa.stores.sqlite.statements import (
    conditions,
    expr,
    locator,
    quote,
    table_of,
    text_array,
    time_expr,
    where_clause,
)
from esclusa.stores.sqlite.transaction import (
    MOVE_COLUMNS,
    SETTLE_COLUMNS,
    SHARED,
    RowState,
    RowUpdates,
    Steps,
    Transaction,
)

_ERROR_KEYS = {"error_type": "type", "error_message": "message"}


class EffectRefused(Exception):
    """An effect cannot be applied as declared."""


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> list[Verdict]:
    """Apply settlements; if some are rejected, undo everything and apply the others again."""
    connection = transaction.connection
    if _settle_alike(transaction, settlements):
        return [Settled(s.ref) for s in settlements]
    rejected: dict[int, str] = {}
    while True:
        connection.execute("SAVEPOINT settle")
        transaction.woken.clear()
        verdicts, faults = _settle(transaction, settlements, rejected)
        if not faults:
            connection.execute("RELEASE settle")
            return verdicts
        connection.execute("ROLLBACK TO settle; RELEASE settle")
        # an effect that failed on a record whose own settlement failed may succeed without it
        failed = {settlements[i].ref for i in faults}
        independent = {
            i: why
            for i, why in faults.items()
            if not any(
                isinstance(e, Move) and Ref(e.kind, e.id) in failed for e in settlements[i].effects
            )
        }
        rejected |= independent or dict(list(faults.items())[:1])


def _settle_alike(transaction: Transaction, settlements: Sequence[Settlement]) -> bool:
    """Write settlements that share a transition without fields and effects.

    Return whether they all were written; otherwise none is. Their rows are not read first: one
    statement for each fence checks and writes them. That halves the cost of the most frequent kind
    of settlement.
    """
    t = settlements[0].transition
    writes_more = t.fields or t.effects or t.error or t.log or t.changes
    if len(settlements) < SHARED or len(t.frm) != 1 or writes_more:
        return False
    ids: dict[int, list[str]] = {}
    for s in settlements:
        if s.transition is not t or s.fence is None:
            return False
        ids.setdefault(s.fence, []).append(s.ref.id)
    connection, kind, [before] = transaction.connection, t.kind, t.frm
    sets: dict[str, Any] = dict(zip(SETTLE_COLUMNS, _settled(transaction, t), strict=True))
    if t.attempts is not None:
        sets["attempts"] = t.attempts
    if t.clear_error:
        sets |= dict.fromkeys(transaction.kinds[kind].error_columns)
    sets |= transaction.lease_end(kind, before, t.to)
    columns = {kind.track[name]: value for name, value in sets.items() if name in kind.track}
    statement = alike_statement(kind, columns)
    connection.execute("SAVEPOINT alike")
    for fence, wanted in ids.items():
        values = (*columns.values(), text_array(wanted), fence, before)
        connection.execute(statement, values)
        if connection.changes() != len(wanted):
            connection.execute("ROLLBACK TO alike; RELEASE alike")
            transaction.woken.clear()
            return False
        if kind.history:
            step = (before, t.to, transaction.stamp, t.who, t.run, t.attempt, t.reason, None)
            transaction.add_history({(kind.table, *step): wanted})
    connection.execute("RELEASE alike")
    return True


def alike_statement(kind: Kind, columns: Iterable[str]) -> str:
    """Return the update of held rows by their ids, fence and state."""
    # The plus: rows are found by id, not by state.
    return f"""UPDATE {table_of(kind)} SET {", ".join(f"{quote(column)} = ?" for column in columns)}
        WHERE {quote(kind.id_column)} IN (SELECT value FROM carray(?))
            AND {expr(kind, "fence")} = ? AND {quote(kind.track["leased_by"])} IS NOT NULL
            AND +{expr(kind, "status")} = ?"""


def _settle(
    transaction: Transaction, settlements: Sequence[Settlement], rejected: Mapping[int, str]
) -> tuple[list[Verdict], dict[int, str]]:
    """Return the verdicts, and why settlements must be rejected, by their index."""
    rows = transaction.row_states([s.ref for s in settlements])
    updates, steps = RowUpdates(transaction), Steps()
    verdicts: list[Verdict] = []
    with_effects: list[tuple[int, Settlement]] = []
    for i, s in enumerate(settlements):
        kind = s.ref.kind
        row = rows[kind.table].get(s.ref.id)
        if row is None or not _applies(s, row):
            verdicts.append(Lost(s.ref))
            continue
        if s.fence is not None and row.status not in s.transition.held_in:
            verdicts.append(_give_up(transaction, s, row))
            continue
        if i in rejected:
            verdicts.append(Rejected(s.ref, rejected[i]))
            continue
        if row.written:  # a second settlement of the same record comes after the first
            updates.flush()
            transaction.add_history(steps)
        row.written = True
        if kind.history:
            error = None if s.error is None else encode_json(s.error)
            move = (row.status, s.to, transaction.stamp, s.who, s.run, s.attempt, s.reason, error)
            steps.setdefault((kind.table, *move), []).append(row.id)
        _move(transaction, updates, s, row)
        verdicts.append(Settled(s.ref))
        if s.effects:
            with_effects.append((i, s))
    updates.flush()
    transaction.add_history(steps)
    for s, verdict in zip(settlements, verdicts, strict=True):
        if s.changes is None and s.log is None:
            continue
        if s.ref.kind.history and isinstance(verdict, Settled):
            transaction.add_details(s.ref.kind, s.ref.id, changes=s.changes, log=s.log)
    return verdicts, _apply_effects(transaction, with_effects)


def _applies(s: Settlement, row: RowState) -> bool:
    held = row.fence == s.fence and row.holder is not None
    return row.status in s.frm if s.fence is None else held


def _give_up(transaction: Transaction, s: Settlement, row: RowState) -> Lost:
    """End the lease of a record that another program has moved; write nothing else."""
    kind = s.ref.kind
    columns = [kind.track["leased_by"], *(c for n, c in kind.extras.items() if n == "leased_at")]
    sets = ", ".join(f"{quote(column)} = NULL" for column in columns)
    transaction.connection.execute(
        f"UPDATE {table_of(kind)} SET {sets} WHERE {locator(kind)} = ?", (row.locator,)
    )
    row.holder = None
    if kind.history:
        step = (
            s.frm[0],
            row.status,
            transaction.stamp,
            "",
            s.run,
            None,
            s.transition.overtaken,
            None,
        )
        transaction.add_history({(kind.table, *step): [row.id]})
    return Lost(s.ref, row.status)


def _move(transaction: Transaction, updates: RowUpdates, s: Settlement, row: RowState) -> None:
    kind = s.ref.kind
    before = row.status
    row.status, row.holder = s.to, None
    columns: tuple[str, ...] = SETTLE_COLUMNS
    values = _settled(transaction, s.transition)
    if s.fence is None or s.attempts is not None:
        row.fence += s.fence is None
        row.attempts = row.attempts if s.attempts is None else s.attempts
        columns, values = MOVE_COLUMNS, (*values, row.attempts, row.fence)
    if s.error is not None or s.clear_error:
        for name in transaction.kinds[kind].error_columns:
            columns = (*columns, name)
            if s.error is None:
                values = (*values, None)
            elif name in _ERROR_KEYS:
                values = (*values, s.error.get(_ERROR_KEYS[name]))
            else:
                values = (*values, encode_json(s.error))
    if kind.extras:
        extras = transaction.lease_end(kind, before, s.to)
        columns, values = (*columns, *extras), (*values, *extras.values())
    updates.add(kind, row.locator, columns, values, s.fields)


def _settled(transaction: Transaction, t: Transition) -> tuple[Any, ...]:
    """Return the values of ``SETTLE_COLUMNS``, and note that a record may be due now."""
    if t.until is None and t.delay <= 0:
        due, due_now = transaction.stamp, True
    else:
        moment = t.until or transaction.now + timedelta(seconds=t.delay)
        due, due_now = encode_time(moment), moment <= transaction.now
    if due_now:
        transaction.woken.add(t.kind.table)
    return (t.to, due, None, transaction.stamp)


# effects


def _apply_effects(
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
        except (EffectRefused, UndeclaredMove) as error:
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
            _apply_move(transaction, settlement, effect)
        case Wake():
            _wake(transaction, effect)
        case Add():
            _add(transaction, effect)
        case _:
            assert_never(effect)


def _apply_move(transaction: Transaction, settlement: Settlement, move: Move) -> None:
    row = _row_to_move(transaction, move)
    if row is None:
        return
    kind, stamp, updates = move.kind, transaction.stamp, RowUpdates(transaction)
    extras = transaction.lease_end(kind, row.status, move.to)
    values = (move.to, stamp, None, stamp, 0, row.fence + 1, *extras.values())
    updates.add(kind, row.locator, (*MOVE_COLUMNS, *extras), values, move.fields)
    updates.flush()
    if kind.history:
        step = (row.status, move.to, stamp, settlement.who, settlement.run, None, move.reason, None)
        transaction.add_history({(kind.table, *step): [row.id]})
        transaction.add_details(kind, row.id, changes=move.changes)
    transaction.woken.add(kind.table)


def _row_to_move(transaction: Transaction, move: Move) -> RowState | None:
    """Return the row to move; None if the move's conditions are not met."""
    row = transaction.row_state(move.kind, move.id)
    if (move.frm and (row is None or row.status not in move.frm)) or (
        move.unless is not None and _exists(transaction, move.unless)
    ):
        return None
    if row is None:
        raise EffectRefused(f"effect Move: there is no {move.kind.table} {move.id}")
    if not move.frm:
        move.kind.lifecycle.check(
            row.status, move.to, f"effect Move on {move.kind.table} {move.id}"
        )
    return row


def _exists(transaction: Transaction, guard: Exists) -> bool:
    values: list[Any] = []
    where = where_clause(conditions(guard.kind, guard.where, values))
    return bool(
        fetch_value(
            transaction.connection,
            f"SELECT EXISTS (SELECT 1 FROM {table_of(guard.kind)}{where})",
            values,
        )
    )


def _wake(transaction: Transaction, wake: Wake) -> None:
    kind, stamp = wake.kind, transaction.stamp
    if not kind.track.complete:  # no stage takes such a record
        return
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
    amounts = {n: amount for n, amount in add.amounts.items() if n in kind.columns}
    columns = [quote(kind.columns[name]) for name in amounts]
    sets, values = [f"{c} = COALESCE({c}, 0) + ?" for c in columns], [*amounts.values()]
    updated = kind.track.get("updated_at", kind.id_column)
    sets.append(f"{quote(updated)} = ?")
    # past 64 bits SQLite continues with an inexact number
    overflow = " OR ".join(f"{c} NOT BETWEEN {-(2**63)} AND {2**63 - 1}" for c in columns) or "0"
    rows = transaction.connection.execute(
        f"""UPDATE {table_of(kind)} SET {", ".join(sets)}
        WHERE {quote(kind.id_column)} = ? RETURNING {overflow}""",
        [*values, transaction.stamp if updated != kind.id_column else add.id, add.id],
    ).fetchall()
    if not rows:
        raise EffectRefused(f"effect Add: there is no {kind.table} {add.id}")
    if rows[0][0]:
        raise EffectRefused(f"effect Add: the number is too large for {kind.table} {add.id}")
