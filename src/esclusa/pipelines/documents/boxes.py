"""Boxes of values: fractions of the page as it is shown, from its top left."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

Corners = tuple[float, float, float, float]


def box(x0: float, y0: float, x1: float, y1: float) -> dict[str, float]:
    """Return a box as ``page_refs`` holds it."""
    return {"x0": round(x0, 6), "y0": round(y0, 6), "x1": round(x1, 6), "y1": round(y1, 6)}


def around(points: Iterable[tuple[float, float]]) -> dict[str, float]:
    """Return the box around some points."""
    xs, ys = zip(*points, strict=True)
    return box(min(xs), min(ys), max(xs), max(ys))


def corners(stored: Any) -> Corners | None:
    """Return left, top, right and bottom of a stored box; None if it is not one.

    Extractions of version 0.1 have lists of four numbers.
    """
    if isinstance(stored, dict):
        stored = [stored.get(name) for name in ("x0", "y0", "x1", "y1")]
    if not isinstance(stored, list) or len(stored) != 4:
        return None
    if not all(isinstance(v, int | float) and math.isfinite(v) for v in stored):
        return None
    x0, y0, x1, y1 = (float(v) for v in stored)
    return x0, y0, x1, y1


def page_boxes(page_refs: Any) -> Iterator[tuple[int, Corners]]:
    """Yield page and corners of every box of an extraction."""
    for ref in page_refs if isinstance(page_refs, list) else ():
        if not isinstance(ref, dict) or not isinstance(ref.get("page", 0), int):
            continue
        found = ref.get("boxes")
        for each in found if isinstance(found, list) else ():
            if (place := corners(each)) is not None:
                yield int(ref.get("page", 0)), place
