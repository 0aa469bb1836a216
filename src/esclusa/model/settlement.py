"""What goes to a store and comes back: asks, leases, settlements, verdicts, history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, TypeAlias

from esclusa.model.effects import Effect
from esclusa.model.errors import UndeclaredMove
from esclusa.model.query import Cond, Order
from esclusa.model.record import Kind, Record, Ref
from esclusa.model.value import value


@value
class ClaimRequest:
    """A claim: due records in the take states, or orphans in the hold state, up to ``limit``.

    ``before``: only what was due at this moment; a run drains what was due when it began, and no record twice.
    ``eager`` (with ``before``): take also records in the take states that are not due yet, if they are not held and
    were last written before that moment: a run that a person starts does not wait. ``ids`` narrows it to these.
    ``tries``: so many attempts are counted and no more; a record that has had them is taken all the same, and is ``over``.
    """

    kind: Kind
    stage: str
    take: tuple[str, ...]
    hold: str | None = None
    where: tuple[tuple[str, Cond], ...] = ()
    order: tuple[Order, ...] = ()
    limit: int = 1
    lease: float = 60.0
    worker: str = ""
    run: str | None = None
    before: datetime | None = None
    eager: bool = False
    ids: tuple[str, ...] = ()
    tries: int | None = None


@value
class Leased:
    """A record under lease. ``record`` is as it is now in the store: held, its attempts and fence raised.

    ``taken`` is the state it was taken from (for an orphan: where it goes back to). ``fault`` says why a row of
    an attached table could not be read as a record; ``record`` then holds what could be read. ``over``: it had all its tries
    before, and its attempts are as they were.
    """

    record: Record
    taken: str
    until: datetime
    fault: str | None
    over: bool
    ref: Ref

    def __init__(
        self,
        record: Record,
        taken: str,
        until: datetime,
        fault: str | None = None,
        over: bool = False,
    ) -> None:
        self.record, self.taken, self.until = record, taken, until  # type: ignore[misc]
        self.fault, self.over = fault, over  # type: ignore[misc]
        self.ref = Ref(record.kind, record.id)  # type: ignore[misc]

    @property
    def fence(self) -> int:
        return self.record.fence

    @property
    def attempt(self) -> int:
        return self.record.attempts


@value
class Renewal:
    """Hold on to a lease for ``seconds`` more, and keep these fields already now."""

    ref: Ref
    fence: int
    seconds: float
    fields: Mapping[str, Any] = field(default_factory=dict)


@value
class Settlement:
    """One record's move with everything that belongs to it: one transaction.

    ``fence``: the lease it ends; None for an operator's move, which ends any lease. ``frm``: the states it may
    come from, checked in the transaction. ``to`` equal to the present state is no move: a wait or a retry.
    The record is due ``delay`` seconds after the settlement, or at ``until``. ``attempts`` None keeps them.
    ``error`` is written as the last error; ``clear_error`` empties it. ``reason`` and ``error`` go to the history.
    One with an undeclared move cannot be made: UndeclaredMove.
    """

    ref: Ref
    to: str
    frm: tuple[str, ...]
    fence: int | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    attempts: int | None = None
    delay: float = 0.0
    until: datetime | None = None
    error: Mapping[str, Any] | None = None
    clear_error: bool = False
    effects: tuple[Effect, ...] = ()
    who: str = ""
    run: str | None = None
    attempt: int | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        life, to = self.ref.kind.lifecycle, self.to
        for frm in self.frm:
            if (frm, to) not in life.moves and (frm != to or to not in life.states):
                raise UndeclaredMove(str(self.ref), frm, to, life.targets(frm))


@value
class Settled:
    """It is done: all of it."""

    ref: Ref


@value
class Lost:
    """The lease was no longer ours, or the record is gone or in another state: nothing was written."""

    ref: Ref


@value
class Rejected:
    """It cannot be written as it is, and nothing was: an effect cannot be applied as declared, or ``error`` is in its way."""

    ref: Ref
    why: str
    error: Exception | None = None


Verdict: TypeAlias = Settled | Lost | Rejected


@value
class Inserted:
    """The record is new; this is its id."""

    id: str


@value
class Duplicate:
    """A record with this key was there already, and was left as it is."""

    id: str


@value
class FanOut:
    """New records that are alike in all but one field: one for each of its values. A delivery for each device."""

    record: Record
    field: str
    values: Sequence[Any]

    def __iter__(self) -> Iterator[Record]:
        return (self.record.but(**{self.field: value}) for value in self.values)


def drafts_of(records: Iterable[Record | FanOut]) -> Iterator[Record]:
    """Every record that is meant, one by one."""
    for each in records:
        if isinstance(each, FanOut):
            yield from each
        else:
            yield each


@value
class RecordWithChildren:
    """A new record and all that belongs to it. If the first is known, nothing of it is new."""

    first: Record
    rest: Sequence[Record | FanOut]


@value
class Step:
    """One row of a record's history."""

    frm: str
    to: str
    at: datetime
    who: str
    run: str | None
    attempt: int | None
    reason: str | None
    error: Mapping[str, Any] | None


@value
class StateCount:
    """How many records are in a state. Not ``exact``: an estimate, or at least so many."""

    state: str
    count: int
    exact: bool


@value
class StateSummary:
    """How many records are in a state, and the mean of a number that they hold (None: none of them holds one)."""

    state: str
    count: int
    average: float | None


@value
class Backlog:
    """What a stage could claim now: how many (up to a cap), and since when the oldest is due."""

    due: int
    exact: bool
    oldest: datetime | None
    next: datetime | None
