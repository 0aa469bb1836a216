"""App: the declaration of a pipeline — its records, stages, cycles and doors. It does nothing by itself."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from esclusa.model import schedule as schedules
from esclusa.model.budget import Budget
from esclusa.model.effects import Effect
from esclusa.model.errors import BadQuery, DeclarationError
from esclusa.model.query import Query, Where, conditions, query
from esclusa.model.record import Kind, Record
from esclusa.model.retry import Backoff
from esclusa.model.schedule import Schedule
from esclusa.model.stage import Cycle, Stage, make_stage
from esclusa.model.value import value
from esclusa.model.view import Look, View

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
FromSettings = Callable[[Any], T]
"""An option may be a function of the pipeline's settings: ``concurrency=lambda s: s.max_concurrent``."""

FUNCTIONS = frozenset({"handler", "dead_letter", "on_exhausted"})
"""Options of a stage that are functions themselves, not functions of the settings."""

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}\Z")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")


class NoSettings(BaseModel, defer_build=True):
    """The settings of a pipeline that has none."""


@value
class Question:
    """What a pipeline asks of its records; with ``average`` it asks for a summary, with the mean of that field."""

    query: Query
    average: str | None = None


@value
class Plan:
    """A pipeline with its settings filled in: what the engine runs."""

    name: str
    kinds: tuple[Kind, ...]
    stages: tuple[Stage, ...]
    cycles: tuple[Cycle, ...]
    budgets: tuple[Budget, ...]
    settings: BaseModel
    app: App
    parts: tuple[Stage, ...] = ()
    """Its stages once more, as narrow as its runs drain them."""
    questions: tuple[Question, ...] = ()


