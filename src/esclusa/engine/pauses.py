"""Pauses of whole stages, in all workers: asked for by a handler, or by a stage's breaker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from esclusa.engine.alerts import AlertLog
from esclusa.engine.clock import StoreClock
from esclusa.engine.options import Options
from esclusa.engine.records import Records
from esclusa.engine.threads import end_tasks
from esclusa.model.decide import Raised, Result, failure_of
from esclusa.model.errors import StoreConflict, StoreUnavailable, Throttled
from esclusa.model.kind import Ref
from esclusa.model.outcome import Retry, Wait
from esclusa.model.query import one_of
from esclusa.model.retry import error_message, unwrap_group
from esclusa.model.settlement import ClaimRequest, Duplicate, Renewal, Settled, Settlement
from esclusa.model.stage import Stage
from esclusa.model.system_records import StagePause
from esclusa.model.texts import dump, load, text
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# The alert of a stage whose breaker has tripped.
ALERT = "stage_paused"
# Seconds until a paused stage looks again for a record to try, if none was due.
NOTHING_DUE = 5.0
# The states of a pause that is not over.
OPEN = ("paused", "trying")


async def open_pauses(records: Records, now: datetime) -> dict[str, StagePause]:
    """The pauses that are not over, by stage. Raises StoreUnavailable."""
    page = await records.find(StagePause, {"status": one_of(*OPEN)}, limit=1000)
    return {
        pause.stage: pause
        for pause in page.items
        if pause.cause == "breaker" or (pause.due_at is not None and pause.due_at > now)
    }


class StageGate:
    """Whether a stage may claim now; shared by the workers of the stage in this process.

    ``pause`` is None for a stage that is not paused. ``tried_by`` is the worker that tries one
    record at a time, while it holds the right to do so in the whole cluster.
    """

    def __init__(self, stage: Stage, pauses: StagePauses) -> None:
        self._stage = stage
        self._pauses = pauses
        self._errors = 0
        # Whether a record was handled in this process.
        self._worked = False
        self.breaker = stage.breaker
        self.pause: StagePause | None = None
        self.tried_by: object | None = None
        self.lease: tuple[Ref, int] | None = None
        self.unwritten = 0

    @property
    def tripped(self) -> bool:
        """Whether the breaker has paused the stage."""
        return self.pause is not None and self.pause.cause == "breaker"

    async def passes(self, worker: object) -> bool:
        """Whether this worker may claim now: all, or one record that it tries."""
        pause = self.pause
        if pause is None or self.tried_by is worker:
            return True
        if self.tried_by is not None or self.left() > 0:
            return False
        if pause.cause == "wait":
            self.pause = None
            await self._pauses.end(pause)
            return True
        self.lease = await self._pauses.claim(pause)
        if self.lease is None:
            return False
        self.tried_by = worker
        return True

    def left(self) -> float:
        """Seconds until the pause is over, or until a record may be tried."""
        if self.pause is None or self.pause.due_at is None:
            return 0.0
        return (self.pause.due_at - self._pauses.now()).total_seconds()

    def judge(self, result: Result, attempt: int) -> Result:
        """What a result means for the stage; return what it means for the record."""
        if (asked := self._asked(result)) is not None:
            self._pause_until(*asked)
            return result
        if self.breaker is None or not isinstance(result, Retry | Raised):
            return result
        failure = failure_of(result)
        if failure is None or failure[0] not in self.breaker.types:
            return result
        self._errors += 1
        many = self._errors >= self.breaker.errors
        if self.tried_by is not None or (self.pause is None and many):
            self._trip(*failure)
        elif self.pause is None and not self._spares(failure[0], attempt):
            return result
        fields = result.fields if isinstance(result, Retry) else {}
        reason = text("not_counted", type=failure[0], why=failure[1])
        return Wait(0, reason, **fields)

    def _spares(self, type: str, attempt: int) -> bool:
        """Whether a record keeps its last attempt, because the error may be that of an outage.

        It is the record's own if others were handled here, and no other error came since.
        """
        own = self._worked and self._errors == 1
        return self._stage.retry.of(type).spent(attempt) and not own

    def worked(self) -> None:
        """A record was handled: what the stage depends on is there."""
        self._errors, self._worked = 0, True
        if self.tried_by is not None and self.pause is not None:
            pause, lease = self.pause, self.lease
            self.pause = self.tried_by = self.lease = None
            self._pauses.soon(self, self._pauses.end(pause, lease))

    async def release(self, worker: object, delay: float = NOTHING_DUE) -> None:
        """This worker has nothing to try now: let any worker try later."""
        if self.tried_by is worker and self.pause is not None:
            lease, self.tried_by, self.lease = self.lease, None, None
            until = self._pauses.now() + timedelta(seconds=delay)
            self.pause = self.pause.but(due_at=until)
            self._pauses.soon(self, self._pauses.write(self.pause, lease))

    async def written(self) -> None:
        """Wait shortly until the store has the pause, for those who look after the run."""
        await self._pauses.written()

    async def refresh(self) -> None:
        """Read whether the stage is paused. A store that does not answer is reported by claims.

        Stages of the engine itself begin every few seconds, and never pause.
        """
        if self._stage.kind.system:
            return
        with suppress(StoreUnavailable, StoreConflict):
            await self._pauses.refresh()

    def stored(self, pause: StagePause | None) -> None:
        """The pause as the store has it now."""
        if self.tried_by is None and not self.unwritten:
            self.pause = pause

    def _asked(self, result: Result) -> tuple[datetime, str] | None:
        """Until when and why the handler asks the whole stage to wait, if it does."""
        if isinstance(result, Wait) and result.stage:
            delay = timedelta(seconds=result.delay)
            return result.until or self._pauses.now() + delay, result.reason
        if isinstance(result, Raised):
            error = unwrap_group(result.error)
            if isinstance(error, Throttled) and error.stage:
                delay = timedelta(seconds=error.after)
                return self._pauses.now() + delay, error_message(error)
        return None

    def _pause_until(self, until: datetime, reason: str) -> None:
        now = self._pauses.now()
        due = self.pause.due_at if self.pause is not None else None
        if until <= now or self.tripped or (due is not None and due >= until):
            return
        self.pause = StagePause(
            stage=self._stage.name, cause="wait", reason=dump(reason), begun_at=now, due_at=until
        )
        self._pauses.soon(self, self._pauses.write(self.pause))

    def _trip(self, type: str, why: str) -> None:
        """Pause; a pause that follows a failed try is longer."""
        assert self.breaker is not None
        now, before, lease = self._pauses.now(), self.pause, self.lease
        number = before.number + 1 if before is not None and self.tried_by is not None else 1
        self.tried_by = self.lease = None
        reason = text("errors_in_a_row", count=self.breaker.errors, type=type, why=why)
        self.pause = StagePause(
            stage=self._stage.name,
            cause="breaker",
            reason=reason.dump(),
            begun_at=now if before is None else before.begun_at,
            number=number,
            due_at=now + timedelta(seconds=self.breaker.seconds(number)),
        )
        self._pauses.soon(self, self._pauses.write(self.pause, lease))
        self._pauses.report(self.pause)


class StagePauses:
    """The gates of all stages, and their pauses in the store.

    A pause is in the store, so that all workers see it, also after a restart. Each process reads
    them when a stage begins, when another process notifies it, and at intervals.
    """

    def __init__(
        self,
        store: Store,
        records: Records,
        clock: StoreClock,
        alerts: AlertLog,
        telemetry: Telemetry,
        options: Options,
        worker: str,
        stages: Iterable[Stage],
    ) -> None:
        self._store = store
        self._records = records
        self._clock = clock
        self._alerts = alerts
        self._telemetry = telemetry
        self._options = options
        self._worker = worker
        self._gates = {stage.name: StageGate(stage, self) for stage in stages}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self.now: Callable[[], datetime] = clock.now

    def gate(self, stage: Stage) -> StageGate:
        return self._gates[stage.name]

    def tripped(self, stage: Stage) -> bool:
        """Whether the stage's breaker has paused it, as far as this process knows."""
        return self.gate(stage).tripped

    async def refresh(self) -> None:
        """Read the pauses of the stages that this process works for."""
        async with self._turn:
            found = await open_pauses(self._records, self.now())
            for name, gate in self._gates.items():
                gate.stored(found.get(name))

    async def end_alerts(self) -> None:
        """End the alerts of stages that work again, in whatever process or by an operator."""
        alerts = [subject for name, subject in await self._alerts.open() if name == ALERT]
        for stage in alerts:
            if stage not in self._gates or not self._gates[stage].tripped:
                await self._alerts.end(ALERT, stage)

    def lost(self, lost: Collection[Ref]) -> None:
        """Another worker tries records now."""
        for gate in self._gates.values():
            if gate.lease is not None and gate.lease[0] in lost:
                gate.tried_by = gate.lease = None

    def renewals(self, lease: float) -> list[Renewal]:
        """The leases under which this process tries records."""
        held = [gate.lease for gate in self._gates.values() if gate.lease is not None]
        return [Renewal(ref, fence, lease) for ref, fence in held]

    def report(self, pause: StagePause) -> None:
        message = text("stage_paused", stage=pause.stage, why=load(pause.reason))
        self._alerts.begin_soon(ALERT, pause.stage, message)

    async def claim(self, pause: StagePause) -> tuple[Ref, int] | None:
        """The right to try records, which one worker of all has. None: another one has it."""
        kind = StagePause.kind
        taken = await self._store.claim(
            ClaimRequest(
                kind,
                pause.stage,
                ("paused",),
                "trying",
                ids=(kind.id_of(pause.stage),),
                lease=self._options.lease,
                worker=self._worker,
            )
        )
        return (taken[0].ref, taken[0].fence) if taken else None

    async def write(self, pause: StagePause, lease: tuple[Ref, int] | None = None) -> None:
        """Store a pause: in place of the one that this process tried under ``lease``, or anew."""
        fields = {name: getattr(pause, name) for name in ("cause", "reason", "begun_at", "number")}
        ref = Ref(StagePause.kind, StagePause.kind.id_of(pause.stage))
        states, fence = ("paused", "over", "trying") if lease is None else ("trying",), None
        if lease is not None:
            ref, fence = lease
        else:
            [answer] = await self._store.insert([pause.but(status="paused")])
            if not isinstance(answer, Duplicate):
                await self._store.wake(StagePause.kind)
                return
        await self._store.settle(
            [
                Settlement(
                    ref,
                    "paused",
                    states,
                    fence,
                    fields,
                    attempts=0,
                    until=pause.due_at,
                    who=self._worker,
                    reason=pause.reason,
                )
            ]
        )
        await self._store.wake(StagePause.kind)

    async def end(self, pause: StagePause, lease: tuple[Ref, int] | None = None) -> None:
        """The stage works again, in all processes."""
        own = Ref(StagePause.kind, StagePause.kind.id_of(pause.stage))
        ref, fence = (own, None) if lease is None else lease
        states = ("paused",) if lease is None else ("trying",)
        [verdict] = await self._store.settle(
            [Settlement(ref, "over", states, fence, attempts=0, who=self._worker)]
        )
        if isinstance(verdict, Settled):
            await self._store.wake(StagePause.kind)
        if pause.cause == "breaker":
            await self._alerts.end(ALERT, pause.stage)

    def refresh_soon(self, then: Callable[[], None]) -> None:
        """Another process has paused a stage or ended a pause; ``then`` is called afterwards."""

        async def refresh() -> None:
            with suppress(StoreUnavailable, StoreConflict):
                await self.refresh()
            then()

        self._start(refresh())

    def soon(self, gate: StageGate, write: Coroutine[Any, Any, None]) -> None:
        """Write in the background, one after another."""
        gate.unwritten += 1
        self._start(self._written(gate, write))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="stage pause")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _written(self, gate: StageGate, write: Coroutine[Any, Any, None]) -> None:
        async with self._turn:
            try:
                await write
            except (StoreUnavailable, StoreConflict) as error:
                # This process keeps to it anyway; the others find out by themselves.
                self._telemetry.event("warning", f"the pause of a stage was not written: {error}")
            finally:
                gate.unwritten -= 1

    async def written(self) -> None:
        """Wait shortly for what is being written."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=2.0)

    async def close(self) -> None:
        await self.written()
        await end_tasks(*self._tasks)
