"""When the settler gives up, every receiver gets one verdict and nothing waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from conformance.kinds import Job

from esclusa.engine.settler import Settler
from esclusa.model.errors import ArtifactError
from esclusa.model.kind import Ref
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Verdict
from esclusa.ports.artifacts import KeptArtifact


class Slow:
    """A store whose ``settle`` ends when ``go`` is set; a ``stubborn`` one ignores cancellation."""

    def __init__(self, *, stubborn: bool) -> None:
        self.stubborn = stubborn
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
        return [Settled(s.ref) for s in settlements]


class Files:
    async def sync(self, kept: Any) -> None: ...


class Silence:
    def event(self, *_: Any, **__: Any) -> None: ...


class Verdicts:
    def __init__(self) -> None:
        self.received: list[tuple[Any, type[Verdict]]] = []

    def written(self, verdicts: list[tuple[Any, Settlement, Verdict]]) -> None:
        self.received += [(token, type(verdict)) for token, _, verdict in verdicts]


def settlement(id: str) -> Settlement:
    return Settlement(Ref(Job.kind, id), "done", ("working",), 1)


Steps = Callable[[Settler, Slow], Awaitable[None] | None]


async def _at_once(settler: Settler, store: Slow) -> None:
    settler.give_up_in(0)


async def _as_the_write_ends(settler: Settler, store: Slow) -> None:
    """The write has ended, but the settler does not know it yet."""
    asyncio.get_running_loop().call_soon(store.go.set)
    asyncio.get_running_loop().call_soon(settler._give_up)


async def _as_the_write_ends_afterwards(settler: Settler, store: Slow) -> None:
    asyncio.get_running_loop().call_soon(settler._give_up)
    asyncio.get_running_loop().call_soon(store.go.set)


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("give_up", [_at_once, _as_the_write_ends, _as_the_write_ends_afterwards])
async def test_every_settlement_gets_one_verdict_when_the_settler_gives_up(
    give_up: Steps, stubborn: bool
) -> None:
    store, verdicts = Slow(stubborn=stubborn), Verdicts()
    settler = Settler(store, Files(), Silence(), batch=2, lease=60)  # type: ignore[arg-type]
    settler.start()
    queue = settler.queue("jobs.work")
    for token in range(5):
        queue.add(settlement(f"j{token}"), verdicts, token)
    await store.begun.wait()
    async with asyncio.timeout(10):
        await give_up(settler, store)  # type: ignore[misc]
        await queue.flush()
        await settler.stop()
    queue.add(settlement("late"), verdicts, 5)
    assert sorted(token for token, _ in verdicts.received) == list(range(6))
    assert {kind for token, kind in verdicts.received if token >= 2} == {Lost}


async def test_flush_does_not_wait_for_earlier_verdicts_after_giving_up() -> None:
    """One settlement lost its file; the others are being written as the settler gives up."""
    store, verdicts = Slow(stubborn=False), Verdicts()
    settler = Settler(store, Files(), Silence(), batch=10, lease=60)  # type: ignore[arg-type]
    settler.start()
    queue = settler.queue("jobs.work")
    missing = KeptArtifact("memory:a")
    missing.error = ArtifactError("the disk lost it")
    queue.add(settlement("j0"), verdicts, 0, [missing])
    queue.add(settlement("j1"), verdicts, 1)
    await store.begun.wait()
    async with asyncio.timeout(10):
        settler.give_up_in(0)
        await queue.flush()
        await settler.stop()
    assert verdicts.received == [(0, Rejected), (1, Lost)]
