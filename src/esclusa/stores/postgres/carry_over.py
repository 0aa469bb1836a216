"""Carry over the tables of version 0.1.0, which were all in the search path.

Its system tables move into the schema of the installation, and the tables that it made are marked.
It is known by its migrations.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from esclusa.model.columns import TRACKING
from esclusa.model.errors import SchemaRefused
from esclusa.model.migration import MigrationStep
from esclusa.stores.postgres.codec import literal, literals
from esclusa.stores.postgres.introspection import ExistingTable
from esclusa.stores.postgres.names import Installation, quote

# Its migrations, by number.
_CHECKSUMS = {
    1: "ea064604e4ec7f22520fc94edd936eba485988b6e113c4ccc3df960c622d35be",
    2: "6a283563b599369647c2fd35527de0ffec61932ec69d6d467bd6683486fd80e4",
}
# Its system tables, and what they are called now.
_MIGRATIONS = "esclusa_migrations"
_ENGINE = {f"esclusa_{name}": name for name in ("migrations", "history", "budgets", "leases")}
_RECORDS = {
    "dead_letters": "dead_letters",
    "worker_runs": "runs",
    "archive_exports": "exports",
    **{
        f"esclusa_{name}": name
        for name in (
            "outbox",
            "cycles",
            "workers",
            "rates",
            "alerts",
            "audit",
            "calls",
            "ended_sessions",
        )
    },
}
# System records that have another name now, as history and leases have it.
RENAMED_RECORDS = {
    "dead_letters": "esclusa_dead_letters",
    "worker_runs": "esclusa_runs",
    "archive_exports": "esclusa_exports",
}

# Where its migrations are.
_SCHEMA = """SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1) AND c.relkind = 'r'
    AND 2 = (
        SELECT count(*) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname IN ('number', 'checksum')
    )"""
_APPLIED = "SELECT number, checksum FROM {table} ORDER BY number"

# The tables that it made, in these schemas: theirs begin with the id and the tracking, in order.
_MADE = """SELECT n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname = ANY($1::text[]) AND obj_description(c.oid, 'pg_class') IS NULL
    AND $2::text[] = ARRAY(
        SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum BETWEEN 2 AND $3 ORDER BY a.attnum
    )
ORDER BY 1, 2"""

_ARCHIVES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname = 'archive' AND c.relname = ANY($1::text[])
    AND obj_description(c.oid, 'pg_class') IS NULL
    AND 2 = (
        SELECT count(*) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname IN ('archived_at', 'export_id')
    )
ORDER BY 1"""

# Indexes and sequences of these tables.
_PARTS = """SELECT t.relname, c.relname, c.relkind::text
FROM pg_class t
JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_depend d ON d.refobjid = t.oid
JOIN pg_class c ON c.relkind = 'S' AND c.oid = d.objid AND d.deptype = 'i'
WHERE n.nspname = $1 AND t.relname = ANY($2::text[])
UNION SELECT t.relname, c.relname, c.relkind::text
FROM pg_class t
JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_index i ON i.indrelid = t.oid
JOIN pg_class c ON c.oid = i.indexrelid
WHERE n.nspname = $1 AND t.relname = ANY($2::text[])
ORDER BY 1, 2"""

# Who else has rights on these tables.
_GRANTEES = """
SELECT c.relname, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) g
WHERE n.nspname = $1 AND c.relname = ANY($2::text[]) AND g.grantee <> c.relowner
GROUP BY 1, 2 ORDER BY 1, 2"""

# Who gets rights on a new table in this schema by default.
_DEFAULT_GRANTEES = """
SELECT DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
FROM pg_default_acl d, aclexplode(d.defaclacl) g
WHERE d.defaclobjtype = 'r' AND g.grantee <> d.defaclrole
    AND d.defaclnamespace IN (0, to_regnamespace(quote_ident($1)))
    AND d.defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user)
ORDER BY 1"""


@dataclass
class EarlierTables:
    """What an earlier version made, and the step that carries it over."""

    # The numbers of its migrations.
    applied: list[int] = field(default_factory=list)
    # The identifiers that tables have now, by those that they get.
    moved: dict[str, str] = field(default_factory=dict)
    # The identifiers of business and archive tables that it made.
    marked: set[str] = field(default_factory=set)
    steps: list[MigrationStep] = field(default_factory=list)


