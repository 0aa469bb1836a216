"""The schema: which fields of each kind the stored documents have, recorded in documents.

Firestore needs no tables, but a query by a field finds only documents that have that field. So
``migrate`` records each kind's fields and adds new fields to existing documents; ``use`` checks
that this was done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from esclusa.model.columns import ColumnType
from esclusa.model.errors import SchemaBehind, SchemaError
from esclusa.model.kind import Kind
from esclusa.model.migration import MigrationStep, refuse_foreign
from esclusa.model.query import Query
from esclusa.model.value import value
from esclusa.stores.earlier_ids import id_steps
from esclusa.stores.firestore import layout, names, queries
from esclusa.stores.firestore.adoption import Adopter
from esclusa.stores.firestore.client import FirestoreClient
from esclusa.stores.firestore.codec import Codec, Document, decode, encode
from esclusa.stores.firestore.documents import CallContext
from esclusa.stores.firestore.layout import Lack
from esclusa.stores.firestore.writes import put_document


@value
class _Missing:
    """What the layout lacks, and each kind of which something is not recorded.

    A kind comes with its recorded fields and its missing fields. ``earlier_ids``: kinds whose ids
    version 0.1.0 made.
    """

    layout: Lack | None
    kinds: dict[Kind, tuple[dict[str, Any], dict[str, ColumnType]]]
    earlier_ids: list[Kind]


async def _missing(client: FirestoreClient, kinds: Sequence[Kind]) -> _Missing:
    faults = [fault for kind in kinds for fault in unfit(kind)]
    if faults:
        raise SchemaError("Firestore cannot hold these kinds", faults)
    wanted = {kind: _schema_path(client, kind) for kind in kinds}
    store = layout.store_path(client)
    found = await client.get([store, *wanted.values()], "schema")
    lacks_layout = layout.lack(found.get(store))
    out = {}
    for kind, name in wanted.items():
        known = (decode("json", found[name].fields["fields"]) or {}) if name in found else {}
        lacks = {c: t for c, t in _fields(kind).items() if c not in known}
        if lacks or name not in found:
            out[kind] = (known, lacks)
    earlier = [kind for kind, name in wanted.items() if _has_earlier_ids(found.get(name))]
    return _Missing(lacks_layout, out, earlier)


def _schema_path(client: FirestoreClient, kind: Kind) -> str:
    return f"{client.root}/{names.SCHEMA}/{names.segment(kind.table)}"


def _has_earlier_ids(document: Any | None) -> bool:
    return document is not None and layout.EARLIER_IDS in document.fields


def unfit(kind: Kind) -> list[str]:
    """Return the reasons why Firestore cannot hold a kind."""
    faults = []
    if kind.within is not None and kind.parent is None:
        faults.append(
            f"{kind.table}: within={kind.within!r} needs the kind of the parent; add parent="
        )
    if kind.within is not None and kind.key and kind.key[0] != kind.within:
        faults.append(
            f"{kind.table}: its key must begin with {kind.within},"
            " because its documents are stored below that record's document"
        )
    return faults


async def pending(
    client: FirestoreClient, kinds: Sequence[Kind], adopter: Adopter
) -> list[MigrationStep]:
    """Describe what ``migrate`` would write.

    A collection in which other programs wrote documents before it was recorded is theirs.
    """
    missing = await _missing(client, kinds)
    steps = []
    if missing.layout:
        steps.append(_step(f"write {names.SCHEMA}/_store: layout {layout.VERSION}"))
    others = await _written_by_others(client, missing.kinds)
    for kind, (known, lacks) in missing.kinds.items():
        line = f"write {names.SCHEMA}/{kind.table}: {', '.join(lacks)}"
        steps.append(_step(line, kind.table))
        if known and lacks and kind in others:
            line = f"add {', '.join(lacks)} to the documents of {kind.table} that lack them"
            steps.append(_step(line, kind.table, foreign=True))
    for kind in kinds:
        if not kind.system and (left := await adopter.unadopted(kind)):
            fields = ", ".join(c for n, c in kind.columns.items() if n in kind.track)
            line = (
                f"update {left.count} documents of {kind.table} without tracking"
                f" ({', '.join(left.examples)}): add what they lack of {fields}"
            )
            steps.append(_step(line, kind.table, foreign=kind in missing.kinds))
    return steps + id_steps(missing.earlier_ids)


def _step(line: str, table: str = "", *, foreign: bool = False) -> MigrationStep:
    return MigrationStep(line, f"-- {line}", table, foreign)


async def migrate(
    client: FirestoreClient,
    context: CallContext,
    kinds: Sequence[Kind],
    adopter: Adopter,
    *,
    foreign: bool,
) -> tuple[list[str], list[Kind]]:
    """Record the layout and the fields, fill in new fields, and describe what was done.

    Return also the kinds whose ids version 0.1.0 made. Raises ForeignTables as ``Store.migrate``
    does.

    Documents of other programs are adopted before the kind is recorded: until then, those without
    a status begin as ``adopt=`` says, however often the migration is interrupted.
    """
    missing, done = await _missing(client, kinds), list[str]()
    if not foreign and missing.kinds and missing.layout != "move":
        refuse_foreign(await pending(client, list(missing.kinds), adopter))
    if missing.layout:
        done += await layout.migrate(client, missing.layout)
        missing = await _missing(client, kinds)
    for kind in kinds:
        if not kind.system:
            known, _ = missing.kinds.get(kind, ({"any": "field"}, {}))
            done += await _adopt(context, kind, adopter, first=not known)
    for kind, (known, lacks) in missing.kinds.items():
        filled = await _fill(client, kind, lacks) if known else 0
        document = Document(fields={"fields": encode("json", {**known, **_fields(kind)})})
        write = put_document(_schema_path(client, kind), document, mask=["fields"])
        await client.commit([write], "schema")
        suffix = f", added to {filled} documents" if filled else ""
        done.append(f"{kind.table}: {len(lacks)} fields recorded{suffix}")
    return done, missing.earlier_ids


async def ids_changed(client: FirestoreClient, kind: Kind) -> None:
    """Write down that no record of the kind has an id of version 0.1.0."""
    write = put_document(_schema_path(client, kind), Document(), mask=[layout.EARLIER_IDS])
    await client.commit([write], "schema")


async def _adopt(context: CallContext, kind: Kind, adopter: Adopter, *, first: bool) -> list[str]:
    count, states, documents = 0, dict[str, int](), 0
    while True:
        adopted = await adopter.adopt(context.refreshed(), kind, first=first, limit=2**53)
        count, documents = count + adopted.count, adopted.documents
        for state, n in adopted.states.items():
            states[state] = states.get(state, 0) + n
        if not adopted.count:
            break
    if not count:
        return []
    cost = f"{documents} documents: looking for new ones takes {adopted.reads_per_hour} reads/hour"
    lines = [f"{kind.table}: {count} documents adopted ({cost})"]
    return lines + [f"adopt rows of {kind.table} as {state}" for state in states]


async def use(client: FirestoreClient, kinds: Sequence[Kind]) -> set[Kind]:
    """Raise SchemaBehind unless the store was migrated for these kinds.

    Return the kinds of which other programs write documents, too.
    """
    missing = await _missing(client, kinds)
    faults = ["the store was never migrated"] if missing.layout == "everything" else []
    faults += ["its documents have an earlier layout"] if missing.layout == "move" else []
    faults += [
        f"{kind.table}: not migrated for {', '.join(lacks) or 'this program'}"
        for kind, (_, lacks) in missing.kinds.items()
    ]
    faults += [f"{kind.table}: it has ids of version 0.1.0" for kind in missing.earlier_ids]
    if faults:
        raise SchemaBehind("the store needs `esclusa migrate`", faults)
    return await _written_by_others(client, kinds)


async def _written_by_others(client: FirestoreClient, kinds: Iterable[Kind]) -> set[Kind]:
    """The kinds of which other programs write documents, as far as it was noted."""
    watched = {k: f"{client.root}/{names.ADOPTION}/{names.segment(k.table)}" for k in kinds}
    found = await client.get(list(watched.values()), "schema")
    return {
        kind
        for kind, name in watched.items()
        if kind.attached or (name in found and found[name].fields["foreign"].boolean_value)
    }


def _fields(kind: Kind) -> dict[str, ColumnType]:
    return {
        **{column: type for _, column, type in Codec(kind).columns},
        **dict.fromkeys(kind.extras.values(), "text"),
    }


async def _fill(client: FirestoreClient, kind: Kind, lacks: dict[str, ColumnType]) -> int:
    """Add new fields of the kind to existing documents; return how many documents changed."""
    codec, count, after = Codec(kind), 0, None
    prepared = queries.prepare(codec, Query(kind), client.root)
    while found := await queries.page(client, codec, prepared, 400, "migrate", after):
        writes = []
        for each in found:
            document, mask = Document(), list[str]()
            for name, column, _ in codec.columns:
                if column in lacks and column not in each.document.fields:
                    mask += codec.put(document.fields, name, codec.default(name))
            if mask:
                writes.append(put_document(each.document.name, document, mask=mask, exists=True))
        count += sum(result is not None for result in await client.each(writes, "migrate"))
        after = queries.position_of(prepared, found[-1])
    return count
