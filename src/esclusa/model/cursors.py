"""Cursors: where the next page of a query begins."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from hashlib import blake2s
from typing import Any

from esclusa.model.columns import ColumnType
from esclusa.model.errors import BadQuery
from esclusa.model.query import ARCHIVE_COLUMNS, Query
from esclusa.model.query_values import CONVERT, UNFIT, to_time
from esclusa.model.texts import text
from esclusa.model.value import value


@value
class AsStored:
    """A value that another program wrote, of another type than its field's."""

    value: Any


def encode_cursor(query: Query, values: list[Any]) -> str:
    """The cursor after a page: the last record's values of the order fields, and its id."""
    written = json.dumps([_fingerprint(query), *(_out(v) for v in values)], ensure_ascii=False)
    return base64.urlsafe_b64encode(written.encode()).decode().rstrip("=")


def open_cursor(query: Query, size: int) -> list[Any]:
    """The ``size`` values in ``query.after``, as they were written.

    Raises BadQuery for a cursor of another table or another order. The filter may differ.
    """
    assert query.after is not None
    try:
        found = json.loads(base64.urlsafe_b64decode(query.after + "=" * (-len(query.after) % 4)))
        if (
            not isinstance(found, list)
            or found[:1] != [_fingerprint(query)]
            or len(found) != size + 1
        ):
            raise ValueError("the cursor of another list")
        return found[1:]
    except (ValueError, TypeError):
        raise not_a_cursor(query) from None


def decode_cursor(query: Query) -> list[Any]:
    """The values in ``query.after``, typed. Raises BadQuery if it is not a cursor of this list."""
    names, types = [*(o.field for o in query.order), "id"], {**ARCHIVE_COLUMNS, **query.kind.types}
    values = open_cursor(query, len(names))
    try:
        return [
            _in(types[n], v) if v is not None else None for n, v in zip(names, values, strict=True)
        ]
    except UNFIT:
        raise not_a_cursor(query) from None


def not_a_cursor(query: Query) -> BadQuery:
    """The refusal for a cursor of another list."""
    return BadQuery(text("bad_cursor", cursor=query.after))


def _fingerprint(query: Query) -> str:
    order = ",".join(f"{'-' if o.descending else ''}{o.field}" for o in query.order)
    return blake2s(
        f"{query.kind.table} {query.archived} {order}".encode(), digest_size=4
    ).hexdigest()


def _in(type: ColumnType, value: Any) -> Any:
    if isinstance(value, dict):
        return to_time(value["time"]) if "time" in value else value["as_stored"]
    absolute = {"time": to_time, "date": date.fromisoformat}
    return absolute.get(type, CONVERT[type])(value)


def _out(value: Any) -> Any:
    if isinstance(value, AsStored):
        time = isinstance(value.value, datetime)
        return {"time" if time else "as_stored": _out(value.value)}
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
