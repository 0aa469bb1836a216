"""Insert records on a psycopg connection, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from esclusa.extras import with_advice
from esclusa.model.record import Record
from esclusa.model.settlement import Duplicate, Inserted
from esclusa.stores.host_inserts import HostStatement, execute, execute_async
from esclusa.stores.postgres.host_inserts import insertions
from esclusa.stores.postgres.names import SCHEMA

try:
    from psycopg import AsyncConnection, Connection
except ModuleNotFoundError as error:
    raise with_advice(error) from None


def insert(
    connection: Connection[Any], records: Sequence[Record], *, schema: str = SCHEMA
) -> list[Inserted | Duplicate]:
    """Add records; a known key is left as it is. Workers learn of them when it is committed.

    ``schema``: ``ESCLUSA_POSTGRES_SCHEMA`` of the workers. Raises BadRecord before anything is sent
    if a value cannot be stored, and psycopg's own errors.
    """

    def run(statement: HostStatement) -> Sequence[Sequence[Any]]:
        with connection.cursor(row_factory=_plain) as cursor:
            cursor.execute(statement.sql.encode(), statement.values)
            return cursor.fetchall()

    return execute(insertions(records, _placeholder, schema), run)


async def insert_async(
    connection: AsyncConnection[Any], records: Sequence[Record], *, schema: str = SCHEMA
) -> list[Inserted | Duplicate]:
    """The same on an async connection."""

    async def run(statement: HostStatement) -> Sequence[Sequence[Any]]:
        async with connection.cursor(row_factory=_plain) as cursor:
            await cursor.execute(statement.sql.encode(), statement.values)
            return await cursor.fetchall()

    return await execute_async(insertions(records, _placeholder, schema), run)


def _plain(cursor: Any) -> Any:
    """Rows as tuples, whatever the connection's row factory is."""
    return tuple


def _placeholder(number: int) -> str:
    return "%s"
