"""Crash suspects: which of the records that a process held when it ended has ended it.

A record whose lease expired while it was held is an orphan. Its holder crashed, was killed or lost
the database, and any of the records that it held may be the cause. So orphans are suspects:

1. An orphan is handled again with at most seven other suspects, beside other work.
2. If the process ends again, each of those is then handled alone, while nothing else is.
3. If the process ends once more, the record that ran alone is the cause, and the attempt counts.

A record that is handled without a crash is no suspect any more. A record that ends its process
every time is called twice more than its attempts; any other record is called at most three times
for each of its attempts, and none of its attempts is used up by another record.

The holder of a record (``leased_by``) says how it is held: the worker's name, with a mark at its
end while the record is a suspect.
"""

from __future__ import annotations

from typing import Final

GROUP: Final = 8
"""How many suspects a process may handle at a time."""

_IN_GROUP, _ALONE = f"/{GROUP}", "/1"


def group_of(holder: str | None) -> int:
    """How many suspects may be handled at a time, if one of them had this holder.

    0: it was not held, so it is no suspect.
    """
    if holder is None:
        return 0
    return 1 if holder.endswith((_IN_GROUP, _ALONE)) else GROUP


def crash_counts(holder: str | None) -> bool:
    """Whether a claim counts an attempt: the record was not held, or was handled alone."""
    return holder is None or holder.endswith(_ALONE)


def claimed(
    holder: str | None, attempts: int, tries: int | None, worker: str
) -> tuple[int, bool, str]:
    """What a claim by this worker makes of a record's attempts and holder.

    Return the attempts, whether they were used up before (the claim is then not counted), and the
    new holder. Used-up attempts stay so if this worker crashes, too.
    """
    number = attempts + 1 if crash_counts(holder) else max(attempts, 1)
    if tries is not None and number > tries:
        return attempts, True, worker + _ALONE
    return number, False, waiting_holder(worker, group_of(holder))


def waiting_holder(worker: str, group: int) -> str:
    """The holder of a suspect of this group that is not being handled."""
    return worker + _IN_GROUP if group == 1 else worker


def handling_holder(worker: str, group: int) -> str:
    """The holder of a suspect of this group while it is being handled."""
    return worker + (_ALONE if group == 1 else _IN_GROUP)


def worker_of(holder: str | None) -> str | None:
    """The worker's name without a mark; None if nobody holds the record."""
    marked = holder is not None and holder.endswith((_IN_GROUP, _ALONE))
    return holder.rpartition("/")[0] if holder and marked else holder
