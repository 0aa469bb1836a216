"""Insert, read, delete and archive records. Writers are called inside one immediate transaction."""

# ruff: noqa: S608 - statements are composed of declared names, quoted; values are bound

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import apsw

from esclusa.model.errors import BadQuery, BadRecord, SchemaError
from esclusa.model.query import ARCHIVE_COLUMNS, Page, Query, encode_cursor, null
from esclusa.model.record import Kind, Record, Ref
from esclusa.model.settlement import (
    Backlog,
    ClaimRequest,
    Duplicate,
    Inserted,
    StateCount,
    StateSummary,
    Step,
)
from esclusa.model.storable import fits, refused
from esclusa.model.system_records import Export
from esclusa.model.texts import text
from esclusa.stores.sqlite import statements
from esclusa.stores.sqlite.codec import DECODE, UNFIT, decode_json, decode_time, encode_time
from esclusa.stores.sqlite.statements import (
    Card,
    Cards,
    chunks,
    many,
    marks,
    place_of,
    q,
    rows,
    shown,
    table_of,
)

_SHORT, _LONG = 50_000, 1_000_000
"""How far a state is walked along its index to be counted: few have more than the first; past the second it is left."""

# insert


def insert(
    connection: apsw.Connection,
    cards: Cards,
    now: datetime,
    new_id: Callable[[], str],
    drafts: Sequence[Record],
) -> list[Inserted | Duplicate]:
    answers: list[Inserted | Duplicate | None] = [None] * len(drafts)
    groups: dict[Kind, list[int]] = {}
    for i, draft in enumerate(drafts):
        groups.setdefault(draft.kind, []).append(i)
    for kind, places in groups.items():
        group = _insert(
            connection, cards[kind], encode_time(now), new_id, [drafts[i] for i in places]
        )
        for i, answer in zip(places, group, strict=True):
            answers[i] = answer
    return [answer for answer in answers if answer is not None]


def _insert(
    connection: apsw.Connection,
    card: Card,
    now: str,
    new_id: Callable[[], str],
    drafts: Sequence[Record],
) -> list[Inserted | Duplicate]:
    kind = card.kind
    stored = [_stored(card, draft, now, new_id) for draft in drafts]
    known = _known(connection, card, stored)
    answers: list[Inserted | Duplicate | None] = []
    fresh: list[tuple[int, list[Any]]] = []
    first: dict[Any, int] = {}
    later: list[tuple[int, int]] = []
    for i, row in enumerate(stored):
        names = _names(card, row)
        found = next((known[name] for name in names if name in known), None)
        earlier = next((first[name] for name in names if name in first), None)
        if found is None and earlier is None:
            first.update(dict.fromkeys(names, i))
            fresh.append((i, row))
        elif earlier is not None:
            later.append((i, earlier))
        answers.append(None if found is None else Duplicate(found))
    for i, id in zip(
        [i for i, _ in fresh],
        _write(connection, kind, new_id, [row for _, row in fresh]),
        strict=True,
    ):
        answers[i] = Inserted(id)
    for i, earlier in later:
        made = answers[earlier]
        assert made is not None
        answers[i] = Duplicate(made.id)
    return [answer for answer in answers if answer is not None]


def _stored(card: Card, draft: Record, now: str, new_id: Callable[[], str]) -> list[Any]:
    """The row of a draft, in the order of the kind's columns; its id is None where the table makes it."""
    kind, values = card.kind, draft.__dict__
    row = []
    try:
        for name, encode, text in card.encoders:
            value = values[name]
            plain = value is None or (
                text and type(value) is str and value.isascii() and "\0" not in value
            )
            row.append(value if plain else encode(value))
    except UNFIT as error:
        raise refused(kind, name, value, error) from None
    place = card.decoder.position
    row[0] = (draft.id or None) if kind.database_id else kind.identify(draft, new_id)
    status = row[place["status"]] = draft.status or kind.initial
    if status not in kind.lifecycle.states:
        raise BadRecord(
            f"{kind.table}: {status!r} is not a state ({', '.join(kind.lifecycle.states)})"
        )
    for name in ("due_at", "created_at"):
        if name in place and row[place[name]] is None:
            row[place[name]] = now
    row[place["updated_at"]] = now
    return row


def _by_key(kind: Kind) -> bool:
    """Whether the key is kept unique by an index of its own; otherwise the id is made of it."""
    return bool(kind.key) and (kind.attached or kind.database_id)


