"""Filters in requests: ``?platform=twitter&attempts__gte=3``, or a JSON object with these names."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind
from esclusa.model.names import unknown
from esclusa.model.query import (
    Cond,
    Op,
    Test,
    check_states,
    conditions,
    not_null,
    null,
    parse_filter,
)
from esclusa.model.storable import storage_fault
from esclusa.model.texts import text
from esclusa.observability import redact
from esclusa.web.auth.tokens import read_only

# Operators that may follow a field's name after two underscores.
OPERATORS: dict[str, Op] = {
    "eq": "eq",
    "in": "in",
    "lt": "lt",
    "lte": "le",
    "le": "le",
    "gt": "gt",
    "gte": "ge",
    "ge": "ge",
    "null": "null",
    "contains": "contains",
}

# Parameters that are not fields. A field of such a name needs an operator: `limit__eq=3`.
RESERVED = frozenset({"limit", "after", "order", "archived", "system", "columns"})

_SIGNS: dict[Op, str] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "contains": "~"}
_LOST_PLUS = re.compile(r"(T[0-9:.]+|\A) (\d\d:?\d\d|\d+[a-z]+)\Z")


def filter_from_query(
    kind: Kind,
    params: Iterable[tuple[str, str]],
    *,
    archived: bool = False,
    any_state: bool = False,
) -> dict[str, Test]:
    """The filter in a query string: ``parse_filter``'s syntax, or operators after the name.

    A field that is given twice may have either value. A field without a value is ignored, because
    HTML forms send those; an unknown name is refused all the same. With ``archived``, the archive's
    own columns can be filtered, too. With ``any_state``, and in an attached table, an undeclared
    state is not refused; ``check_states`` refuses it if no record is in it.
    """
    tests: dict[str, Test] = {}
    for name, value in params:
        if name in RESERVED:
            continue
        if not value and "__" not in name and not re.search(r"[<>~]", name):
            conditions(kind, {name: null}, archived=archived)  # raises BadQuery if it is unknown
            continue
        for field, test in parse_filter(
            kind, [expression(kind, name, value)], archived=archived
        ).items():
            tests[field] = _combine(tests[field], test) if field in tests else test
    _refuse_secrets(kind, tests)
    if not any_state and not kind.attached:
        check_states(kind, tests)
    return tests


def strict_filter_from_query(
    kind: Kind, params: Iterable[tuple[str, str]], *, other: Container[str]
) -> dict[str, Test]:
    """The filter of a request that changes records; ``other`` are its other parameters.

    A name without a value and reserved names such as ``limit`` are refused: ignoring them would
    change more records than intended.
    """
    given = [(name, value) for name, value in params if name not in other]
    for name, value in given:
        if name in RESERVED or not value:
            raise BadQuery(text("filter_needs_value", filter=f"{name}={value}", table=kind.table))
    return filter_from_query(kind, given)


def filter_from_json(kind: Kind, filter: Mapping[str, Any]) -> dict[str, Test]:
    """The filter in a body: a value, a list of values, null, or operators for each field."""
    tests: dict[str, tuple[Cond, ...]] = {}
    for name, value in filter.items():
        field, operator = _split(kind, name)
        conditions = value if isinstance(value, dict) else {operator or "eq": value}
        if not conditions:
            raise BadQuery(text("empty_operators", field=name, example="{'gte': 3}"))
        tests[field] = (
            *tests.get(field, ()),
            *(_cond(field, _operator(name, op), each) for op, each in conditions.items()),
        )
    _refuse_secrets(kind, tests)
    if not kind.attached:
        check_states(kind, tests)
    return dict(tests)


def check_order(kind: Kind, order: str) -> tuple[str, ...]:
    """The fields of an ``order`` parameter, which are separated by commas."""
    names = tuple(name for name in order.split(",") if name)
    _refuse_secrets(kind, (kind.name_of(name.removeprefix("-")) for name in names))
    return names


def chosen_columns(columns: str) -> tuple[str, ...]:
    """The names in a ``columns`` parameter, which are separated by commas."""
    return tuple(dict.fromkeys(name.strip() for name in columns.split(",") if name.strip()))


def _refuse_secrets(kind: Kind, names: Iterable[str]) -> None:
    """Filters and orders would let a caller with the role read guess a masked secret."""
    for name in names if read_only.get() else ():
        if any(map(redact.secret_name, name.split("."))):
            raise BadQuery(text("secret_field", table=kind.table, field=name))


def expression(kind: Kind, name: str, value: str) -> str:
    """One parameter in the syntax of ``parse_filter``."""
    field, operator = _split(kind, name)
    if kind.types.get(kind.name_of(field.rstrip("<>!~"))) == "time":
        value = _LOST_PLUS.sub(r"\1+\2", value)  # an unescaped '+' arrives as a space
    if operator is None:
        return f"{name}{value}" if value.startswith(("<", ">")) or not value else f"{name}={value}"
    op = _operator(name, operator)
    if op == "null":
        return f"{field}=null" if _cond(name, op, value) == null else f"{field}!=null"
    if op == "in":
        return f"{field}={value}" if "," in value else f'{field}="{value}"'
    plain = re.fullmatch(r'[^\s",]+', value) and value.lower() != "null"
    return (
        f"{field}{_SIGNS.get(op, '=')}{value}"
        if plain
        else f'{field}{_SIGNS.get(op, "=")}"{value}"'
    )


def _combine(before: Test, more: Test) -> Test:
    """A field that is given twice: either value, if both are values; otherwise both conditions."""
    conds = (
        *(before if isinstance(before, tuple) else (before,)),
        *(more if isinstance(more, tuple) else (more,)),
    )
    if all(cond.op in ("eq", "in") for cond in conds):
        return Cond(
            "in",
            tuple(v for cond in conds for v in (cond.value if cond.op == "in" else (cond.value,))),
        )
    return conds


def _split(kind: Kind, name: str) -> tuple[str, str | None]:
    """The field and the operator, if there is one. A field whose name has ``__`` in it wins."""
    field, _, operator = name.rpartition("__")
    if kind.name_of(name) in kind.types or not field:
        return kind.name_of(name), None
    return kind.name_of(field), operator


def _operator(name: str, operator: str) -> Op:
    if operator not in OPERATORS:
        raise BadQuery(unknown("no_operator", operator, OPERATORS, field=name, operator=operator))
    return OPERATORS[operator]


def _cond(name: str, op: Op, value: Any) -> Cond:
    if op == "null":
        if str(value).lower() not in ("true", "false"):
            raise BadQuery(text("bad_null", field=name, value=value))
        return null if str(value).lower() == "true" else not_null
    if op == "eq" and value is None:
        return null
    values = value if isinstance(value, list) else [value]
    for each in values:
        if not isinstance(each, str | int | float | bool) or storage_fault(each):
            raise BadQuery(text("bad_operand", field=name, value=each))
    if isinstance(value, list) and op not in ("eq", "in"):
        raise BadQuery(text("single_value", field=name, count=len(value)))
    return Cond("in", tuple(values)) if isinstance(value, list) or op == "in" else Cond(op, value)
