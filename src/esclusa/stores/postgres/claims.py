"""Claim: one statement. Renew with fields of the record; ``leases`` renews without."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from esclusa.model.errors import BadRecord
from esclusa.model.query import Order
from esclusa.model.settlement import ClaimRequest, Leased, Renewal
from esclusa.model.suspects import GROUP
from esclusa.stores.postgres.candidates import candidates
from esclusa.stores.postgres.client import TABLE_ERRORS, ConnectionPools, error_message
from esclusa.stores.postgres.codec import Table, literal
from esclusa.stores.postgres.key_limits import KeyTurns
from esclusa.stores.postgres.limits import StatementLimits
from esclusa.stores.postgres.statements import (
    IS_LEASED,
    ROW_LOCK,
    STAMP,
    STAMP_ONCE,
    Binder,
    Statement,
    WriteContext,
    direction,
    order_by,
    row_place,
)


async def claim(
    connections: ConnectionPools,
    table: Table,
    request: ClaimRequest,
    offset: timedelta,
    limits: StatementLimits | None = None,
    turns: KeyTurns | None = None,
) -> list[Leased]:
    """Lease due records; BadRecord if a constraint or trigger of the table refuses it.

    ``turns``: of the keys, if the stage limits how many records of one key are held.
    """
    statement, values = claim_statement(table, request, offset, turns)
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


def claim_statement(
    table: Table, request: ClaimRequest, offset: timedelta, turns: KeyTurns | None = None
) -> Statement:
    """Select, lease and add to the history in one statement.

    The update finds the selected rows by their place: they are locked, so none has moved.

    ``number`` is the number of the attempt that begins, ``suspects`` the group of the lease; see
    model/suspects.py.
    """
    c = table.columns
    holder, tried = c["leased_by"].read(), c["attempts"].expr()
    binder = Binder(offset, request.worker, timedelta(seconds=request.lease), request.limit)
    tests, locked = candidates(table, request, binder), ""
    if turns is not None:
        locked, in_turn = turns.locked(table, request, binder)
        tests.append(in_turn)
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
        f"""WITH {locked}picked AS MATERIALIZED (
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
