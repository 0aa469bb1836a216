"""``firestore.indexes.json``: made from the declared kinds, stages and queries; and the rules by which a query is covered.

Firestore keeps an index of every field by itself, and merges them for conditions of equality. Equality together with a
range or an order on another field, or an order by two fields, needs a composite index. Queries over sub-collections
(collection groups) need even their single fields declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from esclusa.model.pipeline import Plan, Question
from esclusa.model.query import Cond, Order, Query, query
from esclusa.model.record import Kind, Record
from esclusa.model.settlement import ClaimRequest
from esclusa.model.stage import Stage
from esclusa.model.system_records import SYSTEM_RECORDS, Audit, DeadLetter, Export, Run
from esclusa.model.value import value
from esclusa.stores.firestore import asking, names
from esclusa.stores.firestore.claims import due_query, eager_query
from esclusa.stores.firestore.codec import SEQ, STEPS, Codec

_BOOKS = frozenset(book.kind for book in SYSTEM_RECORDS)
_SOME_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_DOWN = 2
_RANGE_OPS = (1, 2, 3, 4)
_IS_NOT_NULL = 5


@value
class Shape:
    """What an index must serve: a query without its values."""

    collection: str
    group: bool
    equal: frozenset[str]
    order: tuple[tuple[str, str], ...]
    """The fields it sorts by, which include those of its range conditions and the one whose mean is asked; the name only where its
    direction is not that of the field before it."""
    merged: bool = True
    """Whether several indexes can serve it together: Firestore merges them for equality, not for ranges and means."""

    @property
    def automatic(self) -> bool:
        """Whether Firestore's own single-field indexes serve it."""
        return not self.order or (
            not self.equal and len(self.order) == 1 and self.order[0][0] != asking.NAME
        )


