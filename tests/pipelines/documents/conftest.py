"""Fixtures that open the pipeline on each store, with a simulated Document AI."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from esclusa.app import open_runtime
from esclusa.model.system_records import DeadLetter, Message
from esclusa.observability import log
from esclusa.pipelines.documents.events import FINALIZED
from esclusa.pipelines.documents.folder_signals import from_command, receive
from esclusa.pipelines.documents.records import Documento, Extraccion, Folio
from esclusa.runtime import Runtime
from esclusa.settings import load
from esclusa.simulators.documentai import DocumentAiSimulator
from esclusa.web.server import Service, listen


class Lines:
    """The log of this process, as parsed lines."""

    def __init__(self) -> None:
        self.text: list[str] = []

    def write(self, text: str) -> int:
        self.text += [line for line in text.split("\n") if line]
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False

    @property
    def parsed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text]

    def stages(self, **match: Any) -> list[str]:
        return [
            line["stage"]
            for line in self.parsed
            if "stage" in line and all(line.get(k) == v for k, v in match.items())
        ]


class DocumentsService:
    """A runtime with this pipeline, a bucket folder and the simulator, with shortcuts."""

    def __init__(
        self,
        runtime: Runtime,
        folder: Path,
        simulator: DocumentAiSimulator,
        lines: Lines,
        url: str,
        environ: dict[str, str],
    ) -> None:
        self.runtime, self.folder, self.simulator, self.lines, self.url, self.environ = (
            runtime,
            folder,
            simulator,
            lines,
            url,
            environ,
        )

    @property
    def records(self) -> Any:
        return self.runtime.engine.records

    @property
    def calls(self) -> int:
        """How often Document AI was asked to process."""
        counts = self.simulator.counts
        return sum(v for k, v in counts.items() if k.endswith((":process", ":batchProcess")))

    def put(self, name: str, content: bytes | str = b"%PDF-1.4\n%class=balance_sheet\n") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat().st_mtime_ns if path.exists() else 0
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if before >= path.stat().st_mtime_ns:
            os.utime(path, ns=(before + 1_000_000, before + 1_000_000))
        return path

    def fill(self, prefix: str, count: int, doc_type: str = "balance_sheet") -> None:
        for n in range(count):
            self.put(f"{prefix}/doc{n:05}.pdf", f"%PDF-1.4\n%class={doc_type}\n%{n}\n")

    async def process(self, uri: str, **options: Any) -> dict[str, Any]:
        """Process a folder as ``esclusa documents process`` does."""
        signal = from_command(uri, **options)
        folio_id, signal_id = await receive(self.runtime, signal)
        params = {"folio_id": folio_id, "signal": signal_id}
        run = await self.runtime.operations("test").run("documents.process", params=params)
        return run.answer()

    async def run(self) -> dict[str, Any]:
        return (await self.runtime.operations("test").run("documents.process")).answer()

    async def folio(self) -> Folio:
        found = (await self.records.find(Folio)).items
        assert len(found) == 1
        return found[0]

    async def docs(self, **where: Any) -> list[Documento]:
        return sorted(
            [d async for d in self.records.each(Documento, where)], key=lambda d: d.gcs_uri
        )

    async def extractions(self, **where: Any) -> list[Extraccion]:
        return [e async for e in self.records.each(Extraccion, where)]

    async def letters(self) -> list[DeadLetter]:
        return (await self.records.find(DeadLetter)).items

    async def messages(self) -> list[Message]:
        return (await self.records.find(Message)).items

    async def post(self, path: str, **options: Any) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + path, **options) as answer,
        ):
            return answer.status, json.loads(await answer.text())

    async def get(self, path: str) -> tuple[int, Any, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            body = await answer.read()
            return (
                answer.status,
                answer.content_type,
                json.loads(body) if "json" in answer.content_type else body,
            )

    async def event(
        self, name: str, *, id: str = "e-1", bucket: str = "bkt", **more: Any
    ) -> tuple[int, Any]:
        """Post a CloudEvent in binary mode."""
        request = {
            "headers": headers(id, bucket),
            "json": {"bucket": bucket, "name": name, "generation": "1", "size": "0"},
        } | more
        return await self.post("/events/storage?__GCP_CloudEventsMode=GCS_NOTIFICATION", **request)


def headers(id: str = "e-1", bucket: str = "bkt", type: str = FINALIZED) -> dict[str, str]:
    return {
        "ce-specversion": "1.0",
        "ce-id": id,
        "ce-type": type,
        "ce-source": f"//storage.googleapis.com/projects/_/buckets/{bucket}",
        "ce-subject": "objects/x",
        "ce-time": "2026-01-01T00:00:00.123456Z",
        "ce-bucket": bucket,
    }


NewService = Callable[..., Awaitable[DocumentsService]]


@pytest.fixture
async def new_service(
    empty_database: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NewService]:
    """``await new_service(max_attempts=3)`` opens one; several share data, like processes do."""
    monkeypatch.setenv("NO_PROXY", "*")
    async with AsyncExitStack() as stack:
        simulator = DocumentAiSimulator()
        address = await simulator.start()
        stack.push_async_callback(simulator.stop)
        lines = Lines()
        bucket = tmp_path / "bkt"
        bucket.mkdir()

        async def new(
            *,
            local: bool = False,
            serve: bool = False,
            worker: bool = False,
            tokens: str = "",
            **options: Any,
        ) -> DocumentsService:
            environ = {
                "ESCLUSA_STORE": empty_database.url,
                "ESCLUSA_ARTIFACTS": str(tmp_path / "artifacts"),
                "ESCLUSA_PIPELINES": "documents",
                "ESCLUSA_LEASE_SECONDS": "20",
                "ESCLUSA_POLL_SECONDS": "0.1",
                "ESCLUSA_API_TOKENS": tokens,
                "DOCUMENTS_LOCAL_BUCKETS": f"bkt={bucket}",
                "DOCUMENTS_BACKOFF_SECONDS": "0.05",
                "DOCUMENTS_MAX_ATTEMPTS": "3",
                "ESCLUSA_GRACE_SECONDS": "2",
                "DOCUMENTAI_PROJECT": "p",
                "DOCUMENTAI_ENDPOINT": address,
            }
            if not local:
                extractors = ",".join(
                    f"{name}=ext" for name in ("balance_sheet", "income_statement", "cash_flow")
                )
                environ |= {
                    "DOCUMENTS_PROCESSOR": "documentai",
                    "DOCUMENTAI_CLASSIFIER": "classifier",
                    "DOCUMENTS_EXTRACTORS": extractors,
                }
            environ |= {name: str(value) for name, value in options.items()}
            runtime = await stack.enter_async_context(open_runtime(load(environ=environ)))
            log.configure("json", "info", stream=lines)  # type: ignore[arg-type]
            url = ""
            if serve:
                service = Service(runtime, worker=worker)
                listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                task = asyncio.create_task(
                    service.run(listen("127.0.0.1", 0), listening.set_result)
                )
                await asyncio.wait([task, listening], return_when=asyncio.FIRST_COMPLETED)
                url = f"http://127.0.0.1:{await listening}"

                async def end() -> None:
                    service.stop()
                    await task

                stack.push_async_callback(end)
            else:
                await stack.enter_async_context(runtime.engine.running())
            return DocumentsService(runtime, bucket, simulator, lines, url, environ)

        yield new


@pytest.fixture
async def service(new_service: NewService) -> DocumentsService:
    return await new_service()


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The emulator of Cloud Storage with a bucket ``cloud``."""
    from gcp_storage_emulator.server import create_server
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="cloud")
    server.start()
    monkeypatch.setenv(
        "STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server._api._httpd.server_address[1]}"
    )
    client = storage.Client(project="local", credentials=AnonymousCredentials())
    yield client.bucket("cloud")
    client.close()
    server.stop()


async def until(check: Callable[[], Awaitable[Any]], seconds: float = 20) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := await check()):
            await asyncio.sleep(0.05)
    return found