async def earlier_tables(
    connection: Any, installation: Installation, checksums: dict[int, str]
) -> EarlierTables:
    """Return what an earlier version made. ``checksums``: of the present migrations."""
    schema = await connection.fetchval(_SCHEMA, _MIGRATIONS)
    if schema is None:
        return EarlierTables()
    source = f"{quote(schema)}.{quote(_MIGRATIONS)}"
    rows = await connection.fetch(_APPLIED.format(table=source))
    if not rows or any(_CHECKSUMS.get(number) != checksum for number, checksum in rows):
        raise SchemaRefused(
            f"table {schema}.{_MIGRATIONS}",
            ["it has a migration that no earlier version of Esclusa had; rename the table"],
        )
    if schema == installation.schema:
        raise SchemaRefused(
            f"the tables of an earlier version are in the schema {schema}",
            ["set ESCLUSA_POSTGRES_SCHEMA to another name, to which its system tables move"],
        )
    applied = [row[0] for row in rows]
    path = await connection.fetchval("SELECT current_schemas(false)::text[]")
    tracking = list(TRACKING)
    made = [tuple(r) for r in await connection.fetch(_MADE, path, tracking, 1 + len(tracking))]
    system = _ENGINE | _RECORDS
    tables = {old: new for old, new in _ENGINE.items() if old != "esclusa_leases" or 2 in applied}
    tables |= {old: new for old, new in _RECORDS.items() if (schema, old) in made}
    business = [(s, table) for s, table in made if (s, table) not in {(schema, t) for t in system}]
    statements = await _moves(connection, installation, schema, tables)
    statements += _renames(installation, tables)
    statements += [
        f"UPDATE {installation.migrations} SET checksum = {literal(checksums[number])}"
        f" WHERE number = {number}"
        for number in applied
    ]
    moved = {
        installation.system(new): f"{quote(schema)}.{quote(old)}" for old, new in tables.items()
    }
    marked = {f"{quote(s)}.{quote(table)}" for s, table in business}
    for (table,) in await connection.fetch(_ARCHIVES, [table for _, table in business]):
        archive, was = installation.archive(table), f'"archive".{quote(table)}'
        marked.add(archive)
        if archive != was:
            moved[archive] = was
            target = quote(installation.archive_schema)
            statements.append(f"ALTER TABLE {was} SET SCHEMA {target}")
    statements += [installation.mark_statement(ident, earlier_ids=True) for ident in sorted(marked)]
    statements += await _end_earlier_programs(connection, installation, schema)
    step = MigrationStep(f"move system tables from {schema}", ";\n".join(statements))
    return EarlierTables(applied, moved, marked, [step])


async def _moves(
    connection: Any, installation: Installation, schema: str, tables: dict[str, str]
) -> list[str]:
    """Return the statements that move tables with their indexes, and end the rights of others."""
    statements = []
    target = quote(installation.schema)
    parts = await connection.fetch(_PARTS, schema, list(tables))
    grantees = await connection.fetch(_GRANTEES, schema, list(tables))
    for old, new in tables.items():
        ident = installation.system(new)
        statements.append(f"ALTER TABLE {quote(schema)}.{quote(old)} SET SCHEMA {target}")
        if old != new:
            statements.append(f"ALTER TABLE {target}.{quote(old)} RENAME TO {quote(new)}")
        is_record = old in _RECORDS
        statements.append(installation.mark_statement(ident, earlier_ids=is_record))
        statements += [f"REVOKE ALL ON {ident} FROM {who}" for t, who in grantees if t == old]
        statements += [
            f"ALTER {'SEQUENCE' if kind == 'S' else 'INDEX'} {target}.{quote(name)}"
            f" RENAME TO {quote(_renamed(name, old, new))}"
            for table, name, kind in parts
            if table == old and _renamed(name, old, new) != name
        ]
    return statements


def _renamed(name: str, old: str, new: str) -> str:
    """Return the name of an index or sequence after its table was renamed."""
    return new + name.removeprefix(old) if name.startswith(f"{old}_") else name


def _renames(installation: Installation, tables: dict[str, str]) -> list[str]:
    """Return the statements that give system records their present names."""
    named = " ".join(
        f"WHEN {literal(old)} THEN {literal(new)}" for old, new in RENAMED_RECORDS.items()
    )
    return [
        f"UPDATE {installation.system(table)} SET table_name = CASE table_name {named} END"
        f" WHERE table_name IN ({literals(RENAMED_RECORDS)})"
        for table in ("history", "leases")
        if table in tables.values()
    ]


async def _end_earlier_programs(
    connection: Any, installation: Installation, schema: str
) -> list[str]:
    """Return the statements that keep an earlier program from making its tables again.

    It finds a migration that it does not know, says that the schema is newer, and ends.
    """
    view = f"{quote(schema)}.{quote(_MIGRATIONS)}"
    name = f"system tables are in the schema {installation.schema} now"
    statements = [
        f"""CREATE VIEW {view} AS SELECT 9999::bigint AS number, {literal(name)}::text AS name,
    ''::text AS checksum, now() AS applied_at""",
        f"COMMENT ON VIEW {view} IS {literal(installation.mark)}",
    ]
    grantees = await connection.fetch(_DEFAULT_GRANTEES, schema)
    return statements + [f"REVOKE ALL ON {view} FROM {who}" for (who,) in grantees]


def as_moved(table: ExistingTable, source: str, target: str) -> None:
    """Give what was read of a table the schema and the index names that it has after it moved."""
    (_, _, old), (schema, _, new) = (
        ident.replace('"', "").rpartition(".") for ident in (source, target)
    )
    table.schema = schema
    table.indexes = {_renamed(name, old, new) for name in table.indexes}
