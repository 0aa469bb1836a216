"""Where a value stands: its page, its box and its span in the text."""

from __future__ import annotations

from typing import Any

from esclusa.pipelines.documents.boxes import box
from esclusa.pipelines.documents.local.words import Word


def words_of_part(
    words: list[Word], start: int, end: int
) -> tuple[list[Word], tuple[int, int] | None]:
    """Return the words of a cell that hold a part of its text; for one word, also the part."""
    if len(words) == 1:
        return words, (start, end)
    kept, at = [], 0
    for word in words:
        if at < end and start < at + len(word.text):
            kept.append(word)
        at += len(word.text) + 1
    return kept, None


def location(words: list[Word], part: tuple[int, int] | None = None) -> dict[str, Any]:
    """Return the page and box of these words, or of a part of their text, and the span."""
    boxes = [w.box for w in words]
    x0, y0, x1, y1 = (
        min(b[0] for b in boxes),
        min(b[1] for b in boxes),
        max(b[2] for b in boxes),
        max(b[3] for b in boxes),
    )
    start, end = words[0].start, words[-1].end
    if part is not None:  # a sign before the number or a mark behind it is not part of the value
        length = len(words[0].text)
        one = (x1 - x0) / length
        x0, x1 = x0 + one * part[0], x1 - one * (length - part[1])
        # A joined word has other characters between its parts in the text.
        if length == end - start:
            start, end = start + part[0], start + part[1]
    return {
        "page_refs": [{"page": words[0].page, "boxes": [box(x0, y0, x1, y1)]}],
        "text_spans": [{"start": start, "end": end}],
    }
