"""Words of pages that are pictures, from the answers of an OCR processor of Document AI.

They are plain values, as the process that reads PDFs takes them: of each page its words (text,
left, top, right, bottom, confidence, line) in fractions of the upright picture, and the quarter
turns of its text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from esclusa.pipelines.documents.answers.entity_tree import confidence_of
from esclusa.pipelines.documents.answers.page_frames import PageFrame, Point, ShownPage
from esclusa.pipelines.documents.boxes import around

RecognisedPage = dict[str, Any]


def recognised_pages(answers: Sequence[Mapping[str, Any]]) -> dict[int, RecognisedPage]:
    """Return the words of every page of these answers, by its number (from 0)."""
    found: dict[int, RecognisedPage] = {}
    for answer in answers:
        document = answer["document"]
        shown = [ShownPage(*page) for page in answer["pages"]]
        for page, place in zip(document.get("pages") or (), shown, strict=False):
            found[place.number] = _recognised(page, str(document.get("text") or ""), place)
    return found


def _recognised(page: Mapping[str, Any], text: str, shown: ShownPage) -> RecognisedPage:
    frame = PageFrame(page, shown)
    lines = [span for line in page.get("lines") or () for span in _spans(line)]
    words: list[tuple[str, list[Point], float, int]] = []
    last_end = -1
    for number, token in enumerate(page.get("tokens") or ()):
        spans = list(_spans(token))
        points = frame.points((token.get("layout") or {}).get("boundingPoly") or {})
        if not spans or not points:
            continue
        start, end = spans[0][0], spans[-1][1]
        printed = " ".join(text[a:b].strip() for a, b in spans).strip()
        line = next((n for n, (a, b) in enumerate(lines) if a <= start < b), -1 - number)
        confidence = confidence_of((token.get("layout") or {}).get("confidence")) or 0.0
        if words and start == last_end and words[-1][3] == line:  # no space between them
            before = words[-1]
            words[-1] = before[0] + printed, before[1] + points, min(before[2], confidence), line
        elif printed:
            words.append((printed, points, confidence, line))
        last_end = -1 if "detectedBreak" in token else end
    turn = _turn([points for printed, points, _, _ in words if len(printed) > 1])
    return {
        "turn": turn,
        "words": [
            [printed, *_upright(points, turn), confidence, str(line)]
            for printed, points, confidence, line in words
        ],
    }


def _spans(part: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    anchor = (part.get("layout") or {}).get("textAnchor") or {}
    for segment in anchor.get("textSegments") or ():
        yield int(segment.get("startIndex") or 0), int(segment.get("endIndex") or 0)


def _turn(words: Sequence[Sequence[Point]]) -> int:
    """Return the quarter turns (clockwise) of most words: their corners begin at the top left."""
    turns = Counter[int]()
    for points in words:
        (x0, y0), (x1, y1) = points[0], points[1 % len(points)]
        if abs(x1 - x0) >= abs(y1 - y0):
            turns[0 if x1 >= x0 else 2] += 1
        else:
            turns[1 if y1 > y0 else 3] += 1
    return turns.most_common(1)[0][0] if turns else 0


def _upright(points: Sequence[Point], turn: int) -> tuple[float, float, float, float]:
    """Return a box of the page as shown as one of the upright picture."""
    x0, y0, x1, y1 = around(points).values()
    match turn:
        case 1:
            return y0, 1 - x1, y1, 1 - x0
        case 2:
            return 1 - x1, 1 - y1, 1 - x0, 1 - y0
        case 3:
            return 1 - y1, x0, 1 - y0, x1
        case _:
            return x0, y0, x1, y1
