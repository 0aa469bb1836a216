"""claim → handle → settle, for one stage: bounded, overlapped, stopped in order."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter, defaultdict, deque
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from esclusa.engine.attempt import Attempt
from esclusa.engine.leases import HeldLease
from esclusa.engine.reservations import BudgetReservation
from esclusa.engine.results import OUTCOMES, event_fields, raised, result_of, results_of
from esclusa.engine.threads import Threads
from esclusa.model.budget import Denied
from esclusa.model.decide import (
    ExhaustionFailed,
    ExhaustionPostponed,
    GivenBack,
    OverLimit,
    Raised,
    Result,
    decide,
)
from esclusa.model.errors import Failure, StoreConflict, StoreUnavailable
from esclusa.model.outcome import To
from esclusa.model.query import Where, conditions
from esclusa.model.settlement import ClaimRequest, Leased, Rejected, Settled, Settlement, Verdict
from esclusa.model.stage import Stage

if TYPE_CHECKING:
    from esclusa.engine.engine import Engine
    from esclusa.engine.runs import RunContext

_BY_RESULT = frozenset({"retried", "waited", "lost"})
"""Results that a run counts by their own name; the others it counts by the state that the record went to."""

LEAD = 0.1
"""Seconds of work that may wait, claimed, for a free handler: enough to hide a claim's round trip."""


