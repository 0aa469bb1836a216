"""Settle a batch so that a settlement which cannot be written does not stop the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from esclusa.model.errors import BadRecord, StoreConflict, StoreUnavailable
from esclusa.model.settlement import Locked, Rejected, Settlement, Verdict


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
