"""Queries that every store answers in the same way."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from esclusa.model.columns import ColumnType
from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind, kind_of
from esclusa.model.names import no_field, no_state
from esclusa.model.paths import ascii_lower, is_path, text_at, value_at
from esclusa.model.query_values import CONVERT, EXAMPLE, UNFIT, FromNow
from esclusa.model.record import Record
from esclusa.model.texts import text
from esclusa.model.value import value

Op: TypeAlias = Literal["eq", "in", "lt", "le", "gt", "ge", "null", "not_null", "contains"]


@value
class Cond:
    """One condition on one field."""

    op: Op
    value: Any = None


null: Final = Cond("null")
not_null: Final = Cond("not_null")


def one_of(*values: Any) -> Cond:
    """The field is one of the values."""
    return Cond("in", values)


def below(value: Any) -> Cond:
    """The field is less than the value."""
    return Cond("lt", value)


def at_most(value: Any) -> Cond:
    """The field is at most the value."""
    return Cond("le", value)


def above(value: Any) -> Cond:
    """The field is greater than the value."""
    return Cond("gt", value)


def at_least(value: Any) -> Cond:
    """The field is at least the value."""
    return Cond("ge", value)


def containing(part: str) -> Cond:
    """The text has this part; A to Z match in either case. Only in lists, see ``query``."""
    return Cond("contains", part)


def beginning(prefix: str) -> tuple[Cond, Cond]:
    """Texts that begin with ``prefix``: up to Unicode's last character after it."""
    return at_least(prefix), below(f"{prefix}\U0010ffff")


# The filter of a field: a value to equal, a condition, or several that must all hold.
Test: TypeAlias = "Cond | tuple[Cond, ...] | Any"

# A filter: by field name, all of them must hold.
Where: TypeAlias = Mapping[str, Test]


@value
class Order:
    """A field to order by."""

    field: str
    descending: bool = False


@value
class Query:
    """Which records, in which order, how many, after which cursor. Ties are ordered by id."""

    kind: Kind
    where: tuple[tuple[str, Cond], ...] = ()
    order: tuple[Order, ...] = ()
    limit: int = 100
    after: str | None = None
    archived: bool = False

    def but(self, **changes: Any) -> Query:
        return replace(self, **changes)


T = TypeVar("T")


@value
class Page(Generic[T]):
    """One page of a list; ``next`` is the cursor of the following page, None at the end."""

    items: list[T]
    next: str | None


def query(
    kind: Kind | type[Record],
    where: Where | None = None,
    *,
    order: str | tuple[str, ...] = (),
    limit: int = 100,
    after: str | None = None,
    archived: bool = False,
    now: datetime | None = None,
) -> Query:
    """A query, checked against the kind. Raises BadQuery.

    ``where={"platform": "twitter", "attempts": above(3), "imagen_url": not_null}``;
    ``order="-updated_at"``. A field may also be named by its column. Only here, not in the
    conditions of stages and effects, a filter may look inside a JSON field
    (``{"last_error.type": "timeout"}``) and for a part of a text (``containing("timed out")``).
    Times may be relative (``at_least("-2h")``) if ``now`` is given.
    """
    kind = kind_of(kind)
    ordered = orders(kind, order)
    if not 1 <= limit <= 10_000:
        raise BadQuery(text("bad_limit", limit=limit))
    if archived and not kind.archive:
        raise BadQuery(text("no_archive", table=kind.table))
    tests = conditions(kind, where or {}, archived=archived, searching=True)
    return Query(kind, at_time(kind, tests, now), ordered, limit, after, archived)


def orders(kind: Kind, names: str | Iterable[str]) -> tuple[Order, ...]:
    """The order by these fields, descending with a leading ``-``. Raises BadQuery."""
    wanted = (names,) if isinstance(names, str) else names
    found = tuple(Order(kind.name_of(n.removeprefix("-")), n.startswith("-")) for n in wanted)
    for order in found:
        if kind.types.get(order.field, "json") in ("json", "bytes"):
            fields = [name for name, type in kind.types.items() if type not in ("json", "bytes")]
            raise BadQuery(no_field("no_order", kind.table, order.field, fields))
    return found


# Columns of an archive besides the record's; queries of archived records may use them.
ARCHIVE_COLUMNS: dict[str, ColumnType] = {"archived_at": "time", "export_id": "text"}


