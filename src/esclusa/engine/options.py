"""The options of an engine, whatever pipelines it runs."""

from __future__ import annotations

from esclusa.model.value import value


@value
class Options:
    """Seconds and sizes that apply to every stage.

    ``lease``: how long a claim holds a record unless the stage sets its own. ``poll``: between two
    claims of an idle stage. ``grace``: what handlers have to end after a stop. ``run_wait``: how
    long a run waits for its budget or its stage; if that takes longer, the run ends. ``prefetch``:
    the most records that one stage claims ahead. ``settle_batch``: the most settlements in one
    transaction. ``lifespan``: what a pipeline's lifespan has to open. ``store_wait``: how long a
    start waits for a store that is not ready.

    How many days are kept, None: for ever. ``keep_history``: the moves of records.
    ``keep_dead_letters``: dead letters that are closed. ``keep_audit``: what operators did.

    When an alert begins, unless the stage or cycle says otherwise; None: never. ``alert_rate``: the
    share of failed attempts, of at least ``alert_min``. ``alert_backlog``: seconds that a record is
    due. ``alert_budget``: the used share of a budget that will run out before its reset.
    ``alert_no_worker``: seconds that work is due while no worker runs. ``alert_silence``: seconds
    without a record. ``alert_dead_letters``: how many of one table are open. ``judge``: seconds
    between two judgements.
    """

    lease: float = 60.0
    poll: float = 1.0
    grace: float = 20.0
    run_wait: float = 10.0
    lifespan: float = 30.0
    store_wait: float = 0.0
    prefetch: int = 8000
    settle_batch: int = 4000
    alert_rate: float | None = 0.2
    alert_min: int = 5
    alert_backlog: float | None = 3600.0
    alert_budget: float | None = 0.5
    alert_no_worker: float | None = 300.0
    alert_silence: float | None = None
    alert_dead_letters: int | None = 100
    judge: float = 15.0
    keep_history: float | None = 365.0
    keep_dead_letters: float | None = 180.0
    keep_audit: float | None = 730.0
