# ruff: noqa: S608 - statements are composed from declared names alone, quoted; values are bound
"""Insert: many drafts in one statement of arrays; a key that is there already is left as it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from esclusa.model.errors import BadRecord
from esclusa.model.keys import key_ids
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, FanOut, Inserted
from esclusa.stores.postgres.statements import CHANNEL, NOW, moment
from esclusa.stores.postgres.table import Column, Table, literal

CHUNK = 5000
SPREAD = 20_000

Fetch = Callable[..., Awaitable[list[Any]]]

_KEPT = ("status", "attempts", "due_at", "leased_by", "created_at")
"""Tracking that a draft may bring."""


def wakes(table: Table, drafts: Sequence[Record]) -> bool:
    return any(table.wakes(draft.status or table.kind.initial) for draft in drafts)


async def insert(
    fetch: Fetch,
    table: Table,
    drafts: Sequence[Record],
    offset: timedelta,
    new_id: Callable[[], str],
) -> list[Inserted | Duplicate]:
    """Insert drafts of one kind, answers in order, in as many statements as their number needs."""
    _judge(table, drafts)
    answers: list[Inserted | Duplicate] = []
    for start in range(0, len(drafts), CHUNK):
        part = drafts[start : start + CHUNK]
        named = [d for d in part if d.id or not table.makes_ids]
        if len(named) == len(part):
            answers += await _with_ids(fetch, table, part, offset, new_id)
        else:  # the database makes the ids
            answers += await _without_ids(fetch, table, part, offset)
    return answers


async def add(
    fetch: Fetch,
    table: Table,
    drafts: Sequence[Record],
    offset: timedelta,
    new_id: Callable[[], str],
) -> list[bool]:
    """As ``insert``, for who does not ask for the ids: whether each is new. Where the database makes them, it does not say whose is
    which of a statement's."""
    if table.kind.key or not table.makes_ids or any(draft.id for draft in drafts):
        return [
            isinstance(answer, Inserted)
            for answer in await insert(fetch, table, drafts, offset, new_id)
        ]
    _judge(table, drafts)
    for start in range(0, len(drafts), CHUNK):
        part = drafts[start : start + CHUNK]
        if len(await _run(fetch, table, part, offset, None)) < len(part):
            raise _met(table)
    return [True] * len(drafts)


def _judge(table: Table, drafts: Sequence[Record]) -> None:
    kind = table.kind
    for draft in drafts:
        if draft.status and draft.status not in kind.lifecycle.states:
            raise BadRecord(
                f"{kind.table}: {draft.status!r} is not one of its states ({', '.join(kind.lifecycle.states)})"
            )


def _met(table: Table) -> BadRecord:
    return BadRecord(
        f"{table.name}: a record without id or key met a unique index of the table; declare its key"
    )


async def spread(
    fetch: Fetch, table: Table, many: FanOut, offset: timedelta, new_id: Callable[[], str]
) -> int:
    """Insert records that are alike but for one field; how many are new. Only that field travels, and their ids."""
    kind, draft = table.kind, many.record.__dict__
    if (
        many.field not in kind.key
        or kind.attached
        or kind.database_id
        or draft["id"]
        or any(draft[n] for n in _KEPT)
    ):
        return sum(
            isinstance(a, Inserted) for a in await insert(fetch, table, list(many), offset, new_id)
        )
    parts, place = [draft[name] for name in kind.key], kind.key.index(many.field)
    values = list(dict.fromkeys(many.values))
    by_id = sorted(
        zip(key_ids(parts, place, values), values, strict=True)
    )  # one order for all who insert
    fixed = [
        column.encode([draft[column.name]])[0]
        for column in _columns(table, True)
        if column.name != many.field
    ]
    statement = table.statement(("spread", many.field), lambda: _spread(table, many.field))
    new = 0
    for start in range(0, len(by_id), SPREAD):
        part = by_id[start : start + SPREAD]
        taken = table.columns[many.field].encode([value for _, value in part])
        rows = await fetch(statement, offset, [id for id, _ in part], taken, *fixed)
        new += rows[0][0]
    return new


