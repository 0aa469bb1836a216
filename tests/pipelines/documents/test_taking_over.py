"""The pipeline on the Firestore collections of the service whose work it takes over."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pipelines.documents.conftest import DocumentsService, NewService, until

from esclusa.app import open_store
from esclusa.pipelines.documents.folder_signals import from_command, receive
from esclusa.pipelines.documents.records import Documento, Folio
from esclusa.settings import load

OLD = datetime(2025, 12, 19, 15, tzinfo=UTC)
TABLES = '{"documentos": {"abandoned_after": 1}}'


@pytest.fixture(params=["firestore"])
def provider(request: pytest.FixtureRequest, providers: Callable[[str], Any]) -> Any:
    return providers(request.param)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class OtherService:
    """Writes as that service does, with Google's client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def folder(self, prefix: str) -> Any:
        return self.client.collection("folios").document(digest(f"bkt:{prefix}"))

    def document(self, prefix: str, name: str, generation: str) -> Any:
        folder = self.folder(prefix)
        own = digest(f"{folder.id}:{name.rpartition('/')[2]}:{generation}")
        return folder.collection("documentos").document(own)

    async def write_folder(self, prefix: str, status: str, **more: Any) -> None:
        fields = {
            "bucket": "bkt",
            "folder_prefix": prefix,
            "status": status,
            "total_docs": 3,
            "processed_docs": 5,
            "created_at": OLD,
            "started_at": OLD,
        }
        await self.folder(prefix).set(fields | more)

    async def write_document(
        self, prefix: str, name: str, generation: str, status: str, **more: Any
    ) -> None:
        fields = {
            "gcs_uri": f"gs://bkt/{name}",
            "generation": generation,
            "file_id": name.rpartition("/")[2],
            "status": status,
            "updated_at": OLD,
        }
        if status == "DONE":
            fields |= {
                "doc_type": "ESTADO_RESULTADOS",
                "classifier_confidence": 0.91,
                "classifier_version": "projects/p/locations/us/processors/c",
                "completed_at": OLD,
            }
        await self.document(prefix, name, generation).set(fields | more)

    async def write_extraction(self, prefix: str, name: str, generation: str) -> Any:
        found = (
            self.document(prefix, name, generation)
            .collection("extracciones")
            .document("extraction-2025-12-19T15:00:00")
        )
        await found.set(OLD_EXTRACTION)
        return found


CORNERS = [{"x": 0.5, "y": 0.1}, {"x": 0.6, "y": 0.1}, {"x": 0.6, "y": 0.12}, {"x": 0.5, "y": 0.12}]
OLD_EXTRACTION = {
    "fields": {
        "ORG_NAME": {"value": "Apolo S.A.", "confidence": 0.99, "page_refs": []},
        "line_items": [
            {"type": "LINE_ITEM_NAME", "value": "Caja", "confidence": 0.9, "page_refs": []},
            {
                "type": "LINE_ITEM_VALUE",
                "value": "1,234",
                "confidence": 0.88,
                "page_refs": [{"page": 0, "bounding_box": CORNERS}],
            },
        ],
    },
    "metadata": {
        "page_count": 1,
        "processor_version": "projects/p/locations/us/processors/e",
        "extraction_schema_version": "v1.0",
    },
    "created_at": OLD,
}


@pytest.fixture
async def other(empty_database: Any) -> AsyncIterator[OtherService]:
    async with empty_database.google() as client:
        yield OtherService(client)


async def generation(service_folder: Any, name: str) -> str:
    from esclusa.pipelines.documents.buckets import generation_of

    return generation_of((service_folder / name).stat())


@pytest.fixture
async def taken_over(new_service: NewService, empty_database: Any) -> Callable[..., Any]:
    """Migrate as an operator does, then open the pipeline on the other service's data."""

    async def open_it(**options: Any) -> DocumentsService:
        environ = {
            "ESCLUSA_STORE": empty_database.url,
            "ESCLUSA_PIPELINES": "documents",
            "ESCLUSA_TABLES": TABLES,
            **{name: str(value) for name, value in options.items() if name.isupper()},
        }
        async with open_store(load(environ=environ)) as runtime:
            await runtime.migrate(foreign=True)
        settings = {
            "DOCUMENTS_TAKE_OVER": "apolo",
            "ESCLUSA_TABLES": TABLES,
            "ESCLUSA_FIRESTORE_ADOPT_SECONDS": "0.1",
        }
        return await new_service(**(settings | options))

    return open_it


