"""Queries: from the portable query to Firestore's structured queries, and pages made of their answers.

Order on Firestore: as asked, then the fields of range conditions that were not in it (Firestore sorts by them), then the
document's name in the direction of the last of these. Where the order itself comes to the ids, no field can come after them, so
range conditions on others are judged here. Conditions on ids become lookups. A list of more than 30 values
becomes several queries whose answers are merged here.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from esclusa.model.errors import BadQuery
from esclusa.model.query import Cond, Order, Query, decode_cursor, encode_cursor, matches
from esclusa.model.record import Kind
from esclusa.model.value import value
from esclusa.stores.firestore import names
from esclusa.stores.firestore.codec import NULL, Codec, Value, decimal_order, encode, order_column
from esclusa.stores.firestore.wire import StructuredQuery, Wire

NAME = "__name__"
_MOST_VALUES = 30
_OPS = {"eq": 5, "lt": 1, "le": 2, "gt": 3, "ge": 4}
_IN, _IS_NULL, _IS_NOT_NULL, _AND = 8, 3, 5, 1
_UP, _DOWN = 1, 2
_RANGES = ("lt", "le", "gt", "ge", "not_null")

Conditions = tuple[tuple[str, Cond], ...]


@dataclass(slots=True)
class Found:
    """A document that a query found, its values decoded."""

    document: Any
    id: str
    values: dict[str, Any]


@value
class Asking:
    """A query, ready to be sent: one structured query, or several to be merged, or ids to look up."""

    query: Query
    order: tuple[Order, ...]
    """The whole order but for the name."""
    down: bool
    """Whether the name is descending."""
    parts: tuple[Any, ...]
    ids: tuple[str, ...] | None
    sift: Conditions = ()
    """Conditions that Firestore is not asked for."""

    @property
    def empty(self) -> bool:
        return self.ids == () or (self.ids is None and not self.parts)


def prepare(codec: Codec, query: Query, root: str) -> Asking:
    """What to ask Firestore for this query, without limit and cursor."""
    where = query.where
    ids = _ids(where)
    sift = (
        tuple((n, c) for n, c in where if c.op in _RANGES and n != "id")
        if "id" in [o.field for o in query.order]
        else ()
    )
    where = tuple(each for each in where if each not in sift)
    ranged = sorted({n for n, c in where if c.op in _RANGES and n != "id"})
    order: list[Order] = []
    for item in query.order:
        if item.field == "id":
            break
        if item.field not in [o.field for o in order]:
            order.append(item)
    last = query.order[len(order)].descending if len(order) < len(query.order) else None
    down = order[-1].descending if order else False
    order += [Order(n, down) for n in ranged if n not in [o.field for o in order]]
    down = last if last is not None else down
    parts = (
        ()
        if ids is not None
        else tuple(_part(codec, query, filters, order, down, root) for filters in _splits(where))
    )
    return Asking(query, tuple(order), down, parts, ids, sift)


def _ids(where: Conditions) -> tuple[str, ...] | None:
    """The ids that conditions narrow the query to; None if they do not."""
    found: set[str] | None = None
    for name, cond in where:
        if name == "id" and cond.op in ("eq", "in"):
            these = {cond.value} if cond.op == "eq" else set(cond.value)
            found = these if found is None else found & these
        elif cond.op == "in" and not cond.value:
            found = set()
    return None if found is None else tuple(sorted(found))


def _splits(where: Conditions) -> list[Conditions]:
    """The conditions, as often as needed for no query to have more than 30 combinations of values."""
    lists = [i for i, (_, c) in enumerate(where) if c.op == "in"]
    room = _MOST_VALUES
    choices: dict[int, list[tuple[Any, ...]]] = {}
    for i in sorted(lists, key=lambda i: len(set(where[i][1].value))):
        values = tuple(dict.fromkeys(where[i][1].value))
        size = min(len(values), room)
        choices[i] = [values[k : k + size] for k in range(0, len(values), size)]
        room = max(1, room // size)
    out = []
    for picks in itertools.product(*choices.values()):
        chosen = dict(zip(choices, picks, strict=True))
        out.append(
            tuple(
                (n, Cond("in", chosen[i]) if i in chosen else c) for i, (n, c) in enumerate(where)
            )
        )
    return out


def _part(
    codec: Codec, query: Query, where: Conditions, order: Sequence[Order], down: bool, root: str
) -> Any:
    kind = query.kind
    part = StructuredQuery()
    source = part.from_.add()
    source.collection_id = names.collection(kind, archived=query.archived)
    source.all_descendants = names.nested(kind) and not query.archived
    filters = [_filter(codec, query, name, cond, root) for name, cond in where]
    if len(filters) == 1:
        part.where.CopyFrom(filters[0])
    elif filters:
        part.where.composite_filter.op = _AND
        part.where.composite_filter.filters.extend(filters)
    for item in order_by(order, where):
        part.order_by.add(
            direction=_DOWN if item.descending else _UP
        ).field.field_path = field_path(codec, item.field)
    part.order_by.add(direction=_DOWN if down else _UP).field.field_path = NAME
    return part


def order_by(order: Sequence[Order], where: Conditions) -> list[Order]:
    """The order without the fields that are fixed to one value, which Firestore does not sort by."""
    fixed = {n for n, c in where if c.op in ("eq", "null") or (c.op == "in" and len(c.value) == 1)}
    return [o for o in order if o.field not in fixed]


def field_path(codec: Codec, name: str) -> str:
    column = codec.column(name)
    path = order_column(column) if codec.types.get(name) == "decimal" else column
    return path if path.isascii() and path.replace("_", "a").isalnum() else f"`{path}`"


def _filter(codec: Codec, query: Query, name: str, cond: Cond, root: str) -> Any:
    out = type(StructuredQuery().where)()
    path = NAME if name == "id" else field_path(codec, name)
    if cond.op in ("null", "not_null"):
        out.unary_filter.op = _IS_NULL if cond.op == "null" else _IS_NOT_NULL
        out.unary_filter.field.field_path = path
        return out
    test = out.field_filter
    test.field.field_path = path
    if cond.op == "in" and len(cond.value) > 1:
        test.op = _IN
        test.value.array_value.values.extend(
            _compared(codec, query, name, v, root) for v in cond.value
        )
    else:
        test.op = _OPS.get(cond.op, _OPS["eq"])
        test.value.CopyFrom(
            _compared(codec, query, name, cond.value[0] if cond.op == "in" else cond.value, root)
        )
    return out


def _compared(codec: Codec, query: Query, name: str, value: Any, root: str) -> Any:
    """A value as it is stored and compared."""
    if value is None:
        return NULL
    if name == "id":
        where = names.path(query.kind, value, archived=query.archived)
        if where is None:
            raise BadQuery(f"{query.kind.table} has no ids like {value!r:.80}")
        return Value(reference_value=f"{root}/{where}")
    if codec.types[name] == "decimal":
        return Value(string_value=decimal_order(value))
    return encode(codec.types[name], value)


# cursors


def start_after(asking: Asking, codec: Codec, values: Sequence[Any], root: str) -> list[Any]:
    """The parts, beginning after the record with these order values and this id."""
    fixed = {o.field for o in asking.order}
    out = []
    for part in asking.parts:
        began = StructuredQuery()
        began.CopyFrom(part)
        paths = [o.field.field_path for o in began.order_by]
        known = {
            field_path(codec, o.field): (o.field, v)
            for o, v in zip(asking.order, values, strict=False)
            if o.field in fixed
        }
        known[NAME] = ("id", values[-1])
        began.start_at.values.extend(
            _compared(codec, asking.query, *known[path], root) for path in paths
        )
        began.start_at.before = False
        out.append(began)
    return out


def read_cursor(asking: Asking) -> list[Any]:
    """The values in the query's cursor, typed; BadQuery if it is no cursor of this query."""
    return decode_cursor(asking.query.but(order=asking.order))


