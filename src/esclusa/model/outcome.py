"""Outcomes: the three answers of a handler. An exception counts as a Retry."""

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

    The record is due in its new state at once, or after ``after``. Its attempts are reset to 0 if
    another stage takes records there, and kept otherwise; ``attempts`` sets them. ``fault`` is
    written as the record's last error, without a retry or a dead letter.
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
    """Count the attempt; the stage's policy decides whether and when there is another one.

    ``attempts`` sets the count.
    """

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
    """Return the record to its take state until a time or for a duration; count no attempt.

    With ``stage`` the whole stage waits, in all workers, for example because the provider answered
    429 with a ``Retry-After``. Failed attempts before this one stay counted; ``attempts=0`` resets
    the count.
    """

    until: datetime | None
    delay: float
    reason: str
    stage: bool
    attempts: int | None
    fields: Mapping[str, Any]

    def __init__(
        self,
        when: datetime | str | float | timedelta,
        /,
        reason: str,
        *,
        stage: bool = False,
        attempts: int | None = None,
        **fields: Any,
    ) -> None:
        moment = when if isinstance(when, datetime) else None
        if moment is not None and moment.tzinfo is None:
            raise ValueError("Wait: the time needs a time zone")
        self.until = moment
        self.delay = 0.0 if isinstance(when, datetime) else duration.seconds(when)
        self.reason = reason
        self.stage = stage
        self.attempts = attempts if attempts is None else _count("Wait", attempts)
        self.fields = fields


def _count(where: str, attempts: Any) -> int:
    if not isinstance(attempts, int) or isinstance(attempts, bool) or not 0 <= attempts < 2**31:
        raise ValueError(
            f"{where}: attempts must be a whole number, 0 or more, not {attempts!r:.80}"
        )
    return attempts


# The keyword arguments of `To` that are not fields of the record.
OPTIONS = ("also", "after", "reason", "fault")

Outcome: TypeAlias = To | Retry | Wait
OUTCOMES = (To, Retry, Wait)
