"""Saved filters: lists of records that users share by name."""

from __future__ import annotations

from collections.abc import Sequence

from esclusa.engine.audited import AuditedOperations
from esclusa.model.errors import BadQuery, NotFound, StoreConflict
from esclusa.model.kind import Kind
from esclusa.model.names import unknown
from esclusa.model.query import conditions, orders, parse_filter, query
from esclusa.model.settlement import Settlement
from esclusa.model.system_records import SavedFilter
from esclusa.model.texts import text
from esclusa.ports.store import Store

# The most saved filters of a kind that are listed.
MOST = 500
_LONGEST = 80


async def saved_filters(store: Store, table: str | None = None) -> list[SavedFilter]:
    """The saved filters, of one kind or of all, by table and name."""
    where = {} if table is None else {"table_name": table}
    page = await store.find(query(SavedFilter, where, limit=MOST))
    found = [each for each in page.items if isinstance(each, SavedFilter)]
    return sorted(found, key=lambda each: (each.table_name, each.name.lower()))


async def saved_filter(store: Store, kind: Kind, name: str) -> SavedFilter:
    """The saved filter of this name. Raises NotFound with the names that exist."""
    [found] = await store.get(SavedFilter.kind, [SavedFilter.kind.id_of(kind.table, name)])
    if not isinstance(found, SavedFilter):
        known = [each.name for each in await saved_filters(store, kind.table)]
        raise NotFound(unknown("no_saved_filter", name, known, table=kind.table, name=name))
    return found


class FilterOperations(AuditedOperations):
    """What users do with saved filters; each leaves an audit row."""

    async def save_filter(
        self,
        table: str,
        name: str,
        *,
        filters: Sequence[str] = (),
        begins: str = "",
        order: str = "",
        columns: Sequence[str] = (),
    ) -> SavedFilter:
        """Save a list of records under a name; one of that name is replaced.

        Raises BadQuery for a filter that the kind cannot have.
        """
        kind, name = self._registry.kind(table), _checked(name)
        if not (filters or begins or order or columns):
            raise BadQuery(text("saved_filter_empty"))
        conditions(kind, parse_filter(kind, filters), searching=True)
        orders(kind, [each for each in order.split(",") if each])
        saved = SavedFilter(
            table_name=table,
            name=name,
            filters=list(filters),
            begins=begins,
            order=order,
            columns=list(columns),
            saved_by=self.who,
            saved_at=self._clock.now(),
        )
        await self._keep_filter(saved)
        await self.note("save filter", table, 1, {"name": name, "filters": " ".join(filters)})
        return saved

    async def rename_filter(self, table: str, name: str, new: str) -> SavedFilter:
        """Give a saved filter another name. Raises NotFound, and StoreConflict for a taken name."""
        kind, new = self._registry.kind(table), _checked(new)
        found = await saved_filter(self._store, kind, name)
        if new == found.name:
            return found
        renamed = found.model_copy(update={"id": "", "name": new})
        [taken] = await self._store.get(SavedFilter.kind, [SavedFilter.kind.id_of(table, new)])
        if taken is not None:
            raise StoreConflict(text("saved_filter_taken", table=table, name=new))
        await self._keep_filter(renamed)
        await self._store.purge(query(SavedFilter, {"id": found.id}, limit=1))
        await self.note("rename filter", table, 1, {"name": name, "new": new})
        return renamed

    async def delete_filter(self, table: str, name: str) -> None:
        """Delete a saved filter. Raises NotFound."""
        found = await saved_filter(self._store, self._registry.kind(table), name)
        await self._store.purge(query(SavedFilter, {"id": found.id}, limit=1))
        await self.note("delete filter", table, 1, {"name": name})

    async def _keep_filter(self, saved: SavedFilter) -> None:
        """Insert the record, or write over the one of its name."""
        [found] = await self._store.get(
            SavedFilter.kind, [SavedFilter.kind.id_of(saved.table_name, saved.name)]
        )
        if found is None:
            await self._store.insert([saved])
            return
        names = ("filters", "begins", "order", "columns", "saved_by", "saved_at")
        fields = {name: getattr(saved, name) for name in names}
        await self._store.settle(
            [Settlement(found.ref, "kept", ("kept",), None, fields, who=self.who)]
        )


def _checked(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > _LONGEST or not name.isprintable():
        raise BadQuery(text("saved_filter_name", name=name))
    return name
