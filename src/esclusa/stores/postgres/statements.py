# ruff: noqa: S608 - statements are composed from declared names alone, quoted; values are bound
"""Reading and claiming, composed from declared names alone. Values are bound, but for states and a stage's constants.

Time: ``NOW`` is stable, so an index can serve a comparison with it; ``STAMP`` is what is written, read after any wait
for a lock, so that the history of a record never goes back; ``ONCE`` is the same read once, for statements that never
wait: equal times keep indexes small. All take the clock's offset as parameter 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from esclusa.model.query import Cond, Order, Query, decode_cursor
from esclusa.model.settlement import ClaimRequest
from esclusa.stores.postgres.table import PLAIN_TIME, Column, Table, literal, literals

NOW = "(now() + $1::interval)"
STAMP = "(clock_timestamp() + $1::interval)"
ONCE = "(SELECT clock_timestamp() + $1::interval)"
CHANNEL = "esclusa"

_SIGN = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class Binder:
    """The parameters of a statement, in order."""

    def __init__(self, *values: Any) -> None:
        self.values: list[Any] = list(values)

    def add(self, value: Any, type: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{type}"

    def column(self, column: Column, value: Any) -> str:
        """A value to compare a column with."""
        return column.compare(self.add(column.encode([value])[0], column.wire))

    def ids(self, table: Table, ids: Sequence[str]) -> str:
        """Ids as an array of the id column's own type: the column itself is never cast, for its index."""
        return id_array(table, self.add(list(ids), "text[]"))


def id_array(table: Table, source: str) -> str:
    return source if table.id.sql == "text" else f"{source}::{table.id.sql}[]"


def moment(column: Column, source: str) -> str:
    """A time with zone as the column holds it."""
    return f"(({source}) AT TIME ZONE 'UTC')" if column.sql == PLAIN_TIME else source


def in_states(table: Table, states: Sequence[str], alias: str = "t") -> str:
    """The same text in an index and in the claim that it serves."""
    return f"{table.status.expr(alias)} IN ({literals(sorted(states))})"


def fixed(table: Table, name: str, cond: Cond, alias: str = "t") -> str:
    """A condition with its values as literals: for indexes and the claims that they serve."""
    column = table.asked(name)
    if cond.op in ("null", "not_null"):
        return f"{alias + '.' if alias else ''}{column.ident} IS {'NOT ' if cond.op == 'not_null' else ''}NULL"
    if cond.op == "in":
        return (
            f"{column.expr(alias)} IN ({', '.join(column.constant(v) for v in cond.value)})"
            if cond.value
            else "false"
        )
    return f"{column.expr(alias)} {_SIGN[cond.op]} {column.constant(cond.value)}"


def bound(table: Table, name: str, cond: Cond, binder: Binder, alias: str = "t") -> str:
    """A condition with its values bound; states stay literals, for partial indexes."""
    column = table.asked(name)
    if cond.op in ("null", "not_null"):
        return fixed(table, name, cond, alias)
    if name == "status" and cond.op in ("eq", "in"):
        values = cond.value if cond.op == "in" else (cond.value,)
        known = [v for v in values if v in table.kind.lifecycle.states]
        if len(known) == len(values) and values:
            return (
                in_states(table, known, alias)
                if len(known) > 1
                else f"{column.expr(alias)} = {literal(known[0])}"
            )
        if column.sql not in ("text", "character varying"):
            return f"{column.expr(alias)}::text = ANY({binder.add(list(values), 'text[]')})"
    if name == "id" and cond.op in ("eq", "in"):
        return f"{column.expr(alias)} = ANY({binder.ids(table, table.ids(cond.value if cond.op == 'in' else [cond.value]))})"
    if cond.op == "in":
        array = binder.add(column.encode(list(cond.value)), f"{column.wire}[]")
        return f"{column.expr(alias)} = ANY({_array(column, array)})"
    return f"{column.expr(alias)} {_SIGN[cond.op]} {binder.column(column, cond.value)}"


def _array(column: Column, source: str) -> str:
    if (
        column.sql == column.wire
        or (column.type == "int" and column.sql.endswith("int"))
        or column.sql == "integer"
    ):
        return source
    if column.type == "time" and column.sql == PLAIN_TIME:
        return f"(ARRAY(SELECT v AT TIME ZONE 'UTC' FROM unnest({source}) v))"
    return f"{source}::{column.sql}[]"


def filtered(
    table: Table, where: tuple[tuple[str, Cond], ...], binder: Binder, alias: str = "t"
) -> list[str]:
    return [bound(table, name, cond, binder, alias) for name, cond in where]


def sure(table: Table, name: str) -> bool:
    """Whether the value to order by is never null, so that plain order is the declared order and any index serves."""
    column = table.columns[name]
    return (
        column.fallback is not None
        or name == "id"
        or (not table.kind.attached and name in _NEVER_NULL)
    )


_NEVER_NULL = frozenset({"status", "attempts", "due_at", "fence", "created_at", "updated_at"})


