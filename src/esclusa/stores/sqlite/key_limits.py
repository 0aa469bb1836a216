"""Which records a claim takes when its stage limits how many of one key are held at once.

Called inside the claim's write transaction, which excludes other claims.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from esclusa.model.key_limits import (
    LOOKED_AT,
    MOST_KEYS,
    KeyCandidates,
    KeyLimit,
    Share,
    divide,
    in_cycle,
)
from esclusa.model.kind import Kind
from esclusa.model.query import Order
from esclusa.model.settlement import ClaimRequest
from esclusa.model.stage import Stage
from esclusa.stores.sqlite.claim_statements import claim_candidates, claim_predicate
from esclusa.stores.sqlite.statements import (
    expr,
    index,
    json_expr,
    order_by,
    order_terms,
    quote,
    table_of,
    time_expr,
)


def key_indexes(stage: Stage) -> dict[str, str]:
    """Return the indexes of a stage with a limit per key: of its records by key, of those held."""
    limit = stage.key_limit
    if limit is None:
        return {}
    predicate = claim_predicate(stage.kind, stage.states, stage.where)
    return dict(
        (
            _waiting_index(stage.kind, limit, stage.order, predicate),
            _held_index(stage.kind, limit, predicate),
        )
    )


def _waiting_index(
    kind: Kind, limit: KeyLimit, order: tuple[Order, ...], predicate: str
) -> tuple[str, str]:
    terms = order_terms(kind, order) or [time_expr(kind, "due_at")]
    columns = [_key(kind, limit), *terms, quote(kind.id_column)]
    return index(kind, "keys", columns, f" WHERE {predicate}")


def _held_index(kind: Kind, limit: KeyLimit, predicate: str) -> tuple[str, str]:
    held = f"{quote(kind.track['leased_by'])} IS NOT NULL"
    return index(kind, "held", [_key(kind, limit)], f" WHERE {predicate} AND {held}")


def _key(kind: Kind, limit: KeyLimit) -> str:
    key = expr(kind, limit.field)
    return f"CAST({key} AS TEXT)" if kind.attached and kind.types[limit.field] == "text" else key


class RowsByKey:
    """Reads what one claim may take of each key.

    ``turn``: the key behind which the next claim begins.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        request: ClaimRequest,
        limit: KeyLimit,
        now: str,
        indexes: frozenset[str],
    ) -> None:
        kind = request.kind
        self._connection = connection
        self._request = request
        self._limit = limit
        self._now = now
        self._indexes = indexes
        self._key = _key(kind, limit)
        states = request.take if request.hold is None else (*request.take, request.hold)
        self._predicate = claim_predicate(kind, states, request.where)
        self._waiting = _waiting_index(kind, limit, request.order, self._predicate)[0]
        self._held = _held_index(kind, limit, self._predicate)[0]
        holder = quote(kind.track["leased_by"])
        self._is_free, self._is_held = f"{holder} IS NULL", f"{holder} IS NOT NULL"
        order = order_by(request)
        self._order = order if request.order else f"{time_expr(kind, 'due_at')}, {order}"

    def shares(self, after: Any) -> list[Share]:
        """Return what the claim takes, the keys in turn behind ``after``."""
        at_once, left, keys = self._limit.at_once, self._request.limit, self._few_keys()
        self.turn, found = after, list[KeyCandidates]()
        if keys is not None:
            found = in_cycle([self._candidates(key) for key in keys], after)
        else:
            for key in self._walk(after):
                self.turn = key
                found.append(self._candidates(key))
                left -= bool(found[-1].allowed(at_once))
                if left == 0:
                    break
        shares = divide(found, at_once, self._request.limit)
        if shares:
            self.turn = shares[-1].key
        return shares

    def _few_keys(self) -> list[Any] | None:
        """The keys of all records that are due; None if those are many."""
        source, values = claim_candidates(self._request, self._now, self._indexes)
        most = -1 if self._request.ids else LOOKED_AT
        rows = list(
            self._connection.execute(f"SELECT {self._key} FROM {source} LIMIT ?", [*values, most])
        )
        return None if len(rows) == most else list(dict.fromkeys(key for (key,) in rows))

    def _walk(self, after: Any) -> Iterator[Any]:
        """Yield the keys behind ``after``, then those up to it, from one to the next."""
        source = f"{table_of(self._request.kind)}{self._using(self._waiting)}"
        first = f"SELECT {self._key} FROM {source} WHERE {self._predicate}"
        end = f" ORDER BY {self._key} LIMIT 1"
        key, wrapped = after, after is None
        rows = list(self._connection.execute(first + end)) if wrapped else self._next(first, key)
        for _ in range(MOST_KEYS):
            if not rows and not wrapped:
                wrapped = True
                rows = list(self._connection.execute(first + end))
            if not rows:
                return
            [(key,)] = rows
            yield key
            if key == after:
                return
            rows = self._next(first, key)

    def _next(self, first: str, key: Any) -> list[Any]:
        test = "IS NOT NULL" if key is None else "> ?"
        values = [] if key is None else [key]
        return list(
            self._connection.execute(
                f"{first} AND {self._key} {test} ORDER BY {self._key} LIMIT 1", values
            )
        )

    def _candidates(self, key: Any) -> KeyCandidates:
        at_once = self._limit.at_once
        [(held,)] = self._connection.execute(
            f"""SELECT COUNT(*) FROM {table_of(self._request.kind)}{self._using(self._held)}
            WHERE {self._predicate} AND {self._is_held} AND {self._key} IS ?""",
            (key,),
        )
        orphans = self._due(key, self._is_held, held, self._held) if held else []
        fresh = (
            self._due(key, self._is_free, at_once - held, self._waiting) if held < at_once else []
        )
        return KeyCandidates(key, held, orphans, fresh)

    def _due(self, key: Any, test: str, limit: int, using: str) -> list[str]:
        source, values = claim_candidates(self._request, self._now, self._indexes, using=using)
        limit = min(limit, self._request.limit)
        rows = self._connection.execute(
            f"""SELECT {json_expr(self._request.kind, "id")} FROM {source}
            AND {test} AND {self._key} IS ? ORDER BY {self._order} LIMIT ?""",
            [*values, key, limit],
        )
        return [id for (id,) in rows]

    def _using(self, name: str) -> str:
        return f" INDEXED BY {quote(name)}" if name in self._indexes else ""
