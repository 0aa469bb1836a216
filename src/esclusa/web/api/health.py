"""``/healthz``, ``/readyz`` and ``/metrics``: liveness, readiness and Prometheus metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from esclusa import health
from esclusa.health import Check
from esclusa.model.errors import EsclusaError
from esclusa.model.gauge import Gauge
from esclusa.model.texts import text
from esclusa.observability.metrics import Metrics
from esclusa.runtime import Runtime
from esclusa.web.auth.middleware import SELF_AUTHENTICATED
from esclusa.web.problems import problem_responses

T = TypeVar("T")

# Seconds after which a part that does not answer counts as not ready.
CHECK_TIMEOUT: Final = 5.0
# Seconds for which a good verdict on the schema and the states is reused.
SCHEMA_MAX_AGE: Final = 30.0
ADOPTION_MAX_AGE: Final = 300.0  # it counts documents
# Seconds for which gauges that are read from the store are reused.
GAUGES_MAX_AGE: Final = 5.0
OWN_MAX_AGE: Final = 60.0  # a pipeline's own figures may read many records

# Tasks that missed their limit, kept until they end: asyncio has only weak references to them.
_abandoned: set[asyncio.Task[Any]] = set()


def health_router(
    runtime: Runtime, *, worker: bool = False, readiness: Readiness | None = None
) -> APIRouter:
    """The routes ``/healthz``, ``/readyz`` and ``/metrics``, of a server or of a worker."""
    router = APIRouter(tags=["health"])
    readiness, gauges = readiness or Readiness(runtime), Gauges(runtime)

    @router.get(
        "/healthz",
        openapi_extra=SELF_AUTHENTICATED,
        responses={503: {"description": "A worker that could settle nothing for a long time"}},
        summary="Check liveness",
    )
    async def healthz(response: Response) -> dict[str, str]:
        """200 as long as the process runs; 503 if a worker cannot settle its outcomes."""
        limit = runtime.settings.liveness_seconds
        if worker and limit and runtime.engine.settler.stalled > limit:
            response.status_code = 503
            return {"status": "stalled"}
        return {"status": "ok"}

    @router.get(
        "/readyz",
        openapi_extra=SELF_AUTHENTICATED,
        responses={503: {"description": "Not ready: a check with the verdict fail says why"}},
        summary="Check readiness",
    )
    async def readyz() -> JSONResponse:
        """200 if store and artifacts answer, the schema fits and all pipelines are ready."""
        checks = await readiness.checks()
        ready = all(check.verdict != "fail" for check in checks)
        return JSONResponse(
            {
                "status": "ready" if ready else "not ready",
                "checks": [check.answer() for check in checks],
            },
            200 if ready else 503,
        )

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **problem_responses(401),
        },
        summary="Get metrics for Prometheus",
    )
    async def metrics(request: Request) -> Response:
        """Counters of this process, and gauges of the backlog and the budgets."""
        await gauges.refresh()
        body, media_type = gauges.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": media_type})

    return router


class Readiness:
    """Checks store, schema, artifacts and pipelines, each with a time limit.

    Anybody may read the result, so it contains no error message: those go to the log.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # Why pipelines are not ready for another reason than their lifespan, by name.
        self.failures: dict[str, str] = {}
        self._schema: tuple[float, list[Check]] | None = None
        self._adoption: tuple[float, list[Check]] | None = None

    async def checks(self) -> list[Check]:
        """All checks; the server is ready if none has the verdict fail."""
        store, artifacts = await asyncio.gather(
            self._guarded("store", self._store), self._guarded("artifacts", self._artifacts)
        )
        return [*store, *artifacts, *self._pipelines()]

    async def _guarded(
        self, name: str, check: Callable[[], Coroutine[Any, Any, list[Check]]]
    ) -> list[Check]:
        try:
            return await within(CHECK_TIMEOUT, check())
        except TimeoutError:
            return [Check(name, "fail", text("check_timeout", seconds=CHECK_TIMEOUT))]
        except EsclusaError as error:
            self._runtime.engine.telemetry.event("warning", f"not ready: {name}: {error}")
            return [_failed(name, "check_no_answer", error)]

    async def _store(self) -> list[Check]:
        await self._runtime.engine.clock.sync()
        if (
            self._schema is None
            or time.monotonic() - self._schema[0] > SCHEMA_MAX_AGE
            or any(check.verdict == "fail" for check in self._schema[1])
        ):
            checks = [await health.check_schema(self._runtime)]
            if checks[0].verdict != "fail":
                checks += await health.check_states(self._runtime)
            self._schema = (time.monotonic(), checks)
        if self._adoption is None or time.monotonic() - self._adoption[0] > ADOPTION_MAX_AGE:
            found = await health.check_adoption(self._runtime, named=False)
            self._adoption = (time.monotonic(), found)
        met = await self._runtime.store.check(0)
        faulty = Check("data", "fail", text("data_faulty"), text("run_doctor"))
        return [
            Check("store", "ok", text("check_answers")),
            *([faulty] if met is not None and met.faults else []),
            *self._schema[1],
            *self._adoption[1],
        ]

    async def _artifacts(self) -> list[Check]:
        await self._runtime.artifacts.info("esclusa-readiness")
        return [Check("artifacts", "ok", text("check_answers"))]

    def _pipelines(self) -> list[Check]:
        lifespans = {
            name: text("lifespan_failed", why=failure.type)
            for name, failure in self._runtime.engine.lifespans.failures.items()
        }
        failures = {**self.failures, **lifespans}
        return list(health.check_pipelines(self._runtime.settings, failures, self._broken))

    def _broken(self, pipeline: str, error: Exception) -> str:
        self._runtime.engine.telemetry.event(
            "error", f"the check of pipeline {pipeline} failed: {error}", exc_info=error
        )
        return type(error).__name__


