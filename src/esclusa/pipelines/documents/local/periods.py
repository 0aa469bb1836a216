# ruff: noqa: E501 - forms are read as a table
"""Periods as statements print them, in Spanish and English: dates, months, quarters, years."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

_MONTHS = {
    "ene": 1, "jan": 1, "feb": 2, "mar": 3, "abr": 4, "apr": 4, "may": 5, "jun": 6, "jul": 7, "ago": 8, "aug": 8, "sep": 9, "set": 9,
    "oct": 10, "nov": 11, "dic": 12, "dec": 12,
}  # fmt: skip
_MONTH = (
    r"(?P<month{n}>enero|ene|january|jan|febrero|february|feb|marzo|march|mar|abril|abr|april|apr|mayo|may|junio|june|jun|julio|july|jul|"
    r"agosto|ago|august|aug|septiembre|setiembre|september|sept|sep|set|octubre|october|oct|noviembre|november|nov|diciembre|dic|"
    r"december|dec)\b\.?"
)
_YEAR = r"(?P<year{n}>(?:19[89]|20\d)\d)"
_DAY = r"(?P<day{n}>[0-3]?\d)"


def _form(text: str, n: int) -> str:
    return text.replace("{m}", _MONTH).replace("{y}", _YEAR).replace("{d}", _DAY).replace("{n}", str(n))


_FORMS = (
    r"\b{d}[-/.](?P<mm{n}>[01]?\d)[-/.](?P<long{n}>(?:19|20)\d\d|\d\d)\b",
    r"\b{y}-(?P<mm{n}>[01]\d)-{d}\b",
    r"\b{d}\s*(?:st|nd|rd|th)?\s*(?:de\s+|of\s+|[-/ ]\s*)?{m}\s*(?:,|del?|[-/])?\s*{y}\b",
    r"\b{d}[-/ ]{m}[-/ ](?P<short{n}>\d\d)\b",
    r"\b{m}\s*{d}(?:st|nd|rd|th)?\s*,?\s*{y}\b",
    r"\b{m}\s*(?:,|del?|[-/’'])?\s*{y}\b",
    r"\b{m}\s*[-/’' ]\s*['’]?(?P<short{n}>\d\d)\b",
    r"\b(?:Q(?P<quarter{n}>[1-4])|(?P<trim{n}>[1-4])\s*[TQ]|(?P<ord{n}>[1-4])(?:er|do|to|°|º)?\s+trimestre(?:\s+de)?)\s*[-’' /]?\s*(?:{y}|(?P<short{n}>\d\d))\b",
    r"\b(?:[HS](?P<half{n}>[12])|(?P<sem{n}>[12])\s*[HS]|(?P<ordh{n}>[12])(?:er|do|°|º)?\s+semestre(?:\s+de)?)\s*[-’' /]?\s*(?:{y}|(?P<short{n}>\d\d))\b",
    r"\b(?P<mm{n}>3|6|9|12)\s?M\s*[-’' /]?\s*(?:{y}|(?P<short{n}>\d\d))\b",
    r"\b(?:FY|AF)\s*(?:{y}|['’]?(?P<short{n}>\d\d))\b",
    r"(?<![\d.,$-]){y}(?:[A-Z](?![A-Za-z]))?(?![\d]|[.,]\d)",
)
_ANY = re.compile("|".join(f"(?P<f{n}>{_form(text, n)})" for n, text in enumerate(_FORMS)), re.IGNORECASE)
_PARTIAL = re.compile(_form(r"\b{d}\s*(?:de\s+)?{m}(?:\s+de)?\s*(?:,|\Z)", 0) + "|" + _form(r"\b{m}\s+{d}\s*(?:,|\Z)", 1), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Period:
    """A period as printed, where it stands in its text, and when it ends (as far as that is printed)."""

    start: int
    end: int
    year: int
    ends: date | None


@lru_cache(8192)
def periods(text: str) -> tuple[Period, ...]:
    """Every period in a text, from the left."""
    return tuple(_periods(text)) if any(ch.isdigit() for ch in text) else ()


def _periods(text: str) -> Iterator[Period]:
    for found in _ANY.finditer(text):
        n = next(i for i in range(len(_FORMS)) if found[f"f{i}"])
        said = {key[: -len(str(n))]: value for key, value in found.groupdict().items() if key.endswith(str(n)) and value and key != f"f{n}"}
        year = int(said.get("year") or said.get("long") or said["short"])
        year += 2000 if year < 100 else 0
        month = _month(said)
        if not 1980 <= year <= 2099 or (month is not None and not 1 <= month <= 12):
            continue
        quarter = said.get("quarter") or said.get("trim") or said.get("ord")
        half = said.get("half") or said.get("sem") or said.get("ordh")
        if quarter or half:
            month = 3 * int(quarter) if quarter else 6 * int(half or 2)
        if month is None:
            yield Period(found.start(), found.end(), year, None)
            continue
        last = calendar.monthrange(year, month)[1]
        day = int(said.get("day") or last)
        if 1 <= day <= last:
            yield Period(found.start(), found.end(), year, date(year, month, day))


def day_and_month(text: str) -> tuple[int, int] | None:
    """A day and month without a year, as in a heading over years: (month, day)."""
    found = _PARTIAL.search(text)
    if found is None:
        return None
    n = 0 if found["month0"] else 1
    return _MONTHS[found[f"month{n}"][:3].lower()], int(found[f"day{n}"])


def _month(said: dict[str, str]) -> int | None:
    if "month" in said:
        return _MONTHS[said["month"][:3].lower()]
    return int(said["mm"]) if "mm" in said else None


def end_in(year: int, month: int, day: int) -> date:
    return date(year, month, min(day, calendar.monthrange(year, month)[1]))
