"""The watchdog: a thread that notices when the event loop is blocked, and says by what."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

from esclusa.engine.alerts import AlertLog, AlertSink
from esclusa.engine.clock import StoreClock
from esclusa.engine.leases import LeaseRenewer
from esclusa.engine.records import Records
from esclusa.model.texts import Text, text
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# Opens a store and a sink for another event loop, with connections of their own.
SpareStore: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Store, AlertSink | None]]]

# The share of the shortest lease after which a blocked loop is reported.
SHARE = 1 / 3
# The least and the most seconds after which a blocked loop is reported.
LEAST, MOST = 1.0, 5.0
# Seconds that the spare store has to open and to begin the alert, and between two tries.
ALERT_TIMEOUT = 10.0
# Seconds that a stop waits for the alert to end.
STOP = 2.0
# The name of the alert.
LOOP_BLOCKED = "loop_blocked"
# The innermost frames of the stack, and the records of a batch, that are reported.
FRAMES, RECORDS = 20, 5

_NOT_THEIRS = (str(Path(__file__).parent), "<", *sysconfig.get_paths().values())


class LoopBlock:
    """A time in which the loop did not run: what blocked it, and whether it is over."""

    __slots__ = ("fields", "message", "over", "subject")

    def __init__(self, subject: str, message: Text, fields: dict[str, Any]) -> None:
        self.subject = subject
        self.message = message
        self.fields = fields
        self.over = threading.Event()


class Watchdog:
    """Reports what blocks the event loop, once for each block, while it blocks and when it ends.

    While the loop is blocked, no lease is renewed and nothing is settled. A callback of the loop
    counts; the thread looks whether the count grows. Time in which the whole process did not run
    (a suspended machine, SIGSTOP) is not counted.
    """

    def __init__(
        self,
        leases: LeaseRenewer,
        alerts: AlertLog,
        telemetry: Telemetry,
        worker: str,
        *,
        lease: float,
        spare_store: SpareStore | None,
    ) -> None:
        self._leases = leases
        self._alerts = alerts
        self._telemetry = telemetry
        self._worker = worker
        self._spare_store = spare_store
        self._limit = min(MOST, max(LEAST, lease * SHARE))
        self._interval = self._limit / 5
        self._beats = 0
        self._beat_handle: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Watch the running loop."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._ended.clear()
        self._beat()
        self._start(self._watch, "esclusa-watchdog")

    async def stop(self) -> None:
        """Watch no more. An alert that is open ends before, if the store answers soon."""
        self._ended.set()
        if self._beat_handle is not None:
            self._beat_handle.cancel()
        while self._threads:
            await asyncio.to_thread(self._threads.pop(0).join, STOP)

    def _beat(self) -> None:
        assert self._loop is not None
        self._beats += 1
        self._beat_handle = self._loop.call_later(self._interval, self._beat)

    def _start(self, function: Callable[..., None], name: str, *values: Any) -> None:
        thread = threading.Thread(target=function, args=values, name=name, daemon=True)
        thread.start()
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]

    # in the thread of the watchdog

    def _watch(self) -> None:
        seen, last, last_cpu = self._beats, time.monotonic(), time.process_time()
        blocked, block = 0.0, None
        while not self._ended.wait(self._interval):
            now, cpu = time.monotonic(), time.process_time()
            passed = ran(now - last, cpu - last_cpu, self._interval)
            last, last_cpu = now, cpu
            if self._beats != seen:
                if block is not None:
                    self._end(block, blocked)
                seen, blocked, block = self._beats, 0.0, None
                continue
            blocked += passed
            if block is None and blocked >= self._limit:
                block = self._describe(blocked)
                self._begin(block)
        if block is not None:
            self._end(block, blocked)

    def _describe(self, seconds: float) -> LoopBlock:
        """What the loop's thread is doing now."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the documented way
        stack = traceback.extract_stack(frame)[-FRAMES:]
        task = asyncio.current_task(self._loop)
        held = [] if task is None else self._leases.held_by(task)
        fields: dict[str, Any] = {"stack": "".join(traceback.format_list(stack))}
        values = {"seconds": round(seconds, 1), "where": place(stack)}
        if held and held[0].attempt is not None:
            stage = held[0].attempt.stage.name
            records = ", ".join(sorted(each.ref.id for each in held)[:RECORDS])
            records += ", …" if len(held) > RECORDS else ""
            fields |= {"engine_stage": stage, "record": records}
            message = text("handler_blocks", stage=stage, record=records, **values)
            return LoopBlock(stage, message, fields)
        name = "-" if task is None else task.get_name()
        return LoopBlock(name, text("task_blocks", task=name, **values), fields)

    def _begin(self, block: LoopBlock) -> None:
        self._telemetry.event("error", block.message, worker=self._worker, **block.fields)
        self._start(self._alert, "esclusa-alert", block)

    def _end(self, block: LoopBlock, seconds: float) -> None:
        message = text("loop_runs", seconds=round(seconds, 1))
        self._telemetry.event("warning", message, worker=self._worker, subject=block.subject)
        block.over.set()

    # in the thread of one alert

    def _alert(self, block: LoopBlock) -> None:
        """Begin the alert while the loop is blocked, and let the loop end it.

        If the alert cannot begin apart from the loop, the loop begins it, too.
        """
        while self._spare_store is not None and not block.over.is_set():
            try:
                asyncio.run(self._alert_apart(block, self._spare_store))
            except Exception as error:  # noqa: BLE001 - an alert must not break what it reports
                self._telemetry.event(
                    "warning", f"alert {LOOP_BLOCKED} of {block.subject} waits: {error}"
                )
                block.over.wait(ALERT_TIMEOUT)
        block.over.wait()
        assert self._loop is not None
        if not self._loop.is_closed():
            alert = (LOOP_BLOCKED, block.subject)
            self._loop.call_soon_threadsafe(self._alerts.begin_soon, *alert, block.message)
            self._loop.call_soon_threadsafe(self._alerts.end_soon, *alert)

    async def _alert_apart(self, block: LoopBlock, spare_store: SpareStore) -> None:
        """Begin the alert, and confirm it until the block is over."""
        async with asyncio.timeout(ALERT_TIMEOUT) as timeout, spare_store() as (store, sink):
            clock = StoreClock(store)
            await clock.sync()
            alerts = AlertLog(store, Records(store), clock, self._telemetry, self._worker, sink)
            while not block.over.is_set():
                await alerts.begin(LOOP_BLOCKED, block.subject, block.message)
                await alerts.retry()
                timeout.reschedule(None)
                await asyncio.sleep(self._interval)


def ran(elapsed: float, cpu: float, interval: float) -> float:
    """How much of the elapsed time the process ran, as seen by a thread that wakes at intervals.

    If the thread woke late, either the process did not run, or a call kept the interpreter to
    itself; only the latter uses processor time.
    """
    return elapsed if elapsed <= 2 * interval else min(elapsed, max(interval, cpu))


def place(stack: list[traceback.FrameSummary]) -> str:
    """The innermost place in the stack that belongs to a pipeline, or else the innermost one."""
    theirs = [frame for frame in stack if not frame.filename.startswith(_NOT_THEIRS)]
    if not (theirs or stack):
        return "-"
    frame = (theirs or stack)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
