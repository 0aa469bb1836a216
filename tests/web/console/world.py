"""A server with four small pipelines whose records are in every state, for tests of the console."""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from math import sin
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from esclusa import (
    ActionContext,
    App,
    Attempt,
    Backoff,
    Budget,
    Lifecycle,
    Outcome,
    Permanent,
    Record,
    Throttled,
    To,
    Window,
)
from esclusa.app import open_runtime
from esclusa.engine.rates import BOUNDS
from esclusa.engine.tally import floor
from esclusa.model.system_records import (
    Alert,
    Audit,
    Export,
    RateRecord,
    Run,
    StageSample,
    WorkerRecord,
)
from esclusa.model.texts import text
from esclusa.pipelines.documents.console import build as trace_view
from esclusa.pipelines.documents.records import Documento, Extraccion, Folio
from esclusa.pipelines.documents.settings import DocumentsSettings
from esclusa.runtime import Runtime
from esclusa.settings import load
from esclusa.web.server import Service, listen


class Post(Record, table="posts", key=("platform", "post_id")):
    platform: str
    post_id: str
    country: str | None = None
    replies_count: int | None = None
    url: str | None = None
    lifecycle = Lifecycle(
        """
        noreplies -> processing -> done
        noreplies -> skipped | done
        processing -> noreplies
        done -> noreplies
    """,
        finished=["done"],
    )


class Job(
    Record,
    table="pending_jobs",
    key="job_id",
    refs={"post_doc_id": Post},
    index=[("post_doc_id", "status")],
):
    job_id: str
    post_doc_id: str
    platform: str
    retry_count: int = 0
    access_token: str = ""
    options: dict[str, Any] = {}
    result_url: str | None = None
    lifecycle = Lifecycle(
        """
        pending -> processing
        processing -> done | failed | quota_exceeded | empty_result | pending
        empty_result -> pending | verified
        quota_exceeded -> pending
        failed -> pending
    """,
        failed=["quota_exceeded"],
    )


class Picture(Record, table="pictures"):
    title: str
    imagen_url: str | None = None
    lifecycle = Lifecycle("""
        pending -> downloading -> success
        downloading -> pending | error
        error -> pending
    """)


class Delivery(Record, table="deliveries", archive=True):
    device: str
    lifecycle = Lifecycle(
        """
        pending -> sent | retryable | failed | invalid
        retryable -> sent | failed | invalid
        sent -> ok | retryable | failed | invalid
        failed -> pending
    """,
        failed=["invalid"],
    )


TRACER = Budget("information-tracer", Window("day", 400))
MARKET = Budget("chilecompra", Window("day", 10_000), Window("minute", 60))
replies = App("replies", records=[Post, Job], budgets=[TRACER])
media = App("media", records=[Picture])
tenders = App("tenders", records=[Delivery], budgets=[MARKET])
documents = App("documents", settings=DocumentsSettings, records=[Folio, Documento, Extraccion])
documents.console(trace_view)


@replies.stage(
    Job,
    take="pending",
    hold="processing",
    exhausted="failed",
    retry=Backoff(tries=3, base="5m"),
    every="10m",
    budget=TRACER,
)
async def process_jobs(job: Job, at: Attempt) -> Outcome:
    if job.options.get("broken"):
        raise Permanent("the service answered 403: this account is private", type="forbidden")
    return To("done", result_url="https://files.example.org/replies.json")


@replies.stage(Post, take="noreplies", hold="processing", retry=Backoff(tries=None), every="30m")
async def process_posts(post: Post, at: Attempt) -> Outcome:
    return To("done")


@media.stage(
    Picture,
    take="pending",
    hold="downloading",
    exhausted="error",
    retry=Backoff(tries=5, base="1m"),
    every="5m",
)
async def download(picture: Picture, at: Attempt) -> Outcome:
    at.log("asks the CDN")
    at.log("has an answer", status=200, token="s3cr3t")
    if picture.imagen_url == "broken":
        raise Permanent("the response is a web page, not a picture", type="invalid_media")
    if picture.imagen_url == "slow":
        raise TimeoutError("no answer within 30 s")
    if picture.imagen_url == "busy":
        raise Throttled("asked to slow down", after=60, stage=False)
    return To("success")


