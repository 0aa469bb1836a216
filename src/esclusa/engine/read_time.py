"""The read model of time: series of stages and pipelines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from esclusa.engine.read_history import HistoryReader
from esclusa.engine.registry import SYSTEM
from esclusa.engine.series import Over, SeriesReader, series_shape, span_of, span_total, together
from esclusa.model.budget import Window
from esclusa.model.errors import NotFound
from esclusa.model.names import unknown
from esclusa.model.stage import Stage


class TimeReader(HistoryReader):
    """What happened over hours, days and weeks."""

    async def series(
        self,
        over: Over,
        *,
        by: Literal["stage", "pipeline", "all"] = "stage",
        stage: str | None = None,
        pipeline: str | None = None,
        compare: bool = False,
        system: bool = False,
    ) -> list[dict[str, Any]]:
        """Throughput, errors, backlog and latency in equal steps, for each stage or pipeline.

        ``compare``: with the same of the span before, as ``previous``; null for a fortnight, which
        is as long as samples are kept. Raises NotFound for an unknown stage or pipeline.
        """
        now = self.now()
        span = span_of(over, now)
        stages = self._stages_of(stage, pipeline, system=system)
        names = [each.name for each in stages]
        reader = SeriesReader(self._records)
        current = await reader.read(span, names, now)
        before = None
        if compare and span.previous is not None:
            before = await reader.read(span.previous, names, now)
        answer = []
        for (pipeline_name, stage_name), members in self._groups(stages, by).items():
            tallies = together(current[name] for name in members)
            shape: dict[str, Any] = {"stage": stage_name, "pipeline": pipeline_name, "over": over}
            shape |= series_shape(span, tallies)
            if compare:
                shape["previous"] = None
                if before is not None and span.previous is not None:
                    tallies = together(before[name] for name in members)
                    shape["previous"] = series_shape(span.previous, tallies)
            answer.append(shape)
        return answer

    async def charts(
        self, over: Over, *, stage: str | None = None, pipeline: str | None = None
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The series of all these stages together, and the numbers of each; both with ``previous``.

        Each row has ``stage``, ``pipeline``, ``total``, ``previous`` (a total, or None) and
        ``moved``.
        """
        now = self.now()
        span = span_of(over, now)
        stages = self._stages_of(stage, pipeline)
        names = [each.name for each in stages]
        reader = SeriesReader(self._records)
        current = await reader.read(span, names, now)
        back = span.previous
        before = None if back is None else await reader.read(back, names, now)
        whole = series_shape(span, together(current.values())) | {"over": over, "previous": None}
        if back is not None and before is not None:
            whole["previous"] = series_shape(back, together(before.values()))
        rows = [
            {
                "stage": each.name,
                "pipeline": self.registry.plan_of(each.name).name,
                "table": each.kind.table,
                "total": span_total(current[each.name]),
                "previous": None if before is None else span_total(before[each.name]),
                "moved": [0 if t is None else t.results["moved"] for t in current[each.name]],
                "failed": [0 if t is None else t.failed for t in current[each.name]],
            }
            for each in stages
        ]
        return whole, rows

    async def budget_use(self, name: str) -> dict[str, Any]:
        """What was used of a budget on each of the last 31 days, or in each of 12 months.

        A budget with windows of a day or an hour has days, one with a window of a month months.
        Shorter windows and rates are not kept: ``per`` is then null. Raises NotFound.
        """
        budget = self.registry.budget(name)
        windows = {w.per: w for w in budget.windows if isinstance(w, Window)}
        window = windows.get("day") or windows.get("hour") or windows.get("month")
        if window is None:
            return {"budget": name, "per": None, "timezone": None, "items": []}
        now = self.now()
        part = Window("month" if window.per == "month" else "day", window.limit, window.timezone)
        items: dict[datetime, dict[str, Any]] = {
            start: {"start": start, "used": 0, "limit": None, "spenders": Counter[str]()}
            for start in starts_before(part, now, 12 if part.per == "month" else 31)
        }
        first = min(items)
        starts = [s for s in starts_before(window, now, 31 * 25) if s >= first]
        for past in await self._store.past_usage(budget, window, starts):
            item = items[part.start(past.start)]
            item["used"] += past.used
            item["spenders"].update(past.spenders)
            item["limit"] = past.limit if window.per == part.per else None
        return {
            "budget": name,
            "per": part.per,
            "timezone": window.timezone,
            "items": [item | {"spenders": dict(item["spenders"])} for item in items.values()],
        }

    def _stages_of(
        self, stage: str | None, pipeline: str | None, *, system: bool = False
    ) -> list[Stage]:
        """The stage or stages with this name, of this pipeline, or all. Raises NotFound."""
        if pipeline is not None and pipeline not in (known := [p.name for p in self.pipelines()]):
            raise NotFound(unknown("pipeline_not_found", pipeline, known, name=pipeline))
        if stage is not None:
            if (found := self.registry.stages.get(stage)) is None:
                known = self.registry.own_stages
                raise NotFound(unknown("stage_not_declared", stage, known, name=stage))
            return [found]
        return [
            s
            for s in self.registry.all_stages
            if (system or not s.name.startswith(SYSTEM))
            and pipeline in (None, self.registry.plan_of(s.name).name)
        ]

    def _groups(
        self, stages: Sequence[Stage], by: Literal["stage", "pipeline", "all"]
    ) -> dict[tuple[str | None, str | None], list[str]]:
        """The stages of each series, by the pipeline and the stage that it is about."""
        groups: dict[tuple[str | None, str | None], list[str]] = {}
        for stage in stages:
            pipeline = self.registry.plan_of(stage.name).name
            about = {"stage": (pipeline, stage.name), "pipeline": (pipeline, None)}
            groups.setdefault(about.get(by, (None, None)), []).append(stage.name)
        return groups


def starts_before(window: Window, now: datetime, count: int) -> list[datetime]:
    """The starts of the last windows, the present one included, oldest first."""
    starts = [window.start(now)]
    while len(starts) < count:
        starts.append(window.start(starts[-1] - timedelta(seconds=1)))
    return starts[::-1]
