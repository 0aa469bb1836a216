"""Give records of version 0.1.0 the ids that this version makes of their keys.

Without it, a key that is inserted again would make a second record. Records that refer to others
come first, so that what they refer to can still be found under its earlier id. Everything is
repeatable: a migration that was killed is continued by the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Protocol

from esclusa.model.earlier_ids import (
    IdChange,
    current_id,
    earlier_id,
    is_made_of_key,
    may_be_earlier,
    readings,
)
from esclusa.model.keys import key_id
from esclusa.model.kind import Kind
from esclusa.model.migration import MigrationStep, Progress
from esclusa.model.query import Query
from esclusa.model.record import Record
from esclusa.model.system_records import DeadLetter

# Records of a page, and so of a transaction.
PAGE: Final = 500


class IdStore(Protocol):
    """What is needed of a store."""

    async def get(self, kind: Kind, ids: Sequence[str]) -> list[Record | None]:
        """See ``Store.get``."""

    def scan(self, query: Query, size: int = 5000) -> AsyncIterator[list[dict[str, Any]]]:
        """See ``Store.scan``."""

    async def change_ids(self, kind: Kind, changes: Sequence[IdChange], archived: bool) -> int:
        """Change ids and fields; history and leases follow. Return how many were changed.

        A record whose new id another one has stays as it is.
        """

    async def ids_changed(self, kind: Kind) -> None:
        """Write down that no record of the kind has an earlier id."""


def id_steps(kinds: Sequence[Kind]) -> list[MigrationStep]:
    """The steps of a migration that ``change_ids`` does, for kinds whose ids are of 0.1.0."""
    summary = "give records of {} the ids of this version, where version 0.1.0 made others"
    return [
        MigrationStep(line := summary.format(kind.table), f"-- {line}", kind.table, outside=True)
        for kind in kinds
    ]


class IdChanger:
    """Changes the ids of some kinds. ``kinds``: all that are declared."""

    def __init__(self, store: IdStore, kinds: Sequence[Kind]) -> None:
        self._store = store
        self._kinds = {kind.as_declared.table: kind for kind in kinds}
        self._kinds |= {kind.table: kind for kind in kinds}

    async def run(self, earlier: Sequence[Kind], progress: Progress) -> list[str]:
        """Change what there is of these kinds; return a line for each that was changed."""
        done = []
        for kind in self._in_order(earlier):
            count = left = 0
            for archived in (False, True) if kind.archive else (False,):
                async for rows in self._store.scan(Query(kind, archived=archived), PAGE):
                    changes = await self._changes(kind, rows)
                    changed = await self._store.change_ids(kind, changes, archived)
                    count, left = count + changed, left + len(changes) - changed
            await self._store.ids_changed(kind)
            lines = [f"{kind.table}: {count} records have the ids of this version"] * bool(count)
            if left:
                lines.append(f"{kind.table}: {left} records keep an earlier id; others have theirs")
            for line in lines:
                progress(line)
            done += lines
        return done

    def _in_order(self, kinds: Sequence[Kind]) -> list[Kind]:
        """These kinds, each before those that it refers to."""
        order: list[Kind] = []

        def visit(kind: Kind, above: tuple[Kind, ...]) -> None:
            if kind in order or kind in above:
                return
            for _, table in kind.refs:
                if (target := self._kinds.get(table)) is not None:
                    visit(target, (*above, kind))
            order.append(kind)

        for kind in kinds:
            visit(kind, ())
        ordered = [kind for kind in reversed(order) if kind in kinds]
        return sorted(ordered, key=lambda kind: kind != DeadLetter.kind)

    async def _changes(self, kind: Kind, rows: Sequence[Mapping[str, Any]]) -> list[IdChange]:
        """What must change of these rows."""
        found = await self._current(kind, rows)
        return [change for change in found if change.fields or change.earlier != change.new]

    async def _current(self, kind: Kind, rows: Sequence[Mapping[str, Any]]) -> list[IdChange]:
        """The present ids of these rows, and of what they refer to."""
        wanted: dict[str, dict[str, None]] = {}
        for row in rows:
            for name, target in self._refs(kind, row):
                if may_be_earlier(row.get(name)):
                    wanted.setdefault(target.table, {})[row[name]] = None
        ids: dict[tuple[str, str], str] = {}
        for table, asked in wanted.items():
            ids |= {(table, o): n for o, n in (await self._referred(table, list(asked))).items()}
        return [self._change(kind, row, ids) for row in rows]

    async def _referred(self, table: str, asked: Sequence[str]) -> dict[str, str]:
        """The present ids of records that others refer to, by their ids of version 0.1.0."""
        target = self._kinds[table]
        found = dict(zip(asked, await self._store.get(target, asked), strict=True))
        rows = {id: {**vars(record)} for id, record in found.items() if record is not None}
        changes = await self._current(target, list(rows.values()))
        present = {id: change.new for id, change in zip(rows, changes, strict=True)}
        return {
            id: present[id] if id in present else current_id(target, id, self._kinds)
            for id in asked
        }

    def _change(
        self, kind: Kind, row: Mapping[str, Any], ids: Mapping[tuple[str, str], str]
    ) -> IdChange:
        fields = {}
        for name, target in self._refs(kind, row):
            new = ids.get((target.table, row.get(name) or ""))
            if new is not None and new != row[name]:
                fields[name] = new
        id = str(row["id"])
        if is_made_of_key(kind):
            earlier = earlier_id([row.get(name) for name in kind.key])
            if id in readings(kind, earlier):
                new = key_id([fields.get(name, row.get(name)) for name in kind.key])
                return IdChange(id, earlier, new, fields)
        return IdChange(id, id, id, fields)

    def _refs(self, kind: Kind, row: Mapping[str, Any]) -> list[tuple[str, Kind]]:
        """The fields that refer to a record, and its kind."""
        refs = list(kind.refs)
        if kind == DeadLetter.kind:
            refs = [("record_id", str(row.get("table_name")))]
        found = [(name, self._kinds.get(table)) for name, table in refs]
        return [(name, target) for name, target in found if target and is_made_of_key(target)]
