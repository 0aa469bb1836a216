"""The harness for plain functions: every call runs an event loop of its own until it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from esclusa.engine.runs import RunContext
from esclusa.model.budget import Budget
from esclusa.model.effects import Effect
from esclusa.model.pipeline import App
from esclusa.model.record import Record
from esclusa.model.settlement import Step
from esclusa.model.system_records import Alert, DeadLetter, Message
from esclusa.testing.handlers import Call
from esclusa.testing.harness import Harness

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class SyncHarness:
    """``with SyncHarness(app) as h:`` has the methods of ``Harness``, without ``await``.

    The options are those of ``Harness``, too. It cannot be used where an event loop runs.
    """

    def __init__(self, app: App, **options: Any) -> None:
        self.harness = Harness(app, **options)
        self.fail, self.answer, self.kill = (
            self.harness.fail,
            self.harness.answer,
            self.harness.kill,
        )
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            self._run(self.harness.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._run(self.harness.__aexit__(kind, error, trace))
        finally:
            self._runner.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    @property
    def now(self) -> datetime:
        return self.harness.now

    @property
    def calls(self) -> list[Call]:
        return self.harness.calls

    @property
    def effects(self) -> list[Effect]:
        return self.harness.effects

    def insert(self, record: R) -> R:
        return self._run(self.harness.insert(record))

    def insert_all(self, records: Sequence[R]) -> list[R]:
        return self._run(self.harness.insert_all(records))

    def run_due(self) -> list[RunContext]:
        return self._run(self.harness.run_due())

    def run(
        self, cycle: str, *, limit: int | None = None, params: dict[str, Any] | None = None
    ) -> RunContext:
        return self._run(self.harness.run(cycle, limit=limit, params=params))

    def run_stage(self, stage: str) -> RunContext:
        return self._run(self.harness.run_stage(stage))

    def run_until_idle(self, within: str | float | timedelta = "30d") -> list[RunContext]:
        return self._run(self.harness.run_until_idle(within))

    def skip(self, length: str | float | timedelta = 0, **parts: float) -> datetime:
        return self._run(self.harness.skip(length, **parts))

    def skip_lease(self) -> datetime:
        return self._run(self.harness.skip_lease())

    def move(
        self, record: Record, to: str, *, reason: str = "test", who: str = "test", **fields: Any
    ) -> None:
        self._run(self.harness.move(record, to, reason=reason, who=who, **fields))

    def retry(self, record: Record, *, reason: str = "test") -> None:
        self._run(self.harness.retry(record, reason=reason))

    def wake(self, record: R, **fields: Any) -> R:
        return self._run(self.harness.wake(record, **fields))

    def spend(self, budget: str | Budget, units: int | None = None) -> None:
        self._run(self.harness.spend(budget, units))

    @overload
    def record(self, record: R, /) -> R: ...
    @overload
    def record(self, record: type[R], /, *key: Any) -> R: ...
    def record(self, record: Any, /, *key: Any) -> Any:
        return self._run(self.harness.record(record, *key))

    def all_records(self, kind: type[R], **where: Any) -> list[R]:
        return self._run(self.harness.all_records(kind, **where))

    def history(self, record: Record) -> list[Step]:
        return self._run(self.harness.history(record))

    def path(self, record: Record) -> list[str]:
        return self._run(self.harness.path(record))

    def dead_letters(self) -> list[DeadLetter]:
        return self._run(self.harness.dead_letters())

    def messages(self, topic: str | None = None) -> list[Message]:
        return self._run(self.harness.messages(topic))

    def alerts(self) -> list[Alert]:
        return self._run(self.harness.alerts())

    def why(self, record: Record) -> str:
        return self._run(self.harness.why(record))

    def assert_state(self, record: R, state: str, **fields: Any) -> R:
        return self._run(self.harness.assert_state(record, state, **fields))
