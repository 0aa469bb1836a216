"""The archive table of a kind: the steps that create it or add what it lacks."""

from __future__ import annotations

from esclusa.model.migration import MigrationStep
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.introspection import ExistingTable, is_foreign
from esclusa.stores.postgres.names import quote
from esclusa.stores.postgres.steps import create_table, shown


def archive_steps(
    table: Table, existing: ExistingTable | None, archived: ExistingTable | None
) -> list[MigrationStep]:
    """Return the steps for the archive of a kind; ``archived`` is what there is of it."""
    if not table.kind.archive:
        return []
    where, foreign = shown(table.archive), is_foreign(archived)
    name, schema = f"{table.name[:36]}_export", table.installation.archive_schema
    beside_writers = "" if archived is None else " CONCURRENTLY"
    index = MigrationStep(
        f"create index {schema}.{name}",
        f"CREATE INDEX{beside_writers} {quote(name)} ON {table.archive} (export_id, archived_at)",
        where,
        foreign,
        outside=bool(beside_writers),
    )
    if archived is None:
        own = [
            f"{c.ident} {c.sql_type}"
            for c in table.archive_columns.values()
            if c.column not in table.kind.columns.values()
        ]
        like, key = f"LIKE {table.ident} INCLUDING DEFAULTS", f"PRIMARY KEY ({table.id.ident})"
        body = ", ".join([like, *own, key])
        return [create_table(table.installation, table.archive, body, where), index]
    columns = dict(existing.columns if existing is not None else {})
    declared = (table.stored, table.extras, table.archive_columns)
    for column in (column for group in declared for column in group.values()):
        columns.setdefault(column.column, column.sql_type)
    steps = [
        MigrationStep(
            f"add column {where}.{column}",
            f"ALTER TABLE {table.archive} ADD COLUMN {quote(column)} {type}",
            where,
            foreign,
        )
        for column, type in columns.items()
        if column not in archived.columns
    ]
    if name in archived.invalid_indexes:
        drop = f"DROP INDEX CONCURRENTLY {quote(schema)}.{quote(name)}"
        summary = f"drop index {schema}.{name}, whose building ended early"
        steps.append(MigrationStep(summary, drop, where, foreign, outside=True))
    return steps if name in archived.indexes else [*steps, index]
