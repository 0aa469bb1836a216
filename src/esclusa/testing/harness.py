"""The harness: a worker in the test's own process, whose time, handlers and death a test controls.

Nothing sleeps: a retry, a ``Wait``, a lease or a deadline comes due when the test skips the time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

from pydantic import BaseModel

from esclusa.artifacts.local import LocalArtifacts
from esclusa.engine.engine import Engine
from esclusa.engine.operations import Operations
from esclusa.engine.records import Records
from esclusa.engine.runs import RunContext
from esclusa.model import duration
from esclusa.model.budget import Budget, Denied
from esclusa.model.effects import Effect
from esclusa.model.errors import NotFound
from esclusa.model.kind import Ref
from esclusa.model.pipeline import App
from esclusa.model.record import Record
from esclusa.model.schedule import Always
from esclusa.model.settlement import Step
from esclusa.model.stage import Cycle
from esclusa.model.system_records import Alert, DeadLetter, Message
from esclusa.ports.artifacts import Artifacts
from esclusa.ports.store import Store
from esclusa.testing.databases import MEMORY, open_database
from esclusa.testing.handlers import POINTS, Call, PlannedCalls, Point, StandIn
from esclusa.testing.run_due import DueRuns
from esclusa.testing.worker import LEASE, WHO, HarnessWorker

R = TypeVar("R", bound=Record)
Length = str | float | timedelta


class Harness:
    """A pipeline under test: ``async with Harness(app) as h:``.

    settings: of the pipeline, as an object or as values by name. store: ``memory`` or the URL of a
    server, see ``open_database``. now: the time at which the test begins; by default the present.
    context: what handlers get as ``at.context``, instead of what the lifespan yields.
    raise_faults: whether ``run_due`` and ``run`` raise HandlerFaults when a handler's own code is
    wrong: an undeclared move or field, no answer, a TypeError. seed: of the retries' jitter.
    """

    def __init__(
        self,
        app: App,
        *,
        settings: BaseModel | Mapping[str, Any] | None = None,
        store: str = MEMORY,
        now: datetime | None = None,
        context: Any = None,
        raise_faults: bool = True,
        seed: int = 1,
    ) -> None:
        if now is not None and now.tzinfo is None:
            raise ValueError("Harness: now needs a time zone, such as datetime(…, tzinfo=UTC)")
        self.app = app
        self._worker = HarnessWorker(app, settings=settings, context=context, seed=seed)
        # The effects of all settlements so far, in order, dead letters and messages included.
        self.effects: list[Effect] = self._worker.effects
        self._handlers = self._worker.handlers
        self._url = store
        self._start = now
        self._raise_faults = raise_faults
        self._stack = AsyncExitStack()
        self._begun = now or datetime.now(UTC)
        self._store: Store | None = None
        self._artifacts: Artifacts | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
        if error is None and (unmet := self._handlers.unmet()):
            raise AssertionError("some calls were not made:" + "".join(f"\n  - {u}" for u in unmet))

    async def _open(self, stack: AsyncExitStack) -> None:
        present = datetime.now(UTC)
        offset = 0.0 if self._start is None else (self._start - present).total_seconds()
        self._store = await stack.enter_async_context(open_database(self._url, clock_offset=offset))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="esclusa-test-"))
        self._artifacts = LocalArtifacts(folder, durable=False)
        await self._artifacts.open()
        stack.push_async_callback(self._artifacts.close)
        stack.push_async_callback(self._worker.stop)
        await self._worker.start(self._store, self._artifacts)
        self._begun = await self.engine.clock.sync()

    @property
    def engine(self) -> Engine:
        """The engine of the worker; another one after a kill."""
        return self._worker.engine

    @property
    def records(self) -> Records:
        """The records, as handlers and routes use them."""
        return self.engine.records

    @property
    def operations(self) -> Operations:
        """What an operator can do."""
        return self.engine.operations(WHO)

    @property
    def artifacts(self) -> Artifacts:
        """The files that handlers keep, in a folder that ends with the test."""
        assert self._artifacts is not None
        return self._artifacts

    # drive

    async def insert(self, record: R) -> R:
        """Add a record, and return it as it is stored. A record whose key exists stays."""
        [stored] = await self.insert_all([record])
        return stored

    async def insert_all(self, records: Sequence[R]) -> list[R]:
        """Add records in one transaction, and return them as they are stored."""
        if not records:
            return []
        answers = await self.records.insert(records)
        return [
            await self.record(type(record), answer.id)
            for record, answer in zip(records, answers, strict=True)
        ]

    async def run_due(self) -> list[RunContext]:
        """Handle every record that is due, until nothing is; return the runs.

        A record is handled whatever the schedule of its cycle. A cycle with a function of its own
        runs if its slot has come since the test began; that of an interval comes an interval after
        that, or after its last run. If the worker is killed, the rest is left to the next call.
        """
        runs = await DueRuns(self.engine, lambda: self._worker.killed, self._begun).run()
        await self._after_runs()
        return runs

    async def run(
        self, cycle: str, *, limit: int | None = None, params: dict[str, Any] | None = None
    ) -> RunContext:
        """Run a cycle now, as ``esclusa run`` does. Its name is with or without the pipeline's."""
        names = self.engine.cycles
        full = cycle if cycle in names else f"{self.app.name}.{cycle}"
        run = await self.engine.run_cycle(full, limit=limit, params=params)
        await self._after_runs()
        return run

    async def run_stage(self, stage: str) -> RunContext:
        """Handle what is due for one stage, whatever cycle drains it, and nothing else."""
        engine = self.engine
        found = engine.registry.stage(stage, pipeline=self.app.name)
        cycle = Cycle(found.name, Always(), (found,))
        run = engine.runner.new_run(cycle, await engine.clock.sync())
        await engine.runner.drain(run, found.name)
        await self._after_runs()
        return run

    async def run_until_idle(self, within: Length = "30d") -> list[RunContext]:
        """Handle what is due and skip to what is due next, until nothing is due within this time.

        So retries, waits and deadlines take place in their order.
        """
        end = self.now + timedelta(seconds=duration.seconds(within))
        runs = await self.run_due()
        due = DueRuns(self.engine, lambda: False, self._begun)
        while (moment := await due.next_due(end)) is not None:
            await self.skip(max(moment - self.now, timedelta()) + timedelta(milliseconds=1))
            runs += await self.run_due()
        return runs

    async def _after_runs(self) -> None:
        await self.engine.alerts.flush()
        await self._worker.replace_killed()
        if self._raise_faults:
            self._worker.faults.check()

    async def skip(
        self,
        length: Length = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> datetime:
        """Let so much time pass at once, ``"2d"`` or ``days=2``; return the time that it is then.

        Nothing is handled meanwhile: call ``run_due``.
        """
        more = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        passed = duration.seconds(length) + duration.seconds(more)
        store: Any = self._store
        store.clock_offset += passed
        return await self.engine.clock.sync()

    async def skip_lease(self) -> datetime:
        """Let the leases of a killed worker expire, so that another one takes its records."""
        longest = max((stage.lease or 0 for stage in self.engine.stages.values()), default=0)
        return await self.skip(max(LEASE.total_seconds(), longest) + 1)

    @property
    def now(self) -> datetime:
        """The store's time."""
        return self.engine.clock.now()

    async def move(
        self, record: Record, to: str, *, reason: str = WHO, who: str = WHO, **fields: Any
    ) -> None:
        """Move a record as an operator with this name does. Raises UndeclaredMove."""
        acted = await self.engine.operations(who).move(
            record.kind.table, to, ids=[record.id], reason=reason, fields=fields
        )
        if not acted.moved:
            why = [passed["why"] for passed in acted.passed] or await self.why(record)
            raise AssertionError(f"{record.ref} was not moved to {to}: {why}")

    async def retry(self, record: Record, *, reason: str = WHO) -> None:
        """Send an exhausted record back to its stage, as an operator does."""
        acted = await self.operations.retry(record.kind.table, ids=[record.id], reason=reason)
        if not acted.moved:
            raise AssertionError(f"{record.ref} cannot be retried: {await self.why(record)}")

    async def wake(self, record: R, **fields: Any) -> R:
        """Make a record due now, with these fields, as a signal from outside does."""
        found = await self.operations.wake(record.kind.table, record.id, fields=fields)
        return cast("R", found)

    async def spend(self, budget: str | Budget, units: int | None = None) -> None:
        """Use up units of a budget; by default all that are left in its narrowest window."""
        found = self.engine.registry.budget(budget) if isinstance(budget, str) else budget
        store = self.engine.store
        if units is None:
            units = min(window.left for window in await store.usage(found))
        if units and isinstance(await store.spend(found, units, WHO, least=units), Denied):
            raise AssertionError(f"the budget {found.name} does not have {units} units left")

    # what handlers do

    def fail(
        self, with_: BaseException, *, stage: str | None = None, call: int = 1, times: int = 1
    ) -> None:
        """Let a coming call of a handler raise this: the third with ``call=3``, then ``times``.

        The handler itself is not called. stage: only its calls count; by default those of all.
        """
        planned = PlannedCalls(f"fail({with_!r})", self._stage(stage), call, times, error=with_)
        self._handlers.plan(planned)

    def answer(
        self, answer: StandIn, *, stage: str | None = None, call: int = 1, times: int | None = None
    ) -> None:
        """Answer this instead of a handler, from the coming call on, or only ``times``.

        answer: an outcome, or a function that takes what the handler takes. The last one given
        counts.
        """
        planned = PlannedCalls("answer", self._stage(stage), call, times, stand_in=answer)
        self._handlers.plan(planned)

    def kill(self, at: Point, *, stage: str | None = None, call: int = 1) -> None:
        """Kill the worker at this point of a coming call: it settles nothing more.

        Its records stay held until their leases expire (``skip_lease``); then another worker takes
        them. ``before_handler``: they are claimed. ``after_save``: ``at.save`` was written.
        ``after_handler``: the handler has answered. ``after_settle``: the outcome was written.
        """
        if at not in POINTS:
            raise ValueError(f"kill: {at!r} is none of the points {', '.join(POINTS)}")
        self._handlers.plan(PlannedCalls(f"kill({at!r})", self._stage(stage), call, 1, point=at))

    def _stage(self, name: str | None) -> str | None:
        if name is None:
            return None
        return self.engine.registry.stage(name, pipeline=self.app.name).name

    # look

    @property
    def calls(self) -> list[Call]:
        """The calls of handlers so far, in order."""
        return self._handlers.calls

    @overload
    async def record(self, record: R, /) -> R: ...
    @overload
    async def record(self, record: type[R], /, *key: Any) -> R: ...
    async def record(self, record: Any, /, *key: Any) -> Any:
        """The record as it is stored now: of one that was stored, or by its id or key.

        Raises NotFound.
        """
        kind = type(record) if isinstance(record, Record) else record
        if isinstance(record, Record):
            found: Record | None = await self.records.get(kind, record.id)
        else:
            found = await self.records.get(kind, *key)
            if found is None and len(key) == len(kind.kind.key):
                found = await self.records.by_key(kind, *key)
        if found is None:
            listed = ", ".join(map(str, key or (record.id,)))
            raise NotFound(f"{kind.kind.table}: there is no record {listed}")
        return found

    async def all_records(self, kind: type[R], **where: Any) -> list[R]:
        """The records of a kind that match, by id."""
        return [record async for record in self.records.each(kind, where)]

    async def history(self, record: Record) -> list[Step]:
        """The moves of a record, oldest first."""
        return await self.engine.store.history(Ref(record.kind, record.id))

    async def path(self, record: Record) -> list[str]:
        """The states that a record has been in, in order, without waits and retries in a state."""
        moves = [step for step in await self.history(record) if step.frm != step.to]
        return [moves[0].frm, *(step.to for step in moves)] if moves else [record.kind.initial]

    async def dead_letters(self) -> list[DeadLetter]:
        """The dead letters that are open."""
        return await self.all_records(DeadLetter, status="open")

    async def messages(self, topic: str | None = None) -> list[Message]:
        """The messages that were published, of one topic or all, by the time of their creation."""
        where = {} if topic is None else {"topic": topic}
        found = [message async for message in self.records.each(Message, where)]
        return sorted(found, key=lambda message: message.created_at or self.now)

    async def alerts(self) -> list[Alert]:
        """The alerts that are open, judged now."""
        await self.engine.judge.judge()
        await self.engine.alerts.flush()
        return await self.all_records(Alert, status="raised")

    async def why(self, record: Record) -> str:
        """Why the record is not moving."""
        answer = await self.engine.read_model().why(record.kind.table, record.id)
        reasons = [r for r in answer.reasons if r.code != "no_worker"]
        return "; ".join(str(reason.text) for reason in reasons)

    async def assert_state(self, record: R, state: str, **fields: Any) -> R:
        """Assert that the record is in this state, with these fields; return it as it is stored.

        The failure says why the record is where it is.
        """
        found = await self.record(record)
        if state not in found.kind.lifecycle.states:
            states = ", ".join(found.kind.lifecycle.states)
            raise AssertionError(f"{found.kind.table} has no state {state!r}; it has {states}")
        wanted = {"status": state, **fields}
        pairs = [(name, getattr(found, name), value) for name, value in wanted.items()]
        if wrong := [f"{name} is {is_!r}, not {v!r}" for name, is_, v in pairs if is_ != v]:
            path = " -> ".join(await self.path(found))
            raise AssertionError(
                f"{found.ref}: {'; '.join(wrong)}\n  why: {await self.why(found)}"
                f"\n  path: {path}\n  last error: {found.last_error or 'none'}"
            )
        return found
