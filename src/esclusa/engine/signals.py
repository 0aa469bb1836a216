"""Stop signals: SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# What the signals call, the latest last, each with its event loop.
_stops: list[tuple[asyncio.AbstractEventLoop, Callable[[str], None]]] = []


def on_stop_signals(stop: Callable[[str], None]) -> Callable[[], None]:
    """Call ``stop`` with the name of each stop signal; return what undoes it.

    Meanwhile an earlier ``stop`` is not called; it is again after that. Outside the main thread it
    does nothing: signals belong to the program that started the thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    loop = asyncio.get_running_loop()
    entry, before = (loop, stop), [signal.getsignal(number) for number in STOP_SIGNALS]
    _stops[:] = [each for each in _stops if not each[0].is_closed()] + [entry]
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number.name)

    def undo() -> None:
        _stops.remove(entry)
        outer = [earlier for at, earlier in _stops if at is loop]
        for number, handler in zip(STOP_SIGNALS, before, strict=True):
            if outer:
                loop.add_signal_handler(number, outer[-1], number.name)
            else:
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    return undo
