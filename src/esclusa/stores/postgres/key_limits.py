"""Which records a claim takes when its stage limits how many of one key are held at once.

Two statements: one reads what is held and due of several keys, with their turns. The claim then
locks the turns that are still the same and raises them, so no other claim has taken records of
these keys between the two. Nothing waits: a key that another claim is at is left out.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

from esclusa.model.key_limits import (
    LOOKED_AT,
    MOST_KEYS,
    KeyCandidates,
    KeyLimit,
    divide,
    in_cycle,
)
from esclusa.model.query import Order
from esclusa.model.settlement import ClaimRequest, Leased
from esclusa.model.value import value
from esclusa.stores.postgres.candidates import candidates
from esclusa.stores.postgres.client import ConnectionPools
from esclusa.stores.postgres.codec import Table, literal
from esclusa.stores.postgres.statements import (
    ROW_LOCK,
    Binder,
    Statement,
    constant_condition,
    in_states,
    order_by,
)

# How many rows of turns a stage has, a power of 2. Keys with the same row are claimed one at a
# time.
_PARTS = 512
# How often a claim that lost its keys to other claims tries again, and the longest pause before.
_ATTEMPTS, _PAUSE = 4, 0.02
# A recursion needs one collation.
_NO_IDS = """'{}'::text[] COLLATE "C\""""


@value
class KeyTurns:
    """The turns of the keys that a claim takes records of, as they were read: by part."""

    stage: str
    per: KeyLimit
    turns: dict[int, int]

    def locked(self, table: Table, request: ClaimRequest, binder: Binder) -> tuple[str, str]:
        """Return the expressions that lock and raise the turns, and the test of a row's key."""
        own = f"k.stage = {literal(self.stage)}"
        parts = binder.add(list(self.turns), "bigint[]")
        turns = binder.add(list(self.turns.values()), "bigint[]")
        rows = table.installation.key_turns
        locked = f"""turns AS MATERIALIZED (
            SELECT k.part FROM {rows} k
            JOIN unnest({parts}, {turns}) AS w(part, turn) ON k.part = w.part AND k.turn = w.turn
            WHERE {own} {ROW_LOCK} OF k SKIP LOCKED
        ),
        raised AS (
            UPDATE {rows} k SET turn = k.turn + 1 FROM turns WHERE {own} AND k.part = turns.part
        ),
        """
        return locked, f"{_part(key_expr(table, self.per))} IN (SELECT part FROM turns)"


def key_expr(table: Table, limit: KeyLimit, alias: str = "t") -> str:
    """Return the key as text that is never null, the same in indexes and in queries."""
    value = table.columns[limit.field].expr(alias)
    return f"""(COALESCE('1' || ({value})::text, '0') COLLATE "C")"""


def _part(key: str) -> str:
    return f"(hashtext({key}) & {_PARTS - 1})"


@dataclass(slots=True)
class KeyLimitedClaims:
    """Claims of stages with a limit per key. ``claim`` claims records by their ids and turns."""

    connections: ConnectionPools
    rng: Random = field(default_factory=Random)
    # By stage: the key behind which the next claim begins. A stage in it has its turns.
    after: dict[str, str] = field(default_factory=dict)

    async def claim(
        self,
        table: Table,
        request: ClaimRequest,
        per: KeyLimit,
        offset: timedelta,
        claim: Callable[[ClaimRequest, KeyTurns], Awaitable[list[Leased]]],
    ) -> list[Leased]:
        if request.stage not in self.after:
            await self._make_turns(table, request.stage)
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(self.rng.uniform(0, _PAUSE))
            ids, turns = await self._choose(table, request, per, offset)
            if not ids:
                return []
            chosen = replace(request, ids=ids, limit=len(ids))
            if leases := await claim(chosen, KeyTurns(request.stage, per, turns)):
                return leases
        return []

    async def _make_turns(self, table: Table, stage: str) -> None:
        await self.connections.fetch(
            f"""INSERT INTO {table.installation.key_turns} (stage, part)
            SELECT $1, n FROM generate_series(0, {_PARTS - 1}) n ON CONFLICT DO NOTHING""",
            stage,
        )
        self.after[stage] = ""

    async def _choose(
        self, table: Table, request: ClaimRequest, per: KeyLimit, offset: timedelta
    ) -> tuple[tuple[str, ...], dict[int, int]]:
        """Return the ids of the records to take, and the turns of their keys."""
        stage, after = request.stage, self.after[request.stage]
        statement, values = few_keys_statement(table, request, per, offset)
        rows = await self.connections.claim(statement, *values)
        few = rows[0]["due"] < LOOKED_AT or bool(request.ids)
        if few:
            rows = [row for row in rows if row["key"] is not None]
        else:
            statement, values = walk_statement(table, request, per, offset, after)
            rows = await self.connections.claim(statement, *values)
            self.after[stage] = rows[-1]["key"] if rows else ""
        found = [
            KeyCandidates(r["key"], r["held"], r["orphans"] or (), r["fresh"] or ()) for r in rows
        ]
        shares = divide(in_cycle(found, after) if few else found, per.at_once, request.limit)
        if shares:
            self.after[stage] = shares[-1].key
        taken = {share.key for share in shares}
        turns = {row["part"]: row["turn"] for row in rows if row["key"] in taken}
        return tuple(id for share in shares for id in share.ids), turns


