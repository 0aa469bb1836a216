"""The indexes of a table: which it needs, how they are built beside writers, which are obsolete."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from esclusa.model.migration import MigrationStep
from esclusa.model.query import Order
from esclusa.model.value import value
from esclusa.stores.postgres.codec import Table, literal
from esclusa.stores.postgres.introspection import ExistingTable
from esclusa.stores.postgres.key_limits import key_expr
from esclusa.stores.postgres.names import quote
from esclusa.stores.postgres.statements import constant_condition, direction, in_states

# The names that Esclusa gives: table, purpose, checksum of the definition.
_OWN_NAME = re.compile(r".+_(id|key|state|claim|order|keys|held|by)_[0-9a-f]{8}")


@value
class Index:
    """An index that a table needs. ``columns``: those of a unique index."""

    purpose: str
    definition: str
    columns: tuple[str, ...] = ()

    def name(self, table: Table) -> str:
        return self._name(table.installation.name(table.name), self.definition)

    def name_on_partition(self, partition: str) -> str:
        """Return its name. The names of partitions are long and differ at their end."""
        return self._name(partition, self.definition + partition)

    def _name(self, table: str, text: str) -> str:
        checksum = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{table[:36]}_{self.purpose[:12]}_{checksum}"

    @property
    def create(self) -> str:
        return "CREATE UNIQUE INDEX" if self.columns else "CREATE INDEX"


@value
class IndexPlan:
    """How the indexes of a table are brought up to date.

    ``beside_writers``: the table holds rows, so no index may be built under a lock.
    ``partition_indexes``: whether the indexes of the
    partitions are valid, by schema and name.
    """

    table: Table
    existing: ExistingTable
    foreign: bool
    beside_writers: bool
    partition_indexes: Mapping[tuple[str, str], bool]

    def steps(self, wanted: Sequence[Index]) -> list[MigrationStep]:
        """Return the steps that create what is missing and mark what is ours."""
        steps: list[MigrationStep] = []
        for index in wanted:
            name = index.name(self.table)
            if name not in self.existing.indexes:
                steps += self._create(index, name)
            if self.existing.index_comments.get(name) != self.table.installation.mark:
                mark = literal(self.table.installation.mark)
                sql = f"COMMENT ON INDEX {self._ident(name)} IS {mark}"
                steps.append(self._step("", sql))
        return steps

    def obsolete(self, wanted: Sequence[Index]) -> list[MigrationStep]:
        """Return the steps that drop Esclusa's own indexes that are not wanted any more.

        They have a name of its form and its mark; others are never touched.
        """
        needed = {index.name(self.table) for index in wanted}
        return [
            replace(
                self._drop(name, f"drop index {name}, which nothing needs any more"), optional=True
            )
            for name in sorted(self.existing.indexes - needed)
            if _OWN_NAME.fullmatch(name) and self._is_marked(name)
        ]

    def _is_marked(self, name: str) -> bool:
        comment = self.existing.index_comments.get(name)
        if comment is None:  # earlier versions marked none, but these tables are Esclusa's own
            return not self.foreign
        return comment == self.table.installation.mark

    def _create(self, index: Index, name: str) -> list[MigrationStep]:
        steps = []
        summary = f"create index {name}"
        if name in self.existing.invalid_indexes:
            steps.append(self._drop(name, f"drop index {name}, whose building ended early"))
        if self.existing.relkind == "p" and self.beside_writers:
            # PostgreSQL attaches the indexes of the partitions to that of the table
            for schema, partition in self.existing.partitions:
                steps += self._create_on_partition(index, schema, partition)
        elif self.beside_writers:
            sql = f"{index.create} CONCURRENTLY {quote(name)} ON {self.table.ident}"
            return [*steps, self._step(summary, f"{sql} {index.definition}", outside=True)]
        sql = f"{index.create} {quote(name)} ON {self.table.ident} {index.definition}"
        return [*steps, self._step(summary, sql)]

    def _create_on_partition(
        self, index: Index, schema: str, partition: str
    ) -> list[MigrationStep]:
        name = index.name_on_partition(partition)
        valid = self.partition_indexes.get((schema, name))
        if valid:
            return []
        steps = []
        if valid is False:
            summary = f"drop index {name}, whose building ended early"
            sql = f"DROP INDEX CONCURRENTLY {quote(schema)}.{quote(name)}"
            steps.append(self._step(summary, sql, outside=True))
        on = f"{quote(schema)}.{quote(partition)} {index.definition}"
        sql = f"{index.create} CONCURRENTLY {quote(name)} ON {on}"
        return [*steps, self._step(f"create index {name}", sql, outside=True)]

    def _drop(self, name: str, summary: str) -> MigrationStep:
        # an index of a partitioned table cannot be dropped beside writers
        beside = "" if self.existing.relkind == "p" else " CONCURRENTLY"
        return self._step(summary, f"DROP INDEX{beside} {self._ident(name)}", outside=bool(beside))

    def _ident(self, name: str) -> str:
        schema = self.existing.schema or self.table.schema
        return f"{quote(schema)}.{quote(name)}" if schema else quote(name)

    def _step(self, summary: str, sql: str, *, outside: bool = False) -> MigrationStep:
        return MigrationStep(summary, sql, self.table.name, self.foreign, outside)


def wanted_indexes(table: Table, existing: ExistingTable, version: int) -> list[Index]:
    """Return the indexes that a table needs; that of its id comes first.

    A unique index of another program on the same columns serves as well. A partitioned table can
    keep a key unique only if the key has the columns by which it is partitioned.
    """
    kind, found = table.kind, list[Index]()
    nulls = "" if version < 15 else " NULLS NOT DISTINCT"

    def unique(purpose: str, columns: Sequence[str]) -> None:
        definition = f"({', '.join(map(quote, columns))})"
        index = Index(purpose, definition + nulls, tuple(columns))
        is_ours = index.name(table) in existing.indexes
        if frozenset(columns) in existing.unique and not is_ours:
            return
        if existing.relkind == "p" and not set(existing.partition_key) <= set(columns):
            index = Index(purpose, definition)
        found.append(index)

    if existing.columns:
        unique("id", [table.id.column])
    if kind.unique_key:
        unique("key", [table.columns[name].column for name in kind.key])
    found += _declared_unique(table, existing)
    if table.status.instead is None:
        found.append(Index("state", _terms(table, [Order("status"), Order("updated_at")])))
    for stage in table.stages:
        tests = [constant_condition(table, name, cond, "") for name, cond in stage.where]
        where = " AND ".join([in_states(table, stage.states, ""), *tests])
        due = _terms(table, [Order("due_at"), Order("id")])
        found.append(Index("claim", f"{due} WHERE {where}"))
        if stage.order:
            order = _terms(table, [*stage.order, Order("id")])
            found.append(Index("order", f"{order} WHERE {where}"))
        if stage.key_limit is not None:
            key = key_expr(table, stage.key_limit, "")
            order = _terms(table, [*(stage.order or [Order("due_at")]), Order("id")])
            found.append(Index("keys", f"({key}, {order[1:]} WHERE {where}"))
            held = f"{table.columns['leased_by'].ident} IS NOT NULL"
            found.append(Index("held", f"({key}) WHERE {where} AND {held}"))
    for names in kind.indexes:
        orders = [Order(n.lstrip("-"), n.startswith("-")) for n in names]
        if any(table.columns[order.field].instead is not None for order in orders):
            continue
        found.append(Index("by", _terms(table, orders)))
    return list(dict.fromkeys(found))


def _declared_unique(table: Table, existing: ExistingTable) -> list[Index]:
    """Return the declared unique indexes of a table that Esclusa creates or has created."""
    if existing.columns and existing.made_by is None:
        return []
    groups = [[table.columns[name].column for name in names] for names in table.kind.unique]
    return [Index("key", f"({', '.join(map(quote, group))})", tuple(group)) for group in groups]


def _terms(table: Table, order: Sequence[Order]) -> str:
    order = [o for o in order if o.field in table.stored]
    columns = [table.columns[o.field] for o in order]
    exprs = [c.expr("") if c.default is None else f"({c.expr('')})" for c in columns]
    terms = [e + direction(table, o) for e, o in zip(exprs, order, strict=True)]
    return f"({', '.join(terms)})"
