"""Simulators of the providers: HTTP servers on loopback with the providers' protocols and faults.

Demos and tests use them. ``SimulatorProcess`` runs one in a process of its own.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from esclusa.simulators.base import Simulator

# Every simulator: its name and its `module:Class` in this package.
SIMULATORS: dict[str, str] = {
    "chilecompra": "chilecompra:ChileCompraSimulator",
    "documentai": "documentai:DocumentAiSimulator",
    "expo": "expo:ExpoSimulator",
    "graph_api": "graph_api:GraphApiSimulator",
    "information_tracer": "information_tracer:InformationTracerSimulator",
    "media_cdn": "media_cdn:MediaCdnSimulator",
    "supabase": "supabase:SupabaseSimulator",
}


def make_simulator(name: str) -> Simulator:
    """The simulator of this name, not yet started."""
    module, _, cls = SIMULATORS[name].partition(":")
    simulator: Simulator = getattr(importlib.import_module(f"esclusa.simulators.{module}"), cls)()
    return simulator


class SimulatorProcess:
    """A simulator in a process of its own: ``with SimulatorProcess("expo") as sim: … sim.url``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "esclusa.simulators", self.name]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"the simulator {self.name} did not start")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
            if self._process.stdout is not None:
                self._process.stdout.close()
