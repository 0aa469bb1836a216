"""Forecasts: when a stage will have handled what is due, and whether a budget is still needed.

A forecast that the present rate does not support is not made: it says why instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime

from esclusa.engine.registry import Registry
from esclusa.model.budget import Budget, WindowUse
from esclusa.model.schedule import Manual
from esclusa.model.stage import Cycle
from esclusa.model.system_records import StagePause
from esclusa.model.texts import Text, text
from esclusa.model.value import value
from esclusa.ports.store import Store


@value
class Drain:
    """When what is due now will be handled. ``seconds`` is None: not at this rate.

    ``note``: why not, or what limits it.
    """

    seconds: float | None = None
    note: Text | None = None


@value
class Conditions:
    """What a stage works under: whether anybody runs its cycle, when, and what it may spend.

    ``cycle``: None if only functions of cycles drain it. ``demand``: the units that all stages of
    the budget need for what is due.
    """

    cycle: Cycle | None
    paused: bool
    served: bool
    next_run: datetime | None
    pause: StagePause | None
    windows: Sequence[WindowUse] = ()
    demand: int = 0


def drain(due: int, per_second: float, under: Conditions, now: datetime) -> Drain:
    """When so many due records will be handled; ``per_second``: how many left the stage lately."""
    if not due:
        return Drain()
    if (stopped := _stopped(under)) is not None:
        return Drain(None, stopped)
    budget = max(
        (_by_window(window, under.demand, now) for window in under.windows),
        key=lambda found: found[0],
        default=(0.0, None),
    )
    if math.isinf(budget[0]):
        return Drain(None, budget[1])
    if per_second <= 0:
        if budget[0]:
            return Drain(round(budget[0], 1), budget[1])
        cycle = under.cycle
        if cycle is not None and under.next_run is not None and under.next_run > now:
            return Drain(None, text("drain_next_run", cycle=cycle.name, at=under.next_run))
        return Drain(None, text("drain_idle"))
    seconds = due / per_second
    if seconds < budget[0]:
        return Drain(round(budget[0], 1), budget[1])
    return Drain(round(seconds, 1))


def _stopped(under: Conditions) -> Text | None:
    """Why nothing is handled now, if a person or another program must act first."""
    cycle, pause = under.cycle, under.pause
    if cycle is not None and under.paused:
        return text("drain_cycle_paused", cycle=cycle.name)
    if pause is not None:
        if pause.status == "trying" or pause.due_at is None:
            return text("drain_trying")
        return text("drain_stage_paused", until=pause.due_at)
    if cycle is None:
        return None if under.served else text("why_no_worker")
    if isinstance(cycle.schedule, Manual):
        return text("drain_manual", cycle=cycle.name)
    return None if under.served else text("drain_no_worker", cycle=cycle.name)


def _by_window(window: WindowUse, units: int, now: datetime) -> tuple[float, Text | None]:
    """The least number of seconds in which a window grants so many units, and its limit in words.

    0 and None if it does not limit them.
    """
    values = {"budget": window.budget, "left": window.left, "limit": window.limit}
    note = text("drain_budget", per=window.per, **values)
    if units <= 0:
        return 0.0, None
    opens = max(0.0, (window.barred - now).total_seconds()) if window.barred else 0.0
    if window.limit <= 0:
        return math.inf, note
    if window.burst is not None:
        period = (now - window.start).total_seconds()
        seconds = max(0, units - window.burst) * period / window.limit
        return (opens + seconds, note) if opens + seconds else (0.0, None)
    if units <= window.left:
        return (opens, note) if opens else (0.0, None)
    later = (units - window.left - 1) // window.limit  # windows that are used up after the next
    period = (window.reset - window.start).total_seconds()
    until_reset = max(0.0, (window.reset - now).total_seconds())
    return max(opens, until_reset) + later * period, note


async def waits_for(
    registry: Registry,
    store: Store,
    budget: Budget,
    windows: Sequence[WindowUse],
    paused: Callable[[str], bool],
) -> bool:
    """Whether somebody will need the budget before it resets: only then its use goes on.

    A stage that uses it has due records, or some that become due before; or a cycle that spends it
    runs by itself.
    """
    spenders = {name for window in windows for name in window.spenders}
    reset = max((window.reset for window in windows), default=None)
    for stage in registry.all_stages:
        if stage.budget != budget and stage.name not in spenders:
            continue
        found = await store.backlog(registry.request(stage), cap=1)
        if found.due or (found.next is not None and reset is not None and found.next < reset):
            return True
    names = spenders - registry.stages.keys()  # a stage and its cycle have the same name
    cycles = [registry.cycles[name] for name in names if name in registry.cycles]
    return any(not isinstance(c.schedule, Manual) and not paused(c.name) for c in cycles)
