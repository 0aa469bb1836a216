"""Measures of the pipeline ``documents``.

Pages read per second, the time for a folder beside the ideal, memory over 10,000 documents, and
Document AI under a quota and under ticks.
"""

from __future__ import annotations

import asyncio
import io
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
from reportlab.pdfgen import canvas  # type: ignore[import-untyped]

from bench.driver import Driver
from bench.measures import Measure, Scale, progress
from bench.report import Report, rates, times
from esclusa.pipelines.documents.folder_signals import from_command
from esclusa.pipelines.documents.records import Documento, Folio
from esclusa.pipelines.documents.settings import CLASSES
from esclusa.runtime import Runtime
from esclusa.simulators.documentai import DocumentAiSimulator

DOCUMENTS, AT_ONCE, SECONDS = 60, 10, 1.0
MANY = 10_000
# Of the measure with a quota: pages of each document, and pages a minute that are answered.
QUOTA_PAGES, QUOTA = 3, 120
# Of the measure with ticks: pages, seconds of a tick, and seconds of a call.
LONG, TICK, CALL = 200, 5, 7.0


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
        environ = _documentai(sim.url) | {"MAX_CONCURRENT_DOCS": str(AT_ONCE)}
        async with _open(folder, environ) as runtime:
            await _process(runtime, "gs://bkt/warm")  # loads the libraries
            async with aiohttp.ClientSession() as session:
                await session.post(f"{sim.url}/_delay", json={"seconds": SECONDS})
            took = await _process(runtime, "gs://bkt/a")
    ideal = 2 * SECONDS * DOCUMENTS / AT_ONCE
    progress(f"documents: {DOCUMENTS} documents in {took:.2f} s, ideal {ideal:.0f} s")
    what = f"documents: {DOCUMENTS} × 2 calls of 1 s, {AT_ONCE} at once"
    report.rows.append(times(what, [took], "ideal", [ideal], 1 / 1.15, " s"))


async def documents_quota(driver: Driver, report: Report, scale: Scale) -> None:
    """60 documents under a quota of 120 pages a minute: all are DONE, no attempt is lost.

    Each document is classified and extracted, three pages each: 360 pages, at best two minutes
    after the first 120. Once the pipeline knows the quota, and once it only meets refusals.
    """
    for known in (True, False):
        with tempfile.TemporaryDirectory(dir=driver.folder) as folder:
            place = Path(folder) / "bkt" / "a"
            place.mkdir(parents=True)
            for n in range(DOCUMENTS):
                (place / f"{n:02}.pdf").write_bytes(_pages_of_text(QUOTA_PAGES, n))
            async with _simulator() as (simulator, url):
                simulator.quota = {"pages": QUOTA, "seconds": 60}
                environ = _documentai(url)
                environ |= {"DOCUMENTAI_PAGES_PER_MINUTE": str(QUOTA)} if known else {}
                async with _open(folder, environ) as runtime:
                    took = await _process(runtime, "gs://bkt/a")
                    docs = [d async for d in runtime.records.each(Documento, {})]
                paid = [pages for _, _, pages in simulator.paid]
                refused = sum(simulator.counts.values()) - len(paid)
        states, attempts = {d.status for d in docs}, {d.attempts for d in docs}
        assert (len(docs), states, attempts) == (DOCUMENTS, {"DONE"}, {1}), (states, attempts)
        note = (
            f"documents: {DOCUMENTS} documents of {QUOTA_PAGES} pages under {QUOTA} pages a minute"
            f" ({'a budget' if known else 'refusals only'}): all DONE with one attempt in"
            f" {took:.0f} s; {sum(map(len, paid))} pages paid in {len(paid)} calls, {refused} more"
        )
        progress(note)
        report.notes.append(note)


