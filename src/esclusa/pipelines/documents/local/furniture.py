# ruff: noqa: E501 - patterns are read as lists of words
"""What programs print around a statement: page counters, when and by whom it was printed, rules of dashes, running heads and feet."""

from __future__ import annotations

import calendar
import re

from esclusa.pipelines.documents.local.lines import Line, line_of
from esclusa.pipelines.documents.local.periods import Period, periods
from esclusa.pipelines.documents.local.texts import plain
from esclusa.pipelines.documents.local.words import Page

_COUNTER = re.compile(
    r"(?:\A|(?<=\s))(?:p[aá]g(?:ina)?|page|hoja|folio|sheet)\s?[.:]{0,2}\s*(?:n[°ºo]\.?\s*)?\d{1,5}(?:\s*(?:de|of|/)\s*\d{1,5})?\s*\Z",
    re.IGNORECASE,
)
_STAMP = re.compile(
    r"(?:\A|(?<=\s))(?:(?:fecha|hora|date|time|usuario|user|(?:print|run|report) date)(?: y hora| de (?:emisi[oó]n|impresi[oó]n|proceso|reporte))?\s*:|"
    r"(?P<verb>impreso|emitido|generado|printed|generated)(?: (?:el|on))?\s*:?)\s*(?P<value>\S+(?:\s\S+){0,4})\Z",
    re.IGNORECASE,
)
_ALONE = re.compile(r"[-–—|\s]*\d{1,4}(?:\s*(?:de|of|/)\s*\d{1,4})?[-–—|\s]*")
_SAID_BELOW = re.compile(
    r"\bnotas? adjuntas\b|\baccompanying notes\b|\bforman parte\b|\bintegral part\b"
)
_COUNTED = re.compile(r"\d{1,3}|(?:19|20)\d\d")
_MARGIN = 0.09
"""Of a page's height, above and below."""
_RULE = re.compile(r"[-=_*~.·]{4,}")


def cleared(page: Page, lines: list[Line]) -> list[Line]:
    """A page's lines without the marks that no reader takes for its content."""
    out: list[Line] = []
    for number, line in enumerate(lines):
        alone = (
            number in (0, len(lines) - 1) and _ALONE.fullmatch(line.text) and not periods(line.text)
        )
        if alone or _in_margin(page, lines, number) or _SAID_BELOW.search(plain(line.text)):
            continue
        words = [word for word in line.words[: _until(line)] if not _RULE.fullmatch(word.text)]
        if len(words) == len(line.words):
            out.append(line)
        elif words:
            out.append(line_of(line.page, words))
    return out


def in_margins(page: Page, lines: list[Line]) -> list[Line]:
    """Those of a page's lines that stand above or below what it says."""
    return [
        line
        for line in lines
        if not _MARGIN * page.height < line.base < (1 - _MARGIN) * page.height
    ]


def _in_margin(page: Page, lines: list[Line], number: int) -> bool:
    """Whether it is the page's first or last line, in its margin and apart from the others, and its only number counts pages or years."""
    line = lines[number]
    if 0 < number < len(lines) - 1 or not in_margins(page, [line]):
        return False
    others = [abs(other.base - line.base) for other in lines if other is not line]
    numbers = [cell.text for cell in line.cells if cell.kind == "amount" and cell.free]
    return (
        min(others, default=page.height) > 1.8 * line.height
        and len(numbers) == 1
        and _COUNTED.fullmatch(numbers[0]) is not None
    )


def _until(line: Line) -> int:
    """How many of its words stand before a page counter or a stamp at its end."""
    found = _COUNTER.search(line.text) or _STAMP.search(line.text)
    if found is None or (found.re is _STAMP and not _is_stamp(found)):
        return len(line.words)
    return len(line.text[: found.start()].split(" ")) - 1 if found.start() else 0


def _is_stamp(found: re.Match[str]) -> bool:
    """Whether it says when or by whom it was printed: ``emitido`` alone may be a label's last word, and a statement may say its own date."""
    dates = periods(found["value"])
    if found["verb"] and not dates and re.search(r"\d:\d\d", found["value"]) is None:
        return False
    return not any(is_month_end(one) for one in dates)


def is_month_end(one: Period) -> bool:
    return (
        one.ends is not None
        and one.ends.day == calendar.monthrange(one.ends.year, one.ends.month)[1]
    )


def running(every: list[Line]) -> set[str]:
    """The texts, as ``faceless`` says them, that stand on several pages at about the same height."""
    seen: dict[str, dict[int, float]] = {}
    for line in every:
        seen.setdefault(faceless(line.text), {}).setdefault(line.page, line.base)
    return {
        text
        for text, pages in seen.items()
        if len(pages) > 1 and max(pages.values()) - min(pages.values()) < 25
    }


def faceless(text: str) -> str:
    """A text whatever its numbers are."""
    return re.sub(r"\d+", "#", plain(text))
