"""SQL text, composed from declared names (quoted) and bound values.

States and the constant conditions of a stage are literals, because SQLite uses a partial index only
for a query that repeats its predicate. A statement that returns many rows returns them as one JSON
text: every step of a statement releases the interpreter lock, and a busy event loop takes
milliseconds to give it back.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import apsw

from esclusa.model.cursors import not_a_cursor, open_cursor
from esclusa.model.kind import Kind
from esclusa.model.paths import is_path, split_path
from esclusa.model.query import ARCHIVE_COLUMNS, Cond, Order, Query
from esclusa.model.settlement import ClaimRequest
from esclusa.model.storable import fits
from esclusa.stores.sqlite.codec import (
    DECIMAL_COLLATION,
    decode_time,
    encode,
    literal,
    text_literal,
)

Conditions = Sequence[tuple[str, Cond]]
# SQL text and the values that it binds.
Statement = tuple[str, list[Any]]

_BATCH_SIZES = (500, 100, 20, 5, 1)
_MAX_VALUES = 7000  # SQLite does not keep a statement of more than 16 kB prepared
_OPERATORS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TRACKED_TIMES = ("due_at", "created_at", "updated_at")
_NO_ID = "\x7fno id"


# names and expressions


def quote(name: str) -> str:
    """Return a declared name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def table_of(kind: Kind, archived: bool = False) -> str:
    """Return the quoted name of a kind's table or of its archive."""
    return quote(f"archive_{kind.table}" if archived else kind.table)


def locator(kind: Kind) -> str:
    """Return the column that finds a row again in the same transaction.

    The rowid is fastest; a table of another program may have none, so its id column is used.
    """
    return quote(kind.id_column) if kind.attached else "rowid"


def expr(kind: Kind, name: str) -> str:
    """Return a field's value; on an attached table, null tracking has its default.

    A value for which the table has no column is a constant.
    """
    if name in kind.constants:
        value = literal(kind.types[name], kind.constants[name])
        # in ORDER BY a bare number would be the place of a column
        return f"CAST({value} AS INTEGER)" if kind.types[name] == "int" else value
    column = quote(kind.columns[name])
    if name in kind.added and not kind.by_name[name].nullable:
        return f"COALESCE({column}, {literal(kind.types[name], kind.default_of(name))})"
    if kind.attached and name == "status":
        return f"COALESCE({column}, {text_literal(kind.initial)})"
    if kind.attached and name in ("attempts", "fence"):
        return f"COALESCE(CAST({column} AS INTEGER), 0)"
    return column


def time_expr(kind: Kind, name: str) -> str:
    """Return a tracking time to compare and sort by.

    On an attached table null is older than every time (a record without ``due_at`` is due since its
    creation), ISO text of another program sorts beside ours, and other text before it.
    """
    if name in kind.constants:
        return expr(kind, name)
    column = quote((kind.columns | kind.extras)[name])
    given = column
    if name == "due_at" and "created_at" in kind.columns:
        given = f"{column}, {quote(kind.columns['created_at'])}"
    if not kind.attached:
        return column
    text = f"REPLACE(REPLACE(COALESCE({given}, ''), 'T', ' '), 'Z', '')"
    return f"CASE WHEN {text} GLOB '[0-9]*' THEN {text} ELSE '' END"


def comparable(kind: Kind, name: str) -> str:
    """Return a field's value to compare and sort by, the same text in an index and in queries."""
    return time_expr(kind, name) if _is_odd_time(kind, name) else expr(kind, name)


def _is_odd_time(kind: Kind, name: str) -> bool:
    """Whether other programs write this tracking time, in their own form."""
    return kind.attached and name in _TRACKED_TIMES and name in kind.columns


def json_expr(kind: Kind, name: str) -> str:
    """Return a field's value as JSON can hold it: bytes are hexadecimal, ids are text."""
    value = expr(kind, name)
    if name == "id":
        return f"CAST({value} AS TEXT)" if kind.attached or kind.database_id else value
    if kind.types[name] == "bytes":
        return f"CASE WHEN {value} IS NOT NULL THEN hex({value}) END"
    if not kind.attached:
        return value
    other = f"CAST({value} AS TEXT)" if kind.types[name] == "text" else value
    return f"CASE typeof({value}) WHEN 'blob' THEN hex({value}) ELSE {other} END"


def select_json(columns: str, source: str) -> str:
    """Return a statement whose single value is a JSON array of rows."""
    return f"SELECT json_group_array(json_array({columns})) FROM {source}"


# bound values


def text_array(texts: Iterable[str]) -> Any:
    """Return texts as one bound value for ``carray``, never empty.

    Texts that no store can hold are left out: no record has such an id.
    """
    items = tuple(texts)
    try:
        return apsw.carray(items)
    except ValueError:
        return apsw.carray(tuple(filter(fits, items)) or (_NO_ID,))


def locator_array(locators: Iterable[Any]) -> Any:
    """Return values of the ``locator`` column as one bound value for ``carray``; never empty."""
    items = list(locators)
    if all(type(item) is int for item in items):
        return apsw.carray(array("q", items))
    return apsw.carray(tuple(map(str, items)))


