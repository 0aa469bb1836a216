"""Folders: trigger, re-entry, listing, closing. The numbers are those of the spec's behaviour."""

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
from pipelines.documents.conftest import NewOffice, Office, headers, until

from esclusa.engine.operations import Operations
from esclusa.model.record import Ref
from esclusa.pipelines.documents.buckets import BadUri, Blob, LocalBucket, parse_uri
from esclusa.pipelines.documents.records import Folio, Signal
from esclusa.pipelines.documents.folder_signals import from_command, from_flags

ONE_STORE = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
"""For what never reaches the store."""


async def ended(office: Office) -> bool:
    found = (await office.records.find(Folio)).items
    return bool(found) and all(f.status in ("DONE", "DONE_WITH_ERRORS", "ERROR") for f in found)


# 1: the trigger


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_1_an_event_in_either_mode_starts_its_folder_and_it_goes_on_by_itself(
    new_office: NewOffice, mode: str
) -> None:
    office = await new_office(serve=True, worker=True)
    office.fill("2026/caso-1", 3)
    if mode == "binary":
        status, body = await office.event("2026/caso-1/is_ready", id="evt-7")
    else:
        event = {name.removeprefix("ce-"): value for name, value in headers("evt-7").items()}
        event |= {"data": {"bucket": "bkt", "name": "2026/caso-1/is_ready", "size": 0}}
        status, body = await office.post(
            "/events/storage",
            data=json.dumps(event),
            headers={"Content-Type": "application/cloudevents+json"},
        )
    assert status == 202
    assert body["accepted"] is True
    await until(lambda: ended(office))
    folio = await office.folio()
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
async def test_1_anything_else_is_answered_and_does_nothing(
    new_office: NewOffice, name: str, more: dict[str, Any]
) -> None:
    office = await new_office(serve=True)
    status, body = await office.event(name, **more)
    assert status == 200
    assert body["accepted"] is False
    assert body["reason"]
    assert (await office.records.find(Signal)).items == []


