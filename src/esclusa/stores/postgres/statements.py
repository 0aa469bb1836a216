"""Parts of SQL text: conditions, order, and the statements that select the rows of a query.

Names are declared and quoted. Values are bound, except states and the constant conditions of a
stage: PostgreSQL uses a partial index only for a query that repeats its predicate.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from esclusa.model.cursors import decode_cursor
from esclusa.model.kind import Kind
from esclusa.model.paths import ascii_lower, is_path, split_path
from esclusa.model.query import Cond, Order, Query
from esclusa.stores.postgres.client import Fetch
from esclusa.stores.postgres.codec import (
    INTEGER_LIMITS,
    TEXT_TYPES,
    TIME_WITHOUT_ZONE,
    Table,
    TableColumn,
    literal,
    literals,
)

# The store's time, stable in a transaction, so that an index can serve a comparison with it.
NOW = "(now() + $1::interval)"
# The time to write, read after any wait for a lock: a record's history never goes back.
STAMP = "(clock_timestamp() + $1::interval)"
# The time to write, read once, for statements that never wait: equal times keep indexes small.
STAMP_ONCE = "(SELECT clock_timestamp() + $1::interval)"
# The same as IS NOT NULL, without statistics.
#
# When nearly all rows are free, IS NOT NULL looks like no row at all, and the plan becomes a nested
# loop.
IS_LEASED = "num_nulls(t.{leased_by}) <> 1"
# The lock of rows that work changes. It does not conflict with that of a foreign key's target.
ROW_LOCK = "FOR NO KEY UPDATE"

# SQL text and the values that it binds.
Statement: TypeAlias = tuple[str, list[Any]]

OPERATORS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_NEVER_NULL = frozenset({"status", "attempts", "due_at", "fence", "created_at", "updated_at"})


@dataclass(frozen=True)
class WriteContext:
    """What a write works with. ``offset``, the clock's offset, is parameter 1 of its statements."""

    fetch: Fetch
    table: Callable[[Kind], Table]
    offset: timedelta
    new_id: Callable[[], str]
    # The channel of NOTIFY.
    channel: str
    # Whether NOTIFY cannot be used.
    portable: bool = False
    # Whether new records probably have new ids; if not, an insert may raise UniqueViolationError.
    expects_new: bool = False


