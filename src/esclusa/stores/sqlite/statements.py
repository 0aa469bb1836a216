"""Statements, composed from declared names (quoted) and bound values.

A state or a stage's constant condition stands in them as a literal, because SQLite uses a partial index only for a query
that repeats its predicate. Whatever returns many rows returns them as one JSON text: every step of a statement gives up
the interpreter's lock, and a busy event loop takes milliseconds to give it back.
"""

# ruff: noqa: S608 - statements are composed of declared names, quoted; values are bound

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import apsw

from esclusa.model.query import ARCHIVE_COLUMNS, Cond, Query, not_a_cursor, open_cursor
from esclusa.model.record import Kind
from esclusa.model.settlement import ClaimRequest
from esclusa.model.storable import fits
from esclusa.stores.sqlite.codec import (
    ENCODE,
    Decoder,
    decode_time,
    encode,
    encode_time,
    literal,
    quoted,
)

DECIMAL = "esclusa_decimal"
"""The collation under which decimals are compared. Never in the schema: other programs must be able to open the file."""

Where = Sequence[tuple[str, Cond]]
_SIZES = (500, 100, 20, 5, 1)
_MOST_VALUES = 7000  # a statement of more than 16 kB is not kept prepared
_OPS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def table_of(kind: Kind, archived: bool = False) -> str:
    return q(f"archive_{kind.table}" if archived else kind.table)


def place_of(kind: Kind) -> str:
    """The column by which a row is found again inside a transaction: the fastest that is surely there."""
    return q(kind.id_column) if kind.attached else "rowid"


def meant(kind: Kind, name: str) -> str:
    """The value of a field as the engine means it: on an attached table null tracking has a meaning."""
    column = q(kind.columns[name])
    if not kind.attached:
        return column
    if name == "status":
        return f"COALESCE({column}, {quoted(kind.initial)})"
    if name in ("attempts", "fence"):
        return f"COALESCE(CAST({column} AS INTEGER), 0)"
    return column


def since(kind: Kind, name: str) -> str:
    """A tracking time for claims: null is older than everything, and an outsider's ISO form sorts beside ours."""
    column = q(kind.columns[name])
    return (
        f"REPLACE(REPLACE(COALESCE({column}, ''), 'T', ' '), 'Z', '')" if kind.attached else column
    )


def shown(kind: Kind, name: str) -> str:
    """The value of a field as it can stand in JSON."""
    value = meant(kind, name)
    if name == "id":
        return f"CAST({value} AS TEXT)" if kind.attached or kind.database_id else value
    if kind.types[name] == "bytes":
        return f"CASE WHEN {value} IS NOT NULL THEN hex({value}) END"
    if kind.attached and kind.types[name] == "text":  # a number there is its digits
        return f"CASE typeof({value}) WHEN 'blob' THEN hex({value}) ELSE CAST({value} AS TEXT) END"
    return (
        f"CASE typeof({value}) WHEN 'blob' THEN hex({value}) ELSE {value} END"
        if kind.attached
        else value
    )


_NOBODY = "\x7fnobody"


def many(items: Iterable[str]) -> Any:
    """A list of texts as one bound value for ``carray``; never empty. Those that no store can hold are left out: they are nobody's."""
    texts = tuple(items)
    try:
        return apsw.carray(texts)
    except ValueError:
        return apsw.carray(tuple(filter(fits, texts)) or (_NOBODY,))


def places(found: Iterable[Any]) -> Any:
    """A list of what ``place_of`` names as one bound value; never empty."""
    listed = list(found)
    return (
        apsw.carray(array("q", listed))
        if all(type(p) is int for p in listed)
        else apsw.carray(tuple(map(str, listed)))
    )


def rows(connection: apsw.Connection, statement: str, values: Sequence[Any]) -> list[list[Any]]:
    """The rows of a statement whose single value is a JSON array of arrays."""
    for (text,) in connection.execute(statement, values):
        found: list[list[Any]] = json.loads(text)
        return found
    return []


def as_json(columns: str, source: str) -> str:
    return f"SELECT json_group_array(json_array({columns})) FROM {source}"


def chunks(items: Sequence[Sequence[Any]]) -> Iterable[tuple[int, list[Any]]]:
    """Rows of equal length cut into a few fixed sizes, so that their statements stay prepared."""
    start = 0
    for size in _SIZES:
        while len(items) - start >= size and (
            size == 1 or size * len(items[start]) <= _MOST_VALUES
        ):
            yield size, [value for row in items[start : start + size] for value in row]
            start += size


