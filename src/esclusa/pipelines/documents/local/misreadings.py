"""Signs that a text recogniser takes for others, corrected by what is beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from esclusa.pipelines.documents.local.plain_text import plain
from esclusa.pipelines.documents.local.word_lines import PictureWord

# M$, MUS$ and US$ are read as MS, MUSS and USS.
_DOLLARS = re.compile(r"(\(?)(M{1,2}|M{0,2}(?:US|CH))S(\)?[.,;:]?)")
# What a number follows: then 8 is not an ampersand.
_NUMBERED = re.compile(
    r"not[ae]s?|n[oº°]?|num\w*|page|pag\w*|ley|art\w*|sec\w*|form\w*|level|nivel|series?|clase|"
    r"class|niif|nic|nif|ifrs|ias|frs|asc|tipo|type|grupo|group|phase|fase|unit|unidad|local|anexo"
)
# Numerals that number items, and endings of Spanish words: explotación is read as explotacién.
_ROMAN = re.compile(r"(?=.*[Il|])[Il|][Il|1L]{1,2}[.)]")
_ENDING, _NO_ENDING = re.compile(r"(?<=[cs])ién(?=[.,;:)]*\Z)"), {"recién"}
# Letters that number the items of a list; g) is read as 9).
_LETTERED, _NINE = re.compile(r"[a-fh-k]\)"), re.compile(r"\(?9\)")


def corrected(lines: list[list[str]]) -> list[list[str]]:
    """Return the words of lines with the signs that were meant."""
    firsts = {line[0] for line in lines if line}
    lettered = any(map(_LETTERED.fullmatch, firsts)) and "8)" not in firsts
    return [_corrected_line(line, lettered=lettered) for line in lines]


def _corrected_line(words: list[str], *, lettered: bool) -> list[str]:
    out = []
    for at, word in enumerate(words):
        before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
        if word == "8" and _joins(before, after):
            out.append("&")
        elif lettered and at == 0 and _NINE.fullmatch(word):
            out.append(word.replace("9", "g"))
        elif at == 0 and _ROMAN.fullmatch(word):
            out.append("I" * (len(word) - 1) + word[-1])
        elif _DOLLARS.fullmatch(word):
            out.append(_DOLLARS.sub(r"\1\2$\3", word))
        else:
            out.append(word if word.lower() in _NO_ENDING else _ENDING.sub("ión", word))
    return out


def _joins(before: str, after: str) -> bool:
    """Return whether these are words, and the first is not one that a number follows."""
    return (
        len(before) > 1
        and len(after) > 1
        and before.rstrip(",").isalpha()
        and after.isalpha()
        and _NUMBERED.fullmatch(plain(before)) is None
    )


# Headings

_YEAR = re.compile(r"(?:19[89]|20[0-6])\d")
_DOUBTFUL, _AMOUNT = re.compile(r"\d{1,5}"), re.compile(r"\d[.,]\d|\d{5}")
# The fewest digits that may be a year of which one was lost.
MIN_DIGITS = 3
# What a year keeps of its confidence when a digit was corrected.
_LOST_DIGIT = 0.7


def with_years(
    lines: Sequence[list[PictureWord]], sides: tuple[float, float], slope: float
) -> list[list[PictureWord]]:
    """Return the lines with the years of headings corrected: 2922 beside 2023 is 2022.

    Such a number has another year in its row, no amount, and differs by one digit from just one of
    the page's years and the one before them. A digit that is left of a year is dropped.
    """
    words = [word for line in lines for word in line]
    years = {word.text for word in words if _YEAR.fullmatch(word.text)}
    if not years:
        return list(lines)
    known = years | {str(int(min(years)) - 1), str(int(max(years)) - 1)}
    levels = [(_level(word, sides, slope), word) for word in words]

    def heading(word: PictureWord) -> PictureWord | None:
        if not _DOUBTFUL.fullmatch(word.text) or _YEAR.fullmatch(word.text):
            return word
        level, reach = _level(word, sides, slope), (word.y1 - word.y0) * sides[1] / 2
        row = [w.text for at, w in levels if abs(at - level) < reach and w is not word]
        return _as_year(word, row, known)

    return [[found for word in line if (found := heading(word))] for line in lines]


def _as_year(word: PictureWord, row: list[str], known: set[str]) -> PictureWord | None:
    """Return a number as the year that it was, by the other texts of its row; None for a speck."""
    beside = {text for text in row if _YEAR.fullmatch(text)}
    if not beside or any(map(_AMOUNT.search, row)):
        return word
    if len(word.text) < MIN_DIGITS:
        return None if len(row) > 1 and all(map(_YEAR.fullmatch, row)) else word
    fits = {year for year in known if _differ_by_one(word.text, year)}
    fits = fits - beside or fits
    if len(fits) != 1:
        return word
    return word._replace(text=fits.pop(), confidence=_LOST_DIGIT * word.confidence)


def _level(word: PictureWord, sides: tuple[float, float], slope: float) -> float:
    """Return the height of the word's middle, where lines are level."""
    wide, high = sides
    return (word.y0 + word.y1) / 2 * high - slope * (word.x0 + word.x1) / 2 * wide


def _differ_by_one(text: str, year: str) -> bool:
    """Return whether one digit was replaced, lost or added."""
    longer, shorter = (text, year) if len(text) >= len(year) else (year, text)
    if len(longer) == len(shorter):
        return sum(a != b for a, b in zip(longer, shorter, strict=True)) == 1
    return len(longer) == len(shorter) + 1 and any(
        longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer))
    )
