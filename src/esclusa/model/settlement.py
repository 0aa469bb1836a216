"""What goes to a store and comes back: claims, leases, settlements, verdicts, history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from esclusa.model.effects import Effect
from esclusa.model.errors import UndeclaredMove
from esclusa.model.key_limits import KeyLimit
from esclusa.model.kind import Kind, Ref
from esclusa.model.query import Cond, Order
from esclusa.model.record import Record
from esclusa.model.texts import text
from esclusa.model.value import value

# The fields of a settlement that sets none.
NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})


@value
class ClaimRequest:
    """Which records to claim: due in the take states, or orphaned in the hold state.

    ``before``: only records that were due at this moment. A run drains what was due when it began,
    and no record twice.
    ``eager`` (with ``before``): also records in the take states that are not due yet, if they are
    not held and were last written before that moment.
    ``since``: only records that are due from this time on. A stage that begins now leaves those
    that were in its state already.
    ``abandoned_after``: records in the hold state without a lease, where another program left them,
    only if their ``updated_at`` is so many seconds ago.
    ``ids``: only these records. ``excluded``: not these.
    ``tries``: attempts are counted up to this number. A record that has had them all is claimed as
    well, with ``over`` set. The claim of an orphan counts only if it was handled alone.
    ``per``: how many records of one key may be held at once. The keys take turns, and the records
    of one key come in the request's order.
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
    excluded: tuple[str, ...] = ()
    tries: int | None = None
    since: datetime | None = None
    abandoned_after: float | None = None
    per: KeyLimit | None = None


@value
class Leased:
    """A record under lease, as it is now in the store: held, its fence raised.

    ``taken``: the state that it was claimed from; for an orphan, the state that it returns to.
    ``fault``: why a row of an attached table could not be read; ``record`` then has what could be.
    ``over``: it had all its attempts before this claim, which was not counted.
    ``group``: how many suspects may be handled at a time, if it is one (see model/suspects.py);
    0 if it was not held before.
    """

    record: Record
    taken: str
    until: datetime
    fault: str | None
    over: bool
    group: int
    ref: Ref

    def __init__(
        self,
        record: Record,
        taken: str,
        until: datetime,
        fault: str | None = None,
        over: bool = False,
        group: int = 0,
    ) -> None:
        self.record, self.taken, self.until = record, taken, until  # type: ignore[misc]
        self.fault, self.over, self.group = fault, over, group  # type: ignore[misc]
        self.ref = Ref(record.kind, record.id)  # type: ignore[misc]

    @property
    def fence(self) -> int:
        return self.record.fence

    @property
    def attempt(self) -> int:
        return self.record.attempts


@value
class Renewal:
    """Extend a lease by ``seconds`` from now, and write these fields at once.

    ``holder``: write this into ``leased_by``, too (see model/suspects.py); None keeps it.
    """

    ref: Ref
    fence: int
    seconds: float
    fields: Mapping[str, Any] = field(default_factory=dict)
    holder: str | None = None


@value
class Transition:
    """What a settlement writes, apart from the record it is written to.

    ``frm``: the states that the record may be in, checked in the transaction. ``to`` may equal the
    present state: a wait or a retry is not a move.
    The record is due ``delay`` seconds after the settlement, or at ``until``.
    ``attempts``: None keeps them. ``error`` becomes the last error, ``clear_error`` empties it.
    ``reason``, ``error``, ``changes`` and ``log`` go to the history; ``changes`` has the old and
    the new value of each field that an operator changed, ``log`` the lines that a handler wrote.
    ``repair``: ``frm`` are states that the lifecycle does not have; ``to`` may be any that it has.

    ``held_in``: the states in which the end of a lease finds its record. The record may also be in
    ``to`` already: another program made the same move. ``undeclared``: the state of ``frm`` from
    which the lifecycle has no move to ``to``.
    """

    kind: Kind
    to: str
    frm: tuple[str, ...]
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
    repair: bool = False
    changes: Mapping[str, Any] | None = None
    log: Mapping[str, Any] | None = None
    held_in: tuple[str, ...] = field(init=False)
    undeclared: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        moves, to = self.kind.lifecycle.moves, self.to
        self.held_in = self.frm if to in self.frm else (*self.frm, to)  # type: ignore[misc]
        for frm in self.frm:
            if (frm, to) not in moves and not self._allowed(frm):
                self.undeclared = frm  # type: ignore[misc]

    def check(self, ref: Ref) -> None:
        """Raise UndeclaredMove, which names the record, if the lifecycle has no such move."""
        if self.undeclared is not None:
            targets = self.kind.lifecycle.targets(self.undeclared)
            raise UndeclaredMove(str(ref), self.undeclared, self.to, targets)

    @property
    def overtaken(self) -> str:
        """The reason in the history if another program has moved the record."""
        return text("moved_elsewhere", worker=self.who, to=self.to).dump()

    def _allowed(self, frm: str) -> bool:
        """Whether ``frm`` is ``to`` itself, an earlier name, or a state to repair."""
        life, to = self.kind.lifecycle, self.to
        if self.repair:
            return frm not in life.states and to in life.states
        return life.allows(frm, to) or (life.current(frm) == to and to in life.states)


