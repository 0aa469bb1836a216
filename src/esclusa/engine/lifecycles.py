"""Lifecycles that change: what is declared beside what is stored, and the records that follow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

from esclusa.engine.clock import StoreClock
from esclusa.engine.registry import SYSTEM, Registry
from esclusa.model.errors import BadQuery, BadRecord, EsclusaError, NotFound, SchemaBehind
from esclusa.model.kind import Kind
from esclusa.model.names import unknown
from esclusa.model.query import Cond, Query
from esclusa.model.record import Record
from esclusa.model.settlement import Settlement, StateCount
from esclusa.model.stage import Stage
from esclusa.model.system_records import Audit, LifecycleRecord
from esclusa.model.texts import Text, text
from esclusa.model.value import value
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# Records that one call renames.
BATCH: Final = 1000
# Records are counted up to here.
COUNTED: Final = 100_000
# Seconds between two looks for records that workers of an earlier version wrote: at first, and
# at most if none comes.
SOON, LATE = 5.0, 60.0
# How often, and after how many seconds, `rename` tries again what other programs have locked.
LOCK_TRIES, LOCK_WAIT = 10, 0.5
# How many of the records that it leaves `rename` names.
NAMED: Final = 10
# Seconds that the end of a process waits for a batch under way.
STOP_WAIT: Final = 5.0


@value
class Renamed:
    """The records of a table that were given their present state, and those that were left.

    ``names``: the ids of the first that were left.
    """

    moved: int
    left: int
    names: tuple[str, ...] = ()


@value
class StageDiff:
    """A stage that is new, that takes more states than before, or that is not declared any more.

    ``states``: those that it takes now and did not take before; of a removed stage, those that it
    took. ``count``: the records in them; None if they cannot be counted yet.
    ``since``: it takes only records that are due from this time on.
    """

    stage: str
    change: str
    states: tuple[str, ...]
    count: int | None
    exact: bool = True
    since: datetime | None = None

    @property
    def text(self) -> Text:
        values = {"stage": self.stage, "states": ", ".join(self.states)}
        number = "?" if self.count is None else f"{self.count:,}{'' if self.exact else '+'}"
        if self.change != "removed" and self.since is not None:
            return text("stage_since", **values, since=self.since, count=number)
        return text(f"stage_{self.change}", **values, count=number)


@value
class LifecycleDiff:
    """How a declared lifecycle differs from the stored one.

    ``known``: a lifecycle is stored; without one, only the states of the records are compared.
    ``renamed``: earlier name, present name, records that still have the earlier one.
    ``undeclared``: states that records are in and that no declaration has: they are stranded.
    ``unserved``: states whose records a removed stage took, and that no stage takes now.
    """

    table: str
    known: bool
    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[tuple[str, str, int], ...]
    undeclared: tuple[StateCount, ...]
    unserved: tuple[StateCount, ...]
    stages: tuple[StageDiff, ...]

    @property
    def stranded(self) -> int:
        """How many records nothing would move any more."""
        return sum(c.count for c in (*self.undeclared, *self.unserved))

    @property
    def changed(self) -> bool:
        moved = any(count for _, _, count in self.renamed)
        return moved or any((self.added, self.removed, self.undeclared, self.unserved, self.stages))

    def answer(self) -> dict[str, Any]:
        return asdict(self) | {
            "renamed": [{"from": o, "to": n, "count": c} for o, n, c in self.renamed],
            "stages": [asdict(s) | {"text": str(s.text)} for s in self.stages],
            "stranded": self.stranded,
        }


class Lifecycles:
    """The declared lifecycles and the stored ones. ``migrate`` stores them, workers read them."""

    def __init__(self, registry: Registry, store: Store, clock: StoreClock) -> None:
        self._registry = registry
        self._store = store
        self._clock = clock
        # The lifecycles of system records are not stored: they change with the program alone.
        self._kinds = [kind for kind in registry.all_kinds if not kind.system]
        # Whether the starts of stages were read.
        self.loaded = False

    # reading

    async def stored(self) -> dict[str, LifecycleRecord]:
        """The stored lifecycles, by table."""
        kind = LifecycleRecord.kind
        found = await self._store.get(kind, [kind.id_of(k.table) for k in self._kinds])
        return {
            record.table_name: record for record in found if isinstance(record, LifecycleRecord)
        }

    async def load_starts(self) -> None:
        """Read from when on stages take records, for the claims of this process."""
        self._use_starts((await self.stored()).values())

    def _use_starts(self, records: Iterable[LifecycleRecord]) -> None:
        self.loaded = True
        self._registry.starts = {
            stage: datetime.fromisoformat(since)
            for record in records
            for stage, since in record.starts.items()
        }

    async def undeclared(self, kind: Kind) -> list[StateCount]:
        """The states that records are in and that the lifecycle does not have, with counts.

        Records under the earlier name of a renamed state are counted there.
        """
        life = kind.lifecycle
        own = {*life.states, *life.foreign}
        strange = [s for s in await self._store.states(kind) if s not in own]
        return [await self._count(kind, state) for state in strange]

    async def diff(self) -> list[LifecycleDiff]:
        """Compare every kind; works before ``migrate``, on the schema of the version before.

        Raises SchemaError with every fault if a table does not fit what is declared.
        """
        with suppress(SchemaBehind):
            await self._store.use(self._registry.all_kinds, self._registry.all_stages)
        stored: dict[str, LifecycleRecord] = {}
        if await self._store.states(LifecycleRecord.kind):
            stored = await self.stored()
        self._use_starts(stored.values())
        return [await self._diff(kind, stored.get(kind.table)) for kind in self._registry.all_kinds]

    async def _diff(
        self, kind: Kind, before: LifecycleRecord | None, begun: Collection[str] = ()
    ) -> LifecycleDiff:
        """Compare one kind. ``begun``: stages that count as new, because they begin now."""
        life = kind.lifecycle
        found = {c.state: c for c in await self.undeclared(kind)}
        earlier = before.states if before is not None else life.states
        stages = self._stages(kind)
        served = {state for stage in stages for state in stage.states}
        dropped = {} if before is None else _removed_stages(before, stages)
        alone = sorted(
            {s for states in dropped.values() for s in states}
            & {s for s in life.states if s not in served and s not in life.terminal}
        )
        unserved = [await self._count(kind, state) for state in alone]
        diffs = [StageDiff(name, "removed", states, None) for name, states in dropped.items()]
        for stage in stages:
            new = before is None or stage.name in begun
            known = [] if new or before is None else before.stages.get(stage.name, [])
            diffs += await self._stage_diff(stage, {life.current(state) for state in known})
        return LifecycleDiff(
            kind.table,
            before is not None,
            tuple(s for s in life.states if s not in earlier and s not in life.renamed.values()),
            tuple(s for s in earlier if s not in life.states and s not in life.renamed),
            tuple(
                (old, new, found[old].count if old in found else 0)
                for old, new in life.renamed.items()
                if old in found or old in earlier
            ),
            tuple(c for c in found.values() if c.state not in life.renamed),
            tuple(c for c in unserved if c.count),
            tuple(diffs),
        )

    async def _stage_diff(self, stage: Stage, known: Collection[str]) -> list[StageDiff]:
        """What a stage takes that it did not take before, with the records that are due now."""
        new = tuple(state for state in stage.take if state not in known)
        if not new:
            return []
        since, change = self._registry.start_of(stage), "wider" if known else "new"
        request = replace(self._registry.request(stage), take=new, hold=None)
        try:
            found = await self._store.backlog(request, COUNTED)
        except EsclusaError:  # a table or column that `migrate` adds
            return [StageDiff(stage.name, change, new, None, since=since)]
        return [StageDiff(stage.name, change, new, found.due, found.exact, since)]

    def _stages(self, kind: Kind) -> list[Stage]:
        stages = self._registry.all_stages
        return [s for s in stages if s.kind == kind and not s.name.startswith(SYSTEM)]

    async def _count(self, kind: Kind, state: str) -> StateCount:
        asked = Query(kind, (("status", Cond("eq", state)),))
        return StateCount(state, *await self._store.count(asked, COUNTED))

    # writing

    async def save(self, who: str, *, from_now: Iterable[str] = ()) -> list[LifecycleDiff]:
        """Store what is declared; return how it differed, for those that changed.

        ``from_now``: stages that take only records which become due from now on.
        """
        named = list(from_now)
        for name in named:
            self._check_start(name)
        stored, now = await self.stored(), await self._clock.sync()
        records, changed = [], []
        for kind in self._kinds:
            record = self._declared(kind, stored.get(kind.table))
            record.starts |= {
                n: now.isoformat() for n in named if self._registry.stages[n].kind == kind
            }
            records.append(record)
            if await self._write(record, stored.get(kind.table), who):
                changed.append(kind)
        self._use_starts(records)
        return [await self._diff(kind, stored.get(kind.table), named) for kind in changed]

    def _check_start(self, name: str) -> None:
        stage = self._registry.stages.get(name)
        if stage is None:
            known = [s.name for kind in self._kinds for s in self._stages(kind)]
            raise NotFound(unknown("stage_not_declared", name, known, name=name))
        if stage.kind.attached and "created_at" not in stage.kind.track:
            raise BadQuery(text("start_needs_time", stage=name, table=stage.kind.table))

    def _declared(self, kind: Kind, before: LifecycleRecord | None) -> LifecycleRecord:
        states = kind.lifecycle.states
        known = [] if before is None else [*before.earlier, *before.states]
        return LifecycleRecord(
            table_name=kind.table,
            states=list(states),
            earlier=[s for s in dict.fromkeys(known) if s not in states],
            stages={stage.name: list(stage.states) for stage in self._stages(kind)},
            starts={} if before is None else dict(before.starts),
        )

    async def _write(
        self, record: LifecycleRecord, before: LifecycleRecord | None, who: str
    ) -> bool:
        """Whether it differs from what is stored."""
        if before is None:
            await self._store.insert([record])
            return True
        fields = {name: getattr(record, name) for name in ("states", "earlier", "stages", "starts")}
        if all(getattr(before, name) == given for name, given in fields.items()):
            return False
        kept = Settlement(before.ref, "kept", ("kept",), None, fields, who=who)
        await self._store.settle([kept])
        return True

    async def rename(
        self, who: str, progress: Callable[[str, int], None] = lambda table, moved: None
    ) -> dict[str, Renamed]:
        """Move all records in renamed states; return how many were moved and left, by table.

        Records are left if other programs keep them locked; workers move them later. Raises
        BadRecord at the end, with the records that their tables refuse.
        """
        done, refused = {}, list[str]()
        for kind in self._registry.all_kinds:
            if not kind.lifecycle.renamed:
                continue
            moved = left = tries = 0
            try:
                while True:
                    batch = await self._store.rename_states(kind, BATCH)
                    moved += batch
                    progress(kind.table, moved)
                    if batch:
                        continue
                    left = sum(
                        c.count
                        for c in await self.undeclared(kind)
                        if c.state in kind.lifecycle.renamed
                    )
                    tries += 1
                    if not left or tries > LOCK_TRIES:
                        break
                    await asyncio.sleep(LOCK_WAIT)
            except BadRecord as error:
                refused.append(str(error))
            finally:
                if moved:
                    await self._store.insert([rename_audit(kind, moved, who, self._clock.now())])
            if moved or left:
                names = await self._left_out(kind) if left else ()
                done[kind.table] = Renamed(moved, left, names)
        if refused:
            raise BadRecord("; ".join(refused))
        return done

    async def _left_out(self, kind: Kind) -> tuple[str, ...]:
        """The ids of some records that are still in a renamed state."""
        earlier = ("status", Cond("in", tuple(kind.lifecycle.renamed)))
        page = await self._store.find(Query(kind, (earlier,), limit=NAMED))
        return tuple(record.id for record in page.items)


class StragglerRenamer:
    """Moves what workers of an earlier version still write, as long as the process runs.

    It asks every few seconds while such records come, and every minute if none does.
    """

    def __init__(
        self,
        registry: Registry,
        store: Store,
        clock: StoreClock,
        telemetry: Telemetry,
        worker: str,
        soon: float = SOON,
    ) -> None:
        self._kinds = [kind for kind in registry.all_kinds if kind.lifecycle.renamed]
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._worker = worker
        self._soon = soon
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._kinds:
            self._task = asyncio.create_task(self._loop(), name="renaming states")

    async def stop(self) -> None:
        """End after the batch under way and its audit row, or after ``STOP_WAIT`` seconds."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_WAIT)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        pause = self._soon
        while not self._stopping.is_set():
            moved = sum([await self._rename(kind) for kind in self._kinds])
            pause = self._soon if moved else min(LATE, pause * 2)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _rename(self, kind: Kind) -> int:
        """Move what there is of one kind; a fault is logged, and the next round tries again."""
        moved, batch = 0, BATCH
        try:
            while batch == BATCH and not self._stopping.is_set():
                batch = await self._store.rename_states(kind, BATCH, self._worker)
                moved += batch
            if moved:
                await self._store.insert(
                    [rename_audit(kind, moved, self._worker, self._clock.now())]
                )
        except EsclusaError as error:
            self._telemetry.event("warning", f"states of {kind.table} are not renamed: {error}")
        except Exception as error:  # noqa: BLE001 - the next round may succeed
            self._telemetry.event(
                "error", f"states of {kind.table} are not renamed: {error}", exc_info=error
            )
        return moved


def rename_audit(kind: Kind, moved: int, who: str, now: datetime) -> Record:
    """The audit row of records that got the present name of their state."""
    renamed = dict(kind.lifecycle.renamed)
    return Audit(
        who=who, verb="rename", subject=kind.table, filter=renamed, affected=moved, done_at=now
    )


def _removed_stages(before: LifecycleRecord, stages: Iterable[Stage]) -> dict[str, tuple[str, ...]]:
    declared = {stage.name for stage in stages}
    return {n: tuple(states) for n, states in before.stages.items() if n not in declared}
