"""Steps of a migration."""

from __future__ import annotations

from dataclasses import dataclass

from esclusa.stores.postgres.names import Installation


@dataclass(frozen=True)
class MigrationStep:
    """Statements of a migration that run together, and a summary for people.

    ``help``: what to do if the role may not run them.
    """

    summary: str
    sql: str
    help: str = "let a role that may change the schema run what `esclusa migrate --sql` prints"


def create_table(installation: Installation, ident: str, body: str) -> MigrationStep:
    """Return the step that creates a table and marks it as made by this installation."""
    sql = f"CREATE TABLE {ident} ({body});\n{installation.mark_statement(ident)}"
    return MigrationStep(f"create table {shown(ident)}", sql)


def shown(ident: str) -> str:
    """Return an identifier as people write it."""
    return ident.replace('"', "")
