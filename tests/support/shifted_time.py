"""An event loop whose clock starts at 0 and jumps: a test of minutes is exact and takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Where the loop would wait for a timer, its clock jumps to that timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            if timeout is None:
                raise RuntimeError("nothing will ever happen: every task waits for another")
            self.now += timeout
        return events


class _ShiftedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_shifted(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses no sockets and no threads; ``asyncio.sleep`` takes no time."""
    with asyncio.Runner(loop_factory=_ShiftedLoop) as runner:
        return runner.run(main)
