"""Deletes old moves from the history, block by block, so that none is read twice in one sweep."""

from __future__ import annotations

from datetime import UTC, datetime

from esclusa.stores.postgres import history_months
from esclusa.stores.postgres.client import ConnectionPools

# Blocks of 8 KB that one statement reads: some ten thousand moves.
_BLOCKS = 256

_SIZE = "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::int"

# By the place of the rows: looking each up in an index costs ten times as much.
_DELETE = """WITH deleted AS (
    DELETE FROM {history} WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM {history}
        WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid
            AND at < $3 LIMIT $4
    )) RETURNING 1
) SELECT count(*) FROM deleted"""

# For databases without ctid.
_DELETE_BY_KEY = """WITH old AS MATERIALIZED (
    SELECT table_name, record_id, seq, at FROM {history} WHERE at < $1 LIMIT $2
), deleted AS (
    DELETE FROM {history} h USING old o
    WHERE h.table_name = o.table_name AND h.record_id = o.record_id AND h.seq = o.seq
        AND h.at = o.at
    RETURNING 1
) SELECT count(*) FROM deleted"""


class HistoryPruner:
    """Deletes moves older than a moment, a part at each call.

    A call goes on where the last one ended. An index by time would not help: vacuum gives the
    space of old moves to new ones, so that old and new ones soon share their blocks.
    """

    def __init__(self, connections: ConnectionPools) -> None:
        self._connections = connections
        # By table: the block to go on with, and the moment up to which all of it was read.
        self._next: dict[str, int] = {}
        self._done: dict[str, datetime] = {}

    async def prune(self, before: datetime, limit: int) -> int:
        """Delete moves older than that, up to ``limit``; return how many.

        Where the history is divided, whole months are dropped; a month is kept until all of it is
        old.
        """
        installation, deleted = self._connections.installation, 0
        if not await history_months.is_divided(self._connections):
            return await self._delete(installation.history, before, limit)
        await history_months.add_months(self._connections, datetime.now(UTC))
        deleted += await history_months.drop_months(self._connections, before)
        for name in ("history_before", "history_rest"):
            deleted += await self._delete(installation.system(name), before, limit)
        return deleted

    async def _delete(self, history: str, before: datetime, limit: int) -> int:
        fetch = self._connections.fetch
        if self._connections.installation.portable:
            rows = await fetch(_DELETE_BY_KEY.format(history=history), before, limit)
            return int(rows[0][0])
        block = self._next.get(history, 0)
        if not block and before <= self._done.get(history, datetime.min.replace(tzinfo=UTC)):
            return 0
        [size] = (await fetch(_SIZE, history))[0]
        statement, deleted = _DELETE.format(history=history), 0
        while block < size and deleted < limit:
            left = limit - deleted
            rows = await fetch(statement, block, block + _BLOCKS, before, left)
            deleted += rows[0][0]
            if rows[0][0] < left:
                block += _BLOCKS
        self._next[history] = block if block < size else 0
        if block >= size:
            self._done[history] = before
        return deleted
