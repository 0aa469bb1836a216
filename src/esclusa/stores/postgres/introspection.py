"""Tables as they are in the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from esclusa.model.errors import SchemaError, SchemaRefused
from esclusa.model.record import Kind
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.names import Installation, maker

_COLUMNS = """
SELECT w.name, a.attname, format_type(a.atttypid, -1), c.relkind::text, a.attnotnull,
    CASE WHEN y.typtype = 'e' THEN ARRAY(
        SELECT enumlabel::text FROM pg_enum WHERE enumtypid = y.oid
    ) END,
    CASE WHEN y.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 END,
    a.atthasdef OR a.attidentity <> '', obj_description(c.oid, 'pg_class'),
    n.nspname
FROM unnest($1::text[]) AS w(name)
JOIN pg_class c ON c.oid = to_regclass(w.name)
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_type y ON y.oid = a.atttypid
WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY w.name, a.attnum"""

_INDEXES = """
SELECT n.name, c.relname, i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL,
    ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1]))
FROM unnest($1::text[]) AS n(name)
JOIN pg_index i ON i.indrelid = to_regclass(n.name)
JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indisvalid"""

# Which of these schemas has the table first.
_FIRST_SCHEMA = """
SELECT DISTINCT ON (c.relname) c.relname::text, p.schema
FROM unnest($2::text[]) WITH ORDINALITY AS p(schema, number)
JOIN pg_namespace n ON n.nspname = p.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = ANY($1::text[])
ORDER BY c.relname, p.number"""

# The tables of these names and their comments.
_MADE = """
SELECT n.nspname || '.' || c.relname, obj_description(c.oid, 'pg_class')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ANY($1::text[]) AND c.relkind IN ('r', 'p') AND n.nspname <> $2
ORDER BY 1"""


@dataclass
class ExistingTable:
    """A table as it is in the database."""

    # Types by column.
    columns: dict[str, str] = field(default_factory=dict)
    # What it is, as in `pg_class`.
    relkind: str = "r"
    schema: str = ""
    # The schema of the installation that created it; None if another program did.
    made_by: str | None = None
    # Values of the columns that have an enumerated type.
    enums: dict[str, list[str]] = field(default_factory=dict)
    # Declared lengths of text columns.
    lengths: dict[str, int] = field(default_factory=dict)
    not_null: set[str] = field(default_factory=set)
    # Columns that the table fills where an insert does not.
    defaults: set[str] = field(default_factory=set)
    indexes: set[str] = field(default_factory=set)
    # Columns of each unique index that covers the whole table.
    unique: list[frozenset[str]] = field(default_factory=list)


async def introspect(connection: Any, names: Iterable[str]) -> dict[str, ExistingTable]:
    """Return the existing tables of these (quoted) names, as the search path finds them."""
    wanted = list(dict.fromkeys(names))
    tables: dict[str, ExistingTable] = {}
    for row in await connection.fetch(_COLUMNS, wanted):
        name, column, type, relkind, not_null, enum, length, default, comment, schema = row
        made = ExistingTable(relkind=relkind, schema=schema, made_by=maker(comment))
        table = tables.setdefault(name, made)
        table.columns[column] = type
        if not_null:
            table.not_null.add(column)
        if enum is not None:
            table.enums[column] = enum
        if length is not None:
            table.lengths[column] = length
        if default:
            table.defaults.add(column)
    for name, index, unique, columns in await connection.fetch(_INDEXES, wanted):
        if name in tables:
            tables[name].indexes.add(index)
            if unique:
                tables[name].unique.append(frozenset(columns))
    return tables


async def business_schemas(
    connection: Any, installation: Installation, kinds: Sequence[Kind]
) -> dict[Kind, str]:
    """Return the schemas of business tables, if the search path also has that of system tables.

    The path of the role ``esclusa`` has: it begins with the schema of the role's name.
    """
    setting, role, path = await connection.fetchrow(
        "SELECT current_setting('search_path'), current_user::text, current_schemas(false)::text[]"
    )
    named = [name.strip(' "').replace("$user", role) for name in setting.split(",")]
    if installation.schema not in named:  # also if the schema does not exist yet
        return {}
    business = [schema for schema in path if schema != installation.schema]
    if not business:
        what = f"the search path has only {installation.schema}, the schema of system tables"
        raise SchemaRefused(what, ["add a schema for business tables to it"])
    tables = [kind.table for kind in kinds if not kind.system]
    found = dict(await connection.fetch(_FIRST_SCHEMA, tables, business))
    return {kind: found.get(kind.table, business[0]) for kind in kinds if not kind.system}


async def made_elsewhere(
    connection: Any, installation: Installation, tables: Sequence[str]
) -> list[str]:
    """Return tables of this installation outside the search path, which has none of these names."""
    rows = await connection.fetch(_MADE, list(tables), installation.archive_schema)
    return [name for name, comment in rows if maker(comment) == installation.schema]


async def archived_columns(connection: Any, table: Table) -> list[str]:
    """Return every column of a table, declared or not; SchemaError if its archive lacks one."""
    pair = (table.ident, table.archive)
    found = await introspect(connection, pair)
    columns, archived = (found.get(name, ExistingTable()).columns for name in pair)
    missing = [name for name in (*columns, *table.archive_columns) if name not in archived]
    if missing:
        raise SchemaError(
            f"table {table.archive}", [f"it lacks {', '.join(missing)}; run: esclusa migrate"]
        )
    return [name for name in columns if name not in table.archive_columns]
