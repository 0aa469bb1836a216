"""The settler gives up: whoever waits for a verdict is told one, once, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from conformance.kinds import Job

from esclusa.engine.settler import Settler
from esclusa.model.errors import ArtifactError
from esclusa.model.record import Ref
from esclusa.model.settlement import Lost, Rejected, Settled, Settlement, Verdict
from esclusa.ports.artifacts import KeptArtifact


class Slow:
    """A store whose settle ends when it is told to. ``stubborn``: a write that has begun is not called off."""

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
    async def sync(self) -> None: ...


class Silence:
    def event(self, *_: Any, **__: Any) -> None: ...


class Ears:
    def __init__(self) -> None:
        self.told: list[tuple[Any, type[Verdict]]] = []

    def written(self, told: list[tuple[Any, Settlement, Verdict]]) -> None:
        self.told += [(token, type(verdict)) for token, _, verdict in told]


def settlement(id: str) -> Settlement:
    return Settlement(Ref(Job.kind, id), "done", ("working",), 1)


Steps = Callable[[Settler, Slow], Awaitable[None] | None]


async def _at_once(settler: Settler, store: Slow) -> None:
    settler.give_up_in(0)


async def _as_the_write_ends(settler: Settler, store: Slow) -> None:
    """The write has ended, and the settler has not been told so."""
    asyncio.get_running_loop().call_soon(store.go.set)
    asyncio.get_running_loop().call_soon(settler._give_up)


async def _as_the_write_ends_afterwards(settler: Settler, store: Slow) -> None:
    asyncio.get_running_loop().call_soon(settler._give_up)
    asyncio.get_running_loop().call_soon(store.go.set)


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("give_up", [_at_once, _as_the_write_ends, _as_the_write_ends_afterwards])
async def test_every_outcome_is_told_once_when_the_settler_gives_up(
    give_up: Steps, stubborn: bool
) -> None:
    store, ears = Slow(stubborn=stubborn), Ears()
    settler = Settler(store, Files(), Silence(), batch=2)  # type: ignore[arg-type]
    settler.start()
    for token in range(5):
        settler.add(settlement(f"j{token}"), ears, token)
    await store.begun.wait()
    async with asyncio.timeout(10):
        await give_up(settler, store)  # type: ignore[misc]
        await settler.flush()
        await settler.stop()
    settler.add(settlement("late"), ears, 5)
    assert sorted(token for token, _ in ears.told) == list(range(6))
    assert {kind for token, kind in ears.told if token >= 2} == {Lost}


async def test_nobody_waits_for_what_was_told_before_the_settler_gave_up() -> None:
    """One of a batch had no file: it was told, the others are with the store as the settler gives up."""
    store, ears = Slow(stubborn=False), Ears()
    settler = Settler(store, Files(), Silence(), batch=10)  # type: ignore[arg-type]
    settler.start()
    missing = KeptArtifact("memory:a")
    missing.error = ArtifactError("the disk lost it")
    settler.add(settlement("j0"), ears, 0, [missing])
    settler.add(settlement("j1"), ears, 1)
    await store.begun.wait()
    async with asyncio.timeout(10):
        settler.give_up_in(0)
        await settler.flush()
        await settler.stop()
    assert ears.told == [(0, Rejected), (1, Lost)]
