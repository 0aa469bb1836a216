"""The outside world, played on loopback: separate servers, true to the providers' wire, with faults to order."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from esclusa.simulators.base import Simulator

SIMULATORS: dict[str, str] = {
    "chilecompra": "chilecompra:ChileCompraSimulator",
    "documentai": "documentai:DocumentAiSimulator",
    "expo": "expo:ExpoSimulator",
    "information_tracer": "information_tracer:InformationTracerSimulator",
    "media_cdn": "media_cdn:MediaCdnSimulator",
    "supabase": "supabase:SupabaseSimulator",
}
"""Which simulators there are: name → ``module:Class`` below this package."""


def make_simulator(name: str) -> Simulator:
    """A simulator, not yet started."""
    module, _, cls = SIMULATORS[name].partition(":")
    made: Simulator = getattr(importlib.import_module(f"esclusa.simulators.{module}"), cls)()
    return made


class SimulatorProcess:
    """A simulator in a process of its own: ``with Played("expo") as sim: … sim.url``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "esclusa.simulators", self.name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own interpreter and module
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the simulator {self.name} did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            if self._process.stdout is not None:
                self._process.stdout.close()
