"""Steps of a migration."""

from __future__ import annotations

from esclusa.model.migration import MigrationStep
from esclusa.stores.postgres.names import Installation


def create_table(
    installation: Installation, ident: str, body: str, table: str = ""
) -> MigrationStep:
    """Return the step that creates a table and marks it as made by this installation."""
    sql = f"CREATE TABLE {ident} ({body});\n{installation.mark_statement(ident)}"
    return MigrationStep(f"create table {shown(ident)}", sql, table)


def shown(ident: str) -> str:
    """Return an identifier as people write it."""
    return ident.replace('"', "")
