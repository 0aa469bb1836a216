# ruff: noqa: S608 - statements are composed from declared names alone, quoted; values are bound
"""Effects in waves: set-based, yet each sees what those before it wrote.

Effects are put in levels: one goes behind another only if they touch the same side of a record or one's guard looks
where the other writes. Each level is a handful of array statements, however many settlements the call has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from esclusa.model.effects import Add, Create, Effect, Move, Wake
from esclusa.model.errors import UndeclaredMove
from esclusa.model.record import Ref
from esclusa.model.settlement import Settlement
from esclusa.stores.postgres.insert import Fetch, insert, wakes
from esclusa.stores.postgres.settle import Row, Tables, grouped, move
from esclusa.stores.postgres.statements import NOW, STAMP, id_array, moment
from esclusa.stores.postgres.table import Table


class Rejection(Exception):
    """Effects that cannot be applied as declared: why, by the number of their settlement. Rolls the transaction back."""

    def __init__(self, faults: dict[int, str]) -> None:
        self.faults = faults
        super().__init__(str(faults))


@dataclass
class Level:
    """Effects that do not touch each other, with the numbers of their settlements."""

    creates: list[Create] = field(default_factory=list)
    moves: list[tuple[int, Move]] = field(default_factory=list)
    wakes: dict[tuple[str, str], Wake] = field(default_factory=dict)
    adds: list[tuple[int, Add]] = field(default_factory=list)


def targets(settlements: Sequence[Settlement]) -> list[Ref]:
    """The records to lock before anything else, in one order for all: the own ones and those that effects change."""
    refs = {s.ref for s in settlements}
    for settlement in settlements:
        refs |= {Ref(e.kind, e.id) for e in settlement.effects if not isinstance(e, Create)}
    return sorted(refs, key=lambda r: (r.kind.table, r.id))


def locks(settlements: Sequence[Settlement]) -> bool:
    return any(not isinstance(effect, Create) for s in settlements for effect in s.effects)


async def lock(fetch: Fetch, tables: Tables, refs: Sequence[Ref]) -> None:
    by_table: dict[str, list[Ref]] = defaultdict(list)
    for ref in refs:
        by_table[ref.kind.table].append(ref)
    for name in sorted(by_table):
        table = tables(by_table[name][0].kind)
        ids = table.ids([ref.id for ref in by_table[name]])
        key = table.id.ident
        await fetch(
            f"SELECT 1 FROM {table.ident} t WHERE t.{key} = ANY({id_array(table, '$1::text[]')}) ORDER BY t.{key} FOR UPDATE",
            ids,
        )


def levels(
    numbered: Sequence[tuple[int, Settlement]], identify: Callable[[Create], str]
) -> list[Level]:
    """Put effects in levels, in the order of the settlements and of the effects in each."""
    out: list[Level] = []
    last: dict[
        tuple[str, str, str], tuple[int, Any]
    ] = {}  # the level of the last write of a side of a record, and what it was
    written: dict[str, int] = {}  # the highest level that writes a table
    looked: dict[str, int] = {}  # the highest level with a guard on a table
    for number, settlement in numbered:
        for effect in settlement.effects:
            table, id = _target(effect, identify)
            sameness, sides = _sameness(effect), [(table, id, side) for side in _sides(effect)]
            before = [last[side] for side in sides if side in last]
            highest = max((level for level, _ in before), default=-1)
            merged = (
                bool(before)
                and sameness is not None
                and all(same == sameness for _, same in before)
            )
            guard = (
                effect.unless.kind.table
                if isinstance(effect, Move) and effect.unless is not None
                else None
            )
            floor = -1 if guard is None else written.get(guard, -1) + 1
            if merged and isinstance(effect, Move) and highest >= floor:
                continue  # the very same move again, and nothing since that its guard could see: it finds its work done
            level = max(looked.get(table, -1) + 1, highest if merged else highest + 1, floor)
            if guard is not None:
                looked[guard] = max(looked.get(guard, -1), level)
            while len(out) <= level:
                out.append(Level())
            _put(out[level], number, effect, (table, id))
            last |= dict.fromkeys(sides, (level, sameness))
            written[table] = max(written.get(table, -1), level)
    return out


def _target(effect: Effect, identify: Callable[[Create], str]) -> tuple[str, str]:
    if isinstance(effect, Create):
        return effect.record.kind.table, identify(effect)
    return effect.kind.table, effect.id


def _sides(effect: Effect) -> tuple[str, ...]:
    """What of a record an effect touches: its state, its fields, or both. An Add and a Move do not disturb each other."""
    match effect:
        case Add():
            return ("fields",)
        case Wake():
            return ("state",)
        case Move(fields=fields) if not fields:
            return ("state",)
        case _:
            return ("state", "fields")


def _sameness(effect: Effect) -> Any:
    """Effects on one record that are the same in this can go together: they add up, or the second finds its work done."""
    match effect:
        case Move(frm=frm) if frm:
            return ("move", effect.to, frm, repr(effect.unless), repr(effect.fields))
        case Move():
            return None
        case _:
            return type(effect).__name__


def _put(level: Level, number: int, effect: Effect, target: tuple[str, str]) -> None:
    match effect:
        case Create():
            level.creates.append(effect)
        case Move():
            level.moves.append((number, effect))
        case Wake():
            level.wakes[target] = effect
        case Add():
            level.adds.append((number, effect))


async def apply(
    fetch: Fetch,
    tables: Tables,
    numbered: Sequence[tuple[int, Settlement]],
    offset: timedelta,
    new_id: Callable[[], str],
) -> set[str]:
    """Apply the effects of settlements that went through; the tables that have something due at once now.

    Raises Rejection with every fault of the first level that has one."""
    made: dict[int, str] = {}

    def identify(effect: Create) -> str:
        kind = effect.record.kind
        return made.setdefault(id(effect), kind.identify(effect.record, new_id))

    owners = dict(numbered)
    woken: set[str] = set()
    for level in levels(numbered, identify):
        woken |= await _create(fetch, tables, level.creates, offset, identify)
        faults = await _move(fetch, tables, level.moves, owners, offset, woken)
        faults |= await _add(fetch, tables, level.adds, offset)
        woken |= await _wake(fetch, tables, list(level.wakes.values()), offset)
        if faults:
            raise Rejection(faults)
    return woken


async def _create(
    fetch: Fetch,
    tables: Tables,
    creates: list[Create],
    offset: timedelta,
    identify: Callable[[Create], str],
) -> set[str]:
    by_table: dict[str, list[Create]] = defaultdict(list)
    for create in creates:
        by_table[create.record.kind.table].append(create)
    woken = set()
    for name in sorted(by_table):
        table = tables(by_table[name][0].record.kind)
        drafts = [
            c.record if table.kind.database_id else c.record.but(id=identify(c))
            for c in by_table[name]
        ]
        await insert(fetch, table, drafts, offset, lambda: "")
        if wakes(table, drafts):
            woken.add(name)
    return woken


async def _move(
    fetch: Fetch,
    tables: Tables,
    moves: list[tuple[int, Move]],
    owners: dict[int, Settlement],
    offset: timedelta,
    woken: set[str],
) -> dict[int, str]:
    faults: dict[int, str] = {}
    rows = []
    for n, (number, effect) in enumerate(moves):
        owner = owners[number]
        frm = effect.frm or effect.kind.lifecycle.sources(effect.to)
        settlement = Settlement(
            ref=Ref(effect.kind, effect.id), to=effect.to, frm=frm, fence=None, fields=effect.fields, attempts=0, who=owner.who,
            run=owner.run, reason=effect.reason,
        )  # fmt: skip
        rows.append(Row(n, settlement, effect.unless))
    for key, group in grouped(rows).items():
        done = await move(fetch, tables, key, group, offset, notify=False)
        table = tables(group[0].settlement.ref.kind)
        if any(row.number in done and table.wakes(row.settlement.to) for row in group):
            woken.add(table.name)
        left = [
            moves[row.number]
            for row in group
            if row.number not in done and not moves[row.number][1].frm
        ]
        faults |= await _judge(fetch, table, left)
    return faults


async def _judge(fetch: Fetch, table: Table, left: list[tuple[int, Move]]) -> dict[int, str]:
    """Why moves that had to happen did not: the record is absent or elsewhere. A guard that was true is no fault."""
    if not left:
        return {}
    ids = table.ids([effect.id for _, effect in left])
    rows = await fetch(
        f"SELECT {table.id.read()}, {table.status.read()} FROM {table.ident} t "
        f"WHERE t.{table.id.ident} = ANY({id_array(table, '$1::text[]')})",
        ids,
    )
    states = {row[0]: row[1] for row in rows}
    faults = {}
    for number, effect in left:
        state = states.get(effect.id)
        if state is None:
            faults[number] = f"effect Move: there is no {table.name} {effect.id}"
        elif not table.kind.lifecycle.allows(state, effect.to):
            where = f"effect Move on {table.name} {effect.id}"
            faults[number] = str(
                UndeclaredMove(where, state, effect.to, table.kind.lifecycle.targets(state))
            )
    return faults


async def _add(
    fetch: Fetch, tables: Tables, adds: list[tuple[int, Add]], offset: timedelta
) -> dict[int, str]:
    faults: dict[int, str] = {}
    groups: dict[tuple[Any, ...], list[tuple[int, Add]]] = defaultdict(list)
    for number, effect in adds:
        groups[(effect.kind, tuple(sorted(effect.amounts)))].append((number, effect))
    for (kind, names), group in groups.items():
        table = tables(kind)
        sums: dict[str, list[int]] = {}
        for _, effect in group:
            total = sums.setdefault(effect.id, [0] * len(names))
            for n, name in enumerate(names):
                total[n] += effect.amounts[name]
        ids = table.ids(list(sums))
        statement = table.statement(("add", names), lambda t=table, n=names: _addition(t, n))  # type: ignore[misc]
        there = {
            row[0]
            for row in await fetch(
                statement, offset, ids, *([sums[id][n] for id in ids] for n in range(len(names)))
            )
        }
        faults |= {
            number: f"effect Add: there is no {table.name} {e.id}"
            for number, e in group
            if e.id not in there
        }
    return faults


def _addition(table: Table, names: Sequence[str]) -> str:
    updated = table.columns["updated_at"]
    sets = [f"{updated.ident} = {moment(updated, STAMP)}"]
    for n, name in enumerate(names):
        ident = table.columns[name].ident
        sets.append(f"{ident} = COALESCE(t.{ident}, 0) + u.a{n}")
    arrays = ", ".join(["$2::text[]", *(f"${n + 3}::bigint[]" for n in range(len(names)))])
    labels = ", ".join(["id", *(f"a{n}" for n in range(len(names)))])
    return f"""UPDATE {table.ident} t SET {", ".join(sets)} FROM unnest({arrays}) AS u({labels})
        WHERE t.{table.id.ident} = {table.id.write("u.id")} AND t.{table.id.ident} = ANY({id_array(table, "$2::text[]")})
        RETURNING u.id"""


async def _wake(fetch: Fetch, tables: Tables, effects: list[Wake], offset: timedelta) -> set[str]:
    by_table: dict[str, list[Wake]] = defaultdict(list)
    for effect in effects:
        by_table[effect.kind.table].append(effect)
    woken = set()
    for name in sorted(by_table):
        table = tables(by_table[name][0].kind)
        due, updated = table.columns["due_at"], table.columns["updated_at"]
        rows = await fetch(
            f"""UPDATE {table.ident} t SET {due.ident} = {moment(due, NOW)}, {updated.ident} = {moment(updated, STAMP)}
            WHERE t.{table.id.ident} = ANY({id_array(table, "$2::text[]")}) AND t.{table.columns["leased_by"].ident} IS NULL
              AND {due.expr()} > {moment(due, NOW)} RETURNING 1""",
            offset,
            table.ids([effect.id for effect in by_table[name]]),
        )
        if rows:
            woken.add(name)
    return woken
