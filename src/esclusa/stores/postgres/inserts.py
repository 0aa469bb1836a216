"""Insert many drafts by one statement of arrays; a record with an existing key is left as it is."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from esclusa.model.errors import BadRecord
from esclusa.model.keys import key_ids
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, FanOut, Inserted, RecordWithChildren
from esclusa.model.storable import misfit
from esclusa.stores.postgres.client import error_message
from esclusa.stores.postgres.codec import Table, TableColumn, literal
from esclusa.stores.postgres.names import quote
from esclusa.stores.postgres.statements import NOW, WriteContext, notify_call

K = TypeVar("K")
T = TypeVar("T")

BATCH = 5000
# How many drafts of one kind are inserted without a transaction around the statement.
ONE_STATEMENT = 2500
# From how many on they are first taken for new, all of them.
MANY = 500
FAN_OUT_BATCH = 20_000

# Foreign keys are checked row by row at the end of the statement. Connections plan every statement
# anew (`client._WORK_SETTINGS`), so these checks, too: that takes longer than the insert itself.
_PLAN_CHECKS_ONCE = "set_config('plan_cache_mode', 'auto', true)"

# Tracking that a draft may bring.
_TIMES = ("due_at", "created_at", "updated_at")
_DRAFT_TRACKING = ("status", "attempts", "due_at", "leased_by", "created_at")
_TRACKING_OF = itemgetter(*_DRAFT_TRACKING)


def bad_record(drafts: Iterable[Record], error: Exception) -> BadRecord:
    """Return which draft was refused, or PostgreSQL's message if that does not show."""
    drafts = list(drafts)
    found = next((fault for d in drafts if (fault := misfit(d.kind, d.__dict__))), None)
    tables = ", ".join(sorted({draft.kind.table for draft in drafts}))
    return found or BadRecord(
        f"{tables}: the table cannot hold a value of a draft: {error_message(error)}"
    )


async def insert_all(context: WriteContext, drafts: Sequence[Record]) -> list[Inserted | Duplicate]:
    """Insert drafts of any kinds, answers in order."""
    return await _by_table(context, drafts, insert)


async def insert_if_new(
    context: WriteContext, groups: Sequence[RecordWithChildren], *, trust_new_ids: bool
) -> list[int | None]:
    """Insert each first record and, if it is new, its children; return how many of them are new.

    ``trust_new_ids``: a fan-out whose key has the id of its new parent is inserted without looking
    for existing keys, which takes a tenth of the time. Raises UniqueViolationError if a row has one
    of the keys all the same, or a value of another unique index; then insert without it.
    """
    firsts = [group.first for group in groups]
    ids = [""] * len(groups)
    if any(group.link is not None for group in groups):
        answers = await insert_all(context, firsts)
        is_new = [isinstance(answer, Inserted) for answer in answers]
        ids = [answer.id for answer in answers]
    else:
        is_new = await _by_table(context, firsts, _insert_flags)
    new_children: Counter[int] = Counter()
    drafts: list[tuple[int, Record]] = []
    for n, group in enumerate(groups):
        for child in group.children(ids[n]) if is_new[n] else ():
            if isinstance(child, FanOut):
                is_new_key = trust_new_ids and group.link in child.record.kind.key
                new_children[n] += await _fan_out(context, child, is_new_key)
            elif isinstance(child, RecordWithChildren):
                [added] = await insert_if_new(context, [child], trust_new_ids=trust_new_ids)
                new_children[n] += 0 if added is None else 1 + added
            else:
                drafts.append((n, child))
    flags = await _by_table(context, [draft for _, draft in drafts], _insert_flags)
    new_children.update(n for (n, _), new in zip(drafts, flags, strict=True) if new)
    return [new_children[n] if new else None for n, new in enumerate(is_new)]


async def _by_table(
    context: WriteContext,
    drafts: Sequence[Record],
    insert: Callable[[WriteContext, Table, Sequence[Record]], Awaitable[list[T]]],
) -> list[T]:
    """Insert table by table, in the same order in every transaction: this prevents deadlocks."""
    if len(set(map(type, drafts))) == 1:
        return await insert(context, context.table(drafts[0].kind), drafts)
    indexes: dict[str, list[int]] = defaultdict(list)
    for n, draft in enumerate(drafts):
        indexes[draft.kind.table].append(n)
    answers: dict[int, T] = {}
    for name in sorted(indexes):
        group = [drafts[n] for n in indexes[name]]
        answered = await insert(context, context.table(group[0].kind), group)
        answers |= zip(indexes[name], answered, strict=True)
    return [answers[n] for n in range(len(drafts))]


