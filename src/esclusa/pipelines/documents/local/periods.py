"""Periods as printed in statements, in Spanish and English: dates, months, quarters, years."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

_MONTHS = {
    "ene": 1, "jan": 1, "feb": 2, "mar": 3, "abr": 4, "apr": 4, "may": 5, "jun": 6, "jul": 7,
    "ago": 8, "aug": 8, "sep": 9, "set": 9, "oct": 10, "nov": 11, "dic": 12, "dec": 12,
}  # fmt: skip
_MONTH = (
    r"(?P<month{n}>enero|ene|january|jan|febrero|february|feb|marzo|march|mar|abril|abr|"
    r"april|apr|mayo|may|junio|june|jun|julio|july|jul|"
    r"agosto|ago|august|aug|septiembre|setiembre|september|sept|sep|set|octubre|october|oct|"
    r"noviembre|november|nov|diciembre|dic|"
    r"december|dec)(?![a-zñ])\.?"
)
_YEAR = r"(?P<year{n}>(?:19[89]|20\d)\d)"
_DAY = r"(?P<day{n}>3[01]|[12]\d|0?[1-9])"
_QUARTER = (
    r"(?:[QT](?P<quarter{n}>[1-4])|(?P<trim{n}>[1-4])\s*[TQ]|"
    r"(?P<ord{n}>[1-4](?:er|do|to|st|nd|rd|th|°|º)?|i{1,3}|iv|first|second|third|fourth|"
    r"primer|segundo|tercer|cuarto)\.?\s+(?:trim(?:estre|\.)?|quarter)|"
    r"(?:trim(?:estre|\.)?|quarter)\s+(?P<rear{n}>iv|i{1,3}|[1-4])(?![\w]))"
)
_HALF = (
    r"(?:[HS](?P<half{n}>[12])|(?P<sem{n}>[12])\s*[HS]|"
    r"(?P<ordh{n}>[12](?:er|do|st|nd|°|º)?|i{1,2}|first|second|primer|"
    r"segundo)\.?\s+(?:sem(?:estre|\.)?|half)|"
    r"(?:sem(?:estre|\.)?|half)\s+(?P<rearh{n}>i{1,2}|[12])(?![\w]))"
)
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_ORDINALS = {
    "i": 1, "ii": 2, "iii": 3, "iv": 4, "first": 1, "second": 2, "third": 3, "fourth": 4,
    "primer": 1, "segundo": 2, "tercer": 3, "cuarto": 4,
}  # fmt: skip


def _form(text: str, n: int) -> str:
    for part, pattern in {
        "{q}": _QUARTER,
        "{h}": _HALF,
        "{of}": r"\s*(?:,|del?|of|FY|[-’'/])?\s*",
        "{m}": _MONTH,
        "{y}": _YEAR,
        "{d}": _DAY,
        "{s}": r"(?P<short{n}>\d\d)",
    }.items():
        text = text.replace(part, pattern)
    return text.replace("{n}", str(n))


_FORMS = (
    r"\b{d}\s?[-/.]\s?(?P<mm{n}>[01]?\d)\s?[-/.]\s?(?P<long{n}>(?:19|20)\d\d|\d\d)(?!\d|[.,/]\d)",
    r"\b(?P<mm{n}>[01]?\d)[-/]{d}[-/](?P<long{n}>(?:19|20)\d\d|\d\d)(?!\d)",
    r"\b{y}[-/.](?P<mm{n}>[01]\d)[-/.]{d}\b",
    r"\b{d}\s*(?:st|nd|rd|th)?\s*(?:de\s+|of\s+|[-/ ]\s*)?{m}\s*(?:,|del?|[-/])?\s*{y}\b",
    r"\b{d}[-/. ]?{m}[-/. ]?{s}\b",
    r"\b{m}\s*{d}(?:st|nd|rd|th)?\s*(?:,|del?)?\s*{y}\b",
    r"\b{m}\s*{d}(?:st|nd|rd|th)?\s*,?\s*['’]{s}\b",
    (
        r"\b{d}\s?[-/.]\s?(?P<roman{n}>x|xi{1,2}|i?v|vi{0,3}|ix|"
        r"i{1,3})\s?[-/.]\s?(?P<long{n}>(?:19|20)\d\d|\d\d)\b"
    ),
    r"\b{m}\s*(?:,|del?|[-/’'])?\s*{y}\b",
    r"\b{m}\s*[-/’']\s*['’]?{s}\b",
    r"\b{m}\s?(?!2[89]|3[01]){s}\b(?!\s*,)",
    r"\b{q}{of}(?:{y}|{s})\b",
    r"\b{h}{of}(?:{y}|{s})\b",
    r"\b(?:{y}|FY\s?{s})[-’' /]?{q}\b",
    r"\b(?:{y}|FY\s?{s})[-’' /]?{h}\b",
    r"\b(?P<mm{n}>[1-9]|1[0-2])\s?M\s*[-’' /]?\s*(?:{y}|{s})\b",
    r"(?<![\d/.,-])(?P<mm{n}>0?[1-9]|1[0-2])[-/]{y}\b",
    r"\b{y}[-/](?P<mm{n}>0[1-9]|1[0-2])(?![\d/-])",
    (
        r"(?<![\d.,$-])(?:FY\s?)?(?P<from{n}>(?:19[89]|"
        r"20\d)\d)\s?[-/–]\s?(?P<until{n}>(?:19[89]|20\d)\d|\d\d)(?![\d/-])"
    ),
    r"\b(?:FYE?|AF|CY|YE)\s*(?:{y}|['’]?{s})[A-Z]?\b",
    r"(?<![\d.,$-]){y}(?:[A-Z](?![A-Za-z]))?(?![\d]|[.,]\d)",
)
_ANY = re.compile(
    "|".join(f"(?P<f{n}>{_form(text, n)})" for n, text in enumerate(_FORMS)), re.IGNORECASE
)
_PARTIAL = re.compile(
    _form(r"\b{d}\s*(?:de\s+)?{m}(?:\s+de)?\s*(?:,|\Z)", 0)
    + "|"
    + _form(r"\b{m}\s+{d}\s*(?:,|\Z)", 1),
    re.IGNORECASE,
)
# A heading without the day, or broken before it: `Nine Months Ended September`.
_ENDED = re.compile(
    _form(
        r"\b(?:ended|ending|terminad[oa]s?|finalizad[oa]s?|acabad[oa]s?)(?:\s+(?:in|on|el|"
        r"al|en|a))?\s+{m}\s*\Z",
        0,
    ),
    re.IGNORECASE,
)
_PART = re.compile(_form(r"{m}|{q}|{h}", 0), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Period:
    """A printed period: its span in the text, its year, and its end as far as that is printed."""

    start: int
    end: int
    year: int
    ends: date | None


@lru_cache(8192)
def periods(text: str) -> tuple[Period, ...]:
    """Return every period of a text, from the left."""
    return tuple(_periods(text)) if any(ch.isdigit() for ch in text) else ()


def _periods(text: str) -> Iterator[Period]:
    for found in _ANY.finditer(text):
        n = str(found.lastgroup)[1:]
        groups = {
            key.removesuffix(n): value
            for key, value in found.groupdict().items()
            if value is not None
        }
        if "from" in groups:
            yield from _year_range(found, n)
            continue
        year = int(groups.get("year") or groups.get("long") or groups["short"])
        year += 2000 if year < 100 else 0
        month = _month(groups)
        if not 1980 <= year <= 2099 or (month is not None and not 1 <= month <= 12):
            continue
        if month is None:
            yield Period(found.start(), found.end(), year, None)
            continue
        last = calendar.monthrange(year, month)[1]
        day = int(groups.get("day") or last)
        if 1 <= day <= last:
            yield Period(found.start(), found.end(), year, date(year, month, day))


def _year_range(found: re.Match[str], n: str) -> Iterator[Period]:
    """Yield the period of ``2023/24``, which ends in 2024, or else the two years."""
    first, second = int(found[f"from{n}"]), int(found[f"until{n}"])
    second += first // 100 * 100 if second < 100 else 0
    if second == first + 1:
        yield Period(found.start(), found.end(), second, None)
        return
    yield Period(found.start(), found.end(f"from{n}"), first, None)
    yield Period(found.start(f"until{n}"), found.end(), second, None)


def day_and_month(text: str) -> tuple[int, int] | None:
    """Return the (month, day) of a heading without a year; day 31 for the end of a month."""
    found = _PARTIAL.search(text)
    if found is None:
        ended = _ENDED.search(text)
        return None if ended is None else (_MONTHS[ended["month0"][:3].lower()], 31)
    n = 0 if found["month0"] else 1
    return _MONTHS[found[f"month{n}"][:3].lower()], int(found[f"day{n}"])


def end_month(text: str) -> int | None:
    """Return the month in which a part of a year ends: ``Enero``, ``Q1``, ``2do trimestre``."""
    found = _PART.fullmatch(text.strip(" .:"))
    return (
        _month(
            {
                key.removesuffix("0"): value
                for key, value in found.groupdict().items()
                if value is not None
            }
        )
        if found
        else None
    )


def _month(groups: dict[str, str]) -> int | None:
    """Return the last month of a month, quarter or half."""
    if "month" in groups:
        return _MONTHS[groups["month"][:3].lower()]
    if (
        quarter := groups.get("quarter")
        or groups.get("trim")
        or groups.get("ord")
        or groups.get("rear")
    ):
        return 3 * _number_of(quarter)
    if half := groups.get("half") or groups.get("sem") or groups.get("ordh") or groups.get("rearh"):
        return 6 * _number_of(half)
    if "roman" in groups:
        return _ROMAN.index(groups["roman"].lower()) + 1
    return int(groups["mm"]) if "mm" in groups else None


def _number_of(groups: str) -> int:
    return int(groups[0]) if groups[0].isdigit() else _ORDINALS[groups.lower()]


def date_in(year: int, month: int, day: int) -> date:
    """Return the date, with the day limited to the length of the month."""
    return date(year, month, min(day, calendar.monthrange(year, month)[1]))


def is_month_end(period: Period) -> bool:
    """Return whether a period ends on the last day of a month."""
    return (
        period.ends is not None
        and period.ends.day == calendar.monthrange(period.ends.year, period.ends.month)[1]
    )
