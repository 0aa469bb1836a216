"""Pages that are pictures: read by Tesseract, or named as unread."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path
from random import Random

import pypdfium2 as pdfium
import pytest
from pipelines.documents import corpus_a, corpus_b, corpus_d, corpus_e, statements
from pipelines.documents.conftest import NewService
from pipelines.documents.corpus_score import measure
from pipelines.documents.scanning import as_pdf, pictures, scanned
from pipelines.documents.test_reading import letter
from support import tesseract

from esclusa.pipelines.documents.local.reader_pool import ReaderPool
from esclusa.pipelines.documents.local.tesseract import recogniser

LANGUAGES = "spa+eng"
needs_tesseract = pytest.mark.skipif(
    tesseract.missing() is not None, reason=f"NOT TESTED HERE: {tesseract.missing()}"
)


@needs_tesseract
def test_scans_are_read() -> None:
    """Rendered at 200 dpi, skewed by a degree, slightly blurred."""
    printed = [
        *statements.held_out(2, seed=23),
        *corpus_a.documents(2, seed=23),
        *corpus_b.documents(3, seed=23),
        *corpus_d.documents(2, seed=23),
        corpus_e.ORIGINS["mine"](Random("23")),
    ]
    score = measure(map(scanned, printed), recogniser(LANGUAGES))
    assert score.recall >= 0.9, score.report()
    assert score.precision >= 0.9, score.report()
    assert score.boxes >= 0.95, score.report()


@needs_tesseract
@pytest.mark.parametrize("turn", [90, 180, 270])
def test_scans_that_lie_on_their_side_are_read(turn: int) -> None:
    made = corpus_d.documents(4, seed=2)[3]
    pages = [page.rotate(-turn, expand=True) for page in pictures(made.content, degrees=0)]
    answer = read(as_pdf(pages))
    found = {(i["LINE_ITEM_VALUE"], i["REPORTING_PERIOD"]) for i in values(answer)}
    printed = {(t.printed, t.period) for t in made.values}
    assert len(found & printed) >= 0.95 * len(printed)
    box = next(i for i in values(answer) if i["LINE_ITEM_VALUE"] == made.values[0].printed)
    x0, y0, x1, y1 = made.values[0].box
    turned = {
        90: (1 - y1, x0, 1 - y0, x1),
        180: (1 - x1, 1 - y1, 1 - x0, 1 - y0),
        270: (y0, 1 - x1, y1, 1 - x0),
    }[turn]
    place = box["page_refs"][0]["boxes"][0]
    for side, expected in zip(("x0", "y0", "x1", "y1"), turned, strict=True):
        assert place[side] == pytest.approx(expected, abs=0.006)


@needs_tesseract
def test_confidence_follows_the_words() -> None:
    made = corpus_d.documents(1, seed=2)[0]
    clear, blurred = (
        values(read(scanned(made, degrees=0, blur=blur).content)) for blur in (0.0, 2.2)
    )
    assert mean([i["confidence"] for i in clear]) > mean([i["confidence"] for i in blurred]) + 0.02


@needs_tesseract
@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_scanned_statement_behind_a_text_cover_is_read(new_service: NewService) -> None:
    service = await new_service(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    made = corpus_d.documents(4, seed=2)[3]
    service.put("a/both.pdf", joined(letter(), scanned(made).content))
    answer = await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    assert (answer["outcome"], doc.status, doc.doc_type) == ("ok", "DONE", made.doc_type)
    summary = doc.extractor_output_summary
    assert (summary["recognised_pages"], summary["unread_pages"]) == ([1], [])
    found = await service.extractions(documento_id=doc.id, type="LINE_ITEM_VALUE")
    printed = {(t.printed, t.period) for t in made.values}
    assert len({(e.LINE_ITEM_VALUE, e.REPORTING_PERIOD) for e in found} & printed) >= 0.9 * len(
        printed
    )
    assert {e.page_refs[0]["page"] for e in found} == {1}
    assert doc.text_path is not None
    text = (await service.runtime.artifacts.get(doc.text_path)).decode()
    span = found[0].text_spans[0]
    assert text[span["start"] : span["end"]] == found[0].LINE_ITEM_VALUE


@needs_tesseract
async def test_a_cancelled_reading_ends_tesseract() -> None:
    made = corpus_d.documents(1, seed=2)[0]
    long = as_pdf(pictures(made.content) * 20)
    readers = ReaderPool(1, 500)
    try:
        reading = asyncio.create_task(readers.read(long, ocr=LANGUAGES))
        async with asyncio.timeout(30):
            while not children_named("tesseract"):
                await asyncio.sleep(0.05)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with asyncio.timeout(10):
            while children_named("tesseract"):
                await asyncio.sleep(0.05)
    finally:
        await readers.close()


def read(content: bytes) -> dict[str, object]:
    from esclusa.pipelines.documents.local.statement import read_document

    return read_document(content, recognise=recogniser(LANGUAGES))


def values(answer: dict[str, object]) -> list[dict[str, object]]:
    return [i for i in answer["items"] if i["type"] == "LINE_ITEM_VALUE"]  # type: ignore[attr-defined]


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def joined(*documents: bytes) -> bytes:
    whole = pdfium.PdfDocument.new()
    for content in documents:
        whole.import_pages(pdfium.PdfDocument(content))
    out = io.BytesIO()
    whole.save(out)
    return out.getvalue()


def children_named(name: str) -> list[int]:
    """The processes of this name that descend from this one."""
    found, parents = [], {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text().splitlines()
            except OSError:
                continue
            fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
            parents[int(entry.name)] = (fields["Name"], int(fields["PPid"]))
    for pid, (own, parent) in parents.items():
        above = parent
        while above in parents and above != os.getpid():
            above = parents[above][1]
        if own == name and above == os.getpid():
            found.append(pid)
    return found
