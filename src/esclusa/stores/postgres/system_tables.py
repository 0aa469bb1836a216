"""The system tables: the schema that has them, and their versioned migrations."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from esclusa.model.errors import MigrationError, SchemaRefused
from esclusa.model.migration import MigrationStep
from esclusa.stores.postgres.carry_over import EarlierTables, earlier_tables
from esclusa.stores.postgres.codec import literal
from esclusa.stores.postgres.names import Installation, maker, quote
from esclusa.stores.postgres.steps import create_table

_EXISTING = """
SELECT c.relname, obj_description(c.oid, 'pg_class')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = ANY($2::text[])"""

# Who may use a new schema by default, besides the role that creates it.
_DEFAULT_GRANTEES = """
SELECT DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
FROM pg_default_acl d, aclexplode(d.defaclacl) g
WHERE d.defaclobjtype = 'n' AND g.grantee <> d.defaclrole
    AND d.defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user)"""

_MIGRATIONS = """
    number bigint PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
"""


def migration_files() -> list[tuple[int, str, str]]:
    """Return the migrations of the system tables: number, name, text with ``{schema}``."""
    folder = resources.files("esclusa.stores.postgres.migrations")
    named = sorted(f.name for f in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", f.name))
    return [(int(name[:4]), name, (folder / name).read_text(encoding="utf-8")) for name in named]


async def schema_step(connection: Any, schema: str) -> list[MigrationStep]:
    """Return the step that creates a schema, unless it exists; only its owner may use it."""
    found, allowed, name, role = await connection.fetchrow(
        """SELECT to_regnamespace(quote_ident($1)) IS NOT NULL,
            CASE WHEN to_regnamespace(quote_ident($1)) IS NOT NULL
                THEN has_schema_privilege($1, 'USAGE') END,
            quote_ident($1), quote_ident(current_user)""",
        schema,
    )
    if found and not allowed:
        raise SchemaRefused(
            f"the role {role} may not use the schema {name}",
            [f"let a DBA run: GRANT USAGE, CREATE ON SCHEMA {name} TO {role};"],
        )
    if found:
        return []
    others = [row[0] for row in await connection.fetch(_DEFAULT_GRANTEES)]
    grantees = ", ".join(["PUBLIC", *(each for each in others if each != "PUBLIC")])
    return [
        MigrationStep(
            f"create schema {schema}",
            f"CREATE SCHEMA {quote(schema)};\nREVOKE ALL ON SCHEMA {quote(schema)} FROM {grantees}",
            help=f"let a DBA run: CREATE SCHEMA {name} AUTHORIZATION {role};",
        )
    ]


@dataclass(frozen=True)
class SystemPlan:
    """What the system tables lack, and what an earlier version made."""

    steps: list[MigrationStep]
    earlier: EarlierTables


async def plan_system(
    connection: Any, installation: Installation, tables: Iterable[str], *, archives: bool
) -> SystemPlan:
    """Return what the system tables lack. ``tables``: those of the system records.

    ``archives``: archive tables are needed, too. Raises SchemaRefused if another program or
    installation made one of the system tables.
    """
    steps = await schema_step(connection, installation.schema)
    files = {number: (name, text) for number, name, text in migration_files()}
    created = {number: _tables_of(text) for number, (_, text) in files.items()}
    names = {
        installation.system(table): installation.name(table)
        for table in ("migrations", *tables, *(t for each in created.values() for t in each))
    }
    existing = dict(await connection.fetch(_EXISTING, installation.schema, sorted(names.values())))
    _refuse_others(installation, existing)
    checksums = {n: hashlib.sha256(text.encode()).hexdigest() for n, (_, text) in files.items()}
    earlier = await earlier_tables(connection, installation, checksums)
    archive = f"{quote(installation.archive_schema)}."
    if archives or any(ident.startswith(archive) for ident in earlier.marked):
        steps += await schema_step(connection, installation.archive_schema)
    if "migrations" not in existing:
        done = earlier.applied
        steps += earlier.steps or [create_table(installation, installation.migrations, _MIGRATIONS)]
    elif earlier.applied:
        raise SchemaRefused(
            f"the schema {installation.schema} has system tables already, and the search path has"
            " others, of an earlier version",
            ["to carry those over as another installation, set another ESCLUSA_POSTGRES_SCHEMA"],
        )
    else:
        rows = await connection.fetch(f"SELECT * FROM {installation.migrations} ORDER BY number")
        _check_applied(rows, checksums)
        done = [row["number"] for row in rows]
    for number, (name, text) in sorted(files.items()):
        if number in done:
            continue
        source = text.strip().replace("{schema}", quote(installation.schema))
        marks = [installation.mark_statement(installation.system(t)) for t in created[number]]
        row = f"({number}, {literal(name)}, {literal(checksums[number])})"
        record = f"INSERT INTO {installation.migrations} (number, name, checksum) VALUES {row}"
        sql = ";\n".join([source.removesuffix(";"), *marks, record])
        steps.append(MigrationStep(f"run migration {name}", sql))
    return SystemPlan(steps, earlier)


def _tables_of(text: str) -> list[str]:
    """Return the tables that a migration creates."""
    return re.findall(r"CREATE TABLE \{schema\}\.(\w+)", text)


def _refuse_others(installation: Installation, existing: dict[str, str | None]) -> None:
    faults = [
        fault
        for table, comment in sorted(existing.items())
        if (fault := installation.refusal(installation.system(table), maker(comment)))
    ]
    if faults:
        help = "rename it, or set ESCLUSA_POSTGRES_SCHEMA to a schema without such a table"
        raise SchemaRefused(
            f"the schema {installation.schema} is not free", [f"{each}; {help}" for each in faults]
        )


def _check_applied(applied: Iterable[Any], checksums: dict[int, str]) -> None:
    for row in applied:
        name = row["name"]
        if row["number"] not in checksums:
            raise MigrationError(
                f"the schema has migration {name}, which this program does not know: it is"
                " newer; use a newer version of Esclusa"
            )
        if row["checksum"] != checksums[row["number"]]:
            raise MigrationError(
                f"migration {name} was edited after it ran on {row['applied_at']:%Y-%m-%d};"
                " restore the file and write a new one"
            )
