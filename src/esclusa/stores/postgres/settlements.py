"""Settle: the records' own moves, then the effects, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from esclusa.model.effects import Create
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Verdict
from esclusa.model.storable import misfit
from esclusa.stores.isolate import describe
from esclusa.stores.postgres import effects
from esclusa.stores.postgres.client import VALUE_ERRORS, ConnectionPools, Fetch, error_message
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.moves import SettlementRow, grouped, move
from esclusa.stores.postgres.notifications import notify
from esclusa.stores.postgres.statements import WriteContext


async def settle(
    connections: ConnectionPools,
    context: Callable[[Fetch], WriteContext],
    settlements: Sequence[Settlement],
) -> list[Verdict]:
    """Settle in one transaction, made again without the settlements whose effects it rejects."""
    numbered = list(enumerate(settlements))
    rejected: dict[int, str] = {}
    done: set[int] = set()
    while numbered:
        try:
            done = await _settle(connections, context, numbered)
            break
        except effects.EffectsRejected as rejection:
            rejected |= rejection.faults
            numbered = [(n, s) for n, s in numbered if n not in rejected]
    return [
        Rejected(s.ref, rejected[n])
        if n in rejected
        else Settled(s.ref)
        if n in done
        else Lost(s.ref)
        for n, s in enumerate(settlements)
    ]


async def _settle(
    connections: ConnectionPools,
    context: Callable[[Fetch], WriteContext],
    numbered: list[tuple[int, Settlement]],
) -> set[int]:
    """Return the numbers of the settlements that moved their record."""
    rounds = _rounds([SettlementRow(n, s) for n, s in numbered])
    groups = grouped(rounds[0])
    if len(rounds) == 1 and len(groups) == 1 and not any(s.effects for _, s in numbered):
        # without effects and of one form: one statement, without a transaction around it
        single = context(connections.fetch)
        ((key, group),) = groups.items()
        table = single.table(group[0].settlement.ref.kind)
        wake = any(_wakes(table, s) for _, s in numbered)
        return await move(single, key, group, wake=wake)
    return await connections.transaction(
        lambda connection: _in_transaction(context(connection.fetch), numbered, rounds)
    )


async def _in_transaction(
    context: WriteContext,
    numbered: list[tuple[int, Settlement]],
    rounds: list[list[SettlementRow]],
) -> set[int]:
    await effects.lock_targets(context, [s for _, s in numbered])
    done: set[int] = set()
    for rows in rounds:
        for key, group in grouped(rows).items():
            done |= await move(context, key, group, wake=False)
    moved = [(n, s) for n, s in numbered if n in done]
    woken = {s.ref.kind.table for _, s in moved if _wakes(context.table(s.ref.kind), s)}
    woken |= await effects.apply(context, [(n, s) for n, s in moved if s.effects])
    if woken:
        await notify(context.fetch, sorted(woken))
    return done


def _wakes(table: Table, s: Settlement) -> bool:
    """Whether the record is due at once in a state that a stage takes."""
    return s.until is None and s.delay <= 0 and table.wakes(s.to)


def explain(settlement: Settlement, error: Exception) -> str:
    """Return why a settlement was not written; the value at fault, if one is."""
    if not isinstance(error, VALUE_ERRORS):
        return describe(settlement, error)
    created = [e.record for e in settlement.effects if isinstance(e, Create)]
    values = [(settlement.ref.kind, settlement.fields), *((r.kind, r.__dict__) for r in created)]
    found = next((fault for kind, fields in values if (fault := misfit(kind, fields))), None)
    return f"a value does not fit: {error_message(error)}" if found is None else str(found)


def _rounds(rows: list[SettlementRow]) -> list[list[SettlementRow]]:
    """Split rows, in order, so that no round has a record twice. Nearly always there is one."""
    if len({row.settlement.ref.id for row in rows}) == len(rows):
        return [rows]
    rounds: list[list[SettlementRow]] = []
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row.settlement.ref.kind.table, row.settlement.ref.id)
        n = seen.get(key, 0)
        seen[key] = n + 1
        if n == len(rounds):
            rounds.append([])
        rounds[n].append(row)
    return rounds
