"""Which records an operation is applied to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind
from esclusa.model.query import Cond, Where, one_of
from esclusa.model.texts import text


def narrowed(where: Where, states: Iterable[str]) -> dict[str, Any]:
    """The same filter, for records in these states only."""
    given = where.get("status")
    conditions = () if given is None else given if isinstance(given, tuple) else (given,)
    equal = (each if isinstance(each, Cond) else Cond("eq", each) for each in conditions)
    return {**where, "status": (*equal, one_of(*states))}


def selected(kind: Kind, ids: Sequence[str] | None, where: Where | None) -> dict[str, Any]:
    """The filter of records that are named by id or by a filter. Raises BadQuery for both."""
    if ids is None and not where:
        raise BadQuery(text("choose_records", table=kind.table))
    if ids is not None and where:
        raise BadQuery(text("choose_once"))
    return dict(where or {}) if ids is None else {"id": one_of(*ids)}


def condition_text(given: Any) -> str:
    """A condition as the audit shows it."""
    if isinstance(given, tuple):
        return " and ".join(dict.fromkeys(condition_text(part) for part in given))
    if isinstance(given, Cond):
        values = given.value if isinstance(given.value, tuple) else (given.value,)
        sign = {"lt": "< ", "le": "<= ", "gt": "> ", "ge": ">= ", "contains": "~ "}.get(
            given.op, ""
        )
        return {"null": "is empty", "not_null": "is not empty"}.get(
            given.op, f"{sign}{' or '.join(map(str, values))}"[:500]
        )
    return str(given)
