"""Settle: the records' own moves, then the effects, in one transaction.

Effects are applied in levels: by array statements, and yet each effect sees those before it. An
effect is put on a higher level than another only if both touch the same part of a record, or if the
guard of one reads a table that the other writes. Each level is a few statements, however many
settlements the call has.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from esclusa.model.effects import Add, Create, Effect, Move, Wake
from esclusa.model.errors import UndeclaredMove
from esclusa.model.kind import Kind, Ref
from esclusa.model.settlement import (
    Lost,
    Rejected,
    Settled,
    Settlement,
    Transition,
    Verdict,
)
from esclusa.model.storable import misfit
from esclusa.stores.isolate import describe
from esclusa.stores.postgres.client import VALUE_ERRORS, ConnectionPools, Fetch, error_message
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.inserts import insert, wakes
from esclusa.stores.postgres.leases import end_overtaken
from esclusa.stores.postgres.limits import StatementLimits
from esclusa.stores.postgres.moves import SettlementRow, grouped, move
from esclusa.stores.postgres.notifications import notify
from esclusa.stores.postgres.statements import NOW, ROW_LOCK, STAMP, WriteContext

T = TypeVar("T")
# Why effects cannot be applied, by the number of their settlement.
Faults = dict[int, str]


class EffectsRejected(Exception):
    """Effects cannot be applied as declared. Rolls the transaction back."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        super().__init__(str(faults))


@dataclass
class EffectLevel:
    """Effects that do not touch each other, with the numbers of their settlements."""

    creates: list[Create] = field(default_factory=list)
    moves: list[tuple[int, Move]] = field(default_factory=list)
    wakes: dict[tuple[str, str], Wake] = field(default_factory=dict)
    adds: list[tuple[int, Add]] = field(default_factory=list)


async def settle(
    connections: ConnectionPools,
    context: Callable[[Fetch], WriteContext],
    settlements: Sequence[Settlement],
    limits: StatementLimits | None = None,
) -> list[Verdict]:
    """Settle in one transaction, made again without the settlements whose effects it rejects.

    Raises LockTimeout at the first lock that is not released in time.
    """
    numbered = list(enumerate(settlements))
    rejected: dict[int, str] = {}
    done: set[int] = set()
    while numbered:
        try:
            done = await _settle(connections, context, numbered, limits)
            break
        except EffectsRejected as rejection:
            rejected |= rejection.faults
            numbered = [(n, s) for n, s in numbered if n not in rejected]
    if len(done) == len(settlements):
        return [Settled(s.ref) for s in settlements]
    lost = [s for n, s in numbered if n not in done and s.fence is not None]
    moved_to = await _overtaken(context(connections.fetch), lost) if lost else {}
    return [
        Rejected(s.ref, rejected[n])
        if n in rejected
        else Settled(s.ref)
        if n in done
        else Lost(s.ref, moved_to.get(s.ref))
        for n, s in enumerate(settlements)
    ]


async def _overtaken(context: WriteContext, lost: list[Settlement]) -> dict[Ref, str]:
    """Return the states to which another program moved records that were held.

    Their leases end now, or, if that fails, by themselves: what is settled is settled.
    """
    states: dict[Ref, str] = {}
    try:
        for kind, group in _by_table(lost, lambda s: s.ref.kind):
            table = context.table(kind)
            moved = await end_overtaken(context, table, group)
            states |= {Ref(kind, id): state for id, state in moved.items()}
    except Exception:  # noqa: BLE001, S110 - nothing that is settled may be reported as an error
        pass
    return states


async def _settle(
    connections: ConnectionPools,
    context: Callable[[Fetch], WriteContext],
    numbered: list[tuple[int, Settlement]],
    limits: StatementLimits | None,
) -> set[int]:
    """Return the numbers of the settlements that moved their record."""
    rounds = _rounds([(n, s, None) for n, s in numbered])
    groups = grouped(rounds[0])
    transitions = _transitions(s for _, s in numbered)
    if len(rounds) == 1 and len(groups) == 1 and not any(t.effects for t in transitions):
        # without effects and of one form: one statement, without a transaction around it
        single = context(partial(connections.fetch, limits=limits, retry_locks=False))
        ((key, group),) = groups.items()
        wake = bool(_woken(single.table, transitions))
        return await move(single, key, group, wake=wake)
    return await connections.transaction(
        lambda connection: _in_transaction(context(connection.fetch), numbered, rounds),
        limits=limits,
        retry_locks=False,
    )


