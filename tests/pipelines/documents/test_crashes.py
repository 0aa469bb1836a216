"""Workers killed at every point of a folder's processing: it ends once, and nothing is doubled."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pipelines.documents.conftest import DocumentsService, NewService, until

from esclusa.pipelines.documents.folder_signals import from_command
from esclusa.pipelines.documents.progress import Progress
from esclusa.pipelines.documents.records import Folio

TESTS = Path(__file__).parents[2]
POINTS = [
    "after claim",
    "before settle",
    "after insert",
    "inside settle:2",
    "classified",
    "before renew:2",
    "extracted:2",
    "after settle:3",
]
"""Kill points in order; each worker dies at its point and the next one continues."""


class Workers:
    """One worker at a time, of a process that forks them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._points, self._answers = process.stdin, process.stdout

    async def start(self, kill_at: str) -> int:
        """Start a worker that dies at this point; return its process id."""
        self._points.write(f"{kill_at}\n".encode())
        return int(await self._answers.readline())

    async def end(self) -> int:
        """Wait until the worker has ended; return its exit code."""
        return int(await self._answers.readline())


@asynccontextmanager
async def started_workers(service: DocumentsService, logs: Path) -> AsyncIterator[Workers]:
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("ESCLUSA_", "DOCUMENT"))
    } | service.environ
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH", "")]))
    with logs.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("worker.py")),
            env=env | {"PYTHONPATH": path, "ESCLUSA_LEASE_SECONDS": "1.5"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Workers(process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_folder_survives_a_kill_at_every_point(
    new_service: NewService, tmp_path: Path
) -> None:
    service = await new_service(MAX_CONCURRENT_DOCS=2, DOCUMENTS_MAX_ATTEMPTS=30)
    service.fill("a", 12)
    service.put("a/bad.pdf", "%PDF-1.4 broken")
    await service.records.insert([from_command("gs://bkt/a")])
    logs = tmp_path / "workers.log"

    died = 0
    async with started_workers(service, logs) as workers:
        for point in POINTS:
            worker = await workers.start(point)
            try:
                code = await asyncio.wait_for(workers.end(), 20)
                assert code == -signal.SIGKILL, logs.read_text()[-3000:]
                died += 1
            except TimeoutError:  # unreachable: the folder has ended
                os.kill(worker, signal.SIGTERM)
                await workers.end()
                break
        worker = await workers.start("")

        async def closed() -> bool:
            found = (await service.records.find(Folio)).items
            return bool(found) and found[0].status in ("DONE", "DONE_WITH_ERRORS", "ERROR")

        try:
            await until(closed, 40)
        finally:
            os.kill(worker, signal.SIGTERM)
            assert await workers.end() == 0, logs.read_text()[-3000:]
    assert died >= 6
    folio = await service.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE_WITH_ERRORS", 13, 13)
    steps = await service.runtime.store.history(folio.ref)
    assert [s.to for s in steps if s.to != s.frm] == ["PROCESSING", "DONE_WITH_ERRORS"]
    docs = await service.docs()
    assert sorted(d.status for d in docs) == ["DONE"] * 12 + ["ERROR"]
    for doc in docs:
        state = "NOT_STARTED"
        for step in await service.runtime.store.history(doc.ref):
            assert step.frm == state
            state = step.to
        assert state == doc.status
        found = await service.extractions(documento_id=doc.id)
        assert len(found) == (2 if doc.status == "DONE" else 0)
        assert {e.revision for e in found} <= {doc.revision}
    assert [(x.table_name, x.error_type) for x in await service.letters()] == [
        ("documentos", "invalid_argument")
    ]
    classified = sum(v for k, v in service.simulator.counts.items() if "classifier:process" in k)
    assert classified <= 13 + died  # at most the interrupted call is repeated
    reader = Progress()
    for line in logs.read_text().splitlines():
        reader.read(line)
    assert reader.folders[0] | {"execution_id": ""} == {
        "folio_id": folio.folio_id,
        "progress_pct": 100,
        "total_docs": 13,
        "processed_docs": 13,
        "execution_id": "",
        "closed": "DONE_WITH_ERRORS",
    }
    assert (await service.records.count(Folio))[0] == 1
