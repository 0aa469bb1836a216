"""The schema on a store without one: which kinds the documents are written for, kept in documents of their own.

Firestore needs no tables, but a program that expects a field which no document has yet would find nothing by it. So
``migrate`` writes down each kind's fields and gives existing documents those that were added; ``use`` checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticUndefined

from esclusa.model.columns import ColumnType
from esclusa.model.errors import BadRecord, MigrationError, SchemaBehind, SchemaError
from esclusa.model.query import Query
from esclusa.model.record import Kind
from esclusa.stores.firestore import asking, names, wire
from esclusa.stores.firestore.codec import Codec, Document, decode, encode
from esclusa.stores.firestore.wire import Wire

LAYOUT = "1: documents by table, history by name with steps, budgets by window, wakes by table"
"""How this program lays its documents out. It changes only with a migration."""
_VERSION = 1
_CHECKSUM = hashlib.sha256(LAYOUT.encode()).hexdigest()
_STORE = "_store"


async def missing(
    link: Wire, kinds: Sequence[Kind]
) -> tuple[bool, dict[Kind, dict[str, ColumnType]]]:
    """Whether the store was never migrated, and the fields by kind that no migration has told it of."""
    faults = [fault for kind in kinds for fault in unfit(kind)]
    if faults:
        raise SchemaError("Firestore cannot hold these kinds", faults)
    wanted = {kind: f"{link.root}/{names.SCHEMA}/{names.segment(kind.table)}" for kind in kinds}
    store = f"{link.root}/{names.SCHEMA}/{_STORE}"
    found = await link.get([store, *wanted.values()], "schema")
    if store in found:
        _check(found[store].fields)
    out = {}
    for kind, name in wanted.items():
        known = decode("json", found[name].fields["fields"]) if name in found else {}
        lacks = {c: t for c, t in _fields(kind).items() if c not in known}
        if lacks or name not in found:
            out[kind] = lacks
    return store not in found, out


def unfit(kind: Kind) -> list[str]:
    """Why Firestore cannot hold a kind."""
    faults = []
    if kind.database_id:
        faults.append(
            f"{kind.table}: Firestore makes no ids (database_id=True); give the record a key or let Esclusa make its id"
        )
    if kind.within is not None and kind.parent is None:
        faults.append(
            f"{kind.table}: within={kind.within!r} does not say within which kind; add parent="
        )
    if kind.within is not None and kind.key and kind.key[0] != kind.within:
        faults.append(
            f"{kind.table}: its key must begin with {kind.within}, for its documents are below that record's document"
        )
    return faults


async def pending(link: Wire, kinds: Sequence[Kind]) -> list[str]:
    fresh, lacking = await missing(link, kinds)
    lines = [f"write {names.SCHEMA}/{_STORE}: layout {_VERSION}"] if fresh else []
    for kind, lacks in lacking.items():
        lines.append(f"write {names.SCHEMA}/{kind.table}: {', '.join(lacks)}")
    return lines


async def migrate(link: Wire, kinds: Sequence[Kind]) -> list[str]:
    fresh, lacking = await missing(link, kinds)
    done = []
    if fresh:
        document = Document()
        document.fields["version"].integer_value = _VERSION
        document.fields["checksum"].string_value = _CHECKSUM
        await link.commit([wire.put(f"{link.root}/{names.SCHEMA}/{_STORE}", document)], "schema")
        done.append(f"layout {_VERSION} written down")
    for kind, lacks in lacking.items():
        known = await _known(link, kind)
        filled = await _fill(link, kind, lacks) if known else 0
        document = Document()
        document.fields["fields"].CopyFrom(encode("json", {**known, **_fields(kind)}))
        await link.commit(
            [wire.put(f"{link.root}/{names.SCHEMA}/{names.segment(kind.table)}", document)],
            "schema",
        )
        said = f", filled in on {filled} documents" if filled else ""
        done.append(f"{kind.table}: {len(lacks)} fields written down{said}")
    return done


async def use(link: Wire, kinds: Sequence[Kind]) -> None:
    fresh, lacking = await missing(link, kinds)
    faults = ["it was never migrated"] if fresh else []
    faults += [
        f"{kind.table}: not migrated for {', '.join(lacks) or 'this program'}"
        for kind, lacks in lacking.items()
    ]
    if faults:
        raise SchemaBehind("the store needs `esclusa migrate`", faults)


def _check(fields: Any) -> None:
    version, checksum = fields["version"].integer_value, fields["checksum"].string_value
    if version > _VERSION:
        raise MigrationError(
            f"the store's layout {version} is newer than this program's ({_VERSION}); use a newer Esclusa"
        )
    if checksum != _CHECKSUM:
        raise MigrationError(
            f"the store's layout {version} is not the one that this program knows under that number"
        )


def _fields(kind: Kind) -> dict[str, ColumnType]:
    codec = Codec(kind)
    return {
        **{column: type for _, column, type in codec.columns},
        **dict.fromkeys(kind.extras.values(), "text"),
    }


async def _known(link: Wire, kind: Kind) -> dict[str, Any]:
    name = f"{link.root}/{names.SCHEMA}/{names.segment(kind.table)}"
    found = await link.get([name], "schema")
    return (decode("json", found[name].fields["fields"]) or {}) if name in found else {}


async def _fill(link: Wire, kind: Kind, lacks: dict[str, ColumnType]) -> int:
    """Give the documents that are there already the fields that the kind has got since."""
    codec, count, after = Codec(kind), 0, None
    prepared = asking.prepare(codec, Query(kind), link.root)
    while found := await asking.page(link, codec, prepared, 400, "migrate", after):
        writes = []
        for each in found:
            document, mask = Document(), list[str]()
            for name, column, _ in codec.columns:
                if column in lacks and column not in each.document.fields:
                    mask += codec.put(document.fields, name, _default(kind, name))
            if mask:
                writes.append(wire.put(each.document.name, document, mask=mask, exists=True))
        count += (
            sum(done is not None for done in await link.each(writes, "migrate")) if writes else 0
        )
        after = asking.place_of(prepared, found[-1])
    return count


def _default(kind: Kind, name: str) -> Any:
    info = kind.model.model_fields.get(name)
    value = None if info is None else info.get_default(call_default_factory=False)
    try:
        encode(kind.types[name], None if value is PydanticUndefined else value)
    except BadRecord:
        return None
    return None if value is PydanticUndefined else value
