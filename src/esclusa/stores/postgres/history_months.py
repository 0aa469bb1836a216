"""The history in partitions of a month, so that old months are dropped instead of deleted.

``history_before`` has what was written before the division, ``history_rest`` what fits no month.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from asyncpg import exceptions as pg

from esclusa.model.errors import SchemaRefused, StoreConflict
from esclusa.stores.postgres.client import ConnectionPools
from esclusa.stores.postgres.codec import literal
from esclusa.stores.postgres.limits import BESIDE_WRITERS_LIMITS, MIGRATION_LIMITS
from esclusa.stores.postgres.names import Installation, quote

# How many months after the present one have a partition.
AHEAD = 12
# A month that begins so soon is left to the old table: writers' clocks may be ahead.
_SOON = timedelta(days=2)
_BOUND = "history_before_until"
# As migration 0009 sets it for a history that is one table.
_VACUUM = """autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_limit = 2000"""

_IS_DIVIDED = "SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($1)"
_PARTITIONS = r"""SELECT c.relname, greatest(c.reltuples, 0)::bigint,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass($1) AND c.relname ~ '^history_\d{4}_\d\d$' ORDER BY 1"""
_GRANTS = """SELECT format('GRANT %s ON {table} TO %s', string_agg(g.privilege_type, ', '),
    CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END)
FROM pg_class c, aclexplode(c.relacl) g
WHERE c.oid = to_regclass($1) AND g.grantee <> c.relowner GROUP BY g.grantee"""


async def is_divided(connections: ConnectionPools) -> bool:
    """Whether the history is divided by month."""
    rows = await connections.fetch(_IS_DIVIDED, connections.installation.history)
    return bool(rows and rows[0][0])


async def divide(connections: ConnectionPools, now: datetime) -> list[str]:
    """Divide the history by month, or add the months to come; return what was done.

    The rows stay where they are: their table becomes the first partition. Writers wait for that
    moment only, a few milliseconds; before, the table is read once beside them.
    """
    installation = connections.installation
    if await is_divided(connections):
        added = await add_months(connections, now)
        return [f"create partition {name} of the history" for name in added]
    if installation.portable:
        raise SchemaRefused(
            "the history cannot be divided by month with the portable profile",
            ["set ESCLUSA_POSTGRES_PROFILE=native: it needs one transaction"],
        )
    first = _next_month(_next_month(now) if _next_month(now) - now < _SOON else now)
    connection = await connections.dedicated()
    try:
        await connection.execute(BESIDE_WRITERS_LIMITS.set_session)
        await _bound(connection, installation, first)
        await _attach(connection, installation, first)
    except pg.LockNotAvailableError as error:
        raise StoreConflict(f"the history is locked; try again: {error}") from error
    finally:
        await connection.close()
    return ["divide the history by month", *await add_months(connections, now)]


async def _bound(connection: Any, installation: Installation, first: datetime) -> None:
    """Prove, beside writers, that all rows are older, so that attaching need not read them."""
    history = installation.history
    await connection.execute(f"ALTER TABLE {history} DROP CONSTRAINT IF EXISTS {_BOUND}")
    await connection.execute(
        f"ALTER TABLE {history} ADD CONSTRAINT {_BOUND}"
        f" CHECK (at < {literal(first.isoformat())}) NOT VALID"
    )
    await connection.execute(f"ALTER TABLE {history} VALIDATE CONSTRAINT {_BOUND}")


async def _attach(connection: Any, installation: Installation, first: datetime) -> None:
    """Put a partitioned table in the place of the table, which becomes its first partition."""
    history, before = installation.history, installation.system("history_before")
    rest, sequence = installation.system("history_rest"), installation.system("history_seq")
    schema = quote(installation.schema)
    grants = await connection.fetch(_GRANTS.format(table=history), history)
    async with connection.transaction():
        await connection.execute(MIGRATION_LIMITS.set_local)
        await connection.execute(f"LOCK TABLE {history} IN ACCESS EXCLUSIVE MODE")
        next_seq = await connection.fetchval(
            "SELECT nextval(pg_get_serial_sequence($1, 'seq'))", history
        )
        await connection.execute(
            f"""ALTER TABLE {history} ALTER COLUMN seq DROP IDENTITY;
            ALTER TABLE {history} RENAME TO history_before;
            ALTER INDEX {schema}.history_record RENAME TO history_before_record;
            ALTER INDEX {schema}.history_at RENAME TO history_before_at;
            CREATE SEQUENCE {sequence} START {next_seq};
            CREATE TABLE {history} (LIKE {before}) PARTITION BY RANGE (at);
            ALTER TABLE {history} ALTER COLUMN seq SET DEFAULT nextval('{sequence}');
            ALTER SEQUENCE {sequence} OWNED BY {history}.seq;
            CREATE INDEX history_record ON {history} (table_name, record_id, seq);
            CREATE INDEX history_at ON {history} USING brin (at);
            ALTER TABLE {history} ATTACH PARTITION {before}
                FOR VALUES FROM (MINVALUE) TO ({literal(first.isoformat())});
            ALTER TABLE {before} DROP CONSTRAINT {_BOUND};
            CREATE TABLE {rest} PARTITION OF {history} DEFAULT WITH ({_VACUUM});
            {installation.mark_statement(history)}; {installation.mark_statement(rest)}"""
        )
        for (grant,) in grants:
            await connection.execute(grant)
            if "INSERT" in grant:
                role = grant.rpartition(" TO ")[2]
                await connection.execute(f"GRANT USAGE ON SEQUENCE {sequence} TO {role}")


async def add_months(connections: ConnectionPools, now: datetime) -> list[str]:
    """Create the partitions of the months to come; return their names.

    What is missing is not an error: such rows go to ``history_rest``.
    """
    installation = connections.installation
    rows = await connections.fetch(_PARTITIONS, installation.history)
    names = {row[0] for row in rows}
    added, month = [], _next_month(now - timedelta(days=31))
    for _ in range(AHEAD + 2):
        following, name = _next_month(month), f"history_{month:%Y_%m}"
        if name not in names:
            ident = installation.system(name)
            bounds = f"FROM ({literal(month.isoformat())}) TO ({literal(following.isoformat())})"
            statement = (
                f"CREATE TABLE {ident} PARTITION OF {installation.history} FOR VALUES {bounds}"
                f" WITH ({_VACUUM});"
                f" {installation.mark_statement(ident)}"
            )
            if await _changed(connections, statement):
                added.append(name)
        month = following
    return added


async def drop_months(connections: ConnectionPools, before: datetime) -> int:
    """Drop the months that ended before then; return about how many rows they had."""
    dropped = 0
    installation = connections.installation
    for name, rows, until in await connections.fetch(_PARTITIONS, installation.history):
        is_old = until is not None and until <= before
        if is_old and await _changed(connections, f"DROP TABLE {installation.system(name)}"):
            dropped += int(rows)
    return dropped


async def _changed(connections: ConnectionPools, statement: str) -> bool:
    """Whether a change could be made: the range is free, the lock too, and the role may."""

    async def run(connection: Any) -> None:
        await connection.execute(statement)

    try:
        await connections.transaction(run, retry_locks=False)
    except (
        StoreConflict,
        pg.InsufficientPrivilegeError,
        pg.InvalidObjectDefinitionError,  # it overlaps with history_before
        pg.CheckViolationError,  # history_rest has rows of that month
        pg.DuplicateTableError,
    ):
        return False
    return True


def _next_month(moment: datetime) -> datetime:
    """Return the begin of the month after this moment."""
    first = moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=32)).replace(day=1)
