"""View: a named, read-only list of a pipeline. Console, API and command line show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any

from esclusa.model.query import Where
from esclusa.model.record import Kind
from esclusa.model.value import value

# Maps `(records, limit, after)` to `{"items": [{column: value}], "next": cursor or None}`.
ViewFunction = Callable[[Any, int, str | None], Awaitable[dict[str, Any]]]


@value
class View:
    """``name`` includes the pipeline's (``media.errors``); ``title`` is by language.

    ``kind`` and ``where`` are the records that it shows, which are counted. An item with an ``id``
    is one of them.
    """

    name: str
    title: Mapping[str, str]
    load_page: ViewFunction
    kind: Kind | None = None
    where: Where = field(default_factory=dict)
