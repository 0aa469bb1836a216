"""Processing of a document: classification, faults, concurrency, reuse, dead letters, logs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pipelines.documents import statements
from pipelines.documents.bombs import page_bomb, tree_bomb
from pipelines.documents.conftest import DocumentsService, NewService

from esclusa.model.kind import Ref
from esclusa.pipelines.documents.progress import Progress
from esclusa.pipelines.documents.records import Documento


def google(code: int, status: str) -> dict[str, Any]:
    return {
        "status": code,
        "body": {"error": {"code": code, "message": f"{status} to order", "status": status}},
    }


# 4: processing of a document


async def test_4_classification_is_not_repeated(
    service: DocumentsService,
) -> None:
    service.fill("a", 1)
    service.simulator.order(
        "/v1/projects/p/locations/us/processors/ext", times=2, **google(503, "UNAVAILABLE")
    )
    answer = await service.process("gs://bkt/a")
    assert answer["outcome"] == "ok"
    counts = {k: v for k, v in service.simulator.counts.items() if k.startswith("POST")}
    assert [v for k, v in counts.items() if "classifier" in k] == [1]
    assert [v for k, v in counts.items() if "processors/ext" in k] == [3]
    doc = (await service.docs())[0]
    assert (doc.status, doc.doc_type, doc.attempts) == ("DONE", "balance_sheet", 3)
    assert doc.classifier_output_raw["classes"][0] == {"class": "balance_sheet", "confidence": 0.97}
    assert doc.extractor_output_summary["line_items"] == 2
    errors = [line for line in service.lines.parsed if line.get("stage") == "DOC_ERROR"]
    assert [(e["error_type"], e["attempt"], e["doc_status"]) for e in errors] == [
        ("service_unavailable", 1, "NOT_STARTED"),
        ("service_unavailable", 2, "NOT_STARTED"),
    ]


async def test_4_class_without_an_extractor_is_an_error_that_names_it(
    new_service: NewService,
) -> None:
    service = await new_service(DOCUMENTS_EXTRACTORS="balance_sheet=ext")
    service.put("a/1.pdf", "%PDF-1.4\n%class=cash_flow\n")
    service.put("a/2.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    service.put("a/3.pdf", "%PDF-1.4\n%class=other\n")
    await service.process("gs://bkt/a")
    docs = await service.docs()
    assert [d.status for d in docs] == ["ERROR", "DONE", "DONE"]
    assert docs[0].error_type == "no_extractor"
    assert "cash_flow" in docs[0].error_message
    assert await service.extractions(documento_id=docs[2].id) == []


async def test_4_replaced_document_is_an_error_and_its_new_generation_is_new_work(
    service: DocumentsService,
) -> None:
    service.fill("a", 3)
    service.simulator.order(
        "/v1/projects/p/locations/us/processors/ext",
        times=1,
        match="doc00001",
        **google(503, "UNAVAILABLE"),
    )

    async def replace(*_: Any) -> None:
        while not any(line.get("stage") == "DOC_ERROR" for line in service.lines.parsed):
            await asyncio.sleep(0.005)
        service.put("a/doc00001.pdf", "%PDF-1.4\n%class=cash_flow\nreplaced meanwhile\n")

    task = asyncio.create_task(replace())
    await service.process("gs://bkt/a")
    await task
    assert [(d.status, d.error_type) for d in await service.docs()] == [
        ("DONE", None),
        ("ERROR", "object_gone"),
        ("DONE", None),
    ]
    answer = await service.process("gs://bkt/a", reprocess=True)
    assert answer["counters"] == {"total_docs": 3, "processed_docs": 3, "DONE": 3, "ERROR": 0}
    assert sorted(d.doc_type for d in await service.docs(status="DONE")) == [
        "balance_sheet",
        "balance_sheet",
        "cash_flow",
    ]


# 5: concurrency


@pytest.mark.parametrize("most", [1, 3])
async def test_5_concurrent_documents_are_limited(new_service: NewService, most: int) -> None:
    service = await new_service(MAX_CONCURRENT_DOCS=most)
    service.fill("a", 9)
    service.simulator.delay = 0.1
    await service.process("gs://bkt/a")
    assert service.simulator.most == most


# 6: same content


@pytest.mark.parametrize("dedup", ["off", "content"])
async def test_6_same_content_in_another_folder(new_service: NewService, dedup: str) -> None:
    service = await new_service(DOCUMENTS_DEDUP=dedup)
    for folder in ("a", "b"):
        service.put(f"{folder}/x.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    await service.process("gs://bkt/a")
    before = len(service.lines.text)
    await service.process("gs://bkt/b")
    docs = await service.docs()
    assert [d.status for d in docs] == ["DONE", "DONE"]
    assert service.calls == (2 if dedup == "content" else 4)
    assert docs[1].reused_from == (docs[0].id if dedup == "content" else None)
    copies = await service.extractions(documento_id=docs[1].id)
    assert [
        (e.LINE_ITEM_NAME, e.value, e.gcs_uri) for e in sorted(copies, key=lambda e: e.position)
    ] == [
        ("Caja", "1234", "gs://bkt/b/x.pdf"),
        ("Bancos", "-56", "gs://bkt/b/x.pdf"),
    ]
    stages = [
        s
        for s in (line.get("stage") for line in service.lines.parsed[before:])
        if s and s.endswith("_START") and s.startswith("DOC")
    ]
    assert len(stages) == (0 if dedup == "content" else 2)


# 8: faults


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (google(500, "INTERNAL"), "internal"),
        (google(504, "DEADLINE_EXCEEDED"), "timeout"),
        ({"fault": "html"}, "service_unavailable"),
        ({"fault": "cut"}, "connection_error"),
        ({"fault": "bad_json"}, "bad_answer"),
    ],
)
async def test_8_transient_faults_are_retried(
    service: DocumentsService, fault: dict[str, Any], kind: str
) -> None:
    service.fill("a", 1)
    service.simulator.order("/v1", times=2, **fault)
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    assert (doc.status, doc.attempts, doc.error_type) == ("DONE", 3, None)
    errors = [
        line["error_type"] for line in service.lines.parsed if line.get("stage") == "DOC_ERROR"
    ]
    assert errors == [kind, kind]


async def test_8_lasting_fault_ends_in_error_after_the_last_attempt(
    service: DocumentsService,
) -> None:
    service.fill("a", 1)
    service.simulator.order("/v1", times=99, **google(503, "UNAVAILABLE"))
    answer = await service.process("gs://bkt/a")
    assert answer["outcome"] == "partial"
    doc = (await service.docs())[0]
    assert (doc.status, doc.attempts, doc.error_type) == ("ERROR", 3, "service_unavailable")
    lines = [line for line in service.lines.parsed if line.get("stage") == "DOC_ERROR"]
    assert [(line["attempt"], line["doc_status"]) for line in lines] == [
        (1, "NOT_STARTED"),
        (2, "NOT_STARTED"),
        (3, "ERROR"),
    ]


@pytest.mark.parametrize(
    ("code", "status"), [(400, "INVALID_ARGUMENT"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND")]
)
async def test_8_permanent_fault_ends_at_once(
    service: DocumentsService, code: int, status: str
) -> None:
    service.fill("a", 1)
    service.simulator.order("/v1", times=9, **google(code, status))
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    assert (doc.status, doc.attempts, doc.error_type) == ("ERROR", 1, status.lower())


# 9: dead letters


async def test_9_failed_document_writes_a_dead_letter_and_an_outbox_message(
    new_service: NewService,
) -> None:
    service = await new_service(DLQ_TOPIC="projects/p/topics/dlq")
    service.fill("a", 3)
    service.put("a/bad.pdf", "%PDF-1.4 broken")
    await service.process("gs://bkt/a")
    bad = next(d for d in await service.docs() if d.status == "ERROR")
    letters, messages = await service.letters(), await service.messages()
    assert [(x.table_name, x.record_id) for x in letters] == [("documentos", bad.id)]
    payload = letters[0].payload
    assert set(payload) == {
        "bucket",
        "folder_prefix",
        "folio_id",
        "gcs_uri",
        "error_type",
        "error_message",
        "attempts",
        "timestamp",
        "details",
    }
    assert (payload["gcs_uri"], payload["error_type"], payload["attempts"]) == (
        "gs://bkt/a/bad.pdf",
        "invalid_argument",
        1,
    )
    assert [(m.topic, m.data, m.status) for m in messages] == [
        ("projects/p/topics/dlq", payload, "waiting")
    ]


async def test_9_dead_letters_without_a_topic(
    service: DocumentsService,
) -> None:
    service.put("a/bad.pdf", "%PDF-1.4 broken")
    await service.process("gs://bkt/a")
    assert sorted((x.table_name, x.error_type) for x in await service.letters()) == [
        ("documentos", "invalid_argument"),
        ("folios", "too_many_errors"),
    ]
    assert await service.messages() == []


# 10: logs and progress


async def test_10_log_lines_have_their_keys_and_progress_agrees_with_the_store(
    service: DocumentsService,
) -> None:
    service.fill("a", 4)
    service.put("a/bad.pdf", "%PDF-1.4 broken")
    await service.process("gs://bkt/a")
    folio = await service.folio()
    staged = [line for line in service.lines.parsed if "stage" in line]
    common = {
        "service_name",
        "bucket",
        "folder_prefix",
        "folio_id",
        "eventarc_event_id",
        "execution_id",
    }
    for line in staged:
        assert common <= set(line)
        assert line["execution_id"] == folio.execution_id
        assert line["eventarc_event_id"] is None
        if line["stage"].startswith("DOC_"):
            assert {"gcs_uri", "generation", "doc_status", "doc_type"} <= set(line)
        elif line["stage"] != "INIT":
            assert {"total_docs", "processed_docs"} <= set(line)
    for uri in ("doc00000", "doc00003"):
        own = [line["stage"] for line in staged if uri in line.get("gcs_uri", "")]
        assert own == [
            "DOC_CLASSIFICATION_START",
            "DOC_CLASSIFICATION_DONE",
            "DOC_EXTRACTION_START",
            "DOC_EXTRACTION_DONE",
        ]
    reader, seen = Progress(), []
    for line in service.lines.text:
        changed = reader.read(line)
        if changed:
            seen.append(changed["progress_pct"])
    assert seen == sorted(seen)
    assert seen[-1] == 100
    assert 100 not in seen[:-1]
    last = reader.folders[0]
    assert (last["folio_id"], last["total_docs"], last["processed_docs"]) == (
        folio.folio_id,
        folio.total_docs,
        folio.processed_docs,
    )


# 11: the local processor, through the pipeline


async def test_11_local_processor_reads_unknown_documents(new_service: NewService) -> None:
    service = await new_service(local=True, DOCUMENTS_LOCAL_PROCESSES=1, DOCUMENTS_OCR="off")
    made = {s.name: s for s in statements.held_out(2, seed=5)}
    for name, statement in made.items():
        service.put(f"a/{name}.pdf", statement.content)
    service.put("a/locked.pdf", locked())
    service.put("a/picture.pdf", picture())
    service.put("a/letter.pdf", letter())
    service.put("a/broken.pdf", b"%PDF-1.7\nthis is no PDF")
    await service.process("gs://bkt/a")
    docs = {Path(d.gcs_uri).stem: d for d in await service.docs()}
    assert {name: docs[name].error_type for name in ("locked", "picture", "broken")} == {
        "locked": "encrypted_pdf",
        "picture": "no_text_layer",
        "broken": "bad_pdf",
    }
    assert (docs["letter"].status, docs["letter"].doc_type) == ("DONE", "other")
    assert await service.extractions(documento_id=docs["letter"].id) == []
    for name, statement in made.items():
        doc = docs[name]
        assert (doc.status, doc.doc_type) == ("DONE", statement.doc_type)
        found = [
            e for e in await service.extractions(documento_id=doc.id) if e.type == "LINE_ITEM_VALUE"
        ]
        assert {(t.label, t.period, t.value) for t in statement.values} == {
            (e.LINE_ITEM_NAME, e.REPORTING_PERIOD, e.value) for e in found
        }
        assert len({e.TABLE_CELL_REF for e in found}) == len(found)
        assert all(
            e.processor_version == "local-1" and 0 < e.confidence <= 1 and e.text_spans
            for e in found
        )
        assert all(
            set(box) == {"x0", "y0", "x1", "y1"} and all(0 <= v <= 1 for v in box.values())
            for e in found
            for ref in e.page_refs
            for box in ref["boxes"]
        )


@pytest.mark.parametrize("local", [True, False], ids=["local", "documentai"])
async def test_document_that_needs_too_much_memory_ends_alone(
    new_service: NewService, *, local: bool
) -> None:
    service = await new_service(
        local=local, DOCUMENTS_LOCAL_PROCESSES=1, DOCUMENTS_LOCAL_MEMORY_MB=128
    )
    service.put("a/bomb.pdf", page_bomb(300) if local else tree_bomb(300))
    service.put("a/letter.pdf", letter())
    await service.process("gs://bkt/a")
    docs = {Path(d.gcs_uri).stem: d for d in await service.docs()}
    assert docs["letter"].status == "DONE"
    bomb = docs["bomb"]
    assert (bomb.status, bomb.error_type, bomb.attempts) == ("ERROR", "out_of_memory", 1)
    assert "more than 128 MB of memory" in str(bomb.last_error)
    assert "DOCUMENTS_LOCAL_MEMORY_MB" in str(bomb.last_error)


async def test_long_document_is_stored_completely(new_service: NewService) -> None:
    service = await new_service(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    from random import Random

    from pipelines.documents import statement_words

    style = statements.Style(rows=320, years=[2024, 2023], per_page=44)
    statement = statements.make("long", style, Random(3), statement_words.TUNED)
    service.put("a/long.pdf", statement.content)
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    found = [
        e for e in await service.extractions(documento_id=doc.id) if e.type == "LINE_ITEM_VALUE"
    ]
    assert len(found) == len(statement.values) > 400
    steps = await service.runtime.store.history(Ref(Documento.kind, doc.id))
    assert [s.to for s in steps] == ["IN_PROGRESS", "DONE"]


def locked() -> bytes:
    import io

    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen import canvas

    out = io.BytesIO()
    made = canvas.Canvas(out, encrypt=StandardEncryption("secret", "owner"))
    made.drawString(72, 700, "Activos 1.234")
    made.save()
    return out.getvalue()


def picture() -> bytes:
    import io

    from reportlab.pdfgen import canvas

    out = io.BytesIO()
    made = canvas.Canvas(out)
    made.rect(100, 100, 200, 200, fill=1)
    made.save()
    return out.getvalue()


def letter() -> bytes:
    import io

    from reportlab.pdfgen import canvas

    out = io.BytesIO()
    made = canvas.Canvas(out)
    for n, text in enumerate(
        [
            "Estimados señores:",
            "Junto con saludar, adjuntamos la carta de gerencia.",
            "Saluda atentamente,",
            "Juan Pérez",
        ]
    ):
        made.drawString(72, 700 - 20 * n, text)
    made.save()
    return out.getvalue()


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_11_unread_pages_are_named(
    new_service: NewService,
) -> None:
    import io

    import pypdfium2 as pdfium

    service = await new_service(local=True, DOCUMENTS_LOCAL_PROCESSES=1, DOCUMENTS_OCR="off")
    whole = pdfium.PdfDocument(letter())
    scan, page = pdfium.PdfImage.new(whole), whole.new_page(612, 792)
    scan.set_bitmap(pdfium.PdfBitmap.new_native(8, 8, pdfium.raw.FPDFBitmap_BGR))
    scan.set_matrix(pdfium.PdfMatrix().scale(612, 792))
    page.insert_obj(scan)
    page.gen_content()
    whole.new_page(612, 792)  # an empty page is not an unread page
    out = io.BytesIO()
    whole.save(out)
    service.put("a/both.pdf", out.getvalue())
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    assert (doc.status, doc.extractor_output_summary["unread_pages"]) == ("DONE", [1])
    assert any(
        line.get("unread_pages") == [1] and line["severity"] == "WARNING"
        for line in service.lines.parsed
    )


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_11_long_document_takes_several_calls_and_keeps_page_numbers(
    new_service: NewService,
) -> None:
    from random import Random

    from pipelines.documents import statement_words

    service = await new_service(DOCUMENTAI_MAX_PAGES=15)
    style = statements.Style(rows=170, years=[2024], per_page=9)
    statement = statements.make("long", style, Random(4), statement_words.TUNED)
    service.put("a/long.pdf", statement.content)
    answer = await service.process("gs://bkt/a")
    assert answer["outcome"] == "ok"
    doc = (await service.docs())[0]
    assert doc.extractor_output_summary["calls"] == 2
    found = [
        e for e in await service.extractions(documento_id=doc.id) if e.type == "LINE_ITEM_VALUE"
    ]
    assert sorted((t.label, t.value, t.page) for t in statement.values) == sorted(
        (e.LINE_ITEM_NAME, e.value, e.page_refs[0]["page"]) for e in found
    )
    assert {e.COLUMN_YEAR for e in found} == {"2024"}
    assert {(e.CURRENCY, e.UNITS_SCALE, e.REPORTING_PERIOD) for e in found} == {
        ("CLP", 1000, "2024-12-31")
    }
