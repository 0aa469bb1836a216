"""Read records: get, find, scan, count, tally, totals, backlog."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from esclusa.model.cursors import encode_cursor
from esclusa.model.kind import Kind
from esclusa.model.query import Grouping, Page, Query, Total, totals_in_order
from esclusa.model.record import Record
from esclusa.model.settlement import Backlog, ClaimRequest, StateCount
from esclusa.stores.sqlite import claim_statements, statements
from esclusa.stores.sqlite.client import fetch_json, fetch_value
from esclusa.stores.sqlite.codec import DECODE, decode_time
from esclusa.stores.sqlite.statements import (
    conditions,
    expr,
    select_json,
    table_of,
    text_array,
    time_expr,
    where_clause,
)
from esclusa.stores.sqlite.transaction import CompiledKinds

# How far a state is counted along its index at first, and at most.
_FIRST_TALLY_CAP, _LAST_TALLY_CAP = 50_000, 1_000_000


def get(
    connection: apsw.Connection, kinds: CompiledKinds, kind: Kind, ids: Sequence[str]
) -> list[Record | None]:
    """Return records by id, in order; None for an absent one."""
    if not ids:
        return []
    compiled = kinds[kind]
    rows = fetch_json(connection, compiled.select_rows, (text_array(ids),))
    records = {row[0]: compiled.decoder.checked_record(row)[0] for row in rows}
    return [records.get(id) for id in ids]


def find(connection: apsw.Connection, kinds: CompiledKinds, query: Query) -> Page[Record]:
    """Return one page and the cursor of the next."""
    compiled = kinds[query.kind]
    after = statements.cursor_values(query) if query.after is not None else None
    found = statements.find(query, query.limit + 1, after, compiled.selection)
    rows = fetch_json(connection, *found)
    more, rows = len(rows) > query.limit, rows[: query.limit]
    keys = len(query.order)
    # a cursor holds values as they are stored
    cursor = encode_cursor(query, rows[-1][: keys + 1]) if more else None
    return Page([compiled.decoder.checked_record(row[keys:])[0] for row in rows], cursor)


def scan(
    connection: apsw.Connection, kinds: CompiledKinds, query: Query, size: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield pages of plain values by field name; the caller holds a read transaction."""
    decoder, keys = kinds[query.kind].decoder, len(query.order)
    for rows in _pages(connection, query, size):
        yield [decoder.values(row[keys:]) for row in rows]


def scan_columns(
    connection: apsw.Connection, query: Query, size: int
) -> Iterator[dict[str, Sequence[Any]]]:
    """Yield pages of one sequence per field, JSON as text; the caller holds a read transaction."""
    kind, keys = query.kind, len(query.order)
    types = [kind.types[name] for name in kind.columns]
    decoders = [None if type == "json" else DECODE[type] for type in types]
    for rows in _pages(connection, query, size):
        columns = list(zip(*rows, strict=True))[keys:]
        yield {
            name: column
            if decode is None
            else [None if value is None else decode(value) for value in column]
            for name, decode, column in zip(kind.columns, decoders, columns, strict=True)
        }


def _pages(connection: apsw.Connection, query: Query, size: int) -> Iterator[list[list[Any]]]:
    """Yield the rows of ``statements.find``, page by page."""
    keys = len(query.order)
    after: list[Any] | None = None
    while True:
        rows = fetch_json(connection, *statements.find(query, size, after))
        if rows:
            after = rows[-1][: keys + 1]
            yield rows
        if len(rows) < size:
            return


def count(connection: apsw.Connection, query: Query, cap: int) -> tuple[int, bool]:
    """Count up to the cap; return the count and whether it is exact."""
    found = fetch_value(connection, *statements.count(query, cap))
    return min(found, cap), found <= cap


def tally(connection: apsw.Connection, kind: Kind, cap: int) -> list[StateCount]:
    """Count every state up to the cap."""
    return [
        StateCount(str(state), min(found, cap), found <= cap)
        for state, found in _counts(connection, kind, cap).items()
    ]


