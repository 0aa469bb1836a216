"""Tables as they are in the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from esclusa.model.errors import SchemaError
from esclusa.stores.postgres.codec import Table

_COLUMNS = """
SELECT n.name, a.attname, format_type(a.atttypid, -1), c.relkind::text, a.attnotnull,
    CASE WHEN y.typtype = 'e' THEN ARRAY(
        SELECT enumlabel::text FROM pg_enum WHERE enumtypid = y.oid
    ) END,
    CASE WHEN y.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 END,
    a.atthasdef OR a.attidentity <> ''
FROM unnest($1::text[]) AS n(name)
JOIN pg_class c ON c.oid = to_regclass(n.name)
JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_type y ON y.oid = a.atttypid
WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY n.name, a.attnum"""

_INDEXES = """
SELECT n.name, c.relname, i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL,
    ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1]))
FROM unnest($1::text[]) AS n(name)
JOIN pg_index i ON i.indrelid = to_regclass(n.name)
JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indisvalid"""


@dataclass
class ExistingTable:
    """A table as it is in the database."""

    # Types by column.
    columns: dict[str, str] = field(default_factory=dict)
    # What it is, as in `pg_class`.
    relkind: str = "r"
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
        name, column, type, relkind, not_null, enum, length, default = row
        table = tables.setdefault(name, ExistingTable(relkind=relkind))
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


async def archived_columns(connection: Any, table: Table) -> list[str]:
    """Return every column of a table, declared or not; SchemaError if its archive lacks one."""
    archive = f"archive.{table.ident}"
    found = await introspect(connection, [table.ident, archive])
    columns, archived = (found.get(n, ExistingTable()).columns for n in (table.ident, archive))
    missing = [name for name in (*columns, *table.archive_columns) if name not in archived]
    if missing:
        raise SchemaError(
            f"archive.{table.name}", [f"it lacks {', '.join(missing)}; run: esclusa migrate"]
        )
    return [name for name in columns if name not in table.archive_columns]
