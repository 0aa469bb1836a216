"""Filters as they come over HTTP: ``?platform=twitter&attempts__gte=3``, or a JSON object of the same names."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from esclusa.model.errors import BadQuery
from esclusa.model.query import Cond, Op, Test, Where, not_null, null, parse_filter
from esclusa.model.record import Kind
from esclusa.model.storable import storage_fault
from esclusa.model.texts import text
from esclusa.observability import redact
from esclusa.web.auth import reads_only

OPERATORS: dict[str, Op] = {
    "eq": "eq", "in": "in", "lt": "lt", "lte": "le", "le": "le", "gt": "gt", "gte": "ge", "ge": "ge", "null": "null",
}  # fmt: skip
"""What may follow a field's name after two underscores."""

RESERVED = frozenset({"limit", "after", "order", "archived", "system"})
"""Parameters that are not fields. A field of such a name is asked for with an operator: ``limit__eq=3``."""

_SIGNS: dict[Op, str] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOST_PLUS = re.compile(r"(T[0-9:.]+) (\d\d:?\d\d)\Z")


def from_params(
    kind: Kind, params: Iterable[tuple[str, str]], *, archived: bool = False
) -> dict[str, Test]:
    """The filter in a query string, in the words of ``parse_filter`` or with operators after the name. A field named twice may
    have either value. A name without a value filters nothing: a form sends those. An ``archived`` question may be about the
    archive's own columns too."""
    tests: dict[str, Test] = {}
    for name, value in params:
        if name in RESERVED or (not value and "__" not in name and not re.search(r"[<>]", name)):
            continue
        for field, said in parse_filter(
            kind, [_text(kind, name, value)], archived=archived
        ).items():
            tests[field] = _both(tests[field], said) if field in tests else said
    return _checked(kind, tests)


def to_act(
    kind: Kind, params: Iterable[tuple[str, str]], *, own: Container[str]
) -> dict[str, Test]:
    """The filter of a call that changes records; ``own``: its parameters that are none. What says nothing is refused, for it
    would widen what is changed: a name without a value, ``limit`` and its like."""
    said = [(name, value) for name, value in params if name not in own]
    for name, value in said:
        if name in RESERVED or not value:
            raise BadQuery(text("filter_needs_value", filter=f"{name}={value}", table=kind.table))
    return from_params(kind, said)


def from_json(kind: Kind, filter: Mapping[str, Any]) -> dict[str, Test]:
    """The filter in a body: a value, a list of values, null, or an object of operators per field."""
    tests: dict[str, tuple[Cond, ...]] = {}
    for name, value in filter.items():
        field, operator = _split(kind, name)
        said = value if isinstance(value, dict) else {operator or "eq": value}
        if not said:
            raise BadQuery(text("empty_operators", field=name, example="{'gte': 3}"))
        tests[field] = (
            *tests.get(field, ()),
            *(_cond(field, _operator(name, op), each) for op, each in said.items()),
        )
    return _checked(kind, dict(tests))


def orders(kind: Kind, text: str) -> tuple[str, ...]:
    """The order that a parameter asks for: fields with commas."""
    names = tuple(name for name in text.split(",") if name)
    _keep_secrets(kind, (kind.name_of(name.removeprefix("-")) for name in names))
    return names


def _keep_secrets(kind: Kind, names: Iterable[str]) -> None:
    """Who may only read must not guess a secret by what a filter or an order lets through."""
    for name in names if reads_only.get() else ():
        if redact.secret_name(name):
            raise BadQuery(text("secret_field", table=kind.table, field=name))


def _text(kind: Kind, name: str, value: str) -> str:
    """One parameter as ``parse_filter`` reads it."""
    field, operator = _split(kind, name)
    if kind.types.get(kind.name_of(field.rstrip("<>!"))) == "time":
        value = _LOST_PLUS.sub(r"\1+\2", value)  # a '+' that was not escaped arrives as a space
    if operator is None:
        return f"{name}{value}" if value.startswith(("<", ">")) or not value else f"{name}={value}"
    op = _operator(name, operator)
    if op == "null":
        return f"{field}=null" if _cond(name, op, value) == null else f"{field}!=null"
    if op == "in":
        return f"{field}={value}" if "," in value else f'{field}="{value}"'
    return f'{field}{_SIGNS.get(op, "=")}"{value}"'


def _both(before: Test, more: Test) -> Test:
    """A field named twice: either value, if values are named; otherwise both conditions."""
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
    """The field and the operator, if it says one; a field whose own name has underscores wins."""
    field, _, operator = name.rpartition("__")
    return (
        (kind.name_of(name), None)
        if kind.name_of(name) in kind.types or not field
        else (kind.name_of(field), operator)
    )


def _operator(name: str, operator: str) -> Op:
    if operator not in OPERATORS:
        raise BadQuery(
            text("no_operator", field=name, operator=operator, known=", ".join(OPERATORS))
        )
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


def _checked(kind: Kind, tests: dict[str, Test]) -> dict[str, Test]:
    """The tests, if they may be asked. A state that the lifecycle does not have is a slip of the pen; an empty list would hide
    it. (Not in a table that outsiders write to: they may have states of their own.)"""
    _keep_secrets(kind, tests)
    said: Where = {"status": tests["status"]} if "status" in tests and not kind.attached else {}
    for test in said.values():
        for cond in test if isinstance(test, tuple) else (test,):
            for state in cond.value if cond.op == "in" else (cond.value,):
                if state is not None and state not in kind.lifecycle.states:
                    states = ", ".join(kind.lifecycle.states)
                    raise BadQuery(text("no_state", table=kind.table, state=state, states=states))
    return tests
