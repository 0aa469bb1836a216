"""The settler: writes settlements in batches, and loses none to a transient fault of the store."""

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
    """Gets the verdicts of the settlements that it added."""

    def written(self, verdicts: list[tuple[Any, Settlement, Verdict]]) -> None:
        """Called once for each settlement, with the token that was added with it."""


class _SingleReceiver:
    """The receiver of a caller that awaits one verdict."""

    def __init__(self, verdict: asyncio.Future[Verdict]) -> None:
        self._verdict = verdict

    def written(self, verdicts: list[tuple[Any, Settlement, Verdict]]) -> None:
        if not self._verdict.done():
            self._verdict.set_result(verdicts[0][2])


_Entry: TypeAlias = tuple[Settlement, "Receiver | None", Any, Sequence[KeptArtifact]]

# A batch of at least this size makes the next one wait for more.
_CROWD = 8

# Seconds from one gathered batch to the next.
#
# A store's fixed cost for each batch equals that of about twenty settlements.
_GATHER = 0.02

# The same for batches with files: the fixed cost of a disk sync equals that of about 100 files.
_GATHER_FILES = 0.1


class Settler:
    """Writes one batch at a time; what arrives meanwhile makes the next.

    So a single settlement is written at once, and under load the batches grow by themselves. After
    a large batch the next one waits a moment for more, unless a caller waits for it (``hurry``). A
    settlement that refers to files is written after the files are on disk.
    """

    def __init__(
        self, store: Store, artifacts: Artifacts, telemetry: Telemetry, *, batch: int
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._telemetry = telemetry
        self._batch = batch
        self._queue: list[_Entry] = []
        self._in_hand: list[_Entry] = []
        self._some = asyncio.Event()
        self._hurried = asyncio.Event()
        self._added = 0
        self._written = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
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
        """Queue a settlement; ``receiver`` gets the verdict with the token. Never blocks.

        The verdict is Lost after the settler has given up, and Rejected if one of the ``kept``
        files is not on disk.
        """
        entry = settlement, receiver, token, kept
        self._added += 1
        if self._over:
            self._deliver([entry], [Lost(settlement.ref)])
            return
        self._queue.append(entry)
        self._some.set()
        if len(self._queue) >= self._batch:
            self.hurry()

    def hurry(self) -> None:
        """Write what is queued now: a caller waits for it."""
        self._hurried.set()

    async def settle(self, settlement: Settlement) -> Verdict:
        """Queue a settlement and wait for its verdict."""
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.add(settlement, _SingleReceiver(verdict))
        self.hurry()
        return await verdict

    async def flush(self) -> None:
        """Wait until everything that was added before this call is written."""
        if self._written < self._added:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((self._added, waiter))
            self.hurry()
            await waiter

    def give_up_in(self, seconds: float) -> None:
        """Wait at most this long for a store that does not answer: the process ends.

        What is not written by then, and what comes later, is Lost. Its lease expires, and the
        record is handled again.
        """
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
                "stopped before the store wrote every outcome; those records are handled again",
                outcomes=len(left),
            )
        self._deliver(left, [Lost(settlement.ref) for settlement, *_ in left])

    async def stop(self) -> None:
        """Write what is left, then end. What comes later is Lost."""
        while self._written < self._added:  # a rejected settlement is settled again, as an error
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
                if pause := await self._write_batch():
                    await self._gather(begun + pause - time.monotonic())

    async def _gather(self, seconds: float) -> None:
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._hurried.wait()

    async def _write_batch(self) -> float:
        """Write the next batch; return the seconds, from its start, that the following may wait.

        No reference to its records is kept while the settler waits for more.
        """
        batch = self._in_hand = self._queue[: self._batch]
        del self._queue[: self._batch]
        if not self._queue:
            self._hurried.clear()
        crowd, files = len(batch) >= _CROWD, any(entry[3] for entry in batch)
        if files:
            batch = self._in_hand = await self._with_files_synced(batch)
        verdicts = await self._write([entry[0] for entry in batch]) if batch else []
        if not self._over:  # otherwise they were reported as lost
            self._in_hand = []
            self._deliver(batch, verdicts)
        return (_GATHER_FILES if files else _GATHER) if crowd else 0.0

    async def _with_files_synced(self, batch: list[_Entry]) -> list[_Entry]:
        """The entries whose files are on disk; the others are rejected."""
        failed: Exception | None = None
        try:
            await self._artifacts.sync([kept for entry in batch for kept in entry[3]])
        except Exception as error:  # noqa: BLE001 - a broken store of artifacts: no file is safe
            failed = error
        faults = [
            next((kept.error or failed for kept in entry[3] if kept.error or failed), None)
            for entry in batch
        ]
        rejected = [
            (entry, Rejected(entry[0].ref, str(error), error))
            for entry, error in zip(batch, faults, strict=True)
            if error is not None
        ]
        self._deliver([entry for entry, _ in rejected], [verdict for _, verdict in rejected])
        return [entry for entry, error in zip(batch, faults, strict=True) if error is None]

    async def _write(self, settlements: list[Settlement]) -> list[Verdict]:
        """Write them, however long the store does not answer."""
        pause = 0.05
        while True:
            try:
                return await self._store.settle(settlements)
            except (StoreUnavailable, StoreConflict) as error:
                self._telemetry.event(
                    "warning",
                    f"settle: {error}; the outcomes are kept, will retry",
                    outcomes=len(settlements),
                )
                await asyncio.sleep(pause)
                pause = min(5.0, pause * 2)
            except Exception as error:  # noqa: BLE001 - a broken store: others must still settle
                why = f"{type(error).__name__}: {error}"
                return [Rejected(settlement.ref, why) for settlement in settlements]

    def _deliver(self, batch: list[_Entry], verdicts: Sequence[Verdict]) -> None:
        """Give each receiver its verdicts, then wake the callers of ``flush``."""
        by_receiver: defaultdict[Receiver | None, list[tuple[Any, Settlement, Verdict]]]
        by_receiver = defaultdict(list)
        for (settlement, receiver, token, _), verdict in zip(batch, verdicts, strict=True):
            by_receiver[receiver].append((token, settlement, verdict))
        for receiver, theirs in by_receiver.items():
            if receiver is not None:
                receiver.written(theirs)
        self._written += len(batch)
        while self._waiters and self._waiters[0][0] <= self._written:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
