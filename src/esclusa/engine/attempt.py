"""What a handler gets beside its record: the attempt, and the tools of the house."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from esclusa.model.budget import Budget, BudgetEmpty, Denied
from esclusa.model.errors import EsclusaError
from esclusa.model.settlement import Leased, Renewal
from esclusa.ports.artifacts import Artifacts, Body, KeptArtifact

if TYPE_CHECKING:
    from esclusa.engine.records import Records
    from esclusa.engine.stage_runner import StageRunner


T = TypeVar("T")


class LeaseLost(EsclusaError):
    """The record is no longer ours: whatever this attempt does from here on does not count."""


class Attempt:
    """One attempt at one record, or at a batch of them.

    ``number`` is 1 for the first; ``tries`` how many there may be (None: no limit); ``run`` the run it is part of.
    """

    __slots__ = (
        "_engine",
        "_leases",
        "_spent",
        "_spent_at",
        "kept",
        "lost",
        "number",
        "run",
        "stage",
    )

    def __init__(
        self, runner: StageRunner, leases: list[Leased], spent_at: datetime | None = None
    ) -> None:
        stage = runner.stage
        self._engine = runner.engine
        self._leases = leases
        self._spent = stage.cost * len(leases) if stage.budget is not None else 0
        self._spent_at = {stage.budget.name: spent_at} if stage.budget is not None else {}
        self.stage = stage
        self.run = runner.run
        self.number = leases[0].record.attempts
        self.lost = False
        self.kept: tuple[KeptArtifact, ...] = ()

    @property
    def tries(self) -> int | None:
        return self.stage.retry.tries

    @property
    def now(self) -> datetime:
        """The store's time."""
        return self._engine.clock.now()

    @property
    def records(self) -> Records:
        return self._engine.records

    @property
    def artifacts(self) -> Artifacts:
        return self._engine.artifacts

    @property
    def settings(self) -> Any:
        """The pipeline's own settings."""
        return self._engine.plan_of(self.stage.name).settings

    @property
    def context(self) -> Any:
        """What the pipeline's lifespan yielded."""
        return self._engine.contexts[self.stage.name.split(".")[0]]

    def log(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """A structured log line that says which record and attempt it is about."""
        one = (
            {"record": self._leases[0].record.id}
            if len(self._leases) == 1
            else {"records": len(self._leases)}
        )
        self._engine.telemetry.event(
            level,
            message,
            engine_stage=self.stage.name,
            attempt=self.number,
            tries=self.tries,
            run=self.run.id,
            **one,
            **fields,
        )

    def wait(self, awaitable: Coroutine[Any, Any, T]) -> T:
        """In a handler that is a plain function: what an ``async`` tool of the house answers, ``at.wait(at.save(seen=3))``. A
        handler that is ``async`` awaits it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # as it should be: this is a thread of its own
            return asyncio.run_coroutine_threadsafe(awaitable, self._engine.loop).result()
        awaitable.close()
        raise RuntimeError("this handler is async: await instead of at.wait(…)")

    async def save(self, **fields: Any) -> None:
        """Keep these fields already now, before the attempt ends. Raises LeaseLost if the record is no longer ours."""
        if len(self._leases) > 1:
            raise TypeError(
                "save is for a handler of one record; a batch answers with the fields of each"
            )
        lease = self._leases[0]
        checked = lease.ref.kind.check_fields(fields)
        if self.kept:  # the record may say where they are
            await self._engine.artifacts.sync(self.kept)
            for file in self.kept:
                if file.error is not None:
                    raise file.error
        held = await self._engine.store.renew(
            [Renewal(lease.ref, lease.fence, self._engine.lease_of(self.stage), checked)]
        )
        if lease.ref not in held:
            self.lost = True
            raise LeaseLost(f"{lease.ref} is no longer held by this worker")
        for name, value in checked.items():
            setattr(lease.record, name, value)

    async def keep(self, path: str, body: Body, *, content_type: str | None = None) -> str:
        """Keep a file for what this attempt answers, and return its public URL. It is on the disk before the record says so: the
        settlement waits for that, together with those of others, and the handler goes on; if it cannot be, that is the record's
        error. What others are told of, or what takes the place of something that is then deleted, is ``at.artifacts.put``."""
        file = await self._engine.artifacts.keep(path, body, content_type=content_type)
        self.kept += (file,)
        return file.url

    async def caught_up(self) -> None:
        """Wait until what this process has settled is written. Before a call outside that must not be made again: a crash
        then repeats no more than the calls that are under way."""
        await self._engine.settler.flush()

    async def spend(self, budget: Budget, units: int = 1) -> None:
        """Reserve before a metered call. Denied: raises BudgetEmpty, and the record waits for the reset."""
        answer = await self._engine.store.spend(budget, units, self.stage.name, least=units)
        if isinstance(answer, Denied):
            raise BudgetEmpty(budget.name, answer.until)
        self._spent_at.setdefault(
            budget.name, answer.at
        )  # of several grants the first: better unused than overspent

    async def refund(self, units: int | None = None, budget: Budget | None = None) -> None:
        """Give back what was reserved for this attempt and not used (all of it, of the stage's budget, by default)."""
        source = budget or self.stage.budget
        if source is None:
            return
        units = self._spent if units is None else units
        if budget is None:
            units = min(units, self._spent)
            self._spent -= units
        if units > 0:
            await self._engine.store.refund(
                source, units, self.stage.name, self._spent_at.get(source.name)
            )
