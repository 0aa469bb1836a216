"""Adoption: documents that other programs wrote get their tracking fields.

A query finds only documents that have the fields it names, so a document without tracking fields
is never due. Adoption adds the missing ones and changes no other: not the id, not a field of the
other program. Each document is written only if nobody wrote it since it was read.

``migrate`` adopts all documents. Claims look for new ones: at the start of a run, and otherwise at
an interval that all processes share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from esclusa.model.adoption import Adopted, Unadopted
from esclusa.model.errors import BadRecord, SchemaError, StoreConflict
from esclusa.model.kind import Kind
from esclusa.model.query import matches
from esclusa.model.settlement import ClaimRequest
from esclusa.stores.firestore import names
from esclusa.stores.firestore.client import LOCKED, FirestoreClient
from esclusa.stores.firestore.codec import (
    SHARD,
    Codec,
    Document,
    Value,
    decimal_order,
    decode,
    encode,
    from_timestamp,
    order_column,
    shard_of,
)
from esclusa.stores.firestore.documents import CallContext, check_size
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.foreign_locks import age_of, lock_time, moved_at, time_in
from esclusa.stores.firestore.notifications import Notify
from esclusa.stores.firestore.queries import null_query
from esclusa.stores.firestore.untracked import PAGE, UntrackedSearch, is_tracked
from esclusa.stores.firestore.writes import put_document

# Documents that one claim adopts. The next claim goes on.
_ROUND = 1000
# Seconds between two searches in a collection where no document of others was found so far.
_OWN_INTERVAL = 3600.0
# Tracking that a claim compares or counts, and the type it needs.
_VALID = {
    "attempts": "integer_value",
    "fence": "integer_value",
    "due_at": "timestamp_value",
}
_EXAMPLES = 5
# How long a document that cannot be adopted is not tried again.
_REFUSED_FOR = timedelta(hours=1)


@dataclass(slots=True)
class Watch:
    """What this process knows of a collection."""

    # When a process last searched it.
    checked: datetime | None = None
    # Whether other programs write to it.
    foreign: bool = False
    # Whether the last search left documents.
    left: bool = False
    # Names of documents that cannot be adopted, and why; forgotten after an hour.
    refused: dict[str, str] = field(default_factory=dict)
    refused_since: datetime | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class Adopter:
    """Finds and adopts documents. ``interval`` in seconds; 0: only ``migrate`` adopts."""

    client: FirestoreClient
    interval: float
    notify: Notify
    report: Callable[[Adopted], None]
    # By table, the states that a stage holds, with its ``abandoned_after``.
    held_states: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    watches: dict[str, Watch] = field(default_factory=dict)

    def watch(self, kind: Kind) -> Watch:
        return self.watches.setdefault(kind.table, Watch(foreign=kind.attached))

    # While workers run

    async def before_run(self, context: CallContext, kind: Kind, before: datetime) -> int:
        """Adopt what other programs wrote before a run began; return how many."""
        watch, count = self.watch(kind), 0
        if kind.system or not kind.adopted or not self.interval:
            return 0
        async with watch.lock, self._reporting(kind):
            if await self._is_time(context, kind, before):
                while found := (await self.adopt(context, kind)).count:
                    count += found
                    if not watch.left:
                        break
        return count

    async def before_claim(self, context: CallContext, request: ClaimRequest) -> None:
        """Adopt what this claim could take, if it is time to look for it."""
        kind, watch = request.kind, self.watch(request.kind)
        if kind.system or not kind.adopted or not self.interval or watch.lock.locked():
            return
        async with watch.lock, self._reporting(kind):
            if request.ids:
                await self._adopt_named(context, kind, request.ids)
            elif watch.left or await self._is_time(context, kind, request.before):
                await self.adopt(context, kind)

    @asynccontextmanager
    async def _reporting(self, kind: Kind) -> AsyncIterator[None]:
        """Report why no search is possible; it must not hold up the records that are tracked."""
        try:
            yield
        except (SchemaError, StoreConflict, PreconditionFailed) as error:
            why = f"no search for documents of other programs: {error}"
            self.report(Adopted(kind.table, 0, {}, 0, {kind.table: why}, self.interval))

    async def _is_time(self, context: CallContext, kind: Kind, before: datetime | None) -> bool:
        """Whether to search now; if so, other processes need not."""
        watch = self.watch(kind)
        if not self._due(watch, context.now, before):
            return False
        name = self._watch_name(kind)
        known = (await self.client.get([name], "adopt")).get(name)
        if known is not None:
            watch.checked = decode("time", known.fields["checked_at"])
            watch.foreign |= known.fields["foreign"].boolean_value
            context.codec_of(kind).foreign = watch.foreign
            if not self._due(watch, context.now, before):
                return False
        watch.checked = context.now
        return await self._record(kind, None if known is None else known.update_time, name)

    def _due(self, watch: Watch, now: datetime, before: datetime | None) -> bool:
        if watch.checked is None:
            return True
        if watch.foreign and before is not None and watch.checked < before:
            return True
        interval = self.interval if watch.foreign else max(self.interval, _OWN_INTERVAL)
        return now - watch.checked >= timedelta(seconds=interval)

    async def _record(self, kind: Kind, update_time: Any, name: str) -> bool:
        """Write when the collection was searched; False if another process was first."""
        watch = self.watch(kind)
        document = Document(
            fields={
                "checked_at": encode("time", watch.checked),
                "foreign": Value(boolean_value=watch.foreign),
            }
        )
        write = put_document(
            name,
            document,
            mask=list(document.fields),
            update_time=update_time,
            exists=None if update_time else False,
        )
        try:
            await self.client.commit([write], "adopt")
        except (PreconditionFailed, StoreConflict):
            return False
        return True

    async def _adopt_named(self, context: CallContext, kind: Kind, ids: Sequence[str]) -> None:
        paths = [context.document_name(kind, id) for id in ids]
        found = await self.client.get([p for p in paths if p is not None], "adopt")
        untracked = [d for d in found.values() if not self._is_complete(context, kind, d)]
        await self._adopt(context, kind, untracked, first=False)

    # Adoption

    async def adopt(
        self,
        context: CallContext,
        kind: Kind,
        *,
        first: bool = False,
        limit: int = _ROUND,
        progress: Callable[[int], None] | None = None,
    ) -> Adopted:
        """Adopt up to about ``limit`` documents. ``first``: by the rules of ``adopt=``, too."""
        watch = self.watch(kind)
        if not kind.adopted:
            return Adopted(kind.table, 0, {}, 0, {}, self.interval)
        if watch.refused_since is None or context.now - watch.refused_since > _REFUSED_FOR:
            watch.refused, watch.refused_since = {}, context.now
        count, states = await self._adopt(
            context, kind, await self._reset(context, kind), first=False
        )
        known = set(watch.refused)
        search = UntrackedSearch(self.client, kind, "adopt", known)
        found = await search.run(limit)
        for each in found.ranges:
            async for documents in search.read(each):
                adopted, into = await self._adopt(context, kind, documents, first=first)
                count += adopted
                states |= {state: states.get(state, 0) + n for state, n in into.items()}
                if progress is not None:
                    progress(count)
        watch.left = found.untracked > limit
        if found.untracked and not watch.foreign:
            await self._mark(context, kind)
        refused = {name: why for name, why in watch.refused.items() if name not in known}
        done = Adopted(kind.table, count, states, found.total, refused, self.interval)
        if count:
            await self._add(kind, count)
            self.notify([kind.table])
        if count or refused:
            self.report(done)
        return done

    async def _add(self, kind: Kind, count: int) -> None:
        """Add to the number of documents that were adopted, for all processes."""
        document = Document(fields={"foreign": Value(boolean_value=True)})
        write = put_document(self._watch_name(kind), document, mask=["foreign"])
        write.update_transforms.add(field_path="adopted").increment.integer_value = count
        await self.client.commit([write], "adopt")

    async def adopted(self, kind: Kind) -> int:
        """How many documents of a collection were adopted so far."""
        name = self._watch_name(kind)
        known = (await self.client.get([name], "adopt")).get(name)
        return 0 if known is None else int(known.fields["adopted"].integer_value)

    def _watch_name(self, kind: Kind) -> str:
        return f"{self.client.root}/{names.ADOPTION}/{names.segment(kind.table)}"

    async def _mark(self, context: CallContext, kind: Kind) -> None:
        """Note, for all processes, that other programs write to this collection."""
        watch = self.watch(kind)
        watch.foreign = context.codec_of(kind).foreign = True
        watch.checked = context.now
        name = self._watch_name(kind)
        known = (await self.client.get([name], "adopt")).get(name)
        await self._record(kind, None if known is None else known.update_time, name)

    async def _reset(self, context: CallContext, kind: Kind) -> list[Any]:
        """Documents whose tracking another program set to null."""
        codec, found = context.codec_of(kind), {}
        for name in ("due_at", "status"):
            for document in await self.client.query(null_query(codec, name, PAGE), "adopt"):
                found[document.name] = document
        return list(found.values())

    async def _adopt(
        self, context: CallContext, kind: Kind, documents: Sequence[Any], *, first: bool
    ) -> tuple[int, dict[str, int]]:
        """Write the tracking fields; return how many, and how many by ``adopt=`` in each state."""
        writes, states = [], []
        for document in documents:
            try:
                write, state = self._tracked(context, kind, document, first=first)
            except BadRecord as error:
                self.watch(kind).refused[document.name] = str(error)
                continue
            writes.append(write)
            states.append(state)
        results = await self._write(kind, writes)
        written = [s for s, r in zip(states, results, strict=True) if r not in (None, LOCKED)]
        ruled = [state for state in written if state is not None]
        return len(written), {state: ruled.count(state) for state in ruled}

    async def _write(self, kind: Kind, writes: Sequence[Any]) -> list[Any]:
        try:
            return await self.client.each(writes, "adopt", skip_locked=True)
        except BadRecord as error:
            if len(writes) > 1:  # one of them is too large for its indexes
                return [r for w in writes for r in await self._write(kind, [w])]
            self.watch(kind).refused[writes[0].update.name] = str(error)
            return [None]

    def _is_complete(self, context: CallContext, kind: Kind, document: Any) -> bool:
        codec = context.codec_of(kind)
        due = document.fields.get(codec.column("due_at"))
        return is_tracked(document) and due is not None and due.HasField("timestamp_value")

    def _tracked(
        self, context: CallContext, kind: Kind, document: Any, *, first: bool
    ) -> tuple[Any, str | None]:
        """The write that adopts a document, and the state that ``adopt=`` gives it, if one does."""
        path = document.name[len(self.client.root) + 1 :]
        id = names.own_id(kind, path)
        if id is None:
            raise BadRecord(f"{path}: no record of {kind.table} can be there")
        codec, fields = context.codec_of(kind), document.fields
        state = self._first_state(kind, codec, document, id) if first else None
        more, mask = Document(), list[str]()
        tracking: dict[str, Any] = {
            "status": state or kind.initial,
            "attempts": 0,
            "fence": 0,
            "due_at": self._due_time(context, codec, document),
            "created_at": from_timestamp(document.create_time),
        }
        if kind.within is not None:
            tracking[kind.within] = names.parent_id(id)
        tracking = _derived(kind, codec, fields, id) | tracking
        for name in (*(n for n, _, _ in codec.columns), *kind.extras):
            column = codec.column(name)
            if column not in mask and not _is_valid(name, fields, column):
                default = codec.default(name) if name in kind.by_name else None
                mask += codec.put(more.fields, name, tracking.get(name, default))
        mask.extend(_put_orders(codec, fields, more.fields))
        more.fields[SHARD].integer_value = shard_of(id)
        whole = Document()
        whole.CopyFrom(document)
        whole.MergeFrom(more)
        check_size(kind, id, document.name, whole.fields)
        write = put_document(
            document.name, more, mask=[*mask, SHARD], update_time=document.update_time
        )
        return write, state

    def _first_state(self, kind: Kind, codec: Codec, document: Any, id: str) -> str | None:
        """The state that ``adopt=`` gives a document without a status."""
        if codec.column("status") in document.fields:
            return None
        values = codec.values(document.fields, id)
        return next((state for state, where in kind.adopt if matches(values, where)), None)

    def _due_time(self, context: CallContext, codec: Codec, document: Any) -> datetime:
        """When it is due: as another program wrote it, or since it was created.

        A document in a hold state is left to the program that holds it for a while.
        """
        fields = document.fields
        held = self.held_states.get(codec.kind.table, {})
        status = codec.column("status")
        if status in fields and fields[status].string_value in held:
            after = held[fields[status].string_value]
            since = lock_time(codec, document) or moved_at(codec, document, after)
            return since + age_of(codec.kind, after)
        given = time_in(fields, codec.column("due_at"))
        if given is not None:
            return given
        created = from_timestamp(document.create_time)
        if "created_at" in codec.kind.track:
            created = min(time_in(fields, codec.column("created_at")) or created, created)
        return min(created, context.now)

    # What is left

    async def unadopted(self, kind: Kind) -> Unadopted | None:
        """How many documents have no tracking fields, and some of them; None if all have.

        A nested collection of the same name elsewhere is not one of this kind.
        """
        if not kind.adopted:
            return None
        search = UntrackedSearch(self.client, kind, "unadopted")
        limit = _ROUND if kind.within is not None else _EXAMPLES
        found = await search.run(limit)
        own: list[str] = []
        elsewhere = 0
        for each in found.ranges:
            async for documents in search.read(each):
                for document in documents:
                    path = document.name[len(self.client.root) + 1 :]
                    if kind.within is not None and names.own_id(kind, path) is None:
                        elsewhere += 1
                    else:
                        own.append(path)
                if len(own) >= limit:
                    break
        count = found.untracked - elsewhere
        return Unadopted(kind.table, count, tuple(own[:_EXAMPLES])) if count > 0 else None


def _derived(kind: Kind, codec: Codec, fields: Any, id: str) -> dict[str, Any]:
    """The business fields of the record, as far as the declared model derives them from others."""
    values = codec.values(fields, id)
    if kind.within is not None:
        values[kind.within] = names.parent_id(id)
    try:
        record = kind.draft({n: v for n, v in values.items() if v is not None})
    except BadRecord:
        return {}
    return {field.name: getattr(record, field.name) for field in kind.fields}


def _is_valid(name: str, fields: Any, column: str) -> bool:
    """Whether a document has this field, and of tracking, whether a claim can work with it."""
    if column not in fields:
        return False
    type = fields[column].WhichOneof("value_type")
    if name == "status":
        return bool(type != "null_value")
    return name not in _VALID or bool(type == _VALID[name])


def _put_orders(codec: Codec, fields: Any, more: Any) -> Iterable[str]:
    """Add the companion fields by which decimals of another program are sorted."""
    for _, column, type in codec.columns:
        if type == "decimal" and column in fields and order_column(column) not in fields:
            value = decode("decimal", fields[column])
            order = None if value is None else _order(value)
            more[order_column(column)].CopyFrom(encode("text", order))
            yield order_column(column)


def _order(value: Any) -> str | None:
    try:
        return decimal_order(value)
    except (BadRecord, AttributeError, ValueError):
        return None