@value
class Settlement:
    """One record's transition with its fields, effects and history row: one transaction.

    ``fence``: the lease that it ends. None: an operator's move, which ends any lease.

    It is made with the values of its transition, or, ``with_transition``, shares one with others:
    making and writing thousands of equal settlements then costs little.
    Raises UndeclaredMove when it is made with a move that the lifecycle does not have.
    """

    ref: Ref
    fence: int | None
    transition: Transition

    def __init__(
        self,
        ref: Ref,
        to: str,
        frm: tuple[str, ...],
        fence: int | None,
        fields: Mapping[str, Any] = NO_FIELDS,
        attempts: int | None = None,
        delay: float = 0.0,
        until: datetime | None = None,
        error: Mapping[str, Any] | None = None,
        clear_error: bool = False,
        effects: tuple[Effect, ...] = (),
        who: str = "",
        run: str | None = None,
        attempt: int | None = None,
        reason: str | None = None,
        repair: bool = False,
        changes: Mapping[str, Any] | None = None,
        log: Mapping[str, Any] | None = None,
    ) -> None:
        transition = Transition(
            ref.kind, to, frm, fields, attempts, delay, until, error, clear_error, effects, who,
            run, attempt, reason, repair, changes, log,
        )  # fmt: skip
        transition.check(ref)
        self.ref, self.fence, self.transition = ref, fence, transition  # type: ignore[misc]

    @classmethod
    def with_transition(cls, ref: Ref, fence: int | None, transition: Transition) -> Settlement:
        transition.check(ref)
        made = cls.__new__(cls)
        made.ref, made.fence, made.transition = ref, fence, transition  # type: ignore[misc]
        return made

    def but(self, **changes: Any) -> Settlement:
        """A settlement of the same record whose transition differs in these values."""
        changed = replace(self.transition, **changes)
        return Settlement.with_transition(self.ref, self.fence, changed)

    @property
    def to(self) -> str:
        return self.transition.to

    @property
    def frm(self) -> tuple[str, ...]:
        return self.transition.frm

    @property
    def fields(self) -> Mapping[str, Any]:
        return self.transition.fields

    @property
    def attempts(self) -> int | None:
        return self.transition.attempts

    @property
    def delay(self) -> float:
        return self.transition.delay

    @property
    def until(self) -> datetime | None:
        return self.transition.until

    @property
    def error(self) -> Mapping[str, Any] | None:
        return self.transition.error

    @property
    def clear_error(self) -> bool:
        return self.transition.clear_error

    @property
    def effects(self) -> tuple[Effect, ...]:
        return self.transition.effects

    @property
    def who(self) -> str:
        return self.transition.who

    @property
    def run(self) -> str | None:
        return self.transition.run

    @property
    def attempt(self) -> int | None:
        return self.transition.attempt

    @property
    def reason(self) -> str | None:
        return self.transition.reason

    @property
    def changes(self) -> Mapping[str, Any] | None:
        return self.transition.changes

    @property
    def log(self) -> Mapping[str, Any] | None:
        return self.transition.log


@value
class Settled:
    """The whole settlement was written."""

    ref: Ref


@value
class Lost:
    """Nothing was written: the lease was lost, or the record is absent or in another state.

    ``moved_to``: the state to which another program moved the record while it was held. It stays
    there, and the lease has ended.
    """

    ref: Ref
    moved_to: str | None = None


@value
class Rejected:
    """Nothing was written: a value or an effect is refused. ``error`` is the cause, if known."""

    ref: Ref
    why: str
    error: Exception | None = None


@value
class Locked:
    """Nothing was written: another program holds a lock that this settlement waits for.

    It touches a row that is locked: the record's own, or the target of an effect. Send the same
    settlement again later.
    """

    ref: Ref
    why: str


Verdict: TypeAlias = Settled | Lost | Rejected | Locked


@value
class Inserted:
    """The record is new and has this id."""

    id: str


@value
class Duplicate:
    """A record with this key exists and was left as it is."""

    id: str


@value
class FanOut:
    """New records that differ in one field: one for each of its values."""

    record: Record
    field: str
    values: Sequence[Any]

    def __iter__(self) -> Iterator[Record]:
        return (self.record.but(**{self.field: value}) for value in self.values)


@value
class RecordWithChildren:
    """A new record and its children. If ``first`` exists already, none of them is added.

    ``link``: the field of the children that gets the id of ``first``, if the table makes it. A
    child may have children of its own.
    """

    first: Record
    rest: Sequence[Record | FanOut | RecordWithChildren]
    link: str | None = None

    def children(self, id: str) -> Sequence[Record | FanOut | RecordWithChildren]:
        """The children of ``first`` with this id."""
        return self.rest if self.link is None else [self._linked(each, id) for each in self.rest]

    def _linked(
        self, child: Record | FanOut | RecordWithChildren, id: str
    ) -> Record | FanOut | RecordWithChildren:
        assert self.link is not None
        match child:
            case FanOut(record, field, values):
                return FanOut(record.but(**{self.link: id}), field, values)
            case RecordWithChildren(first, rest, link):
                return RecordWithChildren(first.but(**{self.link: id}), rest, link)
            case _:
                return child.but(**{self.link: id})


def drafts_of(records: Iterable[Record | FanOut | RecordWithChildren]) -> Iterator[Record]:
    """The records, with every ``FanOut`` and their children expanded."""
    for each in records:
        if isinstance(each, RecordWithChildren):
            yield each.first
            yield from drafts_of(each.rest)
        else:
            yield from each if isinstance(each, FanOut) else (each,)


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
    # The old and the new value of each field that an operator changed.
    changes: Mapping[str, Any] | None = None
    # The ``lines`` that the handler logged, and how many earlier ones were ``omitted``.
    log: Mapping[str, Any] | None = None


@value
class StateCount:
    """How many records are in a state. If not ``exact``: an estimate, or a lower bound."""

    state: str
    count: int
    exact: bool


@value
class Backlog:
    """What a stage can claim now: how many (up to a cap), and since when the oldest is due."""

    due: int
    exact: bool
    oldest: datetime | None
    next: datetime | None
