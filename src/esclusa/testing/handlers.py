"""The handlers of a pipeline under test: every call is noted, and can fail, be answered or die."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from threading import Lock
from typing import Any, Literal, TypeAlias

from esclusa.engine.attempt import Attempt
from esclusa.model.kind import Ref
from esclusa.model.outcome import OUTCOMES, Outcome
from esclusa.model.record import Record
from esclusa.model.stage import Stage
from esclusa.testing.faults import FaultLog

# Where a worker can be killed: after the claim, after ``at.save`` was written, after the handler
# has answered and nothing is settled, after the settlement was written.
Point: TypeAlias = Literal["before_handler", "after_save", "after_handler", "after_settle"]
POINTS: tuple[Point, ...] = ("before_handler", "after_save", "after_handler", "after_settle")

# What a test answers instead of a handler: an outcome, or a function like the handler.
StandIn: TypeAlias = Outcome | Callable[[Any, Attempt], Any]


class Killed(BaseException):
    """The worker of the test was killed here; no handler should catch it."""


@dataclass(slots=True)
class Call:
    """One call of a handler: its records, the number of the attempt, what it answered or raised."""

    stage: str
    records: tuple[Record, ...]
    number: int
    answer: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class PlannedCalls:
    """What happens to some calls of a stage, or of any: those from ``first`` on, ``times`` many."""

    verb: str
    stage: str | None
    first: int
    times: int | None
    error: BaseException | None = None
    stand_in: StandIn | None = None
    point: Point | None = None
    seen: int = 0

    def applies(self, stage: str) -> bool:
        """Count a call; return whether this is for it."""
        if self.stage not in (None, stage):
            return False
        self.seen += 1
        return self.first <= self.seen and (
            self.times is None or self.seen < self.first + self.times
        )

    @property
    def missing(self) -> str | None:
        """What did not happen, if the calls that this is for were not made."""
        last = self.first + (self.times or 1) - 1
        if self.seen >= last or (self.times is None and self.first == 1):
            return None
        of = f"of {self.stage}" if self.stage else "of any stage"
        return f"{self.verb} is for call {last} {of}, but there were {self.seen}"


class Handlers:
    """Stands between the engine and the handlers. ``die`` is called where the worker is killed."""

    def __init__(self, faults: FaultLog, die: Callable[[], None]) -> None:
        self.calls: list[Call] = []
        self._faults = faults
        self._die = die
        self._planned: list[PlannedCalls] = []
        self._lock = Lock()  # plain functions are handled in threads
        self._killed_after: dict[Point, set[Ref]] = {"after_save": set(), "after_settle": set()}

    def plan(self, planned: PlannedCalls) -> None:
        self._planned.append(planned)

    def unmet(self) -> list[str]:
        """What was planned for calls that were not made."""
        return [planned.missing for planned in self._planned if planned.missing]

    def wrapped(self, stage: Stage) -> Stage:
        """The stage with a handler that notes its calls and does what is planned for them."""
        handler = stage.handler
        if stage.deadline is not None:  # its handler is the engine's
            return stage

        if inspect.iscoroutinefunction(handler):

            @wraps(handler)
            async def handle(argument: Any, at: Attempt) -> Any:
                with self._call(stage, argument, at) as (call, stand_in):
                    call.answer = await _awaited(
                        _answer(stand_in, argument, at) if stand_in else handler(argument, at)
                    )
                return call.answer

            return replace(stage, handler=handle)

        @wraps(handler)
        def handle_in_thread(argument: Any, at: Attempt) -> Any:
            with self._call(stage, argument, at) as (call, stand_in):
                call.answer = _answer(stand_in, argument, at) if stand_in else handler(argument, at)
                if inspect.isawaitable(call.answer):
                    call.answer = at.wait(_awaited(call.answer))
            return call.answer

        # A handler for processes runs in a thread: a test is one process.
        return replace(stage, handler=handle_in_thread, processes=None)

    @contextmanager
    def _call(
        self, stage: Stage, argument: Any, at: Attempt
    ) -> Iterator[tuple[Call, StandIn | None]]:
        records = tuple(argument) if stage.batch is not None else (argument,)
        call = Call(stage.name, records, at.number)
        with self._lock:
            self.calls.append(call)
            plans = [each for each in self._planned if each.applies(stage.name)]
        points = {each.point for each in plans}
        for point, refs in self._killed_after.items():
            if point in points:
                refs |= {record.ref for record in records}
        try:
            if "before_handler" in points:
                self._die()
                raise Killed
            stand_ins = [each.stand_in for each in plans if each.stand_in is not None]
            for each in plans:
                if each.error is not None:
                    raise each.error
            yield call, stand_ins[-1] if stand_ins else None
        except BaseException as error:
            call.error = error
            if not any(error is each.error for each in plans):
                self._faults.raised(stage.name, error)
            raise
        if "after_handler" in points:
            self._die()
            raise Killed

    def dies_after(self, point: Point, refs: Sequence[Ref]) -> bool:
        """Whether the worker is killed now that this was written."""
        if self._killed_after[point].isdisjoint(refs):
            return False
        self._killed_after[point].clear()
        self._die()
        return True


def _answer(stand_in: StandIn, argument: Any, at: Attempt) -> Any:
    if not isinstance(stand_in, OUTCOMES):
        return stand_in(argument, at)
    return [stand_in] * len(argument) if isinstance(argument, list) else stand_in


async def _awaited(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer
