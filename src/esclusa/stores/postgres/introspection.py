"""Tables as they are in the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from esclusa.model.errors import SchemaError, SchemaRefused
from esclusa.model.kind import Kind
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.names import Installation, has_earlier_ids, maker

_TABLES = """
SELECT n.name, s.nspname, c.relkind::text, c.relpersistence::text,
    row_security_active(c.oid), row_security_active(c.oid) AND NOT EXISTS (
        SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid AND p.polpermissive
            AND p.polcmd IN ('*', 'r') AND (0 = ANY(p.polroles) OR EXISTS (
                SELECT 1 FROM unnest(p.polroles) r WHERE r <> 0 AND pg_has_role(r, 'USAGE')))),
    ARRAY(SELECT a.attname::text FROM pg_partitioned_table p
        JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = ANY(p.partattrs)
        WHERE p.partrelid = c.oid),
    ARRAY(SELECT ARRAY[ps.nspname, pc.relname]::text[]
        FROM pg_partition_tree(c.oid) t JOIN pg_class pc ON pc.oid = t.relid
        JOIN pg_namespace ps ON ps.oid = pc.relnamespace
        WHERE t.isleaf AND c.relkind = 'p' AND pc.relkind = 'r' ORDER BY 1),
    obj_description(c.oid, 'pg_class')
FROM unnest($1::text[]) AS n(name)
JOIN pg_class c ON c.oid = to_regclass(n.name)
JOIN pg_namespace s ON s.oid = c.relnamespace"""

_COLUMNS = """
SELECT n.name, a.attname, format_type(a.atttypid, -1), a.attnotnull,
    CASE WHEN y.typtype = 'e' THEN ARRAY(
        SELECT enumlabel::text FROM pg_enum WHERE enumtypid = y.oid ORDER BY enumsortorder
    ) END,
    CASE WHEN y.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 END,
    CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END,
    a.attgenerated <> '', a.attidentity <> '',
    col_description(a.attrelid, a.attnum)
FROM unnest($1::text[]) AS n(name)
JOIN pg_attribute a ON a.attrelid = to_regclass(n.name)
JOIN pg_type y ON y.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY n.name, a.attnum"""

_INDEXES = """
SELECT n.name, c.relname, i.indisvalid,
    i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL,
    ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1])),
    obj_description(i.indexrelid, 'pg_class')
FROM unnest($1::text[]) AS n(name)
JOIN pg_index i ON i.indrelid = to_regclass(n.name)
JOIN pg_class c ON c.oid = i.indexrelid"""

_CHECKS = """
SELECT n.name, k.conname, pg_get_expr(k.conbin, k.conrelid),
    ARRAY(SELECT a.attname::text FROM pg_attribute a
        WHERE a.attrelid = k.conrelid AND a.attnum = ANY(k.conkey))
FROM unnest($1::text[]) AS n(name)
JOIN pg_constraint k ON k.conrelid = to_regclass(n.name)
WHERE k.contype = 'c' ORDER BY k.conname"""


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


@dataclass(frozen=True)
class CheckConstraint:
    """A CHECK of a table: its expression, and the columns that it reads."""

    name: str
    expr: str
    columns: tuple[str, ...]


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
    # Whether version 0.1.0 made its ids, which are not changed yet.
    earlier_ids: bool = False
    unlogged: bool = False
    # Whether row security limits what this role sees.
    row_security: bool = False
    # Whether no policy lets it see any row.
    rows_hidden: bool = False
    partition_key: tuple[str, ...] = ()
    # Schema and name of the partitions that hold rows.
    partitions: tuple[tuple[str, str], ...] = ()
    # Values of the columns that have an enumerated type.
    enums: dict[str, list[str]] = field(default_factory=dict)
    # Declared lengths of text columns.
    lengths: dict[str, int] = field(default_factory=dict)
    not_null: set[str] = field(default_factory=set)
    # Columns that the table fills where an insert does not; the expression, "" for an identity.
    defaults: dict[str, str] = field(default_factory=dict)
    # Columns that the table computes.
    generated: set[str] = field(default_factory=set)
    # Comments on columns and indexes.
    comments: dict[str, str] = field(default_factory=dict)
    index_comments: dict[str, str] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)
    # Indexes whose building ended early.
    invalid_indexes: set[str] = field(default_factory=set)
    # Columns of each unique index that covers the whole table.
    unique: list[frozenset[str]] = field(default_factory=list)
    checks: list[CheckConstraint] = field(default_factory=list)

    @property
    def fills(self) -> dict[str, str]:
        """The defaults of the columns that cannot be null."""
        return {c: expr for c, expr in self.defaults.items() if expr and c in self.not_null}


async def introspect(connection: Any, names: Iterable[str]) -> dict[str, ExistingTable]:
    """Return the existing tables of these (quoted) names, as the search path finds them."""
    wanted = list(dict.fromkeys(names))
    tables: dict[str, ExistingTable] = {}
    for row in await connection.fetch(_TABLES, wanted):
        name, schema, relkind, kept, secured, hidden, key, parts, comment = row
        tables[name] = ExistingTable(
            made_by=maker(comment),
            earlier_ids=has_earlier_ids(comment),
            relkind=relkind,
            schema=schema,
            unlogged=kept == "u",
            row_security=secured,
            rows_hidden=hidden,
            partition_key=tuple(key),
            partitions=tuple((schema, name) for schema, name in parts),
        )
    for row in await connection.fetch(_COLUMNS, wanted):
        _add_column(tables[row[0]], *row[1:])
    for name, index, valid, unique, columns, comment in await connection.fetch(_INDEXES, wanted):
        table = tables[name]
        if not valid:
            table.invalid_indexes.add(index)
            continue
        table.indexes.add(index)
        if comment is not None:
            table.index_comments[index] = comment
        if unique:
            table.unique.append(frozenset(columns))
    for name, check, expr, columns in await connection.fetch(_CHECKS, wanted):
        tables[name].checks.append(CheckConstraint(check, expr, tuple(columns)))
    return tables


def _add_column(
    table: ExistingTable,
    column: str,
    type: str,
    not_null: bool,
    enum: list[str] | None,
    length: int | None,
    default: str | None,
    generated: bool,
    identity: bool,
    comment: str | None,
) -> None:
    table.columns[column] = type
    if not_null:
        table.not_null.add(column)
    if enum is not None:
        table.enums[column] = enum
    if length is not None:
        table.lengths[column] = length
    if default is not None or identity:
        table.defaults[column] = default or ""
    if generated:
        table.generated.add(column)
    if comment is not None:
        table.comments[column] = comment


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


def is_foreign(table: ExistingTable | None) -> bool:
    """Whether another program made this table."""
    return table is not None and table.made_by is None


async def made_elsewhere(
    connection: Any, installation: Installation, tables: Sequence[str]
) -> list[str]:
    """Return tables of this installation outside the search path, which has none of these names."""
    rows = await connection.fetch(_MADE, list(tables), installation.archive_schema)
    return [name for name, comment in rows if maker(comment) == installation.schema]


@dataclass(frozen=True)
class ArchiveShape:
    """How rows get into an archive.

    ``columns``: every column of the table, declared or not. ``conflict``: those by which a row
    replaces an earlier one. ``once``: rows of one batch may replace each other, too.
    """

    columns: list[str]
    conflict: list[str]
    once: bool


async def archive_shape(connection: Any, table: Table) -> ArchiveShape:
    """Return how a table is archived; SchemaError if its archive lacks a column."""
    pair = (table.ident, table.archive)
    found = await introspect(connection, pair)
    hot, cold = (found.get(name, ExistingTable()) for name in pair)
    columns, archived = hot.columns, cold.columns
    missing = [name for name in (*columns, *table.archive_columns) if name not in archived]
    if missing:
        raise SchemaError(
            f"table {table.archive}", [f"it lacks {', '.join(missing)}; run: esclusa migrate"]
        )
    id = frozenset({table.id.column})
    conflict = id if id in cold.unique else next(iter(cold.unique), frozenset())
    return ArchiveShape(
        [name for name in columns if name not in table.archive_columns],
        sorted(conflict),
        conflict != id or id not in hot.unique,
    )