async def _in_transaction(
    context: WriteContext,
    numbered: list[tuple[int, Settlement]],
    rounds: list[list[SettlementRow]],
) -> set[int]:
    await _lock_targets(context, [s for _, s in numbered])
    done: set[int] = set()
    for rows in rounds:
        for key, group in grouped(rows).items():
            done |= await move(context, key, group, wake=False)
    moved = [(n, s) for n, s in numbered if n in done]
    woken = _woken(context.table, _transitions(s for _, s in moved))
    woken |= await _apply(context, [(n, s) for n, s in moved if s.effects])
    if woken and not context.portable:
        await notify(context.fetch, context.channel, sorted(woken))
    return done


def woken_tables(table_of: Callable[[Kind], Table], settlements: Sequence[Settlement]) -> set[str]:
    """Return the tables in which these settlements may leave a record that is due."""
    changed = {
        e.record.kind if isinstance(e, Create) else e.kind for s in settlements for e in s.effects
    }
    return _woken(table_of, _transitions(settlements)) | {kind.table for kind in changed}


def _transitions(settlements: Iterable[Settlement]) -> Collection[Transition]:
    """Return their transitions: few, if many settlements share them."""
    return {id(s.transition): s.transition for s in settlements}.values()


def _woken(table_of: Callable[[Kind], Table], transitions: Iterable[Transition]) -> set[str]:
    """Return the tables in which a record is due at once in a state that a stage takes."""
    found = {(t.kind.table, t.to): t.kind for t in transitions if t.until is None and t.delay <= 0}
    return {table for (table, state), kind in found.items() if table_of(kind).wakes(state)}


def explain(settlement: Settlement, error: Exception) -> str:
    """Return why a settlement was not written; the value at fault, if one is."""
    if not isinstance(error, VALUE_ERRORS):
        return describe(settlement, error)
    values = [
        (settlement.ref.kind, settlement.fields),
        *((e.record.kind, e.record.__dict__) for e in settlement.effects if isinstance(e, Create)),
    ]
    found = next((fault for kind, fields in values if (fault := misfit(kind, fields))), None)
    return f"a value does not fit: {error_message(error)}" if found is None else str(found)


def _rounds(rows: list[SettlementRow]) -> list[list[SettlementRow]]:
    """Split rows, in order, so that no round has a record twice. Nearly always there is one."""
    if len({settlement.ref.id for _, settlement, _ in rows}) == len(rows):
        return [rows]
    rounds: defaultdict[int, list[SettlementRow]] = defaultdict(list)
    seen: Counter[Ref] = Counter()
    for row in rows:
        ref = row[1].ref
        rounds[seen[ref]].append(row)
        seen[ref] += 1
    return list(rounds.values())


# effects


def _by_table(items: Iterable[T], kind: Callable[[T], Kind]) -> list[tuple[Kind, list[T]]]:
    """Group items by table, in the same order in every transaction: this prevents deadlocks."""
    groups: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        groups[kind(item).table].append(item)
    return [(kind(group[0]), group) for _, group in sorted(groups.items(), key=lambda g: g[0])]


async def _lock_targets(context: WriteContext, settlements: Sequence[Settlement]) -> None:
    """Lock the settled records and those that effects change, in one order for all transactions.

    Needed only if an effect changes an existing record.
    """
    changes = [e for s in settlements for e in s.effects if not isinstance(e, Create)]
    if not changes:
        return
    refs = {s.ref for s in settlements} | {Ref(e.kind, e.id) for e in changes}
    for kind, group in _by_table(refs, lambda ref: ref.kind):
        table = context.table(kind)
        key = table.id.ident
        await context.fetch(
            f"""SELECT 1 FROM {table.ident} t WHERE t.{key} = ANY({table.id_array("$1::text[]")})
            ORDER BY t.{key} {ROW_LOCK}""",
            table.possible_ids(sorted(ref.id for ref in group)),
        )


