"""``python -m esclusa.simulators NAME [--port N]``: run a simulator until it is stopped.

The first line of output is its address.
"""

from __future__ import annotations

import argparse
import asyncio
import gc

from esclusa.engine.signals import on_stop_signals
from esclusa.simulators import SIMULATORS, make_simulator


async def main() -> None:
    """Start the simulator, print its address, and wait for SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m esclusa.simulators", description=__doc__)
    parser.add_argument("name", choices=sorted(SIMULATORS))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    gc.set_threshold(50_000, 20, 10_000)  # a full collection would hold up answers
    simulator = make_simulator(arguments.name)
    address = await simulator.start(arguments.host, arguments.port)
    print(address, flush=True)  # noqa: T201 - the starting process reads it
    stopped = asyncio.Event()
    on_stop_signals(lambda _: stopped.set())
    await stopped.wait()
    await simulator.stop()


asyncio.run(main())
