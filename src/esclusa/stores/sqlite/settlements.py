"""Settle, called inside one write transaction: the records' own moves first, then the effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from esclusa.model.effects import Move
from esclusa.model.record import Ref
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Verdict
from esclusa.stores.sqlite import effects
from esclusa.stores.sqlite.codec import encode_json, encode_time
from esclusa.stores.sqlite.transaction import MOVE_COLUMNS, RowState, RowUpdates, Transaction

_ERROR_KEYS = {"error_type": "type", "error_message": "message"}


def settle(transaction: Transaction, settlements: Sequence[Settlement]) -> list[Verdict]:
    """Apply settlements; if some are rejected, undo everything and apply the others again."""
    connection = transaction.connection
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


def _settle(
    transaction: Transaction, settlements: Sequence[Settlement], rejected: Mapping[int, str]
) -> tuple[list[Verdict], dict[int, str]]:
    """Return the verdicts, and why settlements must be rejected, by their index."""
    rows = transaction.row_states([s.ref for s in settlements])
    updates, steps = RowUpdates(transaction), list[Sequence[Any]]()
    verdicts: list[Verdict] = []
    with_effects: list[tuple[int, Settlement]] = []
    for i, s in enumerate(settlements):
        kind = s.ref.kind
        row = rows[kind.table].get(s.ref.id)
        if row is None or not _applies(s, row):
            verdicts.append(Lost(s.ref))
            continue
        if i in rejected:
            verdicts.append(Rejected(s.ref, rejected[i]))
            continue
        if row.written:  # a second settlement of the same record comes after the first
            updates.flush()
        row.written = True
        if kind.history:
            error = None if s.error is None else encode_json(s.error)
            move = (row.status, s.to, transaction.stamp, s.who, s.run, s.attempt, s.reason, error)
            steps.append((kind.table, row.id, *move))
        _move(transaction, updates, s, row)
        verdicts.append(Settled(s.ref))
        if s.effects:
            with_effects.append((i, s))
    updates.flush()
    transaction.add_history(steps)
    return verdicts, effects.apply_all(transaction, with_effects)


def _applies(s: Settlement, row: RowState) -> bool:
    if s.fence is None:
        return row.status in s.frm
    return row.fence == s.fence and row.holder is not None


def _move(transaction: Transaction, updates: RowUpdates, s: Settlement, row: RowState) -> None:
    kind = s.ref.kind
    if s.until is None and s.delay <= 0:
        due, due_now = transaction.stamp, True
    else:
        moment = s.until or transaction.now + timedelta(seconds=s.delay)
        due, due_now = encode_time(moment), moment <= transaction.now
    if due_now:
        transaction.woken.add(kind.table)
    before = row.status
    row.status, row.holder = s.to, None
    if s.fence is None:
        row.fence += 1
    if s.attempts is not None:
        row.attempts = s.attempts
    columns: tuple[str, ...] = MOVE_COLUMNS
    values = [row.locator, s.to, row.attempts, due, row.fence, None, transaction.stamp]
    if s.error is not None or s.clear_error:
        for name in transaction.kinds[kind].error_columns:
            columns = (*columns, name)
            if s.error is None:
                values.append(None)
            elif name in _ERROR_KEYS:
                values.append(s.error.get(_ERROR_KEYS[name]))
            else:
                values.append(encode_json(s.error))
    if kind.extras:
        extras = transaction.lease_end(kind, before, s.to)
        columns, values = (*columns, *extras), [*values, *extras.values()]
    updates.add(kind, values, columns, s.fields)