def conditions(
    kind: Kind, where: Where, *, archived: bool = False, searching: bool = False
) -> tuple[tuple[str, Cond], ...]:
    """The filter as conditions, with values converted to the fields' types. Raises BadQuery.

    ``searching``: for a list, which may also use what no index serves, see ``query``. The earlier
    name of a renamed state also stands for its present name. In an archive, where nothing is
    renamed, a present name also stands for the earlier ones.
    """
    out = []
    types = {**kind.types, **ARCHIVE_COLUMNS} if archived else kind.types
    for given, test in where.items():
        name = kind.name_of(given)
        for cond in _conds(test):
            inside = searching and is_path(types, name)
            column = "text" if inside else types.get(name)
            if column is None:
                raise BadQuery(no_field("no_field", kind.table, name, types))
            if inside and cond.op in ("lt", "le", "gt", "ge"):
                raise BadQuery(text("no_order_inside", table=kind.table, field=name))
            if column in ("json", "bytes") and cond.op not in ("null", "not_null"):
                raise BadQuery(text("not_comparable", table=kind.table, field=name, type=column))
            if cond.op == "contains" and not (searching and column == "text"):
                raise BadQuery(text("not_searchable", table=kind.table, field=name, type=column))
            operand = _as_texts(cond) if inside else cond
            converted = _convert(f"{kind.table}.{name}", column, operand)
            if not searching and _relative(converted):
                raise BadQuery(text("no_relative_time", table=kind.table, field=name))
            out.append((name, converted))
    if not kind.lifecycle.renamed:
        return tuple(out)
    named = _states(tuple(out), lambda s: (s, kind.lifecycle.current(s)))
    return with_earlier_states(kind, named) if archived else named


def _as_texts(cond: Cond) -> Cond:
    """The condition on a value inside a JSON field, whose operands are texts."""
    if cond.op == "in":
        return Cond("in", tuple(text_at(v) or str(v) for v in cond.value))
    return cond if cond.value is None else Cond(cond.op, text_at(cond.value) or str(cond.value))


def _relative(cond: Cond) -> bool:
    values = cond.value if cond.op == "in" else (cond.value,)
    return any(isinstance(v, FromNow) for v in values)


def at_time(
    kind: Kind, tests: tuple[tuple[str, Cond], ...], now: datetime | None
) -> tuple[tuple[str, Cond], ...]:
    """The conditions with relative times as times. Raises BadQuery if it is not known when."""
    if now is None:
        for name, cond in tests:
            if _relative(cond):
                raise BadQuery(text("no_relative_time", table=kind.table, field=name))
        return tests
    return tuple((name, _at(cond, now) if _relative(cond) else cond) for name, cond in tests)


def _at(cond: Cond, now: datetime) -> Cond:
    values = cond.value if cond.op == "in" else (cond.value,)
    fixed = tuple(v.at(now) if isinstance(v, FromNow) else v for v in values)
    return Cond(cond.op, fixed if cond.op == "in" else fixed[0])


def with_earlier_states(
    kind: Kind, where: tuple[tuple[str, Cond], ...]
) -> tuple[tuple[str, Cond], ...]:
    """The conditions, so that records with the earlier name of a renamed state pass, too."""
    return _states(where, lambda s: kind.lifecycle.with_earlier([s]))


def _states(
    where: tuple[tuple[str, Cond], ...], names: Callable[[str], Iterable[str]]
) -> tuple[tuple[str, Cond], ...]:
    """The conditions, with every state that they name replaced by ``names`` of it."""
    out = []
    for name, cond in where:
        if name == "status" and cond.op in ("eq", "in"):
            given = cond.value if cond.op == "in" else (cond.value,)
            found = tuple(dict.fromkeys(each for state in given for each in names(state)))
            out.append((name, cond if found == given else Cond("in", found)))
        else:
            out.append((name, cond))
    return tuple(out)


def check_states(kind: Kind, where: Where, stored: Iterable[str] = ()) -> None:
    """Refuse a state that the lifecycle does not have: it is probably misspelt. Raises BadQuery.

    ``stored``: the states of records; other programs may write states of their own.
    """
    if "status" not in where:
        return
    life = kind.lifecycle
    declared = {*life.with_earlier(life.states), *life.foreign, *stored}
    for cond in _conds(where["status"]):
        for state in cond.value if cond.op == "in" else (cond.value,):
            if state is not None and state not in declared:
                raise BadQuery(no_state(kind.table, state, life.states))


_FILTER = re.compile(r"\s*([^\s=<>!~]+)\s*(>=|<=|!=|=|>|<|~)(.*)", re.DOTALL)
_OPS: dict[str, Op] = {">=": "ge", "<=": "le", ">": "gt", "<": "lt", "~": "contains"}


