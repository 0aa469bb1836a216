"""SQL tests of the rows that a claim may take."""

from __future__ import annotations

from datetime import datetime

from esclusa.model.settlement import ClaimRequest
from esclusa.stores.postgres import leases
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.statements import (
    NOW,
    Binder,
    condition,
    constant_condition,
    in_states,
)


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
