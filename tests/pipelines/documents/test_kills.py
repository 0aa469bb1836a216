# ruff: noqa: E501 - expected lines
"""Workers killed at every point of a folder's way: it ends right, once, and nothing in it is doubled."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from pipelines.documents.conftest import NewOffice, until

from esclusa.pipelines.documents.progress import Progress
from esclusa.pipelines.documents.records import Folio
from esclusa.pipelines.documents.folder_signals import from_command

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
"""In the order of a folder's way; each worker dies at its point, the next one goes on."""


async def test_a_folder_survives_a_kill_at_every_point(
    new_office: NewOffice, tmp_path: Path
) -> None:
    office = await new_office(MAX_CONCURRENT_DOCS=2, DOCUMENTS_MAX_ATTEMPTS=30)
    office.fill("a", 12)
    office.put("a/bad.pdf", "%PDF-1.4 broken")
    await office.records.insert([from_command("gs://bkt/a")])
    logs = tmp_path / "workers.log"

    def start(kill_at: str) -> subprocess.Popen[bytes]:
        env = {
            k: v for k, v in os.environ.items() if not k.startswith(("ESCLUSA_", "DOCUMENT"))
        } | office.environ
        env |= {"KILL_AT": kill_at, "PYTHONPATH": str(TESTS), "ESCLUSA_LEASE_SECONDS": "1.5"}
        with logs.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("worker.py"))],
                env=env,
                stdout=log,
                stderr=log,
            )

    died = 0
    for point in POINTS:
        process = start(point)
        try:
            code = await asyncio.wait_for(asyncio.to_thread(process.wait), 20)
            assert code == -signal.SIGKILL, logs.read_text()[-3000:]
            died += 1
        except TimeoutError:  # nothing is left that would lead there: the folder is done already
            process.terminate()
            await asyncio.to_thread(process.wait)
            break
    last = start("")
    try:

        async def closed() -> bool:
            found = (await office.records.find(Folio)).items
            return bool(found) and found[0].status in ("DONE", "DONE_WITH_ERRORS", "ERROR")

        await until(closed, 40)
    finally:
        last.terminate()
        assert await asyncio.to_thread(last.wait) == 0, logs.read_text()[-3000:]
    assert died >= 6
    folio = await office.folio()
    assert (folio.status, folio.total_docs, folio.processed_docs) == ("DONE_WITH_ERRORS", 13, 13)
    steps = await office.runtime.store.history(folio.ref)
    assert [s.to for s in steps if s.to != s.frm] == ["PROCESSING", "DONE_WITH_ERRORS"]
    docs = await office.docs()
    assert sorted(d.status for d in docs) == ["DONE"] * 12 + ["ERROR"]
    for doc in docs:
        state = "NOT_STARTED"
        for step in await office.runtime.store.history(doc.ref):
            assert step.frm == state
            state = step.to
        assert state == doc.status
        found = await office.extractions(documento_id=doc.id)
        assert len(found) == (2 if doc.status == "DONE" else 0)
        assert {e.revision for e in found} <= {doc.revision}
    assert [(x.table_name, x.error_type) for x in await office.letters()] == [
        ("documentos", "invalid_argument")
    ]
    classified = sum(v for k, v in office.simulator.counts.items() if "classifier" in k)
    assert classified <= 13 + died  # at most the call that was cut off is made again
    reader = Progress()
    for line in logs.read_text().splitlines():
        reader.read(line)
    assert reader.folders[0] | {"execution_id": ""} == {
        "folio_id": folio.folio_id, "progress_pct": 100, "total_docs": 13, "processed_docs": 13, "execution_id": "", "closed": "DONE_WITH_ERRORS",
    }  # fmt: skip
    assert (await office.records.count(Folio))[0] == 1