def batches(rows: Sequence[Sequence[Any]]) -> Iterable[tuple[int, list[Any]]]:
    """Yield (number of rows, their values in one list).

    The batches have a few fixed sizes, so that their statements stay prepared.
    """
    start = 0
    for size in _BATCH_SIZES:
        while len(rows) - start >= size and (size == 1 or size * len(rows[start]) <= _MAX_VALUES):
            yield size, [value for row in rows[start : start + size] for value in row]
            start += size


@lru_cache(maxsize=512)
def placeholders(width: int, count: int) -> str:
    """Return ``(?,?),(?,?)`` for ``count`` rows of ``width`` values."""
    return ",".join(["(" + ",".join("?" * width) + ")"] * count)


# conditions and order


def condition(kind: Kind, name: str, cond: Cond, values: list[Any] | None) -> str:
    """Return one test. Its operands are bound in ``values``; without it they are literals."""
    if is_path(kind.types, name):
        return _condition_inside(kind, name, cond, values)
    type = kind.types.get(name) or ARCHIVE_COLUMNS[name]
    column = comparable(kind, name) if name in kind.types else quote(name)
    if cond.op in ("null", "not_null"):
        stored = quote(kind.columns[name]) if name in kind.columns else column
        return f"{stored} IS {'NOT ' if cond.op == 'not_null' else ''}NULL"
    if type == "decimal":
        column = f"{column} COLLATE {DECIMAL_COLLATION}"
    operands = cond.value if cond.op == "in" else (cond.value,)
    if values is None:
        written = [literal(type, v) for v in operands]
    else:
        written = ["?"] * len(operands)
        values += [encode(type, v) for v in operands]
    return _test(column, cond, written)


def _test(column: str, cond: Cond, written: Sequence[str]) -> str:
    if cond.op == "in":
        return f"{column} IN ({', '.join(written)})"
    if cond.op == "contains":  # lower() changes A to Z only
        return f"instr(lower({column}), lower({written[0]})) > 0"
    return f"{column} {_OPERATORS[cond.op]} {written[0]}"


def _condition_inside(kind: Kind, name: str, cond: Cond, values: list[Any] | None) -> str:
    """Return the test of a value inside a JSON field, which is compared as text.

    Another program's last error that is no object is its own message.
    """
    field, steps = split_path(name)
    column, path = expr(kind, field), text_literal("".join(["$", *(f".{step}" for step in steps)]))
    is_object = f"json_valid({column}) AND json_type({column}) = 'object'"
    bare = column if kind.attached and name == "last_error.message" else "NULL"
    if cond.op in ("null", "not_null"):
        found = f"CASE WHEN {is_object} THEN json_type({column}, {path}) ELSE {bare} END"
        return f"COALESCE({found}, 'null') {'=' if cond.op == 'null' else '<>'} 'null'"
    found = f"{column} ->> {path}"
    inside = (
        f"CASE json_type({column}, {path}) WHEN 'text' THEN {found}"
        f" WHEN 'integer' THEN CAST({found} AS TEXT) WHEN 'true' THEN 'true'"
        " WHEN 'false' THEN 'false' END"
    )
    operands = cond.value if cond.op == "in" else (cond.value,)
    if values is not None:
        values += operands
    written = ["?" if values is not None else text_literal(v) for v in operands]
    return _test(f"(CASE WHEN {is_object} THEN {inside} ELSE {bare} END)", cond, written)


def conditions(kind: Kind, where: Conditions, values: list[Any]) -> list[str]:
    """Return the tests of a filter, with bound values."""
    return [condition(kind, name, cond, values) for name, cond in where]


def where_clause(tests: Sequence[str]) -> str:
    """Return `` WHERE …``, empty without tests."""
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _sort_expr(kind: Kind, name: str) -> str:
    return comparable(kind, name) + (
        f" COLLATE {DECIMAL_COLLATION}" if kind.types[name] == "decimal" else ""
    )


def order_by(query: Query | ClaimRequest) -> str:
    """Return the terms of an order, by id at the end.

    Nulls come first in ascending order and last in descending order, which is SQLite's default.
    """
    return ", ".join([*order_terms(query.kind, query.order), quote(query.kind.id_column)])


def order_terms(kind: Kind, order: Iterable[Order]) -> list[str]:
    """Return the terms of an order, as an index and its queries have them."""
    return [_sort_expr(kind, o.field) + (" DESC" if o.descending else "") for o in order]


def _after_cursor(query: Query, after: list[Any], values: list[Any]) -> str:
    """Return the test for rows behind the cursor: the first value that differs is greater."""
    terms = [(_sort_expr(query.kind, o.field), o.descending) for o in query.order]
    terms.append((quote(query.kind.id_column), False))
    options, equal, equal_values = [], "", list[Any]()
    for (column, descending), value in zip(terms, after, strict=True):
        if descending:
            test = "0" if value is None else f"({column} < ? OR {column} IS NULL)"
        else:
            test = f"{column} IS NOT NULL" if value is None else f"{column} > ?"
        options.append(f"({equal}{test})")
        values += equal_values if value is None else [*equal_values, value]
        equal += f"{column} IS ? AND "
        equal_values.append(value)
    beyond = f"({' OR '.join(options)})"
    if len(terms) > 1 and not terms[0][1] and after[0] is not None:
        values.append(after[0])
        return f"{beyond} AND {terms[0][0]} >= ?"  # redundant, but an index can start there
    return beyond


