"""One stage of one run: claim → handle → settle, bounded, overlapped, stopped in order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from esclusa.engine.attempt import Attempt, StageTools
from esclusa.engine.claimer import Claimed, Claimer
from esclusa.engine.clock import StoreClock
from esclusa.engine.handler import HandlerCaller, HandlerPool, raised
from esclusa.engine.leases import HeldLease, LeaseRenewer
from esclusa.engine.options import Options
from esclusa.engine.pauses import StageGate
from esclusa.engine.record_spans import RecordSpans
from esclusa.engine.runs import RunContext
from esclusa.engine.stage_settler import StageSettler
from esclusa.engine.suspects import StageSuspects, Suspects
from esclusa.engine.threads import wait_at_most
from esclusa.model.budget import Denied
from esclusa.model.decide import GivenBack, OverLimit, Raised, Result, exhaustion_failed
from esclusa.model.errors import Failure, StoreConflict, StoreUnavailable
from esclusa.model.outcome import Retry
from esclusa.model.settlement import Leased
from esclusa.model.stage import Stage
from esclusa.model.strict_fields import restore_tracking
from esclusa.model.texts import load, text
from esclusa.ports.telemetry import Telemetry

# Seconds of work that may be claimed ahead: enough to hide a claim's round trip.
LEAD = 0.1


class StageWorker:
    """Drains a stage once (a run), or serves it until it is stopped (``forever``).

    At most ``concurrency`` handler calls are under way. What is claimed ahead follows the pace of
    the handler: what its calls can handle in LEAD seconds, at most ``options.prefetch``. Claiming,
    handling and settling overlap: records that are being settled take no room, up to the same
    number again.

    One record's way: ``_claim`` → ``_take`` → the pool → ``_attempt_one``, or ``_attempt`` with
    others → ``StageSettler.settle`` → ``StageSettler.written``. ``stage_settler`` makes the
    settler; it is called with ``released``.
    """

    def __init__(
        self,
        stage: Stage,
        run: RunContext,
        *,
        tools: StageTools,
        claimer: Claimer,
        leases: LeaseRenewer,
        stage_settler: Callable[..., StageSettler],
        clock: StoreClock,
        telemetry: Telemetry,
        record_spans: RecordSpans,
        options: Options,
        suspects: Suspects,
        gate: StageGate,
        paused: Callable[[], bool],
        forever: bool = False,
    ) -> None:
        self.stage = stage
        self.run = run
        self.inflight = 0
        self._forever = forever
        self._tools = tools
        self._claimer = claimer
        self._leases = leases
        self._gate = gate
        self._settler = stage_settler(gate=gate, released=self._released)
        self._clock = clock
        self._telemetry = telemetry
        self._record_spans = record_spans
        self._options = options
        self._paused = paused
        self._woken = asyncio.Event()
        self._freed = asyncio.Event()
        self._size = stage.batch or 1
        self._handler = HandlerCaller(stage)
        self._pool = HandlerPool(
            stage.name,
            size=stage.concurrency,
            batch=stage.batch,
            handle=self._attempt,
            handle_one=self._attempt_one,
            stopped=self._held_back,
            give_back=self._give_back,
        )
        self._suspects = StageSuspects(
            suspects,
            stage.name,
            self._pool,
            batch=self._size,
            handle=self._attempt,
            flush=self._settler.flush,
            stopped=self._halted,
            resumed=self._freed.set,
            given_back=self._settler.given_back,
        )
        self._stopping = False
        self._taken = self._claimed = 0
        self._unspent: Counter[datetime | None] = Counter()

    def wake(self) -> None:
        """Claim now instead of at the next poll: something may be due."""
        self._woken.set()

    def stop(self) -> None:
        """Claim nothing more and give back what was not begun; ``serve`` ends with the handlers."""
        self._stopping = True
        self._woken.set()
        self._freed.set()

    def abort(self) -> None:
        """Stop the handlers too; their records go back at once, the attempt not counted."""
        self.stop()
        self._pool.cancel("stopping")

    async def serve(self, *, limit: int | None = None) -> None:
        """Work until nothing is due (a run) or until stopped; return when all is settled.

        If it is stopped and then cancelled, it ends without waiting for its handlers.
        """
        me = asyncio.current_task()
        assert me is not None
        with self._suspects.joined():
            try:
                await self._gate.refresh()
                while not self._over(limit):
                    if self._forever and self._paused():
                        self._woken.clear()  # what is due now waits until the cycle is resumed
                        await wait_at_most(self._options.poll, self._woken)
                    elif await self._claim(limit) == 0 and not await self._idle():
                        break
            finally:
                if not (self._stopping and me.cancelling()):
                    await self._wind_down()

    def _halted(self) -> bool:
        return self._stopping or self.run.halted

    def _held_back(self) -> bool:
        """Whether what waits is given back instead of being handled."""
        gate = self._gate
        return self._halted() or (gate.pause is not None and gate.tried_by is not self)

    def _over(self, limit: int | None) -> bool:
        return self._halted() or self.run.is_full or (limit is not None and self._taken >= limit)

    # claim

    def _room(self, limit: int | None) -> int:
        """How many more to claim now; 0 while enough is waiting."""
        full = self.stage.concurrency * self._size
        most = max(self._options.prefetch, full)
        pace = self._handler.pace
        ahead = min(most, int(full * LEAD / pace)) if pace else 0
        if self._pool.backlog > ahead // 2:
            return 0
        wanted = min(full + max(ahead, full // 4 if self._size > 1 else 0), most)
        begun = self.inflight - self._settler.settling - self._suspects.waiting
        # At most twice as many as the last time: the handlers have work until the claim is back.
        room = min(wanted - begun, 2 * most - self.inflight, max(full, 2 * self._claimed))
        return room if limit is None else min(room, limit - self._taken)

    async def _claim(self, limit: int | None) -> int:
        """Wait for room and claim.

        Return the number taken: 0 when nothing is due, -1 while the store does not answer.
        """
        while (room := self._room(limit)) <= 0 and self._gate.pause is None:
            self._freed.clear()
            if self._room(limit) > 0:
                continue
            await self._freed.wait()
            if self._over(limit):
                return 0
        self._woken.clear()
        try:
            if self._gate.pause is not None:
                if not await self._gate.passes(self):
                    return await self._pause()
                room = 1
            claimed = await self._claim_within_limit(room)
        except (StoreUnavailable, StoreConflict) as error:
            self._telemetry.event(
                "warning", f"claim: {error}; will retry", engine_stage=self.stage.name
            )
            await wait_at_most(self._options.poll, self._woken)
            return -1
        if isinstance(claimed, Denied):
            return await self._denied(claimed)
        self._claimed = len(claimed.leases)
        begun = self._take(claimed) if claimed.leases else 0
        await self._claimer.give_back(claimed.granted - begun, claimed.at)
        if self._gate.tried_by is self:
            await self._tried(begun)
        return len(claimed.leases)

    async def _claim_within_limit(self, room: int) -> Claimed | Denied:
        """Claim, and take no more than the run may: other stages of it take, too."""
        room = self.run.reserve(room)
        taken = 0
        try:
            if not room:
                return Claimed([], 0, None)
            claimed = await self._claimer.claim(room)
            taken = len(claimed.leases) if isinstance(claimed, Claimed) else 0
            return claimed
        finally:
            self.run.release(room - taken)

    async def _tried(self, begun: int) -> None:
        """Wait for the record that was taken to try it; if none was due, try later."""
        while begun and self.inflight > self._settler.aside:
            await self._progress()
        if not begun:
            await self._gate.release(self)

    async def _pause(self) -> int:
        """The stage pauses: wait. A run waits shortly for that, and then ends.

        Return -1 to claim again, 0 when nothing more can be claimed.
        """
        pause, left = self._gate.pause, self._gate.left()
        assert pause is not None
        self._give_back()
        await self._refund()
        if self.inflight > self._settler.aside:
            await self._progress()
        elif self._forever or left <= self._options.run_wait:
            await wait_at_most(min(self._options.poll, max(0.005, left)), self._woken)
        else:
            values = {"stage": pause.stage, "until": pause.due_at, "why": load(pause.reason)}
            self.run.halt("blocked", text("stage_paused_until", **values))
            return 0
        return -1

    async def _denied(self, denied: Denied) -> int:
        """The budget is empty: wait until it opens. A run waits for refunds or shortly, then ends.

        Return -1 to claim again, 0 when nothing more can be claimed.
        """
        left = (denied.until - self._clock.now()).total_seconds()
        if self._forever or left <= self._options.run_wait:
            await wait_at_most(min(30.0, max(0.005, left)), self._woken)
            return -1
        if self.inflight > self._settler.aside:
            await self._progress()
            return -1
        assert self.stage.budget is not None
        if await self._claimer.has_due():
            self.run.halt("blocked", denied.reason(self.stage.budget.name))
        return 0

    def _take(self, claimed: Claimed) -> int:
        """Queue the records for their handlers and return how many; settle the others at once."""
        leases = claimed.leases
        if any(lease.group for lease in leases):
            leases = self._leases.take_over(leases)
        self.inflight += len(leases)
        self._taken += len(leases)
        self.run.counters["taken"] += len(leases)
        begun: list[HeldLease] = []
        suspects: list[HeldLease] = []
        for held in self._leases.hold(leases, self._tools.lease, claimed.at):
            lease = held.lease
            if lease.fault is not None:
                self._settler.settle(held, Raised(Failure(lease.fault, type="invalid_record")))
            elif lease.over and not self._has_extra_try(lease):
                self._settler.settle(held, OverLimit())
            elif lease.group:
                suspects.append(held)
            else:
                begun.append(held)
        self._pool.add(begun)
        if suspects:
            self._suspects.add(suspects)
        return len(begun) + len(suspects)

    def _has_extra_try(self, lease: Leased) -> bool:
        """Whether another program used up its attempts, and this stage makes one more.

        This stage used them up itself if the record was held alone, or could not be exhausted.
        """
        return (
            self.stage.extra_try
            and lease.group != 1
            and not exhaustion_failed(lease.record.last_error)
        )

    async def _idle(self) -> bool:
        """Nothing is due: return False once a run's handlers are done; a server waits and polls."""
        if self._forever:
            await wait_at_most(self._options.poll, self._woken)
            return True
        if self.stage.per is not None and self.inflight > self._settler.aside:
            await self._progress()  # it may have held up others of its key
            return not self._stopping
        while self.inflight > self._settler.aside and not self._stopping:
            await self._progress()
        return False

    async def _progress(self) -> None:
        """Wait until a record is settled."""
        self._freed.clear()
        if self._settler.settling == self.inflight:
            self._settler.hurry()  # flush now: no more work is coming
        await self._freed.wait()

    # handle

    async def _attempt_one(self, held: HeldLease, me: asyncio.Task[None]) -> None:
        """Handle one record and settle what the handler answers.

        Every record of a handler without batches passes here: the lists of ``_attempt`` would cost
        a tenth of what the worker does for it.
        """
        if self._telemetry.spans:
            await self._attempt([held], me)
            return
        if held.lost and self._settler.drop_lost(held):
            return
        lease, handler = held.lease, self._handler
        attempt = Attempt(self._tools, (lease,), held.spent_at)
        held.task, held.attempt = me, attempt
        start, cancels = time.monotonic(), me.cancelling()
        try:
            result = handler.outcome(await handler.call_one(lease, attempt), lease)
        except BaseException as error:  # noqa: BLE001 - an error of this record alone
            result = self._caught(error, [held], me, cancels)
        held.task, held.took = None, handler.took(start)
        self._settler.settle(held, result)
        # Break a reference cycle: an error's traceback holds this frame since Python 3.13.
        del result
        self._freed.set()

    async def _attempt(self, taken: list[HeldLease], me: asyncio.Task[None]) -> None:
        """Handle a batch, or suspects, and settle what the handler answers."""
        batch = [held for held in taken if not (held.lost and self._settler.drop_lost(held))]
        if not batch:
            return
        leases = [held.lease for held in batch]
        attempt = Attempt(self._tools, leases, batch[0].spent_at)
        for held in batch:
            held.task, held.attempt = me, attempt
        handler = self._handler
        results: Sequence[Result]
        start, cancels = time.monotonic(), me.cancelling()
        try:
            if self._telemetry.spans:
                results = await self._call_in_span(leases, attempt)
            else:
                results = handler.outcomes(await handler.call(leases, attempt), leases)
        except BaseException as error:  # noqa: BLE001 - an error of these records alone
            result = self._caught(error, batch, me, cancels)
            results = [result] * len(batch)
            if leases[0].group and isinstance(result, GivenBack):
                self._suspects.give_back([h for h in batch if not self._settler.drop_lost(h)])
                results = []
        took = handler.took(start)
        for held, result in zip(batch, results, strict=False):
            held.task, held.took = None, took
            self._settler.settle(held, result)
        # Break a reference cycle: an error's traceback holds this frame since Python 3.13.
        del results, result
        self._freed.set()

    async def _call_in_span(self, leases: list[Leased], attempt: Attempt) -> Sequence[Result]:
        """Call the handler within a span, so that spans that it makes are the span's children.

        The span is linked to that of the attempt before, which the record's last error names, or
        to the one in which the record was added.
        """
        first = leases[0].record
        about = {"table": first.kind.table, "record": first.id, "records": len(leases)}
        about |= {"attempt": attempt.number, "run": self.run.id}
        links = await self._record_spans.links([lease.record for lease in leases])
        with self._telemetry.handler_span(self.stage.name, about, links) as span:
            attempt.span = span.context or None
            try:
                answer = await self._handler.call(leases, attempt)
                results = self._handler.outcomes(answer, leases)
            except BaseException as error:
                span.result(type(error).__name__, failed=True)
                raise
            finally:
                attempt.ended_at = time.monotonic()
            failed = any(isinstance(each, Retry | Raised) for each in results)
            span.result(", ".join(sorted({type(each).__name__ for each in results})), failed=failed)
            return results

    def _caught(
        self, error: BaseException, batch: list[HeldLease], me: asyncio.Task[None], cancels: int
    ) -> Result:
        """The result of a handler that raised.

        Raise the error again if the task itself was cancelled, or is destroyed with its event loop.
        """
        if isinstance(error, GeneratorExit) and asyncio.current_task(me.get_loop()) is not me:
            raise error
        for held in batch:
            restore_tracking(held.lease.record)
        if not isinstance(error, asyncio.CancelledError) or me.cancelling() == cancels:
            return raised(error)  # the task was not cancelled: something that it awaited was
        if not (self._stopping or any(held.lost for held in batch)):
            raise error
        me.uncancel()  # the cancel was for this work alone: an abort, a lost lease
        return GivenBack(text("worker_stopped" if self._stopping else "batch_lost"))

    def _give_back(self) -> None:
        """Give back what waits and was not begun."""
        why, pause = self.run.message if self.run.halted else None, self._gate.pause
        reason = text("run_stopped", why=why) if why else text("worker_stopped")
        if not self._halted() and pause is not None:
            reason = text("stage_waits", stage=pause.stage, until=pause.due_at)
        suspects = self._suspects.take_waiting()
        waiting = self._pool.take_waiting()
        self._unspent.update(held.spent_at for held in (*suspects, *waiting))
        self._suspects.give_back(suspects)
        for held in waiting:
            self._settler.settle(held, GivenBack(reason))
        self._freed.set()

    # end

    def _released(self, count: int) -> None:
        self.inflight -= count
        self._freed.set()
        if self.stage.per is not None:
            self._woken.set()  # records of the same keys may be claimed now

    async def _wind_down(self) -> None:
        """Give back what waits, let the handlers end, and wait until everything is settled.

        Outcomes that wait for a lock of another program are written later, by the settler.
        """
        if self._halted():
            self._give_back()
        while self.inflight > self._settler.aside:
            await self._progress()
        if self.inflight:
            self.run.end("ok", text("outcomes_waiting", count=self.inflight))
        await self._pool.close()
        await self._refund()
        await self._gate.release(self, 0)
        await self._gate.written()
        self._handler.close()

    async def _refund(self) -> None:
        """Give back what was reserved for records that no handler was called with."""
        unspent, self._unspent = self._unspent, Counter()
        for at, records in unspent.items():
            await self._claimer.give_back(records, at)
