"""Light text on dark bands of a picture, such as the headers of tables, made dark on light.

Tesseract leaves such text out when it looks for sparse text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, groupby

# A window of the picture: so many pixels wide, and this many rows above and below the middle.
PIECE, REACH = 24, 12
# Mean grey below which a window is part of a band, and below which a piece of a row is dark.
DARK_WINDOW, DARK = 140, 110
# The fewest windows side by side of a band, and the most lighter ones between them.
MIN_WINDOWS, MAX_LIGHT = 6, 2
# Rows of a band at its edges, where windows are half outside.
EDGE = 5
_IS_DARK = bytes(1 if value < DARK else 0 for value in range(256))
# The band becomes white, whatever its grey, and light letters black.
_INVERTED = bytes(
    255 if value < DARK else 255 - (value - DARK) * 255 // (255 - DARK) for value in range(256)
)
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
        inverted = [
            within[number][piece] or (mean < DARK and _beside(within, number, piece))
            for piece, mean in enumerate(means[number])
        ]
        row = marked[y * width : (y + 1) * width]
        for start, end in _runs(inverted):
            left, right = _edges(row, start * PIECE, min(end * PIECE, width))
            place = slice(y * width + left, y * width + right)
            out[place] = pixels[place].translate(_INVERTED)
    return bytes(out)


def _runs(chosen: list[bool]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of chosen pieces."""
    for is_chosen, group in groupby(enumerate(chosen), key=lambda piece: piece[1]):
        if is_chosen:
            pieces = [number for number, _ in group]
            yield pieces[0], pieces[-1] + 1


def _edges(row: bytes, left: int, right: int) -> tuple[int, int]:
    """Return where the dark pixels around a run of pieces begin and end: the page is lighter."""
    before, after = row.rfind(0, max(0, left - PIECE), left), row.find(0, right, right + PIECE)
    if row[left]:
        left = before + 1 if before >= 0 else max(0, left - PIECE)
    else:
        left = max(left, row.find(1, left, right))
    if row[right - 1]:
        right = after if after >= 0 else min(len(row), right + PIECE)
    else:
        right = max(left, row.rfind(1, left, right) + 1)
    return left, right


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
