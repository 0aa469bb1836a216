"""A page as it is shown, and as it is read: cropped, rotated, drawn sideways or laid down askew."""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pypdfium2.raw as c

if TYPE_CHECKING:
    from esclusa.pipelines.documents.local.words import Word

_FINE = 1_000_000
"""Steps per page side in which pdfium says where a point is shown."""
LEVEL, LEANING = 0.003, 0.18
"""Radians from which on text is not level, and up to which it is only askew."""

Box = tuple[float, float, float, float]


class Shown:
    """From the page's own coordinates to the page as it is shown, cropped and rotated, in fractions of its sides; and from there to points
    in the direction of reading. ``turn`` are the quarter turns (clockwise) of its text, ``lean`` is how far (in radians) its lines fall
    to the right, ``leaning`` whether their words lean with them."""

    def __init__(self, page: Any, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.turn, self.lean, self.leaning = 0, 0.0, False
        x, y = ctypes.c_int(), ctypes.c_int()

        def point(px: float, py: float) -> tuple[float, float]:
            c.FPDF_PageToDevice(page, 0, 0, _FINE, _FINE, 0, px, py, x, y)
            return x.value / _FINE, y.value / _FINE

        origin, right, up = point(0, 0), point(1000, 0), point(0, 1000)
        self._o = origin
        self._a = ((right[0] - origin[0]) / 1000, (right[1] - origin[1]) / 1000)
        self._b = ((up[0] - origin[0]) / 1000, (up[1] - origin[1]) / 1000)

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        (ox, oy), (ax, ay), (bx, by) = self._o, self._a, self._b
        xs = (ox + ax * left + bx * bottom, ox + ax * right + bx * top)
        ys = (oy + ay * left + by * bottom, oy + ay * right + by * top)
        return min(xs), min(ys), max(xs), max(ys)

    def read(self, box: Box) -> Box:
        """A box as it stands when the page is held so that its lines are level."""
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
        return self._level(left, top, right, bottom) if self.lean else (left, top, right, bottom)

    def _level(self, left: float, top: float, right: float, bottom: float) -> Box:
        wide, high = (self.width, self.height) if self.turn % 2 == 0 else (self.height, self.width)
        cos, sin = math.cos(self.lean), math.sin(self.lean)
        x, y = (left + right - wide) / 2, (top + bottom - high) / 2
        x, y = x * cos + y * sin + wide / 2, y * cos - x * sin + high / 2
        w, h = right - left, bottom - top
        if self.leaning:  # the box is around a word that leans: the word itself is smaller
            sin, whole = abs(sin), cos * cos - sin * sin
            w, h = (w * cos - h * sin) / whole, (h * cos - w * sin) / whole
        return x - w / 2, y - h / 2, x + w / 2, y + h / 2


class Run(NamedTuple):
    """Characters without white space between them: where they stand in the page's text, and the boxes of the first and the last."""

    start: int
    end: int
    first: Box | None
    last: Box | None


def turn_of(runs: list[Run], shown: Shown) -> tuple[int, float]:
    """Quarter turns (clockwise) of most words against the page as shown, and how far they lean from that: text that was drawn sideways is
    read sideways, and a page that was laid down askew is straightened."""
    votes: Counter[int] = Counter()
    leans: dict[int, list[float]] = {0: [], 1: [], 2: [], 3: []}
    for start, end, first, last in runs[:: max(1, len(runs) // 60)]:
        if end - start < 2 or first is None or last is None:
            continue
        dx = ((last[0] + last[2]) - (first[0] + first[2])) * shown.width
        dy = ((last[1] + last[3]) - (first[1] + first[3])) * shown.height
        turn = (0 if dx > 0 else 2) if abs(dx) > abs(dy) else (1 if dy > 0 else 3)
        votes[turn] += 1
        leans[turn].append(
            (math.atan2(dy, dx) - turn * math.pi / 2 + math.pi) % (2 * math.pi) - math.pi
        )
    turn = votes.most_common(1)[0][0] if votes else 0
    return turn, _common(leans[turn], alike=LEVEL)


def drift_of(words: list[Word]) -> float:
    """How far lines of upright words fall to the right: about as most neighbours say, and exactly so that the lines are sharpest."""
    beside = (
        (a, b)
        for a, b in pairwise(words)
        if 0 < b.x0 - a.x1 < a.height
        and abs(b.middle - a.middle) < 0.5 * a.height
        and abs(a.height - b.height) < 0.1 * a.height
    )
    about = _common(
        [math.atan2(b.middle - a.middle, (b.x0 + b.x1 - a.x0 - a.x1) / 2) for a, b in beside],
        alike=10 * LEVEL,
    )
    if not about:
        return 0.0
    return max(
        (about + step * LEVEL / 4 for step in range(-16, 17)),
        key=lambda lean: _sharpness(words, lean),
    )


def _sharpness(words: list[Word], lean: float) -> int:
    """How much words stand in lines that fall so far: few lines with many words each are sharper than many with few."""
    cos, sin = math.cos(lean), math.sin(lean)
    size = 0.25 * words[0].height
    lines = Counter(
        round((word.middle * cos - (word.x0 + word.x1) / 2 * sin) / size) for word in words
    )
    return sum(count * count for count in lines.values())


def _common(leans: list[float], alike: float) -> float:
    """The lean in the middle, if most are like it; 0 for what is level, and for what leans so much that it is meant to."""
    leans.sort()
    middle = leans[len(leans) // 2] if leans else 0.0
    agree = sum(abs(lean - middle) < alike for lean in leans)
    return middle if LEVEL < abs(middle) < LEANING and agree > 0.6 * len(leans) else 0.0
