"""The loop that keeps a process alive in the store: renew leases, sync the clock, write rates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from esclusa.model.errors import StoreConflict, StoreUnavailable
from esclusa.ports.telemetry import Telemetry


class Periodic:
    """Calls the steps in order every ``interval`` seconds.

    A step that raises ends this round, not the loop: without it every lease would be lost.
    """

    def __init__(
        self, interval: float, telemetry: Telemetry, *steps: Callable[[], Awaitable[object]]
    ) -> None:
        self._interval = interval
        self._telemetry = telemetry
        self._steps = steps
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name="periodic")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                for step in self._steps:
                    await step()
            except (StoreUnavailable, StoreConflict) as error:
                self._telemetry.event("warning", f"renewing leases: {error}; will retry")
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                self._telemetry.event("error", f"renewing leases: {type(error).__name__}: {error}")
