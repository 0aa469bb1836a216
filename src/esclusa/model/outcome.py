"""Outcomes: the three answers a handler can give. An exception is a Retry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from esclusa.model import duration
from esclusa.model.effects import Effect, effects


@dataclass(slots=True)
class To:
    """Move to ``state``, set the fields, apply the effects.

    The record is due at once in its new state, or after ``after``. Its attempts start again at 0 when another
    stage takes it there, and stay as they are otherwise; ``attempts`` overrules both. ``fault`` is kept as the
    record's last error: this is where it goes because of that, with no dead letter and no retry.
    """

    state: str
    fields: Mapping[str, Any]
    also: tuple[Effect, ...]
    after: float
    attempts: int | None
    reason: str | None
    fault: BaseException | None

    def __init__(
        self,
        state: str,
        /,
        *,
        also: Sequence[Effect] = (),
        after: str | float | timedelta = 0,
        attempts: int | None = None,
        reason: str | None = None,
        fault: BaseException | None = None,
        **fields: Any,
    ) -> None:
        self.state = state
        self.fields = fields
        self.also = effects("To", also) if also else ()
        self.after = duration.seconds(after) if after else 0.0
        self.attempts = attempts if attempts is None else _count("To", attempts)
        self.reason = reason
        self.fault = fault


@dataclass(slots=True)
class Retry:
    """Count the attempt; the stage's policy says whether and when there is another one. ``attempts`` overrules the count."""

    error: str | BaseException
    after: float | None
    type: str | None
    permanent: bool
    attempts: int | None
    fields: Mapping[str, Any]
    also: tuple[Effect, ...]

    def __init__(
        self,
        error: str | BaseException,
        /,
        *,
        after: str | float | timedelta | None = None,
        type: str | None = None,
        permanent: bool = False,
        attempts: int | None = None,
        also: Sequence[Effect] = (),
        **fields: Any,
    ) -> None:
        self.error = error
        self.after = None if after is None else duration.seconds(after)
        self.type = type
        self.permanent = permanent
        self.attempts = attempts if attempts is None else _count("Retry", attempts)
        self.fields = fields
        self.also = effects("Retry", also) if also else ()


@dataclass(slots=True)
class Wait:
    """Back to the state it was taken from until a time, or for a while; the attempt is not counted.

    Attempts that failed before stay counted; ``attempts=0`` forgets them (this one went well, it is just not over).
    """

    until: datetime | None
    delay: float
    reason: str
    attempts: int | None
    fields: Mapping[str, Any]

    def __init__(
        self,
        when: datetime | str | float | timedelta,
        /,
        reason: str,
        *,
        attempts: int | None = None,
        **fields: Any,
    ) -> None:
        moment = when if isinstance(when, datetime) else None
        if moment is not None and moment.tzinfo is None:
            raise ValueError("Wait: the time needs its zone")
        self.until = moment
        self.delay = 0.0 if isinstance(when, datetime) else duration.seconds(when)
        self.reason = reason
        self.attempts = attempts if attempts is None else _count("Wait", attempts)
        self.fields = fields


def _count(where: str, attempts: Any) -> int:
    if not isinstance(attempts, int) or isinstance(attempts, bool) or not 0 <= attempts < 2**31:
        raise ValueError(
            f"{where}: attempts must be a whole number, 0 or more, not {attempts!r:.80}"
        )
    return attempts


OPTIONS = ("also", "after", "reason", "fault")
"""What ``To`` takes by name that is no field of the record."""

Outcome: TypeAlias = To | Retry | Wait