async def _with_ids(
    fetch: Fetch,
    table: Table,
    drafts: Sequence[Record],
    offset: timedelta,
    new_id: Callable[[], str],
) -> list[Inserted | Duplicate]:
    kind = table.kind
    ids = [kind.identify(draft, new_id) for draft in drafts]
    first = dict(zip(reversed(ids), reversed(drafts), strict=True))
    ordered = sorted(first)  # one order for all who insert: no deadlock between them
    [(count, some, _)] = await _run(fetch, table, [first[id] for id in ordered], offset, ordered)
    if count == len(ids):
        return [Inserted(id) for id in ids]
    new = set(ordered if count == len(ordered) else some or ())
    other: dict[str, str] = {}
    if len(new) < len(first) and kind.key and kind.attached:
        missing = [id for id in ordered if id not in new]
        found = await _by_key(fetch, table, [first[id] for id in missing])
        other = {id: found.get(_key(table, first[id]), id) for id in missing}
    answers: list[Inserted | Duplicate] = []
    for id in ids:
        if id in new:
            new.discard(id)
            answers.append(Inserted(id))
        else:
            answers.append(Duplicate(other.get(id, id)))
    return answers


async def _without_ids(
    fetch: Fetch, table: Table, drafts: Sequence[Record], offset: timedelta
) -> list[Inserted | Duplicate]:
    if not table.kind.key:
        rows = [await _run(fetch, table, [draft], offset, None) for draft in drafts]
        if any(not row for row in rows):
            raise _met(table)
        return [Inserted(row[0][0]) for row in rows]
    first: dict[tuple[Any, ...], Record] = {}
    for draft in drafts:
        first.setdefault(_key(table, draft), draft)
    new = {
        tuple(row[1:-1]): row[0]
        for row in await _run(fetch, table, list(first.values()), offset, None)
    }
    known = (
        await _by_key(fetch, table, [d for k, d in first.items() if k not in new])
        if len(new) < len(first)
        else {}
    )
    answers: list[Inserted | Duplicate] = []
    for draft in drafts:
        key = _key(table, draft)
        id = new.pop(key, None)
        if id is not None:
            known[key] = id
        answers.append(Inserted(id) if id is not None else Duplicate(known.get(key, "")))
    return answers


def _key(table: Table, draft: Record) -> tuple[Any, ...]:
    return tuple(table.columns[name].encode([getattr(draft, name)])[0] for name in table.kind.key)


async def _by_key(
    fetch: Fetch, table: Table, drafts: Sequence[Record]
) -> dict[tuple[Any, ...], str]:
    """The ids of the records that are there with the keys of these drafts."""
    columns = [table.columns[name] for name in table.kind.key]
    arrays = ", ".join(f"${n}::{column.wire}[]" for n, column in enumerate(columns, 1))
    names = ", ".join(f"k{n}" for n in range(len(columns)))
    same = " AND ".join(
        f"(t.{c.ident} = {c.compare(f'u.k{n}')} OR (t.{c.ident} IS NULL AND u.k{n} IS NULL))"
        for n, c in enumerate(columns)
    )
    rows = await fetch(
        f"SELECT {table.id.read()}, {names} FROM unnest({arrays}) AS u({names}) JOIN {table.ident} t ON {same}",
        *(column.encode([getattr(d, column.name) for d in drafts]) for column in columns),
    )
    return {tuple(row[1:]): row[0] for row in rows}


async def _run(
    fetch: Fetch, table: Table, drafts: Sequence[Record], offset: timedelta, ids: list[str] | None
) -> list[Any]:
    """One statement. Drafts that bring no tracking, as nearly all do, send none."""
    raw = [draft.__dict__ for draft in drafts]
    plain = not any(
        v["status"] or v["attempts"] or v["due_at"] or v["leased_by"] or v["created_at"]
        for v in raw
    )
    notify = wakes(table, drafts)
    statement = table.statement(
        ("insert", plain, notify, ids is None),
        lambda: _statement(table, plain, notify, ids is None),
    )
    values: list[Any] = [] if ids is None else [ids]
    for column in _columns(table, plain):
        taken = [v[column.name] for v in raw]
        values.append(column.encode(taken))
    return await fetch(statement, offset, *values)


