"""Plan: a pipeline with its settings filled in, which the engine runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from esclusa.model.action import Action
from esclusa.model.budget import Budget
from esclusa.model.decision import Decision
from esclusa.model.kind import Kind
from esclusa.model.query import Query, Where
from esclusa.model.stage import Cycle, Stage
from esclusa.model.value import value

if TYPE_CHECKING:
    from esclusa.model.pipeline import App


class NoSettings(BaseModel, defer_build=True):
    """The settings of a pipeline that has none."""


@value
class DeclaredQuery:
    """A query that a pipeline makes; with ``sum`` the totals by state with the sum of a field."""

    query: Query
    sum: str | None = None


# Maps `(records, limit, after)` to `{"items": [{column: value}], "next": cursor or None}`.
ViewFunction = Callable[..., Awaitable[dict[str, Any]]]
# What a view may ask for by naming a parameter so.
VIEW_PARAMETERS = ("artifacts", "read_model")


@value
class View:
    """A named, read-only list of a pipeline. Console, API and command line show it.

    ``name`` includes the pipeline's (``media.errors``); ``title`` is by language.
    ``kind`` and ``where`` are the records that it shows, which are counted. An item with an ``id``
    is one of them. ``asks``: which of ``VIEW_PARAMETERS`` its function takes.
    """

    name: str
    title: Mapping[str, str]
    load_page: ViewFunction
    kind: Kind | None = None
    where: Where = field(default_factory=dict)
    asks: tuple[str, ...] = ()


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
    # Its stages with the narrower filters that its runs drain.
    parts: tuple[Stage, ...] = ()
    queries: tuple[DeclaredQuery, ...] = ()
    actions: tuple[Action, ...] = ()
    decisions: tuple[Decision, ...] = ()
    # What must be set before a cycle can run, as far as the settings of the system show.
    missing: tuple[str, ...] = ()

    def missing_settings(self) -> list[str]:
        """What must be set before a cycle can run."""
        own = () if self.app.needs_ is None else self.app.needs_(self.settings)
        return [*self.missing, *own]
