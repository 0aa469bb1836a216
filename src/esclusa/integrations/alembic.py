"""Alembic: autogenerate leaves the columns, indexes and tables of Esclusa alone.

In ``env.py``: ``context.configure(…, include_object=include_object(app))``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from esclusa.model.columns import SYSTEM_PREFIX
from esclusa.model.kind import Kind
from esclusa.model.pipeline import App

IncludeObject = Callable[[Any, str | None, str, bool, Any], bool]

# The comment of a table that Esclusa made, on PostgreSQL.
_MADE = "Made by Esclusa"


def include_object(*pipelines: App, and_also: IncludeObject | None = None) -> IncludeObject:
    """The option ``include_object`` of Alembic's ``context.configure``.

    Autogenerate compares the database with the models, and would drop what only Esclusa needs. With
    this it does not see that: the tracking columns and indexes of these pipelines' records, and the
    tables that Esclusa made. ``and_also``: a hook of the application's own, asked as well.
    """
    kinds = {kind.table: kind for app in pipelines for kind in _kinds(app)}

    def include(item: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
        if reflected and compare_to is None and name and _is_own(kinds, item, name, type_):
            return False
        return and_also is None or and_also(item, name, type_, reflected, compare_to)

    return include


def _kinds(app: App) -> list[Kind]:
    return [kind.as_declared for kind in app.bind(app.settings()).kinds]


def _is_own(kinds: dict[str, Kind], item: Any, name: str, type_: str) -> bool:
    if type_ == "table":
        made = str(item.comment or "").startswith(_MADE) or name.startswith(SYSTEM_PREFIX)
        return made or (name in kinds and not kinds[name].attached)
    kind = kinds.get(item.table.name)
    if kind is None:
        return False
    if type_ == "column":
        return name in kind.track.values() or name in {
            kind.by_name[field].column for field in kind.added
        }
    index = re.compile(rf"{re.escape(kind.table[:36])}_[a-z_]{{1,12}}_[0-9a-f]{{8}}\Z")
    return type_ in ("index", "unique_constraint") and index.match(name) is not None
