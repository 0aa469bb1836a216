"""Calls a stage's handler in a bounded number of tasks, and turns what it answers into results."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, TypeAlias

from esclusa.engine.attempt import Attempt
from esclusa.engine.handler_processes import HandlerFailed, HandlerProcesses
from esclusa.engine.leases import HeldLease
from esclusa.engine.threads import Threads, end_tasks
from esclusa.engine.tracebacks import location_of, traceback_of
from esclusa.model.decide import Raised, Result
from esclusa.model.errors import FAULTS, LostAssignment, WrongAnswer
from esclusa.model.outcome import OUTCOMES, Outcome, Retry
from esclusa.model.record import Record
from esclusa.model.retry import unwrap_group
from esclusa.model.settlement import Leased
from esclusa.model.stage import Stage
from esclusa.model.strict_fields import assigned, restore_tracking
from esclusa.model.texts import text

# Calls after which a task yields: handlers that never wait must not block claims and renewals.
TURNS = 64

# What a task of a pool does; it is called with the task.
Work: TypeAlias = Callable[[asyncio.Task[None]], Awaitable[None]]


class HandlerPool:
    """Handles the waiting leases in at most ``size`` tasks.

    It calls ``handle_one`` with a lease, or ``handle`` with up to ``batch`` if that is not None.
    A task ends when nothing waits. Only one task is started at a time, and it starts the next once
    it has work: handlers that never wait are then run by one task, without waking the others. Once
    ``stopped``, none handles anything more; ``give_back`` is called with the waiting leases.

    While paused, what waits is put aside, so that the tasks find nothing and end.
    """

    def __init__(
        self,
        name: str,
        *,
        size: int,
        batch: int | None,
        handle: Callable[[list[HeldLease], asyncio.Task[None]], Awaitable[None]],
        handle_one: Callable[[HeldLease, asyncio.Task[None]], Awaitable[None]],
        stopped: Callable[[], bool],
        give_back: Callable[[], None],
    ) -> None:
        self._name = f"{name} handler"
        self._size = size
        self._batch = batch
        self._handle = handle
        self._handle_one = handle_one
        self._stopped = stopped
        self._give_back = give_back
        self._waiting: deque[HeldLease] = deque()
        self._aside: deque[HeldLease] = deque()
        self._first: deque[Work] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = False
        self._idled: Callable[[], None] | None = None

    @property
    def backlog(self) -> int:
        """How many leases wait that no free task begins with at once."""
        free = (self._size - len(self._tasks)) * (self._batch or 1)
        return max(0, len(self._waiting) - free) + len(self._aside)

    @property
    def busy(self) -> bool:
        """Whether a handler is under way."""
        return bool(self._tasks)

    def add(self, held_leases: Sequence[HeldLease]) -> None:
        (self._waiting if self._idled is None else self._aside).extend(held_leases)
        self._start()

    def first(self, work: Work) -> None:
        """Do this when a task is free, before what waits."""
        self._first.append(work)
        self._start()

    def spawn(self, work: Work) -> asyncio.Task[None]:
        """Do this now, in a task of its own, also while the pool is paused."""
        task = asyncio.create_task(self._alone(work), name=self._name)
        self._tasks.add(task)
        return task

    def pause(self, idled: Callable[[], None]) -> None:
        """Begin nothing that waits; ``idled`` is called when no handler is under way."""
        self._idled = idled
        self._aside.extend(self._waiting)
        self._waiting.clear()

    def resume(self) -> None:
        self._idled = None
        self._waiting.extend(self._aside)
        self._aside.clear()
        self._start()

    def take_waiting(self) -> list[HeldLease]:
        """Remove and return the leases that wait."""
        waiting = [*self._waiting, *self._aside]
        self._waiting.clear()
        self._aside.clear()
        self._first.clear()
        return waiting

    def cancel(self, message: str) -> None:
        """Cancel the handlers under way."""
        for task in self._tasks:
            task.cancel(message)

    async def close(self) -> None:
        """End the tasks, once all their leases are settled."""
        await end_tasks(*self._tasks)

    def _start(self) -> None:
        if self._starting or not (self._waiting or self._first) or self._stopped():
            return
        if len(self._tasks) < self._size:
            self._tasks.add(asyncio.create_task(self._work(), name=self._name))
            self._starting = True

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._starting = False
        waiting, first, size, turns = self._waiting, self._first, self._batch, 0
        handle_one = self._handle_one
        try:
            while waiting or first:
                if self._stopped():
                    self._give_back()
                    return
                if first:
                    work = first.popleft()
                    self._start()
                    await work(me)
                    continue
                batch = [waiting.popleft()]
                while size is not None and waiting and len(batch) < size:
                    batch.append(waiting.popleft())
                if waiting and not self._starting:
                    self._start()
                await (handle_one(batch[0], me) if size is None else self._handle(batch, me))
                turns += 1
                if turns % TURNS == 0:
                    await asyncio.sleep(0)
        finally:
            # Nothing is awaited between the check above and this, so no lease is left waiting.
            self._ended(me)

    async def _alone(self, work: Work) -> None:
        me = asyncio.current_task()
        assert me is not None
        try:
            await work(me)
        finally:
            self._ended(me)
            self._start()  # what waits found no room for a task beside this one

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._idled is not None and not self._tasks:
            self._idled()


class HandlerCaller:
    """Calls the handler with one record or a batch: a plain function in a thread or a process.

    ``pace`` is the moving average of the seconds that a call takes, 0 before the first one.
    """

    def __init__(self, stage: Stage) -> None:
        is_async = inspect.iscoroutinefunction(stage.handler)
        self._stage = stage
        self._handler = stage.handler
        self._single = stage.batch is None
        direct = is_async and stage.timeout is None
        self._call: Callable[..., Awaitable[Any]] = stage.handler if direct else self._bounded
        self._threads = None if is_async or stage.processes else Threads(stage.name)
        self._processes = (
            HandlerProcesses(stage.name, stage.handler, stage.processes)
            if stage.processes
            else None
        )
        self.pace = 0.0

    def call(self, leases: Sequence[Leased], attempt: Attempt) -> Awaitable[Any]:
        """Start the handler; what it answers is awaited by the caller."""
        if self._single:
            return self.call_one(leases[0], attempt)
        return self._call([lease.record for lease in leases], attempt)

    def call_one(self, lease: Leased, attempt: Attempt) -> Awaitable[Any]:
        """Start the handler of single records."""
        return self._call(lease.record, attempt)

    def outcomes(self, answer: Any, leases: Sequence[Leased]) -> Sequence[Result]:
        """The outcome of each record; a fault of the handler if it answered something else."""
        if self._single:
            return (self.outcome(answer, leases[0]),)
        count, many = len(leases), isinstance(answer, list | tuple)
        if not many or len(answer) != count:
            got = f"{len(answer)} answers" if many else type(answer).__name__
            fault = text("wrong_answers", stage=self._stage.name, count=count, got=got)
            return [self._fault(WrongAnswer(fault))] * count
        return [self.outcome(each, lease) for each, lease in zip(answer, leases, strict=True)]

    def outcome(self, answer: Any, lease: Leased) -> Result:
        """The outcome of one record; a fault of the handler if it answered something else."""
        if not isinstance(answer, OUTCOMES):
            got = type(answer).__name__
            return self._fault(WrongAnswer(text("wrong_answer", stage=self._stage.name, got=got)))
        if marks := assigned(lease.record):
            return self._checked(answer, lease.record, marks)
        return answer

    def took(self, start: float) -> float:
        """Return the seconds since ``start`` and count them in ``pace``."""
        seconds = time.monotonic() - start
        self.pace = 0.9 * self.pace + 0.1 * seconds if self.pace else max(seconds, 1e-6)
        return seconds

    def close(self) -> None:
        for workers in (self._threads, self._processes):
            if workers is not None:
                workers.close()

    def _checked(self, answer: Outcome, record: Record, marks: Mapping[str, Any]) -> Result:
        """The answer, or a fault if it loses what the handler assigned to the record.

        A failed attempt may lose it: it is begun again with the record as it is stored.
        """
        lost = [
            name
            for name, before in marks.items()
            if name not in answer.fields and record.__dict__.get(name) != before
        ]
        restore_tracking(record)
        if not lost or isinstance(answer, Retry):
            return answer
        names = ", ".join(lost)
        return self._fault(
            LostAssignment(text("lost_assignment", stage=self._stage.name, fields=names))
        )

    def _fault(self, error: Exception) -> Raised:
        return Raised(error, location_of(self._handler), fault=True)

    async def _bounded(self, argument: Any, attempt: Attempt) -> Any:
        """Call the handler in a thread if it is a plain function, within the stage's timeout."""
        limit = asyncio.timeout(self._stage.timeout)
        try:
            async with limit:
                if self._processes is not None:
                    return await self._processes.call(argument, attempt)
                if self._threads is None:
                    return await self._handler(argument, attempt)
                # The thread has the context of the task: spans made there are within the handler's.
                within = copy_context().run
                answer = await self._threads.call(partial(within, self._handler, argument, attempt))
                # A plain function may wrap a coroutine function.
                return await answer if inspect.isawaitable(answer) else answer
        except TimeoutError as error:
            if limit.expired() and not str(error):
                raise TimeoutError(text("handler_timeout", seconds=self._stage.timeout)) from None
            raise


def raised(error: BaseException) -> Raised:
    """The result of a handler that raised.

    Drop the caller's frame to avoid a reference cycle: the frame holds the error, and the error its
    traceback. The record and the handler's locals would stay in memory until the next collection.
    """
    if isinstance(error, HandlerFailed):
        return Raised(error.error, error.traceback, error.fault)
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
    fault = isinstance(unwrap_group(error), FAULTS)
    return Raised(error, traceback_of(error, fault=fault), fault)
