"""Suggestions while a filter is typed: fields, states, and values of recent records."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

from esclusa.engine.read_model import ReadModel
from esclusa.model.errors import BadQuery
from esclusa.model.kind import Kind
from esclusa.model.paths import is_path, split_path, text_at, value_at
from esclusa.model.query import beginning
from esclusa.model.record import Record
from esclusa.observability import redact

# The most suggestions.
MOST = 12
# The newest records of each state, and the most states, whose values are suggested.
RECENT, STATES = 50, 8
# Longer values are not suggested.
_LONGEST = 60
_LAST = re.compile(r'(?s)(.*?)([^\s"]*(?:"[^"]*"?)?)\Z')
_CONDITION = re.compile(r"([^\s=<>!~]+)(>=|<=|!=|=|>|<|~)(.*)", re.DOTALL)
_TIMES = ("-15m", "-1h", "-24h", "-7d")


async def suggestions(read_model: ReadModel, table: str, text: str) -> list[str]:
    """Whole texts of a filter that begin with what is typed, the likeliest first."""
    kind = read_model.lookup(table)
    split = _LAST.match(text)
    before, last = (split[1], split[2]) if split else ("", text)
    typed = _CONDITION.fullmatch(last)
    if typed is None:
        found = _fields(kind, last)
        if last:
            found += await _ids(read_model, table, last) if not before.strip() else []
    else:
        name, sign, begun = typed[1], typed[2], typed[3]
        done, comma, part = begun.rpartition(",")
        values = await _values(read_model, kind, kind.name_of(name), part.strip('"'))
        found = [f"{name}{sign}{done}{comma}{_quoted(value)}" for value in values]
    return [before + each for each in dict.fromkeys(found)][:MOST]


def offered_fields(kind: Kind) -> list[str]:
    """The fields by which a list can be filtered, likely ones first, without secrets."""
    plain = [
        name
        for name, type in kind.types.items()
        if name not in ("fence", "id", "status", "leased_by")
        and type not in ("json", "bytes")
        and not redact.secret_name(name)
    ]
    has_error = "last_error" in kind.types and "error_type" not in kind.types
    return [*(["error_type", "error_message"] if has_error else []), *sorted(plain)]


def first_suggestions(kind: Kind) -> list[str]:
    """What a filter may begin with."""
    states = [f"status={state}" for state in kind.lifecycle.states]
    return [*states, *(_begun(kind, name) for name in offered_fields(kind))]


def _fields(kind: Kind, begun: str) -> list[str]:
    offered = first_suggestions(kind)
    low = begun.lower()
    first = [each for each in offered if each.lower().startswith(low)]
    return first + [each for each in offered if low in each.lower() and each not in first]


def _begun(kind: Kind, name: str) -> str:
    """A field with the operator that is used most with its type."""
    if name == "error_message":
        return f"{name}~"
    return name + (">=" if kind.types.get(name) in ("time", "date") else "=")


async def _ids(read_model: ReadModel, table: str, begun: str) -> list[str]:
    page = await read_model.records(table, {"id": beginning(begun)}, limit=5)
    return [record.id for record in page.items]


async def _values(read_model: ReadModel, kind: Kind, name: str, begun: str) -> list[str]:
    """Values of this field that begin so."""
    inside = is_path(kind.types, name)
    type = "text" if inside else kind.types.get(name, "json")
    if any(map(redact.secret_name, name.split("."))):
        return []
    known: list[str] = []
    if name == "status":
        known = list(kind.lifecycle.states)
    elif type == "bool":
        known = ["true", "false"]
    elif type in ("time", "date"):
        known = [*_TIMES, f"{read_model.now():%Y-%m-%d}"]
    elif type in ("text", "int"):
        counted = Counter(
            value
            for record in await _recent(read_model, kind)
            if (value := _value(record, name)) is not None
        )
        known = [value for value, _ in counted.most_common()]
    masked = (redact.text(each) for each in [*known, "null"])
    return [each for each in masked if each.lower().startswith(begun.lower())]


def _value(record: Record, name: str) -> str | None:
    field, steps = split_path(name)
    found = getattr(record, field, None)
    text = text_at(value_at({field: found}, name) if steps else getattr(found, "value", found))
    return text if text and len(text) <= _LONGEST and text.isprintable() else None


async def _recent(read_model: ReadModel, kind: Kind) -> list[Record]:
    """The newest records of each state: an index serves them."""
    found: list[Record] = []
    for state in kind.lifecycle.states[:STATES]:
        for order in ("-updated_at", ""):
            with suppress(BadQuery):  # the store has no index for this order
                page = await read_model.records(
                    kind.table, {"status": state}, order=order, limit=RECENT
                )
                found += page.items
                break
    return found


def _quoted(value: str) -> str:
    literal = value.lower() == "null" and value != "null"
    return f'"{value}"' if literal or re.search(r"[\s,\"]", value) else value
