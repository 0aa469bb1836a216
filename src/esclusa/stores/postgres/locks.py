"""Find the rows that other sessions have locked, and who has."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from esclusa.model.effects import Create
from esclusa.model.kind import Kind
from esclusa.model.settlement import Settlement
from esclusa.model.texts import Text, text
from esclusa.model.value import value
from esclusa.stores.isolate import LockTimeout
from esclusa.stores.postgres.client import ConnectionPools
from esclusa.stores.postgres.codec import Table, literal
from esclusa.stores.postgres.statements import ROW_LOCK

_HOLDER = """concat_ws(', ', 'pid ' || a.pid, nullif(a.application_name, ''), a.usename,
    a.state || coalesce(' for ' || extract(epoch FROM now() - a.state_change)::bigint || ' s', ''))
"""
_BLOCKERS = (
    f"SELECT a.pid, {_HOLDER} FROM pg_stat_activity a WHERE a.pid = ANY(pg_blocking_pids($1))"
)
# Between two statements, a worker's session is idle for a moment.
_IS_BUSY = """a.application_name = {worker}
    AND (a.state = 'active' OR a.state_change > now() - interval '0.5 s')"""


@value
class Lock:
    """Why a settlement cannot be written now. ``by_worker``: a busy worker will release it soon."""

    why: Text
    by_worker: bool


async def find_locks(
    connections: ConnectionPools,
    table_of: Callable[[Kind], Table],
    settlements: Sequence[Settlement],
) -> dict[int, Lock]:
    """Return the settlements that touch a locked row or table, by their index.

    A settlement touches its own record and the targets of its effects, and the tables of new ones.
    """
    refs: defaultdict[str, set[str]] = defaultdict(set)
    kinds: dict[str, Kind] = {}
    touched: list[set[tuple[str, str | None]]] = []
    for settlement in settlements:
        touches: set[tuple[str, str | None]] = set()
        for kind, id in _touched(settlement):
            kinds[kind.table] = kind
            touches |= {(kind.table, None), (kind.table, id)}
            if id is not None:
                refs[kind.table].add(id)
        touched.append(touches)
    locks: dict[tuple[str, str | None], Lock] = {}
    for name, kind in sorted(kinds.items()):
        locks |= await _locks_of(connections, table_of(kind), sorted(refs[name]))
    found = (
        (n, next((locks[t] for t in sorted(touches, key=str) if t in locks), None))
        for n, touches in enumerate(touched)
    )
    return {n: lock for n, lock in found if lock is not None}


def _touched(settlement: Settlement) -> list[tuple[Kind, str | None]]:
    touched: list[tuple[Kind, str | None]] = [(settlement.ref.kind, settlement.ref.id)]
    for effect in settlement.effects:
        if isinstance(effect, Create):
            touched.append((effect.record.kind, None))
        else:
            touched.append((effect.kind, effect.id))
    return touched


async def _locks_of(
    connections: ConnectionPools, table: Table, ids: Sequence[str]
) -> Mapping[tuple[str, str | None], Lock]:
    """Return the locks of these rows, or of the whole table, by table and id."""

    async def run(connection: Any) -> list[Any]:
        await connection.execute(f"LOCK TABLE {table.ident} IN ROW EXCLUSIVE MODE")
        rows: list[Any] = await connection.fetch(_locked_rows(table), table.possible_ids(ids))
        return rows

    try:
        rows = await connections.transaction(run, retry_locks=False)
    except LockTimeout:
        return {(table.name, None): Lock(text("table_locked", table=table.name), False)}
    return {
        (table.name, id): Lock(text("row_locked", table=table.name, id=id, holder=holder), worker)
        for id, holder, worker in rows
    }


def _locked_rows(table: Table) -> str:
    """Select the rows that another session has locked, who it is, and whether a busy worker."""
    wanted = f"t.{table.id.ident} = ANY({table.id_array('$1::text[]')})"
    is_busy = _IS_BUSY.format(worker=literal(table.installation.application))
    return f"""WITH free AS MATERIALIZED (
        SELECT t.{table.id.ident} AS id FROM {table.ident} t WHERE {wanted} {ROW_LOCK} SKIP LOCKED
    )
    SELECT {table.id.read()}, COALESCE(NULLIF({_HOLDER}, ''), 'another session'),
        COALESCE({is_busy}, false)
    FROM {table.ident} t
    LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = t.xmax AND l.granted
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE {wanted} AND t.{table.id.ident} NOT IN (SELECT id FROM free)"""


async def blockers(connections: ConnectionPools, pid: int) -> dict[int, str]:
    """Return for which sessions a session waits: by pid, who they are."""
    return dict(await connections.fetch(_BLOCKERS, pid))