def _levels(
    numbered: Sequence[tuple[int, Settlement]], identify: Callable[[Create], str]
) -> list[EffectLevel]:
    """Put effects on levels, in the order of the settlements and of the effects in each."""
    levels: list[EffectLevel] = []
    # By table, id and part of a record: the level of its last write, and that effect's form.
    last: dict[tuple[str, str, str], tuple[int, Any]] = {}
    written: dict[str, int] = {}  # the highest level that writes a table
    guarded: dict[str, int] = {}  # the highest level with a guard on a table
    for number, settlement in numbered:
        for effect in settlement.effects:
            table, id = _target(effect, identify)
            form, parts = _form(effect), [(table, id, part) for part in _parts(effect)]
            before = [last[part] for part in parts if part in last]
            highest = max((level for level, _ in before), default=-1)
            together = form is not None and bool(before) and all(f == form for _, f in before)
            guard, floor = None, -1
            if isinstance(effect, Move) and effect.unless is not None:
                guard = effect.unless.kind.table
                floor = written.get(guard, -1) + 1
            if together and isinstance(effect, Move) and highest >= floor:
                continue  # the same move again, and its guard would see nothing new: no work left
            level = max(guarded.get(table, -1) + 1, highest if together else highest + 1, floor)
            if guard is not None:
                guarded[guard] = max(guarded.get(guard, -1), level)
            while len(levels) <= level:
                levels.append(EffectLevel())
            _put(levels[level], number, effect, (table, id))
            last |= dict.fromkeys(parts, (level, form))
            written[table] = max(written.get(table, -1), level)
    return levels


def _target(effect: Effect, identify: Callable[[Create], str]) -> tuple[str, str]:
    if isinstance(effect, Create):
        return effect.record.kind.table, identify(effect)
    return effect.kind.table, effect.id


def _parts(effect: Effect) -> tuple[str, ...]:
    """Return which parts of a record an effect touches: an Add and a Move can go together."""
    if isinstance(effect, Add):
        return ("fields",)
    only_state = isinstance(effect, Wake) or (isinstance(effect, Move) and not effect.fields)
    return ("state",) if only_state else ("state", "fields")


def _form(effect: Effect) -> Any:
    """Return a value that is equal for effects which can be on one level for the same record.

    They add up, or the second finds its work done. None: always on a level of its own.
    """
    if not isinstance(effect, Move):
        return type(effect)
    form = (effect.to, effect.frm, repr(effect.unless), repr(effect.fields))
    return form if effect.frm else None


def _put(level: EffectLevel, number: int, effect: Effect, target: tuple[str, str]) -> None:
    match effect:
        case Create():
            level.creates.append(effect)
        case Move():
            level.moves.append((number, effect))
        case Wake():
            level.wakes[target] = effect
        case Add():
            level.adds.append((number, effect))


async def _apply(context: WriteContext, numbered: Sequence[tuple[int, Settlement]]) -> set[str]:
    """Apply effects; return the tables with records that became due.

    Raises EffectsRejected with every fault of the first level that has one.
    """
    ids: dict[int, str] = {}

    def identify(effect: Create) -> str:
        return ids.setdefault(
            id(effect), effect.record.kind.identify(effect.record, context.new_id)
        )

    woken: set[str] = set()
    for level in _levels(numbered, identify):
        woken |= await _create(context, level.creates, identify)
        faults = await _move(context, level.moves, dict(numbered), woken)
        faults |= await _add(context, level.adds)
        woken |= await _wake(context, list(level.wakes.values()))
        if faults:
            raise EffectsRejected(faults)
    return woken


async def _create(
    context: WriteContext, creates: list[Create], identify: Callable[[Create], str]
) -> set[str]:
    woken = set()
    for kind, group in _by_table(creates, lambda create: create.record.kind):
        table = context.table(kind)
        drafts = [c.record if kind.database_id else c.record.but(id=identify(c)) for c in group]
        await insert(context, table, drafts)
        if wakes(table, drafts):
            woken.add(table.name)
    return woken


async def _move(
    context: WriteContext,
    moves: list[tuple[int, Move]],
    settlements: dict[int, Settlement],
    woken: set[str],
) -> Faults:
    faults: Faults = {}
    rows = []
    for n, (number, effect) in enumerate(moves):
        settlement = Settlement(
            ref=Ref(effect.kind, effect.id),
            to=effect.to,
            frm=effect.frm or effect.kind.lifecycle.sources(effect.to),
            fence=None,
            fields=effect.fields,
            attempts=0,
            who=settlements[number].who,
            run=settlements[number].run,
            reason=effect.reason,
            changes=effect.changes,
        )
        rows.append((n, settlement, effect.unless))
    for key, group in grouped(rows).items():
        done = await move(context, key, group, wake=False)
        table = context.table(group[0][1].ref.kind)
        if any(n in done and table.wakes(moved.to) for n, moved, _ in group):
            woken.add(table.name)
        undone = [moves[n] for n, _, _ in group if n not in done]
        faults |= await _faults(context, table, [(n, m) for n, m in undone if not m.frm])
    return faults