@lru_cache(maxsize=512)
def marks(width: int, count: int) -> str:
    """``(?,?),(?,?)``"""
    return ",".join(["(" + ",".join("?" * width) + ")"] * count)


# conditions


def condition(kind: Kind, name: str, cond: Cond, values: list[Any] | None) -> str:
    """One test. With ``values`` its operands are bound there, without they are literals."""
    if name in kind.types:
        column, type = meant(kind, name), kind.types[name]
    else:
        column, type = q(name), ARCHIVE_COLUMNS[name]
    if cond.op == "null":
        return f"{column} IS NULL"
    if cond.op == "not_null":
        return f"{column} IS NOT NULL"
    if type == "decimal":
        column = f"{column} COLLATE {DECIMAL}"
    operands = cond.value if cond.op == "in" else (cond.value,)
    if values is None:
        written = [literal(type, v) for v in operands]
    else:
        written = ["?"] * len(operands)
        values += [encode(type, v) for v in operands]
    return (
        f"{column} IN ({', '.join(written)})"
        if cond.op == "in"
        else f"{column} {_OPS[cond.op]} {written[0]}"
    )


def all_of(kind: Kind, where: Where, values: list[Any]) -> list[str]:
    return [condition(kind, name, cond, values) for name, cond in where]


def _sorted_by(kind: Kind, name: str) -> str:
    return (
        f"{meant(kind, name)} COLLATE {DECIMAL}"
        if kind.types[name] == "decimal"
        else meant(kind, name)
    )


def order(query: Query) -> str:
    """Nulls come first ascending and last descending, which is SQLite's own way."""
    kind = query.kind
    terms = [_sorted_by(kind, o.field) + (" DESC" if o.descending else "") for o in query.order]
    return ", ".join([*terms, q(kind.id_column)])


def page(query: Query, limit: int, after: list[Any] | None) -> tuple[str, list[Any]]:
    """The rows of a query, each with what its cursor needs before its columns."""
    kind = query.kind
    values: list[Any] = []
    tests = all_of(kind, query.where, values)
    if after is not None:
        tests.append(_beyond(query, after, values))
    names = [f"c{i}" for i in range(len(query.order) + len(kind.columns))]
    wanted = [*(shown(kind, o.field) for o in query.order), *(shown(kind, n) for n in kind.columns)]
    picked = ", ".join(
        f"{expression} AS {name}" for expression, name in zip(wanted, names, strict=True)
    )
    inner = f"SELECT {picked} FROM {table_of(kind, query.archived)}{_filter(tests)} ORDER BY {order(query)} LIMIT ?"
    return as_json(", ".join(names), f"({inner})"), [*values, limit]


