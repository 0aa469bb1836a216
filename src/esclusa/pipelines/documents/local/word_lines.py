"""Lines of recognised words: each with one height, and every word on the baseline.

A recogniser gives the ink of each word: ``nos`` is lower than ``Nota``. Where it cannot separate
the words of a line, it gives the box of several of them, with a margin, to each: ``of`` is then
higher than ``Cost``, or reaches as far as the end of ``Cost of sales``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

# Width of a letter of a typewriter, in heights of a capital of most fonts. Its capitals are lower.
_PITCH = 0.86
# How much higher than usual for its width a letter may be: narrow ones are.
_HIGHEST = 1.25
# How much higher than the lowest word of a line one may be, whose box is its own; and how much
# higher than usual a line may be, in which at least one is.
_OWN, _OWN_LINE = 1.2, 1.45
# Height of a letter without ascender, and of what is below the baseline, in heights of a capital.
_X_HEIGHT, _DESCENT = 0.73, 0.28
_ASCENDING = re.compile(r"[A-ZÁÉÍÓÚÑÜ0-9bdfhklt$€£%()\[\]|/áéíóúñü!?]")
_DESCENDING = re.compile(r"[gjpqyQ,;()\[\]$|/]")
RULE = re.compile(r"[-–—_=~.·•|¦:'’‘\"*]+")


class PictureWord(NamedTuple):
    """A word with its place in fractions of the picture, upright, and its line."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    confidence: float
    line: str


def even_lines(
    lines: Sequence[list[PictureWord]], sides: tuple[float, float], slope: float
) -> list[list[PictureWord]]:
    """Return the lines with one height for the words of each, from capital to descender.

    ``sides`` are width and height of the picture in points; lines fall to the right by ``slope``.
    """
    lines = [_apart(line) for line in lines]
    pitches = [_pitch(line, sides[0]) for line in lines]
    shapes = [
        median(_capital(word, sides[1]) for word in line) / pitch
        for line, pitch in zip(lines, pitches, strict=True)
        if pitch
    ]
    usual = median(shapes) if shapes else 0.0
    return [
        _even(line, sides, slope, usual * pitch, pitch / _PITCH)
        for line, pitch in zip(lines, pitches, strict=True)
    ]


def _even(
    words: list[PictureWord],
    sides: tuple[float, float],
    slope: float,
    usual: float,
    least: float,
) -> list[PictureWord]:
    wide, high = sides
    capitals = [_capital(word, high) for word in words]
    lowest = max(min(capitals), 0.85 * usual)
    own = [capital <= _OWN * lowest for capital in capitals]
    falls = [slope * (word.x0 + word.x1) / 2 * wide for word in words]
    bases = [_baseline(word, high) for word in words]
    if usual and lowest > _OWN_LINE * usual:
        capital = usual
        own = [False] * len(words)
        level = median(
            (word.y0 + word.y1) / 2 * high - fall for word, fall in zip(words, falls, strict=True)
        )
        level += (1 - _DESCENT) / 2 * capital
    else:
        capital = max(median(c for c, is_own in zip(capitals, own, strict=True) if is_own), least)
        capital = min(capital, _HIGHEST * usual) if usual else capital
        level = median(
            base - fall for base, fall, is_own in zip(bases, falls, own, strict=True) if is_own
        )
    out = []
    for word, base, fall, is_own in zip(words, bases, falls, own, strict=True):
        at = base if is_own or _is_rule(word) else level + fall
        out.append(word._replace(y0=(at - capital) / high, y1=(at + _DESCENT * capital) / high))
    return out


def _apart(words: list[PictureWord]) -> list[PictureWord]:
    """Return the words of a line so that none reaches into the next one."""
    out = list(words)
    for at, following in enumerate(words[1:]):
        word = out[at]
        if word.x0 < following.x0 < word.x1:
            width = (following.x0 - word.x0) * len(word.text) / (len(word.text) + 0.5)
            out[at] = word._replace(x1=word.x0 + width)
    return out


def _capital(word: PictureWord, high: float) -> float:
    """Return the height of a capital by the ink of a word."""
    ink = _baseline(word, high) - word.y0 * high
    return ink / (1.0 if _ASCENDING.search(word.text) else _X_HEIGHT)


def _pitch(words: Sequence[PictureWord], wide: float) -> float:
    """Return the width of a letter in points; 0 if no word is long enough."""
    pitches = [(word.x1 - word.x0) * wide / len(word.text) for word in words if len(word.text) > 2]
    return median(pitches) if pitches else 0.0


def _baseline(word: PictureWord, high: float) -> float:
    ink = (word.y1 - word.y0) * high
    if _is_rule(word):  # a dash is in the middle of its line
        return word.y1 * high + 2 * ink
    below = _DESCENT / (1 + _DESCENT) * ink if _DESCENDING.search(word.text) else 0.0
    return word.y1 * high - below


def _is_rule(word: PictureWord) -> bool:
    return RULE.fullmatch(word.text) is not None
