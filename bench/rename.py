"""Rename the states of a table with very many rows while workers of both versions run.

A tenth of the rows is work; the rest is finished. The worker of the version before goes on writing
the earlier names until it is stopped at the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.driver import Driver
from bench.measures import Measure, Scale, progress
from bench.report import Report, rates

_LETTERS = Path(__file__).parent / "contenders" / "letters.py"
_FILL = """INSERT INTO letters (id, name, status)
SELECT 'l' || s, 'l' || s, CASE WHEN s % 10 = 0 THEN 'new' ELSE 'sent' END
FROM generate_series(1, {rows}) s"""
_LEFT = "SELECT count(*) FROM letters WHERE status NOT IN ('delivered', 'sent')"
_STATES = "SELECT string_agg(DISTINCT status, ', ') || ' ' || count(*) FROM letters"
# Letters that were sent by no attempt, or by two.
_NOT_ONCE = """SELECT count(*) FROM letters l LEFT JOIN (
    SELECT record_id, count(*) AS n FROM esclusa.history
    WHERE from_state IN ('writing', 'sending') AND to_state IN ('sent', 'delivered') GROUP BY 1
) h ON h.record_id = l.id WHERE substr(l.id, 2)::int % 10 = 0 AND COALESCE(h.n, 0) <> 1"""
_GAPS = """SELECT count(*) FROM (
    SELECT from_state, lag(to_state) OVER (PARTITION BY record_id ORDER BY seq) AS before
    FROM esclusa.history WHERE table_name = 'letters'
) s WHERE before <> from_state"""
_TIMEOUT = 900.0


async def rename(driver: Driver, report: Report, scale: Scale) -> None:
    """Rename four states over 1,000,000 rows with an old and a new worker, and with none."""
    alone = await asyncio.to_thread(_measure, driver, "rename_alone", scale.rows, workers=False)
    busy = await asyncio.to_thread(_measure, driver, "rename_busy", scale.rows, workers=True)
    what = f"rename states of {scale.rows:,} rows, both versions running"
    report.rows.append(rates(what, [busy], "the same without workers", [alone]))


def _measure(driver: Driver, name: str, rows: int, *, workers: bool) -> float:
    """Rows renamed a second, by ``esclusa migrate`` and the new worker together."""
    url = driver.server.create_database(name)

    def ask(statement: str) -> str:
        return driver.server.run_sql(statement, name).strip()

    _esclusa(url, "before", "migrate")
    ask(_FILL.format(rows=rows))
    ask("ANALYZE letters")
    with ExitStack() as stack:
        if workers:
            stack.enter_context(_worker(url, "before"))
            time.sleep(3.0)
        start = time.monotonic()
        if workers:
            stack.enter_context(_worker(url, "after"))
        _esclusa(url, "after", "migrate")
        took = time.monotonic() - start
        progress(f"{name}: {rows:,} rows in {took:.1f} s")
        end = time.monotonic() + _TIMEOUT
        while workers and ask(_LEFT) != "0":
            if time.monotonic() > end:
                raise RuntimeError(f"letters are left: {ask(_STATES)}")
            time.sleep(1.0)
    _esclusa(url, "after", "migrate")  # what the old worker wrote last
    states, gaps = ask(_STATES), ask(_GAPS)
    progress(f"{name}: states and rows at the end: {states}; gaps in the history: {gaps}")
    if workers:
        wrong = ask(_NOT_ONCE)
        progress(f"{name}: letters that were not sent exactly once: {wrong} of {rows // 10:,}")
        if (states, gaps, wrong) != (f"delivered {rows}", "0", "0"):
            raise RuntimeError("records were lost, doubled or orphaned")
    return rows / took


def _command(version: str, *argv: str) -> list[str]:
    return [sys.executable, "-m", "esclusa", *argv, "--pipelines", f"{_LETTERS}:{version}"]


def _environment(url: str) -> dict[str, str]:
    return os.environ | {"ESCLUSA_STORE": url, "ESCLUSA_LOG_LEVEL": "warning"}


def _esclusa(url: str, version: str, *argv: str) -> None:
    subprocess.run(
        _command(version, *argv), env=_environment(url), check=True, stdout=subprocess.DEVNULL
    )


@contextmanager
def _worker(url: str, version: str) -> Iterator[None]:
    process = subprocess.Popen(_command(version, "worker"), env=_environment(url))
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the worker of the version {version} ended by itself")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


MEASURES: dict[str, Measure] = {"rename": rename}
