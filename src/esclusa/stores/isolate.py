"""Settle a batch so that a settlement which cannot be written does not stop the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from esclusa.model.errors import BadRecord, StoreConflict, StoreUnavailable
from esclusa.model.settlement import Rejected, Settlement, Verdict


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
    (StoreUnavailable, StoreConflict) are raised: the caller makes the same call again.
    """
    if not settlements:
        return []
    try:
        return await write(settlements)
    except (StoreUnavailable, StoreConflict):
        raise
    except Exception as error:  # noqa: BLE001 - whatever the fault is, the others are written
        if len(settlements) == 1:
            return [Rejected(settlements[0].ref, describe(settlements[0], error))]
    half = len(settlements) // 2
    return [
        *await settle_isolated(settlements[:half], write, describe),
        *await settle_isolated(settlements[half:], write, describe),
    ]
