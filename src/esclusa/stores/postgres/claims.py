"""Claim: one statement. Renew with fields of the record; ``leases`` renews without."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from esclusa.model.errors import BadRecord
from esclusa.model.query import Order
from esclusa.model.settlement import ClaimRequest, Leased, Renewal
from esclusa.model.suspects import GROUP
from esclusa.stores.postgres import leases
from esclusa.stores.postgres.client import TABLE_ERRORS, ConnectionPools, error_message
from esclusa.stores.postgres.codec import Table, literal
from esclusa.stores.postgres.limits import StatementLimits
from esclusa.stores.postgres.statements import (
    IS_LEASED,
    NOW,
    ROW_LOCK,
    STAMP,
    STAMP_ONCE,
    Binder,
    Statement,
    WriteContext,
    condition,
    constant_condition,
    direction,
    in_states,
    order_by,
    row_place,
)


async def claim(
    connections: ConnectionPools,
    table: Table,
    request: ClaimRequest,
    offset: timedelta,
    limits: StatementLimits | None = None,
) -> list[Leased]:
    """Lease due records; BadRecord if a constraint or trigger of the table refuses it."""
    statement, values = claim_statement(table, request, offset)
    try:
        rows = await connections.claim(statement, *values, limits=limits)
    except TABLE_ERRORS as error:  # a constraint or trigger of another program's table
        raise BadRecord(
            f"table {table.name} does not let its records be claimed: {error_message(error)}"
        ) from None
    leased = []
    for row in rows:
        record, fault = table.build(row)
        before = request.take[0] if row[-1] == request.hold else row[-1]
        assert record.due_at is not None
        leased.append(Leased(record, before, record.due_at, fault, row[-3], row[-2]))
    return leased


async def candidate_ids(
    connections: ConnectionPools, table: Table, request: ClaimRequest, offset: timedelta
) -> list[str]:
    """Return the ids of the records that a claim would take, in its order."""
    binder = Binder(offset)
    tests = " AND ".join(candidates(table, request, binder))
    order = order_by(table, request.order or (Order("due_at"),))
    limit = binder.add(request.limit, "bigint")
    rows = await connections.claim(
        f"""SELECT {table.id.read()} FROM {table.ident} t
        WHERE {tests} ORDER BY {order} LIMIT {limit}""",
        *binder.values,
    )
    return [row[0] for row in rows]


def claim_statement(table: Table, request: ClaimRequest, offset: timedelta) -> Statement:
    """Select, lease and add to the history in one statement.

    The update finds the selected rows by their place: they are locked, so none has moved.

    ``number`` is the number of the attempt that begins, ``suspects`` the group of the lease; see
    model/suspects.py.
    """
    c = table.columns
    holder, tried = c["leased_by"].read(), c["attempts"].expr()
    binder = Binder(offset, request.worker, timedelta(seconds=request.lease), request.limit)
    tests = candidates(table, request, binder)
    over = "false" if request.tries is None else f"p.number > {binder.add(request.tries, 'bigint')}"
    order = request.order or (Order("due_at"),)
    keys = [f"{c[o.field].expr()} AS o{n}" for n, o in enumerate(order)]
    sets = [
        f"{c['fence'].ident} = {c['fence'].expr()} + 1",
        f"{c['attempts'].ident} = CASE WHEN {over} THEN p.tried ELSE p.number END",
        f"""{c["leased_by"].ident} = $2::text || CASE WHEN {over} THEN '/1'
            WHEN p.suspects = 1 THEN '/{GROUP}' ELSE '' END""",
        f"{c['due_at'].ident} = {c['due_at'].write_time(f'{STAMP_ONCE} + $3::interval')}",
        f"{c['updated_at'].ident} = {c['updated_at'].write_time(STAMP_ONCE)}",
    ]
    if request.hold is not None:
        sets.append(f"{c['status'].ident} = {literal(request.hold)}")
    if "leased_at" in table.extras:
        leased_at = table.extras["leased_at"]
        sets.append(f"{leased_at.ident} = {leased_at.write_time(STAMP_ONCE)}")
    alias = {name: f"c{n}" for n, name in enumerate(c)}
    history = ""
    if table.kind.history:
        run = binder.add(request.run, "text")
        history = f""",
        history AS (
            INSERT INTO {table.installation.history}
                (table_name, record_id, from_state, to_state, at, who, run, attempt, reason)
            {_history_rows(table, request, alias, run)}
        )"""
    reads = ", ".join(f"{column.read()} AS {alias[name]}" for name, column in c.items())
    place, same_place = row_place(table)
    directions = ", ".join(f"o{n}{direction(table, o)}" for n, o in enumerate(order))
    return (
        f"""WITH picked AS MATERIALIZED (
            SELECT {place}t.{table.id.ident} AS id, {table.status.read()} AS was,
                {holder} AS holder, {tried} AS tried,
                CASE WHEN {holder} IS NULL OR {holder} LIKE '%/1' THEN {tried} + 1
                    ELSE GREATEST({tried}, 1) END AS number,
                CASE WHEN {holder} IS NULL THEN 0 WHEN {holder} LIKE ANY('{{%/1,%/{GROUP}}}') THEN 1
                    ELSE {GROUP} END AS suspects,
                {", ".join(keys)}
            FROM {table.ident} t WHERE {" AND ".join(tests)}
            ORDER BY {order_by(table, order)} LIMIT $4::bigint {ROW_LOCK} SKIP LOCKED
        ),
        taken AS (
            UPDATE {table.ident} t SET {", ".join(sets)}
            FROM picked p WHERE {same_place}
            RETURNING {reads}, {over} AS over, p.suspects, p.was, p.holder, p.id,
                {", ".join(f"p.o{n}" for n in range(len(order)))}
        ){history}
        SELECT {", ".join(alias.values())}, over, suspects, was
        FROM taken ORDER BY {directions}, id""",
        binder.values,
    )


def _history_rows(table: Table, request: ClaimRequest, alias: dict[str, str], run: str) -> str:
    """Select the history of the rows in ``taken`` that changed their state or their holder."""
    to, changed = "was", "holder IS NOT NULL"
    if request.hold is not None:
        to = literal(request.hold)
        changed = f"(was <> {to} OR holder IS NOT NULL)"
    worker = f"regexp_replace(holder, '/[1{GROUP}]$', '')"
    reason = f"""'{{"code": "lease_expired", "worker": ' || to_json({worker})::text || '}}'"""
    return f"""SELECT {literal(table.name)}, {alias["id"]}, was, {to}, {alias["updated_at"]},
                $2::text, {run}, {alias["attempts"]}, {reason}
            FROM taken WHERE {changed}"""


def candidates(
    table: Table, request: ClaimRequest, binder: Binder, *, due: bool = True
) -> list[str]:
    """Return the tests for rows that a claim may take; without ``due``, whatever the time."""
    states = request.take if request.hold is None else (*request.take, request.hold)
    tests = [in_states(table, states)]
    tests += [
        constant_condition(table, name, cond)
        if table.is_stage_condition(name, cond)
        else condition(table, name, cond, binder)
        for name, cond in request.where
    ]
    if request.ids:
        tests.append(f"t.{table.id.ident} = ANY({binder.ids(table, request.ids)})")
    if request.excluded:
        tests.append(f"t.{table.id.ident} <> ALL({binder.ids(table, request.excluded)})")
    if table.kind.attached:  # a row without an id cannot be addressed
        tests.append(f"t.{table.id.ident} IS NOT NULL")
    if request.since is not None:
        tests.append(_is_since(table, request.since, binder))
    if due:
        tests += [_is_due(table, request, binder), leases.not_kept(table)]
        tests += leases.not_locked_by_others(table)
        tests += leases.abandoned(table, request)
    return tests


def _is_since(table: Table, since: datetime, binder: Binder) -> str:
    """Return the test for rows due from a time on."""
    due = table.columns["due_at"]
    return f"{due.expr()} >= {due.write_time(binder.add(since, 'timestamptz'))}"


def _is_due(table: Table, request: ClaimRequest, binder: Binder) -> str:
    due, updated = table.columns["due_at"], table.columns["updated_at"]
    if request.before is None:
        return f"{due.expr()} <= {due.write_time(NOW)}"
    before = binder.add(request.before, "timestamptz")
    is_due = f"{due.expr()} <= {due.write_time(f'LEAST({NOW}, {before})')}"
    if not request.eager:
        return is_due
    free = f"t.{table.columns['leased_by'].ident} IS NULL"
    older = f"{updated.expr()} <= {updated.write_time(before)}"
    return f"({is_due} OR ({in_states(table, request.take)} AND {free} AND {older}))"


async def save(
    context: WriteContext,
    table: Table,
    names: tuple[str, ...],
    marked: bool,
    renewals: Sequence[Renewal],
) -> set[str]:
    """Extend leases of one kind and write their fields; return the ids still held.

    ``marked``: they write their holder, too.
    """
    renewals = [r for r in renewals if table.is_possible_id(r.ref.id)]
    statement = table.statement(
        ("save", names, marked), lambda: _save_statement(table, names, marked)
    )
    rows = await context.fetch(
        statement,
        context.offset,
        [r.ref.id for r in renewals],
        [r.fence for r in renewals],
        [r.seconds for r in renewals],
        *([[r.holder for r in renewals]] if marked else []),
        *(table.columns[name].encode([r.fields[name] for r in renewals]) for name in names),
    )
    return {row[0] for row in rows}


def _save_statement(table: Table, names: Sequence[str], marked: bool) -> str:
    c = table.columns
    until = f"{STAMP} + u.seconds * interval '1 second'"
    sets = {c["due_at"].ident: c["due_at"].write_time(until)}
    params = {"id": "text", "fence": "bigint", "seconds": "double precision"}
    if marked:
        sets[c["leased_by"].ident] = "u.holder"
        params["holder"] = "text"
    sets |= {c[name].ident: c[name].write(f"u.f_{name}") for name in names if name in table.stored}
    sets[c["updated_at"].ident] = c["updated_at"].write_time(STAMP)
    params |= {f"f_{name}": c[name].parameter_type for name in names}
    arrays = ", ".join(f"${n}::{type}[]" for n, type in enumerate(params.values(), 2))
    key = table.id.ident
    return f"""UPDATE {table.ident} t SET {", ".join(f"{k} = {v}" for k, v in sets.items())}
        FROM unnest({arrays}) AS u({", ".join(params)})
        WHERE t.{key} = {table.id.write("u.id")} AND t.{key} = ANY({table.id_array("$2::text[]")})
            AND {c["fence"].expr()} = u.fence AND {IS_LEASED.format(leased_by=c["leased_by"].ident)}
        RETURNING u.id"""