class RetryPictures(BaseModel):
    type: Literal["timeout", "invalid_media"] | None = Field(None, title="Only errors of this type")


@media.action(
    Picture,
    "Retry pictures",
    es="Reintentar imágenes",
    where={"status": "error"},
    params=RetryPictures,
    about={"en": "Download failed pictures again.", "es": "Descargar de nuevo las fallidas."},
)
async def retry_pictures(picture: Picture, at: ActionContext) -> To | str:
    wanted = at.params.type
    if wanted is not None and (picture.last_error or {}).get("type") != wanted:
        return f"its last error is not of type {wanted}"
    return To("pending")


@tenders.action(None, "Register a baseline", es="Registrar una línea base")
async def baseline(at: ActionContext) -> str:
    """Register what is listed now without announcing it."""
    return f"registered by {at.who}"


@media.view(
    "Pictures that could not be downloaded",
    es="Imágenes que no se pudieron descargar",
    of=Picture,
    where={"status": "error"},
)
async def errors(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    page = await records.find(
        Picture, {"status": "error"}, order="-updated_at", limit=limit, after=after
    )
    rows = [
        {
            "id": p.id,
            "title": p.title,
            "attempts": p.attempts,
            "error": (p.last_error or {}).get("message"),
        }
        for p in page.items
    ]
    return {"items": rows, "next": page.next}


@media.view("Pictures by state", es="Imágenes por estado")
async def summary(records: Any, limit: int, after: str | None) -> dict[str, Any]:
    found = await records.totals(Picture, ["status"], sums=["attempts"])
    items = [{**t.values, "total": t.count, "attempts": t.sums["attempts"]} for t in found]
    return {"items": items, "next": None}


@tenders.stage(
    Delivery,
    take=("pending", "retryable"),
    exhausted="failed",
    retry=Backoff(tries=7),
    retry_to="retryable",
    every="1m",
)
async def dispatch(delivery: Delivery, at: Attempt) -> Outcome:
    return To("sent")


@tenders.cycle(every="2m", singleton=True)
async def ingest(run: Any) -> None:
    run.count("new", 3)


@documents.routes
def routes(runtime: Runtime) -> APIRouter:
    router = APIRouter()

    @router.get("/documents/{folio}/{id}/pages/{n}.png")
    async def page(folio: str, id: str, n: int) -> Response:
        return Response(picture(), media_type="image/png")

    @router.get("/documents/{folio}/{id}")
    async def document(folio: str, id: str) -> dict[str, str]:
        return {"id": id}

    return router


APPS = {app.name: app for app in (replies, media, tenders, documents)}


def picture(width: int = 600, height: int = 850) -> bytes:
    """A PNG picture of a page: grey lines in place of text."""
    rows = []
    for y in range(height):
        row = bytearray(b"\xff" * width)
        if y > 60 and (y - 60) % 44 < 9 and y < height - 70:
            long = 190 + (y - 60) // 44 * 7919 % 60
            row[48 : 48 + long] = b"\xb8" * long
            row[400:480] = b"\x70" * 80
            row[500:568] = b"\x70" * 68
        rows.append(b"\0" + bytes(row[:width]))
    body = zlib.compress(b"".join(rows))

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


LONG = "3656a12e10b35bd386ac0578d43e659568c42ce52af7ec8f452e37a8fffa9ad5"
LABELS = (
    (
        "Activos corrientes",
        (
            "Efectivo y equivalentes",
            "Deudores comerciales",
            "Inventarios",
            "Activos por impuestos",
            "Total activos corrientes",
        ),
    ),
    (
        "Activos no corrientes",
        ("Propiedades, planta y equipo", "Intangibles", "Plusvalía", "Total activos no corrientes"),
    ),
    (
        "Patrimonio",
        ("Capital emitido", "Otras reservas", "Resultados acumulados", "Total patrimonio"),
    ),
)


async def fill(runtime: Runtime) -> None:
    """Insert records in every state, dead letters, used budgets, rates, runs, alerts and audits."""
    engine, rng = runtime.engine, random.Random(7)
    now = engine.clock.now()
    places = ("CL", "MX", "AR", "PE", "CO")
    posts = [
        Post(
            platform=p,
            post_id=f"{1000 + n}",
            country=rng.choice(places),
            replies_count=rng.randrange(900),
            url=f"https://{p}.example.org/{n}",
            status=s,
            due_at=now + timedelta(hours=3),
        )
        for n, (p, s) in enumerate(
            (
                rng.choice(("twitter", "facebook", "tiktok")),
                rng.choice(("done", "done", "processing", "skipped", "noreplies")),
            )
            for _ in range(320)
        )
    ]
    await engine.records.insert(posts)
    jobs = []
    for n, post in enumerate(posts[:240]):
        status = rng.choices(
            ("pending", "done", "quota_exceeded", "empty_result", "verified"), (3, 12, 1, 2, 2)
        )[0]
        due = (
            now - timedelta(minutes=rng.randrange(4, 14))
            if status == "pending" and n % 3
            else now + timedelta(minutes=rng.randrange(5, 50))
        )
        options = (
            {"broken": True, "max_posts": 500}
            if status == "pending" and n % 5 == 0
            else {"max_posts": 500, "sort_by": "time"}
        )
        jobs.append(
            Job(
                job_id=f"9f{n:06x}",
                post_doc_id=f"{post.platform}:{post.post_id}",
                platform=post.platform,
                status=status,
                due_at=due,
                access_token="s3cr3t-value",
                options=options,
            )
        )
    await engine.records.insert(jobs)
    pictures = []
    for n in range(140):
        url = ("broken", "slow", "https://cdn.example.org/p.jpg", "busy")[
            0 if n < 6 else 1 if n < 14 else 3 if n < 17 else 2
        ]
        status = "pending" if n < 40 else rng.choice(("success", "success", "success", "pending"))
        pictures.append(
            Picture(
                title=f"Publicación {n}",
                imagen_url=url,
                status=status,
                due_at=now + timedelta(minutes=20 if n > 40 else -2),
            )
        )
    await engine.records.insert(pictures)
    states = ("ok", "ok", "ok", "sent", "invalid", "retryable", "pending", "failed")
    await engine.records.insert(
        [
            Delivery(
                device=f"ExponentPushToken[{n:04}]",
                status=rng.choice(states),
                due_at=now + timedelta(minutes=40),
            )
            for n in range(600)
        ]
    )
    await _documents(runtime)
    async with engine.running():
        await engine.run_cycle("replies.process-jobs", limit=60)
        await engine.run_cycle("media.download", limit=40)
        await engine.run_cycle("tenders.ingest")
    late = now - timedelta(minutes=95)
    await engine.records.insert(
        [
            Picture(title=f"Atrasada {n}", imagen_url="https://cdn.example.org/l.jpg", due_at=late)
            for n in range(12)
        ]
    )
    await engine.records.insert([Picture(id=LONG, title="An id without a break", status="success")])
    operator = runtime.operations("cli:maria")
    await operator.retry(
        "pictures", reason="el CDN volvió", where={"status": "error", "title": "Publicación 0"}
    )
    await _system(runtime, now, rng)


def _samples(now: datetime, rng: random.Random) -> list[Any]:
    """Two days in quarters of an hour, and the backlogs of each minute of the last hour."""
    histogram = [0, 1, 2, 6, 14, 31, 44, 30, 12, 5, 2, 1, *[0] * (len(BOUNDS) - 11)]
    scales = {"replies.process-jobs": 40, "media.download": 25, "tenders.dispatch": 90}

    def sample(span: int, back: int, **more: Any) -> StageSample:
        wave = 1 + 0.6 * sin(back * span / 14_000)
        stages = {
            stage: {"due": int(scale * wave * rng.uniform(0.5, 1)), "oldest": 40 * wave}
            | {name: int(each * scale * wave) for name, each in more.items()}
            | ({"seconds": 30.0, "histogram": histogram} if more else {})
            for stage, scale in scales.items()
        }
        return StageSample(
            span=span, start=floor(now, span) - timedelta(seconds=span * back), stages=stages
        )

    quarters = [sample(900, back, moved=9, retried=1) for back in range(6, 196)]
    return quarters + [sample(60, back) for back in range(1, 61)]


async def _documents(runtime: Runtime) -> None:
    records, source = runtime.engine.records, {"bucket": "apolo", "folder_prefix": "2024"}
    await records.insert([Folio(id="apolo-2024", folio_id="apolo-2024", status="DONE", **source)])

    def document(slug: str, name: str, **fields: Any) -> Documento:
        uri = f"gs://apolo/2024/{name}.pdf"
        return Documento(
            folio_id="apolo-2024", slug=slug, gcs_uri=uri, generation="1", **source, **fields
        )

    balance = document(
        "balance", "balance-consolidado", doc_type="balance_sheet", revision=1, status="DONE"
    )
    waiting = [document(f"anexo-{n}", f"anexo-{n}", status="NOT_STARTED") for n in range(3)]
    await records.insert([balance, *waiting])

    def extraction(position: int, label: str, amount: int, **fields: Any) -> Extraccion:
        return Extraccion(
            folio_id="apolo-2024",
            documento_id="apolo-2024:balance",
            slug=f"{position:03}",
            revision=1,
            position=position,
            gcs_uri=balance.gcs_uri,
            generation="1",
            type="LINE_ITEM_VALUE",
            LINE_ITEM_NAME=label,
            LINE_ITEM_VALUE=f"{amount:,}".replace(",", "."),
            value=str(amount),
            processor_version="local-1",
            **fields,
        )

    rng, rows, position = random.Random(3), [], 0
    for section, labels in LABELS:
        for label in labels:
            y = (60 + 44 * (position // 2 + 1)) / 850
            for column, year in ((400, "2024"), (500, "2023")):
                right = (column + 84) / 600 if column == 400 else 572 / 600
                box = {"x0": (column - 4) / 600, "y0": y - 5 / 850, "x1": right, "y1": y + 14 / 850}
                rows.append(
                    extraction(
                        position,
                        label,
                        rng.randrange(10_000, 9_000_000),
                        COLUMN_YEAR=year,
                        SECTION_HEADER=section,
                        page_refs=[{"page": 0, "boxes": [box]}],
                        confidence=0.97,
                    )
                )
                position += 1
    refs = [{"page": 1, "boxes": [{"x0": 0.6, "y0": 0.2, "x1": 0.8, "y1": 0.23}]}]
    rows.append(extraction(900, "Total pasivos", 1204, page_refs=refs, confidence=0.8))
    await records.insert(rows)


async def _system(runtime: Runtime, now: datetime, rng: random.Random) -> None:
    engine = runtime.engine
    minute = now.replace(second=0, microsecond=0)
    rows: list[Record] = []
    for stage, scale, bad in (
        ("replies.process-jobs", 40, 0.05),
        ("media.download", 25, 0.3),
        ("tenders.dispatch", 90, 0.02),
        ("replies.process-posts", 12, 0.0),
    ):
        for back in range(60, 0, -1):
            moved = max(0, int(rng.gauss(scale * (1 + 0.5 * ((back // 7) % 3 - 1)), scale / 6)))
            failed = sum(rng.random() < bad for _ in range(moved))
            histogram = [0] * (len(BOUNDS) + 1)
            for _ in range(moved + failed):
                histogram[min(len(BOUNDS), max(0, int(rng.gauss(8, 2))))] += 1
            rows.append(
                RateRecord(
                    stage=stage,
                    minute=minute - timedelta(minutes=back),
                    worker="w1",
                    moved=moved,
                    retried=failed,
                    lost=int(back == 9),
                    seconds=moved * 0.2,
                    histogram=histogram,
                )
            )
    rows += _samples(now, rng)
    for number, cycle in enumerate(("media.download", "tenders.ingest", "replies.process-jobs")):
        for back in range(18):
            at = now - timedelta(minutes=5 * (back + 1) + number)
            status = (
                "error"
                if back == 4 and number == 1
                else "partial"
                if back % 6 == 2 and number == 0
                else "blocked"
                if back == 7 and number == 2
                else "ok"
            )
            message = {
                "error": "the site did not answer: TimeoutError",
                "blocked": text("budget_empty", budget="information-tracer", until=at).dump(),
            }.get(status)
            rows.append(
                Run(
                    cycle=cycle,
                    slot=at.isoformat(),
                    worker="harbour-1",
                    started_at=at,
                    finished_at=at,
                    duration_ms=rng.randrange(300, 9000),
                    counters={"taken": rng.randrange(80), "success": rng.randrange(80)},
                    message=message,
                    status=status,
                )
            )
    rows.append(
        Alert(
            name="error_rate",
            subject="tenders.dispatch",
            message=text(
                "error_rate",
                cycle="tenders.dispatch",
                failed=14,
                taken=45,
                share="31%",
                limit="20%",
            ).dump(),
            begun_at=now - timedelta(minutes=12),
            details={"share": 0.31, "limit": 0.2},
        )
    )
    rows.append(
        Alert(
            name="cycle_failed",
            subject="tenders.ingest",
            message=text(
                "cycle_failed", cycle="tenders.ingest", why="the site did not answer"
            ).dump(),
            begun_at=now - timedelta(hours=5),
            status="seen",
        )
    )
    rows.append(
        Audit(
            who="api:night-shift",
            verb="pause",
            subject="tenders.ingest",
            affected=1,
            reason="maintenance at the provider",
            done_at=now - timedelta(hours=6),
        )
    )
    rows.append(
        WorkerRecord(
            id="harbour-1:4211",
            host="harbour-1",
            pid=4211,
            version="0.1.0",
            started_at=now - timedelta(days=2),
            status="running",
            due_at=now + timedelta(days=1),
        )
    )
    rows.append(
        WorkerRecord(
            id="harbour-2:977",
            host="harbour-2",
            pid=977,
            version="0.1.0",
            started_at=now - timedelta(days=3),
            status="lost",
        )
    )
    await engine.store.insert(rows)
    exports: list[Record] = [
        Export(
            table_name="deliveries",
            month=m,
            part=1,
            path=f"deliveries/year={m[:4]}/month={m[5:]}/part-00001.parquet",
            row_count=n,
            byte_count=n * 41,
            checksum="ab12",
            status="verified",
            verified_at=now - timedelta(days=2),
            drop_eligible_at=now + timedelta(days=28),
        )
        for m, n in (("2026-08", 182_340), ("2026-09", 201_877))
    ]
    await engine.store.insert(exports)
    await engine.store.spend(TRACER, 260, "replies.process-jobs")
    await engine.store.spend(TRACER, 41, "replies.process-posts")
    await engine.store.spend(MARKET, 60, "tenders.ingest")


class World:
    """A running server, its address and its runtime."""

    def __init__(self, url: str, runtime: Runtime, service: Service) -> None:
        self.url, self.runtime, self.service = url, runtime, service


@asynccontextmanager
async def served(
    folder: Path,
    *,
    tokens: str = "",
    empty: bool = False,
    worker: bool = False,
    apps: str = "replies,media,tenders,documents",
    declared: Mapping[str, App] = APPS,
    **options: Any,
) -> AsyncIterator[World]:
    """A new world, served on a free port until the block ends."""
    environ = {
        "ESCLUSA_STORE": f"sqlite:///{folder / 'world.db'}",
        "ESCLUSA_ARTIFACTS": str(folder / "artifacts"),
        "ESCLUSA_PIPELINES": apps,
        "ESCLUSA_API_TOKENS": tokens,
        "ESCLUSA_LOG_LEVEL": "error",
        "ESCLUSA_GRACE_SECONDS": "1",
        "ESCLUSA_LEASE_SECONDS": "60",
    }
    async with open_runtime(load(environ=environ, apps=declared.__getitem__)) as runtime:
        if not empty:
            await fill(runtime)
        service = Service(runtime, worker=worker)
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(
            service.run(listen("127.0.0.1", 0), listening.set_result, **options)
        )
        either: set[asyncio.Future[Any]] = {task, listening}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield World(f"http://127.0.0.1:{await listening}", runtime, service)
        service.stop()
        await task