def _names(card: Card, row: list[Any]) -> list[Any]:
    """What makes this row the same record as another: its id, its key."""
    kind, place = card.kind, card.decoder.position
    names: list[Any] = [] if row[0] is None else [row[0]]
    if _by_key(kind):
        names.append(tuple(row[place[name]] for name in kind.key))
    return names


def _known(connection: apsw.Connection, card: Card, stored: Sequence[list[Any]]) -> dict[Any, str]:
    """The ids of the records that are there already, by id and by key."""
    kind, place = card.kind, card.decoder.position
    ids = [row[0] for row in stored if row[0] is not None]
    known: dict[Any, str] = {}
    if ids:
        known |= {row[1]: row[1] for row in rows(connection, card.standing, (many(ids),))}
    if _by_key(kind):
        keys = [[i, *(row[place[name]] for name in kind.key)] for i, row in enumerate(stored)]
        names = ", ".join(f"k{i}" for i in range(len(kind.key)))
        same = " AND ".join(f"{q(kind.columns[name])} IS k{i}" for i, name in enumerate(kind.key))
        found = statements.as_json(
            f"esclusa_place, {shown(kind, 'id')}",
            f"esclusa_wanted CROSS JOIN {card.table} ON {same}",
        )
        for count, values in chunks(keys):
            statement = f"WITH esclusa_wanted(esclusa_place, {names}) AS (VALUES {marks(len(kind.key) + 1, count)}) {found}"
            for i, id in rows(connection, statement, values):
                known[tuple(keys[i][1:])] = id
    return known


def _write(
    connection: apsw.Connection, kind: Kind, new_id: Callable[[], str], new: Sequence[list[Any]]
) -> list[str]:
    """Insert rows; return their ids."""
    columns = [q(column) for column in kind.columns.values()]
    if not kind.database_id:
        for count, values in chunks(new):
            connection.execute(
                f"INSERT INTO {table_of(kind)} ({', '.join(columns)}) VALUES {marks(len(columns), count)}",
                values,
            )
        return [row[0] for row in new]
    ids: list[str] = []
    if not kind.attached and all(row[0] is None for row in new):
        for count, values in chunks([row[1:] for row in new]):
            statement = f"INSERT INTO {table_of(kind)} ({', '.join(columns[1:])}) VALUES {marks(len(columns) - 1, count)}"
            connection.execute(statement, values)
            last = (
                connection.last_insert_rowid()
            )  # rows of one statement are numbered in a row: no one else writes now
            ids += [str(last - count + 1 + i) for i in range(count)]
        return ids
    made = _makes_ids(connection, kind)
    for row in new:  # the table may make its ids in a way of its own, or not at all
        if row[0] is None and not made:
            row[0] = new_id()
        skip = 1 if row[0] is None else 0
        statement = f"INSERT INTO {table_of(kind)} ({', '.join(columns[skip:])}) VALUES {marks(len(columns) - skip, 1)}"
        ids += [
            id
            for (id,) in connection.execute(
                f"{statement} RETURNING {shown(kind, 'id')}", row[skip:]
            )
        ]
    return ids


def _makes_ids(connection: apsw.Connection, kind: Kind) -> bool:
    """Whether the table fills its id column itself: a whole-number primary key, or one with a default."""
    column = """SELECT upper(type) = 'INTEGER' AND pk = 1 AND (SELECT COUNT(*) FROM pragma_table_info(?1) WHERE pk > 0) = 1
        OR dflt_value IS NOT NULL FROM pragma_table_info(?1) WHERE lower(name) = lower(?2)"""
    return any(yes for (yes,) in connection.execute(column, (kind.table, kind.id_column)))


# read


def get(
    connection: apsw.Connection, cards: Cards, kind: Kind, ids: Sequence[str]
) -> list[Record | None]:
    card = cards[kind]
    found = (
        {row[0]: card.decoder.record(row) for row in rows(connection, card.fetched, (many(ids),))}
        if ids
        else {}
    )
    return [found.get(id) for id in ids]


def find(connection: apsw.Connection, cards: Cards, query: Query) -> Page[Record]:
    decoder = cards[query.kind].decoder
    after = statements.cursor_values(query) if query.after is not None else None
    found = rows(connection, *statements.page(query, query.limit + 1, after))
    more, found = len(found) > query.limit, found[: query.limit]
    keys = len(query.order)
    next = (
        encode_cursor(query, found[-1][: keys + 1]) if more else None
    )  # before decoding: it holds values as they are stored
    return Page([decoder.record(row[keys:]) for row in found], next)


