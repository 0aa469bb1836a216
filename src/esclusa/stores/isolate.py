"""Settle and claim in batches so that a record which cannot be written does not stop the others."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from esclusa.model.errors import BadRecord, StoreConflict, StoreUnavailable
from esclusa.model.kind import Kind, Ref
from esclusa.model.settlement import ClaimRequest, Leased, Locked, Rejected, Settlement, Verdict

Claim: TypeAlias = Callable[[ClaimRequest], Awaitable[list[Leased]]]

# How long a record that cannot be claimed is left out, in seconds.
_LEFT_OUT = 300.0
# How many records of a table may be left out, and how many of them one claim may find.
_MAX_LEFT_OUT, _MAX_FOUND = 1000, 20


class LockTimeout(StoreConflict):
    """Another program holds a lock, and did not release it in time."""


class StatementTimeout(StoreUnavailable):
    """The store ended a statement that took too long."""


def describe(_: Settlement, error: Exception) -> str:
    """Return the text of a rejection: the message, after the error's type unless BadRecord."""
    return str(error) if isinstance(error, BadRecord) else f"{type(error).__name__}: {error}"


async def settle_isolated(
    settlements: Sequence[Settlement],
    write: Callable[[Sequence[Settlement]], Awaitable[list[Verdict]]],
    describe: Callable[[Settlement, Exception], str] = describe,
) -> list[Verdict]:
    """Return a verdict for each settlement, in order; Rejected for each that cannot be written.

    ``write`` writes a batch in one transaction: if it raises, nothing of the batch is written. The
    batch is then halved until the settlements at fault are found. Transient errors
    (StoreUnavailable, StoreConflict) are raised: the caller makes the same call again. When a part
    is written already, the rest is Locked instead: what is written must not be sent again.
    """
    verdicts: list[Verdict] = []
    parts = [settlements] if settlements else []
    while parts:
        part = parts.pop()
        try:
            verdicts += await write(part)
        except (StoreUnavailable, StoreConflict) as error:
            if not verdicts:
                raise
            left = [s for each in (part, *reversed(parts)) for s in each]
            return [*verdicts, *(Locked(s.ref, str(error)) for s in left)]
        except Exception as error:  # noqa: BLE001 - whatever the fault is, the others are written
            if len(part) == 1:
                verdicts.append(Rejected(part[0].ref, describe(part[0], error)))
            else:
                half = len(part) // 2
                parts += [part[half:], part[:half]]
    return verdicts


class ClaimIsolation:
    """Claims what can be claimed, although the table refuses it for some record.

    A constraint or a trigger of another program's table may refuse it, or take too long. Such a
    record is left out of claims for some minutes, and reported each time.

    ``claim`` raises BadRecord or StatementTimeout if a record cannot be claimed; then nothing is.
    ``candidates`` returns the ids of the records that a claim would take. ``claim_part`` is used
    instead of ``claim`` to find the records at fault. ``check_writes`` raises StoreUnavailable
    unless the store writes.
    """

    def __init__(
        self,
        claim: Claim,
        candidates: Callable[[ClaimRequest], Awaitable[list[str]]],
        report: Callable[[Ref, str], object],
        *,
        claim_part: Claim | None = None,
        check_writes: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._claim = claim
        self._candidates = candidates
        self._report = report
        self._claim_part = claim_part or claim
        self._check_writes = check_writes
        # By table and id: until when a record is left out.
        self._left_out: defaultdict[str, dict[str, float]] = defaultdict(dict)

    async def claim(self, request: ClaimRequest) -> list[Leased]:
        """Claim; raise the error if it seems to be that of every record, or of the store."""
        leases: list[Leased] = []
        excluded = self._excluded(request.kind)
        most = min(len(excluded) + _MAX_FOUND, _MAX_LEFT_OUT)
        while not leases:
            narrowed = replace(request, excluded=excluded) if excluded else request
            try:
                return await self._claim(narrowed)
            except (BadRecord, StatementTimeout):
                leases = await self._isolate(narrowed, most)
                before, excluded = excluded, self._excluded(request.kind)
                if not leases and (excluded == before or len(excluded) >= most):
                    raise
        return leases

    def _excluded(self, kind: Kind) -> tuple[str, ...]:
        left_out = self._left_out.get(kind.table)
        if not left_out:
            return ()
        now = time.monotonic()
        for id in [id for id, until in left_out.items() if until <= now]:
            del left_out[id]
        return tuple(left_out)

    async def _isolate(self, request: ClaimRequest, most: int) -> list[Leased]:
        """Claim the candidates in ever smaller parts, until ``most`` are left out.

        What is claimed must be handled soon: after a quarter of the lease it is returned, and the
        other candidates are left to the next claim.
        """
        leases: list[Leased] = []
        ids = await self._candidates(request)
        parts, end = [ids] if ids else [], 0.0
        left_out = self._left_out[request.kind.table]
        while parts and len(left_out) < most and not (leases and time.monotonic() > end):
            part = parts.pop()
            try:
                leases += await self._claim_one_part(request, part)
            except (BadRecord, StatementTimeout):
                half = len(part) // 2
                parts += [part[half:], part[:half]]
            except (StoreUnavailable, StoreConflict):
                if not leases:
                    raise
                break
            end = end or (time.monotonic() + request.lease / 4 if leases else 0.0)
        return leases

    async def _claim_one_part(self, request: ClaimRequest, part: list[str]) -> list[Leased]:
        """Claim these; leave the record out if it is a single one that cannot be claimed."""
        try:
            return await self._claim_part(replace(request, ids=tuple(part), limit=len(part)))
        except (BadRecord, StatementTimeout) as error:
            if len(part) > 1:
                raise
            if isinstance(error, StatementTimeout) and self._check_writes is not None:
                await self._check_writes()
            self._leave_out(Ref(request.kind, part[0]), str(error))
            return []

    def _leave_out(self, ref: Ref, why: str) -> None:
        self._left_out[ref.kind.table][ref.id] = time.monotonic() + _LEFT_OUT
        self._report(ref, why)


class RefusedRenames:
    """The records of a table whose new state the table refuses; the others are renamed."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    async def divide(
        self,
        ids: Sequence[str],
        rename: Callable[[Sequence[str]], Awaitable[int]],
        errors: tuple[type[Exception], ...],
        message: Callable[[Exception], str] = str,
    ) -> int:
        """Rename a batch in parts until those that the table refuses are found.

        It gives up when it has found many, and could rename none.
        """
        moved, parts = 0, [ids] if ids else []
        while parts:
            part = parts.pop()
            try:
                moved += await rename(part)
            except errors as error:
                if len(part) > 1:
                    parts += [part[len(part) // 2 :], part[: len(part) // 2]]
                    continue
                self.ids[part[0]] = message(error)
                if not moved and len(self.ids) >= _MAX_FOUND:
                    break
        return moved

    def check(self, moved: int, table: str) -> None:
        """Raise BadRecord that names them, if nothing else is left to rename.

        They are then forgotten, so that the next call tries them again.
        """
        if moved or not self.ids:
            return
        shown, self.ids = self.ids, {}
        named = "; ".join(f"{id}: {why}" for id, why in list(shown.items())[:5])
        more = f"; and {len(shown) - 5} more" if len(shown) > 5 else ""
        raise BadRecord(f"table {table} does not let states be renamed: {named}{more}")
