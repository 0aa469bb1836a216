"""The claimer: reserves the budget of one stage, then claims as many due records."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime

from esclusa.engine.runs import RunContext
from esclusa.model.budget import Denied
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import ClaimRequest, Leased
from esclusa.model.stage import Stage
from esclusa.model.value import value
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry


class BudgetReservation:
    """Reserves units of the stage's budget. A stage without a budget is granted everything."""

    def __init__(self, stage: Stage, store: Store, telemetry: Telemetry) -> None:
        self._stage = stage
        self._budget = stage.budget if stage.cost else None
        self._store = store
        self._telemetry = telemetry

    async def reserve(self, records: int) -> tuple[int, datetime | None] | Denied:
        """Return for how many of these records there are units, and when they were granted.

        Raises StoreUnavailable and StoreConflict.
        """
        budget, cost = self._budget, self._stage.cost
        if budget is None:
            return records, None
        answer = await self._store.spend(budget, records * cost, self._stage.name, least=cost)
        if isinstance(answer, Denied):
            return answer
        if answer.units % cost:
            await self._store.refund(budget, answer.units % cost, self._stage.name, answer.at)
        return answer.units // cost, answer.at

    async def give_back(self, records: int, at: datetime | None) -> None:
        """Refund what was granted ``at`` that time for records that were not handled.

        A store that does not answer keeps it: an unused unit is better than an overspent budget.
        """
        if self._budget is None or records <= 0:
            return
        try:
            await self._store.refund(self._budget, records * self._stage.cost, self._stage.name, at)
        except (StoreUnavailable, StoreConflict) as error:
            self._telemetry.event(
                "warning",
                f"the budget of {records} records was not given back: {error}",
                engine_stage=self._stage.name,
            )


@value
class Claimed:
    """Leased records, and their reservation: for ``granted`` records, made at ``at``."""

    leases: list[Leased]
    granted: int
    at: datetime | None


class Claimer:
    """Reserves, then claims."""

    def __init__(
        self,
        request: ClaimRequest,
        run: RunContext,
        store: Store,
        reservation: BudgetReservation,
        telemetry: Telemetry,
    ) -> None:
        self._request = request
        self._run = run
        self._store = store
        self._reservation = reservation
        self._telemetry = telemetry

    async def claim(self, limit: int) -> Claimed | Denied:
        """Claim up to ``limit`` records. Raises StoreUnavailable and StoreConflict.

        The caller gives back what it does not hand to a handler, with ``give_back``.
        """
        reserved = await self._reservation.reserve(limit)
        if isinstance(reserved, Denied):
            return reserved
        granted, at = reserved
        start = time.monotonic()
        try:
            leases = await self._store.claim(
                replace(self._request, limit=granted, run=self._run.id or None)
            )
        except (StoreUnavailable, StoreConflict):
            await self._reservation.give_back(granted, at)
            raise
        if leases:
            self._telemetry.claimed(self._request.stage, len(leases), time.monotonic() - start)
        return Claimed(leases, granted, at)

    async def has_due(self) -> bool:
        """Whether a claim would find a record. A store that does not answer may hold one."""
        try:
            return (await self._store.backlog(self._request, cap=1)).due > 0
        except (StoreUnavailable, StoreConflict):
            return True

    async def give_back(self, records: int, at: datetime | None) -> None:
        """Refund the reservation of records that no handler was called with."""
        await self._reservation.give_back(records, at)