def _failed(name: str, code: str, error: Exception) -> Check:
    return Check(name, "fail", text(code, error=type(error).__name__), text("check_log"))


class Gauges:
    """Gauges that are read from the store when metrics are requested, at most every few seconds."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = asyncio.Lock()
        self._read_at = self._own_read_at = float("-inf")
        self.metrics: Metrics = getattr(runtime.engine.telemetry, "metrics", None) or Metrics()

    async def refresh(self) -> None:
        """Read the gauges again if they are old; a store that does not answer is logged."""
        async with self._lock:
            if time.monotonic() - self._read_at < GAUGES_MAX_AGE:
                return
            try:
                await within(CHECK_TIMEOUT, self._read())
            except (EsclusaError, TimeoutError) as error:
                self._runtime.engine.telemetry.event(
                    "warning", f"metrics: cannot read the store: {type(error).__name__}: {error}"
                )
            if time.monotonic() - self._own_read_at >= OWN_MAX_AGE:
                await self._read_own()
                self._own_read_at = time.monotonic()
            self._read_at = time.monotonic()

    async def _read_own(self) -> None:
        """Read the figures of each pipeline; one that fails leaves the others alone."""
        for plan in self._runtime.engine.registry.plans:
            if plan.app.gauges_ is None:
                continue
            try:
                found = await within(CHECK_TIMEOUT, _awaited(plan.app.gauges_, self._runtime))
                self.metrics.own(plan.name, found)
            except Exception as error:  # noqa: BLE001 - a function of the pipeline may raise anything
                self._runtime.engine.telemetry.event(
                    "warning", f"metrics of {plan.name}: {type(error).__name__}: {error}"
                )

    async def _read(self) -> None:
        for stage in await self._runtime.read_model.stages(system=True):
            self.metrics.backlog(stage["stage"], stage["due"], stage["oldest_due_seconds"] or 0.0)
            self.metrics.inflight(stage["stage"], self._runtime.engine.inflight(stage["stage"]))
        for budget in await self._runtime.read_model.budgets():
            for window in budget["windows"]:
                self.metrics.budget(
                    budget["budget"], window["per"], window["used"], window["limit"]
                )


async def _awaited(
    read: Callable[[Any], Awaitable[Iterable[Gauge]]], runtime: Runtime
) -> list[Gauge]:
    return list(await read(runtime.records))


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, or TimeoutError after ``seconds``, even if it ignores cancellation.

    At the limit the work is cancelled but not awaited: a driver whose server vanished may need a
    minute to end a query, and ``asyncio.timeout`` would wait for it.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _abandoned.add(task)
            task.add_done_callback(_finished)
    if not task.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return task.result()


def _finished(task: asyncio.Task[Any]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