@ONE_STORE
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": b"{"}, "not JSON"),
        ({"headers": {}, "json": {}}, "no CloudEvent"),
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
async def test_1_a_malformed_event_is_a_400_that_says_why(
    new_office: NewOffice, options: dict[str, Any], said: str
) -> None:
    office = await new_office(serve=True)
    if "data" in options and "headers" not in options:
        options["headers"] = headers()
    if "json" in options and "headers" not in options:
        options["headers"] = headers()
    status, body = await office.post("/events/storage", **options)
    assert status == 400
    assert said in body["detail"]
    assert body["type"].endswith("bad-event")


# 2: re-entry


async def test_2_a_done_folder_ignores_events_and_the_same_event_is_heard_once(
    new_office: NewOffice,
) -> None:
    office = await new_office(serve=True)
    office.fill("a", 2)
    for _ in range(2):
        assert (await office.event("a/is_ready", id="same"))[0] == 202
    assert len((await office.records.find(Signal)).items) == 1
    await office.run()
    calls = sum(office.simulator.counts.values())
    await office.event("a/is_ready", id="another")
    await office.run()
    assert (await office.folio()).status == "DONE"
    assert sum(office.simulator.counts.values()) == calls
    signals = {s.eventarc_event_id: s.answer for s in (await office.records.find(Signal)).items}
    assert signals == {"same": "new", "another": "ignored: DONE"}


async def test_2_two_events_at_once_are_one_processing(new_office: NewOffice) -> None:
    office = await new_office(serve=True, worker=True)
    office.fill("a", 6)
    office.simulator.delay = 0.05
    answers = await asyncio.gather(*(office.event("a/is_ready", id=f"e{n}") for n in range(4)))
    assert [status for status, _ in answers] == [202] * 4
    await until(lambda: ended(office))
    await asyncio.sleep(0.3)
    assert (await office.folio()).status == "DONE"
    assert sum(office.simulator.counts.values()) == 12  # one classification and one extraction each
    assert office.lines.stages().count("DONE") == 1
    assert office.lines.stages().count("PROCESSING_START") == 1


async def test_2_an_event_during_the_first_listing_makes_another_one(
    new_office: NewOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came after the listing had passed is found: the other worker hears the event while this one lists."""
    office, other = await new_office(), await new_office()
    office.fill("a", 2)
    listed, whole = 0, LocalBucket.list

    async def slow(self: LocalBucket, prefix: str) -> AsyncIterator[Blob]:
        nonlocal listed
        listed += 1
        async for blob in whole(self, prefix):
            yield blob
        if listed == 1:
            office.put("a/late.pdf")
            await other.records.insert([from_command("gs://bkt/a")])
            await other.run()

    monkeypatch.setattr(LocalBucket, "list", slow)
    await office.process("gs://bkt/a")
    folio = await office.folio()
    assert (folio.status, folio.total_docs, listed) == ("DONE", 3, 2)
    assert sum(office.simulator.counts.values()) == 6
    assert office.lines.stages().count("PROCESSING_START") == 1


async def test_2_reprocess_takes_new_and_changed_documents_and_leaves_the_others(
    office: Office,
) -> None:
    office.fill("a", 3)
    await office.process("gs://bkt/a")
    first = {d.gcs_uri: d for d in await office.docs()}
    office.put("a/doc00001.pdf", "%PDF-1.4\n%class=cash_flow\nother content\n")
    office.put("a/new.pdf", "%PDF-1.4\n%class=income_statement\n")
    (office.folder / "a/doc00002.pdf").unlink()
    office.simulator.reset()
    answer = await office.process("gs://bkt/a", reprocess=True)
    assert answer["outcome"] == "ok"
    assert answer["counters"] == {"total_docs": 3, "processed_docs": 3, "DONE": 3, "ERROR": 0}
    assert sum(office.simulator.counts.values()) == 4  # the changed one and the new one
    folio = await office.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 3, 3)
    steps = await office.runtime.store.history(Ref(Folio.kind, folio.id))
    assert [s.reason for s in steps if s.frm == "DONE" and s.to == "PROCESSING"] == ["reprocess"]
    kept = next(d for d in await office.docs() if d.gcs_uri.endswith("doc00000.pdf"))
    assert kept.updated_at == first["gs://bkt/a/doc00000.pdf"].updated_at
    versions = [d for d in await office.docs() if d.gcs_uri.endswith("doc00001.pdf")]
    assert sorted((d.superseded, d.doc_type) for d in versions) == [
        (0, "cash_flow"),
        (1, "balance_sheet"),
    ]


async def test_2_force_does_unchanged_documents_again_and_their_old_extractions_go(
    office: Office,
) -> None:
    office.fill("a", 2)
    await office.process("gs://bkt/a")
    before = {e.id for e in await office.extractions()}
    office.simulator.reset()
    answer = await office.process("gs://bkt/a", force=True)
    assert answer["outcome"] == "ok"
    assert sum(office.simulator.counts.values()) == 4
    after = await office.extractions()
    assert len(after) == len(before) == 4
    assert not before & {e.id for e in after}
    doc = (await office.docs())[0]
    steps = await office.runtime.store.history(doc.ref)
    assert "reprocess" in [s.reason for s in steps]


@pytest.mark.parametrize("policy", ["retry", "ignore"])
async def test_2_an_event_for_a_folder_in_error_is_by_policy(
    new_office: NewOffice, policy: str
) -> None:
    office = await new_office(serve=True, DOCUMENTS_ON_ERROR=policy)
    office.fill("a", 2)
    office.simulator.order(
        "/v1",
        times=2,
        match="classifier",
        status=400,
        body={"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}},
    )
    await office.event("a/is_ready", id="1")
    await office.run()
    assert (await office.folio()).status == "ERROR"
    await office.event("a/is_ready", id="2")
    await office.run()
    folio = await office.folio()
    assert (folio.status, folio.error_type) == (
        ("DONE", None) if policy == "retry" else ("ERROR", "too_many_errors")
    )
    assert folio.eventarc_event_id == ("2" if policy == "retry" else "1")


async def test_2_an_event_while_processing_tries_failed_documents_again_and_leaves_done_ones(
    new_office: NewOffice,
) -> None:
    office = await new_office(serve=True, worker=True, MAX_CONCURRENT_DOCS=1)
    office.fill("a", 4)
    office.simulator.order(
        "/v1",
        times=1,
        status=400,
        body={"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}},
    )
    office.simulator.delay = 0.25
    await office.event("a/is_ready", id="1")

    async def one_failed() -> bool:
        return any(d.status == "ERROR" for d in await office.docs())

    await until(one_failed)
    await office.event("a/is_ready", id="2")
    await until(lambda: ended(office))
    assert (await office.folio()).status == "DONE"
    assert {d.status for d in await office.docs()} == {"DONE"}
    assert sum(office.simulator.counts.values()) == 9  # two calls each, and the one that failed


# 3: listing


async def test_3_pdfs_are_known_by_their_bytes_and_the_rest_is_ignored_by_name(
    office: Office,
) -> None:
    office.put("a/is_ready", b"")
    office.put("a/statement.dat", "%PDF-1.4\n%class=balance_sheet\n")
    office.put("a/sub/inner.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    office.put("a/letter.pdf", "not a pdf at all")
    office.put("a/notes.txt", "hello")
    office.put("a/empty.pdf", b"")
    office.put("ab/elsewhere.pdf", "%PDF-1.4\n%class=balance_sheet\n")
    await office.process("gs://bkt/a")
    assert [d.gcs_uri for d in await office.docs()] == [
        "gs://bkt/a/statement.dat",
        "gs://bkt/a/sub/inner.pdf",
    ]
    folio = await office.folio()
    assert folio.total_docs == 2
    assert {(i["uri"], i["reason"]) for i in folio.ignored} == {
        ("gs://bkt/a/letter.pdf", "not a PDF"), ("gs://bkt/a/notes.txt", "not a PDF"), ("gs://bkt/a/empty.pdf", "empty"),
    }  # fmt: skip
    assert any("ignored gs://bkt/a/notes.txt" in line["message"] for line in office.lines.parsed)


async def test_3_names_of_any_kind_are_kept_as_they_are(new_office: NewOffice) -> None:
    office = await new_office(serve=True)
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
        office.put(f"caso ñ/{name}", f"%PDF-1.4\n%class=balance_sheet\n%{number}\n")
    (office.folder / os.fsdecode(b"caso \xc3\xb1/caf\xe9.pdf")).write_bytes(
        b"%PDF-1.4\n%class=balance_sheet\n"
    )
    await office.event("caso ñ/is_ready")
    await office.run()
    folio = await office.folio()
    assert (folio.status, folio.total_docs, folio.folder_prefix) == ("DONE", len(names), "caso ñ")
    docs = await office.docs()
    assert sorted(d.gcs_uri for d in docs) == sorted(f"gs://bkt/caso ñ/{name}" for name in names)
    assert folio.ignored == [
        {"uri": "gs://bkt/caso ñ/caf\\udce9.pdf", "reason": "its name is not UTF-8"}
    ]
    for doc in docs:
        assert (await office.get(f"/documents/{doc.folio_id}/{doc.slug}"))[0] == 200


@ONE_STORE
async def test_3_a_folders_own_flag_is_no_object_and_one_inside_is_ignored(
    new_office: NewOffice,
) -> None:
    office = await new_office()
    office.fill("a", 1)
    office.put("a/is_ready", "%PDF-1.4 whatever is in it")
    office.put("a/sub/is_ready", b"")
    await office.process("gs://bkt/a")
    folio = await office.folio()
    assert (folio.total_docs, folio.ignored) == (
        1,
        [{"uri": "gs://bkt/a/sub/is_ready", "reason": "the flag of a folder inside"}],
    )


async def test_3_an_empty_folder_ends_done_with_no_documents(office: Office) -> None:
    office.put("a/is_ready", b"")
    answer = await office.process("gs://bkt/a")
    assert (answer["outcome"], answer["counters"]["total_docs"]) == ("ok", 0)
    folio = await office.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 0, 0)
    assert any(
        "0 documents" in line["message"] and line.get("stage") == "PROCESSING_START"
        for line in office.lines.parsed
    )


async def test_3_a_file_uri_has_its_parent_as_bucket(office: Office) -> None:
    office.fill("x/caso", 1)
    answer = await office.process(f"file://{office.folder}/x/caso")
    assert answer["outcome"] == "ok"
    folio = await office.folio()
    assert (folio.bucket, folio.folder_prefix) == (str(office.folder / "x"), "caso")
    assert (await office.docs())[0].gcs_uri == f"file://{office.folder}/x/caso/doc00000.pdf"


async def test_3_links_that_lead_out_of_the_bucket_are_not_followed(
    office: Office, tmp_path: Any
) -> None:
    secret = tmp_path / "secret.pdf"
    secret.write_bytes(b"%PDF-1.4\n%class=other\n")
    office.fill("a", 1)
    (office.folder / "a/link.pdf").symlink_to(secret)
    await office.process("gs://bkt/a")
    assert len(await office.docs()) == 1
    assert (await office.folio()).ignored == [
        {
            "uri": "gs://bkt/a/link.pdf",
            "reason": "gs://bkt/a/link.pdf is a link that leads to no object of the bucket",
        }
    ]


@ONE_STORE
async def test_3_links_in_a_circle_are_no_objects_and_harm_no_others(office: Office) -> None:
    office.fill("a", 1)
    (office.folder / "a/one.pdf").symlink_to("two.pdf")
    (office.folder / "a/two.pdf").symlink_to("one.pdf")
    assert (await office.process("gs://bkt/a"))["outcome"] == "ok"
    assert len(await office.docs()) == 1
    assert [one["uri"] for one in (await office.folio()).ignored] == [
        "gs://bkt/a/one.pdf",
        "gs://bkt/a/two.pdf",
    ]


@ONE_STORE
async def test_3_a_part_of_a_folder_that_cannot_be_read_is_no_empty_one(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.fill("a/b", 2)
    whole, broken = os.scandir, [True]

    def scandir(path: Any) -> Any:
        if str(path).endswith("a/b") and broken:
            broken.pop()
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return whole(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert (await office.process("gs://bkt/a"))["outcome"] == "ok"
    assert len(await office.docs()) == 2
    assert "storage_error" in [line.get("error_type") for line in office.lines.parsed]


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
def test_3_the_address_of_a_folder_holds_whatever_its_name_does(
    uri: str, expected: tuple[str, str]
) -> None:
    assert parse_uri(uri) == expected


@pytest.mark.parametrize(
    "uri",
    ["file://host/data/x", "file:///", "gs://bkt", "gs:///x", "gs://[", "file:x", "/data/x", ""],
)
def test_3_what_is_no_address_of_a_folder_is_said_so(uri: str) -> None:
    with pytest.raises(BadUri, match="is not a folder"):
        parse_uri(uri)


def test_3_folders_may_go_while_flags_are_looked_for(
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
async def test_7_a_folder_closes_once_by_the_share_of_errors(
    office: Office, bad: int, status: str, outcome: str
) -> None:
    office.fill("a", 4 - bad)
    for n in range(bad):
        office.put(f"a/bad{n}.pdf", "%PDF-1.4 this is broken")
    answer = await office.process("gs://bkt/a")
    assert answer["outcome"] == outcome
    folio = await office.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == (status, 4, 4)
    steps = await office.runtime.store.history(Ref(Folio.kind, folio.id))
    assert [s.to for s in steps if s.to != s.frm] == ["PROCESSING", status]
    assert [s for s in office.lines.stages() if not s.startswith(("DOC_", "PROCESSING_IN"))] == [
        "INIT", "LISTING", "PROCESSING_START", "FINALIZING", status,
    ]  # fmt: skip


async def test_7_a_folder_level_failure_ends_in_error_with_a_dead_letter(
    new_office: NewOffice,
) -> None:
    office = await new_office(DOCUMENTS_LOCAL_BUCKETS="bkt=/nowhere/at/all", DLQ_TOPIC="dlq")
    answer = await office.process("gs://bkt/a")
    assert answer["outcome"] == "error"
    folio = await office.folio()
    assert (folio.status, folio.error_type) == ("ERROR", "bucket_not_found")
    letter = (await office.letters())[0]
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
    assert (await office.messages())[0].data == letter.payload
    assert office.lines.stages()[-1] == "ERROR"


async def test_7_many_workers_close_a_folder_once(new_office: NewOffice) -> None:
    offices = [await new_office() for _ in range(3)]
    offices[0].fill("a", 20)
    await asyncio.gather(*(office.process("gs://bkt/a") for office in offices))
    folio = await offices[0].folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 20, 20)
    steps = await offices[0].runtime.store.history(Ref(Folio.kind, folio.id))
    assert sum(s.to == "DONE" for s in steps) == 1
    assert offices[0].lines.stages().count("DONE") == 1
    assert sum(offices[0].simulator.counts.values()) == 40
    assert len(await offices[0].extractions()) == 40


async def test_7_an_operators_retry_of_a_document_opens_its_folder_and_closes_it_anew(
    office: Office,
) -> None:
    office.fill("a", 4)
    office.simulator.order(
        "/v1",
        times=1,
        status=400,
        body={"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}},
    )
    await office.process("gs://bkt/a")
    assert (await office.folio()).status == "DONE_WITH_ERRORS"
    acted = await Operations(office.runtime.engine, "ana").redrive(
        reason="the processor was mended", where={"table_name": "documentos"}
    )
    assert acted.moved == 1
    await asyncio.sleep(1.1)  # what the worker knows of the folder is a second old at most
    await office.run()
    folio = await office.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE", 4, 4)
    assert {d.status for d in await office.docs()} == {"DONE"}
