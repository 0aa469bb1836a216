"""A pipeline of one stage over items, for tests of the engine."""

from __future__ import annotations

from typing import Any

from esclusa import App, Backoff, Lifecycle, Record


class Item(Record, table="items", key="name"):
    name: str
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


def pipeline(handler: Any, **options: Any) -> App:
    """The pipeline ``try`` with the stage ``work``, which gives up after three attempts."""
    app = App("try")
    given: dict[str, Any] = {
        "take": "new",
        "hold": "busy",
        "exhausted": "bad",
        "retry": Backoff(tries=3, base=0, jitter=0),
    } | options
    app.stage(Item, name="work", **given)(handler)
    return app
