"""Places on the pages of an answer, turned into the pages as they are shown.

Document AI turns and straightens a page before it reads it; its coordinates count on that image.
``transforms`` are the matrices that it applied. Without them, an image whose sides are swapped was
turned by a quarter, and of a page that the PDF turns by 180 degrees the orientation counts.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esclusa.pipelines.documents.boxes import around

Point = tuple[float, float]
Matrix = tuple[float, float, float, float, float, float]

_IDENTITY: Matrix = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
# By degrees clockwise, where a point of a page is after a turn.
_TURNS: Mapping[int, Callable[[float, float], Point]] = {
    0: lambda x, y: (x, y),
    90: lambda x, y: (1 - y, x),
    180: lambda x, y: (1 - x, 1 - y),
    270: lambda x, y: (y, 1 - x),
}
# Degrees clockwise from upright text to text of this orientation.
_ORIENTATIONS = {"PAGE_UP": 0, "PAGE_RIGHT": 90, "PAGE_DOWN": 180, "PAGE_LEFT": 270}
# OpenCV's types of a matrix element: 32 and 64 bits, floating point.
_ELEMENTS = {5: "f", 6: "d"}


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page as it is shown: its number (from 0), its size, and its rotation in the PDF."""

    number: int
    width: float = 0.0
    height: float = 0.0
    rotation: int = 0


class PageFrame:
    """Turns places of one page of an answer into places of the page as it is shown."""

    def __init__(self, page: Mapping[str, Any], shown: ShownPage) -> None:
        size = page.get("dimension") or {}
        self._width = float(size.get("width") or 0.0)
        self._height = float(size.get("height") or 0.0)
        self.number = shown.number
        self._turn: Callable[[float, float], Point] | None = self._find_turn(page, shown)

    def box(self, poly: Mapping[str, Any]) -> dict[str, float] | None:
        """Return the box around a polygon; None if there is none, or its place is unknown."""
        points = self.points(poly)
        return around(points) if points else None

    def points(self, poly: Mapping[str, Any]) -> list[Point]:
        """Return the corners of a polygon; empty if it has none, or its place is unknown."""
        found = [(_number(v, "x"), _number(v, "y")) for v in poly.get("normalizedVertices") or ()]
        if not found and self._width and self._height:
            found = [
                (_number(v, "x") / self._width, _number(v, "y") / self._height)
                for v in poly.get("vertices") or ()
            ]
        return [] if self._turn is None else [_within(*self._turn(x, y)) for x, y in found]

    def _find_turn(
        self, page: Mapping[str, Any], shown: ShownPage
    ) -> Callable[[float, float], Point] | None:
        matrix = _applied(page.get("transforms") or ())
        if matrix != _IDENTITY and self._width and self._height:
            return _undo(matrix, self._width, self._height)
        known = self._width and self._height and shown.width and shown.height
        orientation = str((page.get("layout") or {}).get("orientation") or "")
        degrees = _ORIENTATIONS.get(orientation)
        if shown.rotation == 180:
            # The sides do not show whether the rotation was applied. A page is rotated so that
            # its text is upright: upside down, it was not.
            return _TURNS[degrees] if degrees in (0, 180) else None
        if not known or (self._width > self._height) == (shown.width > shown.height):
            return _TURNS[0]
        if shown.rotation in (90, 270):
            return _TURNS[shown.rotation]
        return _TURNS[degrees] if degrees in (90, 270) else None


def _number(vertex: Any, name: str) -> float:
    value = vertex.get(name) if isinstance(vertex, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _within(x: float, y: float) -> Point:
    return min(1.0, max(0.0, x)), min(1.0, max(0.0, y))


def _applied(transforms: Sequence[Mapping[str, Any]]) -> Matrix:
    """Return the product of the matrices, in the order in which they were applied."""
    whole = _IDENTITY
    for each in transforms:
        matrix = _matrix(each)
        if matrix is not None:
            whole = _product(matrix, whole)
    return whole


def _matrix(given: Mapping[str, Any]) -> Matrix | None:
    rows, cols = int(given.get("rows") or 0), int(given.get("cols") or 0)
    element = _ELEMENTS.get(int(given.get("type") or 0), "d")
    try:
        data = base64.b64decode(given.get("data") or "", validate=True)
        values = struct.unpack(f"<{rows * cols}{element}", data)
    except (binascii.Error, struct.error):
        return None
    if cols != 3 or rows not in (2, 3):
        return None
    a, b, c, d, e, f = values[:6]
    return a, b, c, d, e, f


def _product(second: Matrix, first: Matrix) -> Matrix:
    a, b, c, d, e, f = second
    g, h, i, j, k, m = first
    return (
        a * g + b * j,
        a * h + b * k,
        a * i + b * m + c,
        d * g + e * j,
        d * h + e * k,
        (d * i + e * m + f),
    )


def _undo(matrix: Matrix, width: float, height: float) -> Callable[[float, float], Point] | None:
    """Return the way from the image, by fractions, back to the page before the transforms."""
    a, b, c, d, e, f = matrix
    scale = a * e - b * d
    if abs(scale) < 1e-9:
        return None
    size = abs(scale) ** 0.5
    quarter = abs(b) > abs(a)
    before = (height, width) if quarter else (width, height)

    def undo(x: float, y: float) -> Point:
        u, v = x * width - c, y * height - f
        return (
            (e * u - b * v) / scale * size / before[0],
            (a * v - d * u) / scale * size / before[1],
        )

    return undo
