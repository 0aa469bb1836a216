"""Budgets: one row per budget, window length and window start, read and written inside one immediate transaction."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import apsw

from esclusa.model.budget import Budget, Denied, Granted, OpenWindow, WindowUse, give_back, reserve
from esclusa.stores.sqlite.codec import decode_time, encode_time

_KEEP = {"second": timedelta(hours=1), "minute": timedelta(hours=6), "hour": timedelta(days=7)}


def spend(
    connection: apsw.Connection, budget: Budget, units: int, spender: str, least: int, now: datetime
) -> Granted | Denied:
    windows = _read(connection, budget, now)
    answer = reserve(windows, units, spender, least, now=now, barred=_barred(connection, budget))
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
    windows = [w for w in _read(connection, budget, now) if w.window.per == per]
    if not windows:
        raise budget.no_window(per)
    windows[0].learn(used, limit)
    _write(connection, budget, windows, now)
    if until is not None:
        connection.execute(
            "UPDATE esclusa_budgets SET until = ? WHERE name = ? AND per = ? AND start = ?",
            (encode_time(until), budget.name, per, encode_time(windows[0].start)),
        )


def usage(connection: apsw.Connection, budget: Budget, now: datetime) -> list[WindowUse]:
    barred = _barred(connection, budget)
    return [w.use(budget.name, now, barred) for w in _read(connection, budget, now)]


def _read(connection: apsw.Connection, budget: Budget, now: datetime) -> list[OpenWindow]:
    found = []
    for window in budget.windows:
        open = OpenWindow(window, window.start(now))
        for used, limit, spenders in connection.execute(
            "SELECT used, limit_seen, spenders FROM esclusa_budgets WHERE name = ? AND per = ? AND start = ?",
            (budget.name, window.per, encode_time(open.start)),
        ):
            open.used, open.limit_seen, open.spenders = used, limit, json.loads(spenders)
        found.append(open)
    return found


def _barred(connection: apsw.Connection, budget: Budget) -> datetime | None:
    """Until when the provider said that nothing is to be had, also where it said so in a window before this one."""
    for (until,) in connection.execute(
        "SELECT MAX(until) FROM esclusa_budgets WHERE name = ?", (budget.name,)
    ):
        return None if until is None else decode_time(until)
    return None


def _write(
    connection: apsw.Connection, budget: Budget, windows: list[OpenWindow], now: datetime
) -> None:
    for open in windows:
        connection.execute(
            "INSERT INTO esclusa_budgets (name, per, start, used, limit_seen, spenders) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET used = excluded.used, limit_seen = excluded.limit_seen, spenders = excluded.spenders",
            (
                budget.name,
                open.window.per,
                encode_time(open.start),
                open.used,
                open.limit_seen,
                json.dumps(open.spenders),
            ),
        )
        old = encode_time(open.start - _KEEP.get(open.window.per, timedelta(days=400)))
        connection.execute(
            "DELETE FROM esclusa_budgets WHERE name = ? AND per = ? AND start < ? AND (until IS NULL OR until < ?)",
            (budget.name, open.window.per, old, encode_time(now)),
        )
