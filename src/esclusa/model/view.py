"""View: a question that a pipeline's people ask again and again, with a name. Every door answers it: console, API, command line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any

from esclusa.model.query import Where
from esclusa.model.record import Kind
from esclusa.model.value import value

Look = Callable[[Any, int, str | None], Awaitable[dict[str, Any]]]
"""Answers one page: ``(records, limit, after)`` to ``{"items": [{column: value}], "next": cursor or None}``."""


@value
class View:
    """``name``: the pipeline's and its own, ``media.errors``. ``title``: by language. ``kind`` and ``where``: the records that it is
    about, which are counted; an item with an ``id`` is one of them."""

    name: str
    title: Mapping[str, str]
    look: Look
    kind: Kind | None = None
    where: Where = field(default_factory=dict)
