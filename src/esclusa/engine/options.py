"""The options of an engine, whatever pipelines it runs."""

from __future__ import annotations

from esclusa.model.value import value


@value
class Options:
    """Seconds and sizes that apply to every stage.

    ``lease``: how long a claim holds a record unless the stage sets its own. ``poll``: between two
    claims of an idle stage. ``grace``: what handlers have to end after a stop. ``prefetch``: the
    most records that one stage claims ahead. ``settle_batch``: the most settlements in one
    transaction.
    """

    lease: float = 60.0
    poll: float = 1.0
    grace: float = 20.0
    prefetch: int = 4000
    settle_batch: int = 2000