def scan(
    connection: apsw.Connection, cards: Cards, query: Query, size: int
) -> Iterator[list[dict[str, Any]]]:
    """Pages of plain values; the caller holds a read transaction."""
    decoder, keys = cards[query.kind].decoder, len(query.order)
    for found in _pages(connection, query, size):
        yield [decoder.values(row[keys:]) for row in found]


def scan_columns(
    connection: apsw.Connection, cards: Cards, query: Query, size: int
) -> Iterator[dict[str, Sequence[Any]]]:
    """The same in columns, JSON as its text."""
    kind, keys = query.kind, len(query.order)
    decoders = [
        None if type == "json" else DECODE[type]
        for type in (kind.types[name] for name in kind.columns)
    ]
    for found in _pages(connection, query, size):
        columns = list(zip(*found, strict=True))[keys:]
        yield {
            name: column
            if decode is None
            else [None if value is None else decode(value) for value in column]
            for name, decode, column in zip(kind.columns, decoders, columns, strict=True)
        }


def _pages(connection: apsw.Connection, query: Query, size: int) -> Iterator[list[list[Any]]]:
    """The rows that match, page by page; before its columns each has the values that it is ordered by."""
    keys = len(query.order)
    after: list[Any] | None = None
    while True:
        found = rows(connection, *statements.page(query, size, after))
        if found:
            after = found[-1][: keys + 1]
            yield found
        if len(found) < size:
            return


def count(connection: apsw.Connection, query: Query, cap: int) -> tuple[int, bool]:
    found = _one(connection, *statements.counted(query, cap))
    return min(found, cap), found <= cap


def tally(connection: apsw.Connection, kind: Kind, cap: int) -> list[StateCount]:
    return [
        StateCount(str(state), min(number, cap), number <= cap)
        for state, number in _tallied(connection, kind, cap).items()
    ]


def whole_tally(connection: apsw.Connection, kind: Kind) -> list[StateCount]:
    """Every state to its end. The largest is not walked: it is what the others leave of the whole table, which SQLite counts by
    the page. Where several have more than a million, each of them is told as at least so many."""
    with connection:  # one view of the table
        cap, found = _SHORT, _tallied(connection, kind, _SHORT)
        large = [state for state, number in found.items() if number > cap]
        while len(large) > 1 and cap < _LONG:
            cap = min(cap * 4, _LONG)
            found |= {
                state: _one(connection, *statements.in_state(kind, state, cap)) for state in large
            }
            large = [state for state in large if found[state] > cap]
        if len(large) == 1:
            others = sum(found.values()) - found[large[0]]
            found[large[0]] = _one(connection, f"SELECT COUNT(*) FROM {table_of(kind)}") - others
            large = []
    return [
        StateCount(str(state), min(number, cap) if state in large else number, state not in large)
        for state, number in found.items()
    ]


def _tallied(connection: apsw.Connection, kind: Kind, cap: int) -> dict[Any, int]:
    return dict.fromkeys(kind.lifecycle.states, 0) | dict(
        rows(connection, *statements.tallied(kind, cap))
    )


