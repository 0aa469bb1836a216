"""Pages that are pictures, read by an OCR processor of Document AI; the rest is read locally."""

from __future__ import annotations

from typing import Any

import pypdfium2 as pdfium
import pytest
from pipelines.documents import corpus_d
from pipelines.documents.conftest import DocumentsService, NewService
from pipelines.documents.scanning import as_pdf, pictures
from pipelines.documents.test_reading import letter
from pipelines.documents.test_scans import joined

from esclusa.pipelines.documents.answers.recognised_words import recognised_pages
from esclusa.simulators.documentai_shapes import PrintedLine, SimulatedPage, recognised_document

pytestmark = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
OCR = {"local": True, "DOCUMENTS_OCR": "documentai", "DOCUMENTAI_OCR": "ocr"}


def printed_lines(content: bytes) -> list[list[PrintedLine]]:
    """The words of each page with their places, as pdfium finds runs of text."""
    pages = []
    document = pdfium.PdfDocument(content)
    for page in document:
        width, height = page.get_size()
        text, lines = page.get_textpage(), []
        for number in range(text.count_rects()):
            left, bottom, right, top = text.get_rect(number)
            run = text.get_text_bounded(left, bottom, right, top).strip()
            step, at, line = (right - left) / max(1, len(run)), 0, []
            for word in run.split():
                at = run.index(word, at)
                x0, x1 = left + at * step, left + (at + len(word)) * step
                line.append((word, (x0 / width, 1 - top / height, x1 / width, 1 - bottom / height)))
                at += len(word)
            lines += [line] if line else []
        pages.append(lines)
    document.close()
    return pages


def statement() -> Any:
    return corpus_d.documents(4, seed=2)[3]


def scan_behind_a_cover(service: DocumentsService) -> Any:
    made = statement()
    service.put("a/both.pdf", joined(letter(), as_pdf(pictures(made.content, degrees=0))))
    pages = [(SimulatedPage(), lines) for lines in [[], *printed_lines(made.content)]]
    service.simulator.declare_words("both.pdf", pages)
    return made


async def test_only_pages_that_are_pictures_go_to_document_ai(new_service: NewService) -> None:
    service = await new_service(**OCR)
    made = scan_behind_a_cover(service)
    service.simulator.order(
        "/v1",
        times=1,
        status=503,
        body={"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}},
    )
    await service.process("gs://bkt/a")
    [doc] = await service.docs()
    assert (doc.status, doc.doc_type, doc.attempts) == ("DONE", made.doc_type, 2)
    assert service.simulator.paid == [("ocr", "both.pdf", (2,))]
    summary = doc.extractor_output_summary
    assert (summary["ocr"], summary["recognised_pages"]) == ("documentai", [1])
    assert [a["part"] for a in doc.answers] == ["0002-0002"]
    found = await service.extractions(documento_id=doc.id, type="LINE_ITEM_VALUE")
    places = {(e.LINE_ITEM_VALUE, e.REPORTING_PERIOD): e for e in found}
    printed = {(t.printed, t.period): t for t in made.values}
    assert len(places.keys() & printed.keys()) >= 0.95 * len(printed)
    for key in places.keys() & printed.keys():
        [box] = places[key].page_refs[0]["boxes"]
        assert box["x1"] == pytest.approx(printed[key].box[2], abs=0.02)
        assert (places[key].page_refs[0]["page"], places[key].confidence > 0.5) == (1, True)
    assert doc.text_path is not None
    text = (await service.runtime.artifacts.get(doc.text_path)).decode()
    span = found[0].text_spans[0]
    assert text[span["start"] : span["end"]] == found[0].LINE_ITEM_VALUE


async def test_document_with_text_pays_nothing(new_service: NewService) -> None:
    service = await new_service(**OCR)
    service.put("a/text.pdf", statement().content)
    await service.process("gs://bkt/a")
    assert ([d.status for d in await service.docs()], service.calls) == (["DONE"], 0)


async def test_words_of_pictures_are_not_mapped_as_numbers(new_service: NewService) -> None:
    from esclusa.pipelines.documents.remap import remap_documents

    service = await new_service(**OCR)
    scan_behind_a_cover(service)
    await service.process("gs://bkt/a")
    counts = await remap_documents(service.runtime, "test", "gs://bkt/a")
    assert counts == {"remapped": 0, "without_answers": 1}


async def test_document_says_that_ocr_is_off(new_service: NewService) -> None:
    service = await new_service(local=True, DOCUMENTS_OCR="off")
    scan_behind_a_cover(service)
    service.put("b/scan.pdf", as_pdf(pictures(statement().content)))
    for folder in "ab":
        await service.process(f"gs://bkt/{folder}")
    both, scan = await service.docs()
    assert (both.status, both.needs_review) == ("DONE", True)
    assert both.review_reasons == [{"code": "unread_pages", "pages": [1], "ocr": "off"}]
    assert (scan.status, scan.error_type) == ("ERROR", "no_text_layer")
    assert "OCR is off (DOCUMENTS_OCR)" in scan.error_message
    assert any("(OCR is off): [1]" in line["message"] for line in service.lines.parsed)


async def test_missing_ocr_processor_is_reported(new_service: NewService) -> None:
    from esclusa.pipelines.documents.settings import DocumentsSettings, check

    settings = DocumentsSettings(ocr="documentai")
    assert "DOCUMENTAI_OCR is needed with DOCUMENTS_OCR=documentai" in list(check(settings))


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_words_of_a_picture_that_lies_on_its_side_are_upright(provider: Any, turned: int) -> None:
    line = [("Caja", (0.1, 0.2, 0.2, 0.22)), ("1.234", (0.6, 0.2, 0.7, 0.22))]
    page = SimulatedPage(1700, 2200, turned, matrices=False)
    shown = [0, 2200, 1700, 0] if turned in (90, 270) else [0, 1700, 2200, 0]
    answer = {"document": recognised_document([(page, [line])], [0]), "pages": [shown]}
    found = recognised_pages([answer])[0]
    assert (found["turn"], [word[0] for word in found["words"]]) == (
        turned // 90,
        ["Caja", "1.234"],
    )
    assert found["words"][1][1:5] == pytest.approx([0.6, 0.2, 0.7, 0.22], abs=1e-4)


def test_tokens_without_a_break_are_one_word(provider: Any) -> None:
    line = [("$", (0.5, 0.2, 0.51, 0.22)), ("1.234", (0.51, 0.2, 0.6, 0.22))]
    document = recognised_document([(SimulatedPage(), [line])], [0])
    first, second = document["pages"][0]["tokens"]
    del first["detectedBreak"]
    first["layout"]["textAnchor"] = {"textSegments": [{"endIndex": "1"}]}
    second["layout"]["textAnchor"] = {"textSegments": [{"startIndex": "1", "endIndex": "7"}]}
    document["text"] = "$1.234\n"
    [word] = recognised_pages([{"document": document, "pages": [[0, 0, 0, 0]]}])[0]["words"]
    assert (word[0], word[1:5]) == ("$1.234", pytest.approx([0.5, 0.2, 0.6, 0.22]))
