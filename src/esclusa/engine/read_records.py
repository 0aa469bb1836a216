"""The read model of records: kinds, records, why they do not move, relations, views."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from esclusa.engine import read_shapes as shapes
from esclusa.engine.alert_rules import AlertRules
from esclusa.engine.clock import StoreClock
from esclusa.engine.deadlines import deadline_of, entered_at
from esclusa.engine.options import Options
from esclusa.engine.pauses import open_pauses
from esclusa.engine.records import Records
from esclusa.engine.registry import Registry
from esclusa.engine.saved_filters import saved_filter, saved_filters
from esclusa.engine.why import Why, why
from esclusa.model.adoption import Unadopted
from esclusa.model.errors import NotFound, SchemaError
from esclusa.model.kind import Kind, Ref
from esclusa.model.names import unknown
from esclusa.model.plan import Plan, View
from esclusa.model.query import (
    Cond,
    Page,
    Query,
    Total,
    Where,
    beginning,
    grouping,
    not_null,
    null,
    one_of,
    query,
)
from esclusa.model.record import Record
from esclusa.model.settlement import StateCount, Step
from esclusa.model.stage import Stage
from esclusa.model.state_roles import Role, roles, ways_back
from esclusa.model.system_records import (
    CycleRecord,
    DeadLetter,
    LifecycleRecord,
    SavedFilter,
    WorkerRecord,
)
from esclusa.model.texts import load
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store

# The most related records of one relation.
RELATED = 20
# The most leases of one stage.
LEASES = 100
# Records that are read at a time for a whole list.
EACH = 500
# The records of a view are counted up to here.
COUNTED = 10_000
# The rows of an archive are counted up to here.
ARCHIVED = 100_000


class RecordReader:
    """What is declared, records with their history and relations, and views."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        records: Records,
        clock: StoreClock,
        options: Options,
        titles: shapes.Titles,
        artifacts: Artifacts,
        alert_rules: AlertRules,
    ) -> None:
        self.registry = registry
        self._store = store
        self._records = records
        self._clock = clock
        self._options = options
        self._titles = titles
        self._artifacts = artifacts
        self._alert_rules = alert_rules

    @property
    def store_url(self) -> str:
        """Where the store is, without secrets."""
        return self._store.url

    def now(self) -> datetime:
        """The store's time."""
        return self._clock.now()

    # what is declared

    def pipelines(self) -> list[Plan]:
        """The pipelines with their settings, without the system pipeline."""
        return [plan for plan in self.registry.plans if plan.name != "esclusa"]

    def lookup(self, table: str) -> Kind:
        """The kind of this table. Raises NotFound."""
        return self.registry.kind(table)

    def roles(self, kind: Kind) -> dict[str, Role]:
        """The role of each state of the kind."""
        return roles(kind, self.registry.all_stages)

    def worked(self, kind: Kind) -> bool:
        """Whether a stage takes records of this kind."""
        return any(stage.kind == kind for stage in self.registry.all_stages)

    def retry_targets(self, kind: Kind) -> dict[str, str]:
        """For each exhausted state of the kind, the state to which a retry moves a record."""
        ways = ways_back(kind, self.registry.all_stages)
        return {state: found[0][1] for state, found in ways.items()}

    # kinds and records

    def declared(self, *, system: bool = False) -> list[Kind]:
        """The kinds of the pipelines; with ``system`` the system records too."""
        own = {kind.table for plan in self.pipelines() for kind in plan.kinds}
        return [k for k in self.registry.all_kinds if system or k.table in own]

    async def kinds(self, *, system: bool = False) -> list[dict[str, Any]]:
        """Every kind with its lifecycle and the counts of its states."""
        return [await self.kind(k.table) for k in self.declared(system=system)]

    async def kind(self, table: str) -> dict[str, Any]:
        kind = self.registry.kind(table)
        return self.described(kind, await self.tally(kind))

    def described(self, kind: Kind, counts: Sequence[StateCount]) -> dict[str, Any]:
        """A kind, its lifecycle, and these counts."""
        return shapes.kind_shape(kind, self.registry.pipeline_of(kind), self.roles(kind), counts)

    async def tally(self, kind: Kind, cap: int | None = None) -> list[StateCount]:
        """How many records are in each state; with ``cap`` no state is counted further."""
        return await self._store.tally(kind, cap)

    async def unadopted(self) -> list[Unadopted]:
        """Per table, the records that no stage can take, because they have no tracking yet."""
        found = [await self._store.unadopted(kind) for kind in self.declared()]
        return [each for each in found if each is not None]

    async def _unadopted(self) -> list[dict[str, Any]]:
        try:
            return [asdict(each) for each in await self.unadopted()]
        except SchemaError:  # an index is missing: doctor reports it
            return []

    async def count(
        self, table: str, where: Where, *, cap: int = 100_000, archived: bool = False
    ) -> tuple[int, bool]:
        """How many records match, counted up to ``cap``, and whether that is all."""
        kind, now = self.lookup(table), self.now()
        return await self._store.count(query(kind, where, archived=archived, now=now), cap)

    async def states(self, table: str) -> list[str]:
        """The states that records are in, those that the lifecycle does not have included."""
        return await self._store.states(self.lookup(table))

    async def totals(
        self, table: str, by: Sequence[str], *, sums: Sequence[str] = (), where: Where | None = None
    ) -> list[Total]:
        """How many records match, by the values of some fields, and the sums of number fields."""
        kind = self.lookup(table)
        return await self._store.totals(
            query(kind, where, now=self.now()), grouping(kind, by, sums)
        )

    async def records(
        self,
        table: str,
        where: Where,
        *,
        order: str | tuple[str, ...] = (),
        limit: int = 100,
        after: str | None = None,
        archived: bool = False,
    ) -> Page[Record]:
        """One page of the records that match; ``next`` continues it."""
        page = await self._store.find(
            query(
                self.lookup(table),
                where,
                order=order,
                limit=limit,
                after=after,
                archived=archived,
                now=self.now(),
            )
        )
        return Page([shapes.readable(record) for record in page.items], page.next)

    async def each(
        self,
        table: str,
        where: Where,
        *,
        order: str | tuple[str, ...] = (),
        archived: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[Record]:
        """Every record that matches, or the first ``limit``, page by page: bounded memory.

        No transaction stays open. Ordered by id, no record comes twice; by a field that changes
        meanwhile, a record may come twice or not at all.
        """
        after, left = None, limit
        while left is None or left > 0:
            size = EACH if left is None else min(EACH, left)
            page = await self.records(
                table, where, order=order, limit=size, after=after, archived=archived
            )
            for record in page.items:
                yield record
            if page.next is None:
                return
            after, left = page.next, None if left is None else left - len(page.items)

    async def record(self, table: str, id: str) -> Record:
        kind = self.registry.kind(table)
        [found] = await self._store.get(kind, [id])
        if found is None:
            raise kind.absent(id)
        return shapes.readable(found)

    async def history(self, table: str, id: str, limit: int = 1000) -> list[Step]:
        """The newest ``limit`` moves of the record, oldest first."""
        steps = await self._store.history(Ref(self.registry.kind(table), id), limit, newest=True)
        return [replace(step, reason=load(step.reason)) if step.reason else step for step in steps]

    async def why(self, table: str, id: str) -> Why:
        """Why the record is not moving, and when it can."""
        record = await self.record(table, id)
        stages = [stage for stage in self.registry.all_stages if stage.kind == record.kind]
        steps = await self.history(table, id, 1)
        now = await self._clock.sync()
        return why(
            record,
            stages,
            {stage.name: self.registry.cycle_of(stage) for stage in stages},
            {c.cycle: c async for c in self._records.each(CycleRecord)},
            {s.budget.name: await self._store.usage(s.budget) for s in stages if s.budget},
            pauses=await open_pauses(self._records, now),
            now=now,
            workers_alive=any(worker["alive"] for worker in await self.workers()),
            last=steps[-1] if steps and steps[-1].to == record.status else None,
            earlier=await self._earlier_states(record),
            starts={s.name: t for s in stages if (t := self.registry.start_of(s)) is not None},
            locked_since=(await self._store.foreign_locks(record.kind, [id])).get(id),
            entered=(
                await entered_at(self._store, record, now) if deadline_of(record, stages) else None
            ),
            held={
                stage.name: await self._held_with_key(record, stage)
                for stage in stages
                if stage.per
            },
            decisions=self.registry.refusals(record.kind),
        )

    async def _held_with_key(self, record: Record, stage: Stage) -> int:
        """How many records with the same key the stage holds, as far as its limit goes."""
        assert stage.per is not None and stage.at_once is not None  # noqa: PT018
        value = getattr(record, stage.per)
        same = null if value is None else Cond("eq", value)
        tests = (("status", one_of(*stage.states)), *stage.where, (stage.per, same))
        held = Query(stage.kind, (*tests, ("leased_by", not_null)))
        return (await self._store.count(held, stage.at_once))[0]

    async def _earlier_states(self, record: Record) -> list[str]:
        """The states that earlier versions declared, if the record may be in one."""
        kind = LifecycleRecord.kind
        known = record.status in record.kind.lifecycle.states
        [stored] = [None] if known else await self._store.get(kind, [record.kind.table])
        return stored.earlier if isinstance(stored, LifecycleRecord) else []

    async def search(self, text: str, limit: int = 5) -> list[dict[str, Any]]:
        """Records of every kind whose id is this text, or else begins with it.

        At most ``limit`` of a kind. Kinds with the id itself come first. An archive is searched for
        the id only.
        """
        exact: list[dict[str, Any]] = []
        near: list[dict[str, Any]] = []
        for kind in self.registry.all_kinds if text else ():
            found = [r for r in await self._store.get(kind, [text]) if r is not None]
            if not found and kind.archive:
                archived = query(kind, {"id": text}, limit=1, archived=True)
                found = list((await self._store.find(archived)).items)
            hits = exact if found else near
            if not found:
                begins = query(kind, {"id": beginning(text)}, limit=limit)
                found = list((await self._store.find(begins)).items)
            if found:
                items = [self._titles.item(record) for record in found]
                hits.append({"table": kind.table, "items": items})
        return exact + near

    async def related(self, table: str, id: str) -> list[dict[str, Any]]:
        """The records that this one refers to, those that refer to it, and its dead letters.

        ``more``: there are others; the filter ``field=id`` in that table finds them.
        """
        record = await self.record(table, id)
        known = self.registry.kinds
        out = []
        for field, target in record.kind.refs:
            value = getattr(record, field)
            if value and target in known:
                found = [
                    r for r in await self._store.get(known[target], [str(value)]) if r is not None
                ]
                out.append(self._titles.relation("to", field, target, Page(found, None)))
        for other in self.registry.all_kinds:
            for field, target in other.refs:
                served = next((i for i in other.indexes if i[0].removeprefix("-") == field), None)
                if served is None and other.unique_key and other.key[0] == field:
                    served = (field,)
                if target == table and served is not None:  # without an index: a full table scan
                    page = await self._store.find(
                        query(other, {field: id}, order=served[1:2], limit=RELATED)
                    )
                    out.append(self._titles.relation("from", field, other.table, page))
        letters = await self.dead_letters({"table_name": table, "record_id": id}, limit=RELATED)
        if letters.items:
            out.append(self._titles.relation("from", "record_id", DeadLetter.kind.table, letters))
        return out

    async def dead_letters(
        self, where: Where, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]:
        return await self.records(
            DeadLetter.kind.table, where, order="-created_at", limit=limit, after=after
        )

    async def saved_filters(self, table: str | None = None) -> list[SavedFilter]:
        """The saved filters, of one kind or of all, by table and name."""
        return await saved_filters(self._store, table)

    async def saved_filter(self, table: str, name: str) -> SavedFilter:
        """The saved filter of this name. Raises NotFound with the names that exist."""
        return await saved_filter(self._store, self.lookup(table), name)

    async def workers(self) -> list[dict[str, Any]]:
        """Worker processes, the newest first; alive while their own lease lasts."""
        page = await self._records.find(WorkerRecord, order="-started_at", limit=100)
        return [shapes.worker_shape(worker, self.now()) for worker in page.items]

    # views

    async def views(self, pipeline: str | None = None) -> list[dict[str, Any]]:
        """Every view (of one pipeline) with its number of records, if it is about records."""
        return [
            await self._view_shape(view)
            for plan in self.registry.plans
            if pipeline in (None, plan.name)
            for view in plan.app.views
        ]

    async def view(self, name: str, *, limit: int = 50, after: str | None = None) -> dict[str, Any]:
        """One page of a view: its columns in order, its items, and the cursor of the next page."""
        views = {view.name: view for plan in self.registry.plans for view in plan.app.views}
        if name not in views:
            raise NotFound(unknown("view_not_found", name, views, name=name))
        view = views[name]
        offered = {"artifacts": self._artifacts, "read_model": self}
        more = {parameter: offered[parameter] for parameter in view.asks}
        page = await view.load_page(self._records, limit, after, **more)
        columns = list(dict.fromkeys(column for item in page["items"] for column in item))
        return await self._view_shape(view) | {
            "columns": columns,
            "items": page["items"],
            "next": page["next"],
        }

    async def _view_shape(self, view: View) -> dict[str, Any]:
        if view.kind is None:
            return shapes.view_shape(view)
        return shapes.view_shape(
            view, *await self._store.count(query(view.kind, view.where), COUNTED)
        )