def _columns(table: Table, plain: bool) -> list[Column]:
    fields = [table.columns[name] for name in table.kind.by_name]
    return fields if plain else [*(table.columns[n] for n in _KEPT if n in table.columns), *fields]


def _spread(table: Table, field: str) -> str:
    c = table.columns
    values = {
        c["id"].column: c["id"].write("u.id"),
        c["status"].column: literal(table.kind.initial),
    }
    values |= {c["attempts"].column: "0", c["fence"].column: "0"}
    values |= {
        c[n].column: moment(c[n], NOW) for n in ("due_at", "created_at", "updated_at") if n in c
    }
    values[c[field].column] = c[field].write("u.v")
    others = [column for column in _columns(table, True) if column.name != field]
    values |= {
        column.column: column.write(f"${n}::{column.wire}") for n, column in enumerate(others, 4)
    }
    names = ", ".join(f'"{column}"' for column in values)
    told = (
        f", (SELECT pg_notify('{CHANNEL}', {literal(table.name)}))"
        if table.wakes(table.kind.initial)
        else ""
    )
    return f"""WITH new AS (
        INSERT INTO {table.ident} AS t ({names}) SELECT {", ".join(values.values())}
        FROM unnest($2::text[], $3::{c[field].wire}[]) AS u(id, v)
        ON CONFLICT DO NOTHING RETURNING 1
    ) SELECT count(*){told} FROM new"""


def _statement(table: Table, plain: bool, notify: bool, made: bool) -> str:
    kind, c = table.kind, table.columns
    initial = literal(kind.initial)
    values: dict[str, str] = {} if made else {c["id"].column: c["id"].write("u.id")}
    stamp = {n: moment(c[n], NOW) for n in ("due_at", "created_at", "updated_at") if n in c}
    values |= {c[n].column: text for n, text in stamp.items()}
    values |= {c["status"].column: initial, c["attempts"].column: "0", c["fence"].column: "0"}
    params = [] if made else [("id", "text")]
    for column in _columns(table, plain):
        label = f"v_{column.name}"
        params.append((label, column.wire))
        source = column.write(f"u.{label}")
        if column.name == "status":
            source = column.write(f"COALESCE(NULLIF(u.{label}, ''), {initial})")
        elif column.name in stamp and not plain:
            source = f"COALESCE({source}, {stamp[column.name]})"
        values[column.column] = source
    arrays = ", ".join(f"${n}::{type}[]" for n, (_, type) in enumerate(params, 2))
    labels = ", ".join(label for label, _ in params)
    keys = "".join(f", {c[name].read()}" for name in kind.key) if made else ""
    told = f"(SELECT pg_notify('{CHANNEL}', {literal(table.name)}))" if notify else "NULL"
    names = ", ".join('"' + column + '"' for column in values)
    returned = ["id", *(f"k{n}" for n in range(len(kind.key) if made else 0))]
    source = f"unnest({arrays}) AS u({labels})" if params else "(SELECT 1) u"
    if made:
        answer = f"{', '.join(returned)}, {told}"
    else:  # which are new is told only if not all of them are
        some = (
            "CASE WHEN count(*) < cardinality($2::text[]) THEN (SELECT array_agg(id) FROM new) END"
        )
        answer = f"count(*), {some}, CASE WHEN count(*) > 0 THEN {told} END"
    return f"""WITH new({", ".join(returned)}) AS (
        INSERT INTO {table.ident} AS t ({names}) SELECT {", ".join(values.values())} FROM {source}
        ON CONFLICT DO NOTHING RETURNING {table.id.read()}{keys}
    ) SELECT {answer} FROM new"""
