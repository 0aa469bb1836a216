"""``firestore.indexes.json``: its content from the declarations, and the queries that it covers.

Firestore indexes every single field by itself and merges those indexes for equality conditions. An
equality together with a range or an order on another field, or an order by two fields, needs a
composite index. Queries over sub-collections (collection groups) need a declaration even for single
fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from esclusa.model.key_limits import KeyLimit
from esclusa.model.kind import Kind
from esclusa.model.plan import DeclaredQuery, Plan
from esclusa.model.query import Cond, Order, Query, query
from esclusa.model.record import Record
from esclusa.model.settlement import ClaimRequest
from esclusa.model.stage import Stage
from esclusa.model.system_records import SYSTEM_RECORDS, Audit, DeadLetter, Export, Run
from esclusa.model.value import value
from esclusa.stores.firestore import names, queries
from esclusa.stores.firestore.claims import by_due_time, due_query, eager_query
from esclusa.stores.firestore.codec import SEQ, SHARD, STEPS, Codec
from esclusa.stores.firestore.key_limits import held_query, key_condition, next_key_query

_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_DESCENDING = 2
_RANGE_OPS = (1, 2, 3, 4)
_IS_NOT_NULL = 5


@value
class QueryShape:
    """What an index must cover: a query without its values."""

    collection: str
    group: bool
    equal: frozenset[str]
    # The fields it sorts by, including those of range conditions and the summed field.
    #
    # The name is included only if its direction differs from that of the field before it.
    order: tuple[tuple[str, str], ...]
    # Whether several indexes can cover it together: Firestore merges for equality only.
    merged: bool = True

    @property
    def automatic(self) -> bool:
        """Whether Firestore's own single-field indexes cover it."""
        return not self.order or (
            not self.equal and len(self.order) == 1 and self.order[0][0] != queries.NAME
        )


def shape_of(query: Any, summed: str | None = None) -> QueryShape:
    """The shape of a structured query; ``summed`` is the field it sums, if any."""
    source = query.from_[0]
    equal: set[str] = set()
    ranged: set[str] = set()
    for test in _tests(query.where):
        path = test.field.field_path
        ranges = test.op in _RANGE_OPS if hasattr(test, "value") else test.op == _IS_NOT_NULL
        (ranged if ranges else equal).add(path)
    order = [
        (o.field.field_path, "DESCENDING" if o.direction == _DESCENDING else "ASCENDING")
        for o in query.order_by
    ]
    fields = [o for o in order if o[0] != queries.NAME]
    fields += [
        (path, "ASCENDING") for path in sorted(ranged - {o[0] for o in fields} - {queries.NAME})
    ]
    if summed is not None and summed not in equal | {o[0] for o in fields}:
        fields.append((summed, "ASCENDING"))
    direction = fields[-1][1] if fields else "ASCENDING"
    fields += [o for o in order if o[0] == queries.NAME and o[1] != direction]
    equal -= {queries.NAME, *(o[0] for o in fields)}
    merged = summed is None and not ranged - {queries.NAME}
    return QueryShape(
        source.collection_id, source.all_descendants, frozenset(equal), tuple(fields), merged
    )


def _tests(where: Any) -> list[Any]:
    kind = where.WhichOneof("filter_type")
    if kind is None:
        return []
    if kind == "composite_filter":
        return [t for f in where.composite_filter.filters for t in _tests(f)]
    return [getattr(where, kind)]


def indexes_for(plans: Sequence[Plan]) -> dict[str, Any]:
    """The content of ``firestore.indexes.json`` for these pipelines.

    It covers all queries of the engine on their kinds and on the system's, the parts in which runs
    drain stages, the views, and the queries that the pipelines declare.
    """
    kinds = dict.fromkeys(
        [*(kind for plan in plans for kind in plan.kinds), *(r.kind for r in SYSTEM_RECORDS)]
    )
    stages = [stage for plan in plans for stage in (*plan.stages, *plan.parts)]
    questions = [question for plan in plans for question in plan.queries]
    questions += [
        DeclaredQuery(query(view.kind, view.where))
        for plan in plans
        for view in plan.app.views
        if view.kind is not None
    ]
    return firestore_indexes(list(kinds), stages, questions)