async def documents_ticks(driver: Driver, report: Report, scale: Scale) -> None:
    """A PDF of 200 pages under ticks of 5 seconds, each call of which takes 7: paid once."""
    from esclusa.web.server import Service, listen

    with tempfile.TemporaryDirectory(dir=driver.folder) as folder:
        place = Path(folder) / "bkt" / "a"
        place.mkdir(parents=True)
        (place / "long.pdf").write_bytes(_pages_of_text(LONG, 0))
        (place / "is_ready").touch()
        async with _simulator() as (simulator, address):
            simulator.delay = CALL
            async with _open(folder, _documentai(address), run=False) as runtime:
                service = Service(runtime, worker=False)
                listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                task = asyncio.create_task(
                    service.run(listen("127.0.0.1", 0), listening.set_result)
                )
                url = f"http://127.0.0.1:{await listening}"
                await runtime.records.insert([from_command("gs://bkt/a")])
                start, ticks, ended = time.perf_counter(), 0, False
                async with aiohttp.ClientSession() as session:
                    while not ended:
                        async with session.post(f"{url}/tick?seconds={TICK}") as answer:
                            assert answer.status == 200, await answer.text()
                        ticks += 1
                        assert ticks < 60
                        folios = [f async for f in runtime.records.each(Folio, {})]
                        ended = bool(folios) and folios[0].status in ("DONE", "ERROR")
                took = time.perf_counter() - start
                [doc] = [d async for d in runtime.records.each(Documento, {})]
                service.stop()
                await task
            calls = [(processor, pages) for processor, _, pages in simulator.paid]
    read = {page for processor, pages in calls if processor == "ext" for page in pages}
    assert (doc.status, read) == ("DONE", set(range(1, LONG + 1))), doc.last_error
    assert len(calls) == len(set(calls)), calls
    note = (
        f"documents: {LONG} pages under ticks of {TICK} s with calls of {CALL:.0f} s: DONE after"
        f" {ticks} ticks and {took:.0f} s; {len(calls)} calls, each part paid once"
    )
    progress(note)
    report.notes.append(note)


def _pages_of_text(count: int, seed: int) -> bytes:
    """A PDF of so many pages."""
    out = io.BytesIO()
    made = canvas.Canvas(out, pagesize=(612, 792))
    for number in range(count):
        made.drawString(72, 720, f"Balance general al 31 de diciembre de 2024 ({seed})")
        made.drawString(72, 700, f"Partida {number}")
        made.drawRightString(400, 700, f"{1000 + number}")
        made.showPage()
    made.save()
    return out.getvalue()


@asynccontextmanager
async def _simulator() -> AsyncIterator[tuple[DocumentAiSimulator, str]]:
    simulator = DocumentAiSimulator()
    address = await simulator.start()
    try:
        yield simulator, address
    finally:
        await simulator.stop()


def _documentai(url: str) -> dict[str, str]:
    return {
        "DOCUMENTS_PROCESSOR": "documentai",
        "DOCUMENTAI_PROJECT": "p",
        "DOCUMENTAI_CLASSIFIER": "classifier",
        "DOCUMENTAI_ENDPOINT": url,
        "DOCUMENTS_EXTRACTORS": ",".join(f"{name}=ext" for name in CLASSES),
    }


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
async def _open(
    folder: str, environ: dict[str, str], *, run: bool = True
) -> AsyncIterator[Runtime]:
    """Open the pipeline on SQLite, with the bucket ``bkt`` in this folder; ``run`` its engine."""
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
    async with open_runtime(load(environ=environ)) as runtime, AsyncExitStack() as stack:
        if run:
            await stack.enter_async_context(runtime.engine.running())
        yield runtime


async def _process(runtime: Runtime, uri: str) -> float:
    """Process a folder to its end; return the seconds it took."""
    signal = from_command(uri)
    start = time.perf_counter()
    inserted = await runtime.engine.records.insert([signal])
    run = await runtime.engine.run_cycle(
        "documents.process", params={"folio_id": signal.folio_id, "signal": inserted[0].id}
    )
    assert run.outcome == "ok", run.answer()
    return time.perf_counter() - start


MEASURES: dict[str, Measure] = {
    "documents": documents,
    "documents-quota": documents_quota,
    "documents-ticks": documents_ticks,
}
