"""Text printed around a statement: page numbers, print stamps, rules, headers and footers."""

from __future__ import annotations

import re

from esclusa.pipelines.documents.local.lines import TextLine, make_line
from esclusa.pipelines.documents.local.periods import is_month_end, periods
from esclusa.pipelines.documents.local.plain_text import plain
from esclusa.pipelines.documents.local.words import PdfPage

_COUNTER = re.compile(
    r"(?:\A|(?<=\s))(?:p[aá]g(?:ina)?|page|hoja|folio|"
    r"sheet)\s?[.:]{0,2}\s*(?:n[°ºo]\.?\s*)?\d{1,5}(?:\s*(?:de|of|/)\s*\d{1,5})?\s*\Z",
    re.IGNORECASE,
)
_STAMP = re.compile(
    r"(?:\A|(?<=\s))(?:(?:fecha|hora|date|time|usuario|user|(?:print|run|"
    r"report) date)(?: y hora| de (?:emisi[oó]n|impresi[oó]n|proceso|reporte))?\s*:|"
    r"(?P<verb>impreso|emitido|generado|printed|generated)(?: (?:el|"
    r"on))?\s*:?)\s*(?P<value>\S+(?:\s\S+){0,4})\Z",
    re.IGNORECASE,
)
_PAGE_NUMBER = re.compile(r"[-–—|\s]*\d{1,4}(?:\s*(?:de|of|/)\s*\d{1,4})?[-–—|\s]*")
_NOTES_REFERENCE = re.compile(
    r"\bnotas? adjuntas\b|\baccompanying notes\b|\bforman parte\b|\bintegral part\b"
)
_PAGE_OR_YEAR = re.compile(r"\d{1,3}|(?:19|20)\d\d")
# Share of the page height of the top and the bottom margin.
_MARGIN = 0.09
_RULE = re.compile(r"[-=_*~.·]{4,}")


def content_lines(page: PdfPage, lines: list[TextLine]) -> list[TextLine]:
    """Return the page's lines without page numbers, stamps, rules and references to the notes."""
    out: list[TextLine] = []
    for number, line in enumerate(lines):
        alone = (
            number in (0, len(lines) - 1)
            and _PAGE_NUMBER.fullmatch(line.text)
            and not periods(line.text)
        )
        if (
            alone
            or _is_margin_line(page, lines, number)
            or _NOTES_REFERENCE.search(plain(line.text))
        ):
            continue
        words = [
            word
            for word in line.words[: _words_before_mark(line)]
            if not _RULE.fullmatch(word.text)
        ]
        if len(words) == len(line.words):
            out.append(line)
        elif words:
            out.append(make_line(line.page, words))
    return out


def in_margins(page: PdfPage, lines: list[TextLine]) -> list[TextLine]:
    """Return the lines in the top and bottom margins of the page."""
    return [
        line for line in lines if not _MARGIN * page.height < line.y < (1 - _MARGIN) * page.height
    ]


def _is_margin_line(page: PdfPage, lines: list[TextLine], number: int) -> bool:
    """Return whether it is an isolated first or last line whose only number is a page or a year."""
    line = lines[number]
    if 0 < number < len(lines) - 1 or not in_margins(page, [line]):
        return False
    others = [abs(other.y - line.y) for other in lines if other is not line]
    numbers = [cell.text for cell in line.cells if cell.kind == "amount" and cell.is_separate]
    return (
        min(others, default=page.height) > 1.8 * line.height
        and len(numbers) == 1
        and _PAGE_OR_YEAR.fullmatch(numbers[0]) is not None
    )


def _words_before_mark(line: TextLine) -> int:
    """Return how many words stand before a page number or a stamp at the end of the line."""
    found = _COUNTER.search(line.text) or _STAMP.search(line.text)
    if found is None or (found.re is _STAMP and not _is_stamp(found)):
        return len(line.words)
    return len(line.text[: found.start()].split(" ")) - 1 if found.start() else 0


def _is_stamp(found: re.Match[str]) -> bool:
    """Return whether the match names when or by whom the page was printed.

    ``emitido`` alone may be the last word of a label, and a statement may have a date of its own.
    """
    dates = periods(found["value"])
    if found["verb"] and not dates and re.search(r"\d:\d\d", found["value"]) is None:
        return False
    return not any(is_month_end(period) for period in dates)


def repeated_texts(all_lines: list[TextLine]) -> set[str]:
    """Return the texts, with digits masked, at about the same height on several pages."""
    seen: dict[str, dict[int, float]] = {}
    for line in all_lines:
        seen.setdefault(masked_digits(line.text), {}).setdefault(line.page, line.y)
    return {
        text
        for text, pages in seen.items()
        if len(pages) > 1 and max(pages.values()) - min(pages.values()) < 25
    }


def masked_digits(text: str) -> str:
    """Return the text with ``#`` in place of its numbers."""
    return re.sub(r"\d+", "#", plain(text))
