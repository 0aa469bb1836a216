"""Checks of numbers, review, and corrections by people."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from pipelines.documents.conftest import DocumentsService, NewService
from pipelines.documents.test_statement_kinds import page_of

from esclusa import To
from esclusa.model.system_records import Alert, Audit
from esclusa.pipelines.documents.checks import check_document
from esclusa.pipelines.documents.local.statement import read_document
from esclusa.pipelines.documents.records import Documento, Extraccion
from esclusa.pipelines.documents.views import folders_by_month, to_review


def balance(total: str = "2.100.600", year: int = 2024, cash_before: str = "1.100.200") -> bytes:
    """A balance sheet that adds up, unless another total is given."""
    return page_of(
        "Andes Norte S.A.",
        "Estado de Situación Financiera",
        f"Al 31 de diciembre de {year} y {year - 1} (en miles de pesos)",
        f"|{year}|{year - 1}",
        f"Efectivo y equivalentes al efectivo|1.250.300|{cash_before}",
        "Inventarios|850.300|790.100",
        f"Total activos|{total}|1.890.300",
        "Cuentas por pagar|900.300|800.200",
        "Total pasivos|900.300|800.200",
        "Capital emitido|1.200.300|1.090.100",
        "Total patrimonio|1.200.300|1.090.100",
        "Total patrimonio y pasivos|2.100.600|1.890.300",
    )


def failed(content: bytes) -> list[tuple[str, str, str, str]]:
    checks = check_document(read_document(content)["items"])
    assert checks
    return [(c["code"], c["label"], c["found"], c["expected"]) for c in checks if not c["passed"]]


def test_totals_and_balance_are_checked() -> None:
    assert failed(balance()) == []
    assert failed(balance(total="2.100.900")) == [
        ("total", "Total activos", "2100900", "2100600"),
        ("balance", "Total activos", "2100900", "2100600"),
    ]


def test_results_after_costs_without_sign_are_checked() -> None:
    content = page_of(
        "Andes Norte S.A.",
        "Estado de Resultados",
        "Por el año terminado el 31 de diciembre de 2024 (en miles de pesos)",
        "|2024",
        "Ingresos de actividades ordinarias|1.250.300",
        "Costo de ventas|850.300",
        "Ganancia bruta|400.000",
    )
    checks = check_document(read_document(content)["items"])
    assert [(c["label"], c["passed"]) for c in checks] == [("Ganancia bruta", True)]


async def test_document_that_does_not_add_up_needs_review(new_service: NewService) -> None:
    service = await new_service(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/good.pdf", balance())
    service.put("a/bad.pdf", balance(total="2.100.900"))
    answer = await service.process("gs://bkt/a")
    assert (answer["outcome"], answer["counters"]["DONE"]) == ("ok", 2)
    docs = {d.gcs_uri.rsplit("/", 1)[-1]: d for d in await service.docs()}
    assert (docs["good.pdf"].needs_review, docs["good.pdf"].review_reasons) == (False, [])
    assert docs["bad.pdf"].needs_review
    assert [r["code"] for r in docs["bad.pdf"].review_reasons] == [
        "total_differs",
        "balance_differs",
    ]


async def test_last_years_file_is_compared(new_service: NewService) -> None:
    service = await new_service(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/2023.pdf", balance(year=2023))
    await service.process("gs://bkt/a")
    # Last year's own file says 1.250.300 for 2023; this year's says 1.100.200.
    service.put("b/2024.pdf", balance(year=2024))
    await service.process("gs://bkt/b")
    doc = next(d for d in await service.docs() if d.gcs_uri.endswith("b/2024.pdf"))
    differing = {c["label"] for c in doc.checks if c["code"] == "prior_year" and not c["passed"]}
    assert "Efectivo y equivalentes al efectivo" in differing
    assert "prior_year_differs" in [r["code"] for r in doc.review_reasons]


async def test_held_documents_wait_for_a_person(new_service: NewService) -> None:
    service = await new_service(
        local=True, serve=True, DOCUMENTS_LOCAL_PROCESSES=1, DOCUMENTS_REVIEW="hold"
    )
    service.put("a/good.pdf", balance())
    service.put("a/bad.pdf", balance(total="2.100.900"))
    answer = await service.process("gs://bkt/a")
    assert {n: answer["counters"][n] for n in ("DONE", "NEEDS_REVIEW")} == {
        "DONE": 1,
        "NEEDS_REVIEW": 1,
    }
    assert (await service.folio()).status == "PROCESSING"
    held = next(d for d in await service.docs() if d.status == "NEEDS_REVIEW")
    status, _ = await post(service, held, "review", reason="seen by the auditor")
    assert status == 200
    await service.process("gs://bkt/a")
    assert (await service.folio()).status == "DONE"
    history = await service.runtime.read_model.history(Documento.kind.table, held.id)
    assert history[-1].reason == "seen by the auditor"


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_document_that_nobody_reviews_in_time_is_escalated(new_service: NewService) -> None:
    service = await new_service(
        local=True, serve=True, DOCUMENTS_LOCAL_PROCESSES=1, DOCUMENTS_REVIEW="hold"
    )
    service.put("a/bad.pdf", balance(total="2.100.900"))
    await service.process("gs://bkt/a")
    [held] = await service.docs()
    answer = await service.runtime.read_model.why(Documento.kind.table, held.id)
    assert [reason.code for reason in answer.reasons] == ["no_stage", "deadline"]
    engine: Any = service.runtime.engine
    for days, state in ((1.9, "NEEDS_REVIEW"), (0.2, "ESCALATED")):
        engine.store.clock_offset += days * 86_400
        await engine.clock.sync()
        await engine.run_cycle("documents.needs-review-deadline")
        assert [d.status for d in await service.docs()] == [state]
    [alert] = (await service.records.find(Alert)).items
    assert (alert.name, alert.status) == ("deadline", "raised")
    answer = await service.process("gs://bkt/a")  # does not wait for the person
    assert (answer["counters"]["ESCALATED"], (await service.folio()).status) == (1, "PROCESSING")
    status, _ = await post(service, held, "review", reason="seen at last")
    assert (status, [d.status for d in await service.docs()]) == (200, ["DONE"])
    await engine.judge.judge()
    [alert] = (await service.records.find(Alert)).items
    assert alert.status == "ended"


async def test_a_value_is_corrected_and_the_original_stays(new_service: NewService) -> None:
    service = await new_service(local=True, serve=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/bad.pdf", balance(total="2.100.900"))
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    found = await service.extractions(documento_id=doc.id)
    wrong = next(e for e in found if e.value == "2100900")
    status, answer = await post(service, doc, f"values/{wrong.id}", value="x", reason="typo")
    assert (status, "is not a number" in answer["detail"]) == (400, True)
    status, answer = await post(
        service, doc, f"values/{wrong.id}", value="2100600", reason="a 9 read for a 6"
    )
    assert (status, answer["corrected_value"], answer["value"]) == (200, "2100600", "2100900")
    kept = await service.runtime.records.get(Extraccion, wrong.id)
    assert kept is not None
    assert (kept.value, kept.LINE_ITEM_VALUE, kept.corrected_value, kept.review) == (
        "2100900",
        "2.100.900",
        "2100600",
        "corrected",
    )
    assert kept.reviewed_by
    after = await service.runtime.records.get(Documento, doc.id)
    assert after is not None
    assert (after.status, after.needs_review, after.corrections) == ("DONE", False, 1)
    assert after.attempts == doc.attempts == 1
    history = await service.runtime.read_model.history(Documento.kind.table, doc.id)
    assert history[-1].who == kept.reviewed_by
    assert "2100900 → 2100600: a 9 read for a 6" in str(history[-1].reason)
    audits = [a async for a in service.runtime.records.each(Audit, {"verb": "corrected"})]
    assert [(a.reason, a.affected) for a in audits] == [("a 9 read for a 6", 1)]
    status, _ = await post(service, doc, f"values/{wrong.id}", reason="checked with the paper")
    again = await service.runtime.records.get(Extraccion, wrong.id)
    assert again is not None
    assert (status, again.review, again.corrected_value) == (200, "confirmed", None)


async def test_corrections_are_carried_over_to_a_forced_reading(new_service: NewService) -> None:
    service = await new_service(local=True, serve=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/bad.pdf", balance(total="2.100.900"))
    await service.process("gs://bkt/a")
    [doc] = await service.docs()
    found = await service.extractions(documento_id=doc.id)
    wrong = next(e for e in found if e.value == "2100900")
    seen = next(e for e in found if e.value == "1890300")
    await post(service, doc, f"values/{wrong.id}", value="2100600", reason="a 9 read for a 6")
    await post(service, doc, f"values/{seen.id}", reason="checked")
    await service.process("gs://bkt/a", reprocess=True, force=True)
    [again] = await service.docs()
    assert (again.status, again.needs_review, again.reading) == ("DONE", False, 2)
    now = await service.extractions(documento_id=doc.id, revision=again.revision)
    decided = {e.value: (e.review, e.corrected_value, e.review_reason) for e in now if e.review}
    assert decided == {
        "2100900": ("corrected", "2100600", "a 9 read for a 6"),
        "1890300": ("confirmed", None, "checked"),
    }


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
async def test_correction_whose_number_is_not_found_again_is_reported(
    new_service: NewService,
) -> None:
    service = await new_service(local=True, serve=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/bad.pdf", balance(total="2.100.900"))
    await service.process("gs://bkt/a")
    [doc] = await service.docs()
    [wrong] = [e for e in await service.extractions(documento_id=doc.id) if e.value == "2100900"]
    await post(service, doc, f"values/{wrong.id}", value="2100600", reason="a 9 read for a 6")
    operations = service.runtime.operations("test")  # as if it had been read otherwise then

    async def rename(value: Extraccion) -> To:
        return To("kept", LINE_ITEM_NAME="Total de activos")

    await operations.apply("rename", Extraccion.kind.table, rename, where={"id": wrong.id})
    await service.process("gs://bkt/a", reprocess=True, force=True)
    [again] = await service.docs()
    lost = next(r for r in again.review_reasons if r["code"] == "corrections_lost")
    assert (lost["values"], lost["labels"]) == (1, ["Total de activos: 2100600"])
    assert again.needs_review


async def post(
    service: DocumentsService, doc: Documento, path: str, **body: Any
) -> tuple[int, Any]:
    url = f"{service.url}/documents/{doc.folio_id}/{doc.id}/{path}"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        return response.status, await response.json()


async def test_views_count_folders_by_month_and_documents_to_review(
    new_service: NewService,
) -> None:
    service = await new_service(local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put("a/bad.pdf", balance(total="2.100.900"))
    await service.process("gs://bkt/a")
    months = await folders_by_month(service.runtime.records, 10, None)
    assert [(m["folders"], m["DONE"], m["documents"]) for m in months["items"]] == [
        (1, "1 (100%)", 1)
    ]
    waiting = await to_review(service.runtime.records, 10, None)
    assert [i["reasons"] for i in waiting["items"]] == ["total_differs, balance_differs"]


async def test_retried_and_failed_documents_have_views_and_metrics(new_service: NewService) -> None:
    service = await new_service(serve=True)
    service.fill("a", 3)
    service.put("a/bad.pdf", "%PDF-1.4 broken")
    error = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}
    service.simulator.order("/v1", times=1, match="doc00001", status=503, body=error)
    await service.process("gs://bkt/a")
    again = await service.runtime.read_model.view("documents.retried")
    assert [(i["document"], i["attempts"]) for i in again["items"]] == [
        ("gs://bkt/a/doc00001.pdf", 2)
    ]
    failed = await service.runtime.read_model.view("documents.dead-letters")
    assert [(i["document"], i["error"]) for i in failed["items"]] == [
        ("gs://bkt/a/bad.pdf", "invalid_argument")
    ]
    assert (again["count"], failed["count"]) == (1, 1)
    _, _, body = await service.get("/metrics")
    month = f"{(await service.folio()).created_at:%Y-%m}"
    lines = body.decode().splitlines()
    assert f'esclusa_documents_folders{{month="{month}",status="DONE_WITH_ERRORS"}} 1.0' in lines
    assert f'esclusa_documents_folders{{month="{month}",status="DONE"}} 0.0' in lines
    assert any(line.startswith("esclusa_documents_folder_seconds{") for line in lines)
    assert "esclusa_documents_retried 1.0" in lines
    assert "esclusa_documents_dead_letters 1.0" in lines