def _filter(tests: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _beyond(query: Query, after: list[Any], values: list[Any]) -> str:
    """The rows after the cursor: greater in the first value, or equal there and greater in the next …"""
    kind = query.kind
    terms = [(_sorted_by(kind, o.field), o.descending) for o in query.order] + [
        (q(kind.id_column), False)
    ]
    options, fixed, held = [], "", list[Any]()
    for (column, descending), value in zip(terms, after, strict=True):
        if descending:
            step, bound = (
                ("0", []) if value is None else (f"({column} < ? OR {column} IS NULL)", [value])
            )
        else:
            step, bound = (
                (f"{column} IS NOT NULL", []) if value is None else (f"{column} > ?", [value])
            )
        options.append(f"({fixed}{step})")
        values += [*held, *bound]
        fixed += f"{column} IS ? AND "
        held.append(value)
    either = " OR ".join(options)
    if len(terms) > 1 and not terms[0][1] and after[0] is not None:
        values.append(after[0])
        return (
            f"({either}) AND {terms[0][0]} >= ?"  # says nothing new, but an index can begin there
        )
    return f"({either})"


def cursor_values(query: Query) -> list[Any]:
    """The stored values in ``query.after``; BadQuery if it is no cursor of this query."""
    names = [*(o.field for o in query.order), "id"]
    found = open_cursor(query, len(names))
    try:
        if not isinstance(found[-1], str):
            raise TypeError("an id is a text")
        return [
            _cursor_value(query.kind, name, value) for name, value in zip(names, found, strict=True)
        ]
    except (ValueError, TypeError):
        raise not_a_cursor(query) from None


def _cursor_value(kind: Kind, name: str, value: Any) -> Any:
    type = kind.types[name]
    number = type in ("int", "bool", "float") or (kind.attached and type not in ("text", "bool"))
    if value is None or (isinstance(value, int | float) and number):
        return value
    if isinstance(value, str) and (
        type in ("text", "date", "decimal")
        or (type == "time" and not isinstance(decode_time(value), str))
    ):
        return value
    raise ValueError(f"no value of {name}")


def counted(query: Query, cap: int) -> tuple[str, list[Any]]:
    values: list[Any] = []
    tests = all_of(query.kind, query.where, values)
    return (
        f"SELECT COUNT(*) FROM (SELECT 1 FROM {table_of(query.kind, query.archived)}{_filter(tests)} LIMIT ?)",
        [*values, cap + 1],
    )


def located(query: Query) -> tuple[str, list[Any]]:
    """Place and id of the rows of a query, up to its limit."""
    values: list[Any] = []
    tests = all_of(query.kind, query.where, values)
    place = place_of(query.kind)
    source = (
        f"{table_of(query.kind, query.archived)}{_filter(tests)} ORDER BY {order(query)} LIMIT ?"
    )
    return as_json(
        "p, i", f"(SELECT {place} AS p, {shown(query.kind, 'id')} AS i FROM {source})"
    ), [*values, query.limit]


def tallied(kind: Kind, cap: int) -> tuple[str, list[Any]]:
    """Each state that occurs and its count up to the cap: one leap in the index per state, then a walk along it."""
    state, table = meant(kind, "status"), table_of(kind)
    return (
        f"WITH RECURSIVE states(s) AS (SELECT (SELECT {state} FROM {table} ORDER BY {state} LIMIT 1)"
        f" UNION ALL SELECT (SELECT {state} FROM {table} WHERE {state} > states.s ORDER BY {state} LIMIT 1)"
        " FROM states WHERE s IS NOT NULL)"
        f" SELECT json_group_array(json_array(s, (SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE {state} = states.s LIMIT ?))))"
        " FROM states WHERE s IS NOT NULL"
    ), [cap + 1]


def in_state(kind: Kind, state: Any, cap: int) -> tuple[str, list[Any]]:
    """How many records are in one state, up to the cap."""
    where = f"{table_of(kind)} WHERE {meant(kind, 'status')} = ?"
    return f"SELECT COUNT(*) FROM (SELECT 1 FROM {where} LIMIT ?)", [state, cap + 1]


def summed(query: Query, average: str) -> tuple[str, list[Any]]:
    """Each state that occurs among what matches, its count and the mean of a number."""
    kind = query.kind
    values: list[Any] = []
    tests = all_of(kind, query.where, values)
    inner = f"SELECT {meant(kind, 'status')} AS s, {meant(kind, average)} AS v FROM {table_of(kind, query.archived)}{_filter(tests)}"
    return as_json(
        "s, n, a", f"(SELECT s, COUNT(*) AS n, AVG(v) AS a FROM ({inner}) GROUP BY s ORDER BY s)"
    ), values


# claims


def claim_predicate(kind: Kind, states: Sequence[str], where: Where) -> str:
    """Which rows a stage's claims look at, whatever the time: the predicate of its index and of its queries."""
    tests = [f"{meant(kind, 'status')} IN ({', '.join(quoted(s) for s in sorted(states))})"]
    tests += [
        condition(kind, name, cond, None)
        for name, cond in where
        if kind.types[name] != "decimal" and cond.value != ()
    ]
    return " AND ".join(tests)


def claim_index(kind: Kind, states: Sequence[str], where: Where) -> tuple[str, str]:
    """The name of a stage's index and the statement that makes it."""
    return index(
        kind,
        "claim",
        [since(kind, "due_at"), q(kind.id_column)],
        f" WHERE {claim_predicate(kind, states, where)}",
    )


def index(
    kind: Kind,
    purpose: str,
    columns: Sequence[str],
    rest: str = "",
    unique: str = "",
    table: str | None = None,
) -> tuple[str, str]:
    """An index whose name ends in a hash of its definition, so that another definition is another index."""
    table = table or kind.table
    definition = f"{q(table)} ({', '.join(columns)}){rest}"
    name = f"esclusa_{table}_{purpose}_{hashlib.sha256((unique + definition).encode()).hexdigest()[:8]}"
    return name, f"CREATE {unique}INDEX IF NOT EXISTS {q(name)} ON {definition}"


def candidates(
    ask: ClaimRequest, now: str, known: frozenset[str], later: bool = False
) -> tuple[str, list[Any]]:
    """``FROM … WHERE …`` of what a claim may take now, or ``later``, if nothing changes but the time.

    ``known``: the indexes that exist. The planner would rather walk a whole state and sort it, so it is told which."""
    kind = ask.kind
    states = ask.take if ask.hold is None else (*ask.take, ask.hold)
    name, _ = claim_index(kind, states, ask.where)
    values: list[Any] = []
    tests = [claim_predicate(kind, states, ask.where)]
    tests += all_of(
        kind, [(n, c) for n, c in ask.where if kind.types[n] == "decimal" or c.value == ()], values
    )
    limit = now if ask.before is None else min(now, encode_time(ask.before))
    if later:
        tests.append(f"{since(kind, 'due_at')} > ?")
        values.append(now)
    elif ask.before is not None and ask.eager:
        takes = ", ".join(quoted(s) for s in ask.take)
        eager = f"{meant(kind, 'status')} IN ({takes}) AND {q(kind.track['leased_by'])} IS NULL AND {since(kind, 'updated_at')} <= ?"
        tests.append(f"({since(kind, 'due_at')} <= ? OR ({eager}))")
        values += [limit, encode_time(ask.before)]
    else:
        tests.append(f"{since(kind, 'due_at')} <= ?")
        values.append(limit)
    if ask.ids:
        tests.append(f"{q(kind.id_column)} IN (SELECT value FROM carray(?))")
        values.append(many(ask.ids))
    if kind.attached:  # a row that cannot be told from others is no record
        tests.append(f"{q(kind.id_column)} IS NOT NULL")
    using = f" INDEXED BY {q(name)}" if name in known and not ask.ids else ""
    return f"{table_of(kind)}{using}{_filter(tests)}", values


def claimable(ask: ClaimRequest, now: str, known: frozenset[str]) -> tuple[str, list[Any]]:
    """The rows that a claim takes: their columns and at the end their place, in the order asked."""
    kind = ask.kind
    source, values = candidates(ask, now, known)
    terms = [_sorted_by(kind, o.field) + (" DESC" if o.descending else "") for o in ask.order] or [
        since(kind, "due_at")
    ]
    names = ", ".join(f"c{i}" for i in range(len(kind.columns)))
    picked = ", ".join(f"{shown(kind, n)} AS c{i}" for i, n in enumerate(kind.columns))
    inner = f"SELECT {place_of(kind)} AS p, {picked} FROM {source} ORDER BY {', '.join([*terms, q(kind.id_column)])} LIMIT ?"
    return as_json(f"{names}, p", f"({inner})"), [*values, ask.limit]


class Card:
    """What is composed once for a kind and used in every call."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.decoder = Decoder(kind)
        self.table = table_of(kind)
        self.place = place_of(kind)
        self.encoders = [
            (name, ENCODE[kind.types[name]], kind.types[name] == "text") for name in kind.columns
        ]
        self.errors = [
            name
            for name in ("last_error", "error_type", "error_message")
            if name in kind.track.columns
        ]
        # the names of carray's own columns (value, count …) must not meet the table's
        wanted = f"(SELECT value AS esclusa_wanted FROM carray(?)) CROSS JOIN {self.table} ON {q(kind.id_column)} = esclusa_wanted"
        shows = [
            self.place,
            shown(kind, "id"),
            *(meant(kind, n) for n in ("status", "fence", "attempts", "leased_by")),
        ]
        self.standing = as_json(", ".join(shows), wanted)
        """Where the records with some ids stand: place, id, state, fence, attempts, holder."""
        self.fetched = as_json(", ".join(shown(kind, name) for name in kind.columns), wanted)
        """The rows with some ids."""


class Cards:
    """The cards of a store's kinds. A kind is known by its table, and may be declared anew in the same process."""

    def __init__(self) -> None:
        self._cards: dict[str, Card] = {}

    def __getitem__(self, kind: Kind) -> Card:
        card = self._cards.get(kind.table)
        if card is None or card.kind is not kind:
            card = self._cards[kind.table] = Card(kind)
        return card