class _KeyQueries:
    """The parts of statements that read what a claim may take of a key."""

    def __init__(
        self, table: Table, request: ClaimRequest, per: KeyLimit, offset: timedelta
    ) -> None:
        self.table, self.request = table, request
        self.binder = Binder(offset)
        self.rows = f"{table.ident} t"
        self.key = key_expr(table, per)
        self.id = table.id.read()
        self.order = order_by(table, request.order or (Order("due_at"),))
        self.due = " AND ".join(candidates(table, request, self.binder))
        states = request.take if request.hold is None else (*request.take, request.hold)
        tests = [constant_condition(table, name, cond) for name, cond in request.where]
        self.in_stage = " AND ".join([in_states(table, states), *tests])
        self.holder = f"t.{table.columns['leased_by'].ident}"
        self.at_once = self.binder.add(per.at_once, "bigint")
        self.limit = self.binder.add(request.limit, "bigint")

    def held(self, key: str) -> str:
        return f"""(SELECT count(*) FROM {self.rows}
            WHERE {self.in_stage} AND {self.holder} IS NOT NULL AND {self.key} = {key})"""

    def ids(self, key: str, test: str, most: str) -> str:
        return f"""ARRAY(SELECT {self.id} COLLATE "C" FROM {self.rows}
            WHERE {self.due} AND {self.holder} {test} AND {self.key} = {key}
            ORDER BY {self.order} LIMIT greatest(0, least({most}, {self.limit})))"""

    def turns(self, key: str) -> str:
        """Join the turns of the keys."""
        return f"""LEFT JOIN {self.table.installation.key_turns} p
            ON p.stage = {literal(self.request.stage)} AND p.part = {_part(key)}"""


def few_keys_statement(
    table: Table, request: ClaimRequest, per: KeyLimit, offset: timedelta
) -> Statement:
    """Select what the claim may take of each key that is due, if few records are.

    ``due`` is their number, in every row; there is always one.
    """
    q = _KeyQueries(table, request, per, offset)
    most = "NULL" if request.ids else str(LOOKED_AT)
    enough = "true" if request.ids else f"c.due < {LOOKED_AT}"
    return (
        f"""WITH due AS MATERIALIZED (
            SELECT {q.key} AS key, {q.id} AS id, {q.holder} IS NOT NULL AS orphan,
                row_number() OVER (ORDER BY {q.order}) AS place
            FROM {q.rows} WHERE {q.due} ORDER BY {q.order} LIMIT {most}
        )
        SELECT c.due, k.key, k.orphans, k.fresh[1:{q.limit}::integer] AS fresh,
            CASE WHEN k.key IS NOT NULL THEN {q.held("k.key")} END AS held, p.part, p.turn
        FROM (SELECT count(*) AS due FROM due) c
        LEFT JOIN LATERAL (
            SELECT key, array_agg(id ORDER BY place) FILTER (WHERE orphan) AS orphans,
                array_agg(id ORDER BY place) FILTER (WHERE NOT orphan) AS fresh
            FROM due WHERE {enough} GROUP BY key
        ) k ON true
        {q.turns("k.key")}
        WHERE {q.at_once} > 0""",
        q.binder.values,
    )


def walk_statement(
    table: Table, request: ClaimRequest, per: KeyLimit, offset: timedelta, after: str
) -> Statement:
    """Select what the claim may take of the keys behind ``after``, then of those up to it.

    The recursion goes from one key to the next in the index, until enough keys are found.
    """
    q = _KeyQueries(table, request, per, offset)
    begin = q.binder.add(after, "text")
    next_key = f"SELECT {q.key} AS key, {{wrapped}} AS wrapped FROM {q.rows} WHERE {q.in_stage}"
    by_key = f"ORDER BY {q.key} LIMIT 1"
    behind, first = next_key.format(wrapped="w.wrapped"), next_key.format(wrapped="true")
    return (
        f"""WITH RECURSIVE w(key, wrapped, held, orphans, fresh, found, place) AS (
            SELECT {begin} COLLATE "C", false, 0::bigint, {_NO_IDS}, {_NO_IDS}, 0, 0
            UNION ALL
            SELECT n.key, n.wrapped, h.held, i.orphans, i.fresh,
                w.found + (cardinality(i.orphans) + cardinality(i.fresh) > 0)::integer, w.place + 1
            FROM w
            CROSS JOIN LATERAL (
                ({behind} AND {q.key} > w.key {by_key})
                UNION ALL
                ({first} AND NOT w.wrapped AND {begin} <> '' {by_key})
                LIMIT 1
            ) n
            CROSS JOIN LATERAL {q.held("n.key").replace("count(*)", "count(*) AS held", 1)} h
            CROSS JOIN LATERAL (SELECT
                CASE WHEN h.held = 0 THEN {_NO_IDS}
                    ELSE {q.ids("n.key", "IS NOT NULL", "h.held")} END AS orphans,
                CASE WHEN h.held >= {q.at_once} THEN {_NO_IDS}
                    ELSE {q.ids("n.key", "IS NULL", f"{q.at_once} - h.held")} END AS fresh
            ) i
            WHERE w.found < {q.limit} AND w.place < {MOST_KEYS}
                AND NOT (w.wrapped AND w.key = {begin}) AND NOT (n.wrapped AND n.key > {begin})
        )
        SELECT w.key, w.held, w.orphans, w.fresh, p.part, p.turn
        FROM w {q.turns("w.key")} WHERE w.place > 0 ORDER BY w.place""",
        q.binder.values,
    )
