"""The settlements of one stage: written in batches, none lost to a transient fault."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from esclusa.engine.locked_settlements import LockedSettlements
from esclusa.engine.settlement_entry import Entry, Receiver, SingleReceiver
from esclusa.model.errors import ArtifactError, StoreConflict, StoreUnavailable
from esclusa.model.settlement import Locked, Lost, Rejected, Renewal, Settlement, Verdict
from esclusa.ports.artifacts import Artifacts, KeptArtifact
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# A batch of at least this size makes the next one wait for more.
_CROWD = 8

# Seconds from one gathered batch to the next.
#
# A store's fixed cost for each batch equals that of about twenty settlements.
_GATHER = 0.02

# The same for batches with files: the fixed cost of a disk sync equals that of about 100 files.
_GATHER_FILES = 0.1

# The first and the longest pause, in seconds, before a batch is sent again.
_RETRY, _RETRY_MOST = 0.05, 5.0
# A batch that cannot be written is sent again in this many parts.
_PARTS = 8
# Seconds that a batch waits for its files before it is written without those that have some, and
# that those wait for them.
_FILES, _FILES_MOST = 1.0, 60.0
# How often a settlement fails alone before it counts as one that cannot be written.
_ALONE = 3


class SettlementQueue:
    """Writes the settlements of one stage, or of one system table, in batches.

    One batch is written at a time; what arrives meanwhile makes the next. So a single settlement is
    written at once, and under load the batches grow by themselves. After a large batch the next one
    waits a moment for more, unless a caller waits for it (``hurry``). A settlement that refers to
    files is written after the files are on disk.

    What cannot be written now is put aside, and the queue goes on with the others:

    - a settlement that touches a row which another program has locked is sent again until it is
      written;
    - a batch that the store does not write, although it renews a lease of that batch, is sent again
      in ever smaller parts. A settlement that fails alone is Rejected if its own lease can be
      renewed, and is sent again otherwise.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        artifacts: Artifacts,
        telemetry: Telemetry,
        *,
        batch: int,
        lease: float,
    ) -> None:
        self._name = name
        self._store = store
        self._artifacts = artifacts
        self._telemetry = telemetry
        self._batch = batch
        self._lease = lease
        self._queue: list[Entry] = []
        self._in_hand: list[Entry] = []
        self._aside: dict[int, Entry] = {}
        self._locked = LockedSettlements(name, telemetry, self._resend_locked, self._spawn)
        self._some = asyncio.Event()
        self._hurried = asyncio.Event()
        self._ended = asyncio.Event()
        self._added = self._passed = self._delivered = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.Task[None] | None = None
        self._over = False
        # Since when the store has not answered a call, and when it last did.
        self.waiting_since: float | None = None
        self.answered_at = -math.inf

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
            self._passed += 1
            self._deliver([entry], [Lost(settlement.ref)])
            return
        self._queue.append(entry)
        self._some.set()
        if len(self._queue) >= self._batch:
            self.hurry()
        if self._writer is None:
            self._writer = self._spawn(self._loop())

    def hurry(self) -> None:
        """Write what is queued now: a caller waits for it."""
        self._hurried.set()

    async def settle(self, settlement: Settlement) -> Verdict:
        """Queue a settlement and wait for its verdict."""
        verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.add(settlement, SingleReceiver(verdict))
        self.hurry()
        return await verdict

    async def flush(self) -> None:
        """Wait until everything that was added before this call is written or put aside."""
        if self._passed < self._added:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((self._added, waiter))
            self.hurry()
            await waiter

    def aside(self, receiver: Receiver) -> int:
        """How many settlements of this receiver wait apart from the others."""
        return sum(entry[1] is receiver for entry in self._aside.values())

    @property
    def unwritten(self) -> int:
        """How many settlements have no verdict yet."""
        return self._added - self._delivered

    async def finish(self) -> None:
        """Wait until every settlement has its verdict."""
        while self.unwritten:
            self._ended.clear()
            self.hurry()
            await self._ended.wait()

    def give_up(self) -> int:
        """Stop; what is not written, and what comes later, is Lost. Return how many there were."""
        self._over = True
        for task in self._tasks:
            task.cancel()
        left = [*self._in_hand, *self._aside.values(), *self._queue]
        self._in_hand = []
        self._queue.clear()
        self._aside.clear()
        self._locked.clear()
        self._deliver(left, [Lost(settlement.ref) for settlement, *_ in left])
        self._pass(self._added - self._passed)
        return len(left)

    async def stop(self) -> None:
        """End the tasks. What comes later is Lost."""
        self._over = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"settler {self._name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # batches

    async def _loop(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._queue:
                begun = _now()
                if pause := await self._write_batch():
                    await self._gather(begun + pause - _now())

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
        count, files = len(batch), any(entry[3] for entry in batch)
        if files:
            batch = self._in_hand = await self._with_files_synced(batch)
        verdicts = await self._write(batch) if batch else []
        if not self._over:  # otherwise they were reported as lost
            self._in_hand = []
            if verdicts is None:
                self._put_aside(batch)
                self._spawn(self._write_in_parts(batch))
            else:
                self._deliver(batch, verdicts)
            self._pass(count)
        return (_GATHER_FILES if files else _GATHER) if count >= _CROWD else 0.0

    async def _with_files_synced(self, batch: list[Entry]) -> list[Entry]:
        """The entries whose files are on disk; others are rejected.

        If the disk takes long, entries with files are put aside, and those without are returned.
        """
        kept = [each for entry in batch for each in entry[3]]
        sync = self._spawn(self._artifacts.sync(kept))
        await asyncio.wait([sync], timeout=_FILES)
        if sync.done():
            return self._checked(batch, sync)
        late = [entry for entry in batch if entry[3]]
        self._telemetry.event(
            "warning", "settle: files wait for the disk", queue=self._name, outcomes=len(late)
        )
        self._put_aside(late)
        self._spawn(self._write_late(late, sync))
        return [entry for entry in batch if not entry[3]]

    async def _write_late(self, entries: list[Entry], sync: asyncio.Task[None]) -> None:
        """Write entries whose files took long; if they take too long, that is an error."""
        await asyncio.wait([sync], timeout=_FILES_MOST)
        if not sync.done():
            error = ArtifactError(f"the file was not on disk after {_FILES_MOST:g} seconds")
            self._deliver(entries, [Rejected(e[0].ref, str(error), error) for e in entries])
            return
        if entries := self._checked(entries, sync):
            verdicts = await self._write(entries)
            if verdicts is None:
                await self._write_in_parts(entries)
            else:
                self._deliver(entries, verdicts)

    def _checked(self, batch: list[Entry], sync: asyncio.Task[None]) -> list[Entry]:
        """The entries whose files are on disk; the others are rejected."""
        # A broken store of artifacts: no file is safe.
        failed = None if sync.cancelled() else sync.exception()
        failed = failed if failed is None or isinstance(failed, Exception) else None
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

    async def _write(self, batch: list[Entry], tries: int = 2) -> list[Verdict] | None:
        """Write them, however long the store writes nothing; None if it writes, but not these.

        That is asked after ``tries`` failures.
        """
        pause, failures = _RETRY, 0
        while True:
            verdicts = await self._send(batch)
            if not isinstance(verdicts, Exception):
                return verdicts
            failures += 1
            if failures >= tries and await self._renews(batch[failures % len(batch)]):
                return None
            await asyncio.sleep(pause)
            pause = min(_RETRY_MOST, pause * 2)

    async def _send(self, batch: list[Entry]) -> list[Verdict] | Exception:
        """Make one call of the store; return its verdicts, or its transient error."""
        settlements = [entry[0] for entry in batch]
        self.waiting_since = self.waiting_since or _now()
        try:
            verdicts = await self._store.settle(settlements)
            self.waiting_since, self.answered_at = None, _now()
            return verdicts
        except (StoreUnavailable, StoreConflict) as error:
            about = {"record": str(settlements[0].ref)} if len(settlements) == 1 else {}
            self._telemetry.event(
                "warning",
                f"settle: {error}; the outcomes are kept, will retry",
                queue=self._name,
                outcomes=len(settlements),
                **about,
            )
            return error
        except Exception as error:  # noqa: BLE001 - a broken store: others must still settle
            why = f"{type(error).__name__}: {error}"
            return [Rejected(settlement.ref, why) for settlement in settlements]

    async def _renews(self, entry: Entry) -> bool:
        """Whether the store writes: it renews the lease of this settlement's record."""
        ref, fence = entry[0].ref, entry[0].fence
        if fence is None:
            return False
        try:
            await self._store.renew([Renewal(ref, fence, self._lease)])
        except Exception:  # noqa: BLE001 - whatever the fault is, the store did not write
            return False
        return True

    # put aside

    def _put_aside(self, entries: list[Entry]) -> None:
        self._aside |= {id(entry): entry for entry in entries}
        for receiver in {entry[1] for entry in entries}:
            if receiver is not None:
                receiver.put_aside()

    async def _write_in_parts(self, entries: list[Entry]) -> None:
        """Write a batch in ever smaller parts, until the settlements at fault are alone."""
        size = len(entries)
        while entries and size > 1:
            size, failed = -(-size // _PARTS), []
            for start in range(0, len(entries), size):
                part = entries[start : start + size]
                verdicts = await self._write(part, tries=1)
                if verdicts is None:
                    failed += part
                else:
                    self._deliver(part, verdicts)
            entries = failed
        await asyncio.gather(*map(self._write_alone, entries))

    async def _write_alone(self, entry: Entry) -> None:
        """Write one settlement; Rejected if it fails several times and its lease can be renewed."""
        pause, failures = _RETRY, 0
        while isinstance(verdicts := await self._send([entry]), Exception):
            failures += 1
            if failures >= _ALONE and await self._renews(entry):
                verdicts = [Rejected(entry[0].ref, str(verdicts))]
                break
            await asyncio.sleep(pause)
            pause = min(_RETRY_MOST, pause * 2)
        self._deliver([entry], verdicts)

    async def _resend_locked(self, entries: list[Entry]) -> None:
        verdicts = await self._send(entries)
        if isinstance(verdicts, Exception):
            verdicts = [Locked(entry[0].ref, str(verdicts)) for entry in entries]
        self._deliver(entries, verdicts)

    # verdicts

    def _deliver(self, batch: list[Entry], verdicts: Sequence[Verdict]) -> None:
        """Give each receiver its verdicts; what is locked waits for its own."""
        if self._locked or Locked in set(map(type, verdicts)):
            batch, verdicts = self._without_locked(batch, verdicts)
        by_receiver: defaultdict[Receiver | None, list[tuple[Any, Settlement, Verdict]]]
        by_receiver = defaultdict(list)
        for (settlement, receiver, token, _), verdict in zip(batch, verdicts, strict=True):
            by_receiver[receiver].append((token, settlement, verdict))
        if self._aside:
            for entry in batch:
                self._aside.pop(id(entry), None)
        self._delivered += len(batch)
        for receiver, theirs in by_receiver.items():
            if receiver is not None:
                receiver.written(theirs)
        if not self.unwritten:
            self._ended.set()

    def _without_locked(
        self, batch: list[Entry], verdicts: Sequence[Verdict]
    ) -> tuple[list[Entry], list[Verdict]]:
        """Put aside what is locked and return the rest."""
        pairs = list(zip(batch, verdicts, strict=True))
        locked = [(entry, v.why) for entry, v in pairs if isinstance(v, Locked)]
        rest = [(entry, verdict) for entry, verdict in pairs if not isinstance(verdict, Locked)]
        self._locked.add(locked)
        self._locked.remove(entry for entry, _ in rest)
        self._put_aside([entry for entry, _ in locked])
        return [entry for entry, _ in rest], [verdict for _, verdict in rest]

    def _pass(self, count: int) -> None:
        """Wake the callers of ``flush``."""
        self._passed += count
        while self._waiters and self._waiters[0][0] <= self._passed:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
