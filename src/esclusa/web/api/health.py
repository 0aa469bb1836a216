"""Alive, ready, and how much: what machines ask before people do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from esclusa import health
from esclusa.health import Check
from esclusa.model.errors import EsclusaError
from esclusa.observability.metrics import Metrics
from esclusa.runtime import Runtime
from esclusa.web.auth import SIGNED
from esclusa.web.deadline import within
from esclusa.web.problems import responses

PATIENCE = 5.0
"""Seconds that a part of the house has to answer before it counts as not ready."""
SCHEMA_FOR = 30.0
"""Seconds for which the verdict on the schema holds: it changes only when somebody changes it."""
SCRAPE_FOR = 5.0
"""Seconds for which the gauges that cost a look into the store hold."""


def vitals(runtime: Runtime) -> APIRouter:
    """The routes ``/healthz``, ``/readyz`` and ``/metrics``."""
    api = APIRouter(tags=["vitals"])
    readiness, gauges = Readiness(runtime), Gauges(runtime)

    @api.get("/healthz", openapi_extra=SIGNED, summary="The process is alive")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @api.get(
        "/readyz",
        openapi_extra=SIGNED,
        responses={503: {"description": "Not ready: a check with the verdict fail says why"}},
        summary="The store answers, the schema fits, the artifacts are there, the pipelines are content",
    )
    async def readyz() -> JSONResponse:
        checks = await readiness.checks()
        ready = all(check.verdict != "fail" for check in checks)
        body = {
            "status": "ready" if ready else "not ready",
            "checks": [check.answer() for check in checks],
        }
        return JSONResponse(body, 200 if ready else 503)

    @api.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **responses(401),
        },
        summary="Metrics for Prometheus",
    )
    async def metrics(request: Request) -> Response:
        await gauges.refresh()
        body, media_type = gauges.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": media_type})

    return api


class Readiness:
    """Looks at the parts of the house, each with a time limit; what it tells holds no secret, for it is told to anyone."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._schema: tuple[float, Check] | None = None

    async def checks(self) -> list[Check]:
        found = await asyncio.gather(
            self._within("store", self._store), self._within("artifacts", self._artifacts)
        )
        return [*found[0], *found[1], *self._pipelines()]

    async def _within(
        self, name: str, look: Callable[[], Coroutine[Any, Any, list[Check]]]
    ) -> list[Check]:
        try:
            return await within(PATIENCE, look())
        except TimeoutError as error:
            return [Check(name, "fail", str(error))]
        except EsclusaError as error:
            self._runtime.engine.telemetry.event("warning", f"not ready: {name}: {error}")
            return [
                Check(
                    name,
                    "fail",
                    f"it does not answer ({type(error).__name__})",
                    "the server's log says more",
                )
            ]

    async def _store(self) -> list[Check]:
        await self._runtime.engine.clock.sync()
        if (
            self._schema is None
            or time.monotonic() - self._schema[0] > SCHEMA_FOR
            or self._schema[1].verdict == "fail"
        ):
            self._schema = (time.monotonic(), await health.check_schema(self._runtime))
        return [Check("store", "ok", "it answers"), self._schema[1]]

    async def _artifacts(self) -> list[Check]:
        await self._runtime.artifacts.info("esclusa-readiness")
        return [Check("artifacts", "ok", "they answer")]

    def _pipelines(self) -> list[Check]:
        try:
            return list(health.check_pipelines(self._runtime.settings))
        except Exception as error:  # noqa: BLE001 - a pipeline's own check must not take the others away
            self._runtime.engine.telemetry.event(
                "error", f"a pipeline's check broke: {error}", exc_info=error
            )
            return [
                Check(
                    "pipelines",
                    "fail",
                    f"a check broke ({type(error).__name__})",
                    "the server's log says more",
                )
            ]


class Gauges:
    """The gauges that are read from the store when somebody asks: at most one look in a few seconds."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = asyncio.Lock()
        self._at: float | None = None
        told = getattr(runtime.engine.telemetry, "metrics", None)
        self.metrics: Metrics = told if isinstance(told, Metrics) else Metrics()

    async def refresh(self) -> None:
        async with self._lock:
            if self._at is not None and time.monotonic() - self._at < SCRAPE_FOR:
                return
            try:
                await within(PATIENCE, self._read())
            except (EsclusaError, TimeoutError) as error:
                self._runtime.engine.telemetry.event(
                    "warning", f"metrics: the store was not read: {type(error).__name__}: {error}"
                )
            self._at = time.monotonic()

    async def _read(self) -> None:
        for stage in await self._runtime.read_model.stages(system=True):
            self.metrics.backlog(stage["stage"], stage["due"], stage["oldest_due_seconds"] or 0.0)
            self.metrics.inflight(stage["stage"], self._runtime.engine.inflight(stage["stage"]))
        for budget in await self._runtime.read_model.budgets():
            for window in budget["windows"]:
                self.metrics.budget(
                    budget["budget"], window["per"], window["used"], window["limit"]
                )