async def _faults(context: WriteContext, table: Table, undone: list[tuple[int, Move]]) -> Faults:
    """Return why moves did not happen: the record is absent, or in a state without that move.

    A guard that was true is not a fault.
    """
    if not undone:
        return {}
    rows = await context.fetch(
        f"""SELECT {table.id.read()}, {table.status.read()} FROM {table.ident} t
        WHERE t.{table.id.ident} = ANY({table.id_array("$1::text[]")})""",
        table.possible_ids(effect.id for _, effect in undone),
    )
    states = {row[0]: row[1] for row in rows}
    lifecycle = table.kind.lifecycle
    faults = {}
    for number, effect in undone:
        state = states.get(effect.id)
        if state is None:
            faults[number] = f"effect Move: there is no {table.name} {effect.id}"
        elif not lifecycle.allows(state, effect.to):
            where = f"effect Move on {table.name} {effect.id}"
            faults[number] = str(UndeclaredMove(where, state, effect.to, lifecycle.targets(state)))
    return faults


async def _add(context: WriteContext, adds: list[tuple[int, Add]]) -> Faults:
    faults: Faults = {}
    groups: dict[tuple[Kind, tuple[str, ...]], list[tuple[int, Add]]] = defaultdict(list)
    for number, effect in adds:
        groups[(effect.kind, tuple(sorted(effect.amounts)))].append((number, effect))
    for (kind, names), group in groups.items():
        table = context.table(kind)
        sums: dict[str, list[int]] = {}
        for _, effect in group:
            total = sums.setdefault(effect.id, [0] * len(names))
            for n, name in enumerate(names):
                total[n] += effect.amounts[name]
        ids = table.possible_ids(sums)
        amounts = ([sums[id][n] for id in ids] for n in range(len(names)))
        statement = table.statement(("add", names), partial(_add_statement, table, names))
        rows = await context.fetch(statement, context.offset, ids, *amounts)
        found = {row[0] for row in rows}
        faults |= {
            number: f"effect Add: there is no {table.name} {effect.id}"
            for number, effect in group
            if effect.id not in found
        }
    return faults


def _add_statement(table: Table, names: Sequence[str]) -> str:
    updated, key = table.columns["updated_at"], table.id.ident
    sets = [
        f"{c.ident} = COALESCE(t.{c.ident}, 0) + u.a{n}"
        for n, c in enumerate(table.columns[name] for name in names)
        if c.instead is None
    ]
    if updated.instead is None:
        sets.append(f"{updated.ident} = {updated.write_time(STAMP)}")
    sets = sets or [f"{key} = t.{key}"]
    arrays = ", ".join(["$2::text[]", *(f"${n + 3}::bigint[]" for n in range(len(names)))])
    labels = ", ".join(["id", *(f"a{n}" for n in range(len(names)))])
    return f"""UPDATE {table.ident} t SET {", ".join(sets)} FROM unnest({arrays}) AS u({labels})
        WHERE t.{key} = {table.id.write("u.id")} AND t.{key} = ANY({table.id_array("$2::text[]")})
        RETURNING u.id"""


async def _wake(context: WriteContext, effects: list[Wake]) -> set[str]:
    woken = set()
    for kind, group in _by_table(effects, lambda wake: wake.kind):
        if not kind.track.complete:  # no stage takes such a record
            continue
        table = context.table(kind)
        due, updated = table.columns["due_at"], table.columns["updated_at"]
        rows = await context.fetch(
            f"""UPDATE {table.ident} t
            SET {due.ident} = {due.write_time(NOW)}, {updated.ident} = {updated.write_time(STAMP)}
            WHERE t.{table.id.ident} = ANY({table.id_array("$2::text[]")})
                AND t.{table.columns["leased_by"].ident} IS NULL
                AND {due.expr()} > {due.write_time(NOW)}
            RETURNING 1""",
            context.offset,
            table.possible_ids(effect.id for effect in group),
        )
        if rows:
            woken.add(table.name)
    return woken
