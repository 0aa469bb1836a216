"""Commands, routes, tokens, progress, and folders on Cloud Storage."""

from __future__ import annotations

import asyncio
import html
import json
import os
import subprocess
import sys
import time
from random import Random
from typing import Any

import pytest
from aiohttp import web
from conformance.databases import PROVIDERS
from pipelines.documents import statement_words, statements
from pipelines.documents.conftest import DocumentsService, NewService, headers
from support.loopback import http_server

from esclusa.model.errors import SettingsError
from esclusa.pipelines.documents.progress import Progress
from esclusa.pipelines.documents.records import Documento
from esclusa.settings import load

SQLITE = pytest.mark.parametrize("provider", ["sqlite"], indirect=True)


@pytest.fixture
def provider(request: pytest.FixtureRequest, providers: Any) -> Any:
    return providers(request.param)


def esclusa(
    service: DocumentsService, *args: str, stdin: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    env = (
        {k: v for k, v in os.environ.items() if not k.startswith(("ESCLUSA_", "DOCUMENT"))}
        | service.environ
        | environ
    )
    return subprocess.run(
        [sys.executable, "-m", "esclusa", *args],
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=service.folder.parent,
        check=False,
    )


# commands


@SQLITE
async def test_process_answers_as_a_run_and_progress_reads_its_log(
    new_service: NewService,
) -> None:
    service = await new_service()
    service.fill("a", 3)
    done = await asyncio.to_thread(esclusa, service, "documents", "process", "gs://bkt/a", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert set(answer) == {"run", "cycle", "outcome", "counters", "message", "files"}
    assert (answer["cycle"], answer["outcome"]) == ("documents.process", "ok")
    assert answer["counters"] == {"total_docs": 3, "processed_docs": 3, "DONE": 3, "ERROR": 0}
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["stage"] for line in lines if "stage" in line][-1] == "DONE"
    read = await asyncio.to_thread(
        esclusa, service, "documents", "progress", "--json", stdin=done.stderr
    )
    shown = json.loads(read.stdout)
    folio = await service.folio()
    assert (
        shown["folio_id"],
        shown["progress_pct"],
        shown["total_docs"],
        shown["processed_docs"],
    ) == (folio.folio_id, 100, 3, 3)
    again = await asyncio.to_thread(
        esclusa, service, "documents", "process", "gs://bkt/a", "--json"
    )
    assert json.loads(again.stdout)["outcome"] == "ok"
    assert "DOC_" not in again.stderr


@SQLITE
async def test_exit_codes_of_process(
    new_service: NewService,
) -> None:
    service = await new_service()
    service.fill("a", 2)
    service.put("a/bad.pdf", "%PDF-1.4 broken")
    done = await asyncio.to_thread(esclusa, service, "documents", "process", "gs://bkt/a", "--json")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (5, "partial")
    for uri in ("bkt/a", "gs://bkt", "s3://bkt/a", "gs://"):
        bad = await asyncio.to_thread(esclusa, service, "documents", "process", uri)
        assert bad.returncode == 2
        assert "gs://bucket/folder" in bad.stderr
    missing = await asyncio.to_thread(
        esclusa,
        service,
        "documents",
        "process",
        "gs://bkt/x",
        "--json",
        DOCUMENTS_LOCAL_BUCKETS="bkt=/no/where",
    )
    assert (missing.returncode, json.loads(missing.stdout)["outcome"]) == (1, "error")


@SQLITE
async def test_watch_processes_each_flag_once(
    new_service: NewService,
) -> None:
    service = await new_service()
    for name in ("x/one", "two"):
        service.fill(name, 2)
        service.put(f"{name}/is_ready", b"")
    service.fill("not-ready", 1)
    service.fill("full", 1)
    service.put("full/is_ready", "not empty")
    for _ in range(2):
        done = await asyncio.to_thread(
            esclusa, service, "documents", "watch", str(service.folder), "--once", "--every", "0.1"
        )
        assert done.returncode == 0, done.stderr
    docs = await service.docs()
    assert len(docs) == 4
    assert {d.status for d in docs} == {"DONE"}
    assert {(d.bucket, d.folder_prefix) for d in docs} == {
        (str(service.folder), "x/one"),
        (str(service.folder), "two"),
    }
    assert service.calls == 8


@SQLITE
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DOCUMENTS_EXTRACTORS", "balance_sheet", "DOCUMENTS_EXTRACTORS"),
        ("DOCUMENTS_LOCAL_BUCKETS", "bkt=relative", "absolute path"),
        ("MAX_CONCURRENT_DOCS", "0", "MAX_CONCURRENT_DOCS"),
        ("DOCUMENTS_ON_ERROR", "maybe", "DOCUMENTS_ON_ERROR"),
        ("DOCUMENTS_ERROR_THRESHOLD", "1.5", "DOCUMENTS_ERROR_THRESHOLD"),
    ],
)
async def test_invalid_settings_are_named(
    new_service: NewService, name: str, value: str, expected: str
) -> None:
    service = await new_service()
    done = await asyncio.to_thread(
        esclusa, service, "documents", "process", "gs://bkt/a", **{name: value}
    )
    assert done.returncode == 3
    assert expected in done.stderr


