"""The settler: gathers settlements, writes them in batches, and never loses one to a passing fault."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.model.settlement import Lost, Rejected, Settlement, Verdict
from esclusa.ports.artifacts import Artifacts, KeptArtifact
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry


class Receiver(Protocol):
    """Whoever wants to know what became of its settlements."""

    def written(self, told: list[tuple[Any, Settlement, Verdict]]) -> None:
        """These were written: for each the token that was added with it, and the verdict."""


class _Waiting:
    """The receiver of somebody who waits for one verdict."""

    def __init__(self, answer: asyncio.Future[Verdict]) -> None:
        self._answer = answer

    def written(self, told: list[tuple[Any, Settlement, Verdict]]) -> None:
        if not self._answer.done():
            self._answer.set_result(told[0][2])


_Entry: TypeAlias = tuple[Settlement, "Receiver | None", Any, Sequence[KeptArtifact]]

_CROWD = 8
"""Settlements in a batch from which on the next is gathered."""

_GATHER = 0.02
"""Seconds from one gathered batch to the next. What a store does for each batch costs as much as twenty settlements do."""

_GATHER_FILES = 0.1
"""The same for batches that wait for the disk: what that does for each of them costs as much as a hundred files do."""


class Settler:
    """One batch at a time; whatever arrives meanwhile makes the next. So a lone settlement is written at once, and under load the
    batches grow by themselves. After a crowd the next batch waits a moment for more, unless somebody waits for it. What a batch says
    of files is written once they are safe."""

    def __init__(
        self, store: Store, artifacts: Artifacts, telemetry: Telemetry, *, batch: int
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._telemetry = telemetry
        self._batch = batch
        self._queue: list[_Entry] = []
        self._some = asyncio.Event()
        self._hurried = asyncio.Event()
        self._added = 0
        self._written = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._in_hand: list[_Entry] = []
        self._task: asyncio.Task[None] | None = None
        self._end: asyncio.TimerHandle | None = None
        self._over = False

    def start(self) -> None:
        self._over = False
        self._task = asyncio.create_task(self._loop(), name="settler")

    def add(
        self,
        settlement: Settlement,
        receiver: Receiver | None = None,
        token: Any = None,
        kept: Sequence[KeptArtifact] = (),
    ) -> None:
        """Queue it; ``receiver`` is told the verdict, with the token, once it is written: Lost, if that is over; Rejected, if one of
        the files that were ``kept`` for it is not safe. Never blocks."""
        entry = settlement, receiver, token, kept
        self._added += 1
        if self._over:
            self._tell([entry], [Lost(settlement.ref)])
            return
        self._queue.append(entry)
        self._some.set()
        if len(self._queue) >= self._batch:
            self.hurry()

    def hurry(self) -> None:
        """Somebody waits for what is queued: gather no more."""
        self._hurried.set()

    async def settle(self, settlement: Settlement) -> Verdict:
        """Queue one and wait for its verdict."""
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.add(settlement, _Waiting(answer))
        self.hurry()
        return await answer

    async def flush(self) -> None:
        """Wait until everything that was added before now is written."""
        if self._written < self._added:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((self._added, waiter))
            self.hurry()
            await waiter

    def give_up_in(self, seconds: float) -> None:
        """The process ends: a store that is away is waited for so long and no longer. What is not written by then is Lost, and
        so is whatever comes after: its lease runs out by itself, and the record is handled again."""
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._over = True
        if self._task is not None:
            self._task.cancel()
        left = [*self._in_hand, *self._queue]
        self._in_hand = []
        self._queue.clear()
        if left:
            self._telemetry.event(
                "error",
                "stopped before the store took every outcome; those records are handled again",
                outcomes=len(left),
            )
        self._tell(left, [Lost(settlement.ref) for settlement, *_ in left])

    async def stop(self) -> None:
        """Write what is left, then end. Whatever comes after is Lost."""
        while self._written < self._added:  # what was rejected is settled again, as an error
            await self.flush()
        if self._end is not None:
            self._end.cancel()
        self._over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._queue:
                begun = time.monotonic()
                if pause := await self._write():
                    await self._gather(begun + pause - time.monotonic())

    async def _gather(self, seconds: float) -> None:
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._hurried.wait()

    async def _write(self) -> float:
        """Write the next batch; how long after its beginning the one after it may wait for company. Nothing of it is kept here while the
        settler waits for more."""
        batch = self._in_hand = self._queue[: self._batch]
        del self._queue[: self._batch]
        if not self._queue:
            self._hurried.clear()
        crowd, files = len(batch) >= _CROWD, any(entry[3] for entry in batch)
        if files:
            batch = self._in_hand = await self._safe(batch)
        verdicts = await self._verdicts([entry[0] for entry in batch]) if batch else []
        if not self._over:  # they were told that they are lost
            self._in_hand = []
            self._tell(batch, verdicts)
        return (_GATHER_FILES if files else _GATHER) if crowd else 0.0

    async def _safe(self, batch: list[_Entry]) -> list[_Entry]:
        """Those whose files are on the disk; the others are told that they cannot be written."""
        failed: Exception | None = None
        try:
            await self._artifacts.sync([kept for entry in batch for kept in entry[3]])
        except Exception as error:  # noqa: BLE001 - it never should, and then nobody knows of any that it is safe
            failed = error
        faults = [
            next((kept.error or failed for kept in entry[3] if kept.error or failed), None)
            for entry in batch
        ]
        lost = [
            (entry, Rejected(entry[0].ref, str(error), error))
            for entry, error in zip(batch, faults, strict=True)
            if error is not None
        ]
        self._tell([entry for entry, _ in lost], [verdict for _, verdict in lost])
        return [entry for entry, error in zip(batch, faults, strict=True) if error is None]

    def _tell(self, batch: list[_Entry], verdicts: Sequence[Verdict]) -> None:
        """Each receiver its own; then those who wait that so many are written."""
        told: defaultdict[Receiver | None, list[tuple[Any, Settlement, Verdict]]] = defaultdict(
            list
        )
        for (settlement, receiver, token, _), verdict in zip(batch, verdicts, strict=True):
            told[receiver].append((token, settlement, verdict))
        for receiver, theirs in told.items():
            if receiver is not None:
                receiver.written(theirs)
        self._written += len(batch)
        while self._waiters and self._waiters[0][0] <= self._written:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)

    async def _verdicts(self, settlements: list[Settlement]) -> list[Verdict]:
        """Write a batch; while the store is unavailable, try again."""
        pause = 0.05
        while True:
            try:
                return await self._store.settle(settlements)
            except (StoreUnavailable, StoreConflict) as error:
                self._telemetry.event(
                    "warning",
                    f"settle: {error}; the outcomes are kept and tried again",
                    outcomes=len(settlements),
                )
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
