"""The trigger with which a table notifies workers of what other programs write."""

from __future__ import annotations

from typing import Any

from esclusa.model.migration import MigrationStep
from esclusa.stores.postgres.codec import Table, literal
from esclusa.stores.postgres.names import quote

_EXISTS = """SELECT EXISTS (SELECT 1 FROM pg_trigger
WHERE tgrelid = to_regclass($1) AND tgname = $2 AND NOT tgisinternal)"""


async def trigger_steps(
    connection: Any, table: Table, foreign: bool
) -> tuple[list[MigrationStep], list[MigrationStep]]:
    """Return the steps that create the trigger, and those that drop one that is not wanted."""
    kind = table.kind
    if not kind.attached and not kind.track.notify:
        return [], []
    name = f"{table.installation.schema}_notify"
    exists = await connection.fetchval(_EXISTS, table.ident, name)
    wanted = kind.track.notify and not table.installation.portable
    if exists is wanted:
        return [], []
    if exists:
        drop = f"DROP TRIGGER IF EXISTS {quote(name)} ON {table.ident}"
        return [], [MigrationStep(f"drop trigger {name}", drop, table.name, foreign)]
    create = f"{_function(table)};\n{_trigger(table, name)}"
    return [MigrationStep(f"create trigger {name}", create, table.name, foreign)], []


def _function(table: Table) -> str:
    return f"""CREATE OR REPLACE FUNCTION {quote(table.installation.schema)}.notify_workers()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_catalog.pg_notify(TG_ARGV[0], TG_ARGV[1]);
    RETURN NULL;
END $$"""


def _trigger(table: Table, name: str) -> str:
    """Return the statement for the trigger.

    Esclusa's own sessions are left out: every claim would wake all workers, which would claim.
    """
    own, channel = table.installation.application, table.installation.channel
    return f"""CREATE TRIGGER {quote(name)} AFTER INSERT OR UPDATE ON {table.ident}
FOR EACH STATEMENT WHEN (current_setting('application_name') IS DISTINCT FROM {literal(own)})
EXECUTE FUNCTION {quote(table.installation.schema)}.notify_workers(
    {literal(channel)}, {literal(table.name)})"""
