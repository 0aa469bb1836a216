"""More of the read model: trends, leases, related records, the archive. Like insight it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from esclusa.engine.engine import Engine
from esclusa.engine.rates import merge
from esclusa.model.errors import NotFound
from esclusa.model.query import above, at_least, at_most, beginning, one_of, query
from esclusa.model.record import Record
from esclusa.model.stage import Stage
from esclusa.model.system_records import DeadLetter, Export, Rate
from esclusa.model.texts import text
from esclusa.model.view import View

RELATED = 20
"""At most so many related records of one relation."""
LEASES = 100
"""At most so many leases of one stage."""
COUNTED = 10_000
"""The records of a view are counted up to here."""


class Outlook:
    """Answers in plain data, ready for JSON."""

    def __init__(
        self,
        engine: Engine,
        hidden: Callable[[str], bool] = lambda name: False,
        plain: Callable[[str], str] = lambda text: text,
    ) -> None:
        """``hidden``: fields of these names are no words by which a record is told from others. ``plain``: such words without
        what nobody should read."""
        self._engine = engine
        self._hidden = hidden
        self._plain = plain

    async def rates(self, minutes: int = 60, *, system: bool = False) -> list[dict[str, Any]]:
        """What each stage did, minute by minute; the minute under way is told when it is over."""
        now = self._engine.clock.now().replace(second=0, microsecond=0)
        first = now - timedelta(minutes=minutes)
        by_stage: dict[str, list[Rate]] = {}
        async for row in self._engine.records.each(Rate, {"minute": at_least(first)}):
            by_stage.setdefault(row.stage, []).append(row)
        stages = [
            s.name for s in self._engine.all_stages if system or not s.name.startswith("esclusa.")
        ]
        return [_series(name, by_stage.get(name, []), first, minutes) for name in stages]

    async def leases(self, *, system: bool = False) -> list[dict[str, Any]]:
        """Records that are held now: by whom, until when; ``orphan`` once the lease ran out and nobody took it over."""
        out = []
        for stage in self._engine.all_stages:
            if stage.name.startswith("esclusa.") and not system:
                continue
            out += [self._lease(stage, record) for record in await self._held(stage)]
        return out

    async def related(self, table: str, id: str) -> list[dict[str, Any]]:
        """Records that this one refers to, those that refer to it, and its dead letters, by the declared references.
        ``more``: there are others, found by the filter ``field=id`` in that table."""
        kind = self._engine.kind(table)
        record = (await self._engine.store.get(kind, [id]))[0]
        if record is None:
            raise kind.absent(id)
        known = {k.table: k for k in self._engine.all_kinds}
        out = []
        for field, target in kind.refs:
            value = getattr(record, field)
            if value and target in known:
                found = [
                    r
                    for r in await self._engine.store.get(known[target], [str(value)])
                    if r is not None
                ]
                out.append(self._relation("to", field, target, found, more=False))
        for other in self._engine.all_kinds:
            for field, target in other.refs:
                served = next((i for i in other.indexes if i[0].removeprefix("-") == field), None)
                if target == table and served is not None:  # no walk through a whole table
                    page = await self._engine.store.find(
                        query(other, {field: id}, order=served[1:2], limit=RELATED)
                    )
                    out.append(
                        self._relation(
                            "from", field, other.table, page.items, more=page.next is not None
                        )
                    )
        where = {"table_name": table, "record_id": id}
        letters = await self._engine.store.find(
            query(DeadLetter, where, order="-created_at", limit=RELATED)
        )
        if letters.items:
            out.append(
                self._relation(
                    "from",
                    "record_id",
                    DeadLetter.kind.table,
                    letters.items,
                    more=letters.next is not None,
                )
            )
        return out

    async def archives(self) -> list[dict[str, Any]]:
        """Each kind with an archive: rows in it (counted up to a cap), and what was exported, verified and dropped."""
        out = []
        for kind in self._engine.all_kinds:
            if kind.archive:
                rows, exact = await self._engine.store.count(query(kind, archived=True), 100_000)
                begun = [
                    e async for e in self._engine.records.each(Export, {"table_name": kind.table})
                ]
                exports = [e for e in begun if e.status != "filling"]
                unproved = [e.id for e in begun if e.status in ("filling", "written")]
                waits = [None, one_of(*unproved)] if unproved else [None]
                waiting = [
                    await self._engine.store.count(
                        query(kind, {"export_id": e}, archived=True), 100_000
                    )
                    for e in waits
                ]
                out.append({
                    "table": kind.table, "rows": rows, "exact": exact, "not_exported": sum(n for n, _ in waiting),
                    "not_exported_exact": all(whole for _, whole in waiting),
                    "exports": len(exports),
                    "exported_rows": sum(e.row_count for e in exports), "bytes": sum(e.byte_count for e in exports),
                    "unverified": sum(e.status == "written" for e in exports), "dropped": sum(e.status == "dropped" for e in exports),
                })  # fmt: skip
        return out

    async def views(self, pipeline: str | None = None) -> list[dict[str, Any]]:
        """Every view (of one pipeline), with how many records it is about; None where that is not what it tells."""
        return [
            await self._told(view)
            for plan in self._engine.plans
            if pipeline in (None, plan.name)
            for view in plan.app.views
        ]

    async def view(self, name: str, *, limit: int = 50, after: str | None = None) -> dict[str, Any]:
        """One page of a view: its columns in their order, its items, and the cursor of the next page."""
        views = {view.name: view for plan in self._engine.plans for view in plan.app.views}
        if name not in views:
            raise NotFound(text("view_not_found", name=name, known=", ".join(views) or "-"))
        page = await views[name].load_page(self._engine.records, limit, after)
        columns = list(dict.fromkeys(column for item in page["items"] for column in item))
        return await self._told(views[name]) | {
            "columns": columns,
            "items": page["items"],
            "next": page["next"],
        }

    async def search(self, text: str, limit: int = 5) -> list[dict[str, Any]]:
        """Records of every kind whose id is this text, or else begins with it; at most ``limit`` of a kind."""
        out = []
        for kind in self._engine.all_kinds if text else ():
            found = [r for r in await self._engine.store.get(kind, [text]) if r is not None]
            if not found:
                begins = {"id": beginning(text)}
                found = list(
                    (await self._engine.store.find(query(kind, begins, limit=limit))).items
                )
            if found:
                out.append({"table": kind.table, "items": [self._item(record) for record in found]})
        return out

    async def _told(self, view: View) -> dict[str, Any]:
        table = view.kind.table if view.kind is not None else None
        count, exact = (
            (None, True)
            if view.kind is None
            else await self._engine.store.count(query(view.kind, view.where), COUNTED)
        )
        return {
            "view": view.name,
            "title": dict(view.title),
            "table": table,
            "count": count,
            "exact": exact,
        }

    def _relation(
        self, way: str, field: str, table: str, records: Sequence[Record], *, more: bool
    ) -> dict[str, Any]:
        return {
            "way": way,
            "field": field,
            "table": table,
            "items": [self._item(record) for record in records],
            "more": more,
        }

    def _item(self, record: Record) -> dict[str, Any]:
        return {
            "id": record.id,
            "status": record.status,
            "title": self._title(record),
            "created_at": record.created_at,
        }

    def _title(self, record: Record) -> str:
        """A few words that tell a person which record this is: its first short text that is not part of its id."""
        passed = {field for field, _ in record.kind.refs}
        for field in record.kind.fields:
            value = getattr(record, field.name, None)
            if field.type != "text" or field.name in passed or self._hidden(field.name):
                continue
            if isinstance(value, str) and value and value not in record.id:
                return self._plain(value)[:80]
        return ""

    async def _held(self, stage: Stage) -> Sequence[Record]:
        if stage.hold is not None:
            page = await self._engine.store.find(
                query(stage.kind, {"status": stage.hold}, order="due_at", limit=LEASES)
            )
            return [r for r in page.items if r.leased_by is not None]
        # held where it is taken: leases end soon, so only what is due soon can be one
        now = self._engine.clock.now()
        soon = (above(now), at_most(now + timedelta(seconds=self._engine.lease_of(stage))))
        where = {"status": one_of(*stage.take), "due_at": soon}
        page = await self._engine.store.find(query(stage.kind, where, order="due_at", limit=LEASES))
        return [r for r in page.items if r.leased_by is not None]

    def _lease(self, stage: Stage, record: Record) -> dict[str, Any]:
        now = self._engine.clock.now()
        return {
            "stage": stage.name, "table": stage.kind.table, "id": record.id, "status": record.status, "worker": record.leased_by,
            "attempt": record.attempts, "until": record.due_at, "orphan": record.due_at is not None and record.due_at < now,
        }  # fmt: skip


def _series(stage: str, rows: list[Rate], first: datetime, minutes: int) -> dict[str, Any]:
    counts = ("moved", "retried", "waited", "exhausted", "lost")
    lines: dict[str, list[int]] = {name: [0] * minutes for name in counts}
    for row in rows:
        place = int((row.minute - first).total_seconds() // 60)
        if 0 <= place < minutes:
            for name in counts:
                lines[name][place] += getattr(row, name)
    total: dict[str, Any] = merge(rows).get(stage, {})
    done = sum(total.get(name, 0) for name in ("moved", "retried", "exhausted"))
    failed = total.get("retried", 0) + total.get("exhausted", 0)
    return {
        "stage": stage, "first": first, "minutes": minutes, **lines, "total": {name: int(total.get(name, 0)) for name in counts},
        "error_share": round(failed / done, 4) if done else None, "p50": total.get("p50"), "p90": total.get("p90"), "p99": total.get("p99"),
    }  # fmt: skip
