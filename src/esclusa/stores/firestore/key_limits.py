"""Claims of stages that limit how many records of one key are held at once.

A claim reads a document with the turns of its keys, then what is held and due of each. It takes
records of a key in a commit that also raises the turn, and fails if another claim did meanwhile.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from esclusa.model.errors import StoreConflict
from esclusa.model.key_limits import MOST_KEYS, KeyCandidates, KeyLimit, divide, in_cycle
from esclusa.model.query import Cond, Order, Query, not_null, null
from esclusa.model.settlement import ClaimRequest
from esclusa.stores.firestore import names, queries
from esclusa.stores.firestore.client import LOCKED, FirestoreClient
from esclusa.stores.firestore.codec import Codec, Document, Value
from esclusa.stores.firestore.errors import PreconditionFailed
from esclusa.stores.firestore.found import FoundDocument
from esclusa.stores.firestore.writes import put_document

# How many documents have the turns of a stage. Keys with the same one are claimed one at a time.
_PARTS = 512
# A claim with no more due records than it has places, and these, looks at all of them.
_MORE = 10
# How many keys a claim reads at the same time.
_AT_A_TIME = 8


@dataclass(slots=True)
class Turns:
    """The document with the turns of some keys, as it was read. None: it does not exist yet."""

    name: str
    turn: int = 0
    update_time: Any = None

    def raised(self) -> Any:
        """The write that raises the turn, unless another claim did."""
        document = Document(fields={"turn": Value(integer_value=self.turn + 1)})
        return put_document(self.name, document, update_time=self.update_time, exists=False)


@dataclass(slots=True)
class DocumentsByKey:
    """Reads what one claim may take of each key.

    ``candidates`` returns the documents that a claim may take now. ``turn``: the key behind which
    the next claim begins.
    """

    client: FirestoreClient
    codec: Codec
    request: ClaimRequest
    per: KeyLimit
    candidates: Callable[[ClaimRequest, int], Awaitable[list[FoundDocument]]]
    turn: Any = None

    async def choose(self, after: Any) -> list[tuple[Turns, list[FoundDocument]]]:
        """What the claim takes: the keys in turn behind ``after``, those of one document together.

        Their turns are read first, so that nothing that is read later can be older.
        """
        self.turn = after
        most = self.request.limit + _MORE
        due = await self.candidates(self.request, most)
        if len(due) < most or self.request.ids:
            by_key = defaultdict[Any, list[FoundDocument]](list)
            for found in due:
                by_key[found.values[self.per.field]].append(found)
            turns = await self._turns(list(by_key))
            read = await self._in_parts(list(by_key), lambda key: self._read(key, by_key[key]))
            candidates = in_cycle([each for each, _ in read], after)
        else:
            turns, read = await self._walk(after)
            candidates = [each for each, _ in read]
        documents = {found.id: found for _, due in read for found in due}
        shares = divide(candidates, self.per.at_once, self.request.limit)
        if shares:
            self.turn = shares[-1].key
        parts = defaultdict[str, list[FoundDocument]](list)
        for share in shares:
            parts[self._name(share.key)] += [documents[id] for id in share.ids]
        return [(turns[name], chosen) for name, chosen in parts.items()]

    async def _walk(
        self, after: Any
    ) -> tuple[dict[str, Turns], list[tuple[KeyCandidates, list[FoundDocument]]]]:
        """Read the keys behind ``after``, then those up to it, until enough may be taken."""
        turns: dict[str, Turns] = {}
        read: list[tuple[KeyCandidates, list[FoundDocument]]] = []
        open_keys, seen, wrapped, last = 0, 0, after is None, after
        begun = after is not None
        while seen < MOST_KEYS and open_keys < self.request.limit:
            keys: list[Any] = []
            while len(keys) < _AT_A_TIME:
                found = await self._next(last, begun)
                if found is None and not wrapped:
                    wrapped, begun = True, False
                    continue
                if found is None:
                    break
                last, begun = found[0], True
                keys.append(last)
                if last == after:
                    break
            if not keys:
                break
            seen += len(keys)
            self.turn = last
            turns = await self._turns(keys) | turns
            part = await self._in_parts(keys, self._read_key)
            open_keys += sum(bool(each.allowed(self.per.at_once)) for each, _ in part)
            read += part
            if last == after or len(keys) < _AT_A_TIME:
                break
        return turns, read

    async def _next(self, last: Any, begun: bool) -> tuple[Any] | None:
        query = next_key_query(self.request, self.per, last, begun=begun)
        found = await queries.first(self.client, self.codec, query, 1, "claim")
        return (found[0].values[self.per.field],) if found else None

    async def _read_key(self, key: Any) -> tuple[KeyCandidates, list[FoundDocument]]:
        where = (*self.request.where, key_condition(self.per, key))
        request = replace(self.request, where=where)
        limit = min(self.request.limit, self.per.at_once)
        found, due = await self._read(key, await self.candidates(request, limit))
        if found.held <= len(found.orphans):
            return found, due
        known = {each.id for each in due}
        orphans = [each for each in await self._orphans(request) if each.id not in known]
        ids = [each.id for each in orphans]
        return replace(found, orphans=[*found.orphans, *ids]), [*due, *orphans]

    async def _orphans(self, request: ClaimRequest) -> list[FoundDocument]:
        """The records of a key whose lease has ended. Those without a holder may be due earlier."""
        most = self.per.at_once
        if request.hold is not None:
            found = await self.candidates(replace(request, take=(request.hold,)), most)
            return [each for each in found if each.values["leased_by"] is not None]
        held = Query(request.kind, (_in_stage(request), *request.where, ("leased_by", not_null)))
        leased = await queries.first(self.client, self.codec, held, most, "claim")
        ids = tuple(each.id for each in leased)
        return await self.candidates(replace(request, ids=ids), most) if ids else []

    async def _read(
        self, key: Any, due: list[FoundDocument]
    ) -> tuple[KeyCandidates, list[FoundDocument]]:
        query = held_query(self.request, self.per, key)
        prepared = queries.prepare(self.codec, query, self.client.root)
        most = self.per.at_once + len(due)
        held = await queries.count(self.client, self.codec, prepared, most, "claim")
        orphans = [found.id for found in due if found.values["leased_by"] is not None]
        fresh = [found.id for found in due if found.values["leased_by"] is None]
        return KeyCandidates(key, held, orphans, fresh), due

    async def _in_parts(
        self,
        keys: Sequence[Any],
        read: Callable[[Any], Awaitable[tuple[KeyCandidates, list[FoundDocument]]]],
    ) -> list[tuple[KeyCandidates, list[FoundDocument]]]:
        out: list[tuple[KeyCandidates, list[FoundDocument]]] = []
        for n in range(0, len(keys), _AT_A_TIME):
            out += await asyncio.gather(*(read(key) for key in keys[n : n + _AT_A_TIME]))
        return out

    async def _turns(self, keys: Sequence[Any]) -> dict[str, Turns]:
        wanted = sorted({self._name(key) for key in keys})
        stored = await self.client.get(wanted, "claim")
        return {
            name: Turns(name, found.fields["turn"].integer_value, found.update_time)
            if (found := stored.get(name)) is not None
            else Turns(name)
            for name in wanted
        }

    def _name(self, key: Any) -> str:
        part = zlib.crc32(repr(key).encode()) % _PARTS
        return f"{self.client.root}/{names.KEY_TURNS}/{self.request.stage}:{part}"


async def take(
    client: FirestoreClient, turns: Turns, units: Mapping[str, list[Any]]
) -> dict[str, Any]:
    """Write the claims of some documents with their turn; return the results, by document.

    Another claim of these keys: none is written. A document that another client has locked is
    LOCKED, and the others are written.
    """
    try:
        return await _commit(client, turns, units)
    except PreconditionFailed:
        return {}
    except StoreConflict:
        results: dict[str, Any] = {}
    for name, unit in units.items():
        try:
            results |= await _commit(client, turns, {name: unit})
        except PreconditionFailed:
            break
        except StoreConflict:
            results[name] = LOCKED
    return results


async def _commit(
    client: FirestoreClient, turns: Turns, units: Mapping[str, list[Any]]
) -> dict[str, Any]:
    writes = [turns.raised(), *(write for unit in units.values() for write in unit)]
    raised, *written = await client.commit(writes, "claim", bounded=True)
    turns.turn, turns.update_time = turns.turn + 1, raised.update_time
    results, at = {}, 0
    for name, unit in units.items():
        results[name] = written[at]
        at += len(unit)
    return results


def key_condition(per: KeyLimit, key: Any) -> tuple[str, Cond]:
    """The test of a record's key."""
    return per.field, null if key is None else Cond("eq", key)


def next_key_query(request: ClaimRequest, per: KeyLimit, last: Any, *, begun: bool) -> Query:
    """The first record of the key behind ``last``; of the very first key if not ``begun``."""
    behind = not_null if last is None else Cond("gt", last)
    where = (_in_stage(request), *request.where, *(((per.field, behind),) if begun else ()))
    return Query(request.kind, where, (Order(per.field),))


def held_query(request: ClaimRequest, per: KeyLimit, key: Any) -> Query:
    """The records of a key that have a holder."""
    held = (("leased_by", not_null),)
    return Query(request.kind, (_in_stage(request), *request.where, key_condition(per, key), *held))


def _in_stage(request: ClaimRequest) -> tuple[str, Cond]:
    states = request.take if request.hold is None else (*request.take, request.hold)
    return "status", Cond("in", states)
