"""Measures of the pipeline ``documents``.

Pages read per second, the time for a folder beside the ideal, and memory over 10,000 documents.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from bench.driver import Driver
from bench.measures import Measure, Scale, progress
from bench.report import Report, rates, times
from esclusa.runtime import Runtime

DOCUMENTS, AT_ONCE, SECONDS = 60, 10, 1.0
MANY = 10_000


async def documents(driver: Driver, report: Report, scale: Scale) -> None:
    """Pages per second beside bare pypdfium2, a folder's time beside the ideal, and memory.

    The folder has 60 documents with two calls of 1 s each, ten documents at a time: ideally 12 s.
    """
    _pages(report, scale)
    await _folder(driver, report)
    await _many(driver, report, scale)


def _pages(report: Report, scale: Scale) -> None:
    import pypdfium2 as pdfium

    from esclusa.pipelines.documents.local.statement import read_document
    from esclusa.pipelines.documents.sample_statements import statement

    rng = Random(1)
    made = [
        statement(kind, "Pesquera Isla Negra SpA", 2025, rng)
        for kind in ("balance_sheet", "income_statement", "cash_flow") * 40
    ]
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(scale.rounds):
        start = time.perf_counter()
        for content in made:
            document = pdfium.PdfDocument(content)
            for page in document:
                page.get_textpage().get_text_range()
            document.close()
        bare.append(len(made) / (time.perf_counter() - start))
        start = time.perf_counter()
        for content in made:
            read_document(content)
        ours.append(len(made) / (time.perf_counter() - start))
        progress(f"documents: {ours[-1]:,.0f} pages/s, bare text {bare[-1]:,.0f}/s")
    report.rows.append(
        rates("documents: pages understood, local processor", ours, "bare pypdfium2 text", bare)
    )


async def _folder(driver: Driver, report: Report) -> None:
    import aiohttp

    from esclusa.simulators import SimulatorProcess

    with (
        SimulatorProcess("documentai") as sim,
        tempfile.TemporaryDirectory(dir=driver.folder) as folder,
    ):
        place = Path(folder) / "bkt" / "a"
        place.mkdir(parents=True)
        for n in range(DOCUMENTS):
            (place / f"{n}.pdf").write_text(f"%PDF-1.4\n%class=balance_sheet\n%{n}\n")
        (Path(folder) / "bkt" / "warm").mkdir()
        (Path(folder) / "bkt" / "warm" / "0.pdf").write_text("%PDF-1.4\n%class=balance_sheet\n")
        environ = {
            "DOCUMENTS_PROCESSOR": "documentai",
            "DOCUMENTAI_PROJECT": "p",
            "DOCUMENTAI_CLASSIFIER": "classifier",
            "DOCUMENTAI_ENDPOINT": sim.url,
            "DOCUMENTS_EXTRACTORS": "balance_sheet=ext",
            "MAX_CONCURRENT_DOCS": str(AT_ONCE),
        }
        async with _open(folder, environ) as runtime:
            await _process(runtime, "gs://bkt/warm")  # loads the libraries
            async with aiohttp.ClientSession() as session:
                await session.post(f"{sim.url}/_delay", json={"seconds": SECONDS})
            took = await _process(runtime, "gs://bkt/a")
    ideal = 2 * SECONDS * DOCUMENTS / AT_ONCE
    progress(f"documents: {DOCUMENTS} documents in {took:.2f} s, ideal {ideal:.0f} s")
    what = f"documents: {DOCUMENTS} × 2 calls of 1 s, {AT_ONCE} at once"
    report.rows.append(times(what, [took], "ideal", [ideal], 1 / 1.15, " s"))


async def _many(driver: Driver, report: Report, scale: Scale) -> None:
    from esclusa.pipelines.documents.sample_statements import statement

    count, rng = scale.of(MANY), Random(2)
    with tempfile.TemporaryDirectory(dir=driver.folder) as folder:
        for name, size in (("small", count // 10), ("large", count)):
            place = Path(folder) / "bkt" / name
            place.mkdir(parents=True)
            for n in range(size):
                (place / f"{n:05}.pdf").write_bytes(
                    statement("cash_flow", f"Empresa {n} S.A.", 2025, rng)
                )
        async with _open(folder, {}) as runtime:
            await _process(runtime, "gs://bkt/small")
            before = _megabytes()
            took = await _process(runtime, "gs://bkt/large")
            grown = _megabytes() - before
    note = (
        f"documents: a folder of {count:,} documents in {took:.0f} s ({count / took:,.0f}/s),"
        f" with {grown:.1f} MB more memory than a folder of {count // 10:,}"
    )
    progress(note)
    report.notes.append(note)


def _megabytes() -> float:
    """This process's peak memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1024 if sys.platform == "linux" else 1024 * 1024
    )


@asynccontextmanager
async def _open(folder: str, environ: dict[str, str]) -> AsyncIterator[Runtime]:
    """Run the pipeline on SQLite, with the bucket ``bkt`` in this folder."""
    from esclusa.app import open_runtime
    from esclusa.settings import load

    environ = {
        "ESCLUSA_STORE": f"sqlite:///{folder}/d.db",
        "ESCLUSA_ARTIFACTS": f"{folder}/artifacts",
        "ESCLUSA_PIPELINES": "documents",
        "ESCLUSA_LOG_LEVEL": "error",
        "DOCUMENTS_LOCAL_BUCKETS": f"bkt={folder}/bkt",
        **environ,
    }
    async with open_runtime(load(environ=environ)) as runtime, runtime.engine.running():
        yield runtime


async def _process(runtime: Runtime, uri: str) -> float:
    """Process a folder to its end; return the seconds it took."""
    from esclusa.pipelines.documents.folder_signals import from_command

    signal = from_command(uri)
    start = time.perf_counter()
    inserted = await runtime.engine.records.insert([signal])
    run = await runtime.engine.run_cycle(
        "documents.process", params={"folio_id": signal.folio_id, "signal": inserted[0].id}
    )
    assert run.outcome == "ok", run.answer()
    return time.perf_counter() - start


MEASURES: dict[str, Measure] = {"documents": documents}