def firestore_indexes(
    kinds: Sequence[Kind],
    stages: Sequence[Stage] = (),
    questions: Sequence[DeclaredQuery | Query] = (),
) -> dict[str, Any]:
    """The content of ``firestore.indexes.json`` for these kinds, stages and questions.

    Large fields are excluded from Firestore's automatic indexes unless a query uses them.
    """
    declared = [q if isinstance(q, DeclaredQuery) else DeclaredQuery(q) for q in questions]
    shapes = dict.fromkeys(
        s
        for q in [*map(DeclaredQuery, _engine_queries(kinds, stages)), *declared]
        for s in _shapes(q)
    )
    file: dict[str, Any] = {"indexes": [], "fieldOverrides": _overrides(kinds, list(shapes))}
    for shape in shapes:
        if not shape.automatic and not _covered(replace(shape, merged=False), file):
            file["indexes"].append(_index(shape))
    return file


def _engine_queries(kinds: Sequence[Kind], stages: Sequence[Stage]) -> list[Query]:
    out = [q for stage in stages for q in _stage_queries(stage)]
    for kind in kinds:
        out += _kind_queries(kind)
        if kind.archive:
            out += _archive_queries(kind)
    if Export.kind in kinds:  # exports whose archived records may be dropped
        same = (("table_name", Cond("eq", "")), ("status", Cond("eq", "verified")))
        out.append(Query(Export.kind, (*same, ("drop_eligible_at", Cond("le", _SOME_TIME)))))
    # Lists of system records may be filtered by any of these fields: Firestore merges one index
    # each.
    return out + [
        Query(record.kind, ((field, Cond("eq", "")),), (_order(order),))
        for record, fields, order in _SYSTEM_LISTS
        if record.kind in kinds
        for field in fields
    ]


def _stage_queries(stage: Stage) -> list[Query]:
    """The queries of claims, backlogs and lists of leases."""
    request = ClaimRequest(
        stage.kind,
        stage.name,
        stage.take,
        stage.hold,
        stage.where,
        stage.order,
        before=_SOME_TIME,
        eager=True,
    )
    due, early = due_query(request, _SOME_TIME), eager_query(request)
    later = early.but(where=(*early.where, ("due_at", Cond("gt", _SOME_TIME))))
    found = [due, due_query(request, _SOME_TIME, 0), due.but(order=(Order("due_at"),))]
    if by_due_time(stage.order) != stage.order:  # while other programs write documents, too
        foreign = replace(request, order=by_due_time(stage.order))
        found += [due_query(foreign, _SOME_TIME), due_query(foreign, _SOME_TIME, 0)]
        found.append(eager_query(foreign))
    if stage.key_limit is not None:
        found += _key_queries(stage.key_limit, [due, early], request)
    return [*found, early, later]


def _key_queries(per: KeyLimit, claims: Sequence[Query], request: ClaimRequest) -> list[Query]:
    """The queries of claims with a limit per key."""
    same = key_condition(per, "")
    found = [claim.but(where=(*claim.where, same)) for claim in claims]
    walks = [next_key_query(request, per, "", begun=begun) for begun in (False, True)]
    return [*found, *walks, held_query(request, per, "")]


