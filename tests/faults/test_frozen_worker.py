"""A worker is frozen past its lease (SIGSTOP, a suspended machine) and goes on afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.databases import PostgresProvider
from support.processes import Esclusa, EsclusaProcess

PIPELINE = """
from pathlib import Path
from esclusa import App, Attempt, Backoff, Lifecycle, Record, RunContext, To

class Page(Record, table="pages", key="name"):
    name: str
    lifecycle = Lifecycle("new -> reading -> done\\nreading -> new")

app = App("slow")

@app.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Page(name="after")])

@app.stage(Page, take="new", hold="reading", retry=Backoff(tries=None))
async def read(page: Page, at: Attempt) -> To:
    return To("done")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProvider]:
    provider = PostgresProvider()
    yield provider
    provider.stop()


@pytest.fixture
async def esclusa(server: PostgresProvider, tmp_path: Path) -> Esclusa:
    """PostgreSQL ends the transaction of a frozen worker; SQLite waits for it."""
    (tmp_path / "slow.py").write_text(PIPELINE)
    made = Esclusa(
        tmp_path,
        ESCLUSA_STORE=(await server.database(empty=True)).url,
        ESCLUSA_PIPELINES="slow.py",
        ESCLUSA_LEASE_SECONDS="2",
    )
    assert made.call("migrate").returncode == 0
    return made


def freeze_until(frozen: EsclusaProcess, other: EsclusaProcess, seen: Callable[[], Any]) -> None:
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        other.until(seen)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)


@pytest.mark.promise(1)
async def test_a_worker_that_was_taken_for_dead_registers_again(esclusa: Esclusa) -> None:
    def workers() -> dict[int, str]:
        return {w["pid"]: w["status"] for w in esclusa.json("workers", "--all")["items"]}

    with esclusa.start("worker") as frozen, esclusa.start("worker") as other:
        both_run = {frozen.pid: "running", other.pid: "running"}
        frozen.until(lambda: workers() == both_run)
        freeze_until(frozen, other, lambda: workers()[frozen.pid] == "lost")
        frozen.until(lambda: workers() == both_run)
        frozen.until_logged("this worker was taken for dead; it is registered again")
        assert not frozen.events("event loop")  # it was not blocked: the process did not run
        assert frozen.stop() == 0
        assert other.stop() == 0
    assert set(workers().values()) == {"stopped"}


@pytest.mark.promise(1)
async def test_an_always_on_run_goes_on_after_a_freeze_and_says_what_happened(
    esclusa: Esclusa,
) -> None:
    def runs(pid: int) -> list[dict[str, Any]]:
        """The runs of the always-on cycle by this process, newest first."""
        items = esclusa.json("runs", "--cycle", "slow.read")["items"]
        return [run for run in items if f"-{pid}-" in run["worker"]]

    with esclusa.start("worker") as frozen, esclusa.start("worker") as other:
        frozen.until(lambda: len(runs(frozen.pid)) == 1)
        other.until(lambda: len(runs(other.pid)) == 1)
        [former] = [run["id"] for run in runs(frozen.pid)]
        freeze_until(frozen, other, lambda: runs(frozen.pid)[0]["status"] == "error")
        frozen.until_logged(f"this worker was taken for dead; run {former}, which was ended, goes")
        assert other.stop() == 0
        assert esclusa.json("run", "slow.fill")["outcome"] == "ok"
        frozen.until(lambda: esclusa.states("pages") == {"done": 1})
        assert [run["status"] for run in runs(frozen.pid)] == ["running", "error"]
        assert frozen.stop() == 0
    after, before = runs(frozen.pid)
    assert (after["status"], before["status"]) == ("ok", "error")
    assert f"continues run {former}, whose worker was taken for dead" in after["message"]
    assert "stopped without finishing this run" in before["message"]