def parse_filter(kind: Kind, filters: Iterable[str], *, archived: bool = False) -> dict[str, Test]:
    """Parse filters as people write them, and check them against the kind. Raises BadQuery.

    ``field=value``, ``field=a,b`` (one of), ``field>=value`` (also ``<=``, ``>``, ``<``),
    ``field~part`` (a text with this part), ``field=null``, ``field!=null``. All must hold. A value
    in double quotes is taken literally.
    """
    tests: dict[str, tuple[Cond, ...]] = {}
    for filter in filters:
        match = _FILTER.fullmatch(filter)
        if match is None:
            raise BadQuery(text("not_a_filter", filter=filter))
        name, sign, value = kind.name_of(match[1]), match[2], match[3].strip()
        tests[name] = (*tests.get(name, ()), _parse_cond(filter, sign, value))
    conditions(kind, tests, archived=archived, searching=True)
    return {name: conds[0] if len(conds) == 1 else conds for name, conds in tests.items()}


def _parse_cond(filter: str, sign: str, value: str) -> Cond:
    if sign == "!=":
        if value.lower() != "null":
            raise BadQuery(text("only_not_null", filter=filter))
        return not_null
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return Cond(_OPS.get(sign, "eq"), value[1:-1])
    if sign in _OPS:
        return Cond(_OPS[sign], value)
    if value.lower() == "null":
        return null
    return one_of(*map(str.strip, value.split(","))) if "," in value else Cond("eq", value)


@value
class Total:
    """How many records have these values, and the sum of each number field over them."""

    values: dict[str, Any]
    count: int
    sums: dict[str, int | float]


@value
class Grouping:
    """The fields whose values make a group, and the number fields that are summed.

    ``cap`` is the most groups: more raise BadQuery, so that memory is bounded.
    """

    by: tuple[str, ...]
    sums: tuple[str, ...]
    cap: int = 100_000


def grouping(kind: Kind, by: Iterable[str], sums: Iterable[str] = ()) -> Grouping:
    """A grouping, checked against the kind. Raises BadQuery."""
    return Grouping(
        _fields(kind, by, ("text", "int", "bool", "date"), "no_group"),
        _fields(kind, sums, ("int", "float"), "no_sum"),
    )


def _fields(
    kind: Kind, names: Iterable[str], types: tuple[ColumnType, ...], fault: str
) -> tuple[str, ...]:
    found = tuple(kind.name_of(name) for name in names)
    fields = [name for name, type in kind.types.items() if type in types]
    for name in found:
        if name not in fields:
            raise BadQuery(no_field(fault, kind.table, name, fields))
    return found


def totals_in_order(query: Query, grouping: Grouping, found: list[Total]) -> list[Total]:
    """The totals ordered by their values, missing ones first. Raises BadQuery for too many."""
    if len(found) > grouping.cap:
        by = ", ".join(grouping.by)
        raise BadQuery(text("many_groups", table=query.kind.table, fields=by, cap=grouping.cap))
    return sorted(found, key=lambda t: [(v is not None, str(v)) for v in t.values.values()])


def matches(values: Mapping[str, Any], where: tuple[tuple[str, Cond], ...]) -> bool:
    """Whether a record with these values passes. This defines what every store must answer."""
    return all(_holds(_compared(values, name, cond), cond) for name, cond in where)


def _compared(values: Mapping[str, Any], name: str, cond: Cond) -> Any:
    if name in values or "." not in name:
        return values.get(name)
    found = value_at(values, name)
    return found if cond.op in ("null", "not_null") else text_at(found)


def _holds(value: Any, cond: Cond) -> bool:
    if cond.op in ("null", "not_null"):
        return (value is None) == (cond.op == "null")
    try:
        return value is not None and bool(_HOLDS[cond.op](value, cond.value))
    except TypeError:  # another program wrote a value of another type
        return False


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "in": lambda value, values: value in values,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "contains": lambda value, part: ascii_lower(part) in ascii_lower(value),
}


def _conds(test: Test) -> tuple[Cond, ...]:
    if test is None:
        return (null,)
    if isinstance(test, Cond):
        return (test,)
    if isinstance(test, tuple) and test and all(isinstance(each, Cond) for each in test):
        return test
    if isinstance(test, list | tuple | set | frozenset):
        return (Cond("in", tuple(test)),)
    return (Cond("eq", test),)


def _convert(name: str, column: ColumnType, cond: Cond) -> Cond:
    if cond.op in ("null", "not_null"):
        return cond
    if cond.op == "in":
        values = tuple(_value(name, column, v) for v in cond.value)
        if len(values) > 1000:
            raise BadQuery(text("many_values", field=name, count=len(values)))
        return Cond("in", values)
    return Cond(cond.op, _value(name, column, cond.value))


def _value(name: str, column: ColumnType, value: Any) -> Any:
    try:
        return CONVERT[column](value)
    except UNFIT:
        given = {"field": name, "type": column, "value": value}
        if column in EXAMPLE:
            raise BadQuery(text("bad_value_example", **given, example=EXAMPLE[column])) from None
        raise BadQuery(text("bad_value", **given)) from None
