"""Reception of a folder: recorded at once, logged, progress, flags, subfolders with flags."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pipelines.documents.conftest import DocumentsService, NewService, headers, until

from esclusa.pipelines.documents.folder_signals import from_flags
from esclusa.pipelines.documents.records import FolderSignal, Folio

ONE_STORE = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


async def folders(service: DocumentsService) -> dict[str, Folio]:
    return {folio.folder_prefix: folio for folio in (await service.records.find(Folio)).items}


def calls(service: DocumentsService) -> int:
    return service.calls


async def test_folder_is_recorded_and_logged_when_the_event_is_answered(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True)  # no worker
    service.fill("a", 1)
    status, body = await service.event("a/is_ready", id="e-1")
    folio = await service.folio()
    assert (status, body["folio_id"], folio.status) == (202, folio.folio_id, "PENDING")
    assert (folio.bucket, folio.folder_prefix, folio.eventarc_event_id) == ("bkt", "a", "e-1")
    [init] = [line for line in service.lines.parsed if line.get("stage") == "INIT"]
    assert (init["folio_id"], init["eventarc_event_id"], init["execution_id"]) == (
        folio.folio_id,
        "e-1",
        folio.execution_id,
    )
    await service.run()
    assert (await service.folio()).status == "DONE"
    assert service.lines.stages().count("INIT") == 1


@ONE_STORE
async def test_event_for_a_folder_that_has_not_begun_lists_it_once(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True)
    service.fill("a", 1)
    for id in ("e-1", "e-2", "e-1"):
        await service.event("a/is_ready", id=id)
    await service.run()
    assert service.lines.stages().count("LISTING") == 1
    answers = {
        s.eventarc_event_id: s.answer for s in (await service.records.find(FolderSignal)).items
    }
    assert answers == {"e-1": "new", "e-2": "not begun yet"}


@ONE_STORE
@pytest.mark.parametrize(
    ("name", "more", "reason"),
    [
        ("a/x.pdf", {}, "'a/x.pdf' is not {folder_prefix}/is_ready"),
        ("a/IS_READY", {}, "'a/IS_READY' is not {folder_prefix}/is_ready"),
        ("a/is_ready", {"headers": headers(type="google.cloud.storage.object.v1.deleted")}, "type"),
    ],
)
async def test_ignored_event_is_logged_with_its_reason(
    new_service: NewService, name: str, more: dict[str, Any], reason: str
) -> None:
    service = await new_service(serve=True)
    status, _ = await service.event(name, **more)
    assert status == 200
    [line] = [one for one in service.lines.parsed if "event ignored" in one["message"]]
    assert line["reason"].startswith(reason)
    assert (line["eventarc_event_id"], line["service_name"]) == (
        "e-1",
        "apolo-procesamiento-inteligente-preavaluo",
    )


@ONE_STORE
async def test_event_for_a_finished_folder_is_logged_with_its_reason(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True)
    service.fill("a", 1)
    for id in ("e-1", "e-2"):
        await service.event("a/is_ready", id=id)
        await service.run()
    [line] = [one for one in service.lines.parsed if one.get("reason") == "the folder is DONE"]
    assert line["eventarc_event_id"] == "e-2"


# progress


async def test_quick_folder_logs_its_progress_before_it_is_finalized(
    service: DocumentsService,
) -> None:
    service.fill("a", 3)
    await service.process("gs://bkt/a")
    stages = [s for s in service.lines.stages() if not s.startswith("DOC_")]
    assert stages[:3] == ["INIT", "LISTING", "PROCESSING_START"]
    assert stages[-3:] == ["PROCESSING_IN_PROGRESS", "FINALIZING", "DONE"]
    last = [line for line in service.lines.parsed if line.get("stage") == "PROCESSING_IN_PROGRESS"][
        -1
    ]
    assert (last["processed_docs"], last["total_docs"]) == (3, 3)


@ONE_STORE
async def test_progress_is_logged_at_most_once_a_second(new_service: NewService) -> None:
    service = await new_service(MAX_CONCURRENT_DOCS=1)
    service.fill("a", 12)
    service.simulator.delay = 0.12
    await service.process("gs://bkt/a")
    lines = [x for x in service.lines.parsed if x.get("stage") == "PROCESSING_IN_PROGRESS"]
    counts = [line["processed_docs"] for line in lines]
    assert counts == sorted(set(counts))
    times = [datetime.fromisoformat(line["time"]) for line in lines]
    gaps = [(b - a).total_seconds() for a, b in pairwise(times[:-1])]
    assert all(gap >= 0.99 for gap in gaps)  # the last line may come before FINALIZING


# flags


@pytest.mark.parametrize("name", ["IS_READY", "Is_Ready", "is_ready"])
async def test_flag_in_any_case_by_a_setting(new_service: NewService, name: str) -> None:
    service = await new_service(serve=True, worker=True, DOCUMENTS_FLAG_ANY_CASE="true")
    service.fill("a", 1)
    service.put("a/IS_READY", b"")
    service.put("a/is_ready", b"")
    assert (await service.event(f"a/{name}"))[0] == 202

    async def done() -> bool:
        return (await service.folio()).status == "DONE"

    await until(done)
    folio = await service.folio()
    assert (folio.total_docs, folio.ignored) == (1, [])


@ONE_STORE
async def test_flag_with_content_needs_its_setting(new_service: NewService) -> None:
    body = {"bucket": "bkt", "name": "a/is_ready", "size": "3"}
    strict = await new_service(serve=True)
    assert (await strict.event("a/is_ready", json=body))[0] == 200
    lenient = await new_service(serve=True, DOCUMENTS_FLAG_ANY_SIZE="true")
    assert (await lenient.event("a/is_ready", json=body))[0] == 202


@ONE_STORE
async def test_flag_in_the_root_stands_for_the_bucket_when_it_is_taken_over(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True, DOCUMENTS_TAKE_OVER="apolo")
    service.put("x.pdf")
    service.put("sub/y.pdf")
    assert (await service.event("IS_READY"))[0] == 202
    await service.run()
    folio = await service.folio()
    assert (folio.status, folio.folder_prefix, folio.total_docs) == ("DONE", "", 2)


def test_several_spellings_in_one_folder_are_one_flag(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("is_ready", "IS_READY"):
        (tmp_path / "a" / name).touch()
    from esclusa.pipelines.documents.buckets import FlagRule

    found = from_flags(tmp_path, FlagRule(any_case=True))
    assert [signal.folder_prefix for signal in found] == ["a"]


# subfolders with a flag of their own


def nested(service: DocumentsService, *, flag: bool) -> None:
    service.fill("a", 2)
    service.fill("a/sub", 3)
    service.fill("a/plain", 1)
    if flag:
        service.put("a/sub/is_ready", b"")


async def test_subfolder_with_a_flag_belongs_to_that_flag(service: DocumentsService) -> None:
    nested(service, flag=True)
    await service.process("gs://bkt/a")
    await service.process("gs://bkt/a/sub")
    found = await folders(service)
    assert {name: folio.total_docs for name, folio in found.items()} == {"a": 3, "a/sub": 3}
    assert {folio.status for folio in found.values()} == {"DONE"}
    assert calls(service) == 2 * 6


async def test_subfolder_that_gets_its_flag_later_is_not_paid_twice(
    service: DocumentsService,
) -> None:
    nested(service, flag=False)
    await service.process("gs://bkt/a")
    assert calls(service) == 2 * 6
    service.put("a/sub/is_ready", b"")
    await service.process("gs://bkt/a/sub")
    assert calls(service) == 2 * 6
    found = await folders(service)
    assert (found["a/sub"].status, found["a/sub"].total_docs) == ("DONE", 3)
    docs = await service.docs(folio_id=found["a/sub"].folio_id)
    assert all(d.reused_from for d in docs)
    assert len(await service.extractions(folio_id=found["a/sub"].folio_id)) == 6
    await service.process("gs://bkt/a", reprocess=True)
    assert (await folders(service))["a"].total_docs == 3
    assert calls(service) == 2 * 6


# documents that are none


async def test_file_that_is_no_pdf_is_a_document_in_error_without_a_call(
    service: DocumentsService,
) -> None:
    service.fill("a", 3)
    service.put("a/balance.pdf", "<!DOCTYPE html><html><body>Not found</body></html>")
    answer = await service.process("gs://bkt/a")
    folio = await service.folio()
    assert (answer["outcome"], folio.status, folio.total_docs) == ("partial", "DONE_WITH_ERRORS", 4)
    [bad] = await service.docs(status="ERROR")
    assert (bad.error_type, bad.attempts, bad.gcs_uri) == ("bad_pdf", 1, "gs://bkt/a/balance.pdf")
    assert "<!DOCTYPE html>" in (bad.error_message or "")
    assert calls(service) == 2 * 3


async def test_older_generation_is_superseded_and_returns_with_its_results(
    service: DocumentsService,
) -> None:
    import os

    path = service.put("a/x.pdf", "%PDF-1.4\n%class=balance_sheet\n%old\n")
    old = path.read_bytes(), path.stat()
    await service.process("gs://bkt/a")
    replaced = service.folder / "a/x.new"
    replaced.write_bytes(b"%PDF-1.4\n%class=cash_flow\n%new\n")
    kept = service.folder.parent / "kept.pdf"
    path.rename(kept)
    replaced.rename(path)
    await service.process("gs://bkt/a", reprocess=True)
    states = {d.doc_type: d.status for d in await service.docs()}
    assert states == {"balance_sheet": "SUPERSEDED", "cash_flow": "DONE"}
    path.unlink()
    kept.rename(path)
    os.utime(path, ns=(old[1].st_atime_ns, old[1].st_mtime_ns))
    before = calls(service)
    await service.process("gs://bkt/a", reprocess=True)
    states = {d.doc_type: d.status for d in await service.docs()}
    assert states == {"balance_sheet": "DONE", "cash_flow": "SUPERSEDED"}
    assert calls(service) == before
    assert (await service.folio()).total_docs == 1