def wakes(table: Table, drafts: Sequence[Record]) -> bool:
    """Whether listeners are notified of any of these new records."""
    return any(table.wakes(draft.status or table.kind.initial) for draft in drafts)


async def insert(
    context: WriteContext, table: Table, drafts: Sequence[Record]
) -> list[Inserted | Duplicate]:
    """Insert drafts of one kind, answers in order."""
    _check_states(table, drafts)
    answers: list[Inserted | Duplicate] = []
    for start in range(0, len(drafts), BATCH):
        batch = drafts[start : start + BATCH]
        if table.makes_ids and not all(draft.id for draft in batch):
            answers += await _insert_without_ids(context, table, batch)
        else:
            answers += await _insert_with_ids(context, table, batch)
    return answers


async def _insert_flags(
    context: WriteContext, table: Table, drafts: Sequence[Record]
) -> list[bool]:
    """Insert drafts of one kind; return whether each is new.

    Where the table makes ids, PostgreSQL does not say which draft got which: one statement inserts
    many drafts only if nobody needs their ids.
    """
    if table.kind.key or not table.makes_ids or any(draft.id for draft in drafts):
        answers = await insert(context, table, drafts)
        return [isinstance(answer, Inserted) for answer in answers]
    _check_states(table, drafts)
    for start in range(0, len(drafts), BATCH):
        batch = drafts[start : start + BATCH]
        if len(await _run(context, table, batch, None)) < len(batch):
            raise _unexpected_duplicate(table)
    return [True] * len(drafts)


def _check_states(table: Table, drafts: Sequence[Record]) -> None:
    states = table.kind.lifecycle.states
    for state in dict.fromkeys(draft.__dict__["status"] for draft in drafts):
        if state and state not in states:
            raise BadRecord(
                f"{table.name}: {state!r} is not one of its states ({', '.join(states)})"
            )


def _unexpected_duplicate(table: Table) -> BadRecord:
    return BadRecord(
        f"{table.name}: a record without id or key violates a unique index of the table;"
        " declare its key"
    )


async def _fan_out(context: WriteContext, fan_out: FanOut, is_new_key: bool) -> int:
    """Insert records that differ in one field; return how many are new.

    Only that field and the ids are sent for each record. ``is_new_key``: none of them exists.
    """
    kind, draft = fan_out.record.kind, fan_out.record.__dict__
    table = context.table(kind)
    if (
        fan_out.field not in kind.key
        or (kind.database_id and not table.makes_ids)
        or draft["id"]
        or any(draft[name] for name in _DRAFT_TRACKING)
    ):
        answers = await insert(context, table, list(fan_out))
        return sum(isinstance(answer, Inserted) for answer in answers)
    values = list(dict.fromkeys(fan_out.values))
    shared = [c for c in _columns(table, plain=True) if c.name != fan_out.field]
    shared_values = [column.encode([draft[column.name]])[0] for column in shared]
    statement = table.statement(
        ("fan out", fan_out.field, is_new_key),
        lambda: _fan_out_statement(table, fan_out.field, shared, is_new_key),
    )
    # The same order in every transaction prevents deadlocks.
    if table.makes_ids:
        ids, values = [], sorted(values)
    else:
        parts, place = [draft[name] for name in kind.key], kind.key.index(fan_out.field)
        by_id = sorted(zip(key_ids(parts, place, values), values, strict=True))
        ids, values = [id for id, _ in by_id], [value for _, value in by_id]
    new = 0
    for start in range(0, len(values), FAN_OUT_BATCH):
        batch = slice(start, start + FAN_OUT_BATCH)
        encoded = table.columns[fan_out.field].encode(values[batch])
        given = [encoded] if table.makes_ids else [ids[batch], encoded]
        rows = await context.fetch(statement, context.offset, *given, *shared_values)
        new += rows[0][0]
    return new


