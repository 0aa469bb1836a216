"""The options of stages and cycles, and the handlers, as a pipeline may give them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
)

from esclusa.model.breaker import Breaker
from esclusa.model.budget import Budget
from esclusa.model.effects import Effect
from esclusa.model.outcome import Outcome
from esclusa.model.query import Where
from esclusa.model.record import Record
from esclusa.model.retry import Backoff
from esclusa.model.schedule import Schedule

if TYPE_CHECKING:
    from esclusa.engine.attempt import Attempt

T = TypeVar("T")
R = TypeVar("R", bound=Record)
Answer = TypeVar("Answer", bound="Outcome | Awaitable[Outcome]")
Answers = TypeVar("Answers", bound="Sequence[Outcome] | Awaitable[Sequence[Outcome]]")
# An option may be a function of the pipeline's settings: `concurrency=lambda s: s.parallel`.
FromSettings = Callable[[Any], T]
# The value of a threshold that is not given: the system's setting counts.
FromSetting: TypeAlias = Literal["setting"]


class StageDecorator(Protocol[R]):
    """Accepts a handler of one record: ``async def handle(record, at) -> Outcome``, or ``def``."""

    def __call__(
        self, handler: Callable[[R, Attempt], Answer], /
    ) -> Callable[[R, Attempt], Answer]: ...


class BatchDecorator(Protocol[R]):
    """Accepts a handler of a batch: it takes a list of records and answers one outcome for each."""

    def __call__(
        self, handler: Callable[[list[R], Attempt], Answers], /
    ) -> Callable[[list[R], Attempt], Answers]: ...


class CycleOptions(TypedDict, total=False):
    """The options of a cycle. A stage has them too, for the cycle of its own."""

    # The schedule. None: a stage runs whenever a record is due, a cycle only when it is called.
    every: Schedule | str | float | timedelta | FromSettings[Schedule | str | float] | None
    # A run that a person starts also takes records that are not due yet, each once.
    eager: bool
    # The share of failed attempts above which an alert begins. None: no alert.
    #
    # Of a run; of a stage that runs whenever a record is due, of its last 20 attempts or more. By
    # default `ESCLUSA_ALERT_ERROR_RATE`.
    alert_rate: float | FromSettings[float] | None
    # The fewest attempts of which `alert_rate` is judged. By default `ESCLUSA_ALERT_MIN_ATTEMPTS`.
    alert_min: int | FromSettings[int]
    # What a run calls the engine's counters (`{"retried": "retryable"}`).
    #
    # Counters that are named here are shown even when they are 0.
    counters: Mapping[str, str] | None


class StageOptions(CycleOptions, total=False):
    """The options of a stage, as ``App.stage`` accepts them (``batch`` is one more)."""

    # The states that it claims records from.
    take: Required[str | Sequence[str]]
    # The state of a record while its handler runs. None: it stays in its take state.
    hold: str | None
    # Where a record goes after its last attempt or a permanent error.
    exhausted: str | None
    # Where a record goes between attempts. None: the first take state.
    retry_to: str | None
    # Which records it takes. None: all in the take states.
    where: Where | FromSettings[Where | None] | None
    # In which order it takes them; by default the longest due first.
    order: str | Sequence[str]
    # Take only records that become due from this time on ("2026-11-18", a time with its zone).
    #
    # For a new stage on a state that holds records already. A record becomes due when it enters the
    # state, or later if it has to wait. `esclusa migrate --from-now STAGE` does the same without a
    # change of the code.
    since: str | datetime | FromSettings[str | datetime | None] | None
    # The field by whose value records are limited and take turns: per="customer_id", at_once=2.
    #
    # A field of text or whole numbers, whose value stays while a record is in the stage's states.
    per: str | None
    # How many records with the same value of `per` are held at once, by all workers together.
    at_once: int | FromSettings[int] | None
    # How many attempts there are, and the delays between them.
    retry: Backoff | FromSettings[Backoff] | None
    # How many handlers run at the same time in one worker.
    concurrency: int | FromSettings[int]
    # In how many processes of a worker the handler runs, one record at a time in each.
    #
    # For plain functions that keep a core busy. They are functions of a module; what they need is
    # in the record. It takes the place of `concurrency`.
    processes: int | FromSettings[int | None] | None
    # The budget that each claim reserves units of.
    budget: Budget | FromSettings[Budget | None] | None
    # After errors in a row of which types the stage pauses, without counting attempts.
    #
    # It then tries one record at a time until one succeeds; one alert says so.
    breaker: Breaker | FromSettings[Breaker | None] | None
    # How many units of the budget one record costs.
    cost: int
    # How long one call of the handler may take.
    timeout: str | float | timedelta | FromSettings[str | float] | None
    # How long a claim holds without being renewed. None: `ESCLUSA_LEASE_SECONDS`.
    lease: str | float | timedelta | FromSettings[str | float] | None
    # How long a record in the hold state without a lease is left to another program.
    #
    # Counted from its `updated_at`. None: a table's `abandoned_after`, see `track`; on Firestore
    # that time from the last write.
    abandoned_after: str | float | timedelta | FromSettings[str | float] | None
    # Whether a record gets one more attempt if another program used up all that `retry` allows.
    #
    # Otherwise it goes to the exhausted state without a call.
    extra_try: bool
    # The fields that a record gets after its last attempt or a permanent error, instead of a state.
    #
    # It stays in its take state, and `where` must leave out records with these values.
    exhausted_fields: Mapping[str, Any] | None
    # How long a record may be due before an alert begins. None: no alert.
    #
    # Where a cycle has a schedule, from its next slot on. By default
    # `ESCLUSA_ALERT_BACKLOG_SECONDS`.
    alert_backlog: str | float | timedelta | FromSettings[str | float] | None
    # The used share of the budget from which on an alert begins if the rest will not last. None: no
    # alert.
    #
    # It will not last if it runs out before the window resets, at the rate so far. By default
    # `ESCLUSA_ALERT_BUDGET_SHARE`.
    alert_budget: float | FromSettings[float] | None
    # How long no record may go through the stage before an alert begins, at most 10 days. None: no
    # alert. By default `ESCLUSA_ALERT_SILENCE_SECONDS`.
    alert_silence: str | float | timedelta | FromSettings[str | float] | None
    # What a dead letter contains of the record. None: all of it.
    dead_letter: Callable[[Any], dict[str, Any]] | None
    # A topic to which dead letters are also published, by the outbox.
    dead_letter_topic: str | FromSettings[str | None] | None
    # What log lines call a record: "post 456_789 will retry (attempt 3/5)". None: only its id.
    log_as: Callable[[Any], str] | None
    # The effects of going to the exhausted state, whether by attempts, an error or crashes.
    #
    # A handler that moves a record there with `To` gives the effects itself.
    on_exhausted: Callable[[Any], Sequence[Effect]] | None


CYCLE_OPTIONS: Final = frozenset(CycleOptions.__annotations__)