# routes


@SQLITE
async def test_document_extractions_and_pages_over_http(new_service: NewService) -> None:
    service = await new_service(serve=True, local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    statement = statements.make("s", statements.Style(rotate=90), Random(1), statement_words.TUNED)
    service.put("a/s.pdf", statement.content)
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    for id in (doc.id, doc.slug):
        status, _, body = await service.get(f"/documents/{doc.folio_id}/{id}")
        assert status == 200
        assert body["doc_type"] == "balance_sheet"
        assert sum(e["type"] == "LINE_ITEM_VALUE" for e in body["extracciones"]) == len(
            statement.values
        )
    status, _, body = await service.get(f"/documents/{doc.folio_id}")
    assert (status, body["folio"]["status"], len(body["items"])) == (200, "DONE", 1)
    status, kind, text = await service.get(f"/documents/{doc.folio_id}/{doc.slug}/text")
    value = next(
        e for e in (await service.extractions(documento_id=doc.id)) if e.type == "LINE_ITEM_VALUE"
    )
    assert (status, kind) == (200, "text/plain")
    assert (
        text.decode()[value.text_spans[0]["start"] : value.text_spans[0]["end"]]
        == value.LINE_ITEM_VALUE
    )
    status, kind, picture = await service.get(
        f"/documents/{doc.folio_id}/{doc.slug}/pages/0.png?width=400"
    )
    assert (status, kind, picture[:8]) == (200, "image/png", b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(picture[16:20]) == 400
    for path, code in (
        ("pages/9.png", 404),
        ("pages/0.png?width=99999", 422),
        ("pages/-1.png", 422),
    ):
        assert (await service.get(f"/documents/{doc.folio_id}/{doc.slug}/{path}"))[0] == code
    assert (await service.get(f"/documents/{doc.folio_id}/nothing"))[0] == 404
    assert (await service.get("/documents/nothing"))[0] == 404


@pytest.mark.parametrize("provider", list(PROVIDERS), indirect=True)
async def test_text_is_the_one_in_which_spans_count(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True, DOCUMENTAI_MAX_PAGES=2, DOCUMENTS_DEDUP="content")
    statement = statements.make(
        "s", statements.Style(rows=30, per_page=9), Random(1), statement_words.TUNED
    )
    service.put("a/s.pdf", statement.content)
    service.put("b/copy.pdf", statement.content)
    await service.process("gs://bkt/a")
    await service.process("gs://bkt/b")
    read, copied = await service.docs()
    assert copied.reused_from == read.id
    for doc in (read, copied):
        status, kind, body = await service.get(f"/documents/{doc.folio_id}/{doc.slug}/text")
        assert (status, kind) == (200, "text/plain")
        values = [
            e for e in await service.extractions(documento_id=doc.id) if e.type == "LINE_ITEM_VALUE"
        ]
        assert len(values) == len(statement.values)
        assert [body.decode()[s["start"] : s["end"]] for e in values for s in e.text_spans] == [
            e.LINE_ITEM_VALUE for e in values
        ]


@SQLITE
async def test_missing_text_is_reported(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True)
    service.put(
        "a/s.pdf",
        statements.make("s", statements.Style(), Random(1), statement_words.TUNED).content,
    )
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    path = f"/documents/{doc.folio_id}/{doc.slug}/text"
    await service.runtime.artifacts.delete(doc.text_path)
    assert (await service.get(path))[0] == 404
    await service.records.edit(
        Documento, doc.id, among=["DONE"], who="test", reason="", text_path=None
    )  # read before texts were stored
    status, _, body = await service.get(path)
    assert (status, "--force" in body["detail"]) == (404, True)
    await service.process("gs://bkt/a", reprocess=True, force=True)
    assert (await service.get(path))[0] == 200


@SQLITE
async def test_page_that_crashes_the_renderer_does_not_crash_the_server(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True, local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    service.put(
        "a/s.pdf",
        statements.make("s", statements.Style(), Random(1), statement_words.TUNED).content,
    )
    await service.process("gs://bkt/a")
    doc = (await service.docs())[0]
    path = f"/documents/{doc.folio_id}/{doc.slug}"
    assert (await service.get(f"{path}/pages/0.png"))[0] == 200
    drawing = service.runtime.engine.contexts["documents"].viewer._readers._free._queue[0]._process
    drawing.kill()
    status, _, body = await service.get(f"{path}/text")
    assert (status, "died" in body["detail"]) == (502, True)
    assert (await service.get(f"{path}/text"))[0] == 200


@SQLITE
async def test_trace_view_has_a_box_for_every_value(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True, local=True, DOCUMENTS_LOCAL_PROCESSES=1)
    statement = statements.make("s", statements.Style(rotate=270), Random(1), statement_words.TUNED)
    service.put("a/s.pdf", statement.content)
    service.put("a/broken.pdf", b"%PDF-1.7 nothing")
    await service.process("gs://bkt/a")
    broken, read = await service.docs()
    status, kind, page = await service.get(f"/console/documents/{read.folio_id}/{read.id}")
    assert (status, kind) == (200, "text/html")
    assert page.decode().count("<rect data-box=") == len(
        await service.extractions(documento_id=read.id)
    )
    assert f"<b>{statement.org}</b>" in html.unescape(page.decode())
    status, _, page = await service.get(f"/console/documents/{broken.folio_id}/{broken.id}")
    assert status == 200
    assert "bad_pdf: it is not a PDF" in page.decode()
    assert ".png" not in page.decode()


# OIDC


@pytest.fixture
async def issuer() -> Any:
    """An issuer that signs tokens and serves its keys over HTTP."""
    import jwt
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | {
        "kid": "k1",
        "use": "sig",
        "alg": "RS256",
    }
    asked = []

    async def certs(_: web.Request) -> web.Response:
        asked.append(1)
        return web.json_response({"keys": [public]})

    def sign(kid: str = "k1", with_key: Any = None, **claims: Any) -> str:
        expected = {
            "iss": "https://accounts.google.com",
            "aud": "https://svc.run.app",
            "sub": "1",
            "email": "sa@p.iam",
            "email_verified": True,
        }
        expected |= {"iat": int(time.time()), "exp": int(time.time()) + 600} | claims
        return jwt.encode(expected, with_key or key, algorithm="RS256", headers={"kid": kid})

    async with http_server(web.get("/certs", certs)) as url:
        yield f"{url}/certs", sign, asked


@SQLITE
async def test_oidc_token_is_verified_when_an_audience_is_set(
    new_service: NewService, issuer: Any
) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    url, sign, asked = issuer
    service = await new_service(
        serve=True,
        EVENTARC_AUDIENCE="https://svc.run.app,other",
        EVENTARC_CERTS_URL=url,
        EVENTARC_SERVICE_ACCOUNT="sa@p.iam",
        tokens="operator-token",
    )
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    async def code(token: str | None) -> int:
        more = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return (await service.event("a/is_ready", headers=headers() | more))[0]

    assert await code(None) == 401
    assert await code("operator-token") == 401
    assert await code("not.a.token") == 401
    assert await code(sign(with_key=stranger)) == 401
    assert await code(sign(kid="k9")) == 401
    assert await code(sign(exp=int(time.time()) - 60)) == 401
    assert await code(sign(iss="https://evil.example")) == 401
    assert await code(sign(aud="https://elsewhere")) == 403
    assert await code(sign(email="other@p.iam")) == 403
    assert await code(sign(aud="https://svc.run.app/")) == 202
    assert await code(sign()) == 202
    assert len(asked) == 1


def test_an_audience_without_an_account_is_refused() -> None:
    with pytest.raises(SettingsError, match="EVENTARC_SERVICE_ACCOUNT too"):
        load(environ={"ESCLUSA_PIPELINES": "documents", "EVENTARC_AUDIENCE": "https://svc.run.app"})


@SQLITE
async def test_events_require_an_api_token_without_an_audience(
    new_service: NewService,
) -> None:
    service = await new_service(serve=True, tokens="operator-token")
    assert (await service.event("a/is_ready"))[0] == 401
    assert (
        await service.event(
            "a/is_ready", headers=headers() | {"Authorization": "Bearer operator-token"}
        )
    )[0] == 202


# progress from log lines


def line(
    stage: str, *, execution: str = "x1", time: str = "2026-01-01T00:00:00Z", **fields: Any
) -> str:
    return json.dumps(
        {"stage": stage, "folio_id": "f", "execution_id": execution, "time": time, **fields}
    )


def doc(n: int, stage: str = "DOC_EXTRACTION_DONE", status: str = "DONE", **more: Any) -> str:
    return line(stage, gcs_uri=f"gs://b/{n}", generation="1", doc_status=status, **more)


def test_progress_never_decreases_and_is_100_only_after_closing() -> None:
    text = [
        "not json",
        "[]",
        '{"stage": 3}',
        line("DANCING", total_docs=9, processed_docs=9),
        line("INIT"),
        line("PROCESSING_START", total_docs="²"),
        line("PROCESSING_START", total_docs="9" * 5000),
        line("LISTING"),
        line("PROCESSING_START", total_docs=4, processed_docs=0),
        doc(1),
        doc(1),
        doc(2, "DOC_ERROR", "NOT_STARTED"),
        doc(2),
        line("PROCESSING_IN_PROGRESS", total_docs=4, processed_docs=1),
        doc(3, "DOC_ERROR", "ERROR"),
        doc(4),
        line("FINALIZING", total_docs=4, processed_docs=4),
        '{"half": ',
        line("DONE_WITH_ERRORS", total_docs=4, processed_docs=4),
        doc(1),
        line("PROCESSING_IN_PROGRESS", total_docs=4, processed_docs=2),
    ]
    reader = Progress()
    shown = [changed for each in text if (changed := reader.read(each)) is not None]
    assert [s["progress_pct"] for s in shown] == [0, 25, 50, 75, 99, 100]
    assert shown[-1]["processed_docs"] == 4


def test_progress_restarts_with_a_new_execution() -> None:
    reader = Progress()
    for text in (
        line("PROCESSING_START", total_docs=2, processed_docs=0),
        doc(1),
        doc(2),
        line("DONE", total_docs=2, processed_docs=2),
    ):
        reader.read(text)
    assert reader.folders[0]["progress_pct"] == 100
    later = {"execution": "x2", "time": "2026-01-02T00:00:00Z"}
    reader.read(line("PROCESSING_START", total_docs=3, processed_docs=1, **later))
    assert reader.folders[0]["progress_pct"] == 33
    reader.read(doc(2))
    reader.read(line("DONE", total_docs=2, processed_docs=2))
    reader.read(line("ERROR", execution="x0", time="2025-12-31T00:00:00Z"))
    assert reader.folders[0]["progress_pct"] == 33
    reader.read(doc(3, execution="x2"))
    assert (reader.folders[0]["progress_pct"], reader.folders[0]["processed_docs"]) == (66, 2)


def test_progress_reads_lines_as_cloud_logging_exports_them() -> None:
    reader = Progress()
    reader.read(
        json.dumps(
            {
                "timestamp": "2026-01-01T00:00:00Z",
                "jsonPayload": {
                    "stage": "DONE",
                    "folio_id": "f",
                    "total_docs": 1,
                    "processed_docs": 1,
                },
            }
        )
    )
    assert reader.folders[0]["progress_pct"] == 100


# Cloud Storage


@pytest.mark.parametrize("provider", list(PROVIDERS), indirect=True)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
async def test_folder_on_cloud_storage_with_generations(
    new_service: NewService, cloud: Any
) -> None:
    service = await new_service()
    for n in range(3):
        cloud.blob(f"2026/caso/d{n}.pdf").upload_from_string(
            f"%PDF-1.4\n%class=balance_sheet\n{n}", content_type="application/pdf"
        )
    cloud.blob("2026/caso/is_ready").upload_from_string(b"")
    cloud.blob("2026/caso/readme.txt").upload_from_string(b"hello")
    cloud.blob("2026/caso-2/d.pdf").upload_from_string(b"%PDF-1.4\n%class=other\n")
    answer = await service.process("gs://cloud/2026/caso")
    assert answer["counters"] == {"total_docs": 3, "processed_docs": 3, "DONE": 3, "ERROR": 0}
    first = {d.gcs_uri: d.generation for d in await service.docs()}
    assert set(first) == {f"gs://cloud/2026/caso/d{n}.pdf" for n in range(3)}
    cloud.blob("2026/caso/d1.pdf").upload_from_string(
        "%PDF-1.4\n%class=cash_flow\nnew", content_type="application/pdf"
    )
    answer = await service.process("gs://cloud/2026/caso", reprocess=True)
    assert answer["counters"]["DONE"] == 3
    changed = [d for d in await service.docs(status="DONE") if d.generation != first[d.gcs_uri]]
    assert [(d.gcs_uri, d.doc_type) for d in changed] == [
        ("gs://cloud/2026/caso/d1.pdf", "cash_flow")
    ]


@SQLITE
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
async def test_missing_bucket_is_a_folder_level_failure(
    new_service: NewService, cloud: Any
) -> None:
    service = await new_service()
    answer = await service.process("gs://nobody/x")
    folio = await service.folio()
    assert (answer["outcome"], folio.status, folio.error_type) == (
        "error",
        "ERROR",
        "bucket_not_found",
    )
