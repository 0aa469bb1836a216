"""What ``make demo`` plays: a folder of statements, a classifier with bad minutes, two documents that nobody can read."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from random import Random

from esclusa import above
from esclusa import http as outside
from esclusa.pipelines.documents.events import Ready
from esclusa.pipelines.documents.records import FOLDER_ENDED, Documento, Extraccion, Folio
from esclusa.pipelines.documents.sample import pdf, statement
from esclusa.pipelines.documents.signals import from_event
from esclusa.runtime import Runtime


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package above it
        return False


SIMULATORS: tuple[str, ...] = ("documentai",) if _installed("google.cloud.documentai") else ()
"""Document AI is played with Google's own messages; without their library the local processor does all."""
CYCLES: tuple[str, ...] = ("documents.process",)
ORGS = (
    "Inversiones Los Andes S.A.",
    "Viña Santa Elena S.A. y Filiales",
    "Transportes del Sur Limitada",
    "Pesquera Isla Negra SpA",
)


def environ(urls: dict[str, str], folder: Path) -> dict[str, str]:
    """Document AI classifies and reads income statements; everything else is read on this machine."""
    said = {
        "DOCUMENTS_LOCAL_BUCKETS": f"preavaluos={folder / 'preavaluos'}",
        "DOCUMENTS_BACKOFF_SECONDS": "1",
        "MAX_CONCURRENT_DOCS": "4",
    }
    if "documentai" in urls:
        said |= {
            "DOCUMENTS_PROCESSOR": "documentai", "DOCUMENTAI_PROJECT": "demo", "DOCUMENTAI_CLASSIFIER": "demo-classifier",
            "DOCUMENTAI_ENDPOINT": urls["documentai"],
            "DOCUMENTS_EXTRACTORS": "balance_sheet=local,cash_flow=local,income_statement=demo-extractor",
        }  # fmt: skip
    return said


async def prepare(runtime: Runtime, urls: dict[str, str], folder: Path) -> None:
    """The folder, what will go wrong, and the event that starts it."""
    rng = Random(7)
    place = folder / "preavaluos" / "2026-10"
    place.mkdir(parents=True, exist_ok=True)
    for number, org in enumerate(ORGS):
        for doc_type in ("balance_sheet", "income_statement", "cash_flow"):
            (place / f"{number + 1:02}-{doc_type}.pdf").write_bytes(
                statement(doc_type, org, 2025, rng)
            )
    (place / "90-carta.pdf").write_bytes(
        pdf(
            [
                (72, 700, 11, "Estimados señores:"),
                (72, 680, 11, "Adjuntamos los estados financieros."),
            ]
        )
    )
    (place / "91-roto.pdf").write_bytes(b"%PDF-1.7\nthis file was cut off")
    (place / "notas.txt").write_text("not a PDF")
    (place / "is_ready").touch()
    if "documentai" in urls:
        google = {
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
            {"path": "/v1/", "match": "02-", "times": 2, "status": 503, "body": google},
            {"path": "/v1/", "match": "demo-extractor", "times": 1, "status": 429, "body": busy},
        ]
        async with outside.session() as session:
            for path, body in (("/_faults", faults), ("/_delay", {"seconds": 0.3})):
                async with session.post(urls["documentai"] + path, json=body) as answer:
                    answer.raise_for_status()
    event = Ready(
        "demo-event-1",
        "//storage.googleapis.com/projects/_/buckets/preavaluos",
        "preavaluos",
        "2026-10",
    )
    await runtime.engine.records.insert([from_event(event)])


async def finished(runtime: Runtime) -> bool:
    """Whether the folder is closed."""
    folio = await runtime.engine.records.first(Folio)
    return folio is not None and folio.status in FOLDER_ENDED


async def summary(runtime: Runtime) -> list[str]:
    """What became of the folder, and one number with the place it came from."""
    records = runtime.engine.records
    folio = await records.first(Folio)
    if folio is None:
        return ["documents: no folder yet"]
    failed = [
        d.gcs_uri.rsplit("/", 1)[-1] + f" ({d.error_type})"
        for d in (await records.find(Documento, {"status": "ERROR"})).items
    ]
    again, _ = await records.count(Documento, {"status": "DONE", "attempts": above(1)})
    count, _ = await records.count(Extraccion, {"type": "LINE_ITEM_VALUE"})
    ended = f"folder {folio.bucket}/{folio.folder_prefix} ended {folio.status}: {folio.processed_docs} of {folio.total_docs} documents"
    told = [
        f"documents: {ended}, {again} of them after retries, {len(folio.ignored)} object ignored",
        f"documents: in error: {', '.join(failed) or 'none'}",
    ]
    one = await records.first(Extraccion, {"type": "LINE_ITEM_VALUE"})
    if one is not None and one.page_refs:
        box = ", ".join(f"{v:.3f}" for v in one.page_refs[0]["boxes"][0])
        where = f"page {one.page_refs[0]['page']}, box [{box}] of {one.gcs_uri}"
        told.append(
            f"documents: {count} numbers, each with its place: {one.LINE_ITEM_NAME} {one.COLUMN_YEAR} = {one.LINE_ITEM_VALUE} from {where}"
        )
    return told
