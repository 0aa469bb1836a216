"""Folders: trigger, re-entry, listing, closing.

The numbers in the names are those of the spec.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pipelines.documents.conftest import DocumentsService, NewService, headers, until

from esclusa.model.kind import Ref
from esclusa.model.texts import load
from esclusa.pipelines.documents.buckets import BadUri, Blob, LocalBucket, parse_uri
from esclusa.pipelines.documents.folder_signals import from_command, from_flags
from esclusa.pipelines.documents.records import FolderSignal, Folio

ONE_STORE = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
"""For tests that do not use the store."""


async def ended(service: DocumentsService) -> bool:
    found = (await service.records.find(Folio)).items
    return bool(found) and all(f.status in ("DONE", "DONE_WITH_ERRORS", "ERROR") for f in found)


# 1: the trigger


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_1_event_in_either_mode_starts_its_folder(new_service: NewService, mode: str) -> None:
    service = await new_service(serve=True, worker=True)
    service.fill("2026/caso-1", 3)
    if mode == "binary":
        status, body = await service.event("2026/caso-1/is_ready", id="evt-7")
    else:
        event = {name.removeprefix("ce-"): value for name, value in headers("evt-7").items()}
        event |= {"data": {"bucket": "bkt", "name": "2026/caso-1/is_ready", "size": 0}}
        status, body = await service.post(
            "/events/storage",
            data=json.dumps(event),
            headers={"Content-Type": "application/cloudevents+json"},
        )
    assert status == 202
    assert body["accepted"] is True
    await until(lambda: ended(service))
    folio = await service.folio()
    assert (folio.folio_id, folio.bucket, folio.folder_prefix) == (
        body["folio_id"],
        "bkt",
        "2026/caso-1",
    )
    assert (folio.status, folio.total_docs, folio.processed_docs, folio.eventarc_event_id) == (
        "DONE",
        3,
        3,
        "evt-7",
    )
    assert folio.started_at is not None
    assert folio.finished_at is not None


@ONE_STORE
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("2026/caso/is_ready.txt", {}),
        ("2026/caso/other", {}),
        ("is_ready", {}),
        ("/is_ready", {}),
        (
            "2026/caso/is_ready",
            {"json": {"bucket": "bkt", "name": "2026/caso/is_ready", "size": "12"}},
        ),
        ("2026/caso/is_ready", {"headers": headers(type="google.cloud.storage.object.v1.deleted")}),
    ],
)
async def test_1_other_events_are_answered_and_ignored(
    new_service: NewService, name: str, more: dict[str, Any]
) -> None:
    service = await new_service(serve=True)
    status, body = await service.event(name, **more)
    assert status == 200
    assert body["accepted"] is False
    assert body["reason"]
    assert (await service.records.find(FolderSignal)).items == []


@ONE_STORE
@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"data": b"{"}, "not JSON"),
        ({"headers": {}, "json": {}}, "not a CloudEvent"),
        ({"headers": {"ce-id": "1"}, "json": {}}, "lacks specversion, type, source"),
        ({"headers": {**headers(), "ce-specversion": "0.3"}, "json": {}}, "0.3"),
        (
            {
                "json": {"name": "a/is_ready"},
                "headers": {k: v for k, v in headers().items() if k != "ce-bucket"},
            },
            "no bucket",
        ),
        ({"json": {"bucket": "bkt"}}, "no object"),
        ({"json": {"bucket": "bkt", "name": "a/is_ready", "size": "many"}}, "size"),
        ({"json": []}, "not a JSON object"),
        (
            {"data": b"[]", "headers": {"Content-Type": "application/cloudevents+json"}},
            "JSON object",
        ),
    ],
)
async def test_1_malformed_event_is_a_400_with_its_fault(
    new_service: NewService, options: dict[str, Any], fault: str
) -> None:
    service = await new_service(serve=True)
    if "data" in options and "headers" not in options:
        options["headers"] = headers()
    if "json" in options and "headers" not in options:
        options["headers"] = headers()
    status, body = await service.post("/events/storage", **options)
    assert status == 400
    assert fault in body["detail"]
    assert body["type"].endswith("bad-event")


# 2: re-entry


async def test_2_finished_folder_ignores_events(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True)
    service.fill("a", 2)
    for _ in range(2):
        assert (await service.event("a/is_ready", id="same"))[0] == 202
    assert len((await service.records.find(FolderSignal)).items) == 1
    await service.run()
    calls = service.calls
    await service.event("a/is_ready", id="another")
    await service.run()
    assert (await service.folio()).status == "DONE"
    assert service.calls == calls
    signals = {
        s.eventarc_event_id: s.answer for s in (await service.records.find(FolderSignal)).items
    }
    assert signals == {"same": "new", "another": "ignored: DONE"}


async def test_2_concurrent_events_start_one_processing(new_service: NewService) -> None:
    service = await new_service(serve=True, worker=True)
    service.fill("a", 6)
    service.simulator.delay = 0.05
    answers = await asyncio.gather(*(service.event("a/is_ready", id=f"e{n}") for n in range(4)))
    assert [status for status, _ in answers] == [202] * 4
    await until(lambda: ended(service))
    await asyncio.sleep(0.3)
    assert (await service.folio()).status == "DONE"
    assert service.calls == 12  # one classification and one extraction each
    assert service.lines.stages().count("DONE") == 1
    assert service.lines.stages().count("PROCESSING_START") == 1


async def test_2_event_during_the_first_listing_requests_another(
    new_service: NewService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that arrives after the listing has passed is found by another listing."""
    service, other = await new_service(), await new_service()
    service.fill("a", 2)
    listed, whole = 0, LocalBucket.list

    async def slow(self: LocalBucket, prefix: str) -> AsyncIterator[Blob]:
        nonlocal listed
        listed += 1
        async for blob in whole(self, prefix):
            yield blob
        if listed == 2:  # a listing looks for flags of subfolders first
            service.put("a/late.pdf")
            await other.records.insert([from_command("gs://bkt/a")])
            await other.run()

    monkeypatch.setattr(LocalBucket, "list", slow)
    await service.process("gs://bkt/a")
    folio = await service.folio()
    assert (folio.status, folio.total_docs, listed) == ("DONE", 3, 4)
    assert service.calls == 6
    assert service.lines.stages().count("PROCESSING_START") == 1