def ordering(table: Table, name: str, descending: bool, alias: str = "t") -> str:
    """Nulls come first in ascending order and last in descending order, here and in our indexes."""
    text = table.columns[name].expr(alias) + (" DESC" if descending else "")
    return text if sure(table, name) else text + (" NULLS LAST" if descending else " NULLS FIRST")


def order_by(table: Table, order: Sequence[Order], alias: str = "t") -> str:
    parts = [ordering(table, o.field, o.descending, alias) for o in order]
    if all(o.field != "id" for o in order):
        parts.append(table.id.expr(alias))
    return ", ".join(parts)


def after(table: Table, query: Query, binder: Binder) -> list[str]:
    """What comes behind the cursor in this order, as conditions."""
    if query.after is None:
        return []
    values = decode_cursor(query)
    names = [(o.field, o.descending) for o in query.order]
    if all(name != "id" for name, _ in names):
        names.append(("id", False))
    condition = "false"
    for (name, descending), value in reversed(list(zip(names, values, strict=False))):
        beyond, same = _beyond(table, name, descending, value, binder)
        condition = f"({beyond} OR ({same} AND {condition}))" if condition != "false" else beyond
    conditions = [condition]
    (first, descending), value = names[0], values[0]
    if (
        len(names) > 1 and value is not None and sure(table, first)
    ):  # said again so that an index can start there
        conditions.append(
            f"{table.columns[first].expr()} {'<=' if descending else '>='} {binder.column(table.columns[first], value)}"
        )
    return conditions


def _beyond(
    table: Table, name: str, descending: bool, value: Any, binder: Binder
) -> tuple[str, str]:
    column = table.columns[name]
    expr = column.expr()
    if value is None and column.fallback is not None:
        return (
            f"{expr} {'<' if descending else '>'} {column.fallback}",
            f"{expr} = {column.fallback}",
        )
    if value is None:
        return "false" if descending else f"{expr} IS NOT NULL", f"{expr} IS NULL"
    given = binder.column(column, value)
    if descending and not sure(table, name):
        return f"({expr} < {given} OR {expr} IS NULL)", f"{expr} = {given}"
    return f"{expr} {'<' if descending else '>'} {given}", f"{expr} = {given}"


