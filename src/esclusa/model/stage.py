"""Stages and cycles as declared: descriptions without behaviour, checked when they are made.

Each option is written twice: in ``StageOptions`` or ``CycleOptions`` as a pipeline may give it, and
as a field of ``Stage`` or ``Cycle`` as the engine reads it, with its default and its check.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from datetime import UTC, datetime
from typing import (
    Any,
    Final,
)

from esclusa.model import duration
from esclusa.model import schedule as schedules
from esclusa.model.breaker import Breaker
from esclusa.model.budget import Budget
from esclusa.model.deadline import Deadline
from esclusa.model.effects import Effect
from esclusa.model.errors import BadQuery, DeclarationError, EsclusaError
from esclusa.model.key_limits import KeyLimit
from esclusa.model.kind import Kind
from esclusa.model.outcome import OPTIONS
from esclusa.model.query import Cond, Order, conditions, matches, orders
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.model.schedule import Schedule
from esclusa.model.stage_options import FromSetting, T
from esclusa.model.value import value

# Checks an option and answers the value to keep. Raises ValueError or DeclarationError.
Check = Callable[[Kind, Any], Any]


def _option(default: Any, check: Check, *, nullable: bool = False, **more: Any) -> Any:
    """A field that is an option. None or "" means its default, unless ``nullable``."""
    return field(default=default, metadata={"check": check, "nullable": nullable}, **more)


def _states(kind: Kind, given: Any) -> tuple[str, ...]:
    many = isinstance(given, Iterable) and not isinstance(given, str)
    return tuple(_state(kind, state) for state in (given if many else (given,)))


def _state(kind: Kind, given: Any) -> str:
    if given not in kind.lifecycle.states:
        states = ", ".join(kind.lifecycle.states)
        raise ValueError(f"={given!r} is not a state of {kind.table} ({states})")
    return str(given)


def _query(read: Callable[[Kind, Any], T]) -> Callable[[Kind, Any], T]:
    def check(kind: Kind, given: Any) -> T:
        try:
            return read(kind, given)
        except BadQuery as error:
            raise ValueError(f": {error}") from None

    return check


def _must_be(what: str, test: Callable[[Any], bool]) -> Check:
    def check(kind: Kind, given: Any) -> Any:
        if not test(given):
            raise ValueError(f" must be {what}, not {given!r:.80}")
        return given

    return check


def _whole_number(least: int) -> Check:
    return _must_be(
        f"a whole number, {least} or more", lambda given: type(given) is int and given >= least
    )


def _instance(type: type, example: str) -> Check:
    return _must_be(f"a {type.__name__}, such as {example}", lambda given: isinstance(given, type))


def _seconds(kind: Kind, given: Any) -> float:
    try:
        length = duration.seconds(given)
    except (ValueError, AttributeError):
        raise ValueError(f": {given!r:.80} is not {duration.type_hint}") from None
    if length == 0:
        raise ValueError(" must be more than 0")
    return length


def _time(kind: Kind, given: Any) -> datetime:
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    except (ValueError, TypeError):
        raise ValueError(f": {given!r:.80} is not a time, such as '2026-11-18'") from None
    if kind.attached and "created_at" not in kind.track:
        raise ValueError(
            f": a row of {kind.table} may have no due time, and then its creation counts; map it"
            " with track(created_at=…)"
        )
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def takes_arguments(function: Any, count: int) -> bool:
    """Whether the function can be called with ``count`` arguments by position."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin whose signature is unknown
        return True
    return True


def _key_field(kind: Kind, given: Any) -> str:
    field = kind.by_name.get(given) if isinstance(given, str) else None
    if field is None:
        raise ValueError(f"={given!r:.80} is not a field of {kind.table}")
    if kind.types[given] not in ("text", "int") or given in kind.constants:
        raise ValueError(f"={given!r} must be a field with a column of text or whole numbers")
    return str(given)


def _seconds_or_none(kind: Kind, given: Any) -> float | None:
    return None if given is None else _seconds(kind, given)


def _seconds_or_zero(kind: Kind, given: Any) -> float:
    return 0.0 if given == 0 else _seconds(kind, given)


def _fields(kind: Kind, given: Any) -> Mapping[str, Any]:
    try:
        return kind.check_fields(given)
    except EsclusaError as error:
        raise ValueError(f": {error}") from None


_function = _must_be("a function of the record", lambda given: takes_arguments(given, 1))
_share = _must_be(
    "a share between 0 and 1, or None for no alert",
    lambda given: given is None or (type(given) in (int, float) and 0 <= given <= 1),
)
_counters = _must_be("a mapping from the engine's names", lambda given: isinstance(given, Mapping))
_topic = _must_be("the name of a topic", lambda given: isinstance(given, str))


