"""Stages and cycles as declared: pure descriptions, checked when they are made."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any

from esclusa.model import duration
from esclusa.model.budget import Budget
from esclusa.model.effects import Effect
from esclusa.model.errors import BadQuery, DeclarationError
from esclusa.model.outcome import OPTIONS
from esclusa.model.query import Cond, Order, Where, conditions
from esclusa.model.record import Kind
from esclusa.model.retry import Backoff
from esclusa.model.schedule import Schedule
from esclusa.model.value import value

Handler = Callable[..., Any]


@value
class Stage:
    """For records in the take states that are due: hold them, call the handler, settle the outcome."""

    name: str
    kind: Kind
    handler: Handler = field(compare=False)
    take: tuple[str, ...]
    hold: str | None = None
    retry_to: str = ""
    exhausted: str | None = None
    where: tuple[tuple[str, Cond], ...] = ()
    order: tuple[Order, ...] = ()
    retry: Backoff = field(default_factory=Backoff)
    concurrency: int = 16
    batch: int | None = None
    budget: Budget | None = None
    cost: int = 1
    timeout: float | None = None
    lease: float | None = None
    resets: frozenset[str] = frozenset()
    dead_letter: Callable[[Any], dict[str, Any]] | None = field(default=None, compare=False)
    dead_letter_topic: str | None = None
    on_exhausted: Callable[[Any], Sequence[Effect]] | None = field(default=None, compare=False)

    @property
    def states(self) -> tuple[str, ...]:
        """The states in which this stage's records are claimed."""
        return self.take if self.hold is None else (*self.take, self.hold)


@value
class Cycle:
    """When something runs, and what: the stages it drains, or a function of its own."""

    name: str
    schedule: Schedule
    stages: tuple[Stage, ...] = ()
    function: Callable[..., Awaitable[Any]] | None = None
    singleton: bool = False
    eager: bool = False
    alert_rate: float | None = 0.2
    alert_min: int = 5
    counters: Mapping[str, str] = field(default_factory=dict, compare=False)


def make_stage(  # noqa: C901 - one check per option
    name: str,
    kind: Kind,
    handler: Handler,
    *,
    take: str | Sequence[str],
    hold: str | None,
    retry_to: str | None,
    exhausted: str | None,
    where: Where | None,
    order: str | Sequence[str],
    retry: Backoff | None,
    concurrency: int,
    batch: int | None,
    budget: Budget | None,
    cost: int,
    timeout: str | float | timedelta | None,
    lease: str | float | timedelta | None,
    dead_letter: Callable[[Any], dict[str, Any]] | None = None,
    dead_letter_topic: str | None = None,
    on_exhausted: Callable[[Any], Sequence[Effect]] | None = None,
) -> Stage:
    """A checked stage; DeclarationError tells every fault at once."""
    life = kind.lifecycle
    takes = _states(take)
    policy = retry or Backoff()
    back = retry_to or takes[0] if takes else ""
    faults = [] if takes else ["it takes no state"]
    for role, state in [
        *(("take", t) for t in takes),
        ("hold", hold),
        ("exhausted", exhausted),
        ("retry_to", retry_to),
    ]:
        if state is not None and state not in life.states:
            faults.append(
                f"{role}={state!r} is not a state of {kind.table} ({', '.join(life.states)})"
            )
    if not _is(policy, Backoff):
        faults.append(f"retry must be a Backoff, such as Backoff(tries=5), not {policy!r}")
    elif not faults:
        faults = _stage_faults(kind, takes, hold, back, exhausted, policy)
    for label, number, least in (
        ("concurrency", concurrency, 1),
        ("batch", batch, 1),
        ("cost", cost, 0),
    ):
        if number is not None and (not _is(number, int) or _is(number, bool) or number < least):
            faults.append(f"{label} must be a whole number, {least} or more, not {number!r}")
    if budget is not None and not _is(budget, Budget):
        faults.append(
            f"budget must be a Budget, such as Budget('calls', Window('day', 100)), not {budget!r}"
        )
    seconds: dict[str, float | None] = {"timeout": None, "lease": None}
    for label, said in (("timeout", timeout), ("lease", lease)):
        if said is not None:
            try:
                seconds[label] = duration.seconds(said)
            except (ValueError, AttributeError):
                faults.append(f"{label}: {said!r} is not {duration.type_hint}")
            if seconds[label] == 0:
                faults.append(f"{label} must be more than 0")
    names = (order,) if isinstance(order, str) else tuple(order)
    orders = tuple(Order(n.removeprefix("-"), n.startswith("-")) for n in names)
    faults += [
        f"{kind.table} cannot be ordered by {o.field}"
        for o in orders
        if kind.types.get(o.field) in (None, "json", "bytes")
    ]
    conds: tuple[tuple[str, Cond], ...] = ()
    try:
        conds = conditions(kind, where or {})
    except BadQuery as error:
        faults.append(f"where: {error}")
    for label, function in (("dead_letter", dead_letter), ("on_exhausted", on_exhausted)):
        if function is not None and not _takes_arguments(function, 1):
            faults.append(f"{label} must be a function of the record, not {function!r:.80}")
    if dead_letter_topic is not None and not _is(dead_letter_topic, str):
        faults.append(f"dead_letter_topic must be the name of a topic, not {dead_letter_topic!r}")
    if not _takes_arguments(handler):
        faults.append(
            "its handler takes the record (or the batch) and the attempt: async def handle(record, at)"
        )
    if faults:
        raise DeclarationError(f"stage {name}", faults)
    return Stage(
        name=name, kind=kind, handler=handler, take=takes, hold=hold, retry_to=back, exhausted=exhausted, where=conds,
        order=orders, retry=policy, concurrency=concurrency, batch=batch, budget=budget, cost=cost,
        timeout=seconds["timeout"], lease=seconds["lease"], dead_letter=dead_letter, dead_letter_topic=dead_letter_topic or None,
        on_exhausted=on_exhausted,
    )  # fmt: skip