def _kind_queries(kind: Kind) -> list[Query]:
    """The queries of lists, counts and references."""
    state = (("status", Cond("eq", kind.initial)),)
    out = [Query(kind, state)]
    times: list[str] = [n for n in ("due_at", "updated_at", "created_at") if n in kind.types]
    if kind.system:
        times = [n for n, t in kind.types.items() if t == "time"]
    for name in times:
        out += [Query(kind, state, (Order(name),)), Query(kind, (), (Order(name, True),))]
    for fields in kind.indexes:
        out += _index_queries(kind, fields)
        # The console lists the records of one state by any field with an index.
        out.append(Query(kind, state, (_order(fields[0]),)))
    for field, _ in kind.refs:
        out.append(Query(kind, ((field, Cond("eq", "")),)))
        index = next((i for i in kind.indexes if i[0].removeprefix("-") == field), ())
        out += [Query(kind, ((field, Cond("eq", "")),), (_order(name),)) for name in index[1:2]]
    return out


def _archive_queries(kind: Kind) -> list[Query]:
    """The queries of archiving and exporting."""
    state, unassigned = (("status", Cond("eq", kind.initial)),), (("export_id", Cond("null")),)
    dated = [n for n, t in kind.types.items() if t in ("time", "date")]
    return [Query(kind, (*state, (n, Cond("lt", _SOME_TIME))), (Order(n),)) for n in dated] + [
        Query(kind, (*unassigned, (n, Cond("not_null"))), (Order(n),), archived=True) for n in dated
    ]


def _order(text: str) -> Order:
    return Order(text.removeprefix("-"), text.startswith("-"))


# Lists of system records: the fields by which people filter them, and their order.
_SYSTEM_LISTS: tuple[tuple[type[Record], tuple[str, ...], str], ...] = (
    (DeadLetter, ("status", "table_name", "record_id", "error_type"), "-created_at"),
    (Run, ("status", "cycle"), "-started_at"),
    (Audit, ("who", "verb", "subject"), "-done_at"),
    (Export, ("table_name", "month", "status"), "part"),
)


def _index_queries(kind: Kind, fields: Sequence[str]) -> list[Query]:
    """The queries that an ``index=`` covers: all fields by value, or the last as range or order."""
    equal = tuple((name.removeprefix("-"), Cond("eq", None)) for name in fields)
    last = _order(fields[-1])
    return [
        Query(kind, equal),
        Query(kind, equal[:-1], (last,)),
        Query(kind, equal[:-1], (replace(last, descending=not last.descending),)),
    ]


def _shapes(question: DeclaredQuery) -> list[QueryShape]:
    query, codec = question.query, Codec(question.query.kind)
    if question.sum is None:
        return [shape_of(part) for part in queries.prepare(codec, query, "root").parts]
    # Totals by state run one query for each state.
    where = (*query.where, ("status", Cond("eq", query.kind.initial)))
    prepared = queries.prepare(codec, query.but(where=where, order=()), "root")
    out: list[QueryShape] = []
    for part in prepared.parts:
        bare = type(part)()
        bare.CopyFrom(part)
        bare.ClearField("order_by")
        out += [shape_of(part), shape_of(bare, queries.field_path(codec, question.sum))]
    return out


def _index(shape: QueryShape) -> dict[str, Any]:
    fields = [{"fieldPath": f, "order": "ASCENDING"} for f in sorted(shape.equal)]
    fields += [{"fieldPath": f, "order": d} for f, d in shape.order]
    return {"collectionGroup": shape.collection, "queryScope": _scope(shape), "fields": fields}


def _scope(shape: QueryShape) -> str:
    return "COLLECTION_GROUP" if shape.group else "COLLECTION"


