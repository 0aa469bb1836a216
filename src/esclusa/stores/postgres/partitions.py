"""Partitions of another program's table, made by its own function."""

from __future__ import annotations

from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.columns import PARTITION_CALL
from esclusa.model.errors import StoreConflict
from esclusa.stores.postgres.client import ConnectionPools, error_message
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.limits import LONG_LIMITS
from esclusa.stores.postgres.names import quote

_FUNCTION = "SELECT to_regprocedure($1) IS NOT NULL"
# The first zone in which every partition begins with a month: bounds are times with a zone.
_ZONE = r"""WITH bounds AS (
    SELECT (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\)'))[1]
        ::timestamptz AS first
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1)
)
SELECT z.name FROM {zones} z(name, place)
WHERE NOT EXISTS (
    SELECT 1 FROM bounds b
    WHERE date_trunc('month', b.first AT TIME ZONE z.name) <> b.first AT TIME ZONE z.name
) ORDER BY z.place LIMIT 1"""
_USUAL = "(VALUES (current_setting('TimeZone'), 1), ('UTC', 2))"
_ALL = "(SELECT name, name FROM pg_timezone_names)"


async def make_partitions(connections: ConnectionPools, table: Table) -> None:
    """Call the function in a session of the zone in which the existing partitions begin.

    In another zone the new ones would overlap with those.
    """
    found = PARTITION_CALL.match(table.kind.partitions)
    assert found is not None
    name, numbers = found[1], found[2] or ""
    types = ", ".join("integer" for _ in filter(None, numbers.split(",")))

    async def run(connection: Any) -> None:
        if not await connection.fetchval(_FUNCTION, f"{quote(name)}({types})"):
            return
        zone = await connection.fetchval(_ZONE.format(zones=_USUAL), table.ident)
        zone = zone or await connection.fetchval(_ZONE.format(zones=_ALL), table.ident)
        if zone is not None:
            await connection.fetchval("SELECT set_config('TimeZone', $1, true)", zone)
        await connection.fetch(f"SELECT {quote(name)}({numbers})")

    try:
        await connections.transaction(run, limits=LONG_LIMITS)
    except (pg.PostgresError, pg.InterfaceError) as error:
        raise StoreConflict(
            f"{name} could not make the partitions of {table.name}: {error_message(error)}"
        ) from error
