"""App: the declaration of a pipeline, with its records, stages, cycles, routes and commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from pydantic import BaseModel

from esclusa.model.action import Action, NoParameters, about_of
from esclusa.model.binding import Declarations
from esclusa.model.budget import Budget
from esclusa.model.decision import Deciders, Decision
from esclusa.model.declaration import Adopt
from esclusa.model.declared_deadline import DeclaredDeadline
from esclusa.model.errors import DeclarationError
from esclusa.model.gauge import Gauge
from esclusa.model.kind import Kind
from esclusa.model.plan import (
    VIEW_PARAMETERS,
    DeclaredQuery,
    NoSettings,
    Plan,
    View,
    ViewFunction,
)
from esclusa.model.query import Where, conditions, query
from esclusa.model.record import Record
from esclusa.model.schedule import Manual
from esclusa.model.stage import FUNCTIONS, make_stage
from esclusa.model.stage_options import (
    CYCLE_OPTIONS,
    BatchDecorator,
    CycleOptions,
    FromSettings,
    R,
    StageDecorator,
    StageOptions,
)

if TYPE_CHECKING:
    from esclusa.engine.runs import RunContext

F = TypeVar("F", bound=Callable[..., Any])
CycleFunction = TypeVar("CycleFunction", bound="Callable[[RunContext], Awaitable[Any]]")

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,60}\Z")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")


@dataclass(slots=True)
class App:
    """A pipeline. Its decorators declare stages and cycles; ``ESCLUSA_PIPELINES`` lists it."""

    name: str
    settings: type[BaseModel] = NoSettings
    records: list[type[Record]] = field(default_factory=list)
    budgets: list[Budget | FromSettings[Budget | None]] = field(default_factory=list)
    lifespan_: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None
    routes_: Callable[[Any], Any] | None = None
    console_: Callable[[Any], None] | None = None
    commands_: Callable[[], Any] | None = None
    checks_: Callable[[Any], Any] | None = None
    data_checks_: Callable[[Any, Any], AsyncIterator[Any]] | None = None
    needs_: Callable[[Any], Iterable[str]] | None = None
    on_run_: Callable[[Any, bool], Awaitable[None]] | None = None
    gauges_: Callable[[Any], Awaitable[Iterable[Gauge]]] | None = None
    artifacts_: Callable[[Any], tuple[str, str] | None] | None = None
    views: list[View] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    _declared: Declarations = field(default_factory=Declarations)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise DeclarationError(
                "App", [f"{self.name!r} is not a pipeline name (lower case letters, digits and -)"]
            )

    @overload
    def stage(
        self,
        record: type[R],
        *,
        batch: None = None,
        cycle: bool = True,
        name: str | None = None,
        **options: Unpack[StageOptions],
    ) -> StageDecorator[R]: ...

    @overload
    def stage(
        self,
        record: type[R],
        *,
        batch: int | FromSettings[int],
        cycle: bool = True,
        name: str | None = None,
        **options: Unpack[StageOptions],
    ) -> BatchDecorator[R]: ...

    def stage(
        self, record: Any, *, cycle: bool = True, name: str | None = None, **options: Any
    ) -> Any:
        """Declare a stage. The decorated handler takes the record and the attempt.

        batch: the handler takes a list of up to so many records and answers one outcome for each.
        cycle: whether the stage has a cycle of its own; otherwise another cycle drains it.
        name: by default the handler's name, with hyphens.
        options: see ``StageOptions``. Those that are not functions of the record may be functions
        of the settings.
        """

        def declare(handler: F) -> F:
            slug = _slug(handler, name)
            kind = _kind(record, f"stage {self.name}.{slug}")
            own = {k: v for k, v in options.items() if k not in CYCLE_OPTIONS}
            if not any(callable(v) for k, v in own.items() if k not in FUNCTIONS):
                make_stage(f"{self.name}.{slug}", kind, handler, **own)  # fail here, early
            self._refuse_name(slug, "stage")
            self._declared.stages.append((slug, record, handler, own))
            if cycle:
                shared = {k: v for k, v in options.items() if k in CYCLE_OPTIONS}
                self._declared.cycles.append((slug, {"drains": (slug,)}, shared))
            if record not in self.records:
                self.records.append(record)
            return handler

        return declare

    def cycle(
        self,
        *,
        stages: Sequence[str] = (),
        singleton: bool = False,
        name: str | None = None,
        **options: Unpack[CycleOptions],
    ) -> Callable[[CycleFunction], CycleFunction]:
        """Declare a cycle with a function of its own: ``async def ingest(run)``.

        stages: those that a call of the cycle drains. singleton: it runs once at a time in the
        cluster. options: see ``CycleOptions``.
        """

        def declare(function: CycleFunction) -> CycleFunction:
            slug = _slug(function, name)
            self._refuse_name(slug, "cycle")
            if options.get("every") is None:
                options["every"] = Manual()
            own = {"drains": tuple(stages), "function": function, "singleton": singleton}
            self._declared.cycles.append((slug, own, dict(options)))
            return function

        return declare

    def deadline(
        self,
        record: type[Record],
        state: str,
        *,
        after: str | float | timedelta | FromSettings[str | float | timedelta | None],
        to: str,
        name: str | None = None,
    ) -> None:
        """Declare how long a record may be in a state that no stage takes, and where it goes then.

        after: since it entered the state, "2d"; if a function of the settings answers None, there
        is no deadline. An alert begins with the first record that is moved to the state ``to``, and
        ends when no record is left there. The deadline is a stage with a cycle of its own, called
        STATE-deadline unless it has a name.
        """
        slug = name or f"{state}-deadline".lower().replace("_", "-")
        self._refuse_name(slug, "stage")
        declared = DeclaredDeadline(slug, _kind(record, f"deadline {slug}"), state, to, after)
        if faults := declared.faults():
            raise DeclarationError(f"pipeline {self.name}", faults)
        self._declared.deadlines.append(declared)
        if record not in self.records:
            self.records.append(record)

    def decision(
        self,
        record: type[Record],
        states: Sequence[str],
        *,
        by: Deciders | FromSettings[Deciders],
    ) -> None:
        """Declare who may move records out of these states: others are refused by every operation.

        by: names of API tokens or of users who signed in, or whole names as the history has them
        (``cli:ana``); None for any operator. Handlers and deadlines are not limited.
        """
        declared = Decision(_kind(record, "decision"), frozenset(states), by)
        if faults := declared.faults():
            raise DeclarationError(f"pipeline {self.name}", faults)
        self._declared.decisions.append(declared)

    def adopt(self, record: type[Record], states: Callable[[Any], Adopt]) -> None:
        """Declare ``adopt=`` of a record as a function of the settings."""
        self._declared.adopt.append((record, states))

    def parts(self, stage: str, *where: Where) -> None:
        """Declare the filters with which runs drain a stage (``run.drain(stage, where=…)``).

        Firestore needs an index for each of them. The fields and operators matter, not the values.
        """
        self._declared.parts += [(stage, each) for each in where]

    def declare_query(
        self,
        record: type[Record],
        where: Where | None = None,
        *,
        order: str | tuple[str, ...] = (),
        archived: bool = False,
        sum: str | None = None,
    ) -> None:
        """Declare a query that handlers or routes make. Firestore needs an index for it.

        A query that only compares with ``=`` and is ordered by id needs no declaration, nor does
        one that ``index=`` of the record covers. ``sum`` declares totals by state with that sum.
        """
        self._declared.queries.append(
            DeclaredQuery(query(record, where, order=order, archived=archived), sum)
        )

    def view(
        self,
        title: str,
        *,
        of: type[Record] | None = None,
        where: Where | None = None,
        name: str | None = None,
        **languages: str,
    ) -> Callable[[ViewFunction], ViewFunction]:
        """Declare a view. The decorated function answers one page of it.

        The function maps ``(records, limit, after)`` to ``{"items": […], "next": …}``. It may have
        parameters named ``artifacts`` and ``read_model``, for files and budgets.
        title: in English; other languages by their code, ``es="…"``. of, where: the records that
        the view shows; their number is shown beside its name, and an item with an ``id`` links to
        its record.
        """

        def declare(load_page: ViewFunction) -> ViewFunction:
            slug = _slug(load_page, name)
            self._refuse_name(slug, "view")
            if any(view.name == f"{self.name}.{slug}" for view in self.views):
                raise DeclarationError(f"pipeline {self.name}", [f"two views are called {slug}"])
            kind = None if of is None else _kind(of, f"view {self.name}.{slug}")
            parameters = inspect.signature(load_page).parameters
            self.views.append(
                View(
                    f"{self.name}.{slug}",
                    {"en": title, **languages},
                    load_page,
                    kind,
                    dict(where or {}),
                    tuple(name for name in VIEW_PARAMETERS if name in parameters),
                )
            )
            return load_page

        return declare

    def action(
        self,
        record: type[Record] | None,
        title: str,
        *,
        where: Where | None = None,
        params: type[BaseModel] = NoParameters,
        about: str | Mapping[str, str] = "",
        name: str | None = None,
        **languages: str,
    ) -> Callable[[F], F]:
        """Declare a verb for operators: a button with a preview and a reason, and an audit row.

        The decorated function maps a record and the ``ActionContext`` to a ``To``, or to a text
        that says why it skips the record; previews call it too, so it changes nothing itself.
        Without a record it takes the context alone, and returns what it did.
        title: in English; other languages by their code, ``es="…"``. where: the records that it is
        for. params: a pydantic model of what the operator enters, ``at.params``.
        """

        def declare(function: F) -> F:
            slug = _slug(function, name)
            self._refuse_name(slug, "action")
            full = f"{self.name}.{slug}"
            if any(action.name == full for action in self.actions):
                raise DeclarationError(f"pipeline {self.name}", [f"two actions are called {slug}"])
            kind = None if record is None else _kind(record, f"action {full}")
            if kind is not None:
                conditions(kind, where or {})  # fail here, early
            given = {"en": title, **languages}
            self.actions.append(
                Action(full, given, about_of(function, about), function, kind, where or {}, params)
            )
            return function

        return declare

    def _refuse_name(self, slug: str, what: str) -> None:
        if not _SLUG.match(slug):
            raise DeclarationError(
                f"pipeline {self.name}",
                [f"{slug!r} is not the name of a {what} (letters, digits and -); set name=…"],
            )

    def lifespan(self, opener: F) -> F:
        """Declare what stays open while the process runs, such as an HTTP session.

        The function takes the settings. It is an async context manager or an async generator that
        yields once; handlers get the value as ``at.context``.
        """
        self.lifespan_ = (
            asynccontextmanager(opener) if inspect.isasyncgenfunction(opener) else opener
        )
        return opener

    def routes(self, build: F) -> F:
        """Declare a function that builds the pipeline's HTTP routes; only servers call it."""
        self.routes_ = build
        return build

    def console(self, build: F) -> F:
        """Declare a function that adds pages and buttons to the console; called where it is served.

        It takes an ``esclusa.web.ConsoleExtension``.
        """
        self.console_ = build
        return build

    def commands(self, build: F) -> F:
        """Declare a function that builds the pipeline's commands (a click group)."""
        self.commands_ = build
        return build

    def checks(self, check: F) -> F:
        """Declare a function of the settings that yields findings.

        ``esclusa doctor`` and ``/readyz`` report them. A text is a failure; a pair (verdict, text)
        gives the verdict.
        """
        self.checks_ = check
        return check

    def data_checks(self, check: F) -> F:
        """Declare an async generator of settings and ``Records`` that yields findings.

        ``esclusa doctor`` reports them as it does those of ``checks``. It reads what is stored, and
        must be bounded.
        """
        self.data_checks_ = check
        return check

    def requires_artifacts(
        self, synonym: Callable[[Any], tuple[str, str] | None] = lambda settings: None
    ) -> None:
        """Refuse to run while ``ESCLUSA_ARTIFACTS`` is not set: files must not go to a default.

        ``synonym`` maps the pipeline's settings to the name of another setting, and the address of
        the artifact store that it means; None if it is not set either.
        """
        self.artifacts_ = synonym

    def needs(self, missing: F) -> F:
        """Declare a function of the settings that yields what is missing, naming the setting.

        While it yields anything, the pipeline's cycles are refused. Servers start;
        ``esclusa doctor`` and ``/readyz`` report it.
        """
        self.needs_ = missing
        return missing

    def on_run(self, note: F) -> F:
        """Declare a function that is called when a run has begun, and when it has ended.

        ``async def note(run, ended)``. What it raises is logged and changes no run.
        """
        self.on_run_ = note
        return note

    def gauges(self, read: F) -> F:
        """Declare a function that reads figures for ``/metrics``, at most once a minute.

        ``async def figures(records)`` returns ``Gauge`` values.
        """
        self.gauges_ = read
        return read

    def bind(self, settings: BaseModel) -> Plan:
        """Apply the settings. Raises DeclarationError with every fault."""
        return self._declared.bind(self, settings)


def _slug(function: Callable[..., Any], name: str | None) -> str:
    return name or getattr(function, "__name__", "").strip("_").replace("_", "-")


def _kind(record: Any, what: str) -> Kind:
    """The kind of a record class. Raises DeclarationError, naming ``what``, for anything else."""
    if isinstance(record, type) and issubclass(record, Record) and hasattr(record, "kind"):
        return record.kind
    name = record.__name__ if isinstance(record, type) else repr(record)
    example = "write: class Order(Record, table='orders')"
    raise DeclarationError(what, [f"{name:.80} is not a record with a table; {example}"])