class Binder:
    """The parameters of a statement, in order."""

    def __init__(self, *values: Any) -> None:
        self.values: list[Any] = list(values)

    def add(self, value: Any, type: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{type}"

    def compared(self, column: TableColumn, value: Any) -> str:
        """Bind a value to compare a column with."""
        return column.compare(self.add(column.encode([value])[0], column.parameter_type))

    def ids(self, table: Table, ids: Sequence[str]) -> str:
        """Bind ids as an array of the id column's type, without those that no record can have."""
        return table.id_array(self.add(table.possible_ids(ids), "text[]"))


def notify_call(table: Table) -> str:
    """Return the call that notifies listeners of a table; the portable profile has none."""
    if table.installation.portable:
        return "NULL"
    channel = literal(table.installation.channel)
    return f"(SELECT pg_notify({channel}, {literal(table.name)}))"


def row_place(table: Table) -> tuple[str, str]:
    """Return what a CTE ``p`` must select of rows it locks, and the test that finds them again.

    By ctid this is cheapest. A row that was changed just before it was locked is not found there;
    the next call takes it. The portable profile finds rows by their id.
    """
    if table.installation.portable:
        return "", f"t.{table.id.ident} = p.id"
    if table.kind.attached:  # each partition has ctids of its own
        return "t.ctid AS place, t.tableoid AS part, ", "t.ctid = p.place AND t.tableoid = p.part"
    return "t.ctid AS place, ", "t.ctid = p.place"


# conditions


def in_states(table: Table, states: Sequence[str], alias: str = "t") -> str:
    """Return the test of the state, the same text in an index and in the claims that it serves."""
    return f"{table.status.expr(alias)} IN ({literals(sorted(states))})"


def constant_condition(table: Table, name: str, cond: Cond, alias: str = "t") -> str:
    """Return a condition with literals, for an index and the claims that it serves."""
    column = table.queried(name)
    if cond.op in ("null", "not_null"):
        prefix = f"{alias}." if alias else ""
        value = column.instead or prefix + column.ident
        return f"{value} IS {'NOT ' if cond.op == 'not_null' else ''}NULL"
    if cond.op != "in":
        return f"{column.expr(alias)} {OPERATORS[cond.op]} {column.constant(cond.value)}"
    if not cond.value:
        return "false"
    return f"{column.expr(alias)} IN ({', '.join(column.constant(v) for v in cond.value)})"


def condition(table: Table, name: str, cond: Cond, binder: Binder) -> str:
    """Return a condition with bound values; states stay literals, for partial indexes."""
    if is_path(table.kind.types, name):
        return _condition_inside(table, name, cond, binder)
    column = table.queried(name)
    if cond.op in ("null", "not_null"):
        return constant_condition(table, name, cond)
    if cond.op in ("eq", "in"):
        values = list(cond.value) if cond.op == "in" else [cond.value]
        if name == "status":
            if values and all(v in table.kind.lifecycle.states for v in values):
                one = f"{column.expr()} = {literal(values[0])}"
                return one if len(values) == 1 else in_states(table, values)
            if column.sql_type not in ("text", "character varying"):
                return f"{column.expr()}::text = ANY({binder.add(values, 'text[]')})"
        if name == "id":
            return f"{column.expr()} = ANY({binder.ids(table, values)})"
        if cond.op == "in":
            bound = binder.add(column.encode(values), f"{column.parameter_type}[]")
            return f"{column.expr()} = ANY({_array(column, bound)})"
    if cond.op == "contains":
        return _contains(f"{column.expr()}::text", cond, binder)
    return f"{column.expr()} {OPERATORS[cond.op]} {binder.compared(column, cond.value)}"


def _contains(expr: str, cond: Cond, binder: Binder) -> str:
    """Return the test of a part of a text; in the collation C only A to Z have two cases."""
    return f'strpos(lower({expr} COLLATE "C"), {binder.add(ascii_lower(cond.value), "text")}) > 0'


def _condition_inside(table: Table, name: str, cond: Cond, binder: Binder) -> str:
    """Return the test of a value inside a JSON field, which is compared as text.

    Another program's last error that is no object is its own message.
    """
    field, steps = split_path(name)
    column = table.columns[field]
    value, path = column.read(), f"ARRAY[{literals(steps)}]"
    bare, is_object = "NULL", f"jsonb_typeof({value}::jsonb) = 'object'"
    if column.sql_type in TEXT_TYPES:
        is_object = f"{value} ~ '^\\s*\\{{.*\\}}\\s*$'"
    if table.kind.attached and name == "last_error.message":
        bare = f"{value}::text"
    found, type = (
        f"({value}::jsonb #>> {path})",
        f"jsonb_typeof({value}::jsonb #> {path})",
    )
    if cond.op in ("null", "not_null"):
        given = f"CASE WHEN {is_object} THEN {type} ELSE {bare} END"
        return f"COALESCE({given}, 'null') {'=' if cond.op == 'null' else '<>'} 'null'"
    inside = (
        f"CASE WHEN {type} IN ('string', 'boolean') OR ({type} = 'number' AND {found} !~ '[.eE]')"
        f" THEN {found} END"
    )
    given = f"(CASE WHEN {is_object} THEN {inside} ELSE {bare} END)"
    if cond.op == "contains":
        return _contains(given, cond, binder)
    operands = list(cond.value) if cond.op == "in" else [cond.value]
    return f"{given} = ANY({binder.add(operands, 'text[]')})"


def _array(column: TableColumn, source: str) -> str:
    """Return a bound array as an array of the column's type."""
    wide = column.type == "int" and column.sql_type in INTEGER_LIMITS
    if wide or column.reader is not None or column.sql_type in (column.parameter_type, "integer"):
        return source
    if column.type == "time" and column.sql_type == TIME_WITHOUT_ZONE:
        return f"(ARRAY(SELECT v AT TIME ZONE 'UTC' FROM unnest({source}) v))"
    return f"{source}::{column.sql_type}[]"


def conditions(table: Table, where: Sequence[tuple[str, Cond]], binder: Binder) -> list[str]:
    """Return the tests of a filter, with bound values."""
    return [condition(table, name, cond, binder) for name, cond in where]


def where_clause(tests: Sequence[str]) -> str:
    """Return `` WHERE …``, empty without tests."""
    return f" WHERE {' AND '.join(tests)}" if tests else ""


# order


def _never_null(table: Table, name: str) -> bool:
    """Whether a value is never null, so that any index serves its order."""
    has_value = table.columns[name].default is not None or name == "id"
    return has_value or (not table.kind.attached and name in _NEVER_NULL)


def direction(table: Table, order: Order) -> str:
    """Return the words after an order's expression.

    Nulls come first in ascending order and last in descending order, in queries and in indexes.
    """
    if _never_null(table, order.field):
        return " DESC" if order.descending else ""
    return " DESC NULLS LAST" if order.descending else " NULLS FIRST"


def order_by(table: Table, order: Sequence[Order], alias: str = "t") -> str:
    """Return the terms of an order, by id at the end."""
    parts = [table.columns[o.field].expr(alias) + direction(table, o) for o in order]
    if all(o.field != "id" for o in order):
        parts.append(table.id.expr(alias))
    return ", ".join(parts)


def _after_cursor(table: Table, query: Query, binder: Binder) -> list[str]:
    """Return the tests for rows behind the cursor in the query's order."""
    if query.after is None:
        return []
    values = decode_cursor(query)
    order = list(query.order)
    if all(o.field != "id" for o in order):
        order.append(Order("id"))
    test = ""
    for o, value in reversed(list(zip(order, values, strict=False))):
        beyond, equal = _beyond(table, o, value, binder)
        test = f"({beyond} OR ({equal} AND {test}))" if test else beyond
    tests = [test]
    if len(order) > 1 and values[0] is not None and _never_null(table, order[0].field):
        # redundant, but an index can start there
        column, sign = table.columns[order[0].field], "<=" if order[0].descending else ">="
        tests.append(f"{column.expr()} {sign} {binder.compared(column, values[0])}")
    return tests


def _beyond(table: Table, order: Order, value: Any, binder: Binder) -> tuple[str, str]:
    """Return the tests for values behind this one, and for values equal to it."""
    column = table.columns[order.field]
    expr, sign = column.expr(), "<" if order.descending else ">"
    if value is None and column.default is None:
        return "false" if order.descending else f"{expr} IS NOT NULL", f"{expr} IS NULL"
    given = column.default if value is None else binder.compared(column, value)
    beyond = f"{expr} {sign} {given}"
    if order.descending and not _never_null(table, order.field):
        beyond = f"({beyond} OR {expr} IS NULL)"
    return beyond, f"{expr} = {given}"


# statements


def find(table: Table, query: Query, limit: int | None, *, ordered: bool = True) -> Statement:
    """Select the rows of a query; without ``limit`` all of them, whatever its cursor."""
    binder = Binder()
    tests = conditions(table, query.where, binder)
    if limit is not None:
        tests += _after_cursor(table, query, binder)
    source = f"{table.source(query.archived)} t{where_clause(tests)}"
    statement = f"SELECT {table.selection} FROM {source}"
    if ordered:
        statement += f" ORDER BY {order_by(table, query.order)}"
    if limit is not None:
        statement += f" LIMIT {binder.add(limit, 'bigint')}"
    return statement, binder.values


def count(table: Table, query: Query, cap: int) -> Statement:
    """Count the rows of a query, up to one more than the cap."""
    binder = Binder()
    where = where_clause(conditions(table, query.where, binder))
    limit = binder.add(cap + 1, "bigint")
    rows = f"SELECT 1 FROM {table.source(query.archived)} t{where} LIMIT {limit}"
    return f"SELECT count(*) FROM ({rows}) q", binder.values


def locked_ids(table: Table, query: Query, binder: Binder) -> str:
    """Select and lock the ids of a query's rows, up to its limit."""
    where = where_clause(conditions(table, query.where, binder))
    return (
        f"SELECT t.{table.id.ident} FROM {table.source(query.archived)} t{where}"
        f" ORDER BY {order_by(table, query.order)}"
        f" LIMIT {binder.add(query.limit, 'bigint')} FOR UPDATE"
    )