async def _insert_with_ids(
    context: WriteContext, table: Table, drafts: Sequence[Record]
) -> list[Inserted | Duplicate]:
    kind = table.kind
    ids = kind.identify_all(drafts, context.new_id)
    first = dict(zip(reversed(ids), reversed(drafts), strict=True))
    ordered = sorted(first)  # the same order in every transaction prevents deadlocks
    in_order, count, some = [first[id] for id in ordered], 0, None
    if context.expects_new and table.only_ids_are_unique:
        [(count, *_)] = await _run(context, table, in_order, ordered, all_new=True)
    if not count:
        [(count, some, _)] = await _run(context, table, in_order, ordered)
    if count == len(ids):
        return [Inserted(id) for id in ids]
    new = {id: id for id in (ordered if count == len(ordered) else some or ())}
    known = {id: id for id in ordered}
    if len(new) < len(first) and kind.known_by_key:
        missing = [id for id in ordered if id not in new]
        found = await _ids_by_key(context, table, [first[id] for id in missing])
        known |= {id: found.get(_key(table, first[id]), id) for id in missing}
    return _answers(ids, new, known)


async def _insert_without_ids(
    context: WriteContext, table: Table, drafts: Sequence[Record]
) -> list[Inserted | Duplicate]:
    """Insert drafts whose ids the table makes."""
    if not table.kind.key:
        rows = [await _run(context, table, [draft], None) for draft in drafts]
        if not all(rows):
            raise _unexpected_duplicate(table)
        return [Inserted(row[0][0]) for row in rows]
    keys = [_key(table, draft) for draft in drafts]
    first: dict[tuple[Any, ...], Record] = {}
    for key, draft in zip(keys, drafts, strict=True):
        first.setdefault(key, draft)
    rows = await _run(context, table, list(first.values()), None)
    new = {tuple(row[1:-1]): row[0] for row in rows}
    missing = [draft for key, draft in first.items() if key not in new]
    return _answers(keys, new, await _ids_by_key(context, table, missing) if missing else {})


def _answers(keys: Sequence[K], new: dict[K, str], ids: dict[K, str]) -> list[Inserted | Duplicate]:
    """Return Inserted for the first draft of each new key, otherwise Duplicate with its id."""
    answers: list[Inserted | Duplicate] = []
    for key in keys:
        if key in new:
            ids[key] = new.pop(key)
            answers.append(Inserted(ids[key]))
        else:
            answers.append(Duplicate(ids.get(key, "")))
    return answers


def _key(table: Table, draft: Record) -> tuple[Any, ...]:
    return tuple(table.columns[name].encode([getattr(draft, name)])[0] for name in table.kind.key)


async def _ids_by_key(
    context: WriteContext, table: Table, drafts: Sequence[Record]
) -> dict[tuple[Any, ...], str]:
    """Return the ids of the existing records with the keys of these drafts."""
    columns = [table.columns[name] for name in table.kind.key]
    arrays = ", ".join(f"${n}::{column.parameter_type}[]" for n, column in enumerate(columns, 1))
    names = ", ".join(f"k{n}" for n in range(len(columns)))
    same = " AND ".join(
        f"(t.{c.ident} = {c.compare(f'u.k{n}')} OR (t.{c.ident} IS NULL AND u.k{n} IS NULL))"
        for n, c in enumerate(columns)
    )
    rows = await context.fetch(
        f"""SELECT {table.id.read()}, {names}
        FROM unnest({arrays}) AS u({names}) JOIN {table.ident} t ON {same}""",
        *(column.encode([getattr(d, column.name) for d in drafts]) for column in columns),
    )
    return {tuple(row[1:]): row[0] for row in rows}


async def _run(
    context: WriteContext,
    table: Table,
    drafts: Sequence[Record],
    ids: list[str] | None,
    *,
    all_new: bool = False,
) -> list[Any]:
    """Run one statement. Drafts that bring no tracking, as nearly all do, send none.

    ``all_new``: insert nothing if one of the ids exists; raise UniqueViolationError if another
    transaction inserts it now. This takes the server a quarter less time for each row.
    """
    given = [draft.__dict__ for draft in drafts]
    plain = not any(map(any, map(_TRACKING_OF, given)))
    wake = wakes(table, drafts)
    statement = table.statement(
        ("insert", plain, wake, ids is None, all_new),
        lambda: _insert_statement(table, plain, wake, ids is None, all_new),
    )
    values: list[Any] = [] if ids is None else [ids]
    values += [column.encode([v[column.name] for v in given]) for column in _columns(table, plain)]
    return await context.fetch(statement, context.offset, *values)


def _columns(table: Table, plain: bool) -> list[TableColumn]:
    names = [] if plain else list(_DRAFT_TRACKING)
    stored = table.stored
    return [stored[name] for name in (*names, *table.kind.by_name) if name in stored]


def _new_tracking(table: Table) -> dict[str, str]:
    """Return column and value of a new record's tracking, and of columns that are no fields."""
    new = {name: column.write_time(NOW) for name, column in table.stored.items() if name in _TIMES}
    new |= {"status": literal(table.kind.initial), "attempts": "0", "fence": "0"}
    values = {table.stored[name].column: v for name, v in new.items() if name in table.stored}
    return values | table.filled


