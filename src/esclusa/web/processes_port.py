"""The port of ``esclusa worker --processes``: one for the probes and metrics of all processes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import aiohttp
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from esclusa.ports.telemetry import Telemetry
from esclusa.settings import Settings
from esclusa.web.auth.middleware import SELF_AUTHENTICATED
from esclusa.web.worker_port import create_app, serve_port

# Seconds that a process has for an answer. Kubernetes waits 5 or 10 s for that of the port.
TIMEOUT: Final = 4.0
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# A sample of the text format: its name, its labels if there are any, its value.
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (.+)")


class ServedProcess(Protocol):
    """A worker process with a port of its own on this machine."""

    number: int
    answered: bool

    @property
    def address(self) -> str | None: ...

    @property
    def running(self) -> bool: ...


@asynccontextmanager
async def processes_port(
    settings: Settings, processes: Sequence[ServedProcess], telemetry: Telemetry
) -> AsyncIterator[None]:
    """Serve the port while the processes run.

    If it cannot listen, it logs that and the workers run without it.
    """
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        app = create_app(processes_router(session, processes), settings, telemetry)
        async with serve_port(app, settings, telemetry):
            yield


def processes_router(
    session: aiohttp.ClientSession, processes: Sequence[ServedProcess]
) -> APIRouter:
    """The routes of a worker's port, answered for all processes together."""
    router = APIRouter()
    ready_once = False

    async def ask(process: ServedProcess, path: str, authorization: str = "") -> tuple[int, Any]:
        """The status and the body of what the process answers; 0 without an answer."""
        if not process.running or process.address is None:
            return 0, None
        headers = {"Authorization": authorization} if authorization else {}
        try:
            async with session.get(f"{process.address}{path}", headers=headers) as answer:
                found = await (answer.text() if path == "/metrics" else answer.json())
                process.answered = True
                return answer.status, found
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return 0, None

    async def ask_all(path: str, authorization: str = "") -> list[tuple[int, Any]]:
        return await asyncio.gather(*(ask(each, path, authorization) for each in processes))

    @router.get("/healthz", openapi_extra=SELF_AUTHENTICATED)
    async def healthz() -> JSONResponse:
        """200 unless a process stalls, does not answer any more, or never has.

        A process that is being started again counts as healthy: its parent works.
        """
        nonlocal ready_once
        before = {each.number: each.answered for each in processes}
        states: dict[str, str] = {}
        for process, (status, body) in zip(processes, await ask_all("/healthz"), strict=True):
            if status:
                states[str(process.number)] = str(body.get("status", "ok"))
            elif process.running and before[process.number]:
                states[str(process.number)] = "no answer"
            else:
                states[str(process.number)] = "starting" if process.running else "restarting"
        ready_once = ready_once or all(state == "ok" for state in states.values())
        passing = {"ok", "starting", "restarting"} if ready_once else {"ok"}
        bad = [state for state in states.values() if state not in passing]
        return JSONResponse(
            {"status": bad[0] if bad else "ok", "processes": states}, 503 if bad else 200
        )

    @router.get("/readyz", openapi_extra=SELF_AUTHENTICATED)
    async def readyz() -> JSONResponse:
        """200 if all processes are ready; otherwise the checks of one that is not."""
        answers = await ask_all("/readyz")
        states = {
            str(process.number): str(body["status"]) if status else "no answer"
            for process, (status, body) in zip(processes, answers, strict=True)
        }
        # The worst answer: of a process that is not ready, else any.
        found = max(answers, key=lambda answer: answer[0])[1]
        checks: list[Any] = found["checks"] if found else []
        ready = all(status == 200 for status, _ in answers)
        return JSONResponse(
            {
                "status": "ready" if ready else "not ready",
                "checks": checks,
                "processes": states,
            },
            200 if ready else 503,
        )

    @router.get("/metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        """The metrics of all processes, each with the label ``process``."""
        answers = await ask_all("/metrics", request.headers.get("authorization", ""))
        pages = {
            process.number: body
            for process, (status, body) in zip(processes, answers, strict=True)
            if status == 200
        }
        return Response(merged(pages), media_type=CONTENT_TYPE)

    return router


def merged(pages: Mapping[int, str]) -> str:
    """One page in Prometheus' text format; every sample has the label ``process``.

    The samples of a metric stay together, as the format demands.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, page in pages.items():
        name = ""
        for line in page.splitlines():
            if line.startswith("# "):
                _, word, name, *_ = line.split(" ", 3)
                head = heads.setdefault(name, [])
                if line not in head and word in ("HELP", "TYPE"):
                    head.append(line)
            elif match := _SAMPLE.fullmatch(line):
                sample, labels, value = match.groups()
                labelled = ",".join(part for part in (labels, f'process="{number}"') if part)
                samples.setdefault(name, []).append(f"{sample}{{{labelled}}} {value}")
    lines = [line for name, head in heads.items() for line in (*head, *samples.get(name, ()))]
    return "\n".join([*lines, ""])
