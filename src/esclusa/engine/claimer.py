"""The claimer: takes due records of one stage, as many as its budget allows."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime

from esclusa.engine.reservations import BudgetReservation
from esclusa.model.budget import Denied
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import ClaimRequest, Leased
from esclusa.model.value import value
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry


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
        store: Store,
        reservation: BudgetReservation,
        telemetry: Telemetry,
    ) -> None:
        self._request = request
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
            leases = await self._store.claim(replace(self._request, limit=granted))
        except (StoreUnavailable, StoreConflict):
            await self._reservation.give_back(granted, at)
            raise
        if leases:
            self._telemetry.claimed(self._request.stage, len(leases), time.monotonic() - start)
        return Claimed(leases, granted, at)

    async def give_back(self, records: int, at: datetime | None) -> None:
        """Refund the reservation of records that no handler was called with."""
        await self._reservation.give_back(records, at)