def _one(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> int:
    return int(next(iter(connection.execute(statement, values)))[0])


def summary(connection: apsw.Connection, query: Query, average: str) -> list[StateSummary]:
    found = rows(connection, *statements.summed(query, average))
    return [
        StateSummary(str(state), count, None if mean is None else float(mean))
        for state, count, mean in found
    ]


def history(connection: apsw.Connection, ref: Ref, limit: int, newest: bool) -> list[Step]:
    if not fits(ref.id):
        return []
    columns = "from_state, to_state, at, who, run, attempt, reason, error"
    inner = f"SELECT {columns} FROM esclusa_history WHERE table_name = ? AND record_id = ? ORDER BY seq {'DESC' if newest else ''} LIMIT ?"
    found = rows(
        connection, statements.as_json(columns, f"({inner})"), (ref.kind.table, ref.id, limit)
    )
    steps = [
        Step(
            frm,
            to,
            decode_time(at),
            who,
            run,
            attempt,
            reason,
            None if error is None else decode_json(error),
        )
        for frm, to, at, who, run, attempt, reason, error in found
    ]
    return steps[::-1] if newest else steps


def backlog(
    connection: apsw.Connection, ask: ClaimRequest, now: str, cap: int, indexes: frozenset[str]
) -> Backlog:
    due = statements.since(ask.kind, "due_at")
    source, values = statements.candidates(ask, now, indexes)
    statement = (
        f"SELECT COUNT(*), MIN(due) FROM (SELECT {due} AS due FROM {source} ORDER BY {due} LIMIT ?)"
    )
    number, oldest = next(iter(connection.execute(statement, [*values, cap + 1])))
    if number:
        return Backlog(
            min(number, cap), number <= cap, decode_time(oldest) if oldest else None, None
        )
    source, values = statements.candidates(ask, now, indexes, later=True)
    found = [
        moment
        for (moment,) in connection.execute(
            f"SELECT {due} FROM {source} ORDER BY {due} LIMIT 1", values
        )
    ]
    return Backlog(0, True, None, decode_time(found[0]) if found else None)


# delete and archive


def purge(connection: apsw.Connection, query: Query) -> int:
    found = rows(connection, *statements.located(query))
    if found:
        erase(connection, query.kind, found, archived=query.archived)
    return len(found)


def erase(
    connection: apsw.Connection,
    kind: Kind,
    found: Sequence[Sequence[Any]],
    *,
    archived: bool = False,
) -> None:
    """Delete records by their places and ids, with their history; never none."""
    _delete(connection, kind, archived, [place for place, _ in found])
    connection.execute(
        "DELETE FROM esclusa_history WHERE table_name = ? AND record_id IN (SELECT value FROM carray(?))",
        (kind.table, many(id for _, id in found)),
    )


def archive(connection: apsw.Connection, query: Query, now: str, export: str | None) -> int:
    kind = query.kind
    if not kind.archive:
        raise BadQuery(text("no_archive", table=kind.table))
    columns, kept = (
        columns_in(connection, kind.table),
        columns_in(connection, f"archive_{kind.table}"),
    )
    missing = [column for column in columns if column not in kept]
    if missing:  # a column that an outsider added since: it must not be lost
        raise SchemaError(
            f"table archive_{kind.table}",
            [f"it lacks the column {column}; run: esclusa migrate" for column in missing],
        )
    filling = f"SELECT 1 FROM {table_of(Export.kind)} WHERE id = ? AND status = 'filling'"
    if export is not None and not connection.execute(filling, (export,)).fetchall():
        return 0
    found = rows(connection, *statements.located(query))
    if found:
        listed = ", ".join(q(column) for column in columns.values())
        places = [place for place, _ in found]
        connection.execute(
            f"INSERT OR REPLACE INTO {table_of(kind, archived=True)} ({listed}, archived_at, export_id)"
            f" SELECT {listed}, ?, ? FROM {table_of(kind)} WHERE {place_of(kind)} IN (SELECT value FROM carray(?))",
            (now, export, statements.places(places)),
        )
        _delete(connection, kind, False, places)
    return len(found)


def assign(connection: apsw.Connection, query: Query, export: str) -> int:
    found = rows(
        connection,
        *statements.located(query.but(where=(*query.where, ("export_id", null)), archived=True)),
    )
    if found:
        connection.execute(
            f"UPDATE {table_of(query.kind, archived=True)} SET export_id = ? WHERE {place_of(query.kind)} IN (SELECT value FROM carray(?))",
            (export, statements.places(place for place, _ in found)),
        )
    return len(found)


def undeclared(connection: apsw.Connection, kind: Kind) -> list[str]:
    """The archive's columns that are neither a field of the kind nor the archive's own."""
    declared = {column.lower() for column in (*kind.columns.values(), *ARCHIVE_COLUMNS)}
    return [
        name
        for low, name in columns_in(connection, f"archive_{kind.table}").items()
        if low not in declared
    ]


def _delete(connection: apsw.Connection, kind: Kind, archived: bool, places: Sequence[Any]) -> None:
    statement = f"DELETE FROM {table_of(kind, archived)} WHERE {place_of(kind)} IN (SELECT value FROM carray(?))"
    connection.execute(statement, (statements.places(places),))


def columns_in(connection: apsw.Connection, table: str) -> dict[str, str]:
    """The columns that a table has, by their name in lower case; empty if there is no such table."""
    return {
        name.lower(): name
        for (name,) in connection.execute(
            "SELECT name FROM pragma_table_xinfo(?) WHERE hidden <> 1", (table,)
        )
    }
