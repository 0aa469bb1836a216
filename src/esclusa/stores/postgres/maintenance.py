"""History, and what deletes, archives or restores records."""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic_core import from_json

from esclusa.model.kind import Kind, Ref
from esclusa.model.query import Query
from esclusa.model.settlement import Step
from esclusa.model.storable import fits
from esclusa.model.system_records import Export
from esclusa.stores.postgres import introspection
from esclusa.stores.postgres.client import ConnectionPools
from esclusa.stores.postgres.codec import Table
from esclusa.stores.postgres.limits import LONG_LIMITS
from esclusa.stores.postgres.names import quote
from esclusa.stores.postgres.statements import NOW, Binder, conditions, locked_ids

_HISTORY = """SELECT from_state, to_state, at, who, run, attempt, reason, error, changes, log
FROM {history} WHERE table_name = $1 AND record_id = $2 ORDER BY seq {direction} LIMIT $3"""

_HISTORIES = """SELECT i.id, h.* FROM unnest($2::text[]) i(id) CROSS JOIN LATERAL (
    SELECT from_state, to_state, at, who, run, attempt, reason, error, changes, log
    FROM {history} WHERE table_name = $1 AND record_id = i.id ORDER BY seq DESC LIMIT $3
) h"""

_DELETE_WITH_HISTORY = """WITH deleted AS (
    DELETE FROM {source} t WHERE t.{key} = ANY({ids}) RETURNING {id} AS id
), history AS (
    DELETE FROM {history} h
    WHERE h.table_name = {name} AND h.record_id = ANY(ARRAY(SELECT id FROM deleted))
) SELECT {answer} FROM deleted"""


async def history(connections: ConnectionPools, ref: Ref, limit: int, newest: bool) -> list[Step]:
    """Return the moves of a record, oldest first; with ``newest``, the last ones."""
    if not fits(ref.id):
        return []
    statement = _HISTORY.format(
        history=connections.installation.history, direction="DESC" if newest else "ASC"
    )
    rows = await connections.fetch(statement, ref.kind.table, ref.id, limit)
    steps = [_step(row) for row in rows]
    return steps[::-1] if newest else steps


async def histories(
    connections: ConnectionPools, kind: Kind, ids: Sequence[str], each: int
) -> list[list[Step]]:
    """Return the last moves of each record, oldest first."""
    statement = _HISTORIES.format(history=connections.installation.history)
    known = sorted({id for id in ids if fits(id)})
    rows = await connections.fetch(statement, kind.table, known, each) if known else []
    found: dict[str, list[Step]] = {}
    for id, *row in rows:
        found.setdefault(id, []).append(_step(row))
    return [found.get(id, [])[::-1] for id in ids]


def _step(row: Sequence[Any]) -> Step:
    frm, to, at, who, run, attempt, reason, error, changes, log = row
    return Step(
        *(frm, to, at, who, run, attempt, reason),
        error and from_json(error),
        changes and from_json(changes),
        log and from_json(log),
    )


async def purge(connections: ConnectionPools, table: Table, query: Query) -> int:
    """Delete the rows of a query, up to its limit, with their history."""
    binder = Binder()
    statement = _DELETE_WITH_HISTORY.format(
        history=table.installation.history,
        source=table.source(query.archived),
        key=table.id.ident,
        ids=f"ARRAY({locked_ids(table, query, binder)})",
        id=table.id.read(),
        name=binder.add(table.name, "text"),
        answer="count(*)",
    )
    rows = await connections.fetch(statement, *binder.values, limits=LONG_LIMITS)
    return int(rows[0][0])


async def remove(
    connections: ConnectionPools, table_of: Callable[[Kind], Table], refs: Sequence[Ref]
) -> list[bool]:
    """Delete records with their history; return whether each existed, all at the same moment."""

    async def run(connection: Any) -> set[tuple[str, str]]:
        deleted = set()
        for name, kind in sorted({ref.kind.table: ref.kind for ref in refs}.items()):
            table = table_of(kind)
            statement = _DELETE_WITH_HISTORY.format(
                history=table.installation.history,
                source=table.ident,
                key=table.id.ident,
                ids=table.id_array("$1::text[]"),
                id=table.id.read(),
                name="$2",
                answer="id",
            )
            ids = table.possible_ids(ref.id for ref in refs if ref.kind.table == name)
            rows = await connection.fetch(statement, ids, name, timeout=LONG_LIMITS.client)
            deleted |= {(name, row[0]) for row in rows}
        return deleted

    deleted = await connections.transaction(run, snapshot=True, limits=LONG_LIMITS)
    return [(ref.kind.table, ref.id) in deleted for ref in refs]