def shape_of(query: Any, average: str | None = None) -> Shape:
    """The shape of a structured query; ``average``: it asks the mean of this field."""
    source = query.from_[0]
    equal: set[str] = set()
    ranged: set[str] = set()
    for test in _tests(query.where):
        path = test.field.field_path
        unary = not hasattr(test, "value")
        ranges = test.op == _IS_NOT_NULL if unary else test.op in _RANGE_OPS
        (ranged if ranges else equal).add(path)
    order = [
        (o.field.field_path, "DESCENDING" if o.direction == _DOWN else "ASCENDING")
        for o in query.order_by
    ]
    fields = [o for o in order if o[0] != asking.NAME]
    fields += [
        (path, "ASCENDING") for path in sorted(ranged - {o[0] for o in fields} - {asking.NAME})
    ]
    if average is not None and average not in equal | {o[0] for o in fields}:
        fields.append((average, "ASCENDING"))
    usual = fields[-1][1] if fields else "ASCENDING"
    fields += [o for o in order if o[0] == asking.NAME and o[1] != usual]
    equal -= {asking.NAME, *(o[0] for o in fields)}
    merged = average is None and not ranged - {asking.NAME}
    return Shape(
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
    """The content of ``firestore.indexes.json`` for these pipelines: everything that the engine asks for them, the parts in which
    they drain their stages, their views and the questions that they declare. The house's own books are in it."""
    kinds = dict.fromkeys(
        [*(kind for plan in plans for kind in plan.kinds), *(book.kind for book in SYSTEM_RECORDS)]
    )
    stages = [stage for plan in plans for stage in (*plan.stages, *plan.parts)]
    questions = [question for plan in plans for question in plan.questions]
    questions += [
        Question(query(view.kind, view.where))
        for plan in plans
        for view in plan.app.views
        if view.kind is not None
    ]
    return firestore_indexes(list(kinds), stages, questions)


def firestore_indexes(
    kinds: Sequence[Kind], stages: Sequence[Stage] = (), questions: Sequence[Question | Query] = ()
) -> dict[str, Any]:
    """The content of ``firestore.indexes.json`` for everything that the engine asks of these kinds and stages, and for
    these questions of one's own. Large fields are kept out of Firestore's automatic indexes unless something asks by them."""
    own = [q if isinstance(q, Question) else Question(q) for q in questions]
    shapes = dict.fromkeys(
        s for q in [*map(Question, _engine_queries(kinds, stages)), *own] for s in _shapes(q)
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
    if Export.kind in kinds:  # those that may be dropped
        same = (("table_name", Cond("eq", "")), ("status", Cond("eq", "verified")))
        out.append(Query(Export.kind, (*same, ("drop_eligible_at", Cond("le", _SOME_TIME)))))
    return out + [
        q
        for book, fields, order in _LISTS
        if book.kind in kinds
        for q in _listed(book.kind, fields, order)
    ]


def _stage_queries(stage: Stage) -> list[Query]:
    """What claims, backlogs and lists of leases ask."""
    ask = ClaimRequest(
        stage.kind,
        stage.name,
        stage.take,
        stage.hold,
        stage.where,
        stage.order,
        before=_SOME_TIME,
        eager=True,
    )
    due, early = due_query(ask, _SOME_TIME), eager_query(ask)
    later = early.but(where=(*early.where, ("due_at", Cond("gt", _SOME_TIME))))
    return [due, due_query(ask, _SOME_TIME, 0), due.but(order=(Order("due_at"),)), early, later]


def _kind_queries(kind: Kind) -> list[Query]:
    """What lists, counts and references ask."""
    state = (("status", Cond("eq", kind.initial)),)
    out = [Query(kind, state)]
    times = (
        [n for n, t in kind.types.items() if t == "time"]
        if kind in _BOOKS
        else ("due_at", "updated_at", "created_at")
    )
    for name in times:
        if name in kind.types:
            out += [Query(kind, state, (Order(name),)), Query(kind, (), (Order(name, True),))]
    for fields in kind.indexes:
        out += _declared(kind, fields)
        out.append(
            Query(kind, state, (_order(fields[0]),))
        )  # the console's lists: in one state, by what has an index
    for field, _ in kind.refs:
        out.append(Query(kind, ((field, Cond("eq", "")),)))
        served = next((i for i in kind.indexes if i[0].removeprefix("-") == field), ())
        out += [
            Query(kind, ((field, Cond("eq", "")),), (_order(second),)) for second in served[1:2]
        ]
    return out


def _archive_queries(kind: Kind) -> list[Query]:
    """What archiving and exporting ask."""
    state, free = (("status", Cond("eq", kind.initial)),), (("export_id", Cond("null")),)
    dated = [n for n, t in kind.types.items() if t in ("time", "date")]
    out = [Query(kind, (*state, (n, Cond("lt", _SOME_TIME))), (Order(n),)) for n in dated]
    return out + [
        Query(kind, (*free, (n, Cond("not_null"))), (Order(n),), archived=True) for n in dated
    ]


def _listed(kind: Kind, fields: Sequence[str], order: str) -> list[Query]:
    """A list in an order that may be narrowed by any of these fields: Firestore merges one index for each."""
    return [Query(kind, ((field, Cond("eq", "")),), (_order(order),)) for field in fields]


def _order(said: str) -> Order:
    return Order(said.removeprefix("-"), said.startswith("-"))


_LISTS: tuple[tuple[type[Record], tuple[str, ...], str], ...] = (
    (DeadLetter, ("status", "table_name", "record_id", "error_type"), "-created_at"),
    (Run, ("status", "cycle"), "-started_at"),
    (Audit, ("who", "verb", "subject"), "-done_at"),
    (Export, ("table_name", "month", "status"), "part"),
)
"""Lists of the house's own books that people narrow: the fields by which they do, and the order."""


def _declared(kind: Kind, fields: Sequence[str]) -> list[Query]:
    """What an index of a kind says will be asked: all of its fields by value, or the last one as a range or an order."""
    some = {name.removeprefix("-"): Cond("eq", None) for name in fields}
    names_ = list(some)
    first = tuple((n, some[n]) for n in names_[:-1])
    last = Order(names_[-1], fields[-1].startswith("-"))
    return [
        Query(kind, tuple(some.items())),
        Query(kind, first, (last,)),
        Query(kind, first, (replace(last, descending=not last.descending),)),
    ]


def _shapes(question: Question) -> list[Shape]:
    asked, codec = question.query, Codec(question.query.kind)
    if question.average is None:
        return [shape_of(part) for part in asking.prepare(codec, asked, "root").parts]
    asked = asked.but(
        where=(*asked.where, ("status", Cond("eq", asked.kind.initial))), order=()
    )  # state by state
    prepared = asking.prepare(codec, asked, "root")
    out: list[Shape] = []
    for part in prepared.parts:
        bare = type(part)()
        bare.CopyFrom(part)
        bare.ClearField("order_by")
        out += [shape_of(part), shape_of(bare, asking.field_path(codec, question.average))]
    return out


def _index(shape: Shape) -> dict[str, Any]:
    fields = [{"fieldPath": f, "order": "ASCENDING"} for f in sorted(shape.equal)]
    fields += [{"fieldPath": f, "order": d} for f, d in shape.order]
    return {"collectionGroup": shape.collection, "queryScope": _scope(shape), "fields": fields}


def _scope(shape: Shape) -> str:
    return "COLLECTION_GROUP" if shape.group else "COLLECTION"


def _overrides(kinds: Sequence[Kind], shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    system = (
        names.HISTORY,
        names.BUDGETS,
        names.WAKES,
        names.SCHEMA,
    )  # they are found by their names
    out: list[dict[str, Any]] = [
        {"collectionGroup": table, "fieldPath": "*", "indexes": []} for table in system
    ]
    for kind in kinds:
        codec = Codec(kind)
        for archived in (False, True) if kind.archive else (False,):
            table = names.collection(kind, archived=archived)
            mine = [s for s in shapes if s.collection == table]
            asked = {f for s in mine for f in (*s.equal, *(o[0] for o in s.order))}
            large = [c for _, c, type in codec.columns if type in ("json", "bytes")] + [SEQ, STEPS]
            out += [
                {"collectionGroup": table, "fieldPath": c, "indexes": []}
                for c in large
                if c not in asked
            ]
            if names.nested(kind) and not archived:
                askable = [
                    n
                    for n, t in kind.types.items()
                    if t not in ("json", "bytes") and n not in ("id", "fence")
                ]
                asked |= {
                    asking.field_path(codec, name) for name in askable
                }  # a filter may name any of them
                single = sorted(asked - {*large, asking.NAME})
                out += [
                    {"collectionGroup": table, "fieldPath": f, "indexes": _every_way()}
                    for f in single
                ]
    return out


def _every_way() -> list[dict[str, str]]:
    return [
        {"order": o, "queryScope": s}
        for s in ("COLLECTION", "COLLECTION_GROUP")
        for o in ("ASCENDING", "DESCENDING")
    ]


# coverage


def uncovered(shapes: Iterable[Shape], file: dict[str, Any]) -> list[str]:
    """The queries that Firestore would refuse with this index file, one line each."""
    return [_told(shape) for shape in dict.fromkeys(shapes) if not _covered(shape, file)]


def _covered(shape: Shape, file: dict[str, Any]) -> bool:
    if shape.automatic:
        return all(
            _single(shape, path, file) for path in (*shape.equal, *(o[0] for o in shape.order))
        )
    fitting = [
        i
        for i in file["indexes"]
        if i["collectionGroup"] == shape.collection and i["queryScope"] == _scope(shape)
    ]
    # indexes that end in the same order can be merged: together they must have every field that is compared
    served: set[str] = set()
    for index in fitting:
        if _serves(index, shape):
            mine = {
                f["fieldPath"] for f in index["fields"][: len(index["fields"]) - len(shape.order)]
            }
            if mine == shape.equal:
                return True
            if mine < shape.equal and mine:
                served |= mine
    return shape.merged and bool(shape.equal) and served == shape.equal


def _serves(index: dict[str, Any], shape: Shape) -> bool:
    """Whether an index ends in the order of a shape, forwards or backwards."""
    if len(index["fields"]) < len(shape.order):
        return False
    tail = index["fields"][len(index["fields"]) - len(shape.order) :]
    if (
        index["collectionGroup"] != shape.collection
        or (index["queryScope"] == "COLLECTION_GROUP") != shape.group
    ):
        return False
    if [f["fieldPath"] for f in tail] != [o[0] for o in shape.order]:
        return False
    turned = {f["order"] == o[1] for f, o in zip(tail, shape.order, strict=True)}
    return len(turned) <= 1


def _single(shape: Shape, path: str, file: dict[str, Any]) -> bool:
    """Whether a field's own index is there: by itself in a collection, by declaration in a collection group."""
    said = [
        o
        for o in file["fieldOverrides"]
        if o["collectionGroup"] == shape.collection and o["fieldPath"] in (path, "*")
    ]
    if not said:
        return not shape.group
    exact = next((o for o in said if o["fieldPath"] == path), said[0])
    return any(i["queryScope"] == _scope(shape) for i in exact["indexes"])


def _told(shape: Shape) -> str:
    order = ", ".join(f"{f} {d}" for f, d in shape.order)
    where = "collection group" if shape.group else "collection"
    return f"{where} {shape.collection}: where {', '.join(sorted(shape.equal)) or '-'}; order {order or '-'}"
