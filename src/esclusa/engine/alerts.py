"""Alerts: each begins once and ends once, in the log, in the list of alerts, and at the sink."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias

from esclusa.engine.clock import StoreClock
from esclusa.engine.records import Records
from esclusa.engine.threads import end_tasks
from esclusa.model import duration
from esclusa.model.query import one_of
from esclusa.model.settlement import Duplicate, Settled, Settlement
from esclusa.model.system_records import Alert, WorkerRecord
from esclusa.model.texts import dump, load, text
from esclusa.model.value import value
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

# Gets every alert twice: when it has begun, and when it has ended (then it has `ended_at`).
AlertSink: TypeAlias = Callable[[Alert], Awaitable[None]]

# What an alert is about: its name and its subject.
AlertKey: TypeAlias = tuple[str, str]

# The states of an alert that has not ended.
OPEN = ("raised", "seen")
# Seconds after which an open alert that is reported again is confirmed in the store.
CONFIRM = 60.0
# How long the confirmation of a live worker keeps the others from ending the alert.
CONFIRMED = timedelta(seconds=2 * CONFIRM)
# Seconds for which the list of open alerts is reused.
FRESH = 5.0
# The most open alerts that are known, and the most reports that wait for the store.
MOST = 1000


@value
class _Begin:
    """A report that waits for the store: this alert is true."""

    message: str
    details: Mapping[str, Any]


@value
class _End:
    """A report that waits for the store or for another worker: this alert is over."""


class AlertLog:
    """Begins and ends alerts. It never raises: an alert must not break what it reports.

    An alert is its name and its subject. However often it is reported, and by however many
    processes, it begins once; then it is open until somebody reports its end. The state is in the
    store: a restarted process neither repeats an alert nor forgets to end it. While the store does
    not answer, reports wait, the last one of each alert.
    """

    def __init__(
        self,
        store: Store,
        records: Records,
        clock: StoreClock,
        telemetry: Telemetry,
        worker: str,
        sink: AlertSink | None,
        *,
        muted: Callable[[str, str], bool] = lambda name, subject: False,
    ) -> None:
        self._store = store
        self._records = records
        self._clock = clock
        self._telemetry = telemetry
        self._worker = worker
        self._sink = sink
        self._muted = muted
        self._open: dict[AlertKey, Alert] = {}
        self._read_at = float("-inf")
        self._waiting: dict[AlertKey, _Begin | _End] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # fair: reports are written in their order

    async def begin(self, name: str, subject: str, message: str, **details: Any) -> None:
        """Report that this is wrong. The alert begins, unless it is open already."""
        if not self._known((name, subject)):
            await self._report((name, subject), _Begin(message, details))

    async def end(self, name: str, subject: str) -> None:
        """Report that this is no longer wrong. The alert ends, if it is open.

        If another live worker has just reported the contrary, it ends later, unless that worker
        confirms it again.
        """
        await self._report((name, subject), _End())

    def begin_soon(self, name: str, subject: str, message: str, **details: Any) -> None:
        """The same as ``begin``, for callers that cannot wait. Costs little for an open alert."""
        key, report = (name, subject), _Begin(message, details)
        if not self._known(key):
            self._waiting[key] = report
            self._start(self._report(key, report))

    def end_soon(self, name: str, subject: str) -> None:
        """The same as ``end``, for callers that cannot wait."""
        self._start(self._report((name, subject), _End()))

    async def open(self) -> dict[AlertKey, Alert]:
        """The alerts that have begun and not ended, by name and subject. Raises StoreUnavailable.

        The answer may be a few seconds old.
        """
        if time.monotonic() - self._read_at > FRESH:
            page = await self._records.find(Alert, {"status": one_of(*OPEN)}, limit=MOST)
            self._open = {(alert.name, alert.subject): alert for alert in page.items}
            self._read_at = time.monotonic()
        return self._open

    async def retry(self) -> None:
        """Write the reports that wait for the store or for another worker's confirmation."""
        for key, report in list(self._waiting.items()):
            if self._waiting.get(key) is report:
                await self._report(key, report)

    async def flush(self) -> None:
        """Wait for the reports under way, for a short time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Wait for the reports under way, then end them."""
        await self.flush()
        await end_tasks(*self._tasks)

    def _known(self, key: AlertKey) -> bool:
        """Whether the alert is open and was confirmed a moment ago, or its beginning waits."""
        alert, report = self._open.get(key), self._waiting.get(key)
        if report is not None:
            return isinstance(report, _Begin)
        return alert is not None and not self._aged(alert)

    def _aged(self, alert: Alert) -> bool:
        confirmed = alert.confirmed_at
        return confirmed is None or (self._clock.now() - confirmed).total_seconds() >= CONFIRM

    def _start(self, report: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(report, name="alert")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, key: AlertKey, report: _Begin | _End) -> None:
        """Write a report now if that is possible, otherwise keep it for ``retry``."""
        async with self._turn:
            try:
                done = (
                    await self._begin(key, report)
                    if isinstance(report, _Begin)
                    else await self._end(key)
                )
            except Exception as error:  # noqa: BLE001 - see the class
                done = False
                if key not in self._waiting:
                    self._telemetry.event(
                        "warning",
                        f"alert {key[0]} of {key[1]} waits for the store: {error}",
                        alert=key[0],
                        subject=key[1],
                    )
            self._waiting.pop(key, None)
            if not done and len(self._waiting) < MOST:
                self._waiting[key] = report

    async def _begin(self, key: AlertKey, report: _Begin) -> bool:
        """Write the first report of an alert; one insert of several processes succeeds."""
        name, subject = key
        where = {"name": name, "subject": subject}
        last = await self._records.first(Alert, where, order="-number")
        if last is not None and last.status in OPEN:
            return await self._confirm(last)
        now = self._clock.now()
        alert = Alert(
            name=name,
            subject=subject,
            number=1 if last is None else (last.number or 0) + 1,
            message=dump(report.message),
            begun_at=now,
            confirmed_at=now,
            confirmed_by=self._worker,
            held_back=self._muted(name, subject) or None,
            details=dict(report.details),
        )
        [answer] = await self._store.insert([alert])
        self._open[key] = alert = alert.but(id=answer.id, status="raised")
        if not isinstance(answer, Duplicate):
            self._telemetry.event(
                "error", report.message, alert=name, subject=subject, **report.details
            )
            await self._send(alert.but(message=str(report.message)))
        return True

    async def _confirm(self, alert: Alert) -> bool:
        """Write that the alert is still true, at most once a minute."""
        if self._aged(alert):
            fields: dict[str, Any] = {
                "confirmed_at": self._clock.now(),
                "confirmed_by": self._worker,
            }
            if due := alert.held_back and not self._muted(alert.name, alert.subject):
                fields["held_back"] = False
            await self._store.settle(
                [
                    Settlement(
                        alert.ref, alert.status, (alert.status,), None, fields, who=self._worker
                    )
                ]
            )
            alert = alert.but(**fields)
            if due:
                await self._send(alert.but(message=str(load(alert.message))))
        self._open[alert.name, alert.subject] = alert
        return True

    async def _end(self, key: AlertKey) -> bool:
        """Write the end of an alert; return False if it has to wait."""
        alert = (await self.open()).get(key)
        if alert is None:
            return True
        [alert] = await self._records.get_many(Alert, [alert.id])
        if alert is None or alert.status not in OPEN:
            self._open.pop(key, None)
            return True
        if await self._held_open(alert):
            return False
        ended = {"ended_at": self._clock.now()}
        [verdict] = await self._store.settle(
            [Settlement(alert.ref, "ended", OPEN, None, ended, who=self._worker)]
        )
        self._open.pop(key, None)
        if isinstance(verdict, Settled):
            await self._report_end(alert.but(status="ended", **ended))
        return True

    async def _held_open(self, alert: Alert) -> bool:
        """Whether another worker that lives has confirmed the alert a moment ago."""
        now, confirmed, by = self._clock.now(), alert.confirmed_at, alert.confirmed_by
        if by in (None, self._worker) or confirmed is None or now - confirmed >= CONFIRMED:
            return False
        worker = await self._records.get(WorkerRecord, by)
        return (
            worker is not None
            and worker.status == "running"
            and worker.due_at is not None
            and worker.due_at > now
        )

    async def _report_end(self, alert: Alert) -> None:
        assert alert.ended_at is not None
        lasted = (alert.ended_at - (alert.begun_at or alert.ended_at)).total_seconds()
        message = load(alert.message)
        self._telemetry.event(
            "warning",
            text("alert_ended", time=duration.words(max(1.0, round(lasted))), message=message),
            alert=alert.name,
            subject=alert.subject,
        )
        await self._send(alert.but(message=str(message)))

    async def _send(self, alert: Alert) -> None:
        if self._sink is None or alert.held_back or self._muted(alert.name, alert.subject):
            return
        try:
            await self._sink(alert)
        except Exception as error:  # noqa: BLE001 - see the class
            self._telemetry.event(
                "warning", f"alert {alert.name} could not be delivered: {error}", alert=alert.name
            )