@value
class Stage:
    """Claims records in the take states that are due, calls the handler, settles the outcome."""

    name: str
    kind: Kind
    handler: Callable[..., Any] = field(compare=False)
    take: tuple[str, ...] = _option((), _states)
    hold: str | None = _option(None, _state)
    retry_to: str = _option("", _state)
    exhausted: str | None = _option(None, _state)
    where: tuple[tuple[str, Cond], ...] = _option((), _query(conditions))
    order: tuple[Order, ...] = _option((), _query(orders))
    since: datetime | None = _option(None, _time)
    per: str | None = _option(None, _key_field)
    at_once: int | None = _option(None, _whole_number(1))
    retry: Backoff = _option(Backoff(), _instance(Backoff, "Backoff(tries=5)"))
    concurrency: int = _option(16, _whole_number(1))
    processes: int | None = _option(None, _whole_number(1))
    batch: int | None = _option(None, _whole_number(1))
    budget: Budget | None = _option(None, _instance(Budget, "Budget('calls', Window('day', 100))"))
    breaker: Breaker | None = _option(None, _instance(Breaker, "Breaker('http_error')"))
    cost: int = _option(1, _whole_number(0))
    timeout: float | None = _option(None, _seconds)
    lease: float | None = _option(None, _seconds)
    abandoned_after: float | None = _option(None, _seconds_or_zero)
    extra_try: bool = _option(False, lambda kind, given: bool(given))
    exhausted_fields: Mapping[str, Any] = field(
        default_factory=dict, compare=False, metadata={"check": _fields, "nullable": False}
    )
    alert_backlog: float | FromSetting | None = _option("setting", _seconds_or_none, nullable=True)
    alert_budget: float | FromSetting | None = _option("setting", _share, nullable=True)
    alert_silence: float | FromSetting | None = _option("setting", _seconds_or_none, nullable=True)
    dead_letter: Callable[[Any], dict[str, Any]] | None = _option(None, _function, compare=False)
    dead_letter_topic: str | None = _option(None, _topic)
    log_as: Callable[[Any], str] | None = _option(None, _function, compare=False)
    on_exhausted: Callable[[Any], Sequence[Effect]] | None = _option(None, _function, compare=False)
    # States in which the attempts count from 0 again: another stage takes records there.
    resets: frozenset[str] = frozenset()
    # The deadline of its take state, if it is the stage of one.
    deadline: Deadline | None = None

    @property
    def key_limit(self) -> KeyLimit | None:
        """How many records of one key are held at once; None: no limit."""
        if self.per is None or self.at_once is None:
            return None
        return KeyLimit(self.per, self.at_once)

    @property
    def renewed_fields(self) -> dict[str, Any]:
        """The values that the fields of an exhausted record have before it is retried."""
        models = self.kind.model.model_fields
        return {name: models[name].get_default() for name in self.exhausted_fields}

    @property
    def exhausts(self) -> bool:
        """Whether a record can have used up its attempts: in a state of its own, or by fields."""
        return self.exhausted is not None or bool(self.exhausted_fields)

    def is_exhausted(self, record: Record) -> bool:
        """Whether this record of the stage's kind has used up its attempts, as far as it shows."""
        state = self.kind.lifecycle.current(record.status)
        if not self.exhausted_fields:
            return state == self.exhausted
        return state in self.states and all(
            getattr(record, name) == value for name, value in self.exhausted_fields.items()
        )

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
    eager: bool = _option(False, lambda kind, given: bool(given))
    alert_rate: float | FromSetting | None = _option("setting", _share, nullable=True)
    alert_min: int | FromSetting = _option("setting", _whole_number(0))
    counters: Mapping[str, str] = field(
        default_factory=dict, compare=False, metadata={"check": _counters, "nullable": False}
    )


# Options of a stage that are functions of the record, not of the settings.
FUNCTIONS: Final = frozenset(f.name for f in fields(Stage) if f.metadata.get("check") is _function)