def _stage_faults(
    kind: Kind,
    takes: tuple[str, ...],
    hold: str | None,
    back: str,
    exhausted: str | None,
    policy: Backoff,
) -> list[str]:
    life = kind.lifecycle
    faults = [
        f"field {name}: To(…, {name}=…) means something else than a field; name it otherwise, and its column with columns={{…: {name!r}}}"
        for name in OPTIONS
        if name in kind.by_name
    ]
    if hold is not None:
        faults += [
            f"take={t!r}, hold={hold!r}: the move {t} -> {hold} is not declared"
            for t in takes
            if not life.allows(t, hold)
        ]
        if hold in takes:
            faults.append(f"hold={hold!r} is one of the states it takes")
        if not life.allows(hold, back):
            faults.append(
                f"a retry or a wait needs the move {hold} -> {back}, which is not declared"
            )
        if exhausted is not None and not life.allows(hold, exhausted):
            faults.append(
                f"exhausted={exhausted!r} needs the move {hold} -> {exhausted}, which is not declared"
            )
    else:
        faults += [
            f"a retry needs the move {t} -> {back}, which is not declared"
            for t in takes
            if t != back and not life.allows(t, back)
        ]
        faults += [
            f"exhausted={exhausted!r} needs the move {t} -> {exhausted}, which is not declared"
            for t in takes
            if exhausted is not None and not life.allows(t, exhausted)
        ]
    if exhausted is None and policy.tries is not None:
        faults.append(
            "it has no exhausted state for a record that used up its tries; name one, or say retry=Backoff(tries=None)"
        )
    if exhausted is not None and exhausted in takes:
        faults.append(f"exhausted={exhausted!r} is one of the states it takes")
    return faults


def _states(take: Any) -> tuple[str, ...]:
    if take is None:
        return ()
    return tuple(take) if isinstance(take, Iterable) and not isinstance(take, str) else (take,)


def _is(value: object, type: type) -> bool:
    """Whether a pipeline said what the type checker would have asked for."""
    return isinstance(value, type)


def _takes_arguments(function: Callable[..., Any], count: int = 2) -> bool:
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
