"""Document paths from record ids and back, without a call to the server.

A kind's collection is named after its table. Documents of a kind with ``within`` and ``parent`` are
stored below their parent's document: ``folios/{folio}/documentos/{doc}``. The id of such a record
begins with its parent's id, as the first part of a key (``model/keys.py``), so the path follows
from the id alone. A key that begins with the ``within`` field produces such ids.
"""

from __future__ import annotations

from collections.abc import Callable

from esclusa.model.errors import BadRecord
from esclusa.model.keys import join_id, key_id, split_id
from esclusa.model.kind import Kind
from esclusa.model.record import Record
from esclusa.model.storable import fits

HISTORY = "esclusa_history"
BUDGETS = "esclusa_budgets"
LEASES = "esclusa_leases"
KEY_TURNS = "esclusa_key_turns"
WAKES = "esclusa_wakes"
SCHEMA = "esclusa_schema"
ADOPTION = "esclusa_adoption"

_ESCAPE = "\uff05"
# Bytes of one path segment. Firestore takes 1,500; names of history documents are longer.
_MAX_SEGMENT = 1400


def segment(id: str) -> str:
    """An id as a path segment, escaped where Firestore does not allow it as it is.

    Different ids give different segments, and a prefix of an id stays a prefix.
    """
    if "/" in id or _ESCAPE in id:
        id = id.replace(_ESCAPE, _ESCAPE + "E").replace("/", _ESCAPE + "S")
    if id in (".", "..") or (id.startswith("__") and id.endswith("__")):
        id = _ESCAPE + "N" + id
    return id


def unsegment(text: str) -> str:
    """The id whose path segment this is."""
    if _ESCAPE not in text:
        return text
    return (
        text.removeprefix(_ESCAPE + "N").replace(_ESCAPE + "S", "/").replace(_ESCAPE + "E", _ESCAPE)
    )


def collection(kind: Kind, *, archived: bool = False) -> str:
    """The collection of a kind, or of its archive."""
    return f"archive_{kind.table}" if archived else kind.table


def path(kind: Kind, id: str, *, archived: bool = False) -> str | None:
    """The path of a record's document; None if no record of this kind can have that id."""
    if not id or not fits(id):
        return None
    if archived or kind.parent is None:
        last = segment(id)
        fits_segment = len(last.encode()) <= _MAX_SEGMENT
        return f"{collection(kind, archived=archived)}/{last}" if fits_segment else None
    parts = split_id(id)
    above = path(kind.parent, parts[0]) if parts else None
    last = segment(parts[1]) if parts else ""
    if above is None or len(last.encode()) > _MAX_SEGMENT:
        return None
    return f"{above}/{kind.table}/{last}"


def id_at(kind: Kind, document_path: str, *, archived: bool = False) -> str:
    """The id of the record at this path."""
    above, _, last = document_path.rpartition("/")
    if archived or kind.parent is None:
        return unsegment(last)
    parent = id_at(kind.parent, above.rpartition("/")[0])
    return join_id(parent, unsegment(last), len(kind.key) or 2)


def parent_id(id: str) -> str | None:
    """The id of the parent of a nested record, None if it cannot be read from the id."""
    parts = split_id(id)
    return parts[0] if parts else None


def own_id(kind: Kind, document_path: str) -> str | None:
    """The id of the record at this path; None if no record of the kind can be there.

    Collections elsewhere may have the same name, and ids of other programs may be too long.
    """
    parts = document_path.split("/")
    if parts[0::2] != collections(kind):
        return None
    id = id_at(kind, document_path)
    return id if path(kind, id) == document_path else None


def collections(kind: Kind) -> list[str]:
    """The collections on the path to a record, from the outermost."""
    return [*(collections(kind.parent) if kind.parent is not None else ()), kind.table]


def identify(kind: Kind, record: Record, new_id: Callable[[], str]) -> tuple[str, str]:
    """The id and the path of a new record; BadRecord if it cannot have one."""
    if kind.within is None:
        id = record_id(kind, record, new_id)
        document_path = path(kind, id)
    else:
        parent = str(getattr(record, kind.within))
        random = not record.id and not kind.key
        id = key_id([parent, new_id()]) if random else record_id(kind, record, new_id)
        document_path = path(kind, id)
        if document_path is not None and (
            id_at(kind, document_path) != id or parent_id(id) not in (None, parent)
        ):
            document_path = None
        if document_path is None:
            raise BadRecord(
                f"{kind.table} {id!r:.200}: on Firestore the id of a record within {kind.within}"
                f" begins with its parent's id ({key_id([parent, 'x'])[:-1]}…);"
                f" put {kind.within} first in its key"
            )
    if document_path is None:
        raise BadRecord(
            f"{kind.table} {id!r:.200}: the id is empty or too long for a Firestore document name"
        )
    return id, document_path


def record_id(kind: Kind, record: Record, new_id: Callable[[], str]) -> str:
    """The id of a new record. Firestore generates none, so ``database_id`` changes nothing."""
    if record.id or not kind.key:
        return record.id or new_id()
    return kind.id_of(*(getattr(record, name) for name in kind.key))


def history_path(kind: Kind, id: str, number: int) -> str:
    """The path of the history document whose first step has this number."""
    return f"{HISTORY}/{segment(f'{kind.table}:{id}:{number:09d}')}"
