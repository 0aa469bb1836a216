"""Budgets: one row per budget, window length and window start; one for a rate.

Units are reserved under a row lock, which keeps budgets from being overspent.
"""

# ruff: noqa: S608 - names are declared and quoted; values are bound

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pydantic_core import from_json

from esclusa.model.budget import (
    Budget,
    Denied,
    Granted,
    PastWindow,
    Rate,
    Window,
    WindowUse,
)
from esclusa.model.budget_state import (
    OpenRate,
    OpenWindow,
    give_back,
    open_windows,
    reserve,
)
from esclusa.stores.postgres.client import Fetch
from esclusa.stores.postgres.codec import json_text
from esclusa.stores.postgres.names import Installation

# How long the rows of closed windows are kept; of other windows, for ever.
_KEPT_FOR = {
    "second": timedelta(hours=1),
    "minute": timedelta(days=1),
    "hour": timedelta(days=35),
    "day": timedelta(days=400),
}


class LockedBudget(NamedTuple):
    """The open windows of a budget under row locks; ``at``: when they were locked.

    ``barred``: until when the provider refuses calls.
    """

    windows: list[OpenWindow | OpenRate]
    at: datetime
    barred: datetime | None


class BudgetTable:
    """The statements for the budgets of an installation."""

    def __init__(self, installation: Installation) -> None:
        table = installation.budgets
        self._read = f"""SELECT per, used, limit_seen, spenders, until FROM {table}
            WHERE budget = $1
                AND (per, starts_at) IN (SELECT * FROM unnest($2::text[], $3::timestamptz[]))
            ORDER BY per"""
        # The time is read once the rows are locked, which may take a while.
        self._lock = f"""WITH locked AS MATERIALIZED ({self._read} FOR UPDATE)
            SELECT per, used, limit_seen, spenders, clock_timestamp() + $4::interval AS moment,
                greatest(max(until) OVER (), (SELECT max(until) FROM {table} WHERE budget = $1))
                    AS until
            FROM locked"""
        self._open = f"""INSERT INTO {table} (budget, per, starts_at)
            SELECT $1, * FROM unnest($2::text[], $3::timestamptz[])
            ON CONFLICT DO NOTHING RETURNING per"""
        self._update = f"""UPDATE {table} b
            SET used = u.used, limit_seen = u.limit_seen, spenders = u.spenders
            FROM unnest($2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::jsonb[])
                AS u(per, starts_at, used, limit_seen, spenders)
            WHERE b.budget = $1 AND b.per = u.per AND b.starts_at = u.starts_at"""
        self._block = f"""UPDATE {table} SET until = $4
            WHERE budget = $1 AND per = $2 AND starts_at = $3"""
        self._blocked_until = f"SELECT max(until) FROM {table} WHERE budget = $1"
        self._past = f"""SELECT starts_at, used, limit_seen, spenders FROM {table}
            WHERE budget = $1 AND per = $2 AND starts_at = ANY($3::timestamptz[])
            ORDER BY starts_at"""
        self._delete_old = f"""DELETE FROM {table}
            WHERE budget = $1 AND per = $2 AND starts_at < $3 AND (until IS NULL OR until < $4)"""

    async def _locked(
        self,
        connection: Any,
        offset: timedelta,
        budget: Budget,
        windows: Sequence[Window | Rate],
    ) -> LockedBudget:
        """Lock the rows of the open windows; rows are created for new windows."""
        moment = await now(connection, offset)
        while True:
            pers, starts = [w.per for w in windows], [w.start(moment) for w in windows]
            rows = await connection.fetch(self._lock, budget.name, pers, starts, offset)
            if len(rows) == len(windows):
                locked_at: datetime = rows[0]["moment"]
                if starts == [w.start(locked_at) for w in windows]:
                    opened = _opened(windows, locked_at, rows)
                    return LockedBudget(opened, locked_at, rows[0]["until"])
                moment = locked_at  # a window ended while this waited for the lock
                continue
            closing = {w.per for w in windows if isinstance(w, Window)} & set(_KEPT_FOR)
            for (per,) in await connection.fetch(self._open, budget.name, pers, starts):
                if per in closing:
                    old = moment - _KEPT_FOR[per]
                    await connection.execute(self._delete_old, budget.name, per, old, moment)

    async def _write(
        self, connection: Any, budget: Budget, windows: Sequence[OpenWindow | OpenRate]
    ) -> None:
        columns = zip(
            *((w.window.per, w.start, w.used, w.limit_seen, json_text(w.kept)) for w in windows),
            strict=True,
        )
        await connection.execute(self._update, budget.name, *columns)

    async def spend(
        self,
        connection: Any,
        offset: timedelta,
        budget: Budget,
        units: int,
        spender: str,
        least: int,
        ahead: float = 0.0,
    ) -> Granted | Denied:
        """Reserve units under the row locks of all windows."""
        locked = await self._locked(connection, offset, budget, budget.windows)
        answer = reserve(
            locked.windows,
            units,
            spender,
            least,
            now=locked.at,
            barred=locked.barred,
            ahead=ahead,
        )
        if isinstance(answer, Granted):
            await self._write(connection, budget, locked.windows)
        return answer

    async def refund(
        self,
        connection: Any,
        offset: timedelta,
        budget: Budget,
        units: int,
        spender: str,
        at: datetime | None,
    ) -> None:
        """Return units to the windows that were open when they were reserved."""
        windows = (await self._locked(connection, offset, budget, budget.windows)).windows
        give_back(windows, units, spender, at)
        await self._write(connection, budget, windows)

    async def observe(
        self,
        connection: Any,
        offset: timedelta,
        budget: Budget,
        per: str,
        used: int | None,
        limit: int | None,
        until: datetime | None,
    ) -> None:
        """Write what the provider reported about the open window."""
        window = next((w for w in budget.windows if w.per == per), None)
        if window is None:
            raise budget.no_window(per)
        locked = await self._locked(connection, offset, budget, [window])
        [open] = locked.windows
        open.learn(used, limit, locked.at)
        await self._write(connection, budget, [open])
        if until is not None:
            await connection.execute(self._block, budget.name, per, open.start, until)

    async def usage(self, connection: Any, offset: timedelta, budget: Budget) -> list[WindowUse]:
        """Return the use of each open window."""
        moment = await now(connection, offset)
        rows = await connection.fetch(
            self._read,
            budget.name,
            [w.per for w in budget.windows],
            [w.start(moment) for w in budget.windows],
        )
        barred = await connection.fetchval(self._blocked_until, budget.name)
        return [w.use(budget.name, moment, barred) for w in _opened(budget.windows, moment, rows)]

    async def past_usage(
        self, fetch: Fetch, budget: Budget, window: Window, starts: Sequence[datetime]
    ) -> list[PastWindow]:
        """Return the kept windows with these starts."""
        rows = await fetch(self._past, budget.name, window.per, list(starts))
        return [
            PastWindow(start, used, window.limit if seen is None else seen, from_json(spenders))
            for start, used, seen, spenders in rows
        ]


async def now(connection: Any, offset: timedelta) -> datetime:
    """Return the store's time."""
    moment: datetime = await connection.fetchval("SELECT clock_timestamp() + $1::interval", offset)
    return moment


def _opened(
    windows: Sequence[Window | Rate], moment: datetime, rows: Sequence[Any]
) -> list[OpenWindow | OpenRate]:
    opened = {open.window.per: open for open in open_windows(windows, moment)}
    for per, used, limit_seen, kept, *_ in rows:
        opened[per].load(used, limit_seen, from_json(kept))
    return list(opened.values())
