"""Alerts: written to the log and the list of alerts, and sent to the sink (a webhook)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from esclusa.engine.clock import StoreClock
from esclusa.engine.runs import RunContext
from esclusa.model.system_records import Alert
from esclusa.model.texts import dump, text
from esclusa.ports.store import Store
from esclusa.ports.telemetry import Telemetry

AlertSink: TypeAlias = Callable[[Alert], Awaitable[None]]


class AlertLog:
    """Raises alerts. Never raises an error: an alert must not break what it reports."""

    def __init__(
        self, store: Store, clock: StoreClock, telemetry: Telemetry, sink: AlertSink | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._sink = sink

    async def alert(self, name: str, subject: str, message: str, **details: Any) -> None:
        """Raise an alert. The sink gets the sentence; the store keeps its code and values."""
        alert = Alert(
            name=name,
            subject=subject,
            message=dump(message),
            raised_at=self._clock.now(),
            details=details,
        )
        self._telemetry.event("error", message, alert=name, subject=subject, **details)
        try:
            await self._store.insert([alert])
            if self._sink is not None:
                await self._sink(alert.but(message=str(message)))
        except Exception as error:  # noqa: BLE001 - see above
            self._telemetry.event("warning", f"alert {name} could not be delivered: {error}")

    async def judge(self, run: RunContext) -> None:
        """Alert if too many records failed of those that the run took since it was last judged."""
        cycle, fresh = run.cycle, run.counters - run.judged
        run.judged = run.counters.copy()
        exhausted = {stage.exhausted for stage in cycle.stages if stage.exhausted}
        taken = fresh["taken"]
        failed = fresh["retried"] + sum(fresh[state] for state in exhausted)
        rate = cycle.alert_rate
        if rate is None or taken < cycle.alert_min or failed <= rate * taken:
            return
        await self.alert(
            "error_rate",
            cycle.name,
            text(
                "error_rate",
                cycle=cycle.name,
                failed=failed,
                taken=taken,
                share=f"{failed / taken:.0%}",
                limit=f"{rate:.0%}",
            ),
            run=run.id,
            taken=taken,
            failed=failed,
        )