def cursor_values(query: Query) -> list[Any]:
    """Return the stored values in ``query.after``; BadQuery if it is not a cursor of this query."""
    names = [*(o.field for o in query.order), "id"]
    values = open_cursor(query, len(names))
    try:
        if not isinstance(values[-1], str):
            raise TypeError("an id is a text")
        return [
            _cursor_value(query.kind, name, value)
            for name, value in zip(names, values, strict=True)
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
        or (type == "time" and (not value or not isinstance(decode_time(value), str)))
    ):
        return value
    raise ValueError(f"not a value of {name}")


# queries


def selection(kind: Kind) -> list[str]:
    """Return the kind's columns as a query selects them."""
    return [json_expr(kind, name) for name in kind.columns]


def find(
    query: Query, limit: int, after: list[Any] | None, columns: Sequence[str] | None = None
) -> Statement:
    """Select the rows of a query: the values that it is ordered by, then the kind's columns.

    ``columns``: the ``selection`` of the kind, if it is known.
    """
    kind = query.kind
    values: list[Any] = []
    tests = conditions(kind, query.where, values)
    if after is not None:
        tests.append(_after_cursor(query, after, values))
    wanted = [
        time_expr(kind, o.field) if _is_odd_time(kind, o.field) else json_expr(kind, o.field)
        for o in query.order
    ]
    wanted += selection(kind) if columns is None else columns
    aliases = ", ".join([f"c{i}" for i in range(len(wanted))])
    selected = ", ".join([f"{value} AS c{i}" for i, value in enumerate(wanted)])
    rows = (
        f"SELECT {selected} FROM {table_of(kind, query.archived)}{where_clause(tests)}"
        f" ORDER BY {order_by(query)} LIMIT ?"
    )
    return select_json(aliases, f"({rows})"), [*values, limit]


def count(query: Query, cap: int) -> Statement:
    """Count the rows of a query, up to one more than the cap."""
    values: list[Any] = []
    tests = conditions(query.kind, query.where, values)
    rows = f"SELECT 1 FROM {table_of(query.kind, query.archived)}{where_clause(tests)} LIMIT ?"
    return f"SELECT COUNT(*) FROM ({rows})", [*values, cap + 1]


def locate(query: Query) -> Statement:
    """Select locator and id of the rows of a query, up to its limit."""
    kind = query.kind
    values: list[Any] = []
    tests = conditions(kind, query.where, values)
    rows = (
        f"SELECT {locator(kind)} AS l, {json_expr(kind, 'id')} AS i"
        f" FROM {table_of(kind, query.archived)}{where_clause(tests)}"
        f" ORDER BY {order_by(query)} LIMIT ?"
    )
    return select_json("l, i", f"({rows})"), [*values, query.limit]


def count_by_state(kind: Kind, cap: int) -> Statement:
    """Count each state that occurs, up to one more than the cap.

    The recursion jumps from one state to the next in the index on the state.
    """
    state, table = expr(kind, "status"), table_of(kind)
    rows = f"SELECT 1 FROM {table} WHERE {state} = states.s LIMIT ?"
    return (
        f"""WITH RECURSIVE states(s) AS (
            SELECT (SELECT {state} FROM {table} ORDER BY {state} LIMIT 1)
            UNION ALL
            SELECT (SELECT {state} FROM {table} WHERE {state} > states.s ORDER BY {state} LIMIT 1)
            FROM states WHERE s IS NOT NULL
        )
        {select_json(f"s, (SELECT COUNT(*) FROM ({rows}))", "states WHERE s IS NOT NULL")}"""
    ), [cap + 1]


# claims


def index(
    kind: Kind,
    purpose: str,
    columns: Sequence[str],
    rest: str = "",
    unique: str = "",
    table: str | None = None,
) -> tuple[str, str]:
    """Return an index's name and its statement. The name ends in a hash of the definition."""
    table = table or kind.table
    definition = f"{quote(table)} ({', '.join(columns)}){rest}"
    checksum = hashlib.sha256((unique + definition).encode()).hexdigest()[:8]
    name = f"esclusa_{table}_{purpose}_{checksum}"
    return name, f"CREATE {unique}INDEX IF NOT EXISTS {quote(name)} ON {definition}"


def is_own_index(name: str, statement: str | None) -> bool:
    """Whether Esclusa made an index: its name has the hash of its definition."""
    found = re.fullmatch(
        r'CREATE (UNIQUE )?INDEX "(?:[^"]|"")+" ON (.+)', statement or "", re.DOTALL
    )
    if found is None or not name.startswith("esclusa_"):
        return False
    checksum = hashlib.sha256(((found[1] or "") + found[2]).encode()).hexdigest()[:8]
    return name.endswith(f"_{checksum}")
