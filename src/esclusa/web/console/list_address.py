"""Addresses of lists of records: their filters, and what a person types into the filter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fastapi import Request

from esclusa.model.kind import Kind
from esclusa.model.query import parse_filter
from esclusa.model.system_records import SavedFilter
from esclusa.web.console import render

# Parameters of the pages. A field with such a name is filtered with an operator: `q__eq=…`.
PAGE_PARAMETERS = frozenset(
    {
        *("q", "next", "verb", "to", "ids", "form_token", "reason", "matched"),
        *("_field", "_op", "_value", "_columns", "_column"),
    }
)
# How a typed filter begins: `field=`, `field>=`. The kind refuses what is not one of its fields.
CONDITION = r"[^\s=<>!~]+\s*(?:>=|<=|!=|=|>|<|~)"
OPERATORS = {"=": "", ">=": "__gte", "<=": "__lte", ">": "__gt", "<": "__lt", "~": "__contains"}

Params = Sequence[tuple[str, str]]


def filter_items(items: Params, *skipped: str) -> list[tuple[str, str]]:
    """The filter among the parameters of a page or form, also what has no value."""
    return [(n, v) for n, v in items if n not in PAGE_PARAMETERS and n not in skipped]


def canonical(kind: Kind, request: Request) -> str | None:
    """The address of a submitted filter, with one parameter per condition, so it can be shared.

    None if no filter form was submitted.
    """
    given = request.query_params
    skipped = ("_field", "_op", "_value", "_columns", "_column", "q", "after")
    base = [(n, v) for n, v in given.multi_items() if n not in skipped and v]
    text = given.get("q", "").strip()
    if "_columns" in given:
        chosen = ",".join(given.getlist("_column"))
        base = [(n, v) for n, v in base if n != "columns"]
        base += [("columns", chosen)] if chosen else []
        return address_of(kind, [*base, *([("q", text)] if text else [])])
    if re.match(CONDITION, text):
        parts = re.split(rf"\s+(?={CONDITION})", text)
        parse_filter(kind, parts)
        return address_of(kind, [*base, *map(parameter, parts)])
    if "_field" not in given:
        return None
    field, operator = given.get("_field", ""), given.get("_op", "eq")
    value = given.get("_value", "").strip()
    if field and operator in ("empty", "filled"):
        base.append((f"{field}__null", "true" if operator == "empty" else "false"))
    elif field and value:
        base.append((field if operator == "eq" else f"{field}__{operator}", value))
    return address_of(kind, [*base, *([("q", text)] if text else [])])


def saved_address(kind: Kind, saved: SavedFilter) -> str:
    """The list that a saved filter names."""
    more = (("q", saved.begins), ("order", saved.order), ("columns", ",".join(saved.columns)))
    return address_of(kind, [*map(parameter, saved.filters), *((n, v) for n, v in more if v)])


def parameter(part: str) -> tuple[str, str]:
    """A typed condition as a parameter: ``a>=3`` becomes ``("a__gte", "3")``."""
    match = re.match(r"\s*([^\s=<>!~]+)\s*(>=|<=|!=|=|>|<|~)\s*(.*)", part, re.DOTALL)
    assert match is not None  # parse_filter accepted it
    name, sign, value = match[1], match[2], match[3].strip()
    if value.lower() == "null":
        return f"{name}__null", "true" if sign == "=" else "false"
    if sign == "=" and len(value) > 1 and value[0] == value[-1] == '"':  # commas are part of it
        return f"{name}__eq", value[1:-1]
    return name + OPERATORS[sign], value.strip('"')


def address_of(kind: Kind, params: Params, *parts: str) -> str:
    """The list of a kind, or a page below it, with these parameters."""
    base = render.url("console", "records", kind.table, *parts)
    return f"{base}?{render.query(params)}" if params else base


def list_address(kind: Kind, items: Params) -> str:
    """The list from which a bulk action was started."""
    return address_of(kind, [(n, v) for n, v in items if n == "q" or n not in PAGE_PARAMETERS])