def _fan_out_statement(
    table: Table, field: str, shared: Sequence[TableColumn], is_new_key: bool
) -> str:
    c, values, source = table.columns, _new_tracking(table), "$2::text[], $3"
    names, first = "id, v", 4
    if table.makes_ids:
        source, names, first = "$2", "v", 3
    else:
        values[c["id"].column] = c["id"].write("u.id")
    values[c[field].column] = c[field].write("u.v")
    for n, column in enumerate(shared, first):
        given = column.write(f"${n}::{column.parameter_type}")
        fill = table.fills.get(column.column)
        values[column.column] = given if fill is None else f"COALESCE({given}, {fill})"
    notified = f", {notify_call(table)}" if table.wakes(table.kind.initial) else ""
    exists = ""
    if field in table.targets:  # a record that was removed meanwhile does not stop the others
        target, key = table.targets[field]
        exists = f"WHERE EXISTS (SELECT 1 FROM {target} k WHERE k.{key} = u.v)"
    return f"""WITH new AS (
        INSERT INTO {table.ident} AS t ({", ".join(map(quote, values))})
        SELECT {", ".join(values.values())}
        FROM unnest({source}::{c[field].parameter_type}[]) AS u({names}) {exists}
        {"" if is_new_key else "ON CONFLICT DO NOTHING"} RETURNING 1
    ) SELECT count(*){notified} FROM new, {_PLAN_CHECKS_ONCE}"""


def _same_key(table: Table) -> str:
    """Return the test that a row ``k`` has the key of the draft ``u``: no index keeps it unique."""
    columns = [table.columns[name] for name in table.kind.key]
    return " AND ".join(
        f"k.{c.ident} IS NOT DISTINCT FROM {c.compare(f'u.v_{c.name}')}" for c in columns
    )


def _insert_statement(
    table: Table, plain: bool, wake: bool, makes_ids: bool, all_new: bool = False
) -> str:
    kind, c = table.kind, table.columns
    values = _new_tracking(table)
    params: dict[str, str] = {}
    if not makes_ids:
        values[c["id"].column] = c["id"].write("u.id")
        params["id"] = "text"
    for column in _columns(table, plain):
        label = f"v_{column.name}"
        params[label] = column.parameter_type
        source = column.write(f"u.{label}")
        if column.name == "status":
            source = column.write(f"COALESCE(NULLIF(u.{label}, ''), {literal(kind.initial)})")
        elif column.name in ("due_at", "created_at") and not plain:
            source = f"COALESCE({source}, {values[column.column]})"
        elif column.column in table.fills:
            source = f"COALESCE({source}, {table.fills[column.column]})"
        values[column.column] = source
    arrays = ", ".join(f"${n}::{type}[]" for n, type in enumerate(params.values(), 2))
    source = f"unnest({arrays}) AS u({', '.join(params)})" if params else "(SELECT 1) u"
    if kind.known_by_key and not kind.unique_key:
        source += f" WHERE NOT EXISTS (SELECT 1 FROM {table.ident} k WHERE {_same_key(table)})"
    unless_known = "ON CONFLICT DO NOTHING"
    if all_new:
        ids, unless_known = table.id_array("$2::text[]"), ""
        known = f"SELECT FROM {table.ident} k WHERE k.{table.id.ident} = ANY({ids})"
        source += f" WHERE NOT EXISTS ({known})"
    notified = notify_call(table) if wake else "NULL"
    if makes_ids:
        returned = ["id", *(f"k{n}" for n in range(len(kind.key)))]
        keys = "".join(f", {c[name].read()}" for name in kind.key)
        answer = f"{', '.join(returned)}, {notified}"
    else:  # the ids of the new records are returned only if some are not new
        returned, keys = ["id"], ""
        answer = f"""count(*),
        CASE WHEN count(*) < cardinality($2::text[]) THEN (SELECT array_agg(id) FROM new) END,
        CASE WHEN count(*) > 0 THEN {notified} END"""
    return f"""WITH new({", ".join(returned)}) AS (
        INSERT INTO {table.ident} AS t ({", ".join(map(quote, values))})
        SELECT {", ".join(values.values())} FROM {source}
        {unless_known} RETURNING {table.id.read()}{keys}
    ) SELECT {answer} FROM new, {_PLAN_CHECKS_ONCE}"""
