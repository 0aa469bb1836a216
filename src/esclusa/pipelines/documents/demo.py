"""The part of ``make demo`` for this pipeline: a folder of statements with faults."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from esclusa import above, http
from esclusa.pipelines.documents.boxes import page_boxes
from esclusa.pipelines.documents.events import ReadyEvent
from esclusa.pipelines.documents.folder_signals import from_event, receive
from esclusa.pipelines.documents.records import FOLDER_ENDED, Documento, Extraccion, Folio
from esclusa.pipelines.documents.sample_statements import pdf, statement

if TYPE_CHECKING:
    from esclusa import Runtime


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


# The simulator needs Google's library; without it the local processor does everything.
SIMULATORS: tuple[str, ...] = ("documentai",) if _installed("google.cloud.documentai") else ()
CYCLES: tuple[str, ...] = ("documents.process",)
ORGS = (
    "Inversiones Los Andes S.A.",
    "Viña Santa Elena S.A. y Filiales",
    "Transportes del Sur Limitada",
    "Pesquera Isla Negra SpA",
)


def environ(urls: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the settings: Document AI classifies and reads income statements, local the rest."""
    settings = {
        "DOCUMENTS_LOCAL_BUCKETS": f"preavaluos={folder / 'preavaluos'}",
        "DOCUMENTS_BACKOFF_SECONDS": "1",
        "MAX_CONCURRENT_DOCS": "4",
    }
    if "documentai" in urls:
        settings |= {
            "DOCUMENTS_PROCESSOR": "documentai",
            "DOCUMENTAI_PROJECT": "demo",
            "DOCUMENTAI_CLASSIFIER": "demo-classifier",
            "DOCUMENTAI_ENDPOINT": urls["documentai"],
            "DOCUMENTS_EXTRACTORS": (
                "balance_sheet=local,cash_flow=local,income_statement=demo-extractor"
            ),
        }
    return settings


async def prepare(runtime: Runtime, urls: dict[str, str], folder: Path) -> None:
    """Create the folder, order faults, and send the event that starts it."""
    rng = Random(7)
    target = folder / "preavaluos" / "2026-10"
    target.mkdir(parents=True, exist_ok=True)
    for number, org in enumerate(ORGS):
        for doc_type in ("balance_sheet", "income_statement", "cash_flow"):
            (target / f"{number + 1:02}-{doc_type}.pdf").write_bytes(
                statement(doc_type, org, 2025, rng)
            )
    (target / "90-carta.pdf").write_bytes(
        pdf(
            [
                (72, 700, 11, "Estimados señores:"),
                (72, 680, 11, "Adjuntamos los estados financieros."),
            ]
        )
    )
    (target / "91-roto.pdf").write_bytes(b"%PDF-1.7\nthis file was cut off")
    (target / "notas.txt").write_text("not a PDF")
    (target / "is_ready").touch()
    if "documentai" in urls:
        unavailable = {
            "error": {
                "code": 503,
                "message": "The service is currently unavailable.",
                "status": "UNAVAILABLE",
            }
        }
        busy = {
            "error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED"}
        }
        faults = [
            {"path": "/v1/", "match": "02-", "times": 2, "status": 503, "body": unavailable},
            {"path": "/v1/", "match": "demo-extractor", "times": 1, "status": 429, "body": busy},
        ]
        async with http.session() as session:
            for path, body in (("/_faults", faults), ("/_delay", {"seconds": 0.3})):
                async with session.post(urls["documentai"] + path, json=body) as answer:
                    answer.raise_for_status()
    event = ReadyEvent(
        "demo-event-1",
        "//storage.googleapis.com/projects/_/buckets/preavaluos",
        "preavaluos",
        "2026-10",
    )
    await receive(runtime, from_event(event))


async def finished(runtime: Runtime) -> bool:
    """Return whether the folder has ended."""
    folio = await runtime.records.first(Folio)
    return folio is not None and folio.status in FOLDER_ENDED


async def summary(runtime: Runtime) -> list[str]:
    """Return the lines that the demo prints at its end, with one number and its position."""
    folio = await runtime.records.first(Folio)
    if folio is None:
        return ["documents: no folder yet"]
    failed = [
        d.gcs_uri.rsplit("/", 1)[-1] + f" ({d.error_type})"
        for d in (await runtime.records.find(Documento, {"status": "ERROR"})).items
    ]
    retried, _ = await runtime.records.count(Documento, {"status": "DONE", "attempts": above(1)})
    count, _ = await runtime.records.count(Extraccion, {"type": "LINE_ITEM_VALUE"})
    ended = (
        f"folder {folio.bucket}/{folio.folder_prefix} ended {folio.status}: "
        f"{folio.processed_docs} of {folio.total_docs} documents"
    )
    lines = [
        f"documents: {ended}, {retried} of them after retries, {len(folio.ignored)} object ignored",
        f"documents: in error: {', '.join(failed) or 'none'}",
    ]
    example = await runtime.records.first(Extraccion, {"type": "LINE_ITEM_VALUE"})
    if example is not None and example.page_refs:
        _, place = next(page_boxes(example.page_refs))
        box = ", ".join(f"{v:.3f}" for v in place)
        where = f"page {example.page_refs[0]['page']}, box [{box}] of {example.gcs_uri}"
        lines.append(
            f"documents: {count} numbers, each with its place: {example.LINE_ITEM_NAME} "
            f"{example.COLUMN_YEAR} = {example.LINE_ITEM_VALUE} from {where}"
        )
    return lines
