"""Budgets: one row per budget, window length and window start; one for a rate.

Reading and writing them in one write transaction keeps budgets from being overspent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

import apsw

from esclusa.model.budget import Budget, Denied, Granted, PastWindow, Window, WindowUse
from esclusa.model.budget_state import (
    OpenRate,
    OpenWindow,
    give_back,
    open_windows,
    reserve,
)
from esclusa.stores.sqlite.client import fetch_value
from esclusa.stores.sqlite.codec import decode_time, encode_time
from esclusa.stores.sqlite.statements import text_array

# How long the rows of closed windows are kept; of longer windows, 400 days.
_KEPT_FOR = {"second": timedelta(hours=1), "minute": timedelta(hours=6), "hour": timedelta(days=35)}

_READ = """SELECT used, limit_seen, spenders FROM esclusa_budgets
WHERE name = ? AND per = ? AND start = ?"""
_PAST = """SELECT start, used, limit_seen, spenders FROM esclusa_budgets
WHERE name = ? AND per = ? AND start IN (SELECT value FROM carray(?)) ORDER BY start"""
_WRITE = """INSERT INTO esclusa_budgets (name, per, start, used, limit_seen, spenders)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    used = excluded.used, limit_seen = excluded.limit_seen, spenders = excluded.spenders"""
_BLOCK = "UPDATE esclusa_budgets SET until = ? WHERE name = ? AND per = ? AND start = ?"
_BLOCKED_UNTIL = "SELECT MAX(until) FROM esclusa_budgets WHERE name = ?"
_DELETE_OLD = """DELETE FROM esclusa_budgets
WHERE name = ? AND per = ? AND start < ? AND (until IS NULL OR until < ?)"""


def spend(
    connection: apsw.Connection,
    budget: Budget,
    units: int,
    spender: str,
    least: int,
    ahead: float,
    now: datetime,
) -> Granted | Denied:
    """Reserve units in all windows."""
    windows = _read(connection, budget, now)
    barred = _blocked_until(connection, budget)
    answer = reserve(windows, units, spender, least, now=now, barred=barred, ahead=ahead)
    if isinstance(answer, Granted):
        _write(connection, budget, windows, now)
    return answer


def refund(
    connection: apsw.Connection,
    budget: Budget,
    units: int,
    spender: str,
    at: datetime | None,
    now: datetime,
) -> None:
    """Return units to the windows that were open when they were reserved."""
    windows = _read(connection, budget, now)
    give_back(windows, units, spender, at)
    _write(connection, budget, windows, now)


def observe(
    connection: apsw.Connection,
    budget: Budget,
    per: str,
    used: int | None,
    limit: int | None,
    until: datetime | None,
    now: datetime,
) -> None:
    """Write what the provider reported about the open window."""
    windows = [w for w in _read(connection, budget, now) if w.window.per == per]
    if not windows:
        raise budget.no_window(per)
    windows[0].learn(used, limit, now)
    _write(connection, budget, windows, now)
    if until is not None:
        connection.execute(
            _BLOCK, (encode_time(until), budget.name, per, encode_time(windows[0].start))
        )


def usage(connection: apsw.Connection, budget: Budget, now: datetime) -> list[WindowUse]:
    """Return the use of each open window."""
    barred = _blocked_until(connection, budget)
    return [w.use(budget.name, now, barred) for w in _read(connection, budget, now)]


def past_usage(
    connection: apsw.Connection, budget: Budget, window: Window, starts: Sequence[datetime]
) -> list[PastWindow]:
    """Return the kept windows with these starts."""
    given = {encode_time(start): start for start in starts}
    rows = connection.execute(_PAST, (budget.name, window.per, text_array(given)))
    return [
        PastWindow(given[start], used, window.limit if seen is None else seen, json.loads(spenders))
        for start, used, seen, spenders in rows
    ]


def _read(
    connection: apsw.Connection, budget: Budget, now: datetime
) -> list[OpenWindow | OpenRate]:
    windows = open_windows(budget.windows, now)
    for open in windows:
        key = (budget.name, open.window.per, encode_time(open.start))
        for used, limit, kept in connection.execute(_READ, key):
            open.load(used, limit, json.loads(kept))
    return windows


def _blocked_until(connection: apsw.Connection, budget: Budget) -> datetime | None:
    """Return until when the provider refuses, also if it said so in an earlier window."""
    until = fetch_value(connection, _BLOCKED_UNTIL, (budget.name,))
    return None if until is None else decode_time(until)


def _write(
    connection: apsw.Connection,
    budget: Budget,
    windows: list[OpenWindow | OpenRate],
    now: datetime,
) -> None:
    for open in windows:
        key = (budget.name, open.window.per)
        values = (encode_time(open.start), open.used, open.limit_seen, json.dumps(open.kept))
        connection.execute(_WRITE, (*key, *values))
        if isinstance(open, OpenRate):
            continue
        old = open.start - _KEPT_FOR.get(open.window.per, timedelta(days=400))
        connection.execute(_DELETE_OLD, (*key, encode_time(old), encode_time(now)))
