"""A handler blocks the event loop: it is named while it blocks, and its neighbours go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.databases import PostgresProvider
from support.processes import Esclusa, EsclusaProcess

LEASE = 2
PAGES = 20
PIPELINE = """
import asyncio, os, time
from pathlib import Path
from esclusa import App, Attempt, Backoff, Lifecycle, Record, RunContext, To

class Page(Record, table="pages", key="name"):
    name: str
    lifecycle = Lifecycle("new -> reading -> done\\nreading -> new | failed\\nfailed -> new")

app = App("slow")

@app.cycle()
async def fill(run: RunContext) -> None:
    await run.records.insert([Page(name=f"p{n:02}") for n in range(20)])

@app.stage(Page, take="new", hold="reading", exhausted="failed", retry=Backoff(tries=1),
           concurrency=20)
async def read(page: Page, at: Attempt) -> To:
    with Path("calls").open("a") as calls:
        calls.write(f"{page.name}\\n")
    await asyncio.sleep(0.5)
    if page.name == "p07" and os.environ.get("BLOCK"):
        while not Path("release").exists():
            time.sleep(0.05)
    return To("done")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProvider]:
    provider = PostgresProvider()
    yield provider
    provider.stop()


@pytest.fixture
async def esclusa(server: PostgresProvider, tmp_path: Path) -> Esclusa:
    """A store with twenty new pages."""
    (tmp_path / "slow.py").write_text(PIPELINE)
    database = await server.database(empty=True)
    made = Esclusa(
        tmp_path,
        ESCLUSA_STORE=database.url,
        ESCLUSA_PIPELINES="slow.py",
        ESCLUSA_LEASE_SECONDS=str(LEASE),
    )
    assert made.json("run", "slow.fill")["outcome"] == "ok"
    return made


@pytest.mark.promise(12)
@pytest.mark.promise(7)
async def test_a_blocked_loop_is_named_while_it_blocks_and_nothing_is_called_twice(
    esclusa: Esclusa,
) -> None:
    with esclusa.start("worker", BLOCK="1") as blocked:
        stays_blocked(esclusa, blocked)
        (esclusa.folder / "release").touch()
        runs_again(esclusa, blocked)
        blocked.until(lambda: esclusa.states("pages") == {"done": PAGES})
        assert blocked.stop() == 0
    assert calls(esclusa) == {f"p{n:02}": 1 for n in range(PAGES)}


@pytest.mark.promise(12)
@pytest.mark.promise(7)
async def test_another_worker_takes_over_from_a_blocked_loop_and_no_try_is_lost(
    esclusa: Esclusa,
) -> None:
    with esclusa.start("worker", BLOCK="1") as blocked:
        blocked.until_logged("blocks the event loop")
        with esclusa.start("worker") as other:
            other.until(lambda: esclusa.states("pages") == {"done": PAGES})
            stays_blocked(esclusa, blocked)
            (esclusa.folder / "release").touch()
            runs_again(esclusa, blocked)
            assert not other.events("blocks the event loop: record")
            assert other.stop() == 0
        assert blocked.stop() == 0
    assert esclusa.states("pages") == {"done": PAGES}
    assert max(calls(esclusa).values()) <= 2


def stays_blocked(esclusa: Esclusa, blocked: EsclusaProcess) -> None:
    """The log and an alert name the handler; wait until three leases have passed."""
    line = blocked.until_logged("blocks the event loop")
    began = time.monotonic()
    assert line["message"].startswith(
        "the handler of slow.read blocks the event loop: record p07, "
    )
    assert "slow.py:" in line["message"]
    assert "time.sleep(0.05)" in line["stack"]
    [alert] = blocked.until(lambda: named(esclusa))
    assert (alert["subject"], alert["status"]) == ("slow.read", "raised")
    assert "record p07" in alert["message"]
    while time.monotonic() - began < 3 * LEASE:
        time.sleep(0.1)
    [alert] = named(esclusa)
    assert alert["status"] == "raised"
    assert not blocked.events("the event loop runs again")


def runs_again(esclusa: Esclusa, blocked: EsclusaProcess) -> None:
    """The end is reported: once in the log, and as the end of the one alert."""
    blocked.until_logged("the event loop runs again; it was blocked for")
    blocked.until(lambda: [alert["status"] for alert in named(esclusa)] == ["ended"])
    assert len(blocked.events("blocks the event loop: record p07")) == 3  # event, alert, its end


def named(esclusa: Esclusa) -> list[dict[str, Any]]:
    items = esclusa.json("alerts")["items"]
    return [alert for alert in items if alert["name"] == "loop_blocked"]


def calls(esclusa: Esclusa) -> Counter[str]:
    return Counter((esclusa.folder / "calls").read_text().split())
