"""Stop signals: SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signals(stop: Callable[[str], None]) -> Callable[[], None]:
    """Call ``stop`` with the name of each stop signal; return what undoes it."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number.name)

    def undo() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    return undo
