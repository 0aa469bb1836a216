"""Judges stages through which nothing goes, and tables with many open dead letters."""

from __future__ import annotations

from datetime import timedelta

from esclusa.engine.alert_rules import AlertRules
from esclusa.engine.alerts import AlertLog
from esclusa.engine.clock import StoreClock
from esclusa.engine.cycle_records import CycleRecords
from esclusa.engine.records import Records
from esclusa.engine.registry import SYSTEM, Registry
from esclusa.model import duration
from esclusa.model.query import at_least, query
from esclusa.model.results import PROCESSED
from esclusa.model.stage import Stage
from esclusa.model.system_records import DeadLetter, RateRecord
from esclusa.model.texts import text
from esclusa.ports.store import Store


class RecordAlerts:
    """Begins and ends the alerts ``silence`` and ``dead_letters``; see ``AlertRules``."""

    def __init__(
        self,
        alerts: AlertLog,
        registry: Registry,
        store: Store,
        records: Records,
        cycle_records: CycleRecords,
        clock: StoreClock,
        rules: AlertRules,
    ) -> None:
        self._alerts = alerts
        self._registry = registry
        self._store = store
        self._records = records
        self._cycle_records = cycle_records
        self._clock = clock
        self._rules = rules

    async def silences(self) -> None:
        """An alert for each stage through which no record has gone for too long."""
        for stage in self._registry.all_stages:
            limit = self._rules.silence(stage)
            if limit and not stage.name.startswith(SYSTEM) and await self._silent(stage, limit):
                message = text("silence", stage=stage.name, limit=duration.words(limit))
                await self._alerts.begin("silence", stage.name, message)
            else:
                await self._alerts.end("silence", stage.name)

    async def _silent(self, stage: Stage, limit: float) -> bool:
        """Whether nothing was counted for so long; not while its cycle is younger or paused."""
        cycle, since = self._registry.cycle_of(stage), self._clock.now() - timedelta(seconds=limit)
        known = None if cycle is None else await self._cycle_records.get(cycle.name)
        if known is None or known.status == "paused" or (known.created_at or since) >= since:
            return False
        # A row counts one minute, from its beginning on.
        where = {"stage": stage.name, "minute": at_least(since - timedelta(minutes=1))}
        page = await self._records.find(RateRecord, where, limit=100)
        return not any(getattr(row, name) for row in page.items for name in PROCESSED)

    async def dead_letters(self) -> None:
        """An alert for each table with so many open dead letters."""
        for table in dict.fromkeys(s.kind.table for s in self._registry.all_stages if s.exhausted):
            limit = self._rules.dead_letters(table)
            where = {"status": "open", "table_name": table}
            count = limit and (await self._store.count(query(DeadLetter, where), limit))[0]
            if limit and count and count >= limit:
                message = text("dead_letters", table=table, count=count, limit=limit)
                await self._alerts.begin("dead_letters", table, message)
            else:
                await self._alerts.end("dead_letters", table)
