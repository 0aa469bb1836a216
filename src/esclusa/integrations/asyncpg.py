"""Insert records on an asyncpg connection, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.stores.host_inserts import HostStatement, execute_async
from esclusa.stores.postgres.host_inserts import insertions
from esclusa.stores.postgres.names import SCHEMA


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, or one that its pool gave out."""

    async def fetch(self, query: str, /, *args: Any) -> Any: ...


async def insert(
    connection: AsyncpgConnection, records: Sequence[Record], *, schema: str = SCHEMA
) -> list[Inserted | Duplicate]:
    """Add records; a known key is left as it is. Workers learn of them when it is committed.

    ``schema``: ``ESCLUSA_POSTGRES_SCHEMA`` of the workers. Raises BadRecord before anything is sent
    if a value cannot be stored, and asyncpg's own errors.
    """

    async def run(statement: HostStatement) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = await connection.fetch(statement.sql, *statement.values)
        return rows

    return await execute_async(insertions(records, lambda n: f"${n}", schema), run)
