"""Cursors: the position of a document in a list, as text for the caller."""

from __future__ import annotations

from typing import Any

from esclusa.model.cursors import AsStored, decode_cursor, encode_cursor
from esclusa.model.query import ARCHIVE_COLUMNS
from esclusa.stores.firestore.codec import is_typed
from esclusa.stores.firestore.found import FoundDocument, PreparedQuery
from esclusa.stores.firestore.queries import position_of


def read_cursor(prepared: PreparedQuery) -> list[Any]:
    """The position in the query's cursor; BadQuery if the cursor belongs to another query."""
    return decode_cursor(prepared.query.but(order=prepared.order))


def write_cursor(prepared: PreparedQuery, found: FoundDocument) -> str:
    """The cursor of the page that follows this document."""
    types = {**ARCHIVE_COLUMNS, **prepared.query.kind.types}
    *values, id = position_of(prepared, found)
    shown = [
        v if v is None or is_typed(types[o.field], v) else AsStored(v)
        for o, v in zip(prepared.order, values, strict=True)
    ]
    return encode_cursor(prepared.query.but(order=prepared.order), [*shown, id])
