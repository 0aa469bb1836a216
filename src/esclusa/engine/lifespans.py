"""The lifespans of the pipelines: each is opened by itself, and again after an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from esclusa.engine.alerts import AlertLog
from esclusa.engine.threads import wait_at_most, wait_for_any
from esclusa.model.errors import PipelineNotReady
from esclusa.model.plan import Plan
from esclusa.model.texts import text
from esclusa.model.value import value
from esclusa.ports.telemetry import Telemetry

# Seconds that the start of a process waits for lifespans; slower pipelines begin later.
START_WAIT = 2.0
# The first and the longest pause, in seconds, before a lifespan is opened again.
RETRY, RETRY_MOST = 1.0, 60.0
# Seconds that a lifespan may take to close.
CLOSE_TIMEOUT = 5.0


@value
class PipelineFailure:
    """Why a pipeline is not ready: the type of the error, and the error in words."""

    type: str
    why: str


def failure_of(error: BaseException) -> PipelineFailure:
    """The failure that this error is; a group with one error is that error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    name = type(error).__name__
    return PipelineFailure(name, f"{name}: {error}" if str(error) else name)


@asynccontextmanager
async def opened(plan: Plan, seconds: float) -> AsyncIterator[Any]:
    """The context of the pipeline: what its lifespan yields. Raises whatever the lifespan raises.

    Raises TimeoutError if the lifespan is not open after ``seconds``.
    """
    assert plan.app.lifespan_ is not None
    async with AsyncExitStack() as stack:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                context = await stack.enter_async_context(plan.app.lifespan_(plan.settings))
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(text("lifespan_timeout", seconds=seconds)) from None
            raise
        yield context


class Lifespan:
    """The lifespan of one pipeline. A task of its own opens it, holds it open and closes it.

    If it cannot be opened, or breaks while it is open, it is opened again after a growing pause.
    ``tried`` is set when the first attempt has ended.
    """

    def __init__(
        self, plan: Plan, telemetry: Telemetry, alerts: AlertLog, *, seconds: float
    ) -> None:
        self.pipeline = plan.name
        self.context: Any = None
        self.failure: PipelineFailure | None = None
        self.tried = asyncio.Event()
        self.open = asyncio.Event()
        self.down = asyncio.Event()
        self._plan = plan
        self._telemetry = telemetry
        self._alerts = alerts
        self._seconds = seconds
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to open it. A second call does nothing."""
        if self._plan.app.lifespan_ is None:
            self.tried.set()
            self.open.set()
        elif self._task is None:
            self._closing.clear()
            self.tried.clear()
            self.failure = None
            self._task = asyncio.create_task(self._run(), name=f"lifespan {self.pipeline}")

    async def close(self) -> None:
        """Close it. An error is logged; a lifespan that does not close in time is cancelled."""
        self._closing.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait([task], timeout=CLOSE_TIMEOUT)
            if not task.done():
                why = text("lifespan_timeout_close", seconds=CLOSE_TIMEOUT)
                self._report("pipeline_close_failed", PipelineFailure("TimeoutError", why))
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        pause = RETRY
        while not self._closing.is_set():
            try:
                async with opened(self._plan, self._seconds) as context:
                    pause = RETRY
                    await self._hold(context)
            except GeneratorExit:
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and me.cancelling():
                    raise
                await self._failed(error, pause)
            await wait_at_most(pause, self._closing)
            pause = min(RETRY_MOST, pause * 2)

    async def _hold(self, context: Any) -> None:
        """The pipeline is ready until it is closed, or until its lifespan cancels this task."""
        if self.failure is not None:
            self._telemetry.event(
                "info", text("pipeline_started", pipeline=self.pipeline), pipeline=self.pipeline
            )
        self._alerts.end_soon("pipeline_failed", self.pipeline)
        self.context, self.failure = context, None
        self.down.clear()
        self.open.set()
        self.tried.set()
        try:
            await self._closing.wait()
        finally:
            self.context = None
            self.open.clear()
            self.down.set()

    async def _failed(self, error: BaseException, pause: float) -> None:
        failure, before = failure_of(error), self.failure
        if self._closing.is_set():
            self._report("pipeline_close_failed", failure, error)
            return
        self.failure = failure
        self.tried.set()
        message = self._report(
            "pipeline_failed", failure, None if failure == before else error, retry=pause
        )
        await self._alerts.begin("pipeline_failed", self.pipeline, message)

    def _report(
        self, code: str, failure: PipelineFailure, error: BaseException | None = None, **fields: Any
    ) -> str:
        """Log the failure; the traceback only once for the same error."""
        message = text(code, pipeline=self.pipeline, why=failure.why)
        if error is not None:
            fields["exc_info"] = error
        self._telemetry.event("error", message, pipeline=self.pipeline, **fields)
        return message


class Lifespans:
    """The lifespans of all pipelines. One that fails holds up no other."""

    def __init__(
        self, plans: Iterable[Plan], telemetry: Telemetry, alerts: AlertLog, *, seconds: float
    ) -> None:
        self._all = {
            plan.name: Lifespan(plan, telemetry, alerts, seconds=seconds) for plan in plans
        }

    @property
    def contexts(self) -> dict[str, Any]:
        """The contexts of the pipelines that are ready, by name."""
        return {name: each.context for name, each in self._all.items() if each.open.is_set()}

    def context(self, pipeline: str) -> Any:
        """The context of the pipeline. Raises PipelineNotReady if it is not open."""
        self.refuse_closed(pipeline)
        return self._all[pipeline].context

    @property
    def failures(self) -> dict[str, PipelineFailure]:
        """Why pipelines are not ready, by name; those that are still opening are left out."""
        return {name: each.failure for name, each in self._all.items() if each.failure is not None}

    async def start(self, pipelines: Iterable[str] | None = None) -> None:
        """Open these (None: all), and wait a moment for them.

        The others are opened when they are required.
        """
        chosen = [self._all[name] for name in (self._all if pipelines is None else pipelines)]
        for each in chosen:
            each.start()
        waits = [asyncio.create_task(each.tried.wait()) for each in chosen]
        if waits:
            _, late = await asyncio.wait(waits, timeout=START_WAIT)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """Close all of them."""
        await asyncio.gather(*(each.close() for each in self._all.values()))

    async def require(self, pipeline: str) -> None:
        """Wait until the pipeline was tried. Raises PipelineNotReady if it is not open then."""
        lifespan = self._all[pipeline]
        lifespan.start()
        await lifespan.tried.wait()
        if not lifespan.open.is_set():
            why = lifespan.failure.why if lifespan.failure is not None else "-"
            raise PipelineNotReady(text("pipeline_failed", pipeline=pipeline, why=why))

    def refuse_closed(self, pipeline: str) -> None:
        """Raise PipelineNotReady if the pipeline is not open now; for callers outside.

        The message has only the type of the error: anybody may call a webhook.
        """
        lifespan = self._all[pipeline]
        if not lifespan.open.is_set():
            failure = lifespan.failure
            raise PipelineNotReady(
                text("pipeline_opening", pipeline=pipeline)
                if failure is None
                else text("pipeline_not_ready", pipeline=pipeline, error=failure.type)
            )

    async def wait_until_open(self, pipeline: str, stopping: asyncio.Event) -> None:
        """Wait until the pipeline is open, or until ``stopping``."""
        self._all[pipeline].start()
        await wait_for_any(self._all[pipeline].open, stopping)

    async def wait_until_down(self, pipeline: str, stopping: asyncio.Event) -> None:
        """Wait until the pipeline is not open any more, or until ``stopping``."""
        await wait_for_any(self._all[pipeline].down, stopping)
