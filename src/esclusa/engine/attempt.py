"""What a handler gets beside its record: the attempt, and the tools that it may use."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from esclusa.engine.deadlines import entered_at
from esclusa.engine.log_lines import LogLines
from esclusa.engine.records import Records
from esclusa.engine.runs import RunContext, log_fields
from esclusa.engine.settlement_queue import SettlementQueue
from esclusa.model.budget import Budget, BudgetEmpty, Denied
from esclusa.model.errors import EsclusaError, StoreConflict, StoreUnavailable
from esclusa.model.settlement import Leased, Renewal
from esclusa.model.stage import Stage
from esclusa.model.strict_fields import set_stored
from esclusa.model.value import value
from esclusa.ports.artifacts import Artifacts, Body, KeptArtifact

T = TypeVar("T")

# Seconds for which ``save`` is tried again, and between two tries, growing.
SAVE_SECONDS = 30.0
SAVE_PAUSE, SAVE_PAUSE_MOST = 0.25, 2.0


# Names of a pipeline's own metrics and of their labels.
_METRIC_NAME = re.compile("[a-z][a-z0-9_]{0,79}")


def checked_name(name: str, labels: Mapping[str, object]) -> str:
    """The name of a metric. Raises TypeError if it or a label cannot be one in Prometheus."""
    for each in (name, *labels):
        if not _METRIC_NAME.fullmatch(each):
            raise TypeError(f"{each!r} cannot name a metric or a label: use a-z, 0-9 and _")
    return name


class LeaseLost(EsclusaError):
    """The lease of the record was lost: nothing that this attempt still does is settled."""


@value
class StageTools:
    """What all attempts of one stage in one run share. ``lease`` is in seconds."""

    stage: Stage
    run: RunContext
    queue: SettlementQueue
    settings: Any
    context: Any
    lease: float
    loop: asyncio.AbstractEventLoop


class Attempt:
    """One attempt at one record, or at a batch.

    ``number`` is 1 for the first; ``tries`` is the most there may be (None: no limit); ``run`` is
    the run that it is part of; ``lost`` becomes true when the lease is lost.
    """

    # Set on the class, because there is an attempt for every record and few need them.
    lost = False
    kept: tuple[KeptArtifact, ...] = ()
    lines: LogLines | None = None
    # The span around the handler, if spans are made, and when the handler ended.
    span: str | None = None
    ended_at = 0.0
    # The units of the stage's budget that are reserved and not refunded.
    _spent = 0

    def __init__(
        self, tools: StageTools, leases: Sequence[Leased], spent_at: datetime | None = None
    ) -> None:
        self._tools = tools
        self._leases = leases
        self.number = leases[0].record.attempts
        stage = tools.stage
        if stage.budget is not None:
            self._spent = stage.cost * len(leases)
            self._spent_at = {stage.budget.name: spent_at}

    @property
    def stage(self) -> Stage:
        return self._tools.stage

    @property
    def run(self) -> RunContext:
        return self._tools.run

    @cached_property
    def _spent_at(self) -> dict[str, datetime | None]:
        """When the units of each budget were granted."""
        return {}

    @property
    def tries(self) -> int | None:
        return self.stage.retry.tries

    @property
    def now(self) -> datetime:
        """The store's time."""
        return self.run.now

    @property
    def records(self) -> Records:
        return self.run.records

    @property
    def artifacts(self) -> Artifacts:
        return self.run.artifacts

    @property
    def settings(self) -> Any:
        """The settings of the pipeline."""
        return self._tools.settings

    @property
    def context(self) -> Any:
        """What the pipeline's lifespan yielded."""
        return self._tools.context

    def log(self, message: str, /, *, level: str = "info", **fields: Any) -> None:
        """Write a structured log line that names the record and the attempt.

        The record's history keeps it, too, unless its level is debug: it is there when the attempt
        is settled, with the last 49 lines before it. In a batch it is in the history of each.
        """
        if level != "debug":
            if self.lines is None:
                self.lines = LogLines()
            masked = self.run.tools.telemetry.masked
            shown = masked({"message": message})["message"]
            self.lines.add(self.now, level, shown, masked(fields))
        subject: dict[str, Any] = (
            {"record": self._leases[0].record.id}
            if len(self._leases) == 1
            else {"records": len(self._leases)}
        )
        own = {
            "engine_stage": self.stage.name,
            "attempt": self.number,
            "tries": self.tries,
            "run": self.run.id,
            **subject,
        }
        self.run.tools.telemetry.event(level, message, **log_fields(fields, own))

    def count(self, name: str, amount: float = 1, **labels: object) -> None:
        """Add to a counter of the pipeline in ``/metrics``: ``at.count("pages", 12, kind="scan")``.

        Its name there is ``esclusa_{pipeline}_{name}_total``. At most 100 combinations of label
        values are kept apart; further ones count as ``other``.
        """
        if amount < 0:
            raise TypeError(f"at.count({name!r}): a counter cannot be lowered by {amount}")
        self.run.tools.telemetry.counted(self._pipeline, checked_name(name, labels), amount, labels)

    def observe(self, name: str, seconds: float, **labels: object) -> None:
        """Add a time to a histogram of the pipeline: ``at.observe("bank_seconds", 0.4)``."""
        checked = checked_name(name, labels)
        self.run.tools.telemetry.observed(self._pipeline, checked, seconds, labels)

    @property
    def _pipeline(self) -> str:
        return self.stage.name.partition(".")[0]

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """Call an async method from a plain function: ``at.wait(at.save(seen=3))``.

        An async handler awaits the method instead.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # expected: a plain function runs in a thread without a loop
            return asyncio.run_coroutine_threadsafe(awaitable, self._tools.loop).result()
        awaitable.close()
        raise RuntimeError("this handler is async: use await instead of at.wait(…)")

    async def save(self, **fields: Any) -> None:
        """Write these fields now, before the attempt ends. Raises LeaseLost.

        While another program has locked the row, or the store does not answer, this is tried again
        for half a minute. Then the store's error is raised. A handler that lets it pass ends with a
        ``Wait``: the attempt does not count.
        """
        if len(self._leases) > 1:
            raise TypeError(
                "save needs a handler of single records; a batch handler returns the fields instead"
            )
        lease = self._leases[0]
        checked = lease.ref.kind.check_fields(fields)
        if self.kept:  # the fields may hold their URLs, so the files come first
            await self.artifacts.sync(self.kept)
            for file in self.kept:
                if file.error is not None:
                    raise file.error
        if not await self._written(lease, checked):
            self.lost = True
            raise LeaseLost(f"{lease.ref} is no longer held by this worker")
        set_stored(lease.record, checked)

    async def _written(self, lease: Leased, fields: Mapping[str, Any]) -> bool:
        """Write the fields; return whether the lease is still held."""
        pause, end = SAVE_PAUSE, time.monotonic() + SAVE_SECONDS
        while True:
            renewal = Renewal(lease.ref, lease.fence, self._tools.lease, fields)
            try:
                held = lease.ref in await self.run.tools.store.renew([renewal])
            except (StoreConflict, StoreUnavailable) as error:
                if time.monotonic() + pause > end:
                    raise
                self.log(f"save: {error}; will retry", level="warning")
                await asyncio.sleep(pause)
                pause = min(SAVE_PAUSE_MOST, 2 * pause)
                continue
            if held or lease.fence == renewal.fence:
                return held

    async def keep(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        """Write a file that belongs to the outcome, and return its public URL.

        The file is on disk before the record is settled: the settlement waits for it, together with
        other files, and the handler goes on. If it cannot be written, that is the record's error.
        Use ``at.artifacts.put`` for a file that others learn of before the settlement, or that
        replaces a file which is then deleted. With ``create``, a file of that name is left as it
        is, and the attempt fails.
        """
        file = await self.artifacts.keep(path, body, content_type=content_type, create=create)
        self.kept += (file,)
        return file.url

    async def entered_at(self) -> datetime:
        """When the record entered its present state, as far as its history shows."""
        return await entered_at(self.run.tools.store, self._leases[0].record, self.now)

    async def caught_up(self) -> None:
        """Wait until everything that this process has settled in this stage so far is written.

        Use it before an outside call that must not be repeated: after a crash, only the calls under
        way are made again, and those whose outcome waits for a lock of another program.
        """
        await self._tools.queue.flush()

    async def spend(self, budget: Budget, units: int = 1, *, wait: float = 0.0) -> None:
        """Reserve units before a metered call. Raises BudgetEmpty; the record then waits.

        ``wait``: keep the record for up to so many seconds until its turn in the budget's rate. The
        turn is reserved at once, so that none is lost and all workers together keep the rate. Make
        the call right after this returns: a turn that is missed by more than half of what the rate
        allows (``late``) is given back, and the next is taken.
        """
        end = time.monotonic() + wait
        while True:
            asked = time.monotonic()
            answer = await self.run.tools.store.spend(
                budget, units, self.stage.name, least=units, ahead=max(0.0, end - asked)
            )
            if isinstance(answer, Denied):
                raise BudgetEmpty(budget.name, answer.until, answer.reason(budget.name))
            turn = (asked + time.monotonic()) / 2 + answer.wait
            if answer.wait > 0:
                await asyncio.sleep(turn - time.monotonic())
            if not wait or not budget.late or time.monotonic() - turn <= budget.late / 2:
                break
            await self.run.tools.store.refund(budget, units, self.stage.name, answer.at)
            if time.monotonic() > end:
                raise BudgetEmpty(budget.name, self.now + timedelta(seconds=1))
        # Refund to the window of the first grant: unused units are better than overspent ones.
        self._spent_at.setdefault(budget.name, answer.at)

    async def refund(self, units: int | None = None, budget: Budget | None = None) -> None:
        """Give back units that this attempt reserved and did not use.

        By default: everything that was reserved of the stage's budget.
        """
        source = budget or self.stage.budget
        if source is None:
            return
        units = self._spent if units is None else units
        if budget is None:
            units = min(units, self._spent)
            self._spent -= units
        if units > 0:
            await self.run.tools.store.refund(
                source, units, self.stage.name, self._spent_at.get(source.name)
            )
