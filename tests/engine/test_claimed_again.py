"""A process claims a record that it still holds: whose outcome may be written then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.scheduling import running_scheduler

from esclusa import App, Backoff, Lifecycle, Record, Retry, To
from esclusa.model.errors import StoreUnavailable
from esclusa.model.kind import Ref
from esclusa.model.settlement import ClaimRequest, Leased, Renewal


class Draft(Record, table="drafts", key="name"):
    name: str
    words: int = 1
    read: int | None = None
    lifecycle = Lifecycle("""
        new -> busy -> done
        busy -> new | bad
        bad -> new
    """)


class Pipeline:
    """One stage, whose handler notes its calls and waits for ``go``."""

    def __init__(self, failing: bool = False) -> None:
        self.calls: list[tuple[str, int]] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.failing = failing
        self.app = App("press")
        self.app.stage(
            Draft,
            name="read",
            take="new",
            hold="busy",
            exhausted="bad",
            retry=Backoff(tries=5, base=0, jitter=0),
            concurrency=10,
        )(self._read)

    async def _read(self, draft: Draft, at: Any) -> Retry | To:
        self.calls.append((draft.name, draft.words))
        self.begun.set()
        await self.go.wait()
        if self.failing and draft.name == "a" and len(self.calls) == 1:
            return Retry("not yet")
        return To("done", read=draft.words)


async def claimed_elsewhere(engine: Any, name: str, lease: float) -> Leased:
    """The record as another worker claims it, as soon as it can."""
    request = ClaimRequest(
        Draft.kind,
        "press.read",
        ("new",),
        "busy",
        limit=1,
        lease=lease,
        worker="other",
        ids=(name,),
    )
    async with asyncio.timeout(20):
        while not (leases := await engine.store.claim(request)):
            await asyncio.sleep(0.05)
    return leases[0]


async def until_done(engine: Any, *names: str) -> None:
    async with asyncio.timeout(30):
        while (await engine.records.count(Draft, {"status": "done"}))[0] < len(names):
            await asyncio.sleep(0.05)


@pytest.mark.promise(3)
async def test_an_outcome_is_not_written_after_another_worker_had_the_record(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process lost the store for a while. The other worker saved a field and vanished."""
    pipeline = Pipeline()
    engine, other = await new_engine(pipeline.app, lease=1.0), await new_engine(pipeline.app)
    await engine.records.insert([Draft(name="a")])

    async def away(*arguments: Any) -> Any:
        raise StoreUnavailable("the store is away")

    async with running_scheduler(engine):
        await pipeline.begun.wait()
        with monkeypatch.context() as patch:
            for name in ("claim", "settle", "renew"):
                patch.setattr(engine.store, name, away)
            pipeline.go.set()
            lease = await claimed_elsewhere(other, "a", lease=0.5)
            await other.store.renew([Renewal(lease.ref, lease.fence, 0.1, {"words": 2})])
            await asyncio.sleep(0.3)
        await until_done(engine, "a")
    draft = await engine.records.get(Draft, "a")
    assert draft.read == 2
    assert pipeline.calls == [("a", 1), ("a", 2)]


@pytest.mark.promise(7)
async def test_an_outcome_that_was_written_is_not_written_again_under_the_next_claim(
    new_engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the settlement is lost. The next claim takes the record beside an orphan."""
    pipeline = Pipeline(failing=True)
    engine, other = await new_engine(pipeline.app, lease=5.0), await new_engine(pipeline.app)
    await engine.records.insert([Draft(name="a")])
    settle, claim, renew = engine.store.settle, engine.store.claim, engine.store.renew
    written, answering, claims = asyncio.Event(), asyncio.Event(), asyncio.Lock()
    first = 1  # the fence of the settlement without an answer

    async def settle_unanswered(batch: Any) -> Any:
        if (batch[0].ref, batch[0].fence) != (Ref(Draft.kind, "a"), first):
            return await settle(batch)
        if not written.is_set():
            await settle(batch)
            written.set()
        raise StoreUnavailable("the answer is lost")

    async def claim_in_turn(request: Any) -> Any:
        async with claims:
            return await claim(request)

    async def renew_later(renewals: Any) -> Any:
        if not answering.is_set():
            raise StoreUnavailable("the answer is lost")
        return await renew(renewals)

    monkeypatch.setattr(engine.store, "claim", claim_in_turn)
    async with running_scheduler(engine):
        await pipeline.begun.wait()
        with monkeypatch.context() as patch:
            async with claims:
                patch.setattr(engine.store, "settle", settle_unanswered)
                patch.setattr(engine.store, "renew", renew_later)
                pipeline.go.set()
                await written.wait()
                await engine.records.insert([Draft(name="b")])
                await claimed_elsewhere(other, "b", lease=0.1)
                await asyncio.sleep(0.3)
                answering.set()
            async with asyncio.timeout(20):
                while len(pipeline.calls) < 3:
                    await asyncio.sleep(0.05)
        await until_done(engine, "a", "b")
    steps = await engine.store.history(Ref(Draft.kind, "a"))
    assert [(step.frm, step.to) for step in steps] == [
        ("new", "busy"), ("busy", "new"), ("new", "busy"), ("busy", "done"),
    ]  # fmt: skip
    assert sorted(pipeline.calls) == [("a", 1), ("a", 1), ("b", 1)]
