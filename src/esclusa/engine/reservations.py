"""A stage's share of its budget."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from esclusa.model.budget import Denied
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.stage import Stage

if TYPE_CHECKING:
    from esclusa.engine.engine import Engine


class BudgetReservation:
    """Reserved before records are claimed, given back for those that are not handled. Without a budget there is always enough."""

    def __init__(self, engine: Engine, stage: Stage) -> None:
        self._engine = engine
        self._stage = stage
        self._budget = stage.budget if stage.cost else None

    async def reserve(self, records: int) -> tuple[int, datetime | None] | Denied:
        """For how many of so many records there is enough, and when it was granted. Raises StoreUnavailable and StoreConflict."""
        budget, cost, store = self._budget, self._stage.cost, self._engine.store
        if budget is None:
            return records, None
        answer = await store.spend(budget, records * cost, self._stage.name, least=cost)
        if isinstance(answer, Denied):
            return answer
        if answer.units % cost:
            await store.refund(budget, answer.units % cost, self._stage.name, answer.at)
        return answer.units // cost, answer.at

    async def give_back(self, records: int, at: datetime | None) -> None:
        """What was granted ``at`` that time for so many records is not used. A store that is away keeps it: better unused than
        overspent."""
        if self._budget is None or records <= 0:
            return
        try:
            await self._engine.store.refund(
                self._budget, records * self._stage.cost, self._stage.name, at
            )
        except (StoreUnavailable, StoreConflict) as error:
            self._engine.telemetry.event(
                "warning",
                f"{records} shares of the budget were not given back: {error}",
                engine_stage=self._stage.name,
            )