def _overrides(kinds: Sequence[Kind], shapes: Sequence[QueryShape]) -> list[dict[str, Any]]:
    # found by name only
    system = (
        *(names.HISTORY, names.BUDGETS, names.KEY_TURNS),
        *(names.WAKES, names.SCHEMA, names.ADOPTION),
    )
    out: list[dict[str, Any]] = [
        {"collectionGroup": table, "fieldPath": "*", "indexes": []} for table in system
    ]
    old = [{"order": "ASCENDING", "queryScope": "COLLECTION"}]  # to find what is pruned
    out.append({"collectionGroup": names.HISTORY, "fieldPath": "at", "indexes": old})
    for kind in kinds:
        codec = Codec(kind)
        for archived in (False, True) if kind.archive else (False,):
            table = names.collection(kind, archived=archived)
            used = {
                field
                for s in shapes
                if s.collection == table
                for field in (*s.equal, *(o[0] for o in s.order))
            }
            large = [c for _, c, type in codec.columns if type in ("json", "bytes")] + [SEQ, STEPS]
            out += [
                {"collectionGroup": table, "fieldPath": c, "indexes": []}
                for c in large
                if c not in used
            ]
            if "last_error" in kind.types:  # by which lists are filtered, although it is inside
                inside = queries.field_path(codec, queries.ERROR_TYPE)
                indexes = _single_field_indexes()[: 4 if kind.within is not None else 1]
                out.append({"collectionGroup": table, "fieldPath": inside, "indexes": indexes})
            if kind.within is not None and not archived:
                used |= {  # a filter may use any of these
                    queries.field_path(codec, name)
                    for name, type in kind.types.items()
                    if type not in ("json", "bytes") and name not in ("id", "fence")
                }
                used.add(SHARD)  # counted by the search for documents without tracking
                out += [
                    {"collectionGroup": table, "fieldPath": f, "indexes": _single_field_indexes()}
                    for f in sorted(used - {*large, queries.NAME})
                ]
    return out


def _single_field_indexes() -> list[dict[str, str]]:
    return [
        {"order": o, "queryScope": s}
        for s in ("COLLECTION", "COLLECTION_GROUP")
        for o in ("ASCENDING", "DESCENDING")
    ]


# Coverage


def uncovered(shapes: Iterable[QueryShape], file: dict[str, Any]) -> list[str]:
    """Describe the queries that Firestore would refuse with this index file, one line each."""
    return [_describe(shape) for shape in dict.fromkeys(shapes) if not _covered(shape, file)]


def _covered(shape: QueryShape, file: dict[str, Any]) -> bool:
    if shape.automatic:
        return all(
            _has_single_index(shape, path, file)
            for path in (*shape.equal, *(o[0] for o in shape.order))
        )
    # Firestore merges indexes that end in the same order; together they need every compared field.
    merged: set[str] = set()
    for index in file["indexes"]:
        if _ends_in_order(index, shape):
            equal = {
                f["fieldPath"] for f in index["fields"][: len(index["fields"]) - len(shape.order)]
            }
            if equal == shape.equal:
                return True
            if equal < shape.equal:
                merged |= equal
    return shape.merged and bool(shape.equal) and merged == shape.equal


def _ends_in_order(index: dict[str, Any], shape: QueryShape) -> bool:
    """Whether an index of the shape's collection ends in its order, forwards or backwards."""
    tail = index["fields"][max(0, len(index["fields"]) - len(shape.order)) :]
    return (
        index["collectionGroup"] == shape.collection
        and index["queryScope"] == _scope(shape)
        and [f["fieldPath"] for f in tail] == [o[0] for o in shape.order]
        and len({f["order"] == o[1] for f, o in zip(tail, shape.order, strict=True)}) <= 1
    )


def _has_single_index(shape: QueryShape, path: str, file: dict[str, Any]) -> bool:
    """Whether a single field is indexed: always in a collection, by declaration in a group."""
    overrides = [
        o
        for o in file["fieldOverrides"]
        if o["collectionGroup"] == shape.collection and o["fieldPath"] in (path, "*")
    ]
    if not overrides:
        return not shape.group
    exact = next((o for o in overrides if o["fieldPath"] == path), overrides[0])
    return any(i["queryScope"] == _scope(shape) for i in exact["indexes"])


def _describe(shape: QueryShape) -> str:
    order = ", ".join(f"{f} {d}" for f, d in shape.order)
    scope = "collection group" if shape.group else "collection"
    fields = ", ".join(sorted(shape.equal)) or "-"
    return f"{scope} {shape.collection}: where {fields}; order {order or '-'}"
