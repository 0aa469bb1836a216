"""Claim and renew, each called inside one write transaction."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import apsw

from esclusa.model.key_limits import KeyLimit
from esclusa.model.kind import Kind, Ref
from esclusa.model.settlement import ClaimRequest, Leased, Renewal
from esclusa.model.suspects import claimed, group_of, worker_of
from esclusa.model.texts import text
from esclusa.stores.sqlite.claim_statements import (
    abandoned_before,
    claim_rows,
    has_locks_of_others,
    not_locked_by_others,
)
from esclusa.stores.sqlite.client import fetch_json
from esclusa.stores.sqlite.codec import decode_time, encode_time
from esclusa.stores.sqlite.key_limits import RowsByKey
from esclusa.stores.sqlite.statements import (
    expr,
    json_expr,
    locator,
    locator_array,
    quote,
    table_of,
    text_array,
    time_expr,
)
from esclusa.stores.sqlite.transaction import INSERT_HISTORY, RowUpdates, Transaction


def claim(
    transaction: Transaction, request: ClaimRequest, turns: dict[str, Any] | None = None
) -> list[Leased]:
    """Lease due records and return them as they are then.

    ``turns``: by stage with a limit per key, the key that was served last.
    """
    kind = request.kind
    if request.per is not None:
        ids = _in_turn(transaction, request, request.per, {} if turns is None else turns)
        if not ids:
            return []
        request = replace(request, ids=ids)
    rows = fetch_json(
        transaction.connection, *claim_rows(request, transaction.stamp, transaction.indexes)
    )
    if not rows:
        return []
    until = transaction.now + timedelta(seconds=request.lease)
    locators = [row.pop() for row in rows]
    decoder = transaction.kinds[kind].decoder
    at = decoder.position
    status, attempts, fence, holder = at["status"], at["attempts"], at["fence"], at["leased_by"]
    written = {"due_at": until, "updated_at": transaction.now, "leased_by": request.worker}
    written |= _extra_fields(transaction, request)
    replaced = [at[name] for name in written]
    limit = 2**62 if request.tries is None else request.tries
    leases: list[Leased] = []
    counted: list[Any] = []
    # Locators by what is added to the attempts and by the holder.
    holds = {(1, request.worker): counted}
    steps: dict[tuple[str, str, str | None], list[Any]] = {}
    for place, row in zip(locators, rows, strict=True):
        before, old_holder, tried = row[status], row[holder], row[attempts]
        after = row[status] = request.hold or before
        over, group, known = False, 0, written
        if old_holder is None and tried < limit:
            row[attempts] += 1
            counted.append(place)
        else:
            group = group_of(old_holder)
            row[attempts], over, mark = claimed(old_holder, tried, request.tries, request.worker)
            holds.setdefault((row[attempts] - tried, mark), []).append(place)
            known = written | {"leased_by": mark}
        row[fence] += 1
        for position in replaced:  # not worth decoding
            row[position] = None
        if after != before or old_holder is not None:
            expired = (
                None
                if old_holder is None
                else text("lease_expired", worker=worker_of(old_holder)).dump()
            )
            steps.setdefault((before, after, expired), []).append(place)
        record, fault = decoder.checked_record(row, known)
        taken = request.take[0] if before == request.hold else before
        leases.append(Leased(record, taken, until, fault, over, group))
    for (added, mark), places in holds.items():
        if places:
            _hold(transaction, request, places, added, mark, encode_time(until))
    if kind.history:
        _add_history(transaction, request, steps)
    return leases


def _in_turn(
    transaction: Transaction, request: ClaimRequest, per: KeyLimit, turns: dict[str, Any]
) -> tuple[str, ...]:
    reader = RowsByKey(transaction.connection, request, per, transaction.stamp, transaction.indexes)
    shares = reader.shares(turns.get(request.stage))
    turns[request.stage] = reader.turn
    return tuple(id for share in shares for id in share.ids)


def candidate_ids(
    connection: apsw.Connection, request: ClaimRequest, now: str, indexes: frozenset[str]
) -> list[str]:
    """Return the ids of the records that a claim would take, in its order."""
    place = list(request.kind.columns).index("id")
    return [row[place] for row in fetch_json(connection, *claim_rows(request, now, indexes))]


def _extra_fields(transaction: Transaction, request: ClaimRequest) -> dict[str, Any]:
    """Return the business fields that read a column which the claim writes."""
    kind = request.kind
    written: dict[str, Any] = {"leased_at": transaction.now}
    if request.hold is not None:
        written["finished_at"] = None
    return {
        field.name: value
        for name, value in written.items()
        for field in kind.fields
        if field.column == kind.extras.get(name)
    }


def _hold(
    transaction: Transaction,
    request: ClaimRequest,
    locators: list[Any],
    added: int,
    holder: str,
    due: str,
) -> None:
    kind, track = request.kind, request.kind.track
    sets = [
        f"{quote(track['fence'])} = {expr(kind, 'fence')} + 1",
        f"{quote(track['attempts'])} = {expr(kind, 'attempts')} + ?",
    ]
    sets += [f"{quote(track[name])} = ?" for name in ("leased_by", "due_at", "updated_at")]
    values: list[Any] = [added, holder, due, transaction.stamp]
    if request.hold is not None:
        sets.append(f"{quote(track['status'])} = ?")
        values.append(request.hold)
        if "finished_at" in kind.extras:
            sets.append(f"{quote(kind.extras['finished_at'])} = NULL")
    if "leased_at" in kind.extras:
        sets.append(f"{quote(kind.extras['leased_at'])} = ?")
        values.append(transaction.stamp)
    transaction.connection.execute(
        f"UPDATE {table_of(kind)} SET {', '.join(sets)} WHERE {_located(kind)}",
        [*values, locator_array(locators)],
    )


def _located(kind: Kind) -> str:
    return f"{locator(kind)} IN (SELECT value FROM carray(?))"


def _add_history(
    transaction: Transaction,
    request: ClaimRequest,
    steps: dict[tuple[str, str, str | None], list[Any]],
) -> None:
    """Write the history of a claim: one statement for all rows that made the same move."""
    kind = request.kind
    for (before, after, reason), locators in steps.items():
        transaction.connection.execute(
            f"""{INSERT_HISTORY}
            SELECT ?, {json_expr(kind, "id")}, ?, ?, ?, ?, ?, {expr(kind, "attempts")}, ?, NULL
            FROM {table_of(kind)} WHERE {_located(kind)}""",
            (
                kind.table,
                before,
                after,
                transaction.stamp,
                request.worker,
                request.run,
                reason,
                locator_array(locators),
            ),
        )


def renew(transaction: Transaction, renewals: Sequence[Renewal]) -> set[Ref]:
    """Extend leases; return those still held."""
    held: set[Ref] = set()
    rows = transaction.row_states([r.ref for r in renewals])
    updates = RowUpdates(transaction)
    for renewal in renewals:
        ref = renewal.ref
        row = rows[ref.kind.table].get(ref.id)
        if row is None or row.holder is None or row.fence != renewal.fence:
            continue
        held.add(ref)
        until = encode_time(transaction.now + timedelta(seconds=renewal.seconds))
        tracking = {"due_at": until}
        if renewal.holder is not None:
            tracking["leased_by"] = renewal.holder
        if renewal.fields:
            tracking["updated_at"] = transaction.stamp
        values = tuple(tracking.values())
        updates.add(ref.kind, row.locator, tuple(tracking), values, renewal.fields)
    updates.flush()
    return held


def foreign_locks(
    connection: apsw.Connection, kind: Kind, ids: Sequence[str], now: datetime
) -> dict[str, datetime]:
    """Return which of these records another program's worker has, and since when."""
    if not has_locks_of_others(kind):
        return {}
    rows = connection.execute(
        f"""SELECT {expr(kind, "id")}, {time_expr(kind, "leased_at")} FROM {table_of(kind)}
        WHERE {quote(kind.id_column)} IN (SELECT value FROM carray(?))
            AND NOT {not_locked_by_others(kind)}""",
        (text_array(ids), abandoned_before(kind, now)),
    )
    return {str(id): decode_time(since) for id, since in rows}