def place_of(asking: Asking, found: Found) -> list[Any]:
    return [*(found.values[o.field] for o in asking.order), found.id]


def write_cursor(asking: Asking, found: Found) -> str:
    return encode_cursor(asking.query.but(order=asking.order), place_of(asking, found))


# asking


async def page(wire: Wire, codec: Codec, asking: Asking, limit: int, op: str, after: Sequence[Any] | None = None,
               transaction: bytes | None = None) -> list[Found]:  # fmt: skip
    """Up to ``limit`` documents in order, after a place."""
    if asking.empty:
        return []
    if asking.ids is not None:
        return (await _looked_up(wire, codec, asking, op, after, transaction))[:limit]
    if asking.sift:
        return await _sifted(wire, codec, asking, limit, op, after, transaction)
    parts = asking.parts if after is None else start_after(asking, codec, after, wire.root)
    found: list[Found] = []
    for part in parts:
        limited = StructuredQuery()
        limited.CopyFrom(part)
        limited.limit.value = limit
        found += [
            seen(wire, codec, d, archived=asking.query.archived)
            for d in await wire.query(limited, op, transaction)
        ]
    if len(parts) > 1:
        arrange(asking, found)
    return found[:limit]


async def _sifted(
    wire: Wire,
    codec: Codec,
    asking: Asking,
    limit: int,
    op: str,
    after: Sequence[Any] | None,
    transaction: bytes | None,
) -> list[Found]:
    """Whatever passes the other conditions is read, some at a time, until enough of it passes these."""
    unsifted, found, some = replace(asking, sift=()), list[Found](), max(100, min(limit, 1000))
    while len(found) < limit:
        read = await page(wire, codec, unsifted, some, op, after, transaction)
        found += [f for f in read if matches(f.values, asking.sift)]
        if len(read) < some:
            break
        after = place_of(unsifted, read[-1])
    return found[:limit]


