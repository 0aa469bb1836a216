"""The store as one worker of a test sees it. Once the worker is killed, it changes nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from esclusa.model.budget import Budget, Denied, Granted
from esclusa.model.effects import Effect
from esclusa.model.kind import Ref
from esclusa.model.record import Record
from esclusa.model.settlement import (
    ClaimRequest,
    Duplicate,
    Inserted,
    Leased,
    Lost,
    Renewal,
    Settled,
    Settlement,
    Verdict,
)
from esclusa.ports.store import OnAdopted, OnRefused, Store
from esclusa.testing.faults import FaultLog
from esclusa.testing.handlers import Handlers, Killed

# What a dead worker can no longer call, and what it gets: nothing was found or changed.
_WRITES = {
    "archive": 0,
    "assign": 0,
    "insert_if_new": (),
    "observe": None,
    "prune_history": 0,
    "purge": 0,
    "refund": None,
    "remove": (),
    "rename_states": 0,
    "restore": 0,
    "wake": None,
}


class WorkerStore:
    """Passes every call on to the store, and notes the effects and faults of what is settled.

    After ``dead`` is set, nothing that this worker sends is written: a claim takes nothing, and a
    settlement or a renewal is lost. So the leases that it held stay, as those of a dead process do.
    """

    def __init__(
        self, store: Store, handlers: Handlers, faults: FaultLog, effects: list[Effect]
    ) -> None:
        self.dead = False
        self._store: Any = store
        self._handlers = handlers
        self._faults = faults
        self._effects = effects

    def __getattr__(self, name: str) -> Any:
        if self.dead and name in _WRITES:

            async def refuse(*arguments: Any, **options: Any) -> Any:
                return _WRITES[name]

            return refuse
        return getattr(self._store, name)

    @property
    def on_refused(self) -> OnRefused | None:
        found: OnRefused | None = self._store.on_refused
        return found

    @on_refused.setter
    def on_refused(self, report: OnRefused | None) -> None:
        self._store.on_refused = report

    @property
    def on_adopted(self) -> OnAdopted | None:
        found: OnAdopted | None = self._store.on_adopted
        return found

    @on_adopted.setter
    def on_adopted(self, report: OnAdopted | None) -> None:
        self._store.on_adopted = report

    async def insert(self, records: Sequence[Record]) -> list[Inserted | Duplicate]:
        if self.dead:
            return [Duplicate(record.id or "") for record in records]
        answers: list[Inserted | Duplicate] = await self._store.insert(records)
        return answers

    async def claim(self, request: ClaimRequest) -> list[Leased]:
        if self.dead:
            return []
        leases: list[Leased] = await self._store.claim(request)
        return leases

    async def renew(self, renewals: Sequence[Renewal]) -> set[Ref]:
        if self.dead:
            return set()
        held: set[Ref] = await self._store.renew(renewals)
        saved = [renewal.ref for renewal in renewals if renewal.fields]
        if self._handlers.dies_after("after_save", saved):
            raise Killed
        return held

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        if self.dead:
            return [Lost(settlement.ref) for settlement in settlements]
        verdicts: list[Verdict] = await self._store.settle(settlements)
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            if isinstance(verdict, Settled) and not settlement.ref.kind.system:
                self._effects += settlement.effects
                if settlement.error is not None:
                    self._faults.settled(str(settlement.ref), settlement.error)
        self._handlers.dies_after("after_settle", [settlement.ref for settlement in settlements])
        return verdicts

    async def spend(
        self, budget: Budget, units: int, spender: str, least: int = 1, ahead: float = 0.0
    ) -> Granted | Denied:
        if self.dead:
            raise Killed
        answer: Granted | Denied = await self._store.spend(budget, units, spender, least, ahead)
        return answer

    async def now(self) -> datetime:
        moment: datetime = await self._store.now()
        return moment
