"""Light text on dark bands of a picture, such as the headers of tables, made dark on light.

Tesseract leaves such text out when it looks for sparse text.
"""

from __future__ import annotations

# Pixels of the pieces whose mean is taken, and the fewest dark pieces side by side of a band.
PIECE, MIN_PIECES = 24, 6
# The most light pieces between two dark ones of a band.
MAX_LIGHT = 2
# Grey below which a piece is dark.
DARK = 128
_IS_DARK = bytes(1 if value < DARK else 0 for value in range(256))
_INVERTED = bytes(255 - value for value in range(256))
# A band has such a run of dark pixels between its words.
_RUN = b"\1" * (2 * PIECE)


def without_dark_bands(pixels: bytes, width: int) -> bytes:
    """Return a grey picture whose dark bands are inverted, row by row; rules vanish with them."""
    marked = pixels.translate(_IS_DARK)
    if _RUN not in marked:
        return pixels
    out = bytearray(pixels)
    for start in range(0, len(pixels) - width + 1, width):
        if marked.find(_RUN, start, start + width) < 0:
            continue
        for left, right in _bands(pixels[start : start + width]):
            place = slice(start + left, start + right)
            out[place] = pixels[place].translate(_INVERTED)
    return bytes(out)


def _bands(row: bytes) -> list[tuple[int, int]]:
    """Return where the row is dark for long enough; strokes of letters may interrupt it."""
    dark = [
        left
        for left in range(0, len(row), PIECE)
        if sum(piece := row[left : left + PIECE]) < DARK * len(piece)
    ]
    found: list[tuple[int, int]] = []
    first = 0
    for number, left in enumerate(dark):
        following = dark[number + 1] if number + 1 < len(dark) else None
        if following is not None and following - left <= (MAX_LIGHT + 1) * PIECE:
            continue
        if number + 1 - first >= MIN_PIECES:
            end = min(left + PIECE, len(row))
            found.append((_edge(row, dark[first], -1), _edge(row, end, 1)))
        first = number + 1
    return found


def _edge(row: bytes, at: int, step: int) -> int:
    """Return where the dark pixels at a side of a band end: pieces do not begin where it does."""
    while 0 < at < len(row) and row[at - 1 if step < 0 else at] < DARK:
        at += step
    return at
