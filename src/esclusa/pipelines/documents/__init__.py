"""Pipeline ``documents``: a ready folder of financial PDFs becomes traceable numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from esclusa import App, Backoff, RunContext
from esclusa.pipelines.documents import folders, reading, running
from esclusa.pipelines.documents.records import Documento, Extraccion, Folio, Signal, letter
from esclusa.pipelines.documents.settings import DocumentsSettings, check

if TYPE_CHECKING:
    from esclusa.runtime import Runtime

app = App("documents", settings=DocumentsSettings, records=[Extraccion])
app.checks(check)


def _retry(settings: DocumentsSettings) -> Backoff:
    return Backoff(
        tries=settings.max_attempts, base=settings.backoff_seconds, cap=settings.backoff_max_seconds
    )


_always = Backoff(tries=None, base=1, cap=60)
_letters: dict[str, Any] = {"dead_letter": letter, "dead_letter_topic": lambda s: s.dlq_topic}

app.stage(Signal, take="received", retry=_always, cycle=False)(folders.hear)
app.stage(Folio, take="PENDING", retry=_always, cycle=False)(folders.begin)
app.stage(Folio, take="PROCESSING", exhausted="ERROR", retry=_retry, cycle=False, **_letters)(
    folders.tend
)
app.stage(
    Documento, take="NOT_STARTED", hold="IN_PROGRESS", exhausted="ERROR", retry=_retry, cycle=False,
    concurrency=lambda s: s.max_concurrent_docs, **_letters,
)(reading.read)  # fmt: skip
for _stage in ("hear", "begin", "tend", "read"):
    app.parts(_stage, {"folio_id": "one of them alone"})
app.declare_query(Extraccion, {"documento_id": "one", "revision": 0}, order="position")


@app.cycle(every=running.always(), stages=("hear", "begin", "tend", "read"))
async def process(run: RunContext) -> None:
    await running.process(run)


@app.lifespan
@asynccontextmanager
async def desk(settings: DocumentsSettings) -> AsyncIterator[Any]:
    from esclusa.pipelines.documents.desk import Desk  # noqa: PLC0415 - only who works needs it

    opened = Desk(settings)
    try:
        yield opened
    finally:
        await asyncio.shield(opened.close())


@app.routes
def routes(runtime: Runtime) -> Any:
    from esclusa.pipelines.documents.routes import build  # noqa: PLC0415 - only a server needs it

    return build(runtime)


@app.console
def console(extension: Any) -> None:
    from esclusa.pipelines.documents.console import build  # noqa: PLC0415 - only a server needs it

    build(extension)


@app.commands
def commands() -> Any:
    from esclusa.pipelines.documents.commands import group  # noqa: PLC0415 - only the command line needs it

    return group


__all__ = ["app"]