def find(
    table: Table, query: Query, limit: int | None, *, ordered: bool = True
) -> tuple[str, list[Any]]:
    binder = Binder()
    conditions = [
        *filtered(table, query.where, binder),
        *(after(table, query, binder) if limit is not None else []),
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    source = table.archive if query.archived else table.ident
    cut = f" LIMIT {binder.add(limit, 'bigint')}" if limit is not None else ""
    order = f" ORDER BY {order_by(table, query.order)}" if ordered else ""
    return f"SELECT {table.selection} FROM {source} t{where}{order}{cut}", binder.values


def count(table: Table, query: Query, cap: int) -> tuple[str, list[Any]]:
    binder = Binder()
    conditions = filtered(table, query.where, binder)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    source = table.archive if query.archived else table.ident
    return (
        f"SELECT count(*) FROM (SELECT 1 FROM {source} t{where} LIMIT {binder.add(cap + 1, 'bigint')}) q",
        binder.values,
    )


def picked_ids(table: Table, query: Query, binder: Binder, *also: str) -> str:
    """The ids that match, locked, up to the query's limit; for purge, archive and assign."""
    conditions = [*filtered(table, query.where, binder), *also]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    source = table.archive if query.archived else table.ident
    limit = binder.add(query.limit, "bigint")
    return f"SELECT t.{table.id.ident} FROM {source} t{where} ORDER BY {order_by(table, query.order)} LIMIT {limit} FOR UPDATE"


def candidates(table: Table, ask: ClaimRequest, binder: Binder, due: bool = True) -> list[str]:
    """The conditions of a claim; parameter 1 is the clock's offset."""
    states = ask.take if ask.hold is None else (*ask.take, ask.hold)
    conditions = [in_states(table, states)]
    conditions += [
        fixed(table, name, cond) if table.constant(name, cond) else bound(table, name, cond, binder)
        for name, cond in ask.where
    ]
    if ask.ids:
        conditions.append(f"t.{table.id.ident} = ANY({binder.ids(table, table.ids(ask.ids))})")
    if table.kind.attached:  # a row that cannot be told from others is no record
        conditions.append(f"t.{table.id.ident} IS NOT NULL")
    if due:
        conditions.append(_due(table, ask, binder))
    return conditions


def _due(table: Table, ask: ClaimRequest, binder: Binder) -> str:
    due, updated = table.columns["due_at"], table.columns["updated_at"]
    if ask.before is None:
        return f"{due.expr()} <= {moment(due, NOW)}"
    before = binder.add(ask.before, "timestamptz")
    limit = moment(due, f"LEAST({NOW}, {before})")
    if not ask.eager:
        return f"{due.expr()} <= {limit}"
    free = f"t.{table.columns['leased_by'].ident} IS NULL AND {updated.expr()} <= {moment(updated, before)}"
    return f"({due.expr()} <= {limit} OR ({in_states(table, ask.take)} AND {free}))"


def claim(table: Table, ask: ClaimRequest, offset: timedelta) -> tuple[str, list[Any]]:
    """Pick, hold and note in one statement. The update finds its rows where they were picked: they are locked, so none can
    have gone elsewhere. One that somebody changed in just that moment is not found there, and is still due at the next claim."""
    c = table.columns
    binder = Binder(offset, ask.worker, timedelta(seconds=ask.lease), ask.limit)
    conditions = candidates(table, ask, binder)
    over = "false" if ask.tries is None else f"p.tried >= {binder.add(ask.tries, 'bigint')}"
    order = ask.order or (Order("due_at"),)
    keys = [f"{c[o.field].expr()} AS o{n}" for n, o in enumerate(order)]
    directions = [
        f"o{n}"
        + (" DESC" if o.descending else "")
        + ("" if sure(table, o.field) else " NULLS LAST" if o.descending else " NULLS FIRST")
        for n, o in enumerate(order)
    ]
    sets = [
        f"{c['fence'].ident} = {c['fence'].expr()} + 1",
        f"{c['attempts'].ident} = p.tried + CASE WHEN {over} THEN 0 ELSE 1 END",
        f"{c['leased_by'].ident} = $2::text",
        f"{c['due_at'].ident} = {moment(c['due_at'], f'{ONCE} + $3::interval')}",
        f"{c['updated_at'].ident} = {moment(c['updated_at'], ONCE)}",
    ]
    if ask.hold is not None:
        sets.append(f"{c['status'].ident} = {literal(ask.hold)}")
    if "leased_at" in table.extras:
        leased_at = table.extras["leased_at"]
        sets.append(f"{leased_at.ident} = {moment(leased_at, ONCE)}")
    answer = {name: f"c{n}" for n, name in enumerate(c)}
    noted = ""
    if table.kind.history:
        hold = "was" if ask.hold is None else literal(ask.hold)
        changed = (
            "holder IS NOT NULL" if ask.hold is None else f"(was <> {hold} OR holder IS NOT NULL)"
        )
        run = binder.add(ask.run, "text")
        noted = f""",
        noted AS (
            INSERT INTO esclusa_history (table_name, record_id, from_state, to_state, at, who, run, attempt, reason)
            SELECT {literal(table.name)}, {answer["id"]}, was, {hold}, {answer["updated_at"]}, $2::text, {run}, {answer["attempts"]},
                '{{"code": "lease_expired", "worker": ' || to_json(holder)::text || '}}'
            FROM taken WHERE {changed}
        )"""
    reads = ", ".join(f"{column.read()} AS {answer[name]}" for name, column in c.items())
    sorted_by = ", ".join(f"p.o{n}" for n in range(len(order)))
    # The parts of a table each have places of their own.
    part, same_part = (
        (", t.tableoid AS part", " AND t.tableoid = p.part") if table.kind.attached else ("", "")
    )
    return (
        f"""WITH picked AS MATERIALIZED (
            SELECT t.ctid AS place{part}, t.{table.id.ident} AS id, {table.status.read()} AS was,
                t.{c["leased_by"].ident} AS holder, {c["attempts"].expr()} AS tried, {", ".join(keys)}
            FROM {table.ident} t WHERE {" AND ".join(conditions)}
            ORDER BY {order_by(table, order)} LIMIT $4::bigint FOR UPDATE SKIP LOCKED
        ),
        taken AS (
            UPDATE {table.ident} t SET {", ".join(sets)} FROM picked p WHERE t.ctid = p.place{same_part}
            RETURNING {reads}, {over} AS over, p.was, p.holder, p.id, {sorted_by}
        ){noted}
        SELECT {", ".join(answer.values())}, over, was FROM taken ORDER BY {", ".join(directions)}, id""",
        binder.values,
    )


def backlog(table: Table, ask: ClaimRequest, cap: int, offset: timedelta) -> tuple[str, list[Any]]:
    """How many are due up to a cap, since when the oldest, and when the next one will be."""
    binder = Binder(offset)
    due = table.columns["due_at"]
    now_due = " AND ".join(candidates(table, ask, binder))
    later = " AND ".join(
        [*candidates(table, ask, binder, due=False), f"{due.expr()} > {moment(due, NOW)}"]
    )
    limit = binder.add(cap + 1, "bigint")
    oldest = f"(SELECT {due.read('t')} FROM {table.ident} t WHERE {now_due} ORDER BY {due.expr()} LIMIT 1)"
    following = (
        f"(SELECT {due.read('t')} FROM {table.ident} t WHERE {later} ORDER BY {due.expr()} LIMIT 1)"
    )
    capped = f"SELECT 1 FROM {table.ident} t WHERE {now_due} ORDER BY {due.expr()} LIMIT {limit}"
    return f"SELECT (SELECT count(*) FROM ({capped}) q), {oldest}, {following}", binder.values