async def archive(
    connections: ConnectionPools,
    table: Table,
    query: Query,
    offset: timedelta,
    export: str | None,
) -> int:
    """Move records to the archive.

    A record that is archived again replaces the earlier one and leaves its export. The row of
    ``export`` is locked, so that it cannot stop filling before the commit.
    """

    async def run(connection: Any) -> int:
        shape = await introspection.archive_shape(connection, table)
        columns, conflict = [quote(c) for c in shape.columns], [quote(c) for c in shape.conflict]
        binder = Binder(offset)
        picked = locked_ids(table, query, binder)
        given = binder.add(export, "text")
        filling, guard = "", ""
        if export is not None:
            filling = f"""filling AS (
                SELECT 1 FROM {table.installation.table(Export.kind)}
                WHERE id = {given} AND status = 'filling' FOR SHARE
            ), """
            guard = " AND EXISTS (SELECT 1 FROM filling)"
        names = ", ".join(columns)
        replaced = (*columns, "archived_at", "export_id")
        sets = ", ".join(f"{c} = EXCLUDED.{c}" for c in replaced if c not in conflict)
        replace = f" ON CONFLICT ({', '.join(conflict)}) DO UPDATE SET {sets}" if conflict else ""
        last, order = "", ""
        if conflict and shape.once:  # of several rows, the one that was written last
            last = f"DISTINCT ON ({', '.join(conflict)}) "
            updated = table.columns["updated_at"].expr("deleted")
            order = f" ORDER BY {', '.join(conflict)}, {updated} DESC NULLS LAST"
        rows = await connection.fetch(
            f"""WITH {filling}deleted AS (
                DELETE FROM {table.ident} t WHERE t.{table.id.ident} = ANY(ARRAY({picked})){guard}
                RETURNING t.*
            ), archived AS (
                INSERT INTO {table.archive} ({names}, archived_at, export_id)
                SELECT {last}{names}, {NOW}, {given} FROM deleted{order}{replace} RETURNING 1
            ) SELECT count(*), (SELECT count(*) FROM archived) FROM deleted""",
            *binder.values,
            timeout=LONG_LIMITS.client,
        )
        return int(rows[0][0])

    return await connections.transaction(run, limits=LONG_LIMITS)


async def assign(connections: ConnectionPools, table: Table, query: Query, export: str) -> int:
    """Assign archived rows without an export to this one, in the order of their index."""
    binder = Binder(export)
    where = " AND ".join(["t.export_id IS NULL", *conditions(table, query.where, binder)])
    limit, id = binder.add(query.limit, "bigint"), table.id.ident
    rows = await connections.fetch(
        f"""WITH assigned AS (
            UPDATE {table.archive} t SET export_id = $1::text WHERE t.{id} = ANY(ARRAY(
                SELECT t.{id} FROM {table.archive} t WHERE {where}
                ORDER BY t.archived_at LIMIT {limit} FOR UPDATE
            )) RETURNING 1
        ) SELECT count(*) FROM assigned""",
        *binder.values,
        limits=LONG_LIMITS,
    )
    return int(rows[0][0])


async def restore(
    connections: ConnectionPools,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    offset: timedelta,
    export: str,
) -> int:
    """Insert rows into the archive, unless they are in it; return how many are new."""
    columns = [c for name, c in table.stored.items() if name != table.kind.id_field]
    names = ", ".join(column.ident for column in columns)
    arrays = ", ".join(f"${n}::{c.parameter_type}[]" for n, c in enumerate(columns, 3))
    values = ", ".join(column.write(f"u.v{n}") for n, column in enumerate(columns))
    given = ", ".join(f"v{n}" for n in range(len(columns)))
    id = f"u.v{columns.index(table.id)}"
    found = await connections.fetch(
        f"""WITH restored AS (
            INSERT INTO {table.archive} ({names}, archived_at, export_id)
            SELECT DISTINCT ON ({id}) {values}, {NOW}, $2::text
            FROM unnest({arrays}) AS u({given})
            WHERE NOT EXISTS (
                SELECT 1 FROM {table.archive} k WHERE k.{table.id.ident} = {table.id.write(id)}
            )
            ON CONFLICT DO NOTHING RETURNING 1
        ) SELECT count(*) FROM restored""",
        offset,
        export,
        *(column.encode([row[column.name] for row in rows]) for column in columns),
        limits=LONG_LIMITS,
    )
    return int(found[0][0])


async def undeclared(connections: ConnectionPools, table: Table) -> list[str]:
    """Return the archive's columns that are neither a field of the kind nor the archive's own."""
    rows = await connections.fetch(
        """SELECT attname FROM pg_attribute
        WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum""",
        table.archive,
    )
    declared = {*table.kind.columns.values(), *table.archive_columns}
    return [name for (name,) in rows if name not in declared]
