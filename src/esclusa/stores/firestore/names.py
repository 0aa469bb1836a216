"""Where documents are: a record's id and its document's path, both ways, without asking the server.

A kind's collection is named after its table. A kind with ``within`` and ``parent`` lives below its parent's document:
``folios/{folio}/documentos/{doc}``. Its id is the parent's id, quoted as in ``key_id``, then ``:``, then the rest, so the
path follows from the id alone; a key that begins with the ``within`` field makes such ids by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, unquote

from esclusa.model.errors import BadRecord
from esclusa.model.record import Kind, Record
from esclusa.model.storable import fits

HISTORY = "esclusa_history"
BUDGETS = "esclusa_budgets"
WAKES = "esclusa_wakes"
SCHEMA = "esclusa_schema"

_ESCAPE = "\uff05"
_LONGEST = 1400
"""Bytes of one path segment. Firestore takes 1,500; the history's names are a little longer than the record's."""


def segment(id: str) -> str:
    """An id as a path segment: itself where Firestore allows it, else escaped. Injective, and it keeps prefixes."""
    if "/" in id or _ESCAPE in id:
        id = id.replace(_ESCAPE, _ESCAPE + "E").replace("/", _ESCAPE + "S")
    if id in (".", "..") or (id.startswith("__") and id.endswith("__")):
        id = _ESCAPE + "N" + id
    return id


def unsegment(text: str) -> str:
    if _ESCAPE not in text:
        return text
    return (
        text.removeprefix(_ESCAPE + "N").replace(_ESCAPE + "S", "/").replace(_ESCAPE + "E", _ESCAPE)
    )


def collection(kind: Kind, *, archived: bool = False) -> str:
    return f"archive_{kind.table}" if archived else kind.table


def nested(kind: Kind) -> bool:
    return kind.within is not None


def path(kind: Kind, id: str, *, archived: bool = False) -> str | None:
    """The path of a record's document; None where no record of this kind can have that id."""
    if not id or not fits(id):
        return None
    if archived or kind.parent is None:
        last = segment(id)
        return (
            f"{collection(kind, archived=archived)}/{last}"
            if len(last.encode()) <= _LONGEST
            else None
        )
    head, colon, rest = id.partition(":")
    above = path(kind.parent, unquote(head)) if colon and rest else None
    last = segment(rest)
    return (
        f"{above}/{kind.table}/{last}"
        if above is not None and len(last.encode()) <= _LONGEST
        else None
    )


def id_at(kind: Kind, where: str, *, archived: bool = False) -> str:
    """The id of the record at this path."""
    above, _, last = where.rpartition("/")
    if archived or kind.parent is None:
        return unsegment(last)
    return f"{_quoted(id_at(kind.parent, above.rpartition('/')[0]))}:{unsegment(last)}"


def identify(kind: Kind, record: Record, new_id: Callable[[], str]) -> tuple[str, str]:
    """The id and the path of a new record; BadRecord if it cannot have one."""
    if kind.within is None:
        id = kind.identify(record, new_id)
        where = path(kind, id)
    else:
        parent = str(getattr(record, kind.within))
        fresh = not record.id and not kind.key
        id = f"{_quoted(parent)}:{new_id()}" if fresh else kind.identify(record, new_id)
        where = path(kind, id)
        if where is not None and (
            id_at(kind, where) != id or unquote(id.partition(":")[0]) != parent
        ):
            where = None
        if where is None:
            raise BadRecord(
                f"{kind.table} {id!r:.200}: on Firestore the id of a record within {kind.within} begins with its parent's id"
                f" ({_quoted(parent)}:…); name {kind.within} first in its key"
            )
    if where is None:
        raise BadRecord(
            f"{kind.table} {id!r:.200}: the id is empty or too long for a Firestore document name"
        )
    return id, where


def history_path(kind: Kind, id: str, number: int) -> str:
    return f"{HISTORY}/{segment(f'{kind.table}:{id}:{number:09d}')}"


def _quoted(id: str) -> str:
    return quote(id, safe="").replace("~", "%7E")
