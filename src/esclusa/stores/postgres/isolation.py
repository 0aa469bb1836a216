"""Settle a batch that failed as a whole: find the settlements at fault and write the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from esclusa.model.effects import Create, Move
from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import Locked, Rejected, Settlement, Verdict
from esclusa.model.texts import text
from esclusa.stores.isolate import LockTimeout, StatementTimeout
from esclusa.stores.postgres.client import ConnectionPools, Fetch
from esclusa.stores.postgres.leases import check_writes
from esclusa.stores.postgres.limits import StatementLimits, part_limits
from esclusa.stores.postgres.locks import find_locks
from esclusa.stores.postgres.settlements import explain, settle
from esclusa.stores.postgres.statements import WriteContext

# How many parts of one call may run into their short limits. What is left then is not tried.
_MAX_WAITS = 24
# How often one call looks for locked rows, and how often it waits for locks of other workers.
_MAX_PROBES, _MAX_WORKER_WAITS = 4, 8
# A settlement of at least so many characters may be more than a connection can carry.
_LARGE = 1 << 24


class SettlementIsolation:
    """One call of ``settle``, after the first attempt failed.

    - What touches a row that another program has locked is Locked.
    - What takes too long is written alone. If it takes too long again, although the store writes,
      it is Rejected.
    - What is so large that the connection breaks is Rejected.
    - Any other error is that of a single settlement, which is Rejected.

    Raises StoreUnavailable and StoreConflict only if nothing is written.
    """

    def __init__(
        self,
        connections: ConnectionPools,
        context: Callable[[Fetch], WriteContext],
        settlements: Sequence[Settlement],
    ) -> None:
        self._connections = connections
        self._context = context
        self._settlements = settlements
        self._verdicts: dict[int, Verdict] = {}
        self._slow: list[int] = []
        self._short: StatementLimits | None = None
        self._waits = self._probes = 0

    async def run(self, error: Exception) -> list[Verdict]:
        """Return the verdicts, in order; ``error`` is that of the first attempt."""
        numbers = range(len(self._settlements))
        try:
            await self._divide(list(numbers), error)
            await self._write_slow()
        except (StoreUnavailable, StoreConflict) as transient:
            if not self._verdicts:
                raise
            # What is written must not be sent again; the rest must.
            self._lock((n for n in numbers if n not in self._verdicts), str(transient))
        return [self._verdicts[n] for n in numbers]

    async def _write(self, numbers: list[int], limits: StatementLimits | None = None) -> None:
        part = [self._settlements[n] for n in numbers]
        verdicts = await settle(self._connections, self._context, part, limits)
        self._verdicts |= zip(numbers, verdicts, strict=True)

    async def _attempt(self, numbers: list[int]) -> None:
        """Write a part, or smaller ones of it."""
        try:
            await self._write(numbers, self._short)
        except Exception as error:  # noqa: BLE001 - whatever the fault is, the others are written
            await self._divide(numbers, error)

    async def _divide(self, numbers: list[int], error: Exception) -> None:
        """Write what can be written of a part that failed with this error."""
        match error:
            case LockTimeout():
                await self._after_lock_timeout(numbers, error)
            case StatementTimeout():
                await self._halve_in_time(numbers, error)
            case StoreUnavailable():
                await self._after_outage(numbers, error)
            case StoreConflict():
                raise error
            case _ if len(numbers) == 1:
                self._reject(numbers[0], explain(self._settlements[numbers[0]], error))
            case _:
                await self._halve(numbers)

    async def _halve(self, numbers: list[int]) -> None:
        half = len(numbers) // 2
        await self._attempt(numbers[:half])
        await self._attempt(numbers[half:])

    async def _halve_in_time(self, numbers: list[int], error: Exception) -> None:
        """Halve with short limits. What is alone waits for its lock, or for more time."""
        self._waits += 1
        self._short = part_limits(self._connections.limits)
        if len(numbers) == 1 and isinstance(error, StatementTimeout):
            self._slow += numbers
        elif len(numbers) == 1 or self._waits > _MAX_WAITS:
            self._lock(numbers, str(error))
        else:
            await self._halve(numbers)

    # locks

    async def _after_lock_timeout(self, numbers: list[int], error: Exception) -> None:
        self._probes += 1
        if self._probes > _MAX_PROBES:
            await self._halve_in_time(numbers, error)
            return
        locks = await self._foreign_locks(numbers)
        if locks is None:
            return
        for n, why in locks.items():
            self._lock([n], why)
        left = [n for n in numbers if n not in locks]
        if locks and left:
            await self._attempt(left)
        elif left:  # the lock is not that of a row: perhaps of a key that is being inserted
            await self._halve_in_time(left, error)

    async def _foreign_locks(self, numbers: list[int]) -> dict[int, str] | None:
        """Return which settlements are locked, and why; None if they are written meanwhile.

        Other workers end soon: wait for their locks, up to a limit. A lock that is not found may
        have been released just now.
        """
        part = [self._settlements[n] for n in numbers]
        for attempt in range(_MAX_WORKER_WAITS):
            table_of = self._context(self._connections.fetch).table
            found = await find_locks(self._connections, table_of, part)
            locks = {numbers[n]: lock for n, lock in found.items()}
            foreign = {n: str(lock.why) for n, lock in locks.items() if not lock.by_worker}
            if foreign or (not locks and attempt):
                return foreign
            try:
                await self._write(numbers)
            except LockTimeout:
                continue
            except Exception as error:  # noqa: BLE001 - whatever the fault is
                await self._divide(numbers, error)
            return None
        return {n: str(lock.why) for n, lock in locks.items()}

    # time and size

    async def _write_slow(self) -> None:
        """Write alone, with the usual limit, what was too slow for the short one."""
        clock = asyncio.get_running_loop().time
        limit = self._connections.limits.statement
        end = clock() + 2 * limit
        for n in self._slow:
            why = text("write_timeout", seconds=limit)
            if clock() > end:  # another call has time for it
                self._lock([n], why)
                continue
            try:
                await self._write([n])
            except StatementTimeout:
                await check_writes(self._connections)
                self._reject(n, why)
            except Exception as error:  # noqa: BLE001 - whatever the fault is
                await self._divide([n], error)

    async def _after_outage(self, numbers: list[int], error: Exception) -> None:
        """Halve what may be too large; raise the error if that is not its cause."""
        if sum(_weight(self._settlements[n]) for n in numbers) < _LARGE:
            raise error
        await check_writes(self._connections)
        if len(numbers) > 1:
            await self._halve(numbers)
            return
        try:
            await self._write(numbers)
        except StoreUnavailable as again:
            await check_writes(self._connections)
            self._reject(numbers[0], text("too_large", why=again))

    # verdicts

    def _lock(self, numbers: Iterable[int], why: str) -> None:
        self._verdicts |= {n: Locked(self._settlements[n].ref, why) for n in numbers}

    def _reject(self, number: int, why: str) -> None:
        self._verdicts[number] = Rejected(self._settlements[number].ref, why)


def _weight(settlement: Settlement) -> int:
    """Return about how many characters a settlement has."""
    weight = _characters(settlement.fields) + _characters(settlement.error)
    for effect in settlement.effects:
        if isinstance(effect, Create):
            weight += _characters(effect.record.__dict__)
        elif isinstance(effect, Move):
            weight += _characters(effect.fields)
    return weight


def _characters(given: Any) -> int:
    if isinstance(given, str | bytes):
        return len(given)
    if isinstance(given, Mapping):
        return sum(map(_characters, given.values()))
    if isinstance(given, list | tuple | set):
        return sum(map(_characters, given))
    return 8
