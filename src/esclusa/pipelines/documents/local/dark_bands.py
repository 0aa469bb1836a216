"""Light text on dark bands of a picture, such as the headers of tables, made dark on light.

Tesseract leaves such text out when it looks for sparse text.
"""

from __future__ import annotations

from itertools import accumulate

# A window of the picture: so many pixels wide, and this many rows above and below the middle.
PIECE, REACH = 24, 12
# Mean grey below which a window is part of a band, and below which a piece of a row is dark.
DARK_WINDOW, DARK = 140, 110
# The fewest windows side by side of a band, and the most lighter ones between them.
MIN_WINDOWS, MAX_LIGHT = 6, 2
# Rows of a band at its edges, where windows are half outside.
EDGE = 5
_IS_DARK = bytes(1 if value < DARK else 0 for value in range(256))
_INVERTED = bytes(255 - value for value in range(256))
# A band has such a run of dark pixels between its words.
_RUN = b"\1" * (MIN_WINDOWS * PIECE)


def without_dark_bands(pixels: bytes, width: int) -> bytes:
    """Return a grey picture whose dark bands are inverted; rules and letters stay."""
    marked = pixels.translate(_IS_DARK)
    height = len(pixels) // width
    near = [y for y in range(height) if marked.find(_RUN, y * width, (y + 1) * width) >= 0]
    if len(near) < REACH:
        return pixels
    first, end = max(0, near[0] - 2 * REACH), min(height, near[-1] + 2 * REACH)
    rows = range(first, end)
    out = bytearray(pixels)
    means = [
        [sum(pixels[at : at + PIECE]) / PIECE for at in range(y * width, (y + 1) * width, PIECE)]
        for y in rows
    ]
    within = _bands(means)
    for number, y in enumerate(rows):
        for piece, mean in enumerate(means[number]):
            if within[number][piece] or (mean < DARK and _beside(within, number, piece)):
                start = y * width + piece * PIECE
                place = slice(start, min(start + PIECE, (y + 1) * width))
                out[place] = pixels[place].translate(_INVERTED)
    return bytes(out)


def _bands(means: list[list[float]]) -> list[list[bool]]:
    """Return for each piece of each row whether it is in a band, by the mean of its window."""
    columns = [_window_means([row[piece] for row in means]) for piece in range(len(means[0]))]
    return [_long_runs([column[y] < DARK_WINDOW for column in columns]) for y in range(len(means))]


def _window_means(values: list[float]) -> list[float]:
    sums = [0.0, *accumulate(values)]
    count = len(values)
    return [
        (sums[min(count, y + REACH + 1)] - sums[max(0, y - REACH)])
        / (min(count, y + REACH + 1) - max(0, y - REACH))
        for y in range(count)
    ]


def _long_runs(dark: list[bool]) -> list[bool]:
    """Return which pieces of a row are in a run that is long enough; short gaps belong to it."""
    out, start, last = [False] * len(dark), None, -1
    for piece, is_dark in enumerate([*dark, *[False] * (MAX_LIGHT + 1)]):
        if is_dark:
            start = piece if start is None else start
            last = piece
        elif start is not None and piece - last > MAX_LIGHT:
            if last + 1 - start >= MIN_WINDOWS:
                out[start : last + 1] = [True] * (last + 1 - start)
            start = None
    return out


def _beside(within: list[list[bool]], row: int, piece: int) -> bool:
    """Return whether a band is a few rows above or below."""
    near = range(max(0, row - EDGE), min(len(within), row + EDGE + 1))
    return any(within[y][piece] for y in near)
