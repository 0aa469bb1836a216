"""Pages about time: charts of stages and pipelines, and how long records stay in states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Request, Response

from esclusa.engine.series import OVER, Over
from esclusa.web.console import catalog, render, zones
from esclusa.web.console.catalog import gettext as _
from esclusa.web.console.charts import Axis, Layer, Unit, chart
from esclusa.web.console.context import ConsoleContext

# Writes a value of a scale.
Words: TypeAlias = Callable[[float], str]

# Seconds for which the numbers of a chart are kept.
KEPT = 5.0


def add_routes(api: APIRouter, console: ConsoleContext) -> None:
    """Add the routes of this module."""

    @api.get("/console/charts")
    async def charts(request: Request, over: Over = "day", of: str = "") -> Response:
        pipelines = console.read_model.pipelines()
        is_pipeline = any(plan.name == of for plan in pipelines)
        about = {"pipeline": of} if is_pipeline else {"stage": of or None}
        whole, stages = await console.cache.get(
            f"charts {over} {of}", KEPT, lambda: console.read_model.charts(over, **about)
        )
        return await console.page(
            request,
            "charts.html",
            here="stages",
            of=of,
            over=over,
            spans=[(each, span_name(each)) for each in OVER],
            subjects=[(plan.name, [stage.name for stage in plan.stages]) for plan in pipelines],
            is_stage=bool(of) and not is_pipeline,
            series=whole,
            charts=drawn(whole),
            steps=steps(whole),
            stages=stages,
            tables=sorted({row["table"] for row in stages}),
            zone=zones.name(),
            period=period(whole),
        )

    @api.get("/console/times/{table}")
    async def times(request: Request, table: str) -> Response:
        kind = console.read_model.lookup(table)
        found = await console.cache.get(
            f"times {table}", KEPT, lambda: console.read_model.time_in_state(table)
        )
        return await console.page(
            request,
            "times.html",
            here="records",
            table=table,
            found=found,
            roles=console.read_model.roles(kind),
            tables=[k.table for k in console.read_model.declared() if k.history],
        )


def span_name(over: Over) -> str:
    """A span in the language of the page."""
    return {
        "hour": _("1 hour"),
        "day": _("1 day"),
        "week": _("1 week"),
        "fortnight": _("2 weeks"),
    }[over]


def period(series: dict[str, Any]) -> str:
    """From when to when the charts are."""
    axis = _axis(series)
    return f"{axis.at(0):%Y-%m-%d %H:%M} – {axis.at(axis.points):%Y-%m-%d %H:%M}"


def _axis(series: dict[str, Any]) -> Axis:
    return Axis(series["first"], series["step"], series["points"])


def drawn(series: dict[str, Any]) -> list[dict[str, Any]]:
    """Each chart with its title and the names of its lines."""
    axis, before = _axis(series), series["previous"]
    total = series["total"]
    made = []

    def add(
        id: str, title: str, summary: str, layers: Sequence[Layer], words: Words, unit: Unit
    ) -> None:
        shown = [layer for layer in layers if any(v is not None for v in layer.values)]
        description = f"{summary} {period(series)} {zones.name()}"
        svg = chart(id, title, description, axis, shown, words, unit)
        made.append({"id": id, "title": title, "summary": summary, "layers": shown, "svg": svg})

    add(
        "throughput",
        _("Moved per minute"),
        _("{n} records moved on.", n=catalog.number(total["moved"])),
        [
            Layer("bars", "good", _("moved"), _per_minute(series, series["moved"])),
            *(
                [Layer("line", "before", _("span before"), _per_minute(series, before["moved"]))]
                if before
                else []
            ),
        ],
        _rate,
        "rate",
    )
    label = catalog.ngettext("failed", "failed", 2)
    add(
        "errors",
        _("Failed attempts per minute"),
        _(
            "{n} attempts failed, {share} of those that ended.",
            n=catalog.number(total["failed"]),
            share=render.percent(total["error_share"]),
        ),
        [
            Layer("bars", "bad", label, _per_minute(series, _failed(series))),
            *(
                [Layer("line", "before", _("span before"), _per_minute(series, _failed(before)))]
                if before
                else []
            ),
        ],
        _rate,
        "rate",
    )
    known, not_yet = total["due"] is not None, _("Nothing was read yet.")
    add(
        "backlog",
        _("Due records"),
        _("At most {n} were due.", n=catalog.number(total["due"])) if known else not_yet,
        [
            Layer("area", "due", _("due"), series["due"]),
            *([Layer("line", "before", _("span before"), before["due"])] if before else []),
        ],
        lambda v: catalog.number(round(v)),
        "count",
    )
    add(
        "age",
        _("Age of the oldest due record"),
        _("At most {time}.", time=render.duration(total["oldest"])) if known else not_yet,
        [
            Layer("area", "age", _("oldest"), series["oldest"]),
            *([Layer("line", "before", _("span before"), before["oldest"])] if before else []),
        ],
        render.duration,
        "seconds",
    )
    add(
        "latency",
        _("Handler times"),
        _(
            "Half took at most {p50}, 99 % at most {p99}.",
            p50=render.duration(total["p50"]),
            p99=render.duration(total["p99"]),
        ),
        [
            Layer("line", "p99", "p99", series["p99"]),
            Layer("line", "p90", "p90", series["p90"]),
            Layer("line", "p50", "p50", series["p50"]),
        ],
        render.duration,
        "seconds",
    )
    return made


def steps(series: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table behind the charts, the newest first."""
    axis, failed = _axis(series), _failed(series)
    return [
        {
            "at": f"{axis.at(place):%Y-%m-%d %H:%M}",
            "moved": series["moved"][place],
            "failed": failed[place],
            "due": series["due"][place],
            "oldest": series["oldest"][place],
            "p50": series["p50"][place],
            "p90": series["p90"][place],
            "p99": series["p99"][place],
        }
        for place in reversed(range(axis.points))
    ]


