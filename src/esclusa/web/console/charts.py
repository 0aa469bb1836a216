"""Charts as SVG, drawn on the server: bars and lines with axes, a scale and a text per step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from markupsafe import Markup, escape

from esclusa.model.value import value
from esclusa.web.console import zones

# Units of the drawing; the page scales it to the room that it has.
WIDTH, HEIGHT = 600, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 8, 12, 30
_BASE: Final = HEIGHT - _BOTTOM
# The most marks of the scale, and how far apart those of times may be.
_MARKS: Final = 4
_DAY: Final = 86_400
_TIMES: Final = (20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, _DAY)

Value = float | None
# What the values of a chart are; its scale is round in it.
Unit = Literal["count", "rate", "seconds"]


@value
class Layer:
    """One series of a chart. ``style`` is its class in the style sheet, ``label`` its name."""

    kind: Literal["bars", "line", "area"]
    style: str
    label: str
    values: Sequence[Value]


@value
class Axis:
    """The steps of a chart: when the first begins, and how many seconds each lasts.

    ``names``: of days and months, whose lengths differ.
    """

    first: datetime
    step: int
    points: int
    names: tuple[str, ...] = ()

    def at(self, place: int) -> datetime:
        """When a step begins, in the zone of the page."""
        return zones.local(self.first + timedelta(seconds=self.step * place))

    def marks(self) -> list[tuple[int, str]]:
        """The steps that are named below the axis."""
        if self.names:
            return [(n, name[-5:]) for n, name in enumerate(self.names) if n % 5 == 0]
        hours = self.step * self.points / 3600
        form = "%m-%d" if hours > 24 else "%H:%M"
        parts = [self._part(self.at(place), hours) for place in range(self.points)]
        return [
            (place, format(self.at(place), form))
            for place in range(1, self.points)
            if parts[place] != parts[place - 1]
        ]

    @staticmethod
    def _part(at: datetime, hours: float) -> int:
        """The part of the time to which a step belongs: a new part has a mark."""
        if hours > 24:
            return at.toordinal() // (1 if hours <= 168 else 2)
        if hours > 1:
            return at.toordinal() * 6 + at.hour // 4
        return at.hour * 6 + at.minute // 10

    def words(self, place: int) -> str:
        """The step in words: its date and the time when it begins and ends."""
        if self.names:
            return self.names[place]
        begin, end = self.at(place), self.at(place + 1)
        return f"{begin:%Y-%m-%d %H:%M}–{end:%H:%M}"


def scale(largest: float, unit: Unit = "rate") -> list[float]:
    """Round marks from 0 to at least the largest value, at most ``_MARKS`` besides 0.

    Those of counts are whole numbers, those of seconds round in minutes, hours and days.
    """
    if largest <= 0:
        return [0.0, 1.0]
    if unit == "seconds" and largest > 60:
        days = math.ceil(largest / _DAY / _MARKS) * _DAY
        part = next((s for s in _TIMES if s * _MARKS >= largest), days)
        return [float(part * n) for n in range(math.ceil(largest / part) + 1)]
    power = 10.0 ** math.floor(math.log10(largest / _MARKS))
    parts = [s * power for s in (1, 2, 2.5, 5, 10)]
    if unit == "count":
        parts = [s for s in (1, *parts) if s == round(s)]
    step = next(s for s in parts if s * _MARKS >= largest * 0.9999)
    return [step * n for n in range(math.ceil(largest / step - 0.0001) + 1)]


def chart(
    id: str,
    title: str,
    description: str,
    axis: Axis,
    layers: Sequence[Layer],
    words: Callable[[float], str],
    unit: Unit,
) -> Markup:
    """A chart with its title and description; ``words`` writes a value of its scale.

    Each step has a text with all values, which is its tooltip and what the script reads out.
    """
    largest = max((v for layer in layers for v in layer.values if v is not None), default=0.0)
    marks = scale(largest, unit)
    top = marks[-1]
    wide = (WIDTH - _LEFT - _RIGHT) / axis.points
    head = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0"'
        f' aria-labelledby="{id}-title {id}-desc" data-chart="{id}">'
        f'<title id="{id}-title">{escape(title)}</title>'
        f'<desc id="{id}-desc">{escape(description)}</desc>'
    )
    parts = [head]
    for mark in marks:
        y = _y(mark, top)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
            f'<text class="scale" x="{_LEFT - 7}" y="{float(y) + 4}">{escape(words(mark))}</text>'
        )
    for number, (place, name) in enumerate(axis.marks()):
        x, odd = f"{_LEFT + place * wide:.1f}", " odd" if number % 2 else ""
        parts.append(
            f'<line class="mark" x1="{x}" x2="{x}" y1="{_BASE}" y2="{_BASE + 5}"/>'
            f'<text class="time{odd}" x="{x}" y="{_BASE + 19}">{name}</text>'
        )
    parts += [_drawn(layer, top, wide) for layer in layers]
    parts += _texts(axis, layers, wide, words)
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and escaped texts


def _y(amount: float, top: float) -> str:
    return f"{_BASE - (_BASE - _TOP) * amount / top:.1f}"


def _drawn(layer: Layer, top: float, wide: float) -> str:
    if layer.kind == "bars":
        bars = []
        for place, amount in enumerate(layer.values):
            if amount:
                y = float(_y(amount, top))
                tall = max(1.0, _BASE - y)
                bars.append(
                    f"M{_LEFT + place * wide:.1f},{_BASE}v{-tall:.1f}"
                    f"h{max(0.7, wide * 0.86):.1f}v{tall:.1f}z"
                )
        return f'<path class="{layer.style}" d="{"".join(bars)}"/>' if bars else ""
    paths = []
    for run in _runs(layer.values):
        points = [(f"{_LEFT + (place + 0.5) * wide:.1f}", _y(v, top)) for place, v in run]
        if len(points) == 1:  # a line of one point would not be seen
            points.append((f"{float(points[0][0]) + max(2.0, wide / 2):.1f}", points[0][1]))
        line = "L".join(f"{x},{y}" for x, y in points)
        if layer.kind == "area":
            area = f"M{points[0][0]},{_BASE}L{line}L{points[-1][0]},{_BASE}z"
            paths.append(f'<path class="{layer.style} ground" d="{area}"/>')
        paths.append(f'<path class="{layer.style} stroke" d="M{line}"/>')
    return "".join(paths)


def _runs(values: Sequence[Value]) -> Iterable[list[tuple[int, float]]]:
    """The stretches of values; up to four missing ones are bridged: samples may be rarer."""
    run: list[tuple[int, float]] = []
    for place, v in enumerate(values):
        if v is None:
            continue
        if run and place - run[-1][0] > 5:
            yield run
            run = []
        run.append((place, v))
    if run:
        yield run


def _texts(
    axis: Axis, layers: Sequence[Layer], wide: float, words: Callable[[float], str]
) -> Iterable[str]:
    """An invisible column for each step, with its values as a text."""
    named = [(str(escape(layer.label)), layer.values) for layer in layers]
    for place in range(axis.points):
        known = [(label, v) for label, values in named if (v := values[place]) is not None]
        text = " · ".join(f"{label} {escape(words(v))}" for label, v in known)
        yield (
            f'<rect class="hit" x="{_LEFT + place * wide:.1f}" y="{_TOP}" width="{wide:.2f}"'
            f' height="{_BASE - _TOP}"><title>{axis.words(place)}'
            f"{f': {text}' if text else ''}</title></rect>"
        )