@dataclass(slots=True)
class App:
    """A pipeline: declare its stages and cycles with the decorators, list it in ``ESCLUSA_PIPELINES``."""

    name: str
    settings: type[BaseModel] = NoSettings
    records: list[type[Record]] = field(default_factory=list)
    budgets: list[Budget | FromSettings[Budget]] = field(default_factory=list)
    lifespan_: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None
    routes_: Callable[[Any], Any] | None = None
    commands_: Callable[[], Any] | None = None
    checks_: Callable[[Any], Any] | None = None
    needs_: Callable[[Any], Iterable[str]] | None = None
    views: list[View] = field(default_factory=list)
    _stages: list[tuple[str, type[Record], dict[str, Any]]] = field(default_factory=list)
    _cycles: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _parts: list[tuple[str, Where]] = field(default_factory=list)
    _questions: list[Question] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise DeclarationError(
                "App", [f"{self.name!r} is not a pipeline name (lower case letters, digits and -)"]
            )

    def stage(
        self,
        record: type[Record],
        *,
        take: str | Sequence[str],
        hold: str | None = None,
        exhausted: str | None = None,
        retry_to: str | None = None,
        where: Where | None = None,
        order: str | Sequence[str] = (),
        retry: Backoff | FromSettings[Backoff] | None = None,
        every: Schedule
        | str
        | float
        | timedelta
        | FromSettings[Schedule | str | float]
        | None = None,
        concurrency: int | FromSettings[int] = 16,
        batch: int | FromSettings[int] | None = None,
        budget: Budget | FromSettings[Budget | None] | None = None,
        cost: int = 1,
        timeout: str | float | FromSettings[str | float] | None = None,
        lease: str | float | FromSettings[str | float] | None = None,
        dead_letter: Callable[[Any], dict[str, Any]] | None = None,
        dead_letter_topic: str | FromSettings[str | None] | None = None,
        on_exhausted: Callable[[Any], Sequence[Effect]] | None = None,
        alert_rate: float | FromSettings[float] | None = 0.2,
        alert_min: int | FromSettings[int] = 5,
        eager: bool = False,
        cycle: bool = True,
        counters: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Declare a stage; the decorated handler takes the record (or, with ``batch``, a list) and the attempt.

        take, hold: the states it claims from and holds in (no hold: it is held where it is). exhausted: where a
        record goes when its tries are used up or an error is permanent. retry_to: where it goes between tries
        (the first take state). where, order: which records, in which order (oldest due first). every: its cycle's
        schedule (None: as soon as something is due). batch: the handler gets up to so many and answers with one
        outcome each. budget, cost: reserved before each claim. timeout: seconds for one call of the handler.
        dead_letter: what a dead letter says of the record (all of it by default). dead_letter_topic: a topic to which dead letters are
        published too, by the outbox. on_exhausted: the effects that belong to going to the exhausted state, however the record
        came there (tries used up, an error, crashes); a handler that moves it there by ``To`` names its effects itself.
        eager: a run that a person starts takes also what is not due yet, each record once.
        cycle=False: it has no cycle of its own; another one drains it. counters: what a run calls the engine's counters
        (``{"retried": "retryable"}``); those named here are told even when they are 0.
        """

        def declare(handler: F) -> F:
            slug = _slug(handler, name)
            if _kind(record) is None:
                raise DeclarationError(f"stage {self.name}.{slug}", [_no_record(record)])
            options: dict[str, Any] = dict(  # noqa: C408
                handler=handler, take=take, hold=hold, exhausted=exhausted, retry_to=retry_to, where=where, order=order, retry=retry,
                concurrency=concurrency, batch=batch, budget=budget, cost=cost, timeout=timeout, lease=lease, dead_letter=dead_letter,
                dead_letter_topic=dead_letter_topic, on_exhausted=on_exhausted,
            )  # fmt: skip
            if not any(callable(v) for k, v in options.items() if k not in FUNCTIONS):
                make_stage(
                    f"{self.name}.{slug}", record.kind, **options
                )  # faults are told where they are declared
            self._refuse_name(slug, "stage")
            self._stages.append((slug, record, options))
            if cycle:
                options = {
                    "every": every,
                    "stages": (slug,),
                    "function": None,
                    "singleton": False,
                    "eager": eager,
                    "alert_rate": alert_rate,
                    "alert_min": alert_min,
                    "counters": counters or {},
                }
                self._cycles.append((slug, options))
            if record not in self.records:
                self.records.append(record)
            return handler

        return declare

    def cycle(
        self,
        *,
        every: Schedule
        | str
        | float
        | timedelta
        | FromSettings[Schedule | str | float]
        | None = None,
        stages: Sequence[str] = (),
        singleton: bool = False,
        eager: bool = False,
        alert_rate: float | FromSettings[float] | None = 0.2,
        alert_min: int | FromSettings[int] = 5,
        counters: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Declare a cycle with a function of its own: ``async def ingest(run)``. ``alone``: one at a time in the cluster."""

        def declare(function: F) -> F:
            slug = _slug(function, name)
            self._refuse_name(slug, "cycle")
            schedule = schedules.Manual() if every is None else every
            options = {
                "every": schedule,
                "stages": tuple(stages),
                "function": function,
                "singleton": singleton,
                "eager": eager,
                "alert_rate": alert_rate,
                "alert_min": alert_min,
                "counters": counters or {},
            }
            self._cycles.append((slug, options))
            return function

        return declare

    def parts(self, stage: str, *where: Where) -> None:
        """Declare that runs drain a stage in these parts (``run.drain(stage, where=…)``), so that a store which needs an index
        for every question has one. Which fields are compared, and how, counts; the values do not."""
        self._parts += [(stage, each) for each in where]

    def asks(
        self,
        record: type[Record],
        where: Where | None = None,
        *,
        order: str | tuple[str, ...] = (),
        archived: bool = False,
        average: str | None = None,
    ) -> None:
        """Declare a question that handlers or routes ask of records, for the same reason. Values that are compared with ``=``
        alone, in the order of the ids, need no declaration; nor does what ``index=`` of the record says."""
        self._questions.append(
            Question(query(record, where, order=order, archived=archived), average)
        )

    def view(
        self,
        title: str,
        *,
        of: type[Record] | None = None,
        where: Where | None = None,
        name: str | None = None,
        **languages: str,
    ) -> Callable[[Look], Look]:
        """Declare a view: the decorated function answers one page of it, ``(records, limit, after)`` to ``{"items": […], "next": …}``.

        title: in English; other languages by their code, ``es="…"``. of, where: the records that it is about; they are counted
        wherever the view is named, and an item with an ``id`` leads to one of them.
        """

        def declare(look: Look) -> Look:
            slug = _slug(look, name)
            self._refuse_name(slug, "view")
            if any(view.name == f"{self.name}.{slug}" for view in self.views):
                raise DeclarationError(f"pipeline {self.name}", [f"two views are called {slug}"])
            kind = None if of is None else _kind(of)
            if of is not None and kind is None:
                raise DeclarationError(f"view {self.name}.{slug}", [_no_record(of)])
            self.views.append(
                View(
                    f"{self.name}.{slug}", {"en": title, **languages}, look, kind, dict(where or {})
                )
            )
            return look

        return declare

    def _refuse_name(self, slug: str, what: str) -> None:
        if not _SLUG.match(slug):
            raise DeclarationError(
                f"pipeline {self.name}",
                [f"{slug!r} is not the name of a {what} (letters, digits and -); say name=…"],
            )

    def lifespan(self, opener: F) -> F:
        """Declare what lives as long as the process does (an HTTP session, a client); handlers see it as ``at.context``. It is a
        context manager of the settings, or an async function that yields once."""
        self.lifespan_ = (
            asynccontextmanager(opener) if inspect.isasyncgenfunction(opener) else opener
        )
        return opener

    def routes(self, build: F) -> F:
        """Declare a function that builds the pipeline's own HTTP routes; called only where a server starts."""
        self.routes_ = build
        return build

    def commands(self, build: F) -> F:
        """Declare a function that builds the pipeline's own commands (a click group); called only by the command line."""
        self.commands_ = build
        return build

    def checks(self, check: F) -> F:
        """Declare a function that yields what ``esclusa doctor`` and ``/readyz`` should say of the settings."""
        self.checks_ = check
        return check

    def needs(self, missing: F) -> F:
        """Declare a function of the settings that yields what is missing for a run, one text each that names the setting. While
        it yields any, its cycles are refused at once; servers start, and ``esclusa doctor`` and ``/readyz`` say it."""
        self.needs_ = missing
        return missing

    def bind(self, settings: BaseModel) -> Plan:
        """Fill the settings in; DeclarationError tells every fault at once."""
        faults: list[str] = []
        stages: dict[str, Stage] = {}
        for slug, record, options in self._stages:
            try:
                resolved = {
                    k: v
                    if k in FUNCTIONS
                    else _resolve(v, settings, f"stage {self.name}.{slug}", k)
                    for k, v in options.items()
                }
                if slug in stages:
                    faults.append(f"two stages are called {slug}")
                stages[slug] = make_stage(f"{self.name}.{slug}", record.kind, **resolved)
            except DeclarationError as error:
                faults += [f"{error.what}: {fault}" for fault in error.faults]
        stages = {
            slug: replace(stage, resets=_resets(stage, stages.values()))
            for slug, stage in stages.items()
        }
        cycles: dict[str, Cycle] = {}
        for slug, options in self._cycles:
            try:
                cycles[slug] = self._bind_cycle(slug, options, stages, settings)
            except DeclarationError as error:
                faults += [f"cycle {slug}: {fault}" for fault in error.faults]
        tables = Counter(record.kind.table.lower() for record in dict.fromkeys(self.records))
        faults += [
            f"two records have the table {table}" for table, count in tables.items() if count > 1
        ]
        parts: list[Stage] = []
        for slug, where in self._parts:
            if slug not in stages:
                faults.append(f"parts: there is no stage {slug}")
                continue
            try:
                narrow = conditions(stages[slug].kind, where)
                parts.append(replace(stages[slug], where=stages[slug].where + narrow))
            except BadQuery as error:
                faults.append(f"parts of {slug}: {error}")
        if faults:
            raise DeclarationError(f"pipeline {self.name}", faults)
        kinds = dict.fromkeys(r.kind for r in self.records)
        budgets = {
            b.name: b
            for b in (
                _resolve(b, settings, f"pipeline {self.name}", "a budget") for b in self.budgets
            )
        }
        budgets |= {s.budget.name: s.budget for s in stages.values() if s.budget is not None}
        return Plan(
            self.name, tuple(kinds), tuple(stages.values()), tuple(cycles.values()), tuple(budgets.values()), settings, self,
            tuple(parts), tuple(self._questions),
        )  # fmt: skip

    def _bind_cycle(
        self, slug: str, options: dict[str, Any], stages: dict[str, Stage], settings: BaseModel
    ) -> Cycle:
        function, counters = options["function"], options["counters"]
        rate, least, every = (
            _resolve(options[name], settings, slug, name)
            for name in ("alert_rate", "alert_min", "every")
        )
        faults = [f"there is no stage {name}" for name in options["stages"] if name not in stages]
        if inspect.isfunction(function) and not inspect.iscoroutinefunction(function):
            faults.append("its function must be async: async def name(run)")
        if rate is not None and not (_is_number(rate) and 0 <= rate <= 1):
            faults.append(
                f"alert_rate must be a share between 0 and 1, or None for no alert, not {rate!r:.80}"
            )
        if not isinstance(least, int) or not _is_number(least) or least < 0:
            faults.append(f"alert_min must be a whole number, 0 or more, not {least!r:.80}")
        if not isinstance(counters, Mapping):
            faults.append(
                f"counters must map the engine's names to the pipeline's, not {counters!r:.80}"
            )
        schedule: Schedule = schedules.Manual()
        try:
            schedule = schedules.parse(every)
        except DeclarationError as error:
            faults += error.faults
        if faults:
            raise DeclarationError(slug, faults)
        return Cycle(
            name=f"{self.name}.{slug}", schedule=schedule, stages=tuple(stages[name] for name in options["stages"]), function=function,
            singleton=options["singleton"], eager=options["eager"], counters=counters, alert_rate=rate, alert_min=least,
        )  # fmt: skip


def _slug(function: Callable[..., Any], name: str | None) -> str:
    return name or getattr(function, "__name__", "").strip("_").replace("_", "-")


def _resolve(value: Any, settings: BaseModel, of: str, option: str) -> Any:
    """The option itself, or what it is with these settings."""
    if not callable(value) or isinstance(value, type):
        return value
    try:
        return value(settings)
    except DeclarationError:
        raise
    except Exception as error:  # it is a function of the pipeline, and may raise anything
        raise DeclarationError(
            of,
            [f"{option} is a function of the settings that raised {type(error).__name__}: {error}"],
        ) from error


def _kind(record: object) -> Kind | None:
    return (
        getattr(record, "kind", None)
        if isinstance(record, type) and issubclass(record, Record)
        else None
    )


def _no_record(said: object) -> str:
    name = said.__name__ if isinstance(said, type) else repr(said)
    return f"{name:.80} is no record with a table; write: class Order(Record, table='orders')"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _resets(stage: Stage, stages: Any) -> frozenset[str]:
    """States whose arrival starts a new count of attempts: those that another stage of the kind takes."""
    return frozenset(
        state
        for other in stages
        if other.kind == stage.kind and other.name != stage.name
        for state in other.take
    )
