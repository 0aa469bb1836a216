"""Calls a stage's handler in a bounded number of tasks, and turns what it answers into results."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from esclusa.engine.attempt import Attempt
from esclusa.engine.leases import HeldLease
from esclusa.engine.threads import Threads, end_tasks
from esclusa.engine.tracebacks import traceback_of
from esclusa.model.decide import Raised, Result
from esclusa.model.outcome import OUTCOMES
from esclusa.model.settlement import Leased
from esclusa.model.stage import Stage
from esclusa.model.texts import text

# Calls after which a task yields: handlers that never wait must not block claims and renewals.
TURNS = 64


class HandlerPool:
    """Calls ``handle`` with up to ``batch`` waiting leases at a time, in at most ``size`` tasks.

    A task ends when nothing waits. Only one task is started at a time, and it starts the next once
    it has work: handlers that never wait are then run by one task, without waking the others. Once
    ``stopped``, none handles anything more; ``give_back`` is called with the waiting leases.
    """

    def __init__(
        self,
        name: str,
        *,
        size: int,
        batch: int,
        handle: Callable[[list[HeldLease], asyncio.Task[None]], Awaitable[None]],
        stopped: Callable[[], bool],
        give_back: Callable[[], None],
    ) -> None:
        self._name = f"{name} handler"
        self._size = size
        self._batch = batch
        self._handle = handle
        self._stopped = stopped
        self._give_back = give_back
        self._waiting: deque[HeldLease] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = False

    @property
    def waiting(self) -> int:
        """How many leases wait for a task."""
        return len(self._waiting)

    def add(self, held_leases: Sequence[HeldLease]) -> None:
        self._waiting.extend(held_leases)
        self._start()

    def take_waiting(self) -> list[HeldLease]:
        """Remove and return the leases that wait."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def cancel(self, message: str) -> None:
        """Cancel the handlers under way."""
        for task in self._tasks:
            task.cancel(message)

    async def close(self) -> None:
        """End the tasks, once all their leases are settled."""
        await end_tasks(*self._tasks)

    def _start(self) -> None:
        if self._starting or not self._waiting or self._stopped():
            return
        if len(self._tasks) < self._size:
            self._tasks.add(asyncio.create_task(self._work(), name=self._name))
            self._starting = True

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._starting = False
        waiting, handle, turns = self._waiting, self._handle, 0
        try:
            while waiting:
                if self._stopped():
                    self._give_back()
                    return
                batch = [waiting.popleft()]
                while waiting and len(batch) < self._batch:
                    batch.append(waiting.popleft())
                if waiting and not self._starting:
                    self._start()
                await handle(batch, me)
                turns += 1
                if turns % TURNS == 0:
                    await asyncio.sleep(0)
        finally:
            # Nothing is awaited between the check above and this, so no lease is left waiting.
            self._tasks.discard(me)


class HandlerCaller:
    """Calls the handler with one record or a batch, in a thread if it is a plain function.

    ``pace`` is the moving average of the seconds that a call takes, 0 before the first one.
    """

    def __init__(self, stage: Stage) -> None:
        is_async = inspect.iscoroutinefunction(stage.handler)
        self._stage = stage
        self._handler = stage.handler
        self._single = stage.batch is None
        self._direct = is_async and stage.timeout is None
        self._threads = None if is_async else Threads(stage.name)
        self.pace = 0.0

    def call(self, leases: Sequence[Leased], attempt: Attempt) -> Awaitable[Any]:
        """Start the handler; what it answers is awaited by the caller."""
        argument: Any = leases[0].record if self._single else [lease.record for lease in leases]
        call: Callable[..., Awaitable[Any]] = self._handler if self._direct else self._bounded
        return call(argument, attempt)

    def outcomes(self, answer: Any, count: int) -> Sequence[Result]:
        """The outcome of each record. Raises TypeError if the handler answered something else."""
        if self._single:
            return (answer if isinstance(answer, OUTCOMES) else self._outcome(answer),)
        many = isinstance(answer, list | tuple)
        if not many or len(answer) != count:
            got = f"{len(answer)} answers" if many else type(answer).__name__
            raise TypeError(
                f"stage {self._stage.name}: a batch of {count} needs a list of {count} outcomes,"
                f" not {got}"
            )
        return [self._outcome(each) for each in answer]

    def took(self, start: float) -> float:
        """Return the seconds since ``start`` and count them in ``pace``."""
        seconds = time.monotonic() - start
        self.pace = 0.9 * self.pace + 0.1 * seconds if self.pace else max(seconds, 1e-6)
        return seconds

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _outcome(self, answer: Any) -> Result:
        if isinstance(answer, OUTCOMES):
            return answer
        raise TypeError(
            f"stage {self._stage.name}: the handler must answer To, Retry or Wait,"
            f" not {type(answer).__name__}"
        )

    async def _bounded(self, argument: Any, attempt: Attempt) -> Any:
        """Call the handler in a thread if it is a plain function, within the stage's timeout."""
        limit = asyncio.timeout(self._stage.timeout)
        try:
            async with limit:
                if self._threads is None:
                    return await self._handler(argument, attempt)
                answer = await self._threads.call(partial(self._handler, argument, attempt))
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
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
    return Raised(error, traceback_of(error))
