"""Coordinates of a page as displayed and as read: cropped, rotated, drawn sideways or skewed."""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pypdfium2.raw as c

if TYPE_CHECKING:
    from esclusa.pipelines.documents.local.words import Word

# Steps per page side in the coordinates that pdfium returns.
_STEPS = 1_000_000
# Limits in radians: less is level text, more is text slanted on purpose.
MIN_LEAN, MAX_LEAN = 0.003, 0.18
# The most by which a scanned page is askew.
MAX_PICTURE_LEAN = 0.1

Box = tuple[float, float, float, float]


class PageGeometry:
    """Maps page coordinates to the displayed page, and from there to the reading direction.

    The displayed page is cropped and rotated; its coordinates are fractions of its sides. The
    direction of reading is in points. ``turn`` is the number of quarter turns (clockwise) of the
    text, ``lean`` the angle in radians by which its lines fall to the right, and ``words_lean``
    whether the words are rotated with the lines.
    """

    def __init__(self, page: Any, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.turn, self.lean, self.words_lean = 0, 0.0, False
        x, y = ctypes.c_int(), ctypes.c_int()

        def point(px: float, py: float) -> tuple[float, float]:
            c.FPDF_PageToDevice(page, 0, 0, _STEPS, _STEPS, 0, px, py, x, y)
            return x.value / _STEPS, y.value / _STEPS

        origin, right, up = point(0, 0), point(1000, 0), point(0, 1000)
        self._o = origin
        self._a = ((right[0] - origin[0]) / 1000, (right[1] - origin[1]) / 1000)
        self._b = ((up[0] - origin[0]) / 1000, (up[1] - origin[1]) / 1000)

    def shown_box(self, left: float, bottom: float, right: float, top: float) -> Box:
        (ox, oy), (ax, ay), (bx, by) = self._o, self._a, self._b
        xs = (ox + ax * left + bx * bottom, ox + ax * right + bx * top)
        ys = (oy + ay * left + by * bottom, oy + ay * right + by * top)
        return min(xs), min(ys), max(xs), max(ys)

    def reading_box(self, box: Box) -> Box:
        """Return the box on the page turned so that its lines are level."""
        left, top, right, bottom = (
            box[0] * self.width,
            box[1] * self.height,
            box[2] * self.width,
            box[3] * self.height,
        )
        if self.turn == 1:
            left, top, right, bottom = top, self.width - right, bottom, self.width - left
        elif self.turn == 2:
            left, top, right, bottom = (
                self.width - right,
                self.height - bottom,
                self.width - left,
                self.height - top,
            )
        elif self.turn == 3:
            left, top, right, bottom = self.height - bottom, left, self.height - top, right
        return (
            self._straighten(left, top, right, bottom) if self.lean else (left, top, right, bottom)
        )

    def _straighten(self, left: float, top: float, right: float, bottom: float) -> Box:
        wide, high = (self.width, self.height) if self.turn % 2 == 0 else (self.height, self.width)
        cos, sin = math.cos(self.lean), math.sin(self.lean)
        x, y = (left + right - wide) / 2, (top + bottom - high) / 2
        x, y = x * cos + y * sin + wide / 2, y * cos - x * sin + high / 2
        w, h = right - left, bottom - top
        if self.words_lean:  # the box encloses a rotated word: the word itself is smaller
            sin, whole = abs(sin), cos * cos - sin * sin
            w, h = (w * cos - h * sin) / whole, (h * cos - w * sin) / whole
        return x - w / 2, y - h / 2, x + w / 2, y + h / 2


class TextRun(NamedTuple):
    """Characters without white space between them.

    ``start`` and ``end`` are positions in the text of the page; ``first`` and ``last`` the boxes of
    the first and the last character.
    """

    start: int
    end: int
    first: Box | None
    last: Box | None


def text_direction(runs: list[TextRun], geometry: PageGeometry) -> tuple[int, float]:
    """Return the quarter turns (clockwise) of most words on the displayed page, and their lean.

    Text that was drawn sideways is read sideways, and a skewed page is straightened.
    """
    votes: Counter[int] = Counter()
    leans: dict[int, list[float]] = {0: [], 1: [], 2: [], 3: []}
    for start, end, first, last in runs[:: max(1, len(runs) // 60)]:
        if end - start < 2 or first is None or last is None:
            continue
        dx = ((last[0] + last[2]) - (first[0] + first[2])) * geometry.width
        dy = ((last[1] + last[3]) - (first[1] + first[3])) * geometry.height
        turn = (0 if dx > 0 else 2) if abs(dx) > abs(dy) else (1 if dy > 0 else 3)
        votes[turn] += 1
        leans[turn].append(
            (math.atan2(dy, dx) - turn * math.pi / 2 + math.pi) % (2 * math.pi) - math.pi
        )
    turn = votes.most_common(1)[0][0] if votes else 0
    return turn, _common_lean(leans[turn], alike=MIN_LEAN)


def line_slope(words: list[Word]) -> float:
    """Return by how many radians lines of upright words fall to the right.

    Most neighbouring words give an estimate; the sharpest lines near it decide.
    """
    beside = (
        (a, b)
        for a, b in pairwise(words)
        if 0 < b.x0 - a.x1 < a.height
        and abs(b.middle - a.middle) < 0.5 * a.height
        and abs(a.height - b.height) < 0.1 * a.height
    )
    about = _common_lean(
        [math.atan2(b.middle - a.middle, (b.x0 + b.x1 - a.x0 - a.x1) / 2) for a, b in beside],
        alike=10 * MIN_LEAN,
    )
    if not about:
        return 0.0
    return max(
        (about + step * MIN_LEAN / 4 for step in range(-16, 17)),
        key=lambda lean: _sharpness(words, lean),
    )


def picture_slope(words: list[Word]) -> float:
    """Return by how many radians lines of words in a picture fall to the right.

    Ink is measured in whole pixels, so neighbouring angles score alike: the sharpest lines decide.
    """
    if not words:
        return 0.0
    step = 2 * MIN_LEAN / 3
    steps = round(MAX_PICTURE_LEAN / step)
    coarse = max(
        (step * number for number in range(-steps, steps + 1)),
        key=lambda lean: (_sharpness(words, lean), -abs(lean)),
    )
    return max(
        (coarse + number * step / 8 for number in range(-8, 9)),
        key=lambda lean: (_sharpness(words, lean), -abs(lean)),
    )


def _sharpness(words: list[Word], lean: float) -> int:
    """Return how well the words form lines at this lean: few lines with many words score higher."""
    cos, sin = math.cos(lean), math.sin(lean)
    size = 0.25 * words[len(words) // 2].height
    lines = Counter(
        round((word.middle * cos - (word.x0 + word.x1) / 2 * sin) / size) for word in words
    )
    return sum(count * count for count in lines.values())


def _common_lean(leans: list[float], alike: float) -> float:
    """Return the median lean if most agree with it; 0 if it is level, or slanted on purpose."""
    leans.sort()
    middle = leans[len(leans) // 2] if leans else 0.0
    agree = sum(abs(lean - middle) < alike for lean in leans)
    return middle if MIN_LEAN < abs(middle) < MAX_LEAN and agree > 0.6 * len(leans) else 0.0
