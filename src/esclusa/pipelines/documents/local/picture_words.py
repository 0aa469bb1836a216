"""Words of a page that is a picture, as a text recogniser found them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import tan
from statistics import median
from typing import Any

import pypdfium2.raw as c

from esclusa.pipelines.documents.local.misreadings import corrected, with_years
from esclusa.pipelines.documents.local.page_geometry import Box, PageGeometry, picture_slope
from esclusa.pipelines.documents.local.word_lines import RULE, PictureWord, even_lines
from esclusa.pipelines.documents.local.words import Recogniser, Word

# Words that are less certain are specks and parts of rules.
MIN_CONFIDENCE = 0.15
# Letters less certain than this share of the usual word are read into dot leaders and rules.
_JUNK_SHARE = 0.55
_CERTAIN, _LONG_WORD = 0.9, re.compile(r"[^\W\d_]{6,}\W?")
# Space beside the ink of a letter that belongs to it, in heights of a line.
_BEARING = 0.06
_NUMBER_PART = re.compile(r"[(\-–−$]*[\d.,]+[)\-–−]*")
_DECIMALS = re.compile(r"\d[.,]\d\d[)\-–−]*\Z")
_WHOLE, _CENTS = re.compile(r"[(\-–−$]*\d{1,3}(?:[.,]\d{3})*"), re.compile(r"\d\d[)\-–−]*")
_THREE = re.compile(r"\d{3}(?:[.,]\d{1,3})*[)\-–−]*")
_THOUSANDS = re.compile(r"\d([.,])\d{3}(?!\d)")
_DIGIT = re.compile(r"\d")
# What a number keeps of its confidence when its decimal point was lost.
_LOST_POINT = 0.7

# The most words of a stamp or page number on a picture, and the share that pictures then cover.
MAX_STAMP_WORDS, COVERED_SHARE = 12, 0.5
# Shapes from which a page without words may be text drawn as outlines.
MIN_OUTLINES = 200


@dataclass(frozen=True, slots=True)
class Picture:
    """The words of a page; ``turn`` is the number of quarter turns (clockwise) of its text."""

    words: list[PictureWord]
    turn: int = 0


def is_picture(page: Any, words: list[Word]) -> bool:
    """Return whether the page shows text only as a picture.

    It has no words and an image, or text drawn as outlines; or a few words, such as a stamp, and
    images on most of it.
    """
    if len(words) > MAX_STAMP_WORDS:
        return False
    width, height = page.get_size()
    images = outlines = 0
    covered = 0.0
    for part in page.get_objects(max_depth=3):
        outlines += part.type == c.FPDF_PAGEOBJ_PATH
        if part.type == c.FPDF_PAGEOBJ_IMAGE:
            images += 1
            left, bottom, right, top = part.get_bounds()
            covered += max(0.0, right - left) * max(0.0, top - bottom)
    if words:
        return bool(covered > COVERED_SHARE * width * height)
    return images > 0 or outlines > MIN_OUTLINES


def recognised(pages: Mapping[str, Any]) -> Recogniser:
    """Return a function that gives words that were recognised before, by the number of the page."""

    def recognise(
        page: Any, geometry: PageGeometry, number: int, offset: int
    ) -> tuple[list[Word], str]:
        found = pages.get(str(number), {"words": (), "turn": 0})
        words = [PictureWord(*word) for word in found["words"]]
        return words_of_picture(Picture(words, found["turn"]), geometry, number, offset)

    return recognise


def words_of_picture(
    picture: Picture, geometry: PageGeometry, page: int, offset: int
) -> tuple[list[Word], str]:
    """Return the words in reading direction, and the text in which they count from ``offset``."""
    geometry.turn, geometry.words_lean = picture.turn, False
    sides = _sides(geometry)
    found = _without_junk(_without_leaders([word for word in picture.words if _is_word(word)]))
    lines = _corrected([list(line) for _, line in groupby(found, key=lambda word: word.line)])
    geometry.lean = picture_slope(_placed(even_lines(lines, sides, 0.0), geometry, page, offset))
    slope = tan(geometry.lean)
    lines = with_years(even_lines(lines, sides, slope), sides, slope)
    lines = _joined(lines, decimals=_has_decimals(found), mark=_mark_of_thousands(found))
    text = "\n".join(" ".join(word.text for word in line) for line in lines) + "\f"
    return _placed(lines, geometry, page, offset), text


def _sides(geometry: PageGeometry) -> tuple[float, float]:
    """Return width and height of the page in reading direction, in points."""
    wide, high = geometry.width, geometry.height
    return (wide, high) if geometry.turn % 2 == 0 else (high, wide)


def _is_word(word: PictureWord) -> bool:
    """Return whether it is text: neither a speck nor a part of a rule."""
    if word.confidence < MIN_CONFIDENCE:
        return False
    if RULE.fullmatch(word.text):
        return word.text in {"-", "–", "—"}
    return True


def _corrected(lines: list[list[PictureWord]]) -> list[list[PictureWord]]:
    texts = corrected([[word.text for word in line] for line in lines])
    return [
        [word._replace(text=text) for word, text in zip(line, own, strict=True)]
        for line, own in zip(lines, texts, strict=True)
    ]


def _without_leaders(words: list[PictureWord]) -> list[PictureWord]:
    """Drop what was recognised in dot leaders and specks: its ink is much lower than a letter."""
    heights = [w.y1 - w.y0 for w in words if len(w.text) > 1 and w.confidence > 0.5]
    low = 0.45 * median(heights) if heights else 0.0
    return [w for w in words if w.y1 - w.y0 >= low or RULE.fullmatch(w.text)]


def _without_junk(words: list[PictureWord]) -> list[PictureWord]:
    """Drop letters that are much less certain than the other words of the page.

    A long word of different letters beside a certain one stays.
    """
    usual = median([w.confidence for w in words if len(w.text) > 1] or [0.0])
    certain = {w.line for w in words if w.confidence > _CERTAIN}
    return [
        w
        for w in words
        if w.confidence >= _JUNK_SHARE * usual
        or _DIGIT.search(w.text)
        or (w.line in certain and _LONG_WORD.fullmatch(w.text) and len(set(w.text)) > 4)
    ]


def _has_decimals(words: list[PictureWord]) -> bool:
    """Return whether many numbers of the page have two decimals."""
    decimals = sum(_DECIMALS.search(word.text) is not None for word in words)
    return decimals > 0.1 * sum(_NUMBER_PART.fullmatch(word.text) is not None for word in words)


def _mark_of_thousands(words: list[PictureWord]) -> str:
    """Return the mark of thousands of most numbers of the page; empty if few have one."""
    numbers = [word.text for word in words if _NUMBER_PART.fullmatch(word.text)]
    marks = Counter(match[1] for text in numbers if (match := _THOUSANDS.search(text)))
    mark, count = marks.most_common(1)[0] if marks else ("", 0)
    return mark if count > 0.1 * len(numbers) else ""


def _joined(
    lines: list[list[PictureWord]], *, decimals: bool, mark: str
) -> list[list[PictureWord]]:
    """Join the parts of a number that the recogniser split at its separators.

    ``decimals``: numbers of the page have two decimals. ``mark``: that of their thousands. A point
    or mark that was lost is put back, with less confidence.
    """
    out: list[list[PictureWord]] = []
    for line in lines:
        out.append([])
        for word in line:
            # The recogniser may have taken the parts for two lines.
            place = next((p for p in _places_before(out, word)), None)
            before = out[place[0]][place[1]] if place is not None else None
            if before is None or place is None:
                out[-1].append(word)
            elif decimals and _lost_point(before.text, word.text):
                out[place[0]][place[1]] = _one(before, word, _point_of(before.text), _LOST_POINT)
            elif mark and _lost_mark(before.text, word.text):
                out[place[0]][place[1]] = _one(before, word, mark, _LOST_POINT)
            elif _is_split(before, word):
                out[place[0]][place[1]] = _one(before, word)
            else:
                out[-1].append(word)
    return [line for line in out if line]


def _places_before(lines: list[list[PictureWord]], word: PictureWord) -> Iterator[tuple[int, int]]:
    """Yield where the word stands that ends close to the left of another."""
    if _NUMBER_PART.fullmatch(word.text) is None:
        return
    for row in range(len(lines) - 1, max(-1, len(lines) - 8), -1):
        for at, before in enumerate(lines[row]):
            size = (before.x1 - before.x0) / max(1, len(before.text))
            level = abs(before.y0 + before.y1 - word.y0 - word.y1) < word.y1 - word.y0
            if level and -0.5 * size < word.x0 - before.x1 < 1.7 * size:
                yield row, at


def _is_split(before: PictureWord, word: PictureWord) -> bool:
    size = (before.x1 - before.x0) / max(1, len(before.text))
    return (
        _NUMBER_PART.fullmatch(before.text) is not None
        and (before.text[-1] in ".,(-" or word.text[0] in ".,)")
        and word.x0 - before.x1 < 0.9 * size
    )


def _one(
    first: PictureWord, second: PictureWord, between: str = "", share: float = 1.0
) -> PictureWord:
    return first._replace(
        text=f"{first.text}{between}{second.text}",
        x1=second.x1,
        confidence=share * min(first.confidence, second.confidence),
    )


def _lost_point(first: str, second: str) -> bool:
    return _WHOLE.fullmatch(first) is not None and _CENTS.fullmatch(second) is not None


def _lost_mark(first: str, second: str) -> bool:
    return _WHOLE.fullmatch(first) is not None and _THREE.fullmatch(second) is not None


def _point_of(number: str) -> str:
    """Return the decimal point of a number by its mark of thousands."""
    return "," if "." in number else "."


def _placed(
    lines: list[list[PictureWord]], geometry: PageGeometry, page: int, offset: int
) -> list[Word]:
    out = []
    at = offset
    for line in lines:
        for word in line:
            box = _displayed(word, geometry.turn)
            inside = tuple(min(1.0, max(0.0, v)) for v in box)
            x0, y0, x1, y1 = geometry.reading_box(box)
            bearing = _BEARING * (y1 - y0)
            out.append(
                Word(
                    word.text,
                    *(x0 - bearing, y0, x1 + bearing, y1),
                    (inside[0], inside[1], inside[2], inside[3]),
                    page,
                    at,
                    at + len(word.text),
                    round(word.confidence, 3),
                )
            )
            at += len(word.text) + 1
    return out


def _displayed(word: PictureWord, turn: int) -> Box:
    """Return the box of an upright word on the displayed page."""
    match turn:
        case 1:
            return 1 - word.y1, word.x0, 1 - word.y0, word.x1
        case 2:
            return 1 - word.x1, 1 - word.y1, 1 - word.x0, 1 - word.y0
        case 3:
            return word.y0, 1 - word.x1, word.y1, 1 - word.x0
        case _:
            return word.x0, word.y0, word.x1, word.y1
