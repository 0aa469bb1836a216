"""What a document states once for many numbers: title, organisation, currency, scale, dates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from itertools import dropwhile, takewhile, zip_longest

from esclusa.pipelines.documents.local.classifier import is_other_title, title_class
from esclusa.pipelines.documents.local.lines import TextLine
from esclusa.pipelines.documents.local.money import scale_of
from esclusa.pipelines.documents.local.periods import (
    Period,
    date_in,
    day_and_month,
    is_month_end,
    periods,
)
from esclusa.pipelines.documents.local.plain_text import plain

_COMPANY = re.compile(
    r"\b(s\.? ?a\.?( ?b\.?)?( de c\.? ?v\.?)?|spa|s\.?p\.?a\.?|ltda\.?|limitada|"
    r"e\.?i\.?r\.?l\.?|s\.? ?a\.? ?[cs]\.?|s\.? ?r?\.? ?l\.?u?\.?|s\.? de r\.? ?l\.?|inc\.?|"
    r"llc|l\.l\.c\.|"
    r"ltd\.?|limited|corp\.?|corporation|company|co\.|plc|gmbh|ag|holdings?|group|grupo|"
    r"compania|cia\.?|sociedad|empresas?|inversiones|(y|e) (filiales?|subsidiarias?)|"
    r"(and|&) subsidiar(y|ies)|banco|bank|cooperativa|coop\.?|fundacion|foundation|trust|"
    r"municipio|municipalidad|ayuntamiento|universidad|university|asociacion|association|"
    r"corporacion|council)(?=[\s,.)]|\Z)",
    re.IGNORECASE,
)
# Legal forms that are also ordinary words in lower case.
_LEGAL_FORM = re.compile(
    r"\b(?:SE|N\.?V\.?|B\.?V\.?|AB|ASA|A/S|Oyj?|KG|KGaA|CLG|Pty|Pte)\.?(?: \(publ\)| & Co\.?)?\Z"
)
_NAME_LABEL = re.compile(
    r"\A(?:denominaci[oó]n|raz[oó]n|nombre)(?: social| de la (?:empresa|entidad|sociedad|"
    r"compa[nñ][ií]a))?\s*:\s*|\A(?:empresa|entidad|sociedad|compa[nñ][ií]a|contribuyente|"
    r"company(?: name)?|entity(?: name)?|name|client|from)\s*:\s*",
    re.IGNORECASE,
)
# What separates a name from other text in its line.
_SEPARATOR = re.compile(
    r"\s+[·|•]\s+|\s+[–—]\s+|\s+-\s+(?=\d|rut|nit|rfc|ruc|cuit|nif|cif)", re.IGNORECASE
)
_NOT_A_NAME = re.compile(
    r"^(al|a|por|para|for|as|as of|at|expresad|cifras|en|in|\(|estados?|statements?|"
    r"consolidated|years?|ejercicio|periodo|no auditad|unaudited|rut|nit|rfc|ruc|nif|"
    r"pagina|page|folio|notas?|nota|note|auditad|informe|report|memoria|annual|interim|"
    r"currency|moneda|amounts?|figures|balance|miles|millones|valores|unidad|"
    r"clave|ticker|trimestre|quarter|giro|cif|cuit|registered|registro|direccion|address|"
    r"sistema(?! (?:operador|(?:inter)?municipal|estatal|nacional|integral|para|de (?:aguas?|salud|"
    r"transporte|medios)))|programa|system|program|modulo|module|fecha|date|to|"
    r"company (?:registration|"
    r"registered|number|no))\b"
)
# What a page header or footer contains besides the name.
_REPORT = re.compile(
    r"\b(?:annual|interim|quarterly|half[- ]year|financial|management) (?:report|accounts|"
    r"statements)|\bform \d|\b(?:memoria|informe|reporte|cuentas anuales|estados financieros)\b",
    re.IGNORECASE,
)
_ENDS_ON = re.compile(
    r"\b(?:ended|ending|as (?:of|at)|al|terminad[oa]s?|finalizad[oa]s?|hasta|to|through|"
    r"cierre|closing)\s+(?:on\s+|the\s+|el\s+|del?\s+|al\s+)?\Z"
)


@dataclass
class StatementContext:
    """The values that apply below a title, until another title replaces them."""

    title: str | None = None
    org: str | None = None
    currency: str | None = None
    scale: int | None = None
    dates: dict[int, date] = field(default_factory=dict)
    day: tuple[int, int] | None = None
    years: list[int] = field(default_factory=list)

    def learn_dates(self, text: str) -> None:
        """Add the dates of a title: ``Al 31 de diciembre de 2024 y 2023``.

        Dates on which no period ends, such as that of a meeting, are ignored.
        """
        found = closing_periods(text)
        for period in found:
            if period.ends is not None:
                # The first date after a title counts; later ones in prose are about something else.
                if not self.dates:
                    self.day = (period.ends.month, period.ends.day)
                kept = self.dates.get(period.year)
                if kept is None or period.ends > kept:
                    self.dates[period.year] = period.ends
            if period.year not in self.years:
                self.years.append(period.year)
        if not found and not self.dates and (partial := day_and_month(text)):
            self.day = partial

    def end_of(self, year: int) -> date:
        """Return the end of a year for which a heading names only the year."""
        return self.dates.get(year) or date_in(year, *(self.day or (12, 31)))

    @property
    def latest(self) -> date | None:
        """The end of the latest known year."""
        return self.end_of(max(self.years)) if self.years else None


def closing_periods(text: str) -> list[Period]:
    """Return the periods of a title, from the first that ends with a month or is said to end."""
    return list(dropwhile(lambda period: not _closes(text, period), periods(text)))


def _closes(text: str, period: Period) -> bool:
    return (
        period.ends is None
        or is_month_end(period)
        or _ENDS_ON.search(plain(text[: period.start])) is not None
    )


def is_spanish(text: str) -> bool:
    """Return whether a text has at least as many Spanish words as English ones."""
    text_words = f" {plain(text)} "
    es = sum(
        text_words.count(w)
        for w in (
            " de ",
            " del ",
            " y ",
            " los ",
            " por ",
            " en ",
            " la ",
            " al ",
            " ventas ",
            " activo ",
            " gastos ",
        )
    )
    en = sum(
        text_words.count(w)
        for w in (
            " of ",
            " the ",
            " and ",
            " for ",
            " in ",
            " at ",
            " to ",
            " cash ",
            " assets ",
            " net ",
            " sales ",
        )
    )
    return es >= en


def organisation_of(
    lines: list[TextLine], margin_lines: list[TextLine]
) -> tuple[str, TextLine] | None:
    """Return the organisation's name and its line.

    The name follows a label of a form, or is a line near the top that names a company, or one in
    the margins ``margin_lines``, or the first line that is no title, date or unit.
    """
    above = takewhile(lambda line: not line.has_later_amount, lines)
    top = [(_first_part(line), line) for line in above if not line.is_prose][:14]
    top = [
        (text, line)
        for text, line in top
        if 3 <= len(text) <= 110 and sum(ch.isalpha() for ch in text) >= 3
    ]
    top = [
        (f"{_first_line_of_name(before, line)}{text}", line)
        for before, (text, line) in zip([None, *(line for _, line in top)], top, strict=False)
    ]
    for (text, line), below in zip_longest(top, top[1:]):
        if named := _NAME_LABEL.match(text):
            if named.end() < len(text):
                return text[named.end() :], line
            if below is not None and abs(below[1].x0 - line.x0) < line.height:
                return below
    plausible = [(text, line) for text, line in top if _is_plausible_name(text)]
    in_margins = [
        (_REPORT.split(_first_part(line))[0].strip(" -–—|·,"), line) for line in margin_lines
    ]
    companies = [found for found in plausible if _is_company(found[0])]
    companies += [
        (text, line)
        for text, line in in_margins
        if _is_company(text) and _is_plausible_name(text) and text[0].isupper()
    ]
    return next(iter(companies), None) or next(
        (found for found in plausible if _may_be_name(*found)), None
    )


def _is_plausible_name(text: str) -> bool:
    """Return whether the text is no title and no phrase about dates, units or the document."""
    return (
        title_class(text) is None
        and not is_other_title(text)
        and _NOT_A_NAME.search(plain(text)) is None
    )


def _is_company(text: str) -> bool:
    return _COMPANY.search(plain(text)) is not None or _LEGAL_FORM.search(text) is not None


def _may_be_name(text: str, line: TextLine) -> bool:
    """Return whether a line without a legal form may be a name: no date, unit, number or list."""
    return (
        not periods(text)
        and scale_of(text) is None
        and re.search(r"\d{5}", text) is None
        and len(line.runs) < 3
    )


def _first_line_of_name(before: TextLine | None, line: TextLine) -> str:
    """Return the first line of a wrapped name: ``Kestrel Building / Products Limited``."""
    if (
        before is None
        or len(line.words) > 2
        or not _is_company(line.text)
        or _NOT_A_NAME.search(plain(before.text))
    ):
        return ""
    alike = (
        abs(before.height - line.height) < 0.05 * line.height
        and abs(before.x0 - line.x0) < line.height
    )
    close = before.page == line.page and 0 < line.y - before.y < 1.6 * line.height
    return (
        f"{before.text} "
        if alike and close and title_class(before.text) is None and not _is_company(before.text)
        else ""
    )


def _first_part(line: TextLine) -> str:
    """Return the text of a line up to the first separator."""
    return _SEPARATOR.split(line.runs[0].text.strip())[0].strip(" ,·|")
