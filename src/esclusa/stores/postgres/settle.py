# ruff: noqa: S608 - statements are composed from declared names alone, quoted; values are bound
"""Settle: own moves as array statements, then effects in waves, all in one transaction.

One shape of statement serves a lease's end, an operator's move and the effect ``Move``: rows are matched by id and
fence (or state), moved, and noted in the history by the same statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from esclusa.model.effects import Exists
from esclusa.model.record import Kind
from esclusa.model.settlement import Renewal, Settlement
from esclusa.model.value import value
from esclusa.stores.postgres.insert import Fetch
from esclusa.stores.postgres.statements import (
    CHANNEL,
    ONCE,
    STAMP,
    fixed,
    id_array,
    in_states,
    moment,
)
from esclusa.stores.postgres.table import Column, Table, json_text, literal, literals

Tables: TypeAlias = Callable[[Kind], Table]

HELD = "num_nulls(t.{leased_by}) <> 1"
"""Under lease. Said so that the planner has no statistics for it: "is not null" looks like no row at all when nearly all
rows are free, and the plan becomes a loop in a loop."""


@value
class Row:
    """One move: its number in the call, what to settle, and a guard that must be false."""

    number: int
    settlement: Settlement
    guard: Exists | None = None


def wakes(table: Table, settlements: Iterable[Settlement]) -> bool:
    """Whether any of them leaves something to do at once."""
    return any(
        table.wakes(state)
        for state in {s.to for s in settlements if s.until is None and s.delay <= 0}
    )


def rounds(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows in rounds, in order, so that no round has a record twice. Nearly always there is one."""
    rows = list(rows)
    if len({row.settlement.ref.id for row in rows}) == len(rows):
        return [rows]
    out: list[list[Row]] = []
    times: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.settlement.ref.kind.table, row.settlement.ref.id)
        n = times.get(key, 0)
        times[key] = n + 1
        if n == len(out):
            out.append([])
        out[n].append(row)
    return out