def full_tally(connection: apsw.Connection, kind: Kind) -> list[StateCount]:
    """Count every state to its end.

    The largest state is not counted along its index: it is the size of the table, which SQLite
    counts by the page, less the others. If several states have more than a million records, each is
    reported as at least a million.
    """
    rows = f"SELECT 1 FROM {table_of(kind)} WHERE {expr(kind, 'status')} = ? LIMIT ?"
    count_state = f"SELECT COUNT(*) FROM ({rows})"
    with connection:  # one snapshot of the table
        cap, counts = _FIRST_TALLY_CAP, _counts(connection, kind, _FIRST_TALLY_CAP)
        large = [state for state, found in counts.items() if found > cap]
        while len(large) > 1 and cap < _LAST_TALLY_CAP:
            cap = min(cap * 4, _LAST_TALLY_CAP)
            for state in large:
                counts[state] = fetch_value(connection, count_state, (state, cap + 1))
            large = [state for state in large if counts[state] > cap]
        if len(large) == 1:
            others = sum(counts.values()) - counts[large[0]]
            total = fetch_value(connection, f"SELECT COUNT(*) FROM {table_of(kind)}")
            counts[large[0]] = total - others
            large = []
    return [
        StateCount(str(state), min(found, cap) if state in large else found, state not in large)
        for state, found in counts.items()
    ]


def _counts(connection: apsw.Connection, kind: Kind, cap: int) -> dict[Any, int]:
    found = dict(fetch_json(connection, *statements.count_by_state(kind, cap)))
    return dict.fromkeys(kind.lifecycle.states, 0) | found


def totals(connection: apsw.Connection, query: Query, grouping: Grouping) -> list[Total]:
    """Return count and sums of number fields by the values of other fields."""
    kind, values = query.kind, list[Any]()
    where = where_clause(conditions(kind, query.where, values))
    keys = [f"{expr(kind, name)} AS k{n}" for n, name in enumerate(grouping.by)]
    sums = [f"COALESCE(SUM({expr(kind, name)}), 0) AS s{n}" for n, name in enumerate(grouping.sums)]
    group = f" GROUP BY {', '.join(f'k{n}' for n in range(len(keys)))}" if keys else ""
    groups = (
        f"SELECT {', '.join([*keys, 'COUNT(*) AS n', *sums])}"
        f" FROM {table_of(kind, query.archived)}{where}{group} LIMIT {grouping.cap + 1}"
    )
    names = [*(f"k{n}" for n in range(len(keys))), "n", *(f"s{n}" for n in range(len(sums)))]
    decoders = [DECODE[kind.types[name]] for name in grouping.by]
    found = []
    for row in fetch_json(connection, select_json(", ".join(names), f"({groups})"), values):
        shared = [
            value if value is None or decode is None else decode(value)
            for value, decode in zip(row, decoders, strict=False)
        ]
        count, *summed = row[len(keys) :]
        if count:  # without groups, an empty table has one row
            found.append(
                Total(
                    dict(zip(grouping.by, shared, strict=True)),
                    count,
                    dict(zip(grouping.sums, summed, strict=True)),
                )
            )
    return totals_in_order(query, grouping, found)


def backlog(
    connection: apsw.Connection,
    request: ClaimRequest,
    now: str,
    cap: int,
    indexes: frozenset[str],
) -> Backlog:
    """Count what a claim could take, along its index."""
    due = time_expr(request.kind, "due_at")
    source, values = claim_statements.claim_candidates(request, now, indexes)
    rows = f"SELECT {due} AS due FROM {source} ORDER BY {due} LIMIT ?"
    found, oldest = next(
        connection.execute(f"SELECT COUNT(*), MIN(due) FROM ({rows})", [*values, cap + 1])
    )
    if found:
        return Backlog(min(found, cap), found <= cap, decode_time(oldest) if oldest else None, None)
    source, values = claim_statements.claim_candidates(request, now, indexes, later=True)
    following = f"SELECT {due} FROM {source} ORDER BY {due} LIMIT 1"
    for (moment,) in connection.execute(following, values):
        return Backlog(0, True, None, decode_time(moment))
    return Backlog(0, True, None, None)