def put(folder: Any, *names: str) -> None:
    for number, name in enumerate(names):
        path = folder / "bkt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"%PDF-1.4\n%class=income_statement\n%{number}\n".encode())


async def test_finished_folder_is_found_and_nothing_is_paid(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    await other.write_folder("CASO-1", "DONE_WITH_ERRORS", finished_at=OLD)
    before = (await other.folder("CASO-1").get()).to_dict()
    service = await taken_over(serve=True)
    put(tmp_path, "CASO-1/a.pdf")
    status, body = await service.event("CASO-1/IS_READY")
    assert (status, body["folio_id"]) == (202, digest("bkt:CASO-1"))
    await service.run()
    assert len((await service.records.find(Folio)).items) == 1
    assert (await service.folio()).status == "DONE_WITH_ERRORS"
    assert service.calls == 0
    after = (await other.folder("CASO-1").get()).to_dict()
    assert {name: after[name] for name in before} == before


async def test_folder_is_found_by_its_place_under_any_id(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    fields = {"bucket": "bkt", "folder_prefix": "X", "status": "DONE", "created_at": OLD}
    await other.client.collection("folios").document("by-hand").set(fields)
    service = await taken_over(serve=True)
    put(tmp_path, "X/a.pdf")
    assert (await service.event("X/is_ready"))[1]["folio_id"] == "by-hand"


async def test_folder_of_a_killed_request_goes_on(
    taken_over: Any, other: OtherService, tmp_path: Any, new_service: NewService
) -> None:
    names = ["C/done.pdf", "C/open.pdf", "C/new.pdf"]
    (tmp_path / "bkt").mkdir(exist_ok=True)
    put(tmp_path, *names)
    folder = tmp_path / "bkt"
    done, open_one = [await generation(folder, name) for name in names[:2]]
    await other.write_folder("C", "PROCESSING")
    await other.write_document("C", names[0], done, "DONE")
    await other.write_document("C", names[1], open_one, "IN_PROGRESS")
    await other.write_document("C", "C-10/sibling.pdf", "7", "DONE")
    old = await other.write_extraction("C", names[0], done)
    service = await taken_over()
    await closed(service)
    folio = await service.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 3, 3)
    assert folio.finished_at is not None
    assert service.calls == 4  # two documents
    assert service.lines.stages().count("DONE") == 1
    kept = (await other.document("C", names[0], done).get()).to_dict()
    assert (kept["status"], kept["file_id"], kept["completed_at"]) == ("DONE", "done.pdf", OLD)
    assert (await old.get()).to_dict() == OLD_EXTRACTION
    sibling = (await other.document("C", "C-10/sibling.pdf", "7").get()).to_dict()
    assert (sibling["status"], sibling["outside"]) == ("DONE", 1)
    new = (await other.document("C", names[2], await generation(folder, names[2])).get()).to_dict()
    assert new["status"] == "DONE"  # under the id that the other service looks for


async def test_folder_that_the_other_service_began_just_now_is_left_to_it(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    await other.write_folder("C", "PROCESSING", started_at=datetime.now(UTC))
    service = await taken_over()
    put(tmp_path, "C/a.pdf")
    await service.run()
    folio = await service.folio()
    assert (folio.status, service.calls) == ("PROCESSING", 0)
    assert folio.left_until is not None
    assert folio.left_until > datetime.now(UTC) + timedelta(minutes=10)


async def test_earlier_states_and_missing_fields_break_no_list(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    (tmp_path / "bkt").mkdir(exist_ok=True)
    put(tmp_path, "C/a.pdf", "C/b.pdf")
    for state in ("completed", "failed", "processing", "partial_failure", "paused"):
        await other.write_folder(state, state)
    await other.write_folder("C", "completed")
    await other.document("C", "a.pdf", "").set(
        {
            "gcs_uri": "gs://bkt/C/a.pdf",
            "generation": "",
            "status": "completed",
            "updated_at": datetime.now(UTC) + timedelta(seconds=5),
        }
    )
    await other.document("C", "b.pdf", "").set({"gcs_uri": "gs://bkt/C/b.pdf", "status": "failed"})
    service = await taken_over(serve=True)
    found = {f.folder_prefix: f.status for f in (await service.records.find(Folio)).items}
    assert found["paused"] == "paused"  # shown as it is
    status, _, body = await service.get(f"/documents/{digest('bkt:C')}")
    assert status == 200
    assert len(body["items"]) == 2
    await service.process("gs://bkt/C", reprocess=True)
    states = {f.folder_prefix: f.status for f in (await service.records.find(Folio)).items}
    assert (states["completed"], states["failed"]) == ("DONE", "ERROR")
    assert states["partial_failure"] == "DONE_WITH_ERRORS"
    docs = {d.gcs_uri: d for d in await service.docs()}
    assert docs["gs://bkt/C/a.pdf"].status == "DONE"
    assert service.calls == 2  # only the one that had failed


async def test_reprocess_takes_errors_and_by_an_option_what_was_never_read(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    (tmp_path / "bkt").mkdir(exist_ok=True)
    names = [f"C/{n}.pdf" for n in ("good", "unread", "header")]
    put(tmp_path, *names)
    good, unread, header = [await generation(tmp_path / "bkt", name) for name in names]
    await other.write_folder("C", "DONE_WITH_ERRORS")
    await other.write_document("C", names[0], good, "DONE")
    await other.write_extraction("C", names[0], good)
    await other.write_document("C", names[1], unread, "DONE", classifier_version="error")
    invalid = "Invalid PDF header: expected %PDF-"
    await other.write_document(
        "C", names[2], header, "ERROR", error_type="PROCESSING_ERROR", error_message=invalid
    )
    service = await taken_over()
    await service.process("gs://bkt/C", reprocess=True)
    assert {name for _, name, _ in service.simulator.paid} == {"header.pdf"}
    assert service.calls == 2
    assert (await service.folio()).status == "DONE"
    await service.process("gs://bkt/C", reprocess=True, unread=True)
    assert service.calls == 4
    docs = {d.gcs_uri.rpartition("/")[2]: d for d in await service.docs()}
    assert docs["good.pdf"].revision is None
    assert docs["unread.pdf"].revision is not None


async def test_reprocess_of_unread_documents_takes_those_without_an_extraction(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    (tmp_path / "bkt").mkdir(exist_ok=True)
    names = ["C/read.pdf", "C/empty.pdf"]
    put(tmp_path, *names)
    await other.write_folder("C", "DONE")
    for name in names:
        await other.write_document("C", name, await generation(tmp_path / "bkt", name), "DONE")
    await other.write_extraction("C", names[0], await generation(tmp_path / "bkt", names[0]))
    service = await taken_over()
    from esclusa.pipelines.documents.remap import reprocess_counts

    lines = await reprocess_counts(service.runtime, digest("bkt:C"))
    assert lines == ["done without being read: 1 (--unread reprocesses them)"]
    await service.process("gs://bkt/C", reprocess=True, unread=True)
    assert {name for _, name, _ in service.simulator.paid} == {"empty.pdf"}


async def test_old_extractions_are_shown_with_their_boxes(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    (tmp_path / "bkt").mkdir(exist_ok=True)
    put(tmp_path, "C/a.pdf")
    mark = await generation(tmp_path / "bkt", "C/a.pdf")
    await other.write_folder("C", "DONE")
    await other.write_document("C", "C/a.pdf", mark, "DONE")
    old = await other.write_extraction("C", "C/a.pdf", mark)
    service = await taken_over(serve=True)
    [doc] = await service.docs()
    status, _, page = await service.get(f"/console/documents/{doc.folio_id}/{doc.id}")
    text = page.decode()
    assert status == 200
    assert '<span class="label">LINE_ITEM_VALUE</span><b>1,234</b>' in text
    assert '<span class="label">ORG_NAME</span><b>Apolo S.A.</b>' in text
    assert 'x="0.5"' in text
    assert 'y="0.1" width="0.09' in text
    status, _, body = await service.get(f"/documents/{doc.folio_id}/{doc.id}")
    [shown] = body["old_extractions"]
    assert (shown["id"], shown["fields"]) == (old.id, OLD_EXTRACTION["fields"])
    assert (await old.get()).to_dict() == OLD_EXTRACTION


async def test_document_in_progress_without_a_time_is_taken_after_the_grace(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    (tmp_path / "bkt").mkdir(exist_ok=True)
    put(tmp_path, "C/a.pdf")
    mark = await generation(tmp_path / "bkt", "C/a.pdf")
    await other.write_folder("C", "PROCESSING")
    fields = {"gcs_uri": "gs://bkt/C/a.pdf", "generation": mark, "status": "IN_PROGRESS"}
    await other.document("C", "C/a.pdf", mark).set(fields)
    service = await taken_over(DOCUMENTS_TAKE_OVER_GRACE_SECONDS=1)
    await closed(service)
    assert (await service.folio()).status == "DONE"
    assert service.calls == 2


async def closed(service: DocumentsService) -> None:
    """Run until the folder has ended."""

    async def ended() -> bool:
        await service.run()
        return (await service.folio()).status in ("DONE", "ERROR", "DONE_WITH_ERRORS")

    await until(ended)


async def recorded(service: DocumentsService, other: OtherService, tmp_path: Any) -> Any:
    """A folder with one document that is recorded and not claimed yet; return its reference."""
    (tmp_path / "bkt").mkdir(exist_ok=True)
    put(tmp_path, "C/a.pdf")
    mark = await generation(tmp_path / "bkt", "C/a.pdf")
    await receive(service.runtime, from_command("gs://bkt/C"))
    folio = digest("bkt:C")
    slug = digest(f"{folio}:a.pdf:{mark}")
    document = Documento(
        id=Documento.kind.id_of(folio, slug),
        folio_id=folio,
        slug=slug,
        gcs_uri="gs://bkt/C/a.pdf",
        generation=mark,
        bucket="bkt",
        folder_prefix="C",
    )
    await service.records.insert([document])
    return other.document("C", "C/a.pdf", mark)


@pytest.mark.parametrize(("state", "folder"), [("DONE", "DONE"), ("IN_PROGRESS", "PROCESSING")])
async def test_document_that_the_other_service_takes_before_our_claim_is_left(
    taken_over: Any, other: OtherService, tmp_path: Any, state: str, folder: str
) -> None:
    service = await taken_over()
    document = await recorded(service, other, tmp_path)
    await document.set({"status": state, "updated_at": datetime.now(UTC)}, merge=True)
    await service.run()
    assert service.calls == 0
    assert (await service.folio()).status == folder
    assert (await document.get()).to_dict()["status"] == state


@pytest.mark.parametrize("fails", [False, True])
async def test_result_of_the_other_service_is_not_replaced_by_ours(
    taken_over: Any, other: OtherService, tmp_path: Any, fails: bool
) -> None:
    """It finishes the document while our call is under way."""
    service = await taken_over(DOCUMENTS_MAX_ATTEMPTS=1)
    document = await recorded(service, other, tmp_path)
    if fails:
        error = {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}
        service.simulator.order("/v1", times=9, match="processors/ext", status=400, body=error)
    service.simulator.delay = 3.0  # of the first call
    run = asyncio.create_task(service.run())
    await until(lambda: asyncio.sleep(0, service.simulator.most))
    service.simulator.delay = 0.0
    theirs = {"status": "DONE", "doc_type": "ESTADO_FLUJOS_EFECTIVO", "completed_at": OLD}
    await document.set(theirs, merge=True)
    await run
    after = (await document.get()).to_dict()
    assert {name: after[name] for name in theirs} == theirs
    assert (await service.folio()).status == "DONE"
    assert await service.extractions() == []
    assert await service.letters() == []


async def test_results_are_also_written_in_the_old_form(
    taken_over: Any, other: OtherService, tmp_path: Any
) -> None:
    (tmp_path / "bkt").mkdir(exist_ok=True)
    put(tmp_path, "C/a.pdf")
    service = await taken_over(DOCUMENTS_OLD_EXTRACTIONS="true", DOCUMENTS_EVENT_TYPES="true")
    await service.process("gs://bkt/C")
    found = other.document("C", "C/a.pdf", await generation(tmp_path / "bkt", "C/a.pdf"))
    assert (await found.get()).to_dict()["doc_type"] == "ESTADO_RESULTADOS"
    results = [each async for each in found.collection("extracciones").stream()]
    [old] = [each for each in results if each.id.startswith("extraction-")]
    fields = old.to_dict()["fields"]
    assert [(i["type"], i["value"]) for i in fields["line_items"]][:3] == [
        ("LINE_ITEM_NAME", "Caja"),
        ("LINE_ITEM_VALUE", "1.234"),
        ("COLUMN_YEAR", "2024"),
    ]
    assert len(fields["line_items"][1]["page_refs"][0]["bounding_box"]) == 4
    assert old.to_dict()["metadata"]["extraction_schema_version"] == "v1.0"
    assert len(results) == 3
    events = [line["event_type"] for line in service.lines.parsed if "event_type" in line]
    assert events[0] == "folder_processing_start"
    assert events[-1] == "folder_processing_complete"
    own = [name.partition("_doc_")[2].partition("_")[2] for name in events if "_doc_" in name]
    assert own == [
        "processing_start",
        "classification_start",
        "classification_done",
        "extraction_start",
        "extraction_done",
        "processing_done",
    ]
    await service.process("gs://bkt/C", reprocess=True)
    last = [line["event_type"] for line in service.lines.parsed if "event_type" in line]
    assert any(name.endswith("_already_processed") for name in last[len(events) :])
