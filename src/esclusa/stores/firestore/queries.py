"""Portable queries as Firestore's structured queries, and pages made of their answers.

The order of a page is the requested order, then the fields of range conditions that it lacks
(Firestore sorts by them), then the document's name in the direction of the last field. If the
requested order contains the id, no field can follow it, so range conditions on other fields are
checked here. Conditions on ids become lookups. A list of more than 30 values becomes several
queries whose answers are merged here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from esclusa.model.errors import BadQuery
from esclusa.model.paths import ALIASES, is_path, split_path
from esclusa.model.query import Cond, Order, Query, matches
from esclusa.model.texts import text
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import FirestoreClient, StructuredQuery
from esclusa.stores.firestore.codec import (
    NULL,
    Codec,
    Value,
    decimal_order,
    encode,
    encode_json,
    is_typed,
    order_column,
    to_timestamp,
)
from esclusa.stores.firestore.found import (
    Conditions,
    FoundDocument,
    PreparedQuery,
    compare,
    sort_found,
)

NAME = "__name__"
# The value inside JSON that is indexed.
ERROR_TYPE = ALIASES["error_type"]
_Filter: Any = type(StructuredQuery().where)
_MAX_VALUES = 30
# A whole number as its text is written.
_NUMBER = re.compile(r"0|-?[1-9]\d{0,18}")
_OPS = {"eq": 5, "lt": 1, "le": 2, "gt": 3, "ge": 4}
_IN, _IS_NULL, _IS_NOT_NULL, _AND, _OR = 8, 3, 5, 1, 2
_ASCENDING, _DESCENDING = 1, 2
_RANGES = ("lt", "le", "gt", "ge", "not_null")


def prepare(codec: Codec, query: Query, root: str) -> PreparedQuery:
    """Translate a query, without its limit and cursor."""
    _refuse_unsearchable(codec, query.where)
    where = tuple((name, as_stored(codec, name, cond)) for name, cond in query.where)
    ids = _ids(where)
    local: Conditions = ()
    if "id" in [o.field for o in query.order]:
        local = tuple((n, c) for n, c in where if c.op in _RANGES and n != "id")
    where = tuple(each for each in where if each not in local)
    ranged = sorted({n for n, c in where if c.op in _RANGES and n != "id"})
    order: list[Order] = []
    for item in query.order:
        if item.field == "id":
            break
        if item.field not in [o.field for o in order]:
            order.append(item)
    by_id = query.order[len(order)].descending if len(order) < len(query.order) else None
    descending = order[-1].descending if order else False
    order += [Order(n, descending) for n in ranged if n not in [o.field for o in order]]
    descending = by_id if by_id is not None else descending
    parts = (
        ()
        if ids is not None
        else tuple(
            _part(codec, query, filters, order, descending, root) for filters in _split_lists(where)
        )
    )
    return PreparedQuery(query, tuple(order), descending, parts, ids, local)


def _refuse_unsearchable(codec: Codec, where: Conditions) -> None:
    """Refuse what Firestore has no index for. Raises BadQuery."""
    for name, cond in where:
        inside = is_path(codec.types, name)
        if cond.op == "contains":
            raise BadQuery(text("no_search_in_store", field=name))
        if inside and (name != ERROR_TYPE or cond.op not in ("eq", "in")):
            raise BadQuery(text("no_path_in_store", field=name))


def as_stored(codec: Codec, name: str, cond: Cond) -> Cond:
    """The condition that also finds text which another program wrote as a whole number.

    Inside JSON a whole number and a boolean are compared as text, too.
    """
    if is_path(codec.types, name):
        given = cond.value if cond.op == "in" else (cond.value,)
        numbers = _whole_numbers(given)
        flags = [text == "true" for text in given if text in ("true", "false")]
        return Cond("in", (*given, *numbers, *flags)) if numbers or flags else cond
    if not codec.foreign or name not in codec.kind.by_name or codec.types[name] != "text":
        return cond
    given = cond.value if cond.op == "in" else (cond.value,) if cond.op == "eq" else ()
    numbers = _whole_numbers(given)
    return Cond("in", (*given, *numbers)) if numbers else cond


def _whole_numbers(given: Iterable[Any]) -> list[int]:
    """The texts that are whole numbers of 64 bits, as such."""
    texts = (text for text in given if isinstance(text, str) and _NUMBER.fullmatch(text))
    return [number for number in map(int, texts) if -(2**63) <= number < 2**63]


def _ids(where: Conditions) -> tuple[str, ...] | None:
    """The only ids that can match; None if the conditions do not name any."""
    found: set[str] | None = None
    for name, cond in where:
        if name == "id" and cond.op in ("eq", "in"):
            named = {cond.value} if cond.op == "eq" else set(cond.value)
            found = named if found is None else found & named
        elif cond.op == "in" and not cond.value:
            found = set()
    return None if found is None else tuple(sorted(found))


def _split_lists(where: Conditions) -> list[Conditions]:
    """Copies of the conditions with shorter lists, each with at most 30 combinations of values."""
    lists = [i for i, (_, c) in enumerate(where) if c.op == "in"]
    room = _MAX_VALUES
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
    codec: Codec,
    query: Query,
    where: Conditions,
    order: Sequence[Order],
    name_descending: bool,
    root: str,
) -> Any:
    filters = [_filter(codec, query, name, cond, root) for name, cond in where]
    # Firestore does not sort by a field that is fixed to one value.
    fixed = {n for n, c in where if c.op in ("eq", "null") or (c.op == "in" and len(c.value) == 1)}
    terms = [(field_path(codec, o.field), o.descending) for o in order if o.field not in fixed]
    return StructuredQuery(
        from_=[
            {
                "collection_id": names.collection(query.kind, archived=query.archived),
                "all_descendants": query.kind.within is not None and not query.archived,
            }
        ],
        where=_combined(_AND, filters) if filters else None,
        order_by=[
            {
                "field": {"field_path": path},
                "direction": _DESCENDING if descending else _ASCENDING,
            }
            for path, descending in [*terms, (NAME, name_descending)]
        ],
    )


def field_path(codec: Codec, name: str) -> str:
    """The field by which Firestore compares and sorts."""
    if is_path(codec.types, name):
        field, steps = split_path(name)
        return ".".join(map(quoted, (codec.column(field), *steps)))
    column = codec.column(name)
    return quoted(order_column(column) if codec.types.get(name) == "decimal" else column)


def quoted(path: str) -> str:
    """The name of a field, quoted where it must be."""
    return path if path.isascii() and path.replace("_", "a").isalnum() else f"`{path}`"


def _filter(codec: Codec, query: Query, name: str, cond: Cond, root: str) -> Any:
    field = {"field_path": NAME if name == "id" else field_path(codec, name)}
    if cond.op in ("null", "not_null"):
        op = _IS_NULL if cond.op == "null" else _IS_NOT_NULL
        return _Filter(unary_filter={"op": op, "field": field})
    operands = cond.value if cond.op == "in" else (cond.value,)
    values = [_comparable(codec, query, name, v, root) for v in operands]
    if len(values) > 1:
        op, value = _IN, Value(array_value={"values": values})
    else:
        op, value = _OPS.get(cond.op, _OPS["eq"]), values[0]
    return _Filter(field_filter={"op": op, "field": field, "value": value})


def _comparable(codec: Codec, query: Query, name: str, value: Any, root: str) -> Any:
    """A value in the form in which Firestore stores and compares it."""
    if value is None:
        return NULL
    if name == "id":
        path = names.path(query.kind, value, archived=query.archived)
        if path is None:
            raise BadQuery(f"{query.kind.table} has no ids like {value!r:.80}")
        return Value(reference_value=f"{root}/{path}")
    if is_path(codec.types, name):
        return encode_json(value)
    if not is_typed(codec.types[name], value):
        return (
            Value(timestamp_value=to_timestamp(value))
            if is_typed("time", value)
            else encode_json(value)
        )
    if codec.types[name] == "decimal":
        return Value(string_value=decimal_order(value))
    return encode(codec.types[name], value)


def null_query(codec: Codec, name: str, limit: int) -> Any:
    """The documents in which a field is null."""
    part = prepare(codec, Query(codec.kind, ((name, Cond("null")),)), "").parts[0]
    limited = StructuredQuery(limit={"value": limit})
    limited.MergeFrom(part)
    return limited


def any_of(codec: Codec, alternatives: Sequence[Conditions], root: str) -> Any:
    """The documents that pass all conditions of at least one alternative."""
    query = Query(codec.kind)
    found = _part(codec, query, (), (), False, root)
    each = [
        [_filter(codec, query, name, cond, root) for name, cond in conditions]
        for conditions in alternatives
    ]
    combined = [_combined(_AND, filters) for filters in each]
    found.where.CopyFrom(_combined(_OR, combined))
    return found


def _combined(op: int, filters: list[Any]) -> Any:
    if len(filters) == 1:
        return filters[0]
    return _Filter(composite_filter={"op": op, "filters": filters})


# Cursors


def _start_after(
    prepared: PreparedQuery, codec: Codec, position: Sequence[Any], root: str
) -> list[Any]:
    """The parts, each starting after this position."""
    known = {
        field_path(codec, o.field): (o.field, v)
        for o, v in zip(prepared.order, position, strict=False)
    }
    known[NAME] = ("id", position[-1])
    out = []
    for part in prepared.parts:
        values = [
            _comparable(codec, prepared.query, *known[o.field.field_path], root)
            for o in part.order_by
        ]
        out.append(StructuredQuery(start_at={"values": values, "before": False}))
        out[-1].MergeFrom(part)
    return out


# Reading


def position_of(prepared: PreparedQuery, found: FoundDocument) -> list[Any]:
    """The position of a document in the order: its values, then its id."""
    return [*(found.values[o.field] for o in prepared.order), found.id]


async def page(
    client: FirestoreClient,
    codec: Codec,
    prepared: PreparedQuery,
    limit: int,
    op: str,
    after: Sequence[Any] | None = None,
    transaction: bytes | None = None,
) -> list[FoundDocument]:
    """Return up to ``limit`` documents in order, after a position."""
    if prepared.empty:
        return []
    if prepared.ids is not None:
        return (await _look_up(client, codec, prepared, op, after, transaction))[:limit]
    if prepared.local_conditions:
        return await _filtered_page(client, codec, prepared, limit, op, after, transaction)
    parts: Sequence[Any] = (
        prepared.parts if after is None else _start_after(prepared, codec, after, client.root)
    )
    found: list[FoundDocument] = []
    for part in parts:
        limited = StructuredQuery(limit={"value": limit})
        limited.MergeFrom(part)
        found += [
            _decoded(client, codec, d, archived=prepared.query.archived)
            for d in await client.query(limited, op, transaction)
        ]
    if len(parts) > 1:
        sort_found(prepared, found)
    return found[:limit]


async def first(
    client: FirestoreClient, codec: Codec, query: Query, limit: int, op: str
) -> list[FoundDocument]:
    """Return the first documents that match, up to ``limit``."""
    return await page(client, codec, prepare(codec, query, client.root), limit, op)


async def _filtered_page(
    client: FirestoreClient,
    codec: Codec,
    prepared: PreparedQuery,
    limit: int,
    op: str,
    after: Sequence[Any] | None,
    transaction: bytes | None,
) -> list[FoundDocument]:
    """Read pages and check the local conditions until enough documents pass."""
    unfiltered = replace(prepared, local_conditions=())
    found: list[FoundDocument] = []
    size = max(100, min(limit, 1000))
    while len(found) < limit:
        read = await page(client, codec, unfiltered, size, op, after, transaction)
        found += [f for f in read if matches(f.values, prepared.local_conditions)]
        if len(read) < size:
            break
        after = position_of(unfiltered, read[-1])
    return found[:limit]


async def _look_up(
    client: FirestoreClient,
    codec: Codec,
    prepared: PreparedQuery,
    op: str,
    after: Sequence[Any] | None,
    transaction: bytes | None,
) -> list[FoundDocument]:
    query = prepared.query
    paths = [names.path(query.kind, id, archived=query.archived) for id in prepared.ids or ()]
    documents = await client.get(
        [f"{client.root}/{p}" for p in paths if p is not None], op, transaction
    )
    found = [_decoded(client, codec, d, archived=query.archived) for d in documents.values()]
    found = [f for f in found if matches(f.values, query.where)]
    sort_found(prepared, found)
    if after is None:
        return found
    values = {o.field: v for o, v in zip(prepared.order, after, strict=False)}
    last = FoundDocument(None, after[-1], {**values, "id": after[-1]})
    return [f for f in found if compare(prepared, f, last) > 0]


async def count(
    client: FirestoreClient, codec: Codec, prepared: PreparedQuery, up_to: int, op: str
) -> int:
    """Count the documents that match, up to ``up_to``."""
    if prepared.empty:
        return 0
    if prepared.ids is not None:
        return len(await _look_up(client, codec, prepared, op, None, None))
    if prepared.local_conditions:
        return len(await page(client, codec, prepared, up_to, op))
    total = 0
    for part in prepared.parts:
        if total < up_to:
            total += await client.count(part, up_to - total, op)
    return total


def is_single(prepared: PreparedQuery) -> bool:
    """Whether Firestore answers it with one query, which it can also count and sum."""
    return prepared.ids is None and not prepared.local_conditions and len(prepared.parts) == 1


def selecting(codec: Codec, prepared: PreparedQuery, names: Sequence[str]) -> PreparedQuery:
    """The same query for these fields only, and for those that its pages and conditions need."""
    needed = [*names, *(o.field for o in prepared.order), *(n for n, _ in prepared.query.where)]
    fields = [split_path(name)[0] for name in needed if name != "id"]
    columns = dict.fromkeys(quoted(codec.column(field)) for field in fields)
    select = {"fields": [{"field_path": path} for path in columns] or [{"field_path": NAME}]}
    parts = []
    for part in prepared.parts:
        parts.append(StructuredQuery(select=select))
        parts[-1].MergeFrom(part)
    return replace(prepared, parts=tuple(parts))


def _decoded(
    client: FirestoreClient, codec: Codec, document: Any, *, archived: bool
) -> FoundDocument:
    id = names.id_at(codec.kind, document.name[len(client.root) + 1 :], archived=archived)
    return FoundDocument(document, id, codec.values(document.fields, id, archived=archived))
