"""Steps of a migration."""

from __future__ import annotations

import re

from esclusa.model.migration import MigrationStep
from esclusa.stores.postgres.names import Installation


def create_table(
    installation: Installation, ident: str, body: str, table: str = "", options: str = ""
) -> MigrationStep:
    """Return the step that creates a table and marks it as made by this installation."""
    sql = f"CREATE TABLE {ident} ({body}){options};\n{installation.mark_statement(ident)}"
    return MigrationStep(f"create table {shown(ident)}", sql, table)


def shown(ident: str) -> str:
    """Return an identifier as people write it."""
    return ident.replace('"', "")


# What a statement that ran already is turned into, so that it can be run again.
_REPEATABLE = (
    (re.compile(r"^CREATE (TABLE|SCHEMA) "), r"CREATE \1 IF NOT EXISTS "),
    (re.compile(r"^CREATE( UNIQUE)? INDEX( CONCURRENTLY)? "), r"CREATE\1 INDEX\2 IF NOT EXISTS "),
    (re.compile(r"^CREATE FUNCTION "), "CREATE OR REPLACE FUNCTION "),
    (re.compile(r"\bADD COLUMN "), "ADD COLUMN IF NOT EXISTS "),
    (re.compile(r"(?s)^(INSERT INTO .*)$"), r"\1 ON CONFLICT DO NOTHING"),
)
_PART = re.compile(r"(?s)(?:\$(\w*)\$.*?\$\1\$|--[^\n]*|[^;])+")


def repeatable(sql: str) -> list[str]:
    """Return the statements of a step, each to be run outside a transaction, and twice if need be.

    A migration that ends early between two of them is continued by the next.
    """
    parts = (re.sub(r"(?m)^--.*\n?", "", found[0]).strip() for found in _PART.finditer(sql))
    statements = []
    for part in filter(None, parts):
        for pattern, replacement in _REPEATABLE:
            part = pattern.sub(replacement, part)  # noqa: PLW2901
        statements.append(part)
    return statements