class StageRunner:
    """Drains one stage once (a run), or serves it until it is stopped (``forever``).

    At most ``concurrency`` handler calls are under way. What is claimed ahead follows the handler's own pace: as much as
    its calls can handle in LEAD seconds, never more than ``options.prefetch``. Claiming, handling and settling overlap: what
    is being settled takes no room, but not more than as much again may wait for that.
    """

    def __init__(
        self, engine: Engine, stage: Stage, run: RunContext, *, forever: bool = False
    ) -> None:
        self.engine = engine
        self.stage = stage
        self.run = run
        self.forever = forever
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._freed = asyncio.Event()
        self._waiting: deque[HeldLease] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._rousing = False
        self._handlers: set[asyncio.Task[None]] = set()
        self.inflight = 0
        self._settling = 0
        self._took = 0.0
        self._taken = 0
        self._unspent: Counter[datetime | None] = Counter()
        self._lease = engine.lease_of(stage)
        self._share = BudgetReservation(engine, stage)
        self._size = stage.batch or 1
        self._plain = inspect.iscoroutinefunction(stage.handler) and stage.timeout is None
        self._threads = None if inspect.iscoroutinefunction(stage.handler) else Threads(stage.name)

    def wake(self) -> None:
        """Something may be due: do not wait for the next poll."""
        self._woken.set()

    def stop(self) -> None:
        """Claim nothing more; hand back what was not begun. ``serve`` then ends once the handlers have."""
        self._stopping.set()
        self._woken.set()
        self._freed.set()

    def abort(self) -> None:
        """Stop the handlers too; their records go back at once, the attempt not counted."""
        self.stop()
        for task in self._handlers:
            task.cancel("stopping")

    async def serve(
        self,
        *,
        limit: int | None = None,
        where: Where | None = None,
        before: Any = None,
        eager: bool = False,
    ) -> None:
        """Claim and handle until nothing is due (a run) or until stopped. Returns when all is settled."""
        stage = self.stage
        base = ClaimRequest(
            stage.kind, stage.name, stage.take, stage.hold, stage.where + conditions(stage.kind, where or {}), stage.order,
            lease=self._lease, worker=self.engine.worker, run=self.run.id or None, before=before, eager=eager, tries=stage.retry.tries,
        )  # fmt: skip
        try:
            while not self._over(limit):
                if self.forever and self.engine.paused(self.run.cycle.name):
                    self._woken.clear()  # whatever is due now waits for the cycle to go on
                    await self._sleep(self.engine.options.poll)
                elif await self._claim(base, limit) == 0 and not await self._pause():
                    break
        finally:
            await self._wind_down()

    def _over(self, limit: int | None) -> bool:
        return (
            self._stopping.is_set()
            or self.run.halted
            or (limit is not None and self._taken >= limit)
        )

    # claiming

    def _room(self, limit: int | None) -> int:
        """How many more to claim now; 0 while enough is waiting."""
        full = self.stage.concurrency * self._size
        most = max(self.engine.options.prefetch, full)
        ahead = min(most, int(full * LEAD / self._took)) if self._took else 0
        if len(self._waiting) > ahead // 2:
            return 0
        wanted = min(full + max(ahead, full // 4 if self._size > 1 else 0), most)
        room = min(wanted - (self.inflight - self._settling), 2 * most - self.inflight)
        return room if limit is None else min(room, limit - self._taken)

    async def _claim(self, base: ClaimRequest, limit: int | None) -> int:
        """Claim what there is room for, waiting for room; the number taken, 0 when nothing is due, -1 while the store is away."""
        while (room := self._room(limit)) <= 0:
            self._freed.clear()
            if self._room(limit) > 0:
                continue
            await self._freed.wait()
            if self._over(limit):
                return 0
        self._woken.clear()
        try:
            share = await self._share.reserve(room)
        except (StoreUnavailable, StoreConflict) as error:
            return await self._away("budget", error)
        if isinstance(share, Denied):
            await self._denied(share)
            return 0
        granted, at = share
        start = time.monotonic()
        try:
            leases = await self.engine.store.claim(replace(base, limit=granted))
        except (StoreUnavailable, StoreConflict) as error:
            await self._share.give_back(granted, at)
            return await self._away("claim", error)
        begun = 0
        if leases:
            self.engine.telemetry.claimed(self.stage.name, len(leases), time.monotonic() - start)
            begun = self._take(leases, at)
        await self._share.give_back(granted - begun, at)
        return len(leases)

    async def _away(self, what: str, error: Exception) -> int:
        self.engine.telemetry.event(
            "warning", f"{what}: {error}; will be tried again", engine_stage=self.stage.name
        )
        await self._sleep(self.engine.options.poll)
        return -1

    async def _denied(self, denied: Denied) -> None:
        """The budget is empty: a run is over, a server waits for the reset."""
        if self.forever:
            await self._sleep(
                min(30.0, max(0.05, (denied.until - self.engine.clock.now()).total_seconds()))
            )
        else:
            assert self.stage.budget is not None
            self.run.halt(
                "blocked",
                f"budget {self.stage.budget.name} is empty until {denied.until.isoformat(timespec='seconds')}",
            )

    def _take(self, leases: list[Leased], spent_at: datetime | None) -> int:
        """Line them up for their handlers; the number of them. The others are settled without one."""
        self.inflight += len(leases)
        self._taken += len(leases)
        self.run.counters["taken"] += len(leases)
        before = len(self._waiting)
        for held in self.engine.leases.hold(leases, self._lease, spent_at):
            lease = held.lease
            if lease.fault is not None:
                self._end(held, Raised(Failure(lease.fault, type="invalid_record")))
            elif lease.over:
                self._end(held, OverLimit())
            else:
                self._waiting.append(held)
        begun = len(self._waiting) - before
        self._rouse()
        return begun

    async def _pause(self) -> bool:
        """Nothing is due. A run is over once its handlers are done; a server waits to be woken, or polls."""
        if not self.forever:
            while self.inflight and not self._stopping.is_set():
                await self._progress()
            return False
        await self._sleep(self.engine.options.poll)
        return True

    async def _progress(self) -> None:
        """Wait until something ended: nothing more comes, so the last ones need not wait for company."""
        self._freed.clear()
        if self._settling == self.inflight:
            self.engine.settler.hurry()
        await self._freed.wait()

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    # handling

    def _rouse(self) -> None:
        """Something waits: wake a handler that is idle, or hire one more. One at a time: it rouses the next when it begins,
        so handlers that never wait do not wake a crowd for nothing."""
        if (
            self._rousing or not self._waiting or self._stopping.is_set()
        ):  # what waits at a stop is given back
            return
        if self._idle:
            self._idle.popleft().set_result(None)
            self._rousing = True
        elif len(self._handlers) < self.stage.concurrency:
            self._handlers.add(asyncio.create_task(self._work(), name=f"{self.stage.name} handler"))
            self._rousing = True

    async def _work(self) -> None:
        """One handler's loop: take what waits, handle it, again."""
        me = asyncio.current_task()
        assert me is not None
        waiting, stopping, run, turns = self._waiting, self._stopping, self.run, 0
        self._rousing = False
        while True:
            if not waiting:
                if (
                    stopping.is_set()
                ):  # whoever stopped it may have gone already: nobody would call this task off
                    return
                await self._rest()
                continue
            if stopping.is_set() or run.halted:
                self._give_back()
                continue
            if self.stage.batch is None:
                first = waiting.popleft()
                if waiting:
                    self._rouse()
                await self._handle(first, me)
            else:
                await self._handle_batch(me)
            turns += 1
            if (
                turns % 64 == 0
            ):  # handlers that never wait must not hold up claims, settlements and heartbeats
                await asyncio.sleep(0)

    async def _rest(self) -> None:
        """Wait, idle, until something waits to be handled."""
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(idle)
        await idle
        self._rousing = False

    def _dropped(self, held: HeldLease) -> bool:
        """Whether its lease was lost meanwhile: then nothing is settled, it only counts."""
        if held.lost:
            self._counted("lost", [(held, None)])
        return held.lost

    def _give_back(self) -> None:
        """Give back what waits and was not begun."""
        reason = self.run.message if self.run.halted and self.run.message else "the worker stopped"
        while self._waiting:
            held = self._waiting.popleft()
            self._unspent[held.spent_at] += 1
            if not self._dropped(held):
                self._end(held, GivenBack(f"given back: {reason}"))

    async def _handle(self, held: HeldLease, me: asyncio.Task[None]) -> None:
        if held.lost and self._dropped(held):
            return
        lease = held.lease
        attempt = Attempt(self, [lease], held.spent_at)
        held.task, held.attempt = me, attempt
        ending: Result
        start, cancels = time.monotonic(), me.cancelling()
        try:
            answer = await (
                self.stage.handler(lease.record, attempt)
                if self._plain
                else self._bounded(lease.record, attempt)
            )
            ending = result_of(answer, self.stage)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is an error of its record alone
            ending = self._caught(error, [held], me, cancels)
        held.task, held.took = None, self._handled(start)
        if not (held.lost and self._dropped(held)):
            self._end(held, ending)

    async def _handle_batch(self, me: asyncio.Task[None]) -> None:
        """As ``_handle``, for a handler that takes several at once."""
        waiting = self._waiting
        taken = [waiting.popleft() for _ in range(min(self._size, len(waiting)))]
        self._rouse()
        batch = [held for held in taken if not self._dropped(held)]
        if not batch:
            return
        attempt = Attempt(self, [held.lease for held in batch], batch[0].spent_at)
        for held in batch:
            held.task, held.attempt = me, attempt
        records = [held.lease.record for held in batch]
        results: list[Result]
        start, cancels = time.monotonic(), me.cancelling()
        try:
            answers = await (
                self.stage.handler(records, attempt)
                if self._plain
                else self._bounded(records, attempt)
            )
            results = results_of(answers, len(batch), self.stage)
        except BaseException as error:  # noqa: BLE001 - as above
            results = [self._caught(error, batch, me, cancels)] * len(batch)
        took = self._handled(start)
        for held, ending in zip(batch, results, strict=True):
            held.task, held.took = None, took
            if not self._dropped(held):
                self._end(held, ending)

    def _handled(self, start: float) -> float:
        """A call is over: the seconds that it took."""
        took = time.monotonic() - start
        self._took = 0.9 * self._took + 0.1 * took if self._took else max(took, 1e-6)
        return took

    def _caught(
        self, error: BaseException, batch: list[HeldLease], me: asyncio.Task[None], cancels: int
    ) -> Result:
        """How a handler ended that raised. Raises it again if this loop is what was cancelled, or thrown away with its event loop."""
        if isinstance(error, GeneratorExit) and asyncio.current_task(me.get_loop()) is not me:
            raise error
        if (
            not isinstance(error, asyncio.CancelledError) or me.cancelling() == cancels
        ):  # nobody cancelled us, but what it waited for
            return raised(error)
        if not (self._stopping.is_set() or any(held.lost for held in batch)):
            raise error
        me.uncancel()  # the cancel meant this work alone: a lost lease, an abort
        return GivenBack(
            f"given back: {'the worker stopped' if self._stopping.is_set() else 'another record of its batch was lost'}"
        )

    async def _bounded(self, argument: Any, attempt: Attempt) -> Any:
        """Call the handler in a thread if it is a plain function, and within the stage's time."""
        limit = asyncio.timeout(self.stage.timeout)
        try:
            async with limit:
                if self._threads is None:
                    return await self.stage.handler(argument, attempt)
                answer = await self._threads.call(partial(self.stage.handler, argument, attempt))
                return (
                    await answer if inspect.isawaitable(answer) else answer
                )  # a plain function around a coroutine
        except TimeoutError as error:
            if limit.expired() and not str(error):
                raise TimeoutError(
                    f"the handler did not answer within {self.stage.timeout:g} seconds, the stage's timeout"
                ) from None
            raise

    # settling

    def _end(self, held: HeldLease, ending: Result) -> None:
        engine, stage = self.engine, self.stage
        try:
            settlement = decide(
                ending,
                held.lease,
                stage,
                now=engine.clock.now(),
                rng=engine.rng,
                who=engine.worker,
                run=self.run.id or None,
            )
        except ExhaustionFailed as cannot:
            self._postpone(held, ExhaustionPostponed(cannot.error, cannot.fault, str(cannot)))
            return
        except Exception as error:  # noqa: BLE001 - the answer names an undeclared move or a field that does not fit
            self._end(held, Raised(error))
            return
        held.ending = ending
        self._settling += 1
        kept = (
            held.attempt.kept if held.attempt is not None and isinstance(ending, OUTCOMES) else ()
        )  # only an answer tells of files
        engine.settler.add(settlement, self, held, kept)
        self._freed.set()

    def _postpone(self, held: HeldLease, unended: ExhaustionPostponed) -> None:
        self.engine.telemetry.event(
            "error",
            f"{self.stage.name}: {held.ref} cannot end: {unended.why}",
            engine_stage=self.stage.name,
            record=held.ref.id,
        )
        self._end(held, unended)

    def written(self, told: list[tuple[HeldLease, Settlement, Verdict]]) -> None:
        """The settler wrote these."""
        self._settling -= len(told)
        ended: defaultdict[str, list[tuple[HeldLease, Settlement | None]]] = defaultdict(list)
        for held, settlement, verdict in told:
            if isinstance(verdict, Settled):
                ended[self._result(held, settlement)].append((held, settlement))
            elif isinstance(verdict, Rejected) and not isinstance(held.ending, ExhaustionPostponed):
                self._rejected(held, settlement, verdict)
            else:
                ended["lost"].append((held, settlement))
        for result, those in ended.items():
            self._counted(result, those)

    def _rejected(self, held: HeldLease, settlement: Settlement, verdict: Rejected) -> None:
        """It cannot be written as it is: that is an error of the record, or, where it was to end with one, keeps it from ending."""
        if verdict.error is not None:
            self._end(held, Raised(verdict.error))
        elif settlement.error is not None and settlement.to == self.stage.exhausted:
            self._postpone(held, ExhaustionPostponed(settlement.error, "rejected", verdict.why))
        else:
            self._end(
                held,
                Raised(Failure(f"the settlement was rejected: {verdict.why}", type="rejected")),
            )

    def _result(self, held: HeldLease, settlement: Settlement) -> str:
        if settlement.error is not None and settlement.to == self.stage.exhausted:
            return "exhausted"
        if isinstance(held.ending, To):
            return "moved"
        if settlement.error is not None:
            return "retried"
        return "given_back" if isinstance(held.ending, GivenBack) else "waited"

    def _counted(self, result: str, ended: list[tuple[HeldLease, Settlement | None]]) -> None:
        """These are over, all alike: count them, and tell whoever listens."""
        engine, name, run = self.engine, self.stage.name, self.run
        engine.leases.release(held for held, _ in ended)
        if result == "given_back":
            run.counters["taken"] -= len(ended)
        elif result in _BY_RESULT:
            run.counters[result] += len(ended)
        else:
            run.counters.update(settlement.to for _, settlement in ended if settlement is not None)
        if result == "exhausted":
            run.end("partial", f"records ended in {self.stage.exhausted}")
        times = [held.took for held, _ in ended]
        engine.rates.add(name, result, times)
        engine.telemetry.settled(
            name, result, times, lambda n: event_fields(ended[n][0].lease, ended[n][1], run.id)
        )
        self.inflight -= len(ended)
        self._freed.set()

    async def _wind_down(self) -> None:
        """Give back what waits, let the handlers end, and see everything settled."""
        if self._over(None):
            self._give_back()
        while self.inflight:
            await self._progress()
        for task in self._handlers:
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        for at, records in self._unspent.items():
            await self._share.give_back(records, at)
        if self._threads is not None:
            self._threads.close()
