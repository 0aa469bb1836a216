"""Moves of records as array statements: many records of one kind in one statement.

One form of statement serves the end of a lease, an operator's move and the effect ``Move``: it
matches rows by id and fence (or state), moves them, and adds to the history.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

from esclusa.model.effects import Exists
from esclusa.model.query import Cond
from esclusa.model.settlement import Settlement, Transition
from esclusa.model.value import value
from esclusa.stores.postgres.codec import Table, TableColumn, json_text, literal, literals
from esclusa.stores.postgres.statements import (
    IS_LEASED,
    OPERATORS,
    STAMP,
    STAMP_ONCE,
    WriteContext,
    constant_condition,
    in_states,
    notify_call,
)

# Columns of the history, and the parameters that are written there.
_HISTORY_VALUES = {
    "to_state": "target",
    "error": "error",
    "who": "who",
    "run": "run",
    "attempt": "attempt",
    "reason": "reason",
}
# Written only if an operator changed fields, or a handler logged lines.
_DETAILS = ("changes", "log")


# Between the states of a parameter. No declared state has it, nor one of another program.
_SEPARATOR = "\x1f"


def joined(states: Iterable[str]) -> str:
    """States as one parameter, for ``in_joined``."""
    return _SEPARATOR.join(states)


def in_joined(table: Table, states: str) -> str:
    """Return the test that a row is in one of these states."""
    return f"{table.status.read()} = ANY(string_to_array({states}, '{_SEPARATOR}'))"


# One move: its number in the call, the settlement, and a guard that must be false.
SettlementRow: TypeAlias = tuple[int, Settlement, Exists | None]


def grouped(rows: Iterable[SettlementRow]) -> dict[tuple[Any, ...], list[SettlementRow]]:
    """Group rows by the statement that they need."""
    groups: dict[tuple[Any, ...], list[SettlementRow]] = {}
    known: dict[tuple[int, bool], list[SettlementRow]] = {}  # by a transition that many share
    for row in rows:
        _, settlement, guard = row
        shared = id(settlement.transition), settlement.fence is None
        group = known.get(shared) if guard is None else None
        if group is None:
            group = groups.setdefault(_statement_key(settlement, guard), [])
            if guard is None:
                known[shared] = group
        group.append(row)
    return groups


def _statement_key(settlement: Settlement, guard: Exists | None) -> tuple[Any, ...]:
    transition = settlement.transition
    fields = tuple(sorted(transition.fields))
    details = tuple(name for name in _DETAILS if getattr(transition, name) is not None)
    shape = None if guard is None else _guard_shape(guard)
    return (transition.kind.table, settlement.fence is not None, fields, shape, details)


async def move(
    context: WriteContext, key: tuple[Any, ...], rows: list[SettlementRow], *, wake: bool
) -> set[int]:
    """Move the rows of one group; return the numbers of those that moved."""
    _, fenced, names, shape, details = key
    table = context.table(rows[0][1].ref.kind)
    ids = [settlement.ref.id for _, settlement, _ in rows]
    if len(table.possible_ids(ids)) < len(ids):
        rows = [row for row in rows if table.is_possible_id(row[1].ref.id)]
    if not rows:
        return set()
    params = _params(context, table, fenced, names, rows, details)
    shared = tuple(param.shared for param in params)
    statement = table.statement(
        ("move", fenced, names, shape, details, wake, shared),
        lambda: _move_statement(context, table, fenced, names, rows[0][2], wake, params),
    )
    values = (param.values[0] if param.shared else param.values for param in params)
    [answer] = await context.fetch(statement, context.offset, *values)
    if answer[0] < len(rows):
        rows = [rows[n - 1] for n in answer[1] or ()]
    return {number for number, _, _ in rows}


@value
class MoveParam:
    """A parameter of a move: one value for each row, or one that all rows share.

    Most settlements of a call differ in little, and arrays cost.
    """

    label: str
    type: str
    values: list[Any]
    shared: bool


def _params(
    context: WriteContext,
    table: Table,
    fenced: bool,
    names: Sequence[str],
    rows: list[SettlementRow],
    details: Sequence[str],
) -> list[MoveParam]:
    settlements = [settlement for _, settlement, _ in rows]
    each = [settlement.transition for settlement in settlements]
    if each.count(each[0]) == len(each):
        each = each[:1]  # all settlements share it

    def param(label: str, type: str, value_of: Callable[[Transition], Any]) -> MoveParam:
        values = [value_of(transition) for transition in each]
        return MoveParam(label, type, values, values.count(values[0]) == len(values))

    params = [
        MoveParam("id", "text", [s.ref.id for s in settlements], shared=False),
        param("states", "text", lambda t: joined(t.held_in if fenced else t.frm)),
        param("target", "text", lambda t: t.to),
        param("attempts", "bigint", lambda t: t.attempts),
        param("until", "timestamptz", lambda t: t.until),
        param("delay", "double precision", lambda t: t.delay),
        param("error", "jsonb", lambda t: None if t.error is None else json_text(t.error)),
        param("clear", "boolean", lambda t: t.clear_error),
    ]
    if fenced:
        # not shared, though fences often are equal: the planner would guess how many rows have it
        fences = [s.fence for s in settlements]
        params.append(MoveParam("fence", "bigint", fences, shared=False))
    if table.kind.history:
        params += [
            param("who", "text", lambda t: t.who),
            param("run", "text", lambda t: t.run),
            param("attempt", "bigint", lambda t: t.attempt),
            param("reason", "text", lambda t: t.reason),
        ]
        params += [param(name, "jsonb", partial(_detail, name)) for name in details]
    bound = [
        (f"f_{name}", table.columns[name], [s.fields[name] for s in settlements]) for name in names
    ]
    guard = rows[0][2]
    if guard is not None:
        guards = [_bound(each) for _, _, each in rows if each is not None]
        columns = context.table(guard.kind).columns
        bound += [
            (f"g{n}", columns[name], [operands[n][1] for operands in guards])
            for n, (name, _) in enumerate(guards[0])
        ]
    return params + [
        MoveParam(label, column.parameter_type, column.encode(values), shared=False)
        for label, column, values in bound
    ]


def _detail(name: str, transition: Transition) -> str:
    return json_text(getattr(transition, name))


def _move_statement(
    context: WriteContext,
    table: Table,
    fenced: bool,
    names: Sequence[str],
    guard: Exists | None,
    wake: bool,
    params: list[MoveParam],
) -> str:
    c, key = table.columns, table.id.ident
    arrays, labels, refer = [], [], {}
    for n, param in enumerate(params, 2):
        refer[param.label] = f"${n}::{param.type}" if param.shared else f"u.{param.label}"
        if not param.shared:
            arrays.append(f"${n}::{param.type}[]")
            labels.append(param.label)
    sets = _sets(table, fenced, names, refer)
    sets = sets or {table.id.ident: f"t.{table.id.ident}"}
    match = in_joined(table, refer["states"])
    if fenced:
        leased = IS_LEASED.format(leased_by=c["leased_by"].ident)
        match = f"{c['fence'].expr()} = u.fence AND {leased} AND {match}"
    if guard is not None:
        match += f" AND NOT {_exists(context.table(guard.kind), guard)}"
    tracked = table.kind.track
    if not tracked.complete or not tracked.keys() & {"last_error", "error_type", "error_message"}:
        # PostgreSQL must know the type of every parameter
        match += f" AND num_nulls({', '.join(refer.values())}) >= 0"
    history = returned = ""
    if table.kind.history:
        written = _HISTORY_VALUES | {name: name for name in _DETAILS if name in refer}
        returned = "".join(f", u.{label}" for label in written.values() if label in labels)
        values = [label if label in labels else refer[label] for label in written.values()]
        history = f""",
        history AS (
            INSERT INTO {table.installation.history}
                (table_name, record_id, from_state, at, {", ".join(written)})
            SELECT {literal(table.name)}, id, was, at, {", ".join(values)} FROM moved
        )"""
    notified = f", CASE WHEN count(*) > 0 THEN {notify_call(table)} END" if wake else ""
    id, updated = table.id.write("u.id"), c["updated_at"]
    written_at = updated.read() if updated.instead is None else STAMP
    # the row as it was, for the history: before PostgreSQL 18 the record is joined once more
    old, join, matched = "WITH (OLD AS o) ", "", id
    if not table.returns_old:
        old, join, matched = "", f" JOIN {table.ident} o ON o.{key} = {id}", f"o.{key}"
    return f"""WITH moved AS (
        UPDATE {table.ident} t SET {", ".join(f"{column} = {v}" for column, v in sets.items())}
        FROM unnest({", ".join(arrays)}) WITH ORDINALITY AS u({", ".join(labels)}, n){join}
        WHERE t.{key} = {matched} AND t.{key} = ANY({table.id_array("$2::text[]")}) AND {match}
        RETURNING {old}u.n AS n, u.id AS id,
            {table.status.read("o")} AS was, {written_at} AS at{returned}
    ){history}
    SELECT count(*),
        CASE WHEN count(*) < cardinality($2::text[]) THEN (SELECT array_agg(n) FROM moved) END
        {notified}
    FROM moved"""


def _sets(
    table: Table, fenced: bool, names: Sequence[str], refer: dict[str, str]
) -> dict[str, str]:
    """Return column and value of what changes. A field wins over an extra of the same column."""
    c, x = table.columns, table.extras
    stamp = STAMP_ONCE if fenced else STAMP
    target, error = refer["target"], refer["error"]
    delayed = f"{stamp} + {refer['delay']} * interval '1 second'"
    tracking = {
        "status": c["status"].write(target),
        "attempts": f"COALESCE({refer['attempts']}, {c['attempts'].expr()})",
        "due_at": c["due_at"].write_time(f"COALESCE({refer['until']}, {delayed})"),
        "leased_by": "NULL",
        "updated_at": c["updated_at"].write_time(stamp),
    }
    if not fenced:
        tracking["fence"] = f"{c['fence'].expr()} + 1"
    sets = {c[name].ident: v for name, v in tracking.items() if name in table.stored}
    errors: list[tuple[TableColumn | None, str]] = [
        (c.get("last_error"), error),
        (x.get("error_type"), f"({error} ->> 'type')"),
        (x.get("error_message"), f"({error} ->> 'message')"),
    ]
    for column, part in errors:
        if column is not None:
            other_json = column.type == "json" and column.sql_type != "jsonb"
            source = f"{error}::{column.sql_type}" if other_json else part
            keep = f"WHEN NOT {refer['clear']} THEN t.{column.ident}"
            sets[column.ident] = f"CASE WHEN {error} IS NOT NULL THEN {source} {keep} END"
    if "leased_at" in x:
        sets[x["leased_at"].ident] = "NULL"
    if "finished_at" in x:
        # the states that no stage takes or holds
        states = [s for s in table.kind.lifecycle.states if s not in table.stage_states]
        finished = f"{target} IN ({literals(states)})" if states else "false"
        time = x["finished_at"].write_time(stamp)
        sets[x["finished_at"].ident] = f"CASE WHEN {finished} THEN {time} END"
    return sets | {
        c[name].ident: c[name].write(f"u.f_{name}") for name in names if name in table.stored
    }


# guards


def _guard_shape(guard: Exists) -> Any:
    """Return the part of a guard that is in the text of its statement; the rest is bound."""
    return guard.kind, *(
        (name, cond.op, cond.value if _is_literal(name, cond) else len(_operands(cond)))
        for name, cond in guard.where
    )


def _is_literal(name: str, cond: Cond) -> bool:
    return cond.op in ("null", "not_null") or (name == "status" and cond.op in ("eq", "in"))


def _operands(cond: Cond) -> Sequence[Any]:
    return list(cond.value) if cond.op == "in" else [cond.value]


def _bound(guard: Exists) -> list[tuple[str, Any]]:
    """Return field and value of each bound operand of a guard, in order."""
    return [
        (name, value)
        for name, cond in guard.where
        if not _is_literal(name, cond)
        for value in _operands(cond)
    ]


def _exists(table: Table, guard: Exists) -> str:
    """Return the guard's test for the row ``u`` of the statement."""
    tests, n = [], 0
    for name, cond in guard.where:
        column = table.columns[name]
        if name == "status" and cond.op == "in" and cond.value:
            tests.append(in_states(table, cond.value, "g"))
        elif _is_literal(name, cond):
            tests.append(constant_condition(table, name, cond, "g"))
        elif cond.op == "in":
            given = ", ".join(column.compare(f"u.g{n + i}") for i in range(len(cond.value)))
            tests.append(f"{column.expr('g')} IN ({given})" if cond.value else "false")
            n += len(cond.value)
        else:
            tests.append(f"{column.expr('g')} {OPERATORS[cond.op]} {column.compare(f'u.g{n}')}")
            n += 1
    return f"EXISTS (SELECT 1 FROM {table.ident} g WHERE {' AND '.join(tests) or 'true'})"