def _failed(series: dict[str, Any]) -> list[int]:
    return [a + b for a, b in zip(series["retried"], series["exhausted"], strict=True)]


def _per_minute(series: dict[str, Any], counts: Sequence[int]) -> list[float]:
    minutes = series["step"] / 60
    return [count / minutes for count in counts]


def _rate(value: float) -> str:
    """A rate, with a digit after the point if it is small."""
    if value >= 100 or value == round(value):
        return catalog.number(round(value))
    return catalog.number(round(value, 1)) if value >= 0.05 else "< 0.1"


async def budget_use(console: ConsoleContext, budget: dict[str, Any]) -> dict[str, Any] | None:
    """The use of a budget over the month, as a chart; None if it is not kept.

    ``budget`` is an answer of the read model: the window that lasts still is as the page shows it.
    """
    name = budget["budget"]
    found = await console.cache.get(
        f"budget use {name}", KEPT, lambda: console.read_model.budget_use(name)
    )
    items = [dict(item) for item in found["items"]]
    if not items:
        return None
    for window in budget["windows"]:
        if window["per"] == found["per"]:
            items[-1] |= {each: window[each] for each in ("used", "limit", "spenders")}
    zone, is_day = ZoneInfo(found["timezone"]), found["per"] == "day"
    form = "%Y-%m-%d" if is_day else "%Y-%m"
    names = tuple(format(item["start"].astimezone(zone), form) for item in items)
    total = sum(item["used"] for item in items)
    limits = [item["limit"] for item in items]
    title = _("Used per day") if is_day else _("Used per month")
    summary = _("{n} since {day}.", n=catalog.number(total), day=names[0])
    layers = [Layer("bars", "good", _("used"), [item["used"] for item in items])]
    if any(limit is not None for limit in limits):
        layers.append(Layer("line", "before", _("limit"), limits))
    axis = Axis(items[0]["start"], 86_400, len(items), names)
    svg = chart(
        f"use-{name}", title, summary, axis, layers, lambda v: catalog.number(round(v)), "count"
    )
    rows = [item | {"name": n} for n, item in zip(names, items, strict=True) if item["used"]]
    return {
        "budget": name,
        "zone": found["timezone"],
        "chart": {"id": f"use-{name}", "title": title, "summary": summary, "layers": layers}
        | {"svg": svg},
        "rows": rows[::-1],
    }