async def _looked_up(
    wire: Wire,
    codec: Codec,
    asking: Asking,
    op: str,
    after: Sequence[Any] | None,
    transaction: bytes | None,
) -> list[Found]:
    query = asking.query
    paths = [names.path(query.kind, id, archived=query.archived) for id in asking.ids or ()]
    documents = await wire.get(
        [f"{wire.root}/{p}" for p in paths if p is not None], op, transaction
    )
    found = [seen(wire, codec, d, archived=query.archived) for d in documents.values()]
    found = [f for f in found if matches(f.values, query.where)]
    arrange(asking, found)
    if after is None:
        return found
    here = Found(
        None,
        after[-1],
        {**{o.field: v for o, v in zip(asking.order, after, strict=False)}, "id": after[-1]},
    )
    return [f for f in found if _compare(asking, f, here) > 0]


async def count(wire: Wire, codec: Codec, asking: Asking, up_to: int, op: str) -> int:
    if asking.empty:
        return 0
    if asking.ids is not None:
        return len(await _looked_up(wire, codec, asking, op, None, None))
    if asking.sift:
        return len(await page(wire, codec, asking, up_to, op))
    total = 0
    for part in asking.parts:
        if total < up_to:
            bare = StructuredQuery()
            bare.CopyFrom(part)
            total += await wire.count(bare, up_to - total, op)
    return total


async def mean(wire: Wire, codec: Codec, asking: Asking, name: str, op: str) -> float | None:
    """The mean of a number field over what matches."""
    if asking.ids is None and not asking.sift and len(asking.parts) == 1:
        return await wire.mean(asking.parts[0], field_path(codec, name), op)
    found = await page(
        wire, codec, asking, 2**31 - 1, op
    )  # ids that are looked up, or more values than one query takes
    numbers = [f.values[name] for f in found if f.values[name] is not None]
    return sum(numbers) / len(numbers) if numbers else None


def arrange(asking: Asking, found: list[Found]) -> None:
    """Sort answers of several queries into the order of one."""
    found.sort(key=functools.cmp_to_key(functools.partial(_compare, asking)))


def seen(wire: Wire, codec: Codec, document: Any, *, archived: bool = False) -> Found:
    id = codec.at(document.name[len(wire.root) + 1 :], archived=archived)
    return Found(document, id, codec.values(document.fields, id, archived=archived))


def _compare(asking: Asking, a: Found, b: Found) -> int:
    """Firestore's order: nulls first, text by its bytes, then the name."""
    for item in asking.order:
        x, y = _rank(a.values[item.field]), _rank(b.values[item.field])
        if x != y:
            return (1 if x > y else -1) * (-1 if item.descending else 1)
    x, y = _rank(_path(asking.query.kind, a.id)), _rank(_path(asking.query.kind, b.id))
    return 0 if x == y else (1 if x > y else -1) * (-1 if asking.down else 1)


def _path(kind: Kind, id: str) -> str:
    """The path with a separator that sorts before everything, as segments compare one by one."""
    return (names.path(kind, id) or id).replace("/", "\0")


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (1, value.encode()) if isinstance(value, str) else (1, value)
