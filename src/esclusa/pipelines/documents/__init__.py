"""Turn a ready folder of financial PDFs into traceable numbers.

The guide is docs/pipelines/documents.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from esclusa import Always, App, Backoff, DeadLetter, one_of
from esclusa.pipelines.documents import actions, folders, process_cycle, reading, views
from esclusa.pipelines.documents.records import (
    Documento,
    Extraccion,
    FolderSignal,
    Folio,
    dead_letter,
)
from esclusa.pipelines.documents.settings import DocumentsSettings, check

if TYPE_CHECKING:
    from esclusa import Runtime
    from esclusa.web import ConsoleExtension

app = App(
    "documents",
    settings=DocumentsSettings,
    records=[Extraccion],
    budgets=[lambda s: s.page_budget],
)
app.checks(check)


def _retry(settings: DocumentsSettings) -> Backoff:
    return Backoff(
        tries=settings.max_attempts,
        base=settings.backoff_seconds,
        factor=settings.backoff_factor,
        cap=settings.backoff_max_seconds,
    )


_unlimited = Backoff(tries=None, base=1, cap=60)
_dead_letters: dict[str, Any] = {
    "dead_letter": dead_letter,
    "dead_letter_topic": lambda s: s.dlq_topic,
}

app.stage(FolderSignal, take="received", retry=_unlimited, cycle=False)(folders.on_event)
app.stage(Folio, take="PENDING", retry=_unlimited, cycle=False)(folders.begin)
app.stage(Folio, take="PROCESSING", exhausted="ERROR", retry=_retry, cycle=False, **_dead_letters)(
    folders.supervise
)
app.stage(
    Documento,
    take="NOT_STARTED",
    hold="IN_PROGRESS",
    exhausted="ERROR",
    retry=_retry,
    cycle=False,
    concurrency=lambda s: s.max_concurrent_docs,
    abandoned_after=lambda s: s.take_over_grace_seconds,
    **_dead_letters,
)(reading.read)
app.deadline(
    Documento,
    "NEEDS_REVIEW",
    after=lambda s: timedelta(days=s.review_days) if s.review == "hold" else None,
    to="ESCALATED",
)
for _stage in process_cycle.STAGES:
    app.parts(_stage, {"folio_id": "one of them alone"})
app.declare_query(Extraccion, {"documento_id": "one", "revision": 0}, order="position")
app.cycle(every=Always(), stages=process_cycle.STAGES)(process_cycle.process)
app.action(
    Folio,
    "Reprocess",
    es="Reprocesar",
    where={"status": one_of("DONE", "DONE_WITH_ERRORS", "ERROR")},
    params=actions.ReprocessParams,
    about={
        "en": "Process finished folders again: their new and failed documents.",
        "es": "Procesar de nuevo carpetas terminadas: sus documentos nuevos y fallidos.",
    },
)(actions.reprocess)
app.action(
    Documento,
    "Map answers anew",
    es="Interpretar de nuevo",
    where={"status": "DONE"},
    about={
        "en": "Map the stored answers of Document AI anew, without a call.",
        "es": "Interpretar de nuevo las respuestas guardadas de Document AI, sin llamarlo.",
    },
)(actions.remap)


app.view("Folders by month", es="Carpetas por mes")(views.folders_by_month)
app.view(
    "Documents to review",
    of=Documento,
    where={"needs_review": True},
    es="Documentos por revisar",
)(views.to_review)


app.view("Documents retried", of=Documento, where=views.RETRIED, es="Documentos reintentados")(
    views.retried
)
app.view(
    "Documents that failed",
    of=DeadLetter,
    where=views.FAILED,
    es="Documentos fallidos",
)(views.dead_letters)
app.declare_query(Documento, views.RETRIED)
app.gauges(views.figures)


@app.lifespan
@asynccontextmanager
async def open_processors(settings: DocumentsSettings) -> AsyncIterator[Any]:
    """Open the buckets and processors of a worker or server."""
    from esclusa.pipelines.documents.processors import Processors  # noqa: PLC0415 - only then

    processors = Processors(settings)
    try:
        yield processors
    finally:
        await asyncio.shield(processors.close())


@app.routes
def routes(runtime: Runtime) -> Any:
    """Return the HTTP routes; a worker does not import them."""
    from esclusa.pipelines.documents.routes import router  # noqa: PLC0415 - only a server needs it

    return router(runtime)


@app.console
def console(extension: ConsoleExtension) -> None:
    """Add the trace view to the console."""
    from esclusa.pipelines.documents.console import build  # noqa: PLC0415 - only a server needs it

    build(extension)


@app.commands
def commands() -> Any:
    """Return the group ``esclusa documents``."""
    from esclusa.pipelines.documents.commands import group  # noqa: PLC0415 - only the CLI needs it

    return group