async def test_2_reprocess_takes_new_and_changed_documents(
    service: DocumentsService,
) -> None:
    service.fill("a", 3)
    await service.process("gs://bkt/a")
    first = {d.gcs_uri: d for d in await service.docs()}
    service.put("a/doc00001.pdf", "%PDF-1.4\n%class=cash_flow\nother content\n")
    service.put("a/new.pdf", "%PDF-1.4\n%class=income_statement\n")
    (service.folder / "a/doc00002.pdf").unlink()
    service.simulator.reset()
    answer = await service.process("gs://bkt/a", reprocess=True)
    assert answer["outcome"] == "ok"
    assert answer["counters"] == {"total_docs": 3, "processed_docs": 3, "DONE": 3, "ERROR": 0}
    assert service.calls == 4  # the changed and the new document
    folio = await service.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 3, 3)
    steps = await service.runtime.store.history(Ref(Folio.kind, folio.id))
    again = [s.reason for s in steps if s.frm == "DONE" and s.to == "PROCESSING"]
    assert [load(str(reason)) for reason in again] == ["reprocess"]
    kept = next(d for d in await service.docs() if d.gcs_uri.endswith("doc00000.pdf"))
    assert kept.updated_at == first["gs://bkt/a/doc00000.pdf"].updated_at
    versions = [d for d in await service.docs() if d.gcs_uri.endswith("doc00001.pdf")]
    assert sorted((d.status, d.doc_type) for d in versions) == [
        ("DONE", "cash_flow"),
        ("SUPERSEDED", "balance_sheet"),
    ]


