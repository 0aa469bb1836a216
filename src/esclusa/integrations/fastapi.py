"""FastAPI: Esclusa opened with the application, and its console and API below a path of it.

``esclusa = Embedded(pipeline, worker=True)``, ``FastAPI(lifespan=esclusa.lifespan)``,
``esclusa.mount(app, "/ops", caller=…)``. It serves Starlette's applications, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from esclusa.embedding import Pipeline
from esclusa.embedding import open as open_esclusa
from esclusa.runtime import Runtime
from esclusa.web.auth.host import HOST_SCOPE, FindCaller, HostCaller
from esclusa.web.problems import problem
from esclusa.web.server import create_app

__all__ = ["Embedded", "FindCaller", "HostCaller"]


class Embedded:
    """Esclusa in a FastAPI application.

    ``options`` are those of ``esclusa.open``: ``store="postgresql://…"`` and other settings.
    ``worker``: also handle records in the application's processes.
    """

    def __init__(
        self, *pipelines: Pipeline, worker: bool | Iterable[str] = False, **options: Any
    ) -> None:
        self._pipelines = pipelines
        self._worker = worker
        self._options = options
        self._opened: Runtime | None = None
        self._mounted: list[_Mounted] = []

    @asynccontextmanager
    async def lifespan(self, app: Any = None) -> AsyncIterator[None]:
        """Open Esclusa while the application runs: ``FastAPI(lifespan=esclusa.lifespan)``.

        Within a lifespan of the application's own: ``async with esclusa.lifespan(app): yield``.
        """
        async with open_esclusa(*self._pipelines, worker=self._worker, **self._options) as runtime:
            self._opened = runtime
            for mounted in self._mounted:
                mounted.open(runtime, worker=bool(self._worker))
            try:
                yield
            finally:
                self._opened = None
                for mounted in self._mounted:
                    mounted.close()

    @property
    def opened(self) -> Runtime:
        """The runtime. Raises RuntimeError outside of the lifespan."""
        if self._opened is None:
            raise RuntimeError(
                "Esclusa is not open: FastAPI(lifespan=esclusa.lifespan), and in tests"
                " with TestClient(app) as client: …"
            )
        return self._opened

    async def runtime(self) -> Runtime:
        """The runtime as a dependency: ``Annotated[Runtime, Depends(esclusa.runtime)]``."""
        return self.opened

    def mount(self, app: Starlette, path: str, *, caller: FindCaller) -> None:
        """Serve console and API below a path of the application.

        ``caller``: a function, async or not, that gets each request and answers who makes it:
        ``HostCaller(name, "read")`` or ``HostCaller(name, "operate")``; None, which is answered
        401; or a response, such as a redirect to the sign-in. It may raise HTTPException. Health
        checks and signed webhooks are served to everybody.
        """
        mounted = _Mounted(caller)
        self._mounted.append(mounted)
        app.mount(path, mounted, name="esclusa")


class _Mounted:
    """The console and API, while Esclusa is open."""

    def __init__(self, caller: FindCaller) -> None:
        self._caller = caller
        self._app: ASGIApp | None = None

    def open(self, runtime: Runtime, *, worker: bool) -> None:
        self._app = create_app(runtime, worker=worker, caller=self._caller)

    def close(self) -> None:
        self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            await problem(503, "Esclusa is not open")(scope, receive, send)
            return
        await self._app({**scope, HOST_SCOPE: scope}, receive, send)