def grouped(rows: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the statement that they need."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        s = row.settlement
        fields = tuple(sorted(s.fields)) if s.fields else ()
        key = (
            s.ref.kind.table,
            s.fence is not None,
            fields,
            None if row.guard is None else guard_shape(row.guard),
        )
        found = groups.get(key)
        if found is None:
            groups[key] = [row]
        else:
            found.append(row)
    return groups


async def move(
    fetch: Fetch,
    tables: Tables,
    key: tuple[Any, ...],
    rows: list[Row],
    offset: timedelta,
    notify: bool,
) -> set[int]:
    """Run one group; the numbers of the rows that moved. Which they are is told only if not all did."""
    _, fenced, names, shape = key
    table = tables(rows[0].settlement.ref.kind)
    rows = [row for row in rows if table.possible(row.settlement.ref.id)]
    if not rows:
        return set()
    params = _params(table, tables, fenced, names, rows)
    one = tuple(param.alone for param in params)
    statement = table.statement(
        ("move", fenced, names, shape, notify, one),
        lambda: _statement(table, tables, fenced, names, rows[0].guard, notify, params),
    )
    [answer] = await fetch(
        statement, offset, *(param.values[0] if param.alone else param.values for param in params)
    )
    return {
        row.number
        for row in (rows if answer[0] == len(rows) else [rows[n - 1] for n in answer[1] or ()])
    }


@value
class Param:
    """A value for each row, or one for all: most settlements of a call differ in little, and arrays cost."""

    label: str
    type: str
    values: list[Any]
    alone: bool


def _param(label: str, type: str, values: list[Any], shared: bool = True) -> Param:
    return Param(label, type, values, shared and values.count(values[0]) == len(values))


def _params(
    table: Table, tables: Tables, fenced: bool, names: Sequence[str], rows: list[Row]
) -> list[Param]:
    each = [row.settlement for row in rows]
    match = [s.fence if fenced else ",".join(s.frm) for s in each]
    params = [
        _param("id", "text", [s.ref.id for s in each], shared=False),
        # Never one for all, as fences often are: the planner would guess how many records have it, and go through u for each of them.
        _param("match", "bigint" if fenced else "text", match, shared=False),
        _param("target", "text", [s.to for s in each]),
        _param("attempts", "bigint", [s.attempts for s in each]),
        _param("until", "timestamptz", [s.until for s in each]),
        _param("delay", "double precision", [s.delay for s in each]),
        _param("error", "jsonb", [None if s.error is None else json_text(s.error) for s in each]),
        _param("clear", "boolean", [s.clear_error for s in each]),
    ]
    if table.kind.history:
        params += [
            _param("who", "text", [s.who for s in each]),
            _param("run", "text", [s.run for s in each]),
            _param("attempt", "bigint", [s.attempt for s in each]),
            _param("reason", "text", [s.reason for s in each]),
        ]
    for name in names:
        column = table.columns[name]
        params.append(
            _param(
                f"f_{name}",
                column.wire,
                column.encode([s.fields[name] for s in each]),
                shared=False,
            )
        )
    if rows[0].guard is not None:
        taken = [guard_values(row.guard) for row in rows if row.guard is not None]
        for n, column in enumerate(guard_columns(tables(rows[0].guard.kind), rows[0].guard)):
            params.append(
                _param(f"g{n}", column.wire, column.encode([v[n] for v in taken]), shared=False)
            )
    return params


_NOTED = {
    "to_state": "target",
    "error": "error",
    "who": "who",
    "run": "run",
    "attempt": "attempt",
    "reason": "reason",
}
"""Columns of the history, and what is noted there."""


def _statement(
    table: Table,
    tables: Tables,
    fenced: bool,
    names: Sequence[str],
    guard: Exists | None,
    notify: bool,
    params: list[Param],
) -> str:
    c, key = table.columns, table.id.ident
    arrays, labels, refer = [], [], {}
    for n, param in enumerate(params, 2):
        refer[param.label] = f"${n}::{param.type}" if param.alone else f"u.{param.label}"
        if not param.alone:
            arrays.append(f"${n}::{param.type}[]")
            labels.append(param.label)
    stamp = ONCE if fenced else STAMP
    sets = ", ".join(
        f"{column} = {source}"
        for column, source in _sets(table, fenced, names, refer, stamp).items()
    )
    if fenced:
        match = f"{c['fence'].expr()} = u.match AND {HELD.format(leased_by=c['leased_by'].ident)}"
    else:
        match = f"{table.status.read()} = ANY(string_to_array(u.match, ','))"
    if guard is not None:
        match += f" AND NOT {exists(tables(guard.kind), guard)}"
    noted = kept = ""
    if table.kind.history:
        kept = "".join(f", u.{label}" for label in _NOTED.values() if label in labels)
        values = ", ".join(label if label in labels else refer[label] for label in _NOTED.values())
        noted = f""",
        noted AS (
            INSERT INTO esclusa_history (table_name, record_id, from_state, at, {", ".join(_NOTED)})
            SELECT {literal(table.name)}, id, was, at, {values} FROM moved
        )"""
    told = (
        f", CASE WHEN count(*) > 0 THEN (SELECT pg_notify('{CHANNEL}', {literal(table.name)})) END"
        if notify
        else ""
    )
    id = table.id.write("u.id")
    # The row as it was, for the history: answered by the update itself, or else the record is joined once more.
    before = "" if table.returns_old else f" JOIN {table.ident} o ON o.{key} = {id}"
    return f"""WITH moved AS (
        UPDATE {table.ident} t SET {sets}
        FROM unnest({", ".join(arrays)}) WITH ORDINALITY AS u({", ".join(labels)}, n){before}
        WHERE t.{key} = {id if table.returns_old else f"o.{key}"} AND t.{key} = ANY({id_array(table, "$2::text[]")}) AND {match}
        RETURNING {"WITH (OLD AS o) " if table.returns_old else ""}
            u.n AS n, u.id AS id, {table.status.read("o")} AS was, {c["updated_at"].read()} AS at{kept}
    ){noted}
    SELECT count(*), CASE WHEN count(*) < cardinality($2::text[]) THEN (SELECT array_agg(n) FROM moved) END{told} FROM moved"""


def _sets(
    table: Table, fenced: bool, names: Sequence[str], refer: dict[str, str], stamp: str
) -> dict[str, str]:
    """Only what changes. A field that is settled wins over an extra that shares its column."""
    c, x = table.columns, table.extras
    target, error = refer["target"], refer["error"]
    delayed = f"{stamp} + {refer['delay']} * interval '1 second'"
    sets = {
        c["status"].ident: c["status"].write(target),
        c["attempts"].ident: f"COALESCE({refer['attempts']}, {c['attempts'].expr()})",
        c["due_at"].ident: moment(c["due_at"], f"COALESCE({refer['until']}, {delayed})"),
        c["leased_by"].ident: "NULL",
        c["updated_at"].ident: moment(c["updated_at"], stamp),
    }
    if not fenced:
        sets[c["fence"].ident] = f"{c['fence'].expr()} + 1"
    errors: list[tuple[Column | None, str]] = [
        (c.get("last_error"), error),
        (x.get("error_type"), f"({error} ->> 'type')"),
        (x.get("error_message"), f"({error} ->> 'message')"),
    ]
    for column, source in errors:
        if column is not None:
            given = (
                f"{error}::{column.sql}"
                if column.type == "json" and column.sql != "jsonb"
                else source
            )
            sets[column.ident] = (
                f"CASE WHEN {error} IS NOT NULL THEN {given} WHEN NOT {refer['clear']} THEN t.{column.ident} END"
            )
    if "leased_at" in x:
        sets[x["leased_at"].ident] = "NULL"
    if "finished_at" in x:
        ended = f"{target} IN ({literals(table.ended)})" if table.ended else "false"
        sets[x["finished_at"].ident] = (
            f"CASE WHEN {ended} THEN {moment(x['finished_at'], stamp)} END"
        )
    return sets | {c[name].ident: c[name].write(f"u.f_{name}") for name in names}


# guards


def guard_shape(guard: Exists) -> Any:
    """What of a guard is in the text of its statement; the rest is bound."""
    shape: list[Any] = [guard.kind]
    for name, cond in guard.where:
        if _literal(name, cond.op):
            shape.append((name, cond.op, cond.value))
        else:
            shape.append((name, cond.op, len(cond.value) if cond.op == "in" else 1))
    return tuple(shape)


def _literal(name: str, op: str) -> bool:
    return op in ("null", "not_null") or (name == "status" and op in ("eq", "in"))


def guard_values(guard: Exists) -> list[Any]:
    out: list[Any] = []
    for name, cond in guard.where:
        if not _literal(name, cond.op):
            out += cond.value if cond.op == "in" else [cond.value]
    return out


def guard_columns(table: Table, guard: Exists) -> list[Column]:
    out: list[Column] = []
    for name, cond in guard.where:
        if not _literal(name, cond.op):
            out += [table.columns[name]] * (len(cond.value) if cond.op == "in" else 1)
    return out


def exists(table: Table, guard: Exists) -> str:
    """The guard for the row ``u`` of the statement."""
    conditions, n = [], 0
    signs = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for name, cond in guard.where:
        column = table.columns[name]
        if name == "status" and cond.op == "in" and cond.value:
            conditions.append(in_states(table, cond.value, "g"))
        elif _literal(name, cond.op):
            conditions.append(fixed(table, name, cond, "g"))
        elif cond.op == "in":
            given = ", ".join(column.compare(f"u.g{n + i}") for i in range(len(cond.value)))
            conditions.append(f"{column.expr('g')} IN ({given})" if cond.value else "false")
            n += len(cond.value)
        else:
            conditions.append(f"{column.expr('g')} {signs[cond.op]} {column.compare(f'u.g{n}')}")
            n += 1
    return f"EXISTS (SELECT 1 FROM {table.ident} g WHERE {' AND '.join(conditions) or 'true'})"


# renewals


async def renew(
    fetch: Fetch,
    table: Table,
    names: tuple[str, ...],
    renewals: Sequence[Renewal],
    offset: timedelta,
) -> set[str]:
    """Extend leases of one kind that write the same fields; the ids of those still held."""
    renewals = [r for r in renewals if table.possible(r.ref.id)]
    statement = table.statement(("renew", names), lambda: _renewal(table, names))
    fields = [table.columns[name].encode([r.fields[name] for r in renewals]) for name in names]
    rows = await fetch(
        statement,
        offset,
        [r.ref.id for r in renewals],
        [r.fence for r in renewals],
        [r.seconds for r in renewals],
        *fields,
    )
    return {row[0] for row in rows}


def _renewal(table: Table, names: Sequence[str]) -> str:
    c = table.columns
    sets = {c["due_at"].ident: moment(c["due_at"], f"{STAMP} + u.seconds * interval '1 second'")}
    sets |= {c[name].ident: c[name].write(f"u.f_{name}") for name in names}
    if names:
        sets[c["updated_at"].ident] = moment(c["updated_at"], STAMP)
    params = [
        ("id", "text"),
        ("fence", "bigint"),
        ("seconds", "double precision"),
        *((f"f_{name}", c[name].wire) for name in names),
    ]
    arrays = ", ".join(f"${n}::{type}[]" for n, (_, type) in enumerate(params, 2))
    return f"""UPDATE {table.ident} t SET {", ".join(f"{k} = {v}" for k, v in sets.items())}
        FROM unnest({arrays}) AS u({", ".join(label for label, _ in params)})
        WHERE t.{table.id.ident} = {table.id.write("u.id")} AND t.{table.id.ident} = ANY({id_array(table, "$2::text[]")})
          AND {c["fence"].expr()} = u.fence AND {HELD.format(leased_by=c["leased_by"].ident)}
        RETURNING u.id"""