async def test_2_force_replaces_extractions_of_unchanged_documents(
    service: DocumentsService,
) -> None:
    service.fill("a", 2)
    await service.process("gs://bkt/a")
    before = {e.id for e in await service.extractions()}
    service.simulator.reset()
    answer = await service.process("gs://bkt/a", force=True)
    assert answer["outcome"] == "ok"
    assert service.calls == 4
    after = await service.extractions()
    assert len(after) == len(before) == 4
    assert not before & {e.id for e in after}
    doc = (await service.docs())[0]
    steps = await service.runtime.store.history(doc.ref)
    assert "reprocess" in [load(str(s.reason)) for s in steps]


@pytest.mark.parametrize("policy", ["retry", "ignore"])
async def test_2_event_for_a_folder_in_error_follows_the_policy(
    new_service: NewService, policy: str
) -> None:
    service = await new_service(serve=True, DOCUMENTS_ON_ERROR=policy)
    service.fill("a", 2)
    service.simulator.order(
        "/v1",
        times=2,
        match="classifier",
        status=400,
        body={"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}},
    )
    await service.event("a/is_ready", id="1")
    await service.run()
    assert (await service.folio()).status == "ERROR"
    await service.event("a/is_ready", id="2")
    await service.run()
    folio = await service.folio()
    assert (folio.status, folio.error_type) == (
        ("DONE", None) if policy == "retry" else ("ERROR", "too_many_errors")
    )
    assert folio.eventarc_event_id == ("2" if policy == "retry" else "1")


async def test_2_event_while_processing_retries_failed_documents(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True, worker=True, MAX_CONCURRENT_DOCS=1)
    service.fill("a", 4)
    service.simulator.order(
        "/v1",
        times=1,
        status=400,
        body={"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}},
    )
    service.simulator.delay = 0.25
    await service.event("a/is_ready", id="1")

    async def one_failed() -> bool:
        return any(d.status == "ERROR" for d in await service.docs())

    await until(one_failed)
    await service.event("a/is_ready", id="2")
    await until(lambda: ended(service))
    assert (await service.folio()).status == "DONE"
    assert {d.status for d in await service.docs()} == {"DONE"}
    assert service.calls == 9  # two calls each, and the one that failed


# 3: listing


async def test_3_pdfs_are_recognized_by_their_bytes(
    service: DocumentsService,
) -> None:
    service.put("a/is_ready", b"")
    service.put("a/statement.dat", "%PDF-1.4\n%class=balance_sheet\n")
    service.put("a/sub/inner.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    service.put("a/letter.pdf", "not a pdf at all")
    service.put("a/notes.txt", "hello")
    service.put("a/empty.pdf", b"")
    service.put("a/blank", b"")
    service.put("ab/elsewhere.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    await service.process("gs://bkt/a")
    assert [(d.gcs_uri, d.status, d.error_type) for d in await service.docs()] == [
        ("gs://bkt/a/empty.pdf", "ERROR", "bad_pdf"),
        ("gs://bkt/a/letter.pdf", "ERROR", "bad_pdf"),
        ("gs://bkt/a/statement.dat", "DONE", None),
        ("gs://bkt/a/sub/inner.pdf", "DONE", None),
    ]
    folio = await service.folio()
    assert folio.total_docs == 4
    assert {(i["uri"], i["reason"]) for i in folio.ignored} == {
        ("gs://bkt/a/notes.txt", "not a PDF"),
        ("gs://bkt/a/blank", "empty"),
    }
    assert any("ignored gs://bkt/a/notes.txt" in line["message"] for line in service.lines.parsed)


async def test_3_names_of_any_kind_are_unchanged(new_service: NewService) -> None:
    service = await new_service(serve=True)
    names = [
        "Año 2026/Nº 1 (señal) & más.pdf",
        "a#b?c=d%20e.pdf",
        "ma\u0301s.PDF",
        "sub/más/日本 🏦.pdf",
        "-",
        "..pdf",
        "q'uote\".pdf",
    ]
    for number, name in enumerate(names):
        service.put(f"caso ñ/{name}", f"%PDF-1.4\n%class=balance_sheet\n%{number}\n")
    (service.folder / os.fsdecode(b"caso \xc3\xb1/caf\xe9.pdf")).write_bytes(
        b"%PDF-1.4\n%class=balance_sheet\n"
    )
    await service.event("caso ñ/is_ready")
    await service.run()
    folio = await service.folio()
    assert (folio.status, folio.total_docs, folio.folder_prefix) == ("DONE", len(names), "caso ñ")
    docs = await service.docs()
    assert sorted(d.gcs_uri for d in docs) == sorted(f"gs://bkt/caso ñ/{name}" for name in names)
    assert folio.ignored == [
        {"uri": "gs://bkt/caso ñ/caf\\udce9.pdf", "reason": "its name is not UTF-8"}
    ]
    for doc in docs:
        assert (await service.get(f"/documents/{doc.folio_id}/{doc.slug}"))[0] == 200


@ONE_STORE
async def test_3_flags_are_no_documents(
    new_service: NewService,
) -> None:
    service = await new_service()
    service.fill("a", 1)
    service.put("a/is_ready", "%PDF-1.4 whatever is in it")
    service.put("a/sub/is_ready", b"")
    await service.process("gs://bkt/a")
    folio = await service.folio()
    assert (folio.total_docs, folio.ignored) == (
        1,
        [
            {
                "uri": "gs://bkt/a/sub/is_ready",
                "reason": "the flag of a subfolder, which is a folder of its own",
            }
        ],
    )


async def test_3_empty_folder_ends_done(service: DocumentsService) -> None:
    service.put("a/is_ready", b"")
    answer = await service.process("gs://bkt/a")
    assert (answer["outcome"], answer["counters"]["total_docs"]) == ("ok", 0)
    folio = await service.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 0, 0)
    assert any(
        "0 documents" in line["message"] and line.get("stage") == "PROCESSING_START"
        for line in service.lines.parsed
    )


async def test_3_bucket_of_a_file_uri_is_its_parent(service: DocumentsService) -> None:
    service.fill("x/caso", 1)
    answer = await service.process(f"file://{service.folder}/x/caso")
    assert answer["outcome"] == "ok"
    folio = await service.folio()
    assert (folio.bucket, folio.folder_prefix) == (str(service.folder / "x"), "caso")
    assert (await service.docs())[0].gcs_uri == f"file://{service.folder}/x/caso/doc00000.pdf"


async def test_3_links_out_of_the_bucket_are_not_followed(
    service: DocumentsService, tmp_path: Any
) -> None:
    secret = tmp_path / "secret.pdf"
    secret.write_bytes(b"%PDF-1.4\n%class=other\n")
    service.fill("a", 1)
    (service.folder / "a/link.pdf").symlink_to(secret)
    await service.process("gs://bkt/a")
    assert len(await service.docs()) == 1
    assert (await service.folio()).ignored == [
        {
            "uri": "gs://bkt/a/link.pdf",
            "reason": "gs://bkt/a/link.pdf is a link to a place outside the bucket",
        }
    ]


@ONE_STORE
async def test_3_circular_links_are_ignored(
    service: DocumentsService,
) -> None:
    service.fill("a", 1)
    (service.folder / "a/one.pdf").symlink_to("two.pdf")
    (service.folder / "a/two.pdf").symlink_to("one.pdf")
    assert (await service.process("gs://bkt/a"))["outcome"] == "ok"
    assert len(await service.docs()) == 1
    assert [one["uri"] for one in (await service.folio()).ignored] == [
        "gs://bkt/a/one.pdf",
        "gs://bkt/a/two.pdf",
    ]


@ONE_STORE
async def test_3_unreadable_subfolder_fails_the_listing(
    service: DocumentsService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.fill("a/b", 2)
    whole, broken = os.scandir, [True]

    def scandir(path: Any) -> Any:
        if str(path).endswith("a/b") and broken:
            broken.pop()
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert (await service.process("gs://bkt/a"))["outcome"] == "ok"
    assert len(await service.docs()) == 2
    assert "storage_error" in [line.get("error_type") for line in service.lines.parsed]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///data/caso #3", ("/data", "caso #3")),
        ("file:///data/¿listo?", ("/data", "¿listo?")),
        ("file:///data/a%20b/", ("/data", "a b")),
        ("file:/data/x", ("/data", "x")),
        ("file://localhost/data/x", ("/data", "x")),
        ("GS://bkt/a/b/", ("bkt", "a/b")),
        ("gs://bkt/a#1?", ("bkt", "a#1?")),
    ],
)
def test_3_folder_uri_may_contain_any_name(uri: str, expected: tuple[str, str]) -> None:
    assert parse_uri(uri) == expected


@pytest.mark.parametrize(
    "uri",
    ["file://host/data/x", "file:///", "gs://bkt", "gs:///x", "gs://[", "file:x", "/data/x", ""],
)
def test_3_invalid_folder_uri_is_refused(uri: str) -> None:
    with pytest.raises(BadUri, match="is not a folder"):
        parse_uri(uri)


def test_3_folders_may_disappear_during_the_search_for_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "here", "late"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "is_ready").touch()
    whole = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("gone"):
            shutil.rmtree(path)
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [signal.folder_prefix for signal in from_flags(tmp_path)] == ["here", "late"]


# 7: closing


@pytest.mark.parametrize(
    ("bad", "status", "outcome"),
    [(0, "DONE", "ok"), (1, "DONE_WITH_ERRORS", "partial"), (2, "ERROR", "partial")],
)
async def test_7_folder_closes_once_by_the_share_of_errors(
    service: DocumentsService, bad: int, status: str, outcome: str
) -> None:
    service.fill("a", 4 - bad)
    for n in range(bad):
        service.put(f"a/bad{n}.pdf", "%PDF-1.4 this is broken")
    answer = await service.process("gs://bkt/a")
    assert answer["outcome"] == outcome
    folio = await service.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == (status, 4, 4)
    steps = await service.runtime.store.history(Ref(Folio.kind, folio.id))
    assert [s.to for s in steps if s.to != s.frm] == ["PROCESSING", status]
    assert [s for s in service.lines.stages() if not s.startswith(("DOC_", "PROCESSING_IN"))] == [
        "INIT",
        "LISTING",
        "PROCESSING_START",
        "FINALIZING",
        status,
    ]


async def test_7_folder_level_failure_ends_in_error_with_a_dead_letter(
    new_service: NewService,
) -> None:
    service = await new_service(DOCUMENTS_LOCAL_BUCKETS="bkt=/nowhere/at/all", DLQ_TOPIC="dlq")
    answer = await service.process("gs://bkt/a")
    assert answer["outcome"] == "error"
    folio = await service.folio()
    assert (folio.status, folio.error_type) == ("ERROR", "bucket_not_found")
    letter = (await service.letters())[0]
    assert letter.payload["gcs_uri"] is None
    assert {
        "bucket",
        "folder_prefix",
        "folio_id",
        "error_type",
        "error_message",
        "attempts",
        "timestamp",
    } <= set(letter.payload)
    assert (await service.messages())[0].data == letter.payload
    assert service.lines.stages()[-1] == "ERROR"


async def test_7_several_workers_close_a_folder_once(new_service: NewService) -> None:
    offices = [await new_service() for _ in range(3)]
    offices[0].fill("a", 20)
    await asyncio.gather(*(service.process("gs://bkt/a") for service in offices))
    folio = await offices[0].folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 20, 20)
    steps = await offices[0].runtime.store.history(Ref(Folio.kind, folio.id))
    assert sum(s.to == "DONE" for s in steps) == 1
    assert offices[0].lines.stages().count("DONE") == 1
    assert offices[0].calls == 40
    assert len(await offices[0].extractions()) == 40


async def test_7_operator_retry_of_a_document_reopens_its_folder(
    service: DocumentsService,
) -> None:
    service.fill("a", 4)
    service.simulator.order(
        "/v1",
        times=1,
        status=400,
        body={"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}},
    )
    await service.process("gs://bkt/a")
    assert (await service.folio()).status == "DONE_WITH_ERRORS"
    acted = await service.runtime.operations("ana").redrive(
        reason="the processor was repaired", where={"table_name": "documentos"}
    )
    assert acted.moved == 1
    await asyncio.sleep(1.1)  # the worker's knowledge of the folder is at most one second old
    await service.run()
    folio = await service.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 4, 4)
    assert {d.status for d in await service.docs()} == {"DONE"}
