"""A document's work: classification kept, faults, parallel work, reuse, dead letters, logs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pipelines.documents import statements
from pipelines.documents.conftest import NewOffice, Office

from esclusa.model.record import Ref
from esclusa.pipelines.documents.progress import Progress
from esclusa.pipelines.documents.records import Documento


def google(code: int, status: str) -> dict[str, Any]:
    return {
        "status": code,
        "body": {"error": {"code": code, "message": f"{status} to order", "status": status}},
    }


# 4: a document's work


async def test_4_the_classification_is_kept_and_not_paid_for_again(office: Office) -> None:
    office.fill("a", 1)
    office.simulator.order(
        "/v1/projects/p/locations/us/processors/ext", times=2, **google(503, "UNAVAILABLE")
    )
    answer = await office.process("gs://bkt/a")
    assert answer["outcome"] == "ok"
    counts = office.simulator.counts
    assert [v for k, v in counts.items() if "classifier" in k] == [1]
    assert [v for k, v in counts.items() if "processors/ext" in k] == [3]
    doc = (await office.docs())[0]
    assert (doc.status, doc.doc_type, doc.attempts) == ("DONE", "balance_sheet", 3)
    assert doc.classifier_output_raw["classes"][0] == {"class": "balance_sheet", "confidence": 0.97}
    assert doc.extractor_output_summary["line_items"] == 2
    errors = [line for line in office.lines.parsed if line.get("stage") == "DOC_ERROR"]
    assert [(e["error_type"], e["attempt"], e["doc_status"]) for e in errors] == [
        ("service_unavailable", 1, "NOT_STARTED"),
        ("service_unavailable", 2, "NOT_STARTED"),
    ]


async def test_4_a_class_without_an_extractor_is_an_error_that_names_it(
    new_office: NewOffice,
) -> None:
    office = await new_office(DOCUMENTS_EXTRACTORS="balance_sheet=ext")
    office.put("a/1.pdf", "%PDF-1.4\n%class=cash_flow\n")
    office.put("a/2.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    office.put("a/3.pdf", "%PDF-1.4\n%class=other\n")
    await office.process("gs://bkt/a")
    docs = await office.docs()
    assert [d.status for d in docs] == ["ERROR", "DONE", "DONE"]
    assert docs[0].error_type == "no_extractor"
    assert "cash_flow" in docs[0].error_message
    assert await office.extractions(documento_id=docs[2].id) == []


async def test_4_a_document_replaced_while_it_waits_is_an_error_and_its_new_version_is_new_work(
    office: Office,
) -> None:
    office.fill("a", 3)
    office.simulator.order(
        "/v1/projects/p/locations/us/processors/ext",
        times=1,
        match="doc00001",
        **google(503, "UNAVAILABLE"),
    )

    async def replace(*_: Any) -> None:
        while not any(line.get("stage") == "DOC_ERROR" for line in office.lines.parsed):
            await asyncio.sleep(0.005)
        office.put("a/doc00001.pdf", "%PDF-1.4\n%class=cash_flow\nreplaced meanwhile\n")

    task = asyncio.create_task(replace())
    await office.process("gs://bkt/a")
    await task
    assert [(d.status, d.error_type) for d in await office.docs()] == [
        ("DONE", None),
        ("ERROR", "object_gone"),
        ("DONE", None),
    ]
    answer = await office.process("gs://bkt/a", reprocess=True)
    assert answer["counters"] == {"total_docs": 3, "processed_docs": 3, "DONE": 3, "ERROR": 0}
    assert sorted(d.doc_type for d in await office.docs(superseded=0)) == [
        "balance_sheet",
        "balance_sheet",
        "cash_flow",
    ]


# 5: parallel


@pytest.mark.parametrize("most", [1, 3])
async def test_5_so_many_documents_at_once_and_no_more(new_office: NewOffice, most: int) -> None:
    office = await new_office(MAX_CONCURRENT_DOCS=most)
    office.fill("a", 9)
    office.simulator.delay = 0.1
    await office.process("gs://bkt/a")
    assert office.simulator.most == most


# 6: same content


@pytest.mark.parametrize("dedup", ["off", "content"])
async def test_6_the_same_content_in_another_folder(new_office: NewOffice, dedup: str) -> None:
    office = await new_office(DOCUMENTS_DEDUP=dedup)
    for folder in ("a", "b"):
        office.put(f"{folder}/x.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    await office.process("gs://bkt/a")
    before = len(office.lines.text)
    await office.process("gs://bkt/b")
    docs = await office.docs()
    assert [d.status for d in docs] == ["DONE", "DONE"]
    assert sum(office.simulator.counts.values()) == (2 if dedup == "content" else 4)
    assert docs[1].reused_from == (docs[0].id if dedup == "content" else None)
    copies = await office.extractions(documento_id=docs[1].id)
    assert [(e.LINE_ITEM_NAME, e.value, e.gcs_uri) for e in sorted(copies, key=lambda e: e.position)] == [
        ("Caja", "1234", "gs://bkt/b/x.pdf"), ("Bancos", "-56", "gs://bkt/b/x.pdf"),
    ]  # fmt: skip
    stages = [
        s
        for s in (line.get("stage") for line in office.lines.parsed[before:])
        if s and s.endswith("_START") and s.startswith("DOC")
    ]
    assert len(stages) == (0 if dedup == "content" else 2)


# 8: faults


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (google(429, "RESOURCE_EXHAUSTED"), "resource_exhausted"),
        (google(500, "INTERNAL"), "internal"),
        (google(504, "DEADLINE_EXCEEDED"), "timeout"),
        ({"fault": "html"}, "service_unavailable"),
        ({"fault": "cut"}, "connection_error"),
        ({"fault": "bad_json"}, "bad_answer"),
    ],
)
async def test_8_what_may_pass_is_tried_again_up_to_a_maximum(
    office: Office, fault: dict[str, Any], kind: str
) -> None:
    office.fill("a", 1)
    office.simulator.order("/v1", times=2, **fault)
    await office.process("gs://bkt/a")
    doc = (await office.docs())[0]
    assert (doc.status, doc.attempts, doc.error_type) == ("DONE", 3, None)
    errors = [
        line["error_type"] for line in office.lines.parsed if line.get("stage") == "DOC_ERROR"
    ]
    assert errors == [kind, kind]


async def test_8_a_fault_that_stays_ends_in_error_after_the_last_attempt(office: Office) -> None:
    office.fill("a", 1)
    office.simulator.order("/v1", times=99, **google(503, "UNAVAILABLE"))
    answer = await office.process("gs://bkt/a")
    assert answer["outcome"] == "partial"
    doc = (await office.docs())[0]
    assert (doc.status, doc.attempts, doc.error_type) == ("ERROR", 3, "service_unavailable")
    lines = [line for line in office.lines.parsed if line.get("stage") == "DOC_ERROR"]
    assert [(line["attempt"], line["doc_status"]) for line in lines] == [
        (1, "NOT_STARTED"),
        (2, "NOT_STARTED"),
        (3, "ERROR"),
    ]


@pytest.mark.parametrize(
    ("code", "status"), [(400, "INVALID_ARGUMENT"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND")]
)
async def test_8_what_no_attempt_can_mend_ends_at_once(
    office: Office, code: int, status: str
) -> None:
    office.fill("a", 1)
    office.simulator.order("/v1", times=9, **google(code, status))
    await office.process("gs://bkt/a")
    doc = (await office.docs())[0]
    assert (doc.status, doc.attempts, doc.error_type) == ("ERROR", 1, status.lower())


# 9: dead letters


async def test_9_a_failed_document_leaves_a_letter_in_its_settlement_and_a_message_in_the_outbox(
    new_office: NewOffice,
) -> None:
    office = await new_office(DLQ_TOPIC="projects/p/topics/dlq")
    office.fill("a", 3)
    office.put("a/bad.pdf", "%PDF-1.4 broken")
    await office.process("gs://bkt/a")
    bad = next(d for d in await office.docs() if d.status == "ERROR")
    letters, messages = await office.letters(), await office.messages()
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
    }
    assert (payload["gcs_uri"], payload["error_type"], payload["attempts"]) == (
        "gs://bkt/a/bad.pdf",
        "invalid_argument",
        1,
    )
    assert [(m.topic, m.data, m.status) for m in messages] == [
        ("projects/p/topics/dlq", payload, "waiting")
    ]


async def test_9_without_a_topic_the_letter_is_kept_all_the_same_and_a_folder_in_error_has_its_own(
    office: Office,
) -> None:
    office.put("a/bad.pdf", "%PDF-1.4 broken")
    await office.process("gs://bkt/a")
    assert sorted((x.table_name, x.error_type) for x in await office.letters()) == [
        ("documentos", "invalid_argument"),
        ("folios", "too_many_errors"),
    ]
    assert await office.messages() == []


# 10: logs and progress


async def test_10_every_line_has_its_keys_and_progress_from_the_log_agrees_with_the_store(
    office: Office,
) -> None:
    office.fill("a", 4)
    office.put("a/bad.pdf", "%PDF-1.4 broken")
    await office.process("gs://bkt/a")
    folio = await office.folio()
    staged = [line for line in office.lines.parsed if "stage" in line]
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
    for line in office.lines.text:
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


async def test_11_the_local_processor_reads_what_it_has_never_seen(new_office: NewOffice) -> None:
    office = await new_office(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    made = {s.name: s for s in statements.held_out(2, seed=5)}
    for name, statement in made.items():
        office.put(f"a/{name}.pdf", statement.content)
    office.put("a/locked.pdf", locked())
    office.put("a/picture.pdf", picture())
    office.put("a/letter.pdf", letter())
    office.put("a/broken.pdf", b"%PDF-1.7\nthis is no PDF")
    await office.process("gs://bkt/a")
    docs = {Path(d.gcs_uri).stem: d for d in await office.docs()}
    assert {name: docs[name].error_type for name in ("locked", "picture", "broken")} == {
        "locked": "encrypted_pdf", "picture": "no_text_layer", "broken": "bad_pdf",
    }  # fmt: skip
    assert (docs["letter"].status, docs["letter"].doc_type) == ("DONE", "other")
    assert await office.extractions(documento_id=docs["letter"].id) == []
    for name, statement in made.items():
        doc = docs[name]
        assert (doc.status, doc.doc_type) == ("DONE", statement.doc_type)
        found = [
            e for e in await office.extractions(documento_id=doc.id) if e.type == "LINE_ITEM_VALUE"
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
            0 <= v <= 1 for e in found for ref in e.page_refs for box in ref["boxes"] for v in box
        )


async def test_a_long_document_is_written_whole(new_office: NewOffice) -> None:
    office = await new_office(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    from random import Random

    from pipelines.documents import vocabulary

    style = statements.Style(rows=320, years=[2024, 2023], per_page=44)
    statement = statements.make("long", style, Random(3), vocabulary.TUNED)
    office.put("a/long.pdf", statement.content)
    await office.process("gs://bkt/a")
    doc = (await office.docs())[0]
    found = [
        e for e in await office.extractions(documento_id=doc.id) if e.type == "LINE_ITEM_VALUE"
    ]
    assert len(found) == len(statement.values) > 400
    steps = await office.runtime.store.history(Ref(Documento.kind, doc.id))
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
async def test_11_pages_of_pictures_in_a_document_with_text_are_named(
    new_office: NewOffice,
) -> None:
    import io

    import pypdfium2 as pdfium

    office = await new_office(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    whole = pdfium.PdfDocument(letter())
    scan, page = pdfium.PdfImage.new(whole), whole.new_page(612, 792)
    scan.set_bitmap(pdfium.PdfBitmap.new_native(8, 8, pdfium.raw.FPDFBitmap_BGR))
    scan.set_matrix(pdfium.PdfMatrix().scale(612, 792))
    page.insert_obj(scan)
    page.gen_content()
    whole.new_page(612, 792)  # an empty page is no page that was not read
    out = io.BytesIO()
    whole.save(out)
    office.put("a/both.pdf", out.getvalue())
    await office.process("gs://bkt/a")
    doc = (await office.docs())[0]
    assert (doc.status, doc.extractor_output_summary["unread_pages"]) == ("DONE", [1])
    assert any(
        line.get("unread_pages") == [1] and line["severity"] == "WARNING"
        for line in office.lines.parsed
    )


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_11_a_document_longer_than_one_call_allows_is_sent_in_several_and_pages_stay_its_own(
    new_office: NewOffice,
) -> None:
    from random import Random

    from pipelines.documents import vocabulary

    office = await new_office(DOCUMENTAI_MAX_PAGES=15)
    style = statements.Style(rows=170, years=[2024], per_page=9)
    statement = statements.make("long", style, Random(4), vocabulary.TUNED)
    office.put("a/long.pdf", statement.content)
    answer = await office.process("gs://bkt/a")
    assert answer["outcome"] == "ok"
    doc = (await office.docs())[0]
    assert doc.extractor_output_summary["calls"] == 2
    found = [
        e for e in await office.extractions(documento_id=doc.id) if e.type == "LINE_ITEM_VALUE"
    ]
    assert sorted((t.label, t.value, t.page) for t in statement.values) == sorted(
        (e.LINE_ITEM_NAME, e.value, e.page_refs[0]["page"]) for e in found
    )
    assert {e.COLUMN_YEAR for e in found} == {"2024"}
    assert {(e.CURRENCY, e.UNITS_SCALE, e.REPORTING_PERIOD) for e in found} == {
        ("CLP", 1000, "2024-12-31")
    }
