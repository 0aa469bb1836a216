"""SQL text of claims: the rows that may be taken now, in order, and the index that serves it."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from esclusa.model.kind import Kind
from esclusa.model.settlement import ClaimRequest
from esclusa.stores.sqlite.codec import decode_time, encode_time, text_literal
from esclusa.stores.sqlite.statements import (
    Conditions,
    Statement,
    condition,
    conditions,
    expr,
    index,
    json_expr,
    locator,
    order_by,
    quote,
    select_json,
    table_of,
    text_array,
    time_expr,
    where_clause,
)


def claim_predicate(kind: Kind, states: Sequence[str], where: Conditions) -> str:
    """Return which rows a stage claims whatever the time: in its index and in its queries."""
    tests = [f"{expr(kind, 'status')} IN ({', '.join(text_literal(s) for s in sorted(states))})"]
    tests += [
        condition(kind, name, cond, None)
        for name, cond in where
        if kind.types[name] != "decimal" and cond.value != ()
    ]
    return " AND ".join(tests)


def claim_index(kind: Kind, states: Sequence[str], where: Conditions) -> tuple[str, str]:
    """Return the name of a stage's index and the statement that creates it."""
    columns = [time_expr(kind, "due_at"), quote(kind.id_column)]
    return index(kind, "claim", columns, f" WHERE {claim_predicate(kind, states, where)}")


def claim_candidates(
    request: ClaimRequest,
    now: str,
    indexes: frozenset[str],
    later: bool = False,
    using: str | None = None,
) -> Statement:
    """Return ``FROM … WHERE …`` of the rows that a claim may take now, or only ``later``.

    ``indexes``: those that exist. The statement names the index to use, by default the claim's,
    because the planner would rather read a whole state and sort it.
    """
    kind = request.kind
    states = request.take if request.hold is None else (*request.take, request.hold)
    name, _ = claim_index(kind, states, request.where)
    values: list[Any] = []
    tests = [claim_predicate(kind, states, request.where)]
    not_indexed = [(n, c) for n, c in request.where if kind.types[n] == "decimal" or c.value == ()]
    tests += conditions(kind, not_indexed, values)
    due, updated = time_expr(kind, "due_at"), time_expr(kind, "updated_at")
    limit = now if request.before is None else min(now, encode_time(request.before))
    if later:
        tests.append(f"{due} > ?")
        values.append(now)
    elif request.before is not None and request.eager:
        take = ", ".join(text_literal(s) for s in request.take)
        free = f"{quote(kind.track['leased_by'])} IS NULL AND {updated} <= ?"
        tests.append(f"({due} <= ? OR ({expr(kind, 'status')} IN ({take}) AND {free}))")
        values += [limit, encode_time(request.before)]
    else:
        tests.append(f"{due} <= ?")
        values.append(limit)
    if request.since is not None:
        tests.append(f"{due} >= ?")
        values.append(encode_time(request.since))
    if request.excluded:
        tests.append(f"{quote(kind.id_column)} NOT IN (SELECT value FROM carray(?))")
        values.append(text_array(request.excluded))
    if has_locks_of_others(kind) and not later:
        tests.append(not_locked_by_others(kind))
        values.append(abandoned_before(kind, decode_time(now)))
    if request.hold is not None and request.abandoned_after is not None and not later:
        # Another program left a record in the hold state: only if that is long ago.
        other = f"{expr(kind, 'status')} <> {text_literal(request.hold)}"
        held = f"{quote(kind.track['leased_by'])} IS NOT NULL"
        tests.append(f"({other} OR {held} OR {updated} <= ?)")
        since = decode_time(now) - timedelta(seconds=request.abandoned_after)
        values.append(encode_time(since))
    if kind.attached:  # a row without an id cannot be addressed
        tests.append(f"{quote(kind.id_column)} IS NOT NULL")
    if request.ids:  # the plus keeps the planner from reading all that is due by another index
        tests = [f"+({' AND '.join(tests)})"]
        tests.append(f"{quote(kind.id_column)} IN (SELECT value FROM carray(?))")
        values.append(text_array(request.ids))
    name = using or name
    by = f" INDEXED BY {quote(name)}" if name in indexes and not request.ids else ""
    return f"{table_of(kind)}{by}{where_clause(tests)}", values


def has_locks_of_others(kind: Kind) -> bool:
    """Whether the table has a column in which another program notes that it has a row."""
    return kind.attached and "leased_at" in kind.extras


def not_locked_by_others(kind: Kind) -> str:
    """Return the test that no other program's worker has a row, or that its lock is old.

    It takes ``abandoned_before``. A worker of another program locks rows that are due. Our own
    leases end after they began.
    """
    locked, due = time_expr(kind, "leased_at"), time_expr(kind, "due_at")
    return f"({locked} = '' OR {due} > {locked} OR {locked} <= ?)"


def abandoned_before(kind: Kind, now: datetime) -> str:
    """Return the time before which the locks of other programs count no more."""
    return encode_time(now - timedelta(seconds=kind.track.abandoned_after))


def claim_rows(request: ClaimRequest, now: str, indexes: frozenset[str]) -> Statement:
    """Select the rows that a claim takes, in its order: the kind's columns, then the locator."""
    kind = request.kind
    source, values = claim_candidates(request, now, indexes)
    order = order_by(request)
    if not request.order:
        order = f"{time_expr(kind, 'due_at')}, {order}"
    aliases = ", ".join(f"c{i}" for i in range(len(kind.columns)))
    columns = ", ".join(f"{json_expr(kind, n)} AS c{i}" for i, n in enumerate(kind.columns))
    rows = f"SELECT {locator(kind)} AS l, {columns} FROM {source} ORDER BY {order} LIMIT ?"
    return select_json(f"{aliases}, l", f"({rows})"), [*values, request.limit]