def _checked(type: Any, kind: Any, options: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """The options as fields of ``type``. Adds what is wrong with them to ``faults``."""
    checks = {f.name: f.metadata for f in fields(type) if "check" in f.metadata}
    faults += [
        f"there is no option {name}; there are: {', '.join(checks)}"
        for name in options
        if name not in checks
    ]
    made = {}
    for name, option in checks.items():
        given = options.get(name)
        if given not in (None, "") or (option["nullable"] and name in options):
            try:
                made[name] = option["check"](kind, given)
            except ValueError as error:
                faults.append(f"{name}{error}")
    return made


def make_stage(name: str, kind: Kind, handler: Callable[..., Any], **options: Any) -> Stage:
    """A checked stage. Raises DeclarationError with every fault."""
    faults: list[str] = []
    made = _checked(Stage, kind, options, faults)
    if not kind.track.complete:
        faults.append(f"{kind.table} has no tracking columns; declare it with track(…)")
    if not options.get("take"):
        faults.append("it takes no state")
    elif "take" in made:
        made.setdefault("retry_to", made["take"][0])
    if "processes" in made:
        faults += _process_faults(handler, options)
        made["concurrency"] = made["processes"]
    stage = Stage(name, kind, handler, **made)
    if not faults:
        faults = _move_faults(stage)
    if not takes_arguments(handler, 2):
        faults.append(
            "its handler takes the record (or the batch) and the attempt: "
            "async def handle(record, at)"
        )
    if faults:
        raise DeclarationError(f"stage {name}", faults)
    return stage


def make_cycle(
    name: str,
    options: Mapping[str, Any],
    *,
    stages: Mapping[str, Stage],
    drains: Sequence[str],
    function: Callable[..., Any] | None = None,
    singleton: bool = False,
) -> Cycle:
    """A checked cycle that drains some of the pipeline's ``stages``.

    Raises DeclarationError with every fault.
    """
    faults = [f"there is no stage {each}" for each in drains if each not in stages]
    if inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
        faults.append("its function must be async: async def name(run)")
    made = _checked(Cycle, None, {o: v for o, v in options.items() if o != "every"}, faults)
    schedule: Schedule = schedules.Always()
    try:
        schedule = schedules.parse(options.get("every"))
    except DeclarationError as error:
        faults += error.faults
    if faults:
        raise DeclarationError(name, faults)
    return Cycle(name, schedule, tuple(stages[n] for n in drains), function, singleton, **made)


def _process_faults(handler: Callable[..., Any], options: Mapping[str, Any]) -> list[str]:
    """Why the handler cannot run in processes."""
    faults = []
    plain = inspect.unwrap(handler)
    if inspect.iscoroutinefunction(plain):
        faults.append("processes=… needs a plain function (def); an async one would only wait")
    elif "<locals>" in getattr(plain, "__qualname__", "<locals>"):
        faults.append("processes=… needs a function of a module, which another process can import")
    if options.get("concurrency") is not None:
        faults.append("processes and concurrency exclude each other; give one of them")
    return faults


def _move_faults(stage: Stage) -> list[str]:
    life, takes, hold = stage.kind.lifecycle, stage.take, stage.hold
    back, exhausted = stage.retry_to, stage.exhausted
    faults = [
        f"field {name}: To(…, {name}=…) is an option of To and cannot set the field; "
        f"rename it, and name its column with columns={{…: {name!r}}}"
        for name in OPTIONS
        if name in stage.kind.by_name
    ]
    if (stage.per is None) != (stage.at_once is None):
        faults.append("per and at_once belong together: per='customer_id', at_once=2")
    if hold is not None:
        faults += [
            f"take={t!r}, hold={hold!r}: the move {t} -> {hold} is not declared"
            for t in takes
            if not life.allows(t, hold)
        ]
        if hold in takes:
            faults.append(f"hold={hold!r} is one of the states it takes")
    held = takes if hold is None else (hold,)
    faults += [
        f"a retry or a wait needs the move {state} -> {back}, which is not declared"
        for state in held
        if state != back and not life.allows(state, back)
    ]
    faults += [
        f"exhausted={exhausted!r} needs the move {state} -> {exhausted}, which is not declared"
        for state in held
        if exhausted is not None and not life.allows(state, exhausted)
    ]
    if stage.exhausted_fields:
        if exhausted is not None:
            faults.append("exhausted and exhausted_fields exclude each other; give one of them")
        tested = tuple(each for each in stage.where if each[0] in stage.exhausted_fields)
        if matches(stage.exhausted_fields, tested):
            names = ", ".join(stage.exhausted_fields)
            faults.append(f"where takes records that are exhausted; it must test {names}")
    elif exhausted is None and stage.retry.tries is not None:
        faults.append(
            "it has no exhausted state for a record after its last attempt; "
            "name one, or set retry=Backoff(tries=None)"
        )
    if exhausted is not None and exhausted in takes:
        faults.append(f"exhausted={exhausted!r} is one of the states it takes")
    return faults
