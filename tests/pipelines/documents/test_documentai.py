"""Document AI through the pipeline: paid once, quotas, batches, raw answers, mapped anew."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pipelines.documents.conftest import DocumentsService, NewService
from reportlab.pdfgen import canvas

from esclusa.simulators.documentai_shapes import (
    SimulatedCell,
    SimulatedPage,
    SimulatedRow,
    SimulatedStatement,
)

ONE_STORE = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


def pdf(pages: int, *, rotate: int = 0) -> bytes:
    out = io.BytesIO()
    made = canvas.Canvas(out, pagesize=(612, 792))
    for number in range(pages):
        made.drawString(72, 700, f"page {number}")
        made.setPageRotation(rotate)
        made.showPage()
    made.save()
    return out.getvalue()


def statement(pages: int) -> SimulatedStatement:
    """A statement with one row on every page."""
    rows = [
        SimulatedRow(
            f"Partida {n}",
            (0.1, 0.2, 0.3, 0.22),
            [SimulatedCell(f"{n + 1}", "2024", (0.6, 0.2, 0.7, 0.22))],
            n,
        )
        for n in range(pages)
    ]
    years = [("2024", (0.6, 0.1, 0.7, 0.12), n) for n in range(pages)]
    return SimulatedStatement(rows, years, [SimulatedPage()] * pages)


def declare(service: DocumentsService, name: str, pages: int, shape: Any = "nested") -> None:
    service.put(f"a/{name}", pdf(pages))
    service.simulator.declare(name, statement(pages), shape)


async def numbers(service: DocumentsService) -> list[tuple[str | None, str | None, int]]:
    found = [e for e in await service.extractions() if e.type == "LINE_ITEM_VALUE"]
    return sorted(
        ((e.LINE_ITEM_NAME, e.value, e.page_refs[0]["page"]) for e in found), key=lambda t: t[2]
    )


async def test_long_document_finishes_under_short_ticks_and_every_part_is_paid_once(
    new_service: NewService,
) -> None:
    """A call takes longer than a tick, so that every tick ends while calls are under way.

    ``python -m bench --only documents-ticks`` has ticks of 5 seconds.
    """
    service = await new_service(serve=True, MAX_CONCURRENT_DOCS=8)
    declare(service, "long.pdf", 200)
    service.simulator.delay = 0.3
    await service.event("a/is_ready")
    ticks = 0
    while (await service.folio()).status not in ("DONE", "ERROR"):
        await service.runtime.engine.tick(0.2)
        ticks += 1
        assert len(service.simulator.paid) <= 16
        assert ticks < 1000  # a slow machine needs more of them than a fast one
    [doc] = await service.docs()
    assert (doc.status, ticks > 2) == ("DONE", True)
    paid = [(processor, pages) for processor, _, pages in service.simulator.paid]
    assert len(paid) == len(set(paid)) == 1 + 15
    covered = {page for processor, pages in paid if processor == "ext" for page in pages}
    assert covered == set(range(1, 201))
    assert await numbers(service) == [(f"Partida {n}", str(n + 1), n) for n in range(200)]


async def test_parts_that_were_answered_are_not_asked_again_after_an_error(
    service: DocumentsService,
) -> None:
    declare(service, "long.pdf", 40)
    service.simulator.order(
        "/v1",
        times=2,
        match="processors/ext",
        status=503,
        body={"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}},
    )
    await service.process("gs://bkt/a")
    [doc] = await service.docs()
    assert (doc.status, doc.attempts) == ("DONE", 2)
    paid = [(processor, pages) for processor, _, pages in service.simulator.paid]
    assert len(paid) == len(set(paid)) == 1 + 3
    assert len(await numbers(service)) == 40


async def test_raw_answers_are_kept_and_named(service: DocumentsService) -> None:
    declare(service, "x.pdf", 20)
    await service.process("gs://bkt/a")
    [doc] = await service.docs()
    extracted = [a for a in doc.answers if a["processor"].endswith("/ext")]
    assert [a["part"] for a in extracted] == ["0001-0015", "0015-0020"]
    import json

    for named in doc.answers:
        raw = json.loads(await service.runtime.artifacts.get(named["path"]))
        assert raw["document"]["entities"]
        assert raw["version"] == "pretrained-v2.1"
    assert {e.processor_version for e in await service.extractions()} == {"pretrained-v2.1"}
    assert doc.classifier_output_raw is not None
    assert doc.classifier_output_raw["processor_version"] == "pretrained-v2.1"


async def test_places_are_maps_on_every_store(service: DocumentsService) -> None:
    declare(service, "x.pdf", 1)
    await service.process("gs://bkt/a")
    [value] = [e for e in await service.extractions() if e.type == "LINE_ITEM_VALUE"]
    [ref] = value.page_refs
    assert set(ref) == {"page", "boxes"}
    assert ref["boxes"] == [{"x0": 0.6, "y0": 0.2, "x1": 0.7, "y1": 0.22}]


async def test_imageless_mode_sends_thirty_pages(new_service: NewService) -> None:
    service = await new_service(DOCUMENTAI_IMAGELESS="true")
    declare(service, "x.pdf", 59)
    await service.process("gs://bkt/a")
    assert [len(pages) for name, _, pages in service.simulator.paid if name == "ext"] == [30, 30]
    assert len(await numbers(service)) == 59


@ONE_STORE
async def test_processor_version_of_the_name_is_the_one_that_answers(
    new_service: NewService,
) -> None:
    name = "projects/p/locations/us/processors/ext/processorVersions/v7"
    service = await new_service(DOCUMENTS_EXTRACTORS=f"balance_sheet={name}")
    declare(service, "x.pdf", 1)
    await service.process("gs://bkt/a")
    assert {e.processor_version for e in await service.extractions()} == {"v7"}


# mapped anew


async def test_answers_are_mapped_anew_without_a_call(new_service: NewService) -> None:
    service = await new_service()
    declare(service, "x.pdf", 20, "custom")
    await service.process("gs://bkt/a")
    [doc] = await service.docs()
    assert (doc.status, doc.extractor_output_summary["line_items"]) == ("DONE", 0)
    assert [w["code"] for w in doc.warnings] == ["no_line_items"]
    assert any(line.get("warning") == "no_line_items" for line in service.lines.parsed)
    before = service.calls
    fields = "partida/glosa=LINE_ITEM_NAME,cifra=LINE_ITEM_VALUE,columna_ano=COLUMN_YEAR"
    other = await new_service(DOCUMENTAI_FIELDS=fields)
    (service.folder / "a/x.pdf").unlink()  # not even the document is needed
    from esclusa.pipelines.documents.remap import remap_documents

    counts = await remap_documents(other.runtime, "test", "gs://bkt/a")
    assert counts == {"remapped": 1, "without_answers": 0}
    await other.run()
    assert service.calls == before
    [doc] = await service.docs()
    assert (doc.status, doc.warnings, doc.remap) == ("DONE", [], False)
    assert await numbers(service) == [(f"Partida {n}", str(n + 1), n) for n in range(20)]
    assert (await service.folio()).status == "DONE"


# quotas


@ONE_STORE
async def test_refused_calls_wait_without_an_attempt(new_service: NewService) -> None:
    service = await new_service()
    service.fill("a", 20)
    service.simulator.quota = {"pages": 10, "seconds": 1.5, "retry_after": 1}
    await service.process("gs://bkt/a")
    docs = await service.docs()
    assert {d.status for d in docs} == {"DONE"}
    assert {d.attempts for d in docs} == {1}
    assert len(service.simulator.paid) == 40
    assert any(
        "waits: Document AI: RESOURCE_EXHAUSTED" in line["message"] for line in service.lines.parsed
    )


@ONE_STORE
async def test_sixty_documents_under_a_quota_of_120_pages_are_all_done(
    new_service: NewService,
) -> None:
    """A minute of the service takes two seconds; ``bench --only documents-quota`` has real ones."""
    service = await new_service()
    for number in range(60):
        declare(service, f"{number:02}.pdf", 3)
    service.simulator.quota = {"pages": 120, "seconds": 2, "retry_after": 1}
    await service.process("gs://bkt/a")
    docs = await service.docs()
    assert [(d.status, d.attempts) for d in docs] == [("DONE", 1)] * 60
    paid = [(processor, name) for processor, name, _ in service.simulator.paid]
    assert len(paid) == len(set(paid)) == 120
    assert sum(len(pages) for _, _, pages in service.simulator.paid) == 360
    assert await service.letters() == []


@ONE_STORE
async def test_pages_per_minute_are_a_budget(new_service: NewService) -> None:
    service = await new_service(DOCUMENTAI_PAGES_PER_MINUTE=600)
    service.fill("a", 10)
    service.simulator.quota = {"pages": 600, "seconds": 60}
    await service.process("gs://bkt/a")
    assert {d.status for d in await service.docs()} == {"DONE"}
    [budget] = await service.runtime.read_model.budgets()
    [window] = budget["windows"]
    assert (budget["budget"], window["limit"]) == ("documentai-pages", 600)
    assert not any("RESOURCE_EXHAUSTED" in line["message"] for line in service.lines.parsed)


# batch processing


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@ONE_STORE
async def test_long_document_is_processed_in_a_batch(new_service: NewService, cloud: Any) -> None:
    service = await new_service(DOCUMENTAI_OUTPUT="gs://cloud/output", MAX_CONCURRENT_DOCS=2)
    cloud.blob("caso/long.pdf").upload_from_string(pdf(21), content_type="application/pdf")
    cloud.blob("caso/short.pdf").upload_from_string(pdf(2), content_type="application/pdf")
    for name, pages in (("long.pdf", 21), ("short.pdf", 2)):
        service.simulator.declare(name, statement(pages), "nested")
    await service.process("gs://cloud/caso")
    docs = {d.gcs_uri.rsplit("/", 1)[-1]: d for d in await service.docs()}
    assert [d.error_message for d in docs.values()] == [None, None]
    assert {d.attempts for d in docs.values()} == {1}
    paid = sorted((p, name, len(pages)) for p, name, pages in service.simulator.paid)
    assert paid == [
        ("classifier", "long.pdf", 15),
        ("classifier", "short.pdf", 2),
        ("ext", "long.pdf", 21),
        ("ext", "short.pdf", 2),
    ]
    long = await service.extractions(documento_id=docs["long.pdf"].id)
    assert sorted(e.page_refs[0]["page"] for e in long) == list(range(21))
    assert sum(a["part"].startswith("shard") for a in docs["long.pdf"].answers) == 11


# rotated pages


@ONE_STORE
async def test_rotated_page_of_a_real_pdf(service: DocumentsService) -> None:
    """The page is shown as portrait; the service answers about the landscape inside."""
    given = statement(1)
    turned = SimulatedStatement(
        given.rows, given.years, [SimulatedPage(1700, 2200, 270, matrices=False)]
    )
    service.put("a/x.pdf", pdf(1, rotate=90))
    service.simulator.declare("x.pdf", turned, "nested")
    await service.process("gs://bkt/a")
    [value] = [e for e in await service.extractions() if e.type == "LINE_ITEM_VALUE"]
    [box] = value.page_refs[0]["boxes"]
    assert box == pytest.approx({"x0": 0.6, "y0": 0.2, "x1": 0.7, "y1": 0.22}, abs=1e-4)
